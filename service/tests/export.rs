//! Spans reach a collector, whichever way the process ends and whatever runtime it has.
//!
//! Telemetry is set up by environment variables and once a process, so each case runs in a process of its own: this
//! test binary again, with only the wanted test, which does nothing unless it is started like that.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::time::{Duration, Instant};

use support::{Collector, in_a_process, is_child};
use switchyard_service::telemetry;
use tokio::net::TcpListener;

async fn trace_and_flush() {
    let guard = telemetry::init(&support::PROGRAM, &support::args(&["--log-format", "json"]));
    let span = tracing::info_span!("work");
    let id = span.in_scope(|| telemetry::trace_id_of(&tracing::Span::current()));
    assert_eq!(id.map(|id| id.len()), Some(32));
    drop(span);
    let start = Instant::now();
    guard.shutdown().await;
    assert!(start.elapsed() < telemetry::FLUSH_LIMIT + Duration::from_secs(1));
}

#[tokio::test(flavor = "current_thread")]
async fn child_on_one_thread() {
    if is_child() {
        trace_and_flush().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn child_on_one_worker() {
    if is_child() {
        tokio::spawn(trace_and_flush()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn child_that_goes_on_for_a_while() {
    if is_child() {
        let guard = telemetry::init(&support::PROGRAM, &support::args(&["--log", "trace"]));
        tracing::info_span!("work").in_scope(|| ());
        tokio::time::sleep(Duration::from_secs(1)).await;
        guard.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exporter_does_not_export_its_own_exporting() {
    let collector = Collector::default();
    let environment =
        vec![("OTEL_EXPORTER_OTLP_ENDPOINT", collector.start().await), ("OTEL_BSP_SCHEDULE_DELAY", "50".to_owned())];
    let output = in_a_process("child_that_goes_on_for_a_while", environment).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(collector.span_names(), ["work"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_leave_before_the_end_on_any_runtime() {
    for child in ["child_on_one_thread", "child_on_one_worker"] {
        let collector = Collector::default();
        let endpoint = collector.start().await;
        let output = in_a_process(child, vec![("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]).await;
        assert!(output.status.success(), "{output:?}");
        assert_eq!(collector.span_names(), ["work"], "{output:?}");
        assert_eq!(collector.resource("service.name").as_deref(), Some("switchyard-test"));
        assert_eq!(collector.resource("service.version").as_deref(), Some("1.2.3"));
        assert!(collector.resource("service.instance.id").is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_wins_over_what_we_know_of_ourselves() {
    let collector = Collector::default();
    let environment = vec![
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.start().await),
        ("OTEL_SERVICE_NAME", "mine".to_owned()),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.version=9,deployment.environment=test".to_owned()),
    ];
    let output = in_a_process("child_on_one_thread", environment).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(collector.resource("service.name").as_deref(), Some("mine"));
    assert_eq!(collector.resource("service.version").as_deref(), Some("9"));
    assert_eq!(collector.resource("deployment.environment").as_deref(), Some("test"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_exported_when_the_environment_says_so() {
    for off in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none"), ("OTEL_TRACES_SAMPLER", "always_off")]
    {
        let collector = Collector::default();
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.start().await);
        let output = in_a_process("child_on_one_thread", vec![endpoint, (off.0, off.1.to_owned())]).await;
        assert!(output.status.success(), "{output:?}");
        assert!(collector.span_names().is_empty(), "{off:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_down_or_silent_holds_up_nobody() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    for endpoint in ["http://127.0.0.1:9".to_owned(), silent] {
        for child in ["child_on_one_thread", "child_on_one_worker"] {
            let start = Instant::now();
            let output = in_a_process(child, vec![("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.clone())]).await;
            assert!(output.status.success(), "{output:?}");
            assert!(start.elapsed() < Duration::from_secs(6), "{endpoint} {child}: {:?}", start.elapsed());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_telemetry_setting_that_cannot_be_met_is_said_and_does_not_stop_the_program() {
    let environment = vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:hunter2@127.0.0.1:9".to_owned()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf".to_owned()),
    ];
    let output = in_a_process("child_on_one_thread", environment).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("OTEL_EXPORTER_OTLP_PROTOCOL asks for http/protobuf, and only grpc is there"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");

    // Case 300.
    let environment = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317".to_owned())];
    let output = in_a_process("child_on_one_thread", environment).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("OTEL_EXPORTER_OTLP_ENDPOINT needs a scheme: http://"),
        "{output:?}"
    );
}

/// Case 326.
#[tokio::test(flavor = "multi_thread")]
async fn settings_that_would_be_ignored_are_told() {
    let collector = Collector::default();
    let environment = vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.start().await),
        ("OTEL_TRACES_SAMPLER", "sometimes".to_owned()),
        ("OTEL_BSP_SCHEDULE_DELAY", "soon".to_owned()),
    ];
    let output = in_a_process("child_on_one_thread", environment).await;
    let said = String::from_utf8_lossy(&output.stderr);
    for told in ["OTEL_TRACES_SAMPLER is", "OTEL_BSP_SCHEDULE_DELAY is"] {
        assert!(said.contains(told), "{said}");
    }
}
