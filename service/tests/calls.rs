//! What holds for every call of either program, over a real connection.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::time::Duration;

use support::{ask, health_of, start};
use switchyard_proto::v1::{
    Design, GetRunRequest, ListRunsRequest, PlanRequest, PlanResponse, design::Source,
    executor_service_client::ExecutorServiceClient,
};
use switchyard_service::{
    Shutdown,
    serve::{Error, Server},
    status::{self, Reason},
};
use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tonic::{Code, Request, client::Grpc, codegen::http::uri::PathAndQuery};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_prost::ProstCodec;
use tonic_reflection::pb::{v1, v1alpha};
use tonic_types::StatusExt;

#[tokio::test]
async fn a_panic_in_a_handler_is_an_internal_error_of_that_call_only() {
    let running = start(&[]).await;
    let mut client = running.client().await;

    let status = client.plan(ask("panic")).await.unwrap_err();

    assert_eq!((status.code(), status::reason_of(&status)), (Code::Internal, Some(Reason::Internal)));
    assert!(!status.message().contains("as asked for"));
    assert!(client.plan(ask("one part")).await.is_ok());
}

#[tokio::test]
async fn a_panic_in_a_stream_ends_it_with_an_internal_error_and_never_ok() {
    let running = start(&[]).await;
    let mut client = running.client().await;
    let mut stream = client.plan(ask("panic in the stream")).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());

    let status = stream.message().await.unwrap_err();

    assert_eq!(status::reason_of(&status), Some(Reason::Internal));
    assert!(client.plan(ask("one part")).await.is_ok());
}

#[tokio::test]
async fn a_message_above_the_limit_is_refused_in_the_contracts_terms() {
    let running = start(&["--max-message-bytes", "64KiB"]).await;
    let design = |bytes| Design { source: Some(Source::Document("x".repeat(bytes))) };
    let request = |bytes| PlanRequest { design: Some(design(bytes)), ..ask("one part") };
    let mut client = running.client().await;

    let status = client.plan(request(100 << 10)).await.unwrap_err();

    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status::reason_of(&status), Some(Reason::MessageTooLarge));
    assert!(status.message().contains("65536"), "{}", status.message());
    assert_eq!(status.get_details_error_info().unwrap().metadata["limit_bytes"], "65536");
    assert_eq!(status.get_details_quota_failure().unwrap().violations.len(), 1);
    // The connection survives, and messages above tonic's own limit of 4 MiB are ours to permit.
    assert!(client.plan(request(60 << 10)).await.is_ok());
    let running = start(&[]).await;
    assert!(running.client().await.plan(request(8 << 20)).await.is_ok());
}

/// Whoever gets a status without a reason takes it for one that was made on the way, and calls again.
#[tokio::test]
async fn a_message_that_is_none_is_refused_in_the_contracts_terms() {
    let running = start(&[]).await;
    let mut grpc = Grpc::new(running.channel().await);
    grpc.ready().await.unwrap();
    // No field has the number 0, with which the design would begin.
    let wrong = Request::new(GetRunRequest { run_id: "\u{1}".into() });
    let path = PathAndQuery::from_static("/switchyard.v1.PlannerService/Plan");
    let codec = ProstCodec::<GetRunRequest, PlanResponse>::default();

    let status = grpc.server_streaming(wrong, path, codec).await.unwrap_err();

    assert_eq!((status.code(), status::reason_of(&status)), (Code::InvalidArgument, Some(Reason::RequestInvalid)));
    assert!(status.message().contains("PlanRequest.design"), "{}", status.message());
}

#[tokio::test]
async fn statuses_of_services_arrive_as_they_are() {
    let running = start(&[]).await;
    let mut client = running.client().await;
    let status = client.plan(ask("something else")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "cannot do something else"));
    let mut stream = client.plan(ask("refuse in the stream")).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    assert_eq!(stream.message().await.unwrap_err().code(), Code::DataLoss);
}

