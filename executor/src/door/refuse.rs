//! Why a call is not served, as the status that says so: the one place that knows codes and details (contract, Errors).

use std::time::Duration;

use switchyard_service::status::{self, Reason, refusal};
use tonic::Status;

use crate::{
    door::{intake, runs},
    fulfil::handover::NotAllowed,
    record::locks::{self, Conflict},
};

/// When a caller may come back to an executor that has no room.
const COME_BACK: Duration = Duration::from_secs(5);

pub(crate) fn plain(reason: Reason, text: impl Into<String>) -> Status {
    refusal(reason, text).into_status()
}

pub(crate) fn shutting_down() -> Status {
    refusal(Reason::ShuttingDown, "the executor is shutting down; nothing was started")
        .retry_after(COME_BACK)
        .into_status()
}

pub(crate) fn late(what: &str) -> Status {
    plain(Reason::DeadlineExceeded, format!("the caller's deadline has passed; {what}"))
}

pub(crate) fn intake(error: &intake::Error) -> Status {
    let text = error.to_string();
    match error {
        intake::Error::Invalid { field, what } => {
            refusal(Reason::PlanInvalid, text).violation(field, what).into_status()
        }
        intake::Error::Incomplete(what) => {
            refusal(Reason::PlanIncomplete, text).violation("trailer", what).into_status()
        }
        intake::Error::Digest { .. } => {
            refusal(Reason::PlanDigestMismatch, &text).violation("header.plan_id", &text).into_status()
        }
        intake::Error::TooNew(unknown) => {
            let add = |refusal: switchyard_service::status::Refusal, what: &String| {
                refusal.precondition("PLAN", what, "upgrade the executor, or plan with a planner of its version")
            };
            unknown.iter().fold(refusal(Reason::PlanTooNew, text), add).into_status()
        }
        intake::Error::TooLarge(what) => {
            // Never to be tried again as it is.
            refusal(Reason::MessageTooLarge, text).quota("plan", what).into_status()
        }
        intake::Error::NoRoom(_) => status::too_busy("max-held-bytes", text).into_status(),
        intake::Error::Address { component, address } => refusal(Reason::RegistrantAddressInvalid, &text)
            .precondition("REGISTRANT_ADDRESS", component, format!("{address}: {text}"))
            .into_status(),
        intake::Error::Cancelled => plain(Reason::RunCancelled, text),
    }
}

pub(crate) fn too_many_plans(most: usize) -> Status {
    let text = format!("{most} plans are coming in, as many as this executor listens to; try again in a moment");
    status::too_busy("plans that come in", text).into_status()
}

pub(crate) fn run(error: &runs::Error) -> Status {
    let text = error.to_string();
    match error {
        runs::Error::Conflict(conflicts) => self::conflicts(conflicts),
        runs::Error::TooMany(_) => {
            refusal(Reason::TooManyRuns, &text).quota("runs", &text).retry_after(COME_BACK).into_status()
        }
    }
}

/// Refuses a request id that stands for a run of another plan.
pub(crate) fn other_plan(run_id: &str, plan_id: &str) -> Status {
    let text = format!(
        "the request id stands for run {run_id}, which carries another plan out; use an id of its own for each plan"
    );
    refusal(Reason::RequestIdReused, text).metadata("run_id", run_id).metadata("plan_id", plan_id).into_status()
}

/// Refuses a request for what is wrong with one of its fields.
pub(crate) fn request(field: &str, what: &str) -> Status {
    refusal(Reason::RequestInvalid, format!("{field}: {what}")).violation(field, what).into_status()
}

/// Refuses to read a run from beyond what it has told.
pub(crate) fn unknown_sequence(run_id: &str, after: u64, last: u64) -> Status {
    let text = format!("run {run_id} has told {last} events, so there is nothing after {after}");
    refusal(Reason::SequenceUnknown, text)
        .metadata("run_id", run_id)
        .metadata("last_sequence", last.to_string())
        .into_status()
}

/// Refuses a run for those that work on its design already, on whichever of its clusters (case 365).
fn conflicts(conflicts: &[Conflict]) -> Status {
    let text = conflicts.first().map_or_else(String::new, Conflict::to_string);
    let mut refusal = refusal(Reason::RunConflict, text).retry_after(COME_BACK);
    if let Some(Conflict { design, cluster, run_id, .. }) = conflicts.first() {
        refusal = refusal.metadata("run_id", run_id).metadata("cluster", cluster).metadata("design_id", design);
    }
    let add = |refusal: switchyard_service::status::Refusal, conflict: &Conflict| {
        refusal.precondition("RUN", conflict.cluster.as_str(), conflict.to_string())
    };
    conflicts.iter().fold(refusal, add).into_status()
}

pub(crate) fn locks(error: &locks::Error) -> Status {
    match error {
        locks::Error::Conflict(conflicts) => self::conflicts(conflicts),
        locks::Error::Unusable(unusable) => {
            let unusable: Vec<_> = unusable.iter().map(|(name, why)| (name, why.clone())).collect();
            clusters(&unusable)
        }
    }
}

pub(crate) fn clusters(unusable: &[(&String, String)]) -> Status {
    let names: Vec<_> = unusable.iter().map(|(name, _)| name.as_str()).collect();
    let text = format!("no working connection to {}; no cluster was touched", names.join(", "));
    let refusal = refusal(Reason::ClusterUnusable, text);
    let add = |refusal: switchyard_service::status::Refusal, (name, why): &(&String, String)| {
        refusal.precondition("CLUSTER", name.as_str(), format!("cluster {name}: {why}"))
    };
    unusable.iter().fold(refusal, add).into_status()
}

/// Refuses adapters that would be handed credentials of the executor's own.
pub(crate) fn adapters(not_allowed: &[NotAllowed]) -> Status {
    let addresses: Vec<_> = not_allowed.iter().map(|adapter| adapter.address.as_str()).collect();
    let text = format!(
        "the adapters at {} may not be handed credentials of the executor's own; no cluster was touched",
        addresses.join(", ")
    );
    let add = |refusal: switchyard_service::status::Refusal, adapter: &NotAllowed| {
        refusal.precondition("ADAPTER", adapter.address.as_str(), adapter.to_string())
    };
    not_allowed.iter().fold(refusal(Reason::AdapterNotAllowed, text), add).into_status()
}

/// What is said instead of the end of a run that gave no account of itself.
pub(crate) fn broken_run(run_id: &str) -> Status {
    plain(Reason::Internal, format!("run {run_id} ended by an internal error"))
}

pub(crate) fn unknown_run(run_id: &str) -> Status {
    let text = "no such run; it may have ended so long ago that it is no longer kept";
    refusal(Reason::RunUnknown, text).metadata("run_id", run_id).into_status()
}
