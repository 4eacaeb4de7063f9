//! One span for each call, in the trace of whoever calls.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::{
    sync::LazyLock,
    time::{Duration, Instant, SystemTime},
};

use opentelemetry::{
    Value,
    trace::{SpanKind, Status as SpanStatus},
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use support::{ask, start};
use switchyard_proto::v1::{PlanRequest, PlanResponse, plan_response::Part};
use switchyard_service::{attributes, telemetry};
use tonic::{Request, Streaming};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

static EXPORTER: LazyLock<InMemorySpanExporter> = LazyLock::new(|| {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    tracing_subscriber::registry().with(telemetry::layer(&provider, tracing::Level::DEBUG)).init();
    exporter
});

fn with_traceparent(what: &str, traceparent: &str) -> Request<PlanRequest> {
    let mut request = Request::new(ask(what));
    request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
    request
}

/// Waits for the first span that fits: spans end a moment after the client has seen the end.
async fn span(fits: impl Fn(&SpanData) -> bool) -> SpanData {
    let start = Instant::now();
    loop {
        if let Some(span) = EXPORTER.get_finished_spans().unwrap().into_iter().find(&fits) {
            return span;
        }
        assert!(start.elapsed() < Duration::from_secs(5), "no such span");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn attribute(span: &SpanData, key: &str) -> Option<Value> {
    span.attributes.iter().find(|pair| pair.key.as_str() == key).map(|pair| pair.value.clone())
}

async fn drained(mut stream: Streaming<PlanResponse>) -> Vec<PlanResponse> {
    let mut parts = Vec::new();
    while let Ok(Some(part)) = stream.message().await {
        parts.push(part);
    }
    parts
}

#[tokio::test]
async fn the_callers_trace_goes_on_until_the_stream_has_ended() {
    LazyLock::force(&EXPORTER);
    let running = start(&[]).await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let request = with_traceparent("a task with a span", &format!("00-{trace}-b7ad6b7169203331-01"));

    let stream = running.client().await.plan(request).await.unwrap().into_inner();
    let parts = drained(stream).await;
    let before_the_span_ends = SystemTime::now();

    let in_trace = |name: &'static str| {
        move |span: &SpanData| span.name == name && span.span_context.trace_id().to_string() == trace
    };
    let server = span(in_trace("switchyard.v1.PlannerService/Plan")).await;
    assert_eq!(server.span_kind, SpanKind::Server);
    assert_eq!(server.parent_span_id.to_string(), "b7ad6b7169203331");
    assert_eq!(attribute(&server, attributes::RPC_SYSTEM), Some("grpc".into()));
    assert_eq!(attribute(&server, attributes::RPC_SERVICE), Some("switchyard.v1.PlannerService".into()));
    assert_eq!(attribute(&server, attributes::RPC_METHOD), Some("Plan".into()));
    assert_eq!(attribute(&server, attributes::RPC_GRPC_STATUS_CODE), Some(0.into()));
    assert_eq!(server.status, SpanStatus::Unset);
    // What the handler spawned, and what its stream does after the handler has returned.
    for name in ["spawned", "late"] {
        let inner = span(in_trace(name)).await;
        assert_eq!(inner.parent_span_id, server.span_context.span_id(), "{name}");
        assert!(inner.end_time <= server.end_time, "{name}");
    }
    assert!(server.end_time.duration_since(server.start_time).unwrap() >= Duration::from_millis(50));
    assert!(server.end_time > before_the_span_ends - Duration::from_secs(1));
    let Some(Part::Header(header)) = &parts.last().unwrap().part else { panic!() };
    assert!(header.plan_id.starts_with(&format!("00-{trace}-")), "{}", header.plan_id);
}

#[tokio::test]
async fn malformed_or_missing_traceparents_start_traces_of_their_own() {
    LazyLock::force(&EXPORTER);
    let running = start(&[]).await;
    let mut client = running.client().await;
    let mut traces = Vec::new();
    let malformed = ["", "nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-1-1-01"];
    let requests = malformed.map(|text| with_traceparent("a task with a span", text));
    for request in requests.into_iter().chain([Request::new(ask("a task with a span"))]) {
        let parts = drained(client.plan(request).await.unwrap().into_inner()).await;
        let Some(Part::Header(header)) = &parts.last().unwrap().part else { panic!() };
        traces.push(header.plan_id.split('-').nth(1).unwrap().to_owned());
    }
    for trace in &traces {
        assert_eq!(trace.len(), 32);
        assert_eq!(traces.iter().filter(|other| *other == trace).count(), 1);
        let named =
            |span: &SpanData| span.span_kind == SpanKind::Server && span.span_context.trace_id().to_string() == *trace;
        assert_eq!(span(named).await.parent_span_id.to_string(), "0000000000000000");
    }
}

#[tokio::test]
async fn a_call_that_is_our_fault_is_an_error_in_its_span() {
    LazyLock::force(&EXPORTER);
    let running = start(&[]).await;
    let mut client = running.client().await;
    let traced = |n: u8| (format!("0000000000000000000000000000aa{n:02}"), n);
    for ((trace, _), what, code, error) in [
        (traced(1), "panic", 13, true),
        (traced(2), "panic in the stream", 13, true),
        (traced(3), "something else", 3, false),
        (traced(4), "refuse in the stream", 15, true),
    ] {
        let request = with_traceparent(what, &format!("00-{trace}-b7ad6b7169203331-01"));
        if let Ok(answer) = client.plan(request).await {
            drained(answer.into_inner()).await;
        }
        let server = span(|span| span.span_context.trace_id().to_string() == trace).await;
        assert_eq!(attribute(&server, attributes::RPC_GRPC_STATUS_CODE), Some(code.into()), "{what}");
        assert_eq!(matches!(server.status, SpanStatus::Error { .. }), error, "{what}: {:?}", server.status);
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_a_cancelled_span() {
    LazyLock::force(&EXPORTER);
    let running = start(&[]).await;
    let trace = "000000000000000000000000000000bb";
    let request = with_traceparent("a part, then nothing", &format!("00-{trace}-b7ad6b7169203331-01"));
    let stream = running.client().await.plan(request).await.unwrap();

    drop(stream);

    let server = span(|span| span.span_context.trace_id().to_string() == trace).await;
    assert_eq!(attribute(&server, attributes::RPC_GRPC_STATUS_CODE), Some(1.into()));
}

#[tokio::test]
async fn probes_leave_no_spans() {
    LazyLock::force(&EXPORTER);
    let running = start(&[]).await;
    let mut health = HealthClient::new(running.channel().await);
    health.check(HealthCheckRequest::default()).await.unwrap();
    let trace = "000000000000000000000000000000cc";
    let request = with_traceparent("one part", &format!("00-{trace}-b7ad6b7169203331-01"));
    drained(running.client().await.plan(request).await.unwrap().into_inner()).await;
    // The probe came first, so its span would be there by now.
    span(|span| span.span_context.trace_id().to_string() == trace).await;
    let spans = EXPORTER.get_finished_spans().unwrap();
    assert!(spans.iter().all(|span| !span.name.contains("grpc.")), "{spans:?}");
}

#[tokio::test]
async fn outgoing_calls_carry_the_span_they_belong_to() {
    LazyLock::force(&EXPORTER);
    let trace = "000000000000000000000000000000dd";
    let span = tracing::info_span!("outgoing");
    telemetry::set_parent_from_plan(&span, &format!("00-{trace}-b7ad6b7169203331-01"));

    let mut headers = http::HeaderMap::new();
    telemetry::inject(&span, &mut headers);
    let mut metadata = tonic::metadata::MetadataMap::new();
    telemetry::inject_metadata(&span, &mut metadata);

    let traceparent = telemetry::traceparent_of(&span).unwrap();
    assert!(traceparent.starts_with(&format!("00-{trace}-")) && traceparent.ends_with("-01"));
    assert!(!traceparent.contains("b7ad6b7169203331"));
    assert_eq!(headers["traceparent"], traceparent.as_str());
    assert!(!headers.contains_key("tracestate"));
    assert_eq!(metadata.get("traceparent").unwrap(), traceparent.as_str());
    assert_eq!(telemetry::trace_id_of(&span).unwrap(), trace);
    assert_eq!(
        span.in_scope(|| telemetry::traceparent_for_plan(&tonic::metadata::MetadataMap::new())),
        Some(traceparent)
    );
}
