//! The summary of a run: one row a component, counts, and the verdict.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use prost::Message;
use switchyard_proto::v1;
use switchyard_service::status::capped;

use super::{duration, outcome_name};
use crate::{
    core::{
        plan::{Plan, Step, Work},
        schedule::Ending,
        target::{StepIx, Steps},
    },
    journal::fit::{MAX_LISTED, keep_within, listed, shorten},
};

/// Largest summary message, in bytes: as above, and the last one holds more than rows.
const MAX_MESSAGE: usize = 1024 * 1024;
/// Longest reason in a row of the summary, in bytes.
const MAX_BECAUSE: usize = 2048;
/// Largest account of what a component needs in a row of the summary, in bytes.
const MAX_NEEDED: usize = 128 * 1024;
/// Largest critical path, in bytes of step ids.
const MAX_PATH: usize = 256 * 1024;

/// How a step ended, kept until the summary.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(crate) ending: Ending,
    pub(crate) because: String,
    /// Where it was fulfilled: clusters, or the adapter's address.
    pub(crate) fulfilled_by: Vec<String>,
    /// What was done about what it needs.
    pub(crate) prerequisites: Vec<v1::PrerequisiteResult>,
    /// Where it was tried and did not succeed.
    pub(crate) targets_failed: Vec<String>,
    /// The worst of its targets.
    pub(crate) readiness: v1::Readiness,
    /// Number of warnings.
    pub(crate) warnings: usize,
    /// When it ended, from the start of the run.
    pub(crate) at: Duration,
}

/// How many steps ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) succeeded: u32,
    pub(crate) failed: u32,
    pub(crate) withheld: u32,
    pub(crate) indeterminate: u32,
    pub(crate) cancelled: u32,
}

impl Counts {
    pub(super) fn of(endings: impl Iterator<Item = Ending>) -> Self {
        let mut counts = Self::default();
        for ending in endings {
            let count = match ending {
                Ending::Succeeded => &mut counts.succeeded,
                Ending::Failed => &mut counts.failed,
                Ending::Withheld(_) => &mut counts.withheld,
                Ending::Indeterminate => &mut counts.indeterminate,
                Ending::Cancelled => &mut counts.cancelled,
            };
            *count += 1;
        }
        counts
    }
}

/// The verdict on a run. An empty plan has nothing that could have failed.
pub(super) fn verdict(endings: impl Iterator<Item = Ending>) -> v1::Verdict {
    let (mut succeeded, mut cancelled, mut other) = (false, false, false);
    for ending in endings {
        match ending {
            Ending::Succeeded => succeeded = true,
            Ending::Cancelled => cancelled = true,
            Ending::Failed | Ending::Indeterminate | Ending::Withheld(_) => other = true,
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
pub(super) struct About<'a> {
    pub(crate) run_id: &'a str,
    pub(crate) trace_id: &'a str,
    pub(crate) elapsed: Duration,
    /// Unspecified when nothing stopped it.
    pub(crate) cancelled_by: v1::CancelledBy,
    pub(crate) left_overs: &'a LeftOvers,
}

/// Numbers of objects that the plan no longer has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeftOvers {
    pub(super) told: u32,
    /// Still there.
    pub(super) left: usize,
    /// They were to be removed, and were not.
    pub(super) failed: usize,
}

/// The summary, in as many messages as it takes; the last is complete.
pub(super) fn summary(plan: &Plan, ended: &Steps<Ended>, about: &About<'_>) -> Vec<v1::RunSummary> {
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
            fulfilled_by: listed(&ended.fulfilled_by, MAX_LISTED),
            outcome: outcome.into(),
            because: capped(&ended.because, MAX_BECAUSE),
            prerequisites: briefly_needed(&ended.prerequisites),
            readiness: ended.readiness.into(),
            warnings: ended.warnings as u32,
            targets_failed: listed(&ended.targets_failed, MAX_LISTED),
        };
        size += row.encoded_len() + 8;
        if size > MAX_MESSAGE {
            messages.push(message());
            size = row.encoded_len();
        }
        messages.last_mut().expect("there is always one").rows.push(row);
    }
    let last = messages.last_mut().expect("there is always one");
    last.verdict = match verdict(ended.iter().map(|ended| ended.ending)) {
        v1::Verdict::Succeeded if about.left_overs.failed > 0 => v1::Verdict::Partial,
        verdict => verdict,
    }
    .into();
    last.left_overs = about.left_overs.told;
    last.counts = counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect::<HashMap<_, _>>();
    last.critical_path = critical_path(plan, ended);
    last.cancelled_by = about.cancelled_by.into();
    last.not_ready = ended.iter().filter(|ended| is_not_ready(ended.readiness)).count() as u32;
    last.complete = true;
    messages
}

