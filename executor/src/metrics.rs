//! What is counted of runs, for Prometheus (`switchyard_service::metrics`). Labels are closed sets (case 139).

use std::{sync::LazyLock, time::Duration};

use opentelemetry::{
    KeyValue, global,
    metrics::{Counter, Histogram, UpDownCounter},
};
use switchyard_service::{
    attributes as common,
    metrics::{METER, SECONDS},
};

use crate::attributes;

struct Instruments {
    runs: UpDownCounter<i64>,
    steps: Counter<u64>,
    requests: Histogram<f64>,
}

static INSTRUMENTS: LazyLock<Instruments> = LazyLock::new(|| {
    let meter = global::meter(METER);
    Instruments {
        runs: meter.i64_up_down_counter("switchyard.runs.active").with_description("Runs that go on").build(),
        steps: meter.u64_counter("switchyard.steps").with_description("Components that were accounted for").build(),
        requests: meter
            .f64_histogram("http.client.request.duration")
            .with_description("How long requests to API servers took")
            .with_unit("s")
            .with_boundaries(SECONDS.to_vec())
            .build(),
    }
});

/// A run that goes on; it has ended when this is dropped.
pub(crate) struct ActiveRun(());

impl ActiveRun {
    pub(crate) fn begin() -> Self {
        INSTRUMENTS.runs.add(1, &[]);
        Self(())
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        INSTRUMENTS.runs.add(-1, &[]);
    }
}

/// Counts a component that was accounted for, by its outcome and the path that it took.
pub(crate) fn step_ended(outcome: &'static str, path: &'static str) {
    INSTRUMENTS.steps.add(1, &[KeyValue::new("outcome", outcome), KeyValue::new("path", path)]);
}

/// Counts a request to an API server, by what came of it: a status code, or why there was none.
pub(crate) fn request_ended(method: &'static str, came: Result<u16, &'static str>, took: Duration) {
    let came = match came {
        Ok(code) => KeyValue::new(attributes::STATUS_CODE, i64::from(code)),
        Err(kind) => KeyValue::new(common::ERROR_TYPE, kind),
    };
    INSTRUMENTS.requests.record(took.as_secs_f64(), &[KeyValue::new(attributes::METHOD, method), came]);
}
