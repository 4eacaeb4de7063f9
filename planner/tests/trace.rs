//! S24, the planner's part: a trace that comes in goes on in the plan.
#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod common;

use common::server::{Server, of_text};
use common::{component, design};
use switchyard_planner::Args;
use switchyard_proto::v1::plan_response::Part;
use switchyard_service::program::{self, Program};
use switchyard_service::telemetry;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_that_comes_in_goes_on_in_the_plan() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let program = Program { name: "switchyard-planner", version: "0", listen: "127.0.0.1:0" };
    let args: Args = program::parse_from(&program, ["switchyard-planner", "--log", "off"]).unwrap();
    let guard = telemetry::init(&program, &args.serve);
    let mut server = Server::start(&[]).await;
    let mut request = tonic::Request::new(of_text(design([component("a")])));
    request.metadata_mut().insert("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01").parse().unwrap());
    let first = server.client.plan(request).await.unwrap().into_inner().message().await.unwrap().unwrap();
    let Some(Part::Header(header)) = first.part else { panic!("a header") };
    assert!(header.traceparent.starts_with(&format!("00-{TRACE}-")), "{}", header.traceparent);
    assert!(!header.traceparent.contains("00f067aa0ba902b7"), "the plan goes on from the planner's own span");
    server.stop().await;
    guard.shutdown().await;
}
