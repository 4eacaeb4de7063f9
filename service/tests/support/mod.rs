//! A server of ours with a planner whose behaviour each request asks for.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part of this")]

use std::{
    net::SocketAddr,
    pin::Pin,
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value::Value,
};
use switchyard_proto::v1::{
    PlanHeader, PlanRequest, PlanResponse, PlannerServiceGetCapabilitiesRequest, PlannerServiceGetCapabilitiesResponse,
    plan_response::Part,
    planner_service_client::PlannerServiceClient,
    planner_service_server::{PlannerService, PlannerServiceServer},
};
use switchyard_service::{
    Shutdown,
    budget::Budget,
    config::ServeArgs,
    program::{self, Program},
    serve::{Drained, Error, Server},
    status::{self, Reason},
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::task::TaskTracker;
use tonic::{Code, Request, Response, Status, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use tracing::Instrument;

pub const PROGRAM: Program = Program { name: "switchyard-test", version: "1.2.3", listen: "127.0.0.1:7001" };

#[derive(Debug, clap::Parser)]
pub struct Args {
    #[command(flatten)]
    pub serve: ServeArgs,
}

impl AsRef<ServeArgs> for Args {
    fn as_ref(&self) -> &ServeArgs {
        &self.serve
    }
}

pub fn args(flags: &[&str]) -> ServeArgs {
    let line = ["switchyard-test", "--listen", "127.0.0.1:0"].iter().chain(flags);
    program::parse_from::<Args>(&PROGRAM, line).unwrap().serve
}

/// Does what the first cluster of a request says.
#[derive(Clone)]
pub struct Stub {
    shutdown: Shutdown,
    tasks: TaskTracker,
    budget: Budget,
}

pub type Plan = Pin<Box<dyn Stream<Item = Result<PlanResponse, Status>> + Send>>;

pub fn part(plan_id: &str) -> PlanResponse {
    PlanResponse { part: Some(Part::Header(PlanHeader { plan_id: plan_id.to_owned(), ..PlanHeader::default() })) }
}

#[tonic::async_trait]
impl PlannerService for Stub {
    type PlanStream = Plan;

    async fn get_capabilities(
        &self,
        _: Request<PlannerServiceGetCapabilitiesRequest>,
    ) -> Result<Response<PlannerServiceGetCapabilitiesResponse>, Status> {
        Ok(Response::new(PlannerServiceGetCapabilitiesResponse::default()))
    }

    async fn plan(&self, request: Request<PlanRequest>) -> Result<Response<Plan>, Status> {
        let request = request.into_inner();
        let first = stream::iter([Ok(part("first"))]);
        let shutdown = self.shutdown.clone();
        let plan: Plan = match request.clusters[0].as_str() {
            "one part" => Box::pin(first),
            "a part, then nothing" => Box::pin(first.chain(stream::pending())),
            "a part, and the last at the drain" => Box::pin(first.chain(stream::once(async move {
                shutdown.draining().await;
                Ok(part("last"))
            }))),
            "parts without end" => Box::pin(stream::repeat_with(|| Ok(part(&"x".repeat(64 << 10))))),
            "a part, then nothing, holding all that may be held" => {
                let mut share = self.budget.share(0);
                share.take_anyway(self.budget.total());
                Box::pin(first.chain(stream::pending().map(move |part| {
                    let _held = &share;
                    part
                })))
            }
            "never a header" => std::future::pending().await,
            "panic" => panic!("as asked for"),
            "panic in the stream" => Box::pin(first.chain(stream::once(async {
                // tonic packs what is ready into one frame, and a panic while packing loses it: let the first part go.
                tokio::time::sleep(Duration::from_millis(20)).await;
                panic!("as asked for")
            }))),
            "refuse in the stream" => Box::pin(first.chain(stream::iter([Err(Status::data_loss("as asked for"))]))),
            "a task with a span" => {
                let task = tokio::spawn(
                    async { tracing::info_span!("spawned").in_scope(|| ()) }.instrument(tracing::Span::current()),
                );
                Box::pin(first.chain(stream::once(async move {
                    task.await.unwrap();
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    let span = tracing::info_span!("late");
                    let traceparent = switchyard_service::telemetry::traceparent_of(&span);
                    Ok(part(&traceparent.unwrap_or_default()))
                })))
            }
            "the fullest refusal" => return Err(fullest_refusal()),
            "the fullest refusal, in the stream" => Box::pin(first.chain(stream::iter([Err(fullest_refusal())]))),
            "a task that goes on for 300 ms" => {
                self.tasks.spawn(tokio::time::sleep(Duration::from_millis(300)));
                Box::pin(first)
            }
            "a task that goes on until the abort" => {
                self.tasks.spawn(async move { shutdown.aborted().await });
                Box::pin(first)
            }
            other => return Err(Status::invalid_argument(format!("cannot do {other}"))),
        };
        Ok(Response::new(plan))
    }
}

/// Serves the stub, as a program's `run` does.
pub async fn serve(args: &ServeArgs, listener: TcpListener, shutdown: Shutdown) -> Result<Drained, Error> {
    let tasks = TaskTracker::new();
    let server = Server::new(args, shutdown.clone());
    let stub = Stub { shutdown, tasks: tasks.clone(), budget: server.budget() };
    let service = PlannerServiceServer::new(stub).max_decoding_message_size(args.max_message_bytes());
    server.add(service).tasks(tasks).serve(listener).await
}

pub struct Running {
    pub address: SocketAddr,
    pub shutdown: Shutdown,
    pub served: JoinHandle<Result<Drained, Error>>,
}

pub async fn start(flags: &[&str]) -> Running {
    program::install_crypto();
    let args = args(flags);
    let listener = TcpListener::bind(args.listen).await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let served = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { serve(&args, listener, shutdown).await }
    });
    Running { address, shutdown, served }
}

