//! What happened, as the contract says it: results of targets and steps, and the summary.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use prost::Message;
use switchyard_proto::v1;

use crate::{
    cluster::Change,
    diff::FieldDiff,
    plan::{Plan, Step, Work},
    schedule::{Ending, StepIx, UnitOutcome},
    verdict::Failure,
};

/// Largest summary message, in bytes: below the 4 MiB that gRPC clients take by default.
const MAX_MESSAGE: usize = 2 * 1024 * 1024;

/// How a step ended, kept until the summary.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) ending: Ending,
    pub(crate) because: String,
    /// Where it was fulfilled: clusters, or the adapter's address.
    pub(crate) fulfilled_by: Vec<String>,
    /// What was done about what it needs.
    pub(crate) prerequisites: Vec<v1::PrerequisiteResult>,
    /// When it ended, from the start of the run.
    pub(crate) at: Duration,
}

pub(crate) fn duration(duration: Duration) -> Option<prost_types::Duration> {
    prost_types::Duration::try_from(duration).ok()
}

pub(crate) fn failure(failure: &Failure) -> v1::Failure {
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

/// A chart as it is shown: without the credentials and signatures that its URL may hold.
pub(crate) fn chart(chart: &v1::Chart) -> v1::Chart {
    v1::Chart { url: switchyard_proto::presentable(&chart.url), ..chart.clone() }
}

/// What is added to the reason of a component that did not succeed, if something that it needs is not there either (case 105).
pub(crate) fn missing(need: &v1::PrerequisiteResult) -> Option<String> {
    let error = need.error.as_ref()?;
    Some(format!("; what it needs was not installed on cluster {}: {}", need.cluster, error.message))
}

pub(crate) fn field_diff(field: FieldDiff) -> v1::FieldDiff {
    v1::FieldDiff { path: field.path, before: field.before, after: field.after }
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
            Ending::Withheld { .. } => Self::Withheld,
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

/// The verdict on a run. An empty plan has nothing that could have failed.
pub(crate) fn verdict(endings: impl Iterator<Item = Ending>) -> v1::Verdict {
    let (mut succeeded, mut cancelled, mut other) = (false, false, false);
    for ending in endings {
        match ending {
            Ending::Succeeded => succeeded = true,
            Ending::Cancelled => cancelled = true,
            Ending::Failed | Ending::Indeterminate | Ending::Withheld { .. } => other = true,
        }
    }
    match (succeeded, cancelled, other) {
        (_, true, _) => v1::Verdict::Cancelled,
        (_, false, false) => v1::Verdict::Succeeded,
        (true, false, true) => v1::Verdict::Partial,
        (false, false, true) => v1::Verdict::Failed,
    }
}

/// What a run is called, and how long it took.
pub(crate) struct About<'a> {
    pub(crate) run_id: &'a str,
    pub(crate) trace_id: &'a str,
    pub(crate) elapsed: Duration,
    /// Unspecified when nothing stopped it.
    pub(crate) cancelled_by: v1::CancelledBy,
}

/// The summary, in as many messages as it takes; the last is complete.
pub(crate) fn summary(plan: &Plan, ended: &[Ended], about: &About<'_>) -> Vec<v1::RunSummary> {
    let mut counts = BTreeMap::new();
    let message = || v1::RunSummary {
        run_id: about.run_id.into(),
        trace_id: about.trace_id.into(),
        elapsed: duration(about.elapsed),
        ..Default::default()
    };
    let mut messages = vec![message()];
    let mut size = 0;
    for (step, ended) in plan.steps.iter().zip(ended) {
        let outcome = v1::Outcome::from(ended.ending);
        *counts.entry(outcome_name(outcome)).or_insert(0) += 1;
        let row = v1::SummaryRow {
            step_id: step.id.clone(),
            component: step.component.name.clone(),
            model: step.component.model.clone(),
            route: step.route().into(),
            fulfilled_by: ended.fulfilled_by.clone(),
            outcome: outcome.into(),
            because: ended.because.clone(),
            prerequisites: ended.prerequisites.clone(),
        };
        size += row.encoded_len() + 8;
        if size > MAX_MESSAGE {
            messages.push(message());
            size = row.encoded_len();
        }
        messages.last_mut().expect("there is always one").rows.push(row);
    }
    let last = messages.last_mut().expect("there is always one");
    last.verdict = verdict(ended.iter().map(|ended| ended.ending)).into();
    last.counts = counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect::<HashMap<_, _>>();
    last.critical_path = critical_path(plan, ended);
    last.cancelled_by = about.cancelled_by.into();
    last.complete = true;
    messages
}

/// Where a step was fulfilled, by the results of its targets. What an adapter was seen to leave on clusters is its own work, so
/// that counts as one; a dry run asks the clusters in its place.
pub(crate) fn fulfilled_by(plan: &Plan, step: &Step, result: &v1::StepResult) -> Vec<String> {
    match &step.work {
        Work::Adapter(adapter) if result.outcome() == v1::Outcome::Succeeded => {
            vec![plan.adapters[adapter.lane.0 as usize - plan.clusters.len()].clone()]
        }
        Work::Adapter(_) => Vec::new(),
        Work::Direct(_) => {
            let succeeded = result.targets.iter().filter(|target| target.outcome() == v1::Outcome::Succeeded);
            let clusters = succeeded.filter_map(|target| match &target.target {
                Some(v1::target_result::Target::Cluster(cluster)) => Some(cluster.clone()),
                _ => None,
            });
            clusters.collect()
        }
    }
}

/// The chain that took longest: from the step that ended last back along whatever it had to wait for last.
fn critical_path(plan: &Plan, ended: &[Ended]) -> Vec<String> {
    let latest = |steps: &mut dyn Iterator<Item = StepIx>| steps.max_by_key(|ix| (ended[ix.0 as usize].at, *ix));
    let mut chain = Vec::new();
    let mut next = latest(&mut (0..plan.steps.len() as u32).map(StepIx));
    while let Some(ix) = next {
        let step = &plan.steps[ix.0 as usize];
        chain.push(step.id.clone());
        next = latest(&mut step.depends_on.iter().chain(&step.runs_after).copied());
    }
    chain.reverse();
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_follows_from_the_endings() {
        let withheld = Ending::Withheld { by: StepIx(0), root: StepIx(0) };
        let of = |endings: &[Ending]| verdict(endings.iter().copied());
        assert_eq!(of(&[]), v1::Verdict::Succeeded);
        assert_eq!(of(&[Ending::Succeeded]), v1::Verdict::Succeeded);
        assert_eq!(of(&[Ending::Succeeded, Ending::Indeterminate]), v1::Verdict::Partial);
        assert_eq!(of(&[Ending::Failed, withheld]), v1::Verdict::Failed);
        assert_eq!(of(&[Ending::Succeeded, Ending::Cancelled, Ending::Failed]), v1::Verdict::Cancelled);
    }
}
