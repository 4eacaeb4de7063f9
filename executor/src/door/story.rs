//! The two log lines that tell a run's story: one when it starts, one when it has ended (case 328).

use std::{sync::Arc, time::Instant};

use switchyard_proto::v1::{CancelledBy, Verdict};
use switchyard_service::attributes as common;
use tracing::Span;

use crate::{
    attributes,
    core::plan::Plan,
    journal::fit::listed,
    metrics,
    report::{Counts, Finished},
};

/// Clusters that a line names.
const NAMED: usize = 20;

/// What whoever asked for the run calls it.
pub(crate) struct Asked {
    pub(crate) labels: String,
    pub(crate) request_id: String,
}

/// A run that has been told of.
pub(crate) struct Story {
    run_id: String,
    plan: Arc<Plan>,
    began: Instant,
}

impl Story {
    pub(crate) fn begin(run_id: &str, plan: &Arc<Plan>, asked: &Asked, span: &Span) -> Self {
        span.in_scope(|| {
            tracing::info!(
                { attributes::RUN_ID } = run_id,
                { attributes::LABELS } = attributes::said(&asked.labels),
                { attributes::REQUEST_ID } = attributes::said(&asked.request_id),
                { attributes::PLAN_ID } = plan.id,
                { attributes::DESIGN_ID } = plan.design.id,
                { attributes::DESIGN_NAME } = plan.design.name,
                operation = plan.operation.as_str_name(),
                dry_run = plan.dry_run,
                steps = plan.steps.len(),
                clusters = listed(&plan.clusters.raw, NAMED).join(","),
                "run started"
            );
        });
        Self { run_id: run_id.to_owned(), plan: plan.clone(), began: Instant::now() }
    }

    /// Tells the end; without an account of itself the run ended by an internal error.
    pub(crate) fn end(self, span: &Span, finished: Option<&Finished>) {
        let Self { run_id, plan, began } = self;
        metrics::run_ended(finished.map(|finished| finished.verdict), plan.operation, plan.dry_run, began.elapsed());
        let Some(Finished { verdict, counts, cancelled_by, elapsed }) = finished else {
            span.record(common::OTEL_STATUS_CODE, "error");
            span.record(common::ERROR_TYPE, "INTERNAL");
            tracing::error!({ attributes::RUN_ID } = run_id, "run ended by an internal error");
            return;
        };
        span.record(attributes::OUTCOME, verdict.as_str_name());
        let Counts { succeeded, failed, withheld, indeterminate, cancelled } = *counts;
        // What the levels differ in is who has to do something.
        macro_rules! tell {
            ($level:ident) => {
                tracing::$level!(
                    { attributes::RUN_ID } = run_id,
                    { attributes::PLAN_ID } = plan.id,
                    { attributes::DESIGN_ID } = plan.design.id,
                    { attributes::DESIGN_NAME } = plan.design.name,
                    operation = plan.operation.as_str_name(),
                    dry_run = plan.dry_run,
                    clusters = listed(&plan.clusters.raw, NAMED).join(","),
                    verdict = verdict.as_str_name(),
                    cancelled_by = (*cancelled_by != CancelledBy::Unspecified).then(|| cancelled_by.as_str_name()),
                    succeeded,
                    failed,
                    withheld,
                    indeterminate,
                    cancelled,
                    seconds = elapsed.as_secs_f64(),
                    "run ended"
                )
            };
        }
        if is_as_wanted(*verdict, *cancelled_by, counts) { tell!(info) } else { tell!(warn) }
    }
}

/// Whether nobody has to look after the run: all succeeded, or whoever asked for it did not want it any longer.
fn is_as_wanted(verdict: Verdict, cancelled_by: CancelledBy, counts: &Counts) -> bool {
    let nothing_failed = counts.failed + counts.indeterminate == 0;
    match verdict {
        Verdict::Succeeded => true,
        Verdict::Cancelled => nothing_failed && !matches!(cancelled_by, CancelledBy::LockLost | CancelledBy::Shutdown),
        Verdict::Partial | Verdict::Failed | Verdict::Unspecified => false,
    }
}
