//! What happened, as the contract says it: results of targets and steps, and the summary.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use prost::Message;
use switchyard_proto::v1::{self, execute_response::Event};
use switchyard_service::status::capped;

use crate::{
    cluster::Change,
    diff::FieldDiff,
    failure::Failure,
    plan::{Plan, Step, Work},
    schedule::{Ending, StepIx, UnitOutcome},
};

/// Largest event, in bytes: well below the 4 MiB that gRPC clients take by default (case 249).
pub(crate) const MAX_EVENT: usize = 2 * 1024 * 1024;
/// Largest summary message, in bytes: as above, and the last one holds more than rows.
const MAX_MESSAGE: usize = 1024 * 1024;
/// Longest reason in a row of the summary, in bytes.
const MAX_BECAUSE: usize = 2048;
/// Longest text that is said again where it has been said in full already, in bytes.
const MAX_REPEATED: usize = 256;
/// Most names of clusters that are listed in one place.
pub(crate) const MAX_LISTED: usize = 1000;
/// Largest account of what a component needs in a row of the summary, in bytes.
const MAX_NEEDED: usize = 128 * 1024;
/// Largest header that is kept of a plan, in bytes.
const MAX_HEADER: usize = 512 * 1024;
/// Largest critical path, in bytes of step ids.
const MAX_PATH: usize = 256 * 1024;

/// How a step ended, kept until the summary.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
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

/// What stands for a failure where it is not the subject: everybody who is withheld for it repeats this much (case 248).
pub(crate) fn briefly(failure: &Failure) -> v1::Failure {
    v1::Failure {
        reason: failure.reason.as_str().into(),
        message: repeated(&failure.message),
        retryable: failure.retryable,
        causes: Vec::new(),
    }
}