#[tokio::test]
async fn the_fullest_refusal_reaches_a_client_with_its_details() {
    // tonic's client reads 16 KiB of headers by default; a refusal that does not fit would arrive as another error.
    let running = start(&[]).await;
    let mut client = running.client().await;
    let whole = client.plan(ask("the fullest refusal")).await.unwrap_err();
    let mut stream = client.plan(ask("the fullest refusal, in the stream")).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    let trailing = stream.message().await.unwrap_err();
    for status in [whole, trailing] {
        assert_eq!(status::reason_of(&status), Some(Reason::DesignInvalid));
        let violations = status.get_details_bad_request().unwrap().field_violations;
        assert!(violations.len() > 1);
        let kept = violations.len() - 1;
        assert!(violations[kept].description.contains(&format!("{} more", 100 - kept)));
    }
}

#[tokio::test]
async fn reflection_in_both_versions_lists_what_is_served_and_nothing_else() {
    let running = start(&[]).await;
    let wanted = [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "switchyard.v1.PlannerService",
    ];

    let mut newer = v1::server_reflection_client::ServerReflectionClient::new(running.channel().await);
    let ask = |request| v1::ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let requests = [
        ask(v1::server_reflection_request::MessageRequest::ListServices(String::new())),
        ask(v1::server_reflection_request::MessageRequest::FileContainingSymbol("switchyard.v1.PlanRequest".into())),
    ];
    let answers = newer.server_reflection_info(tokio_stream::iter(requests)).await.unwrap().into_inner();
    let answers: Vec<_> = answers.map(|answer| answer.unwrap().message_response.unwrap()).collect().await;
    let v1::server_reflection_response::MessageResponse::ListServicesResponse(list) = &answers[0] else { panic!() };
    let mut names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, wanted);
    assert!(matches!(answers[1], v1::server_reflection_response::MessageResponse::FileDescriptorResponse(_)));

    let mut older = v1alpha::server_reflection_client::ServerReflectionClient::new(running.channel().await);
    let request = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(v1alpha::server_reflection_request::MessageRequest::ListServices(String::new())),
    };
    let mut answers = older.server_reflection_info(tokio_stream::iter([request])).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    let v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(list) = answer else { panic!() };
    assert_eq!(list.service.len(), wanted.len());
}

#[tokio::test]
async fn a_port_open_to_others_is_not_served_without_permission() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let served = Server::new(&support::args(&[]), Shutdown::new()).serve(listener).await;
    assert!(matches!(served, Err(Error::Refused(_))), "{served:?}");

    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let shutdown = Shutdown::new();
    let served = tokio::spawn(Server::new(&support::args(&["--insecure-listen"]), shutdown.clone()).serve(listener));
    shutdown.drain();
    assert!(tokio::time::timeout(Duration::from_secs(2), served).await.unwrap().unwrap().is_ok());
}

/// Case 334.
#[tokio::test]
async fn a_method_that_is_not_there_is_answered_with_a_sentence() {
    let running = start(&[]).await;
    let mut executor = ExecutorServiceClient::new(running.channel().await);

    let status = executor.list_runs(ListRunsRequest::default()).await.unwrap_err();

    assert_eq!((status.code(), status::reason_of(&status)), (Code::Unimplemented, Some(Reason::MethodUnknown)));
    assert!(status.message().contains("/switchyard.v1.ExecutorService/ListRuns"), "{}", status.message());
}

/// Whoever asks how things are, or asks for little, is heard when there is no room; whoever brings much is told when to come again.
#[tokio::test]
async fn probes_get_through_when_all_that_may_be_held_is_held() {
    let running = start(&[]).await;
    let mut client = running.client().await;
    let _held = client.plan(ask("a part, then nothing, holding all that may be held")).await.unwrap();

    assert_eq!(health_of(running.channel().await, "").await, Ok(ServingStatus::Serving));
    client.plan(ask("one part")).await.unwrap();
    let design = Some(Design { source: Some(Source::Document("x".repeat(10_000))) });
    let status = client.plan(PlanRequest { design, ..ask("one part") }).await.unwrap_err();

    assert_eq!(status::reason_of(&status), Some(Reason::TooBusy), "{status:?}");
    assert!(status.get_details_retry_info().is_some(), "{status:?}");
}
