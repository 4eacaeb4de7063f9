//! How long connections last (case 322).

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use support::{Running, ask, start};
use switchyard_proto::v1::planner_service_client::PlannerServiceClient;
use tokio::{net::TcpStream, time::timeout};
use tonic::transport::{Channel, Endpoint};

const LIMIT: Duration = Duration::from_secs(30);

/// A channel that counts how often it dials.
fn counted(running: &Running) -> (Channel, Arc<AtomicUsize>) {
    let dials = Arc::new(AtomicUsize::new(0));
    let address = running.address;
    let counter = dials.clone();
    let connector = tower::service_fn(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move { TcpStream::connect(address).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    (endpoint.connect_with_connector_lazy(connector), dials)
}

#[tokio::test]
async fn an_idle_or_old_connection_is_told_to_go_and_finishes_its_calls() {
    let running = start(&["--max-connection-age", "300ms"]).await;
    let (channel, dials) = counted(&running);
    let mut client = PlannerServiceClient::new(channel);
    let mut open = client.plan(ask("a part, and the last at the drain")).await.unwrap().into_inner();
    assert!(open.message().await.unwrap().is_some());
    let began = Instant::now();
    while dials.load(Ordering::Relaxed) < 2 {
        assert!(began.elapsed() < LIMIT, "the connection takes calls for ever");
        // One that is under way when the connection is told to go may fail.
        client.plan(ask("one part")).await.ok();
    }
    running.shutdown.drain();
    assert!(open.message().await.unwrap().is_some(), "the call that was open goes on to its end");
    assert!(open.message().await.unwrap().is_none());

    let running = start(&["--max-connection-idle", "100ms"]).await;
    let stream = TcpStream::connect(running.address).await.unwrap();
    let (_sender, connection) =
        http2::handshake::<_, _, Empty<bytes::Bytes>>(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    assert!(timeout(LIMIT, connection).await.unwrap().is_ok(), "it is closed in good order");
}

#[tokio::test]
async fn a_connection_with_a_call_is_not_idle() {
    let idle = Duration::from_millis(500);
    let running = start(&["--max-connection-idle", "500ms"]).await;
    let (channel, dials) = counted(&running);
    let mut client = PlannerServiceClient::new(channel);
    let mut open = client.plan(ask("a part, and the last at the drain")).await.unwrap().into_inner();
    assert!(open.message().await.unwrap().is_some());
    let began = Instant::now();
    while began.elapsed() < idle * 3 {
        client.plan(ask("one part")).await.unwrap();
    }
    assert_eq!(dials.load(Ordering::Relaxed), 1);
    running.shutdown.drain();
    assert!(open.message().await.unwrap().is_some());
}

#[tokio::test]
async fn http_1_is_answered_in_http_1() {
    let running = start(&[]).await;
    let address = running.address;
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = answer.await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 426 "), "{answer}");
    assert!(head.contains(&format!("content-length: {}", body.len())) && body.contains("gRPC"), "{answer}");
}
