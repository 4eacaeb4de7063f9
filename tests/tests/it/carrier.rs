//! A plan that is passed on by a client whose protos are older than the planner's (L0, case 361).

mod earlier;

use prost::{Message, Oneof};
use switchyard_proto::v1::{self, ExecuteResponse, PlanRequest, execute_response::Event};
use switchyard_tests::client;
use tonic::{Request, Status, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};
use tonic_prost::ProstCodec;

use crate::{design::Design, pair::Pair};

/// One message of Plan's answer and of Execute's request, as protos had it that knew a header without options.
#[derive(Clone, PartialEq, Message)]
struct Carried {
    #[prost(oneof = "Part", tags = "1, 2, 3, 6")]
    part: Option<Part>,
}

#[expect(clippy::large_enum_variant, reason = "as prost generates it")]
#[derive(Clone, PartialEq, Oneof)]
enum Part {
    #[prost(message, tag = "1")]
    Header(Header),
    #[prost(message, tag = "2")]
    Step(v1::PlanStep),
    #[prost(message, tag = "3")]
    Trailer(v1::PlanTrailer),
    #[prost(message, tag = "6")]
    Encoded(v1::EncodedPart),
}

/// Field 7, `options`, is not there, so it is dropped when a plan is passed on.
#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(string, tag = "1")]
    plan_id: String,
    #[prost(int32, tag = "2")]
    operation: i32,
    #[prost(message, optional, tag = "4")]
    design: Option<v1::DesignRef>,
    #[prost(string, repeated, tag = "5")]
    clusters: Vec<String>,
    #[prost(uint32, tag = "8")]
    step_count: u32,
    #[prost(string, tag = "11")]
    traceparent: String,
}

async fn grpc(url: String) -> Grpc<Channel> {
    let mut grpc = Grpc::new(Channel::from_shared(url).unwrap().connect().await.unwrap());
    grpc.ready().await.unwrap();
    grpc
}

/// Plans, passes every part on without a look, and returns what Execute answered.
async fn pass_on(pair: &Pair, request: PlanRequest) -> Result<Vec<ExecuteResponse>, Status> {
    let plan = PathAndQuery::from_static("/switchyard.v1.PlannerService/Plan");
    let codec = ProstCodec::<PlanRequest, Carried>::default();
    let mut parts =
        grpc(pair.planner.url()).await.server_streaming(Request::new(request), plan, codec).await?.into_inner();
    let mut carried = Vec::new();
    while let Some(part) = parts.message().await? {
        carried.push(part);
    }
    let execute = PathAndQuery::from_static("/switchyard.v1.ExecutorService/Execute");
    let codec = ProstCodec::<Carried, ExecuteResponse>::default();
    let request = Request::new(futures::stream::iter(carried));
    let mut events = grpc(pair.executor.url()).await.streaming(request, execute, codec).await?.into_inner();
    let mut told = Vec::new();
    while let Some(event) = events.message().await? {
        told.push(event);
    }
    Ok(told)
}

#[tokio::test]
async fn plan_in_bytes_survives_a_client_with_older_protos() {
    let pair = Pair::shared().await;
    let namespace = pair.world.east().namespace_for("carrier").await.unwrap();
    let design = Design::new().config_map("settings", &namespace, &[]);
    let request = client::deploy(design.text(), &["east"]);

    let refused = pass_on(pair, request.clone()).await.unwrap_err();
    assert_eq!(switchyard_service::status::reason_of(&refused).unwrap().as_str(), "PLAN_DIGEST_MISMATCH");
    assert!(refused.message().contains("protos are older"), "{refused:?}");

    let told = pass_on(pair, PlanRequest { encoded: true, ..request }).await.unwrap();
    let Some(Event::Summary(summary)) = told.last().and_then(|last| last.event.clone()) else { panic!("{told:?}") };
    assert_eq!(summary.verdict(), v1::Verdict::Succeeded);
}