/// Where a step was fulfilled, by the results of its targets. What an adapter was seen to leave on clusters is its own work, so
/// that counts as one; a dry run asks the clusters in its place.
pub(super) fn fulfilled_by(plan: &Plan, step: &Step, result: &v1::StepResult) -> Vec<String> {
    match &step.work {
        Work::Adapter(adapter) if result.outcome() == v1::Outcome::Succeeded => {
            vec![plan.adapters[adapter.address].clone()]
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

/// Where a step was tried and did not succeed.
pub(super) fn targets_failed(result: &v1::StepResult) -> Vec<String> {
    let failed =
        |target: &&v1::TargetResult| matches!(target.outcome(), v1::Outcome::Failed | v1::Outcome::Indeterminate);
    let name = |target: &v1::TargetResult| match &target.target {
        Some(v1::target_result::Target::Cluster(name) | v1::target_result::Target::AdapterAddress(name)) => {
            Some(name.clone())
        }
        None => None,
    };
    result.targets.iter().filter(failed).filter_map(name).collect()
}

/// The worst readiness of a step's targets; unspecified when none was asked for it.
pub(super) fn readiness(result: &v1::StepResult) -> v1::Readiness {
    let rank = |readiness: &v1::Readiness| match readiness {
        v1::Readiness::Unspecified => 0,
        v1::Readiness::Ready => 1,
        v1::Readiness::Unknown => 2,
        v1::Readiness::Progressing => 3,
        v1::Readiness::Stalled => 4,
    };
    result.targets.iter().map(v1::TargetResult::readiness).max_by_key(rank).unwrap_or_default()
}

/// Whether readiness was asked for and is not there.
fn is_not_ready(readiness: v1::Readiness) -> bool {
    !matches!(readiness, v1::Readiness::Unspecified | v1::Readiness::Ready)
}

/// The chain that took longest: from the step that ended last back along whatever it had to wait for last.
fn critical_path(plan: &Plan, ended: &Steps<Ended>) -> Vec<String> {
    let latest = |steps: &mut dyn Iterator<Item = StepIx>| steps.max_by_key(|ix| (ended[*ix].at, *ix));
    let mut chain = Vec::new();
    let mut next = latest(&mut plan.steps.keys());
    while let Some(ix) = next {
        let step = &plan.steps[ix];
        chain.push(step.id.clone());
        next = latest(&mut step.depends_on.iter().chain(&step.runs_after).copied());
    }
    let mut size = 0;
    let fits = |id: &&String| {
        size += id.len() + 4;
        size <= MAX_PATH
    };
    let kept = chain.iter().take_while(fits).count();
    chain.truncate(kept);
    chain.reverse();
    chain
}

/// What was done about what a component needs, as far as a row of the summary has room for it: failures first, in short.
fn briefly_needed(needs: &[v1::PrerequisiteResult]) -> Vec<v1::PrerequisiteResult> {
    let mut needs = needs.to_vec();
    needs.iter_mut().for_each(|need| shorten(&mut need.error, MAX_BECAUSE));
    if needs.iter().map(Message::encoded_len).sum::<usize>() > MAX_NEEDED {
        needs.sort_by_key(|need| need.outcome() == v1::Outcome::Succeeded);
        keep_within(&mut needs, MAX_NEEDED);
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::schedule::Hold;

    #[test]
    fn verdict_follows_from_the_endings() {
        let withheld = Ending::Withheld(Hold { by: StepIx(0), root: StepIx(0) });
        let of = |endings: &[Ending]| verdict(endings.iter().copied());
        assert_eq!(of(&[]), v1::Verdict::Succeeded);
        assert_eq!(of(&[Ending::Succeeded]), v1::Verdict::Succeeded);
        assert_eq!(of(&[Ending::Succeeded, Ending::Indeterminate]), v1::Verdict::Partial);
        assert_eq!(of(&[Ending::Failed, withheld]), v1::Verdict::Failed);
        assert_eq!(of(&[Ending::Succeeded, Ending::Cancelled, Ending::Failed]), v1::Verdict::Cancelled);
    }
}
