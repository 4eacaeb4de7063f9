//! What callers, probes and the program itself see of a drain.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::time::{Duration, Instant};

use support::{ask, health_of, start};
use switchyard_service::{
    serve::Drained,
    status::{self, Reason},
};
use tokio::net::TcpStream;
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use tonic_types::StatusExt;

fn whole_server() -> HealthCheckRequest {
    HealthCheckRequest { service: String::new() }
}

#[tokio::test]
async fn every_service_is_ready_until_the_drain_and_not_after() {
    let running = start(&[]).await;
    let channel = running.channel().await;
    let mut stream = running.client().await.plan(ask("a part, and the last at the drain")).await.unwrap().into_inner();
    let mut holding = running.client().await.plan(ask("a part, then nothing")).await.unwrap().into_inner();
    for service in ["", "switchyard.v1.PlannerService"] {
        assert_eq!(health_of(channel.clone(), service).await, Ok(ServingStatus::Serving));
    }
    assert_eq!(health_of(channel.clone(), "switchyard.v1.ExecutorService").await, Err(Code::NotFound));

    running.shutdown.drain();
    while stream.message().await.unwrap().is_some() {}

    for service in ["", "switchyard.v1.PlannerService"] {
        assert_eq!(health_of(channel.clone(), service).await, Ok(ServingStatus::NotServing));
    }
    // A probe opens a connection of its own.
    assert_eq!(health_of(running.channel().await, "").await, Ok(ServingStatus::NotServing));
    assert!(holding.message().await.unwrap().is_some());
    running.shutdown.abort();
    assert_eq!(running.end_within(Duration::from_secs(2)).await, Drained::Aborted);
}

#[tokio::test]
async fn new_calls_are_refused_while_old_ones_end() {
    let running = start(&[]).await;
    let mut client = running.client().await;
    let _holding = client.plan(ask("a part, then nothing")).await.unwrap();

    running.shutdown.drain();
    let refused = client.plan(ask("one part")).await.unwrap_err();

    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(status::reason_of(&refused), Some(Reason::ShuttingDown));
    assert_eq!(refused.get_details_retry_info().unwrap().retry_delay, Some(Duration::from_secs(1)));
}

#[tokio::test]
async fn streams_that_listen_to_the_drain_end_it_early() {
    let running = start(&["--grace-period", "30s"]).await;
    let mut stream = running.client().await.plan(ask("a part, and the last at the drain")).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());

    running.shutdown.drain();

    assert_eq!(stream.message().await.unwrap(), Some(support::part("last")));
    assert_eq!(stream.message().await.unwrap(), None);
    assert_eq!(running.end_within(Duration::from_secs(3)).await, Drained::Clean);
}

#[tokio::test]
async fn an_open_watch_and_an_idle_connection_do_not_hold_up_the_end() {
    let running = start(&["--grace-period", "30s"]).await;
    let mut watch = HealthClient::new(running.channel().await).watch(whole_server()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let _idle = TcpStream::connect(running.address).await.unwrap();

    let start = Instant::now();
    running.shutdown.drain();

    assert_eq!(running.end_within(Duration::from_secs(3)).await, Drained::Clean);
    assert!(start.elapsed() < Duration::from_secs(3));
    let rest = loop {
        match watch.message().await {
            Ok(Some(answer)) => assert_eq!(answer.status(), ServingStatus::NotServing),
            Ok(None) => panic!("a watch that is cut short is not OK"),
            Err(status) => break status,
        }
    };
    assert_eq!(rest.code(), Code::Unavailable);
}

#[tokio::test]
async fn the_grace_period_bounds_streams_that_do_not_end() {
    let running = start(&["--grace-period", "300ms"]).await;
    let mut stream = running.client().await.plan(ask("a part, then nothing")).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    let mut waiting = running.client().await;
    let unanswered = tokio::spawn(async move { waiting.plan(ask("never a header")).await });
    tokio::time::sleep(Duration::from_millis(50)).await;

    running.shutdown.drain();

    for cut in [stream.message().await.unwrap_err(), unanswered.await.unwrap().unwrap_err()] {
        assert_eq!(status::reason_of(&cut), Some(Reason::ShuttingDown));
    }
    assert_eq!(running.end_within(Duration::from_secs(2)).await, Drained::Cut);
}

/// Case 263: whoever would be cut off is told before, and has some time left then.
#[tokio::test]
async fn a_last_call_comes_before_the_end_for_whoever_is_left() {
    let running = start(&["--grace-period", "2s"]).await;
    let _stream = running.client().await.plan(ask("a part, then nothing")).await.unwrap();
    running.shutdown.drain();
    assert_eq!(running.shutdown.time_left(), None);

    tokio::time::timeout(Duration::from_secs(3), running.shutdown.last_call()).await.unwrap();

    let left = running.shutdown.time_left().unwrap();
    assert!(left > Duration::ZERO && left <= Duration::from_millis(500), "{left:?}");
    assert!(!running.served.is_finished());
    assert_eq!(running.end_within(Duration::from_secs(3)).await, Drained::Cut);
}

#[tokio::test]
async fn a_client_that_never_reads_does_not_hold_up_the_end() {
    let running = start(&["--grace-period", "200ms"]).await;
    let _unread = running.client().await.plan(ask("parts without end")).await.unwrap();
    // Until the flow-control window is full, and the server waits for the client.
    tokio::time::sleep(Duration::from_millis(300)).await;

    running.shutdown.drain();

    assert_eq!(running.end_within(Duration::from_secs(2)).await, Drained::Cut);
}

#[tokio::test]
async fn tasks_are_waited_for_although_no_call_is_left() {
    let running = start(&["--grace-period", "10s"]).await;
    let started = Instant::now();
    let mut stream = running.client().await.plan(ask("a task that goes on for 300 ms")).await.unwrap().into_inner();
    while stream.message().await.unwrap().is_some() {}

    running.shutdown.drain();

    assert_eq!(running.end_within(Duration::from_secs(3)).await, Drained::Clean);
    assert!(started.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn the_second_signal_ends_it_at_once() {
    let running = start(&["--grace-period", "1h"]).await;
    let _stream = running.client().await.plan(ask("a part, then nothing")).await.unwrap();
    running.shutdown.drain();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!running.served.is_finished());

    running.shutdown.abort();

    // What a last call takes at most, and the closing of connections.
    assert_eq!(running.end_within(Duration::from_secs(1)).await, Drained::Aborted);
}

/// What ends because of the second signal was cut off, however quickly it does: that is no clean end.
#[tokio::test]
async fn who_ends_only_because_of_the_second_signal_was_not_waited_for() {
    let running = start(&["--grace-period", "10m"]).await;
    running.client().await.plan(ask("a task that goes on until the abort")).await.unwrap();
    running.shutdown.drain();
    tokio::task::yield_now().await;

    running.shutdown.abort();

    assert_eq!(running.end_within(Duration::from_secs(1)).await, Drained::Aborted);
}

#[tokio::test]
async fn a_server_that_is_told_to_drain_before_it_serves_ends_cleanly() {
    let running = start(&[]).await;
    running.shutdown.drain();
    assert_eq!(running.end_within(Duration::from_secs(2)).await, Drained::Clean);
}
