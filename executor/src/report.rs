//! What happened, as the contract says it: the one place that makes messages of it.

mod account;
mod summary;
mod tell;

use std::time::Duration;

use prost::Message;
use switchyard_proto::v1::{self, target_result};

pub(crate) use self::{
    account::{Account, Finished, Identity, RunEnding, UnitEnd, Waiting},
    summary::Counts,
};
use crate::{
    answers::failure::Failure,
    cluster::Change,
    core::{
        plan::Plan,
        schedule::{Ending, UnitOutcome},
        target::{StepIx, Target},
    },
    fulfil::{Need, NeedDone, NeedFailed, ObjectId},
    journal::fit::{MAX_LISTED, fitting, listed, repeated},
    present::diff::FieldDiff,
};

/// Largest header that is kept of a plan, in bytes.
const MAX_HEADER: usize = 512 * 1024;

fn duration(duration: Duration) -> Option<prost_types::Duration> {
    prost_types::Duration::try_from(duration).ok()
}

fn failure(failure: &Failure) -> v1::Failure {
    v1::Failure {
        reason: failure.reason.as_str().into(),
        message: failure.message.clone(),
        retryable: failure.retryable,
        causes: failure
            .causes
            .iter()
            .map(|cause| v1::Cause {
                field: cause.field.clone(),
                reason: cause.reason.clone(),
                message: cause.message.clone(),
            })
            .collect(),
    }
}

/// What stands for a failure where it is not the subject: everybody who is withheld for it repeats this much (case 248).
fn briefly(failure: &Failure) -> v1::Failure {
    v1::Failure {
        reason: failure.reason.as_str().into(),
        message: repeated(&failure.message),
        retryable: failure.retryable,
        causes: Vec::new(),
    }
}

/// The header of a plan as it is kept: whole, unless it is larger than [`MAX_HEADER`].
pub(crate) fn header(header: &v1::PlanHeader) -> v1::PlanHeader {
    if header.encoded_len() <= MAX_HEADER {
        return header.clone();
    }
    let (clusters, set_aside, warnings) = (&header.clusters, &header.set_aside, &header.warnings);
    v1::PlanHeader {
        plan_id: header.plan_id.clone(),
        operation: header.operation,
        dry_run: header.dry_run,
        design: header.design.clone(),
        clusters: listed(clusters, MAX_LISTED),
        include_dependencies: header.include_dependencies,
        options: header.options.clone(),
        step_count: header.step_count,
        set_aside: first_within(set_aside, MAX_HEADER / 4),
        warnings: first_within(warnings, MAX_HEADER / 4),
        traceparent: header.traceparent.clone(),
    }
}

/// Copies of as many of the first as fit.
fn first_within<M: Message + Clone>(messages: &[M], bytes: usize) -> Vec<M> {
    messages[..fitting(messages, bytes)].to_vec()
}

/// A chart as it is shown: without the credentials and signatures that its URL may hold.
pub(crate) fn chart(chart: &v1::Chart) -> v1::Chart {
    v1::Chart { url: switchyard_proto::presentable(&chart.url), ..chart.clone() }
}

/// What was done about a chart that a step needs.
fn prerequisite(plan: &Plan, step: StepIx, need: &Need) -> v1::PrerequisiteResult {
    let Need { cluster, namespace, release, result } = need;
    let mut told = v1::PrerequisiteResult {
        cluster: plan.clusters[*cluster].clone(),
        chart: plan.steps[step].chart.as_ref().map(|it| v1::Chart { namespace: namespace.clone(), ..chart(it) }),
        release: release.clone(),
        ..Default::default()
    };
    match result {
        Ok(NeedDone { change, note }) => {
            told.outcome = v1::Outcome::Succeeded.into();
            told.change = (*change).into();
            told.note = note.clone();
        }
        Err(NeedFailed { outcome, failure: why }) => {
            told.outcome = v1::Outcome::from(*outcome).into();
            told.error = Some(failure(why));
        }
    }
    told
}

/// What is added to the reason of a component that did not succeed, if something that it needs is not there either (case 105).
fn missing(need: &v1::PrerequisiteResult) -> Option<String> {
    let error = need.error.as_ref()?;
    Some(format!("; what it needs was not installed on cluster {}: {}", need.cluster, error.message))
}

fn object(object: ObjectId) -> v1::ObjectRef {
    let ObjectId { api_version, kind, namespace, name, uid, resource_version } = object;
    v1::ObjectRef { api_version, kind, namespace, name, uid, resource_version }
}

/// What a target is called.
fn named(plan: &Plan, target: Target) -> target_result::Target {
    match target {
        Target::Cluster(cluster) => target_result::Target::Cluster(plan.clusters[cluster].clone()),
        Target::Adapter(adapter) => target_result::Target::AdapterAddress(plan.adapters[adapter].clone()),
    }
}

/// What is said of an object that another component of the plan has met before (case 291).
fn same_object(other: &str) -> String {
    format!("this is the same object as that of component {other}: both write it")
}

fn field_diff(field: FieldDiff) -> v1::FieldDiff {
    let FieldDiff { path, before, after } = field;
    v1::FieldDiff { path, before: before.text, after: after.text, before_cut: before.is_cut, after_cut: after.is_cut }
}

impl From<Change> for v1::Change {
    fn from(change: Change) -> Self {
        match change {
            Change::Created => Self::Created,
            Change::Configured => Self::Configured,
            Change::Unchanged => Self::Unchanged,
            Change::Removed => Self::Removed,
            Change::Absent => Self::Absent,
        }
    }
}

impl From<UnitOutcome> for v1::Outcome {
    fn from(outcome: UnitOutcome) -> Self {
        match outcome {
            UnitOutcome::Succeeded => Self::Succeeded,
            UnitOutcome::Failed => Self::Failed,
            UnitOutcome::Indeterminate => Self::Indeterminate,
            UnitOutcome::Cancelled => Self::Cancelled,
        }
    }
}

impl From<Ending> for v1::Outcome {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Succeeded => Self::Succeeded,
            Ending::Failed => Self::Failed,
            Ending::Indeterminate => Self::Indeterminate,
            Ending::Withheld(_) => Self::Withheld,
            Ending::Cancelled => Self::Cancelled,
        }
    }
}

/// The name of an outcome as it stands in `RunSummary.counts`.
pub(crate) fn outcome_name(outcome: v1::Outcome) -> &'static str {
    match outcome {
        v1::Outcome::Unspecified => "unspecified",
        v1::Outcome::Succeeded => "succeeded",
        v1::Outcome::Failed => "failed",
        v1::Outcome::Withheld => "withheld",
        v1::Outcome::Indeterminate => "indeterminate",
        v1::Outcome::Cancelled => "cancelled",
    }
}
