//! Connections and streams that are made to hold what they take.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{StreamExt as _, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use switchyard_service::status::{Reason, reason_of};
use tonic::{
    Status,
    body::Body,
    transport::{Channel, Endpoint},
};
use tower::{Service as _, ServiceExt as _};

use super::victim::Victim;

const MIB: usize = 1 << 20;
const LIMIT: Duration = Duration::from_secs(60);

/// Opens a call with these bytes and no end.
async fn call(channel: &Channel, url: &str, method: &str, first: Vec<Bytes>) -> Result<http::Response<Body>, String> {
    let frames = stream::iter(first.into_iter().map(|bytes| Ok::<_, Status>(Frame::data(bytes))));
    let body = Body::new(StreamBody::new(frames.chain(stream::pending())));
    let request = http::Request::post(format!("{url}/switchyard.v1.ExecutorService/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap();
    let mut channel = channel.clone();
    let channel = channel.ready().await.map_err(|error| error.to_string())?;
    channel.call(request).await.map_err(|error| error.to_string())
}

/// The beginning of a message of 16 MiB.
fn beginning(bytes: usize) -> Vec<Bytes> {
    let mut prefix = BytesMut::new();
    prefix.put_u8(0);
    prefix.put_u32(16 * MIB as u32);
    let part = Bytes::from(vec![b'x'; MIB]);
    std::iter::once(prefix.freeze()).chain(std::iter::repeat_n(part, bytes / MIB)).collect()
}

/// Case 323 where no plan is seen yet: messages that are not whole are held by the transport.
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_never_become_whole_hold_no_more_than_the_budget() {
    let mut victim = Victim::start(&["--max-held-bytes", "32MiB"]).await;
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..16 {
        let channel = Endpoint::from_shared(victim.url()).unwrap().connect().await.unwrap();
        let mut response = call(&channel, &victim.url(), "Execute", beginning(15 * MIB)).await.unwrap();
        // Refused, or waiting for the rest.
        let trailers = async {
            loop {
                match http_body_util::BodyExt::frame(response.body_mut()).await {
                    Some(Ok(frame)) if frame.is_trailers() => break frame.into_trailers().ok(),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => break None,
                }
            }
        };
        match tokio::time::timeout(Duration::from_secs(3), trailers).await {
            Ok(trailers) => {
                let status = trailers.as_ref().and_then(Status::from_header_map).unwrap();
                assert_eq!(reason_of(&status), Some(Reason::TooBusy), "{status:?}");
                refused += 1;
            }
            Err(_) => open.push((channel, response)),
        }
    }
    victim.serves_others().await;
    assert!(refused >= 8, "{refused} refused, {} open", open.len());
    victim.took_little(0, "messages that never become whole");
}

/// Case 322: whoever connects and says nothing, or says it slowly, is let go of, and holds up nobody meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_are_closed() {
    let mut victim = Victim::start(&["--max-connections", "400", "--max-connections-per-peer", "300"]).await;
    let address = victim.address();
    let mut silent: Vec<_> = (0..250).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut slow = TcpStream::connect(address).unwrap();
    slow.write_all(b"PRI * HTTP/2.0\r\n").unwrap();
    silent.push(slow);
    victim.serves_others().await;
    let began = Instant::now();
    for stream in &mut silent {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let read = stream.read(&mut [0]);
        assert!(matches!(read, Ok(0)) || read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    }
    assert!(began.elapsed() < LIMIT);
    victim.took_little(0, "connections that say nothing");
}

/// Case 322: no peer has all connections.
#[tokio::test(flavor = "multi_thread")]
async fn connections_have_a_bound() {
    let mut victim = Victim::start(&["--max-connections", "20", "--max-connections-per-peer", "10"]).await;
    let address = victim.address();
    let held: Vec<_> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
    let is_refused = || {
        let mut more = TcpStream::connect(address).unwrap();
        // Long before one that says nothing is closed.
        more.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        !matches!(more.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!(is_refused(), "one peer has more than ten connections");
    drop(held);
    let began = Instant::now();
    while is_refused() {
        assert!(began.elapsed() < LIMIT, "places are not free again");
    }
    victim.serves_others().await;
    victim.took_little(0, "connections beyond the bound");
}

/// Case 321: without file descriptors left the executor waits for some, and does not spin.
#[tokio::test(flavor = "multi_thread")]
async fn out_of_file_descriptors_the_executor_rests_and_comes_back() {
    let mut victim = Victim::start(&["--max-connections", "10000", "--max-connections-per-peer", "10000"]).await;
    let pid = victim.pid();
    let limit = Rlimit { current: Some(40), maximum: Some(40) };
    prlimit(Pid::from_raw(pid as i32), Resource::Nofile, limit).unwrap();
    let held: Vec<_> = (0..60).map(|_| TcpStream::connect(victim.address()).unwrap()).collect();
    let began = Instant::now();
    while !victim.log().contains("connections cannot be accepted") {
        assert!(began.elapsed() < LIMIT, "{}", victim.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let before = processor_time(pid);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let took = processor_time(pid) - before;
    // A hundredth of a second each; a loop that spins takes two hundred.
    assert!(took < 60, "{took} hundredths of a second of processor time in 2 s");
    assert_eq!(victim.log().matches("connections cannot be accepted").count(), 1, "{}", victim.log());
    drop(held);
    victim.serves_others().await;
    victim.took_little(0, "out of file descriptors");
}

/// Processor time of a process, in hundredths of a second (proc(5)).
fn processor_time(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Calls that are opened and dropped by the thousand, and headers as large as can be.
#[tokio::test(flavor = "multi_thread")]
async fn floods_of_resets_and_headers_end_the_connection_and_nothing_else() {
    let mut victim = Victim::start(&[]).await;
    let channel = Endpoint::from_shared(victim.url()).unwrap().connect_lazy();
    for _ in 0..3_000 {
        let url = victim.url();
        let opened = call(&channel, &url, "Execute", Vec::new());
        // Dropped when it has been sent, mostly before it is answered.
        tokio::time::timeout(Duration::from_micros(200), opened).await.ok();
    }
    victim.serves_others().await;
    let channel = Endpoint::from_shared(victim.url()).unwrap().connect().await.unwrap();
    let mut request = http::Request::post(format!("{}/switchyard.v1.ExecutorService/ListRuns", victim.url()))
        .body(Body::empty())
        .unwrap();
    request.headers_mut().insert("x-large", "x".repeat(MIB).parse().unwrap());
    let refused = tokio::time::timeout(LIMIT, channel.clone().ready().await.unwrap().call(request)).await.unwrap();
    assert!(refused.is_err() || !refused.unwrap().status().is_success());
    victim.serves_others().await;
    victim.took_little(MIB, "floods of resets and headers");
}