/// A text that has been said in full elsewhere.
pub(crate) fn repeated(text: &str) -> String {
    capped(text, MAX_REPEATED)
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

/// How many of the first fit.
pub(crate) fn fitting<M: Message>(messages: &[M], bytes: usize) -> usize {
    let mut size = 0;
    let fits = |message: &&M| {
        size += message.encoded_len() + 8;
        size <= bytes
    };
    messages.iter().take_while(fits).count()
}

/// Names in a list, and how many more there are if they are too many.
pub(crate) fn listed(names: &[String], most: usize) -> Vec<String> {
    let mut listed: Vec<_> = names.iter().take(most).cloned().collect();
    if names.len() > most {
        listed.push(format!("and {} more", names.len() - most));
    }
    listed
}

/// Cuts an event to [`MAX_EVENT`]: what is said elsewhere goes first, then detail, then what went well.
pub(crate) fn fit(event: Event) -> Event {
    let mut event = brief(event);
    match &mut event {
        Event::RunStarted(started) => {
            keep_within(&mut started.clusters, MAX_EVENT / 2);
            started.warnings = listed(&started.warnings, MAX_LISTED);
        }
        Event::StepResult(result) => {
            result.targets.sort_by_key(|target| target.outcome() == v1::Outcome::Succeeded);
            result.prerequisites.sort_by_key(|need| need.outcome() == v1::Outcome::Succeeded);
            keep_within(&mut result.targets, MAX_EVENT / 2);
            keep_within(&mut result.prerequisites, MAX_EVENT / 4);
        }
        Event::TargetResult(_) | Event::StepStarted(_) | Event::StepProgress(_) | Event::Summary(_) => {}
    }
    event
}

/// An event without its details: outcomes and reasons stay, texts are short.
pub(crate) fn brief(mut event: Event) -> Event {
    fn brief_target(target: &mut v1::TargetResult) {
        shorten(&mut target.error, MAX_REPEATED);
        target.warnings.truncate(1);
        target.warnings.iter_mut().for_each(|warning| *warning = repeated(warning));
        target.altered.clear();
        if !target.diff.is_empty() {
            target.warnings.push(format!("{} fields that would change are left out", target.diff.len()));
            target.diff_left_out += target.diff.len() as u32;
            target.diff.clear();
        }
    }
    match &mut event {
        Event::TargetResult(target) => brief_target(target),
        Event::StepResult(result) => {
            shorten(&mut result.error, MAX_REPEATED);
            result.targets.iter_mut().for_each(brief_target);
            result.prerequisites.iter_mut().for_each(|need| shorten(&mut need.error, MAX_REPEATED));
        }
        Event::RunStarted(_) | Event::StepStarted(_) | Event::StepProgress(_) | Event::Summary(_) => {}
    }
    event
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

/// Leaves so much of what a failure says, in bytes, and no causes.
fn shorten(failure: &mut Option<v1::Failure>, most: usize) {
    if let Some(failure) = failure {
        failure.message = capped(&failure.message, most);
        failure.causes.clear();
    }
}

/// Keeps as many of the first as fit.
fn keep_within<M: Message>(messages: &mut Vec<M>, bytes: usize) {
    messages.truncate(fitting(messages, bytes));
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

/// What is said of an object that another component of the plan has met before (case 291).
pub(crate) fn same_object(other: &str) -> String {
    format!("this is the same object as that of component {other}: both write it")
}

pub(crate) fn field_diff(field: FieldDiff) -> v1::FieldDiff {
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
    pub(crate) fn of(endings: impl Iterator<Item = Ending>) -> Self {
        let mut counts = Self::default();
        for ending in endings {
            let count = match ending {
                Ending::Succeeded => &mut counts.succeeded,
                Ending::Failed => &mut counts.failed,
                Ending::Withheld { .. } => &mut counts.withheld,
                Ending::Indeterminate => &mut counts.indeterminate,
                Ending::Cancelled => &mut counts.cancelled,
            };
            *count += 1;
        }
        counts
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
    last.verdict = verdict(ended.iter().map(|ended| ended.ending)).into();
    last.counts = counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect::<HashMap<_, _>>();
    last.critical_path = critical_path(plan, ended);
    last.cancelled_by = about.cancelled_by.into();
    last.not_ready = ended.iter().filter(|ended| is_not_ready(ended.readiness)).count() as u32;
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

/// Where a step was tried and did not succeed.
pub(crate) fn targets_failed(result: &v1::StepResult) -> Vec<String> {
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
pub(crate) fn readiness(result: &v1::StepResult) -> v1::Readiness {
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
fn critical_path(plan: &Plan, ended: &[Ended]) -> Vec<String> {
    let latest = |steps: &mut dyn Iterator<Item = StepIx>| steps.max_by_key(|ix| (ended[ix.0 as usize].at, *ix));
    let mut chain = Vec::new();
    let mut next = latest(&mut (0..plan.steps.len() as u32).map(StepIx));
    while let Some(ix) = next {
        let step = &plan.steps[ix.0 as usize];
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

    fn text(length: usize) -> String {
        "x".repeat(length)
    }

    fn target(number: usize, outcome: v1::Outcome) -> v1::TargetResult {
        let causes = (0..20).map(|_| v1::Cause { message: text(1000), ..Default::default() }).collect();
        v1::TargetResult {
            step_id: text(200),
            target: Some(v1::target_result::Target::Cluster(format!("cluster-{number}"))),
            outcome: outcome.into(),
            error: (outcome == v1::Outcome::Failed).then(|| v1::Failure {
                message: text(4000),
                causes,
                ..Default::default()
            }),
            warnings: (0..5).map(|_| text(4000)).collect(),
            diff: (0..200)
                .map(|_| v1::FieldDiff { path: text(100), before: text(1000), after: text(1000), ..Default::default() })
                .collect(),
            ..Default::default()
        }
    }

    /// Case 249.
    #[test]
    fn every_event_fits_whatever_it_is_about() {
        let targets = |number| {
            (0..number).map(|number| match number % 100 {
                99 => target(number, v1::Outcome::Failed),
                _ => target(number, v1::Outcome::Succeeded),
            })
        };
        let failed = |event: &Event| match event {
            Event::StepResult(result) => {
                let failed = result.targets.iter().filter(|it| it.outcome() == v1::Outcome::Failed);
                failed.map(|target| target.error.as_ref().unwrap().message.len()).collect::<Vec<_>>()
            }
            _ => Vec::new(),
        };
        let result = |number| {
            fit(Event::StepResult(v1::StepResult { targets: targets(number).collect(), ..Default::default() }))
        };
        assert_eq!(failed(&result(1_000)), [MAX_REPEATED; 10]);
        // What failed is told before what did not.
        assert_eq!(failed(&result(10_000)), [MAX_REPEATED; 100]);
        let clusters =
            (0..10_000).map(|_| v1::ClusterInfo { name: text(253), server: text(255), version: text(20) }).collect();
        let warnings = (0..10_000).map(|_| text(500)).collect();
        let started = fit(Event::RunStarted(v1::RunStarted { clusters, warnings, ..Default::default() }));
        let one = fit(Event::TargetResult(target(1, v1::Outcome::Failed)));
        for event in [result(10_000), started, one] {
            let size = v1::ExecuteResponse { event: Some(event), ..Default::default() }.encoded_len();
            assert!(size <= MAX_EVENT, "{size}");
        }
    }

    #[test]
    fn list_of_names_says_how_many_it_leaves_out() {
        let names: Vec<_> = (0..1_500).map(|number| number.to_string()).collect();
        let shown = listed(&names, MAX_LISTED);
        assert_eq!((shown.len(), shown[1_000].as_str()), (1_001, "and 500 more"));
        assert_eq!(listed(&names[..2], MAX_LISTED), ["0", "1"]);
    }
}