impl Running {
    pub async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    pub async fn client(&self) -> PlannerServiceClient<Channel> {
        PlannerServiceClient::new(self.channel().await)
    }

    /// Waits for the end, which has to come within `limit`.
    pub async fn end_within(self, limit: Duration) -> Drained {
        tokio::time::timeout(limit, self.served).await.expect("should have ended by now").unwrap().unwrap()
    }
}

pub fn ask(what: &str) -> PlanRequest {
    PlanRequest { clusters: vec![what.to_owned()], ..PlanRequest::default() }
}

/// What a probe is told of a service.
pub async fn health_of(channel: Channel, service: &str) -> Result<ServingStatus, Code> {
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer = HealthClient::new(channel).check(request).await.map_err(|status| status.code())?;
    Ok(answer.into_inner().status())
}

/// A refusal that asks for far more than an answer has room for.
pub fn fullest_refusal() -> Status {
    let text = "ü<".repeat(4_000);
    let mut refusal = status::refusal(Reason::DesignInvalid, text.clone());
    for n in 0..100 {
        refusal = refusal.metadata(format!("key{n}"), text.clone()).violation(text.clone(), text.clone());
    }
    refusal.into_status()
}

/// What an OTLP endpoint has been sent.
#[derive(Clone, Default)]
pub struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.lock().unwrap().push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    pub async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tonic::transport::Server::builder().add_service(TraceServiceServer::new(self.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        format!("http://{address}")
    }

    pub fn span_names(&self) -> Vec<String> {
        let requests = self.0.lock().unwrap();
        let spans = requests.iter().flat_map(|request| &request.resource_spans);
        let spans = spans.flat_map(|resource| &resource.scope_spans).flat_map(|scope| &scope.spans);
        spans.map(|span| span.name.clone()).collect()
    }

    pub fn resource(&self, key: &str) -> Option<String> {
        let requests = self.0.lock().unwrap();
        let attributes = &requests[0].resource_spans[0].resource.as_ref().unwrap().attributes;
        let value = attributes.iter().find(|pair| pair.key == key)?.value.clone()?.value?;
        if let Value::StringValue(text) = value { Some(text) } else { None }
    }
}

/// Prepares to run one test of this binary in a process of its own.
pub fn command(test: &str, environment: Vec<(&'static str, String)>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture"])
        .env("SWITCHYARD_TEST_CHILD", "1")
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs one test of this binary in a process of its own.
pub async fn in_a_process(test: &'static str, environment: Vec<(&'static str, String)>) -> Output {
    tokio::task::spawn_blocking(move || command(test, environment).output().unwrap()).await.unwrap()
}

pub fn is_child() -> bool {
    std::env::var_os("SWITCHYARD_TEST_CHILD").is_some()
}
