//! Requests made to hurt, sent to the real program: for a request of n bytes it takes at most 64 MB and 30 n of memory, and
//! 5 s, whatever is in it, and serves the next caller meanwhile (group D of the faults that were seen; case 144).
//!
//! Each case has a program of its own, so that its peak is the peak of that case. The address space is limited as well:
//! should a bound fail, the program dies and not the machine.
#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod common;
mod hostile_requests;

use std::fmt::Write as _;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::server::of_text;
use common::{component, design};
use hostile_requests::{Expected, cases, encoded};
use prost::Message;
use switchyard_proto::v1;
use switchyard_proto::v1::planner_service_client::PlannerServiceClient;
use switchyard_proto::v1::planner_service_server::SERVICE_NAME;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// The program, on a port of its own.
struct Program {
    child: Child,
    client: PlannerServiceClient<Channel>,
    channel: Channel,
    folder: tempfile::TempDir,
}

/// Unoptimised code on a busy machine gets more time than 5 s; its memory is the same.
const SLOW: u32 = if cfg!(debug_assertions) { 30 } else { 1 };

impl Program {
    async fn start(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port_file = folder.path().join("port");
        let patient = format!("{}s", 5 * SLOW);
        let unless = |flag, value| if flags.contains(&flag) { Vec::new() } else { vec![flag, value] };
        let child = Command::new("sh")
            // KiB of address space; the allocator reserves one GiB to begin with.
            .args(["-c", "ulimit -v 4194304; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_switchyard-planner")])
            .args(["--listen", "127.0.0.1:0", "--port-file"])
            .arg(&port_file)
            .args(unless("--log", "off"))
            .args(unless("--max-planning-time", &patient))
            .args(flags)
            .stdin(Stdio::null())
            .stderr(fs::File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let address = loop {
            match fs::read_to_string(&port_file) {
                Ok(address) if !address.trim().is_empty() => break address.trim().to_owned(),
                _ => assert!(Instant::now() < deadline, "the program does not listen"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let client = PlannerServiceClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
        Self { child, client, channel, folder }
    }

    /// Peak memory in bytes.
    fn peak(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// How many lines of the log say this.
    fn logged(&self, what: &str) -> usize {
        fs::read_to_string(self.folder.path().join("log")).unwrap().matches(what).count()
    }

    /// Sends a request as bytes, because some say more in few bytes than this process would like to hold, and counts the
    /// parts of the answer.
    async fn send(&self, bytes: Vec<u8>) -> Result<usize, Status> {
        let mut stream = call(self.channel.clone(), bytes).await?.into_inner();
        let mut parts = 0;
        while stream.message().await?.is_some() {
            parts += 1;
        }
        Ok(parts)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Calls `Plan` with a message that is encoded already.
async fn call(channel: Channel, bytes: Vec<u8>) -> Result<tonic::Response<tonic::Streaming<v1::PlanResponse>>, Status> {
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
    grpc.ready().await.unwrap();
    let path = format!("/{SERVICE_NAME}/Plan").parse().unwrap();
    grpc.server_streaming(tonic::Request::new(bytes), path, Encoded).await
}

struct Encoded;

impl tonic::codec::Codec for Encoded {
    type Encode = Vec<u8>;
    type Decode = v1::PlanResponse;
    type Encoder = Self;
    type Decoder = tonic_prost::ProstDecoder<v1::PlanResponse>;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self::Decoder {
        tonic_prost::ProstDecoder::default()
    }
}

impl tonic::codec::Encoder for Encoded {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut tonic::codec::EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(buffer, &item);
        Ok(())
    }
}

fn trivial() -> v1::PlanRequest {
    of_text(design([component("a")]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_takes_more_than_its_size_allows() {
    let mut wrong = String::new();
    for (name, request, expected) in cases() {
        let bytes = request();
        let program = Program::start(&[]).await;
        program.send(trivial().encode_to_vec()).await.unwrap();
        let (before, size) = (program.peak(), bytes.len() as u64);
        let start = Instant::now();
        let sent = program.send(bytes);
        let meanwhile = async {
            let start = Instant::now();
            let answer = program.send(trivial().encode_to_vec()).await;
            (answer, start.elapsed())
        };
        let (answer, (next, next_took)) = tokio::join!(sent, meanwhile);
        let took = start.elapsed();
        let used = program.peak() - before;
        let told = match &answer {
            Ok(parts) => format!("{parts} parts"),
            Err(status) => format!("{:?} {}", status.code(), status.message()),
        };
        eprintln!("{name}: {took:?}, {} KB for {} KB; next {next_took:?}; {told:.160}", used / 1000, size / 1000);
        let mut complain = |what: String| writeln!(wrong, "{name}: {what}").unwrap();
        if used > 64_000_000 + 30 * size {
            complain(format!("{used} bytes of memory for {size} bytes"));
        }
        if took > Duration::from_secs(5) * SLOW {
            complain(format!("took {took:?}"));
        }
        if next_took > Duration::from_secs(1) * SLOW || next.is_err() {
            complain(format!("the next caller got {next:?} after {next_took:?}"));
        }
        if let Err(why) = as_expected(&answer, expected) {
            complain(why);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn as_expected(answer: &Result<usize, Status>, expected: Expected) -> Result<(), String> {
    let status = match (answer, expected) {
        (Ok(_), Expected::Planned | Expected::Anything) => return Ok(()),
        (Ok(parts), Expected::Refused(..)) => return Err(format!("was planned, in {parts} parts")),
        (Err(status), Expected::Planned) => return Err(format!("was refused: {status:?}")),
        (Err(status), _) => status,
    };
    let Some(info) = status.get_details_error_info() else { return Err(format!("no ErrorInfo: {status:?}")) };
    if status.message().len() >= 1024 {
        return Err("a long message".into());
    }
    let Expected::Refused(reason, part) = expected else { return Ok(()) };
    let violations = status.get_details_bad_request().map(|details| details.field_violations).unwrap_or_default();
    let told = std::iter::once(status.message()).chain(violations.iter().map(|v| v.description.as_str()));
    match info.reason == reason && told.into_iter().any(|text| text.contains(part)) {
        true => Ok(()),
        false => Err(format!("{}: {} {violations:.3?}", info.reason, status.message())),
    }
}

/// A design that takes long: every name is looked for among all names.
fn long() -> v1::PlanRequest {
    let components = (0..20_000 / SLOW.min(4)).map(|number| {
        format!(
            "{{\"displayName\":\"name-{number:06}\",\"component\":{{\"kind\":\"Pod\",\"version\":\"v1\"}},\"model\":\
             {{\"name\":\"kubernetes\"}},\"metadata\":{{\"dependsOn\":[\"wrong-{number:06}\"]}}}}"
        )
    });
    of_text(format!("{{\"name\":\"x\",\"components\":[{}]}}", components.collect::<Vec<_>>().join(",")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_leave_take_their_planning_with_them() {
    let program = Program::start(&["--log", "switchyard_planner=debug"]).await;
    let bytes = long().encode_to_vec();
    let _ = program.send(bytes.clone()).await;
    let callers: Vec<_> = (0..16).map(|_| tokio::spawn(call(program.channel.clone(), bytes.clone()))).collect();
    // Whoever is planned now is long from the end of it.
    let deadline = Instant::now() + Duration::from_secs(60);
    while program.logged("planning begins") == 1 {
        assert!(Instant::now() < deadline, "nobody of them is planned");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    callers.iter().for_each(|caller| caller.abort());
    for caller in callers {
        let _ = caller.await;
    }
    // Behind whatever is still at work in this lane; and the last of it is over when a second one is through as well.
    let _ = program.send(bytes.clone()).await;
    let _ = program.send(bytes).await;
    // A design that is looked at to its end is refused in the log too, whether anybody waits for that or not.
    assert_eq!(program.logged("design refused"), 3, "the first one and the two of the end");
}

#[tokio::test]
async fn planning_that_takes_too_long_is_stopped_and_told() {
    let program = Program::start(&["--max-planning-time", "10ms"]).await;
    let status = program.send(long().encode_to_vec()).await.expect_err("stopped");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.get_details_error_info().unwrap().reason, "REQUEST_TOO_COSTLY");
    assert!(status.message().contains("--max-planning-time"), "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_never_end_leave_room_for_others() {
    let program = Program::start(&["--max-held-bytes", "64MiB"]).await;
    let before = program.peak();
    let stalled: Vec<_> = (0..12).map(|_| tokio::spawn(stalled(program.channel.clone(), 8 << 20))).collect();
    // Until the server has refused some: what it holds of the others is bounded.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !stalled.iter().any(tokio::task::JoinHandle::is_finished) {
        assert!(Instant::now() < deadline, "nobody was refused");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let start = Instant::now();
    assert_eq!(program.client.clone().plan(trivial()).await.map(|_| ()).map_err(|status| status.code()), Ok(()));
    assert!(start.elapsed() < Duration::from_secs(1) * SLOW);
    assert!(program.peak() - before < 200_000_000, "{}", program.peak() - before);
    for task in stalled {
        match task.is_finished() {
            true => assert_eq!(task.await.unwrap().code(), Code::ResourceExhausted),
            false => task.abort(),
        }
    }
}

/// Sends most of a message and nothing more, and waits for the answer.
async fn stalled(channel: Channel, bytes: usize) -> Status {
    use tokio_stream::StreamExt;
    let mut head = vec![0];
    head.extend(u32::try_from(bytes + 1).unwrap().to_be_bytes());
    let chunks = std::iter::once(head).chain((0..bytes / (64 << 10)).map(|_| vec![b'x'; 64 << 10]));
    let frames = tokio_stream::iter(chunks)
        .map(|chunk| Ok::<_, Status>(http_body::Frame::data(bytes::Bytes::from(chunk))))
        .chain(tokio_stream::pending());
    let request = http::Request::post(format!("http://localhost/{SERVICE_NAME}/Plan"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(http_body_util::StreamBody::new(frames)))
        .unwrap();
    let mut channel = channel;
    std::future::poll_fn(|context| tower::Service::poll_ready(&mut channel, context)).await.unwrap();
    match tower::Service::call(&mut channel, request).await {
        Ok(response) => Status::from_header_map(response.headers()).unwrap_or_else(|| Status::ok("")),
        Err(error) => Status::unknown(error.to_string()),
    }
}

#[test]
fn bytes_are_what_the_contract_says() {
    let registry = v1::Registry { models: vec![v1::Model::default(); 3], ..v1::Registry::default() };
    let request = v1::PlanRequest { registry: Some(registry), ..v1::PlanRequest::default() };
    assert_eq!(encoded(6, &encoded(2, &[]).repeat(3)), request.encode_to_vec());
}
