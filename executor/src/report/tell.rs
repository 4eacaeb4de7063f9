//! What the log and the spans say of how targets and steps ended. All texts are those of results, which have passed the mask.

use std::collections::HashMap;

use switchyard_proto::v1::{self, target_result::Target};
use switchyard_service::{
    attributes as common,
    status::capped,
    telemetry::{self, Place},
};
use tracing::{Span, field::Empty};

use super::outcome_name;
use crate::{
    attributes,
    core::{plan::Step, target::StepIx},
};

/// Longest text of a log line or a span, in bytes.
const LONGEST: usize = 1024;

/// The span of a step that has begun.
pub(super) fn span_of(step: &Step) -> Span {
    tracing::debug_span!(
        "step",
        { common::OTEL_NAME } = format_args!("step {}", step.component.name),
        { common::OTEL_STATUS_CODE } = Empty,
        { common::OTEL_STATUS_DESCRIPTION } = Empty,
        { common::ERROR_TYPE } = Empty,
        { attributes::STEP_ID } = step.id,
        { attributes::COMPONENT } = step.component.name,
        { attributes::OBJECT_KIND } = step.component.kind,
        { attributes::CLUSTER } = Empty,
        { common::SERVER_ADDRESS } = Empty,
        { common::SERVER_PORT } = Empty,
        { attributes::OUTCOME } = Empty,
    )
}

/// Warns of a target that failed or of which nobody can tell (case 324).
pub(super) fn target(run_id: &str, step: &Step, target: &v1::TargetResult) {
    if !matches!(target.outcome(), v1::Outcome::Failed | v1::Outcome::Indeterminate) {
        return;
    }
    let (cluster, adapter) = place(target);
    let error = target.error.as_ref();
    tracing::warn!(
        { attributes::RUN_ID } = run_id,
        { attributes::STEP_ID } = step.id,
        { attributes::COMPONENT } = step.component.name,
        { attributes::CLUSTER } = cluster,
        adapter,
        { attributes::OUTCOME } = outcome_name(target.outcome()),
        reason = error.map(|error| error.reason.as_str()),
        why = error.map(|error| capped(&error.message, LONGEST)),
        attempts = target.attempts,
        "component did not succeed"
    );
}

/// The cluster or the adapter that a result is about.
fn place(target: &v1::TargetResult) -> (Option<&str>, Option<&str>) {
    match &target.target {
        Some(Target::Cluster(cluster)) => (Some(cluster), None),
        Some(Target::AdapterAddress(address)) => (None, Some(address)),
        None => (None, None),
    }
}

/// Says in a step's span how the step ended, and where and why it did not succeed.
pub(super) fn ended(span: &Span, outcome: v1::Outcome, because: &str, targets: &[v1::TargetResult]) {
    if span.is_disabled() {
        return;
    }
    span.record(attributes::OUTCOME, outcome_name(outcome));
    if outcome == v1::Outcome::Succeeded {
        return;
    }
    span.record(common::OTEL_STATUS_CODE, "error");
    span.record(common::OTEL_STATUS_DESCRIPTION, capped(because, LONGEST));
    let failed = |target: &&v1::TargetResult| target.outcome() != v1::Outcome::Succeeded && target.error.is_some();
    let Some(target) = targets.iter().find(failed) else { return };
    let (cluster, adapter) = place(target);
    span.record(common::ERROR_TYPE, target.error.as_ref().map(|error| error.reason.as_str()));
    span.record(attributes::CLUSTER, cluster);
    if let Some((host, port)) = adapter.and_then(|address| address.rsplit_once(':')) {
        span.record(common::SERVER_ADDRESS, host);
        span.record(common::SERVER_PORT, port.parse::<i64>().ok());
    }
}

/// The spans of steps that others are withheld for.
#[derive(Default)]
pub(super) struct Roots(HashMap<StepIx, Place>);

impl Roots {
    /// Keeps where a step that did not succeed stands in the trace.
    pub(super) fn keep(&mut self, step: StepIx, span: &Span) {
        if let Some(place) = telemetry::place_of(span) {
            self.0.insert(step, place);
        }
    }

    /// Gives a step that was not attempted a span of no length, which leads to the one that it was withheld for (case 325).
    /// Events of the run's span would end at 128.
    pub(super) fn not_attempted(&self, step: &Step, outcome: v1::Outcome, because: &str, root: Option<StepIx>) {
        let span = span_of(step);
        if span.is_disabled() {
            return;
        }
        if let Some(place) = root.and_then(|root| self.0.get(&root)) {
            place.link(&span);
        }
        ended(&span, outcome, because, &[]);
        span.in_scope(|| ());
    }
}
