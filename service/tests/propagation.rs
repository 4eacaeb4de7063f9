//! What an outgoing call continues, in a process that exports nothing.

use std::sync::LazyLock;

use http::HeaderMap;
use opentelemetry_sdk::trace::SdkTracerProvider;
use switchyard_service::telemetry;
use tonic::metadata::MetadataMap;
use tracing::Level;
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

static TRACED: LazyLock<()> = LazyLock::new(|| {
    let provider = SdkTracerProvider::builder().build();
    tracing_subscriber::registry().with(telemetry::layer(&provider, Level::INFO)).init();
});

#[test]
fn call_under_a_span_that_nobody_sees_continues_the_one_around_it() {
    LazyLock::force(&TRACED);
    let outer = tracing::info_span!("outer");
    let _entered = outer.enter();
    let unseen = tracing::debug_span!(target: "switchyard_executor", "unseen");
    assert!(unseen.is_disabled());
    let mut headers = HeaderMap::new();
    telemetry::inject(&unseen, &mut headers);
    assert_eq!(headers["traceparent"].to_str().ok(), telemetry::traceparent_of(&outer).as_deref());
    assert!(!headers.contains_key("tracestate"));
}

#[test]
fn state_of_the_trace_is_passed_on() {
    LazyLock::force(&TRACED);
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut incoming = MetadataMap::new();
    incoming.insert("traceparent", traceparent.parse().unwrap());
    incoming.insert("tracestate", "a=1,b=2".parse().unwrap());
    let span = tracing::info_span!("span");
    telemetry::set_parent_from_metadata(&span, &incoming);
    let mut headers = HeaderMap::new();
    telemetry::inject(&span, &mut headers);
    assert_eq!(headers["tracestate"], "a=1,b=2");
    let outgoing = headers["traceparent"].to_str().unwrap();
    assert_eq!((&outgoing[..36], &outgoing[52..]), (&traceparent[..36], "-01"));
    assert_ne!(outgoing, traceparent);
}
