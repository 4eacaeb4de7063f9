//! A planner on a port of its own, and a client.

use std::ffi::OsString;

use switchyard_planner::{Args, run};
use switchyard_proto::v1;
use switchyard_proto::v1::planner_service_client::PlannerServiceClient;
use switchyard_service::program::{self, Program};
use switchyard_service::serve::Drained;
use switchyard_service::shutdown::Shutdown;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Status};

const PROGRAM: Program = Program { name: "switchyard-planner", version: "0", listen: "127.0.0.1:0" };

pub(crate) struct Server {
    pub(crate) client: PlannerServiceClient<Channel>,
    pub(crate) address: String,
    shutdown: Shutdown,
    running: JoinHandle<Result<Drained, program::Error>>,
}

impl Server {
    pub(crate) async fn start(flags: &[&str]) -> Self {
        // Unoptimised code on a busy machine gets more time than the default.
        let line = ["switchyard-planner", "--max-planning-time", "2m"].iter().chain(flags).map(OsString::from);
        let args: Args = program::parse_from(&PROGRAM, line).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let shutdown = Shutdown::new();
        let running = tokio::spawn(run(args, listener, shutdown.clone()));
        let client = PlannerServiceClient::connect(address.clone()).await.unwrap();
        Self { client, address, shutdown, running }
    }

    pub(crate) async fn stop(self) {
        let Self { client, shutdown, running, .. } = self;
        drop(client);
        shutdown.drain();
        assert!(matches!(running.await.unwrap(), Ok(Drained::Clean)));
    }

    /// All parts of the answer.
    pub(crate) async fn plan(&mut self, request: v1::PlanRequest) -> Result<Vec<v1::PlanResponse>, Status> {
        let mut stream = self.client.plan(request).await?.into_inner();
        let mut parts = Vec::new();
        while let Some(part) = stream.message().await? {
            parts.push(part);
        }
        Ok(parts)
    }

    /// The header and the steps of the answer.
    pub(crate) async fn planned(&mut self, request: v1::PlanRequest) -> (v1::PlanHeader, Vec<v1::PlanStep>) {
        use v1::plan_response::Part;
        let mut parts: Vec<_> = self.plan(request).await.unwrap().into_iter().map(|part| part.part.unwrap()).collect();
        let Part::Trailer(trailer) = parts.pop().unwrap() else { panic!("the last part is a trailer") };
        let mut parts = parts.into_iter();
        let Some(Part::Header(header)) = parts.next() else { panic!("the first part is a header") };
        let steps: Vec<_> = parts
            .map(|part| match part {
                Part::Step(step) => step,
                other => panic!("a step, not {other:?}"),
            })
            .collect();
        assert_eq!((&trailer.plan_id, trailer.step_count), (&header.plan_id, header.step_count));
        assert_eq!(header.step_count as usize, steps.len());
        assert_eq!(header.plan_id, switchyard_proto::digest::plan_id(&header, &steps));
        (header, steps)
    }

    pub(crate) async fn refused(&mut self, request: v1::PlanRequest, code: Code) -> Status {
        let status = self.plan(request).await.expect_err("a refusal");
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().len() < 1024);
        status
    }
}

pub(crate) fn of_text(text: impl Into<String>) -> v1::PlanRequest {
    v1::PlanRequest {
        design: Some(v1::Design { source: Some(v1::design::Source::Document(text.into())) }),
        clusters: vec!["east".into(), "west".into()],
        ..Default::default()
    }
}
