//! What is counted of runs, for Prometheus (`switchyard_service::metrics`). Labels are closed sets (case 139).

use std::{sync::LazyLock, time::Duration};

use opentelemetry::{
    KeyValue, global,
    metrics::{Counter, Histogram, UpDownCounter},
};
use switchyard_proto::v1;
use switchyard_service::{
    attributes as common,
    metrics::{METER, SECONDS},
};

use crate::attributes;

struct Instruments {
    active: UpDownCounter<i64>,
    runs: Histogram<f64>,
    refused: Counter<u64>,
    steps: Counter<u64>,
    repeated: Counter<u64>,
    requests: Histogram<f64>,
    in_flight: UpDownCounter<i64>,
}

static INSTRUMENTS: LazyLock<Instruments> = LazyLock::new(|| {
    let meter = global::meter(METER);
    let seconds = |name: &'static str, what: &'static str| {
        meter.f64_histogram(name).with_description(what).with_unit("s").with_boundaries(SECONDS.to_vec()).build()
    };
    Instruments {
        active: meter.i64_up_down_counter("switchyard.runs.active").with_description("Runs that go on").build(),
        runs: seconds("switchyard.run.duration", "How long runs took, by how they ended"),
        refused: meter
            .u64_counter("switchyard.runs.refused")
            .with_description("Plans that were not carried out, by the reason of the refusal")
            .build(),
        steps: meter.u64_counter("switchyard.steps").with_description("Components that were accounted for").build(),
        repeated: meter
            .u64_counter("switchyard.attempts.repeated")
            .with_description("Attempts that are followed by another, by the reason of their failure")
            .build(),
        requests: seconds("http.client.request.duration", "How long requests to API servers took"),
        in_flight: meter
            .i64_up_down_counter("http.client.active_requests")
            .with_description("Requests to API servers that are not answered yet")
            .build(),
    }
});

/// A run that goes on; it has ended when this is dropped.
pub(crate) struct ActiveRun(());

impl ActiveRun {
    pub(crate) fn begin() -> Self {
        INSTRUMENTS.active.add(1, &[]);
        Self(())
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        INSTRUMENTS.active.add(-1, &[]);
    }
}

/// Counts a run that has ended, by its verdict; none if it ended without one.
pub(crate) fn run_ended(verdict: Option<v1::Verdict>, operation: v1::Operation, dry_run: bool, took: Duration) {
    let verdict = verdict.unwrap_or_default();
    let labels = [
        KeyValue::new("verdict", verdict.as_str_name().trim_start_matches("VERDICT_").to_lowercase()),
        KeyValue::new("operation", operation.as_str_name().trim_start_matches("OPERATION_").to_lowercase()),
        KeyValue::new("dry_run", dry_run),
    ];
    INSTRUMENTS.runs.record(took.as_secs_f64(), &labels);
}

/// Counts a plan that is not carried out, by the reason of the refusal.
pub(crate) fn run_refused(reason: String) {
    INSTRUMENTS.refused.add(1, &[KeyValue::new("reason", reason)]);
}

/// Counts a component that was accounted for, by its outcome and the path that it took.
pub(crate) fn step_ended(outcome: &'static str, path: &'static str) {
    INSTRUMENTS.steps.add(1, &[KeyValue::new("outcome", outcome), KeyValue::new("path", path)]);
}

/// Counts an attempt that is followed by another. `THROTTLED` among the reasons is an API server that asks for patience.
pub(crate) fn attempt_repeated(reason: &'static str) {
    INSTRUMENTS.repeated.add(1, &[KeyValue::new("reason", reason)]);
}

/// A request to an API server, from when it is sent to its answer, or to when nobody waits for it any more.
pub(crate) struct Request {
    /// The method, and which cluster: see [`crate::cluster::access::Way::known_as`].
    labels: [KeyValue; 2],
    began: tokio::time::Instant,
}

impl Request {
    pub(crate) fn begin(method: &'static str, cluster: &KeyValue) -> Self {
        let labels = [KeyValue::new(attributes::METHOD, attributes::method(method)), cluster.clone()];
        INSTRUMENTS.in_flight.add(1, &labels);
        Self { labels, began: tokio::time::Instant::now() }
    }

    /// Counts it by what came of it: a status code, or why there was none.
    pub(crate) fn ended(self, came: Result<u16, &'static str>) {
        let came = match came {
            Ok(code) => KeyValue::new(attributes::STATUS_CODE, i64::from(code)),
            Err(kind) => KeyValue::new(common::ERROR_TYPE, kind),
        };
        let [method, cluster] = &self.labels;
        let labels = [method.clone(), cluster.clone(), came];
        INSTRUMENTS.requests.record(self.began.elapsed().as_secs_f64(), &labels);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        INSTRUMENTS.in_flight.add(-1, &self.labels);
    }
}
