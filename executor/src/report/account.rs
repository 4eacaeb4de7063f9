//! The account of one run: takes in what happened, and writes it to the journal as the contract says it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use prost::Message;
use switchyard_proto::v1::{self, execute_response::Event, step_progress, target_result};
use tokio::time::Instant;
use tracing::Span;

use super::{
    briefly, duration, failure, field_diff, missing, named, object, outcome_name, prerequisite, same_object,
    summary::{self, About, Counts, Ended, LeftOvers},
    tell::{self, Roots},
};
use crate::{
    answers::failure::{Failure, Reason},
    attributes,
    core::{
        plan::Plan,
        schedule::{Ending, Hold, UnitOutcome},
        target::{ClusterIx, StepIx, Steps, Target},
    },
    fulfil::{Checked, Done, Fate, LeftOver, Need, Needs, Ready},
    journal::{Journal, fit::repeated},
    metrics,
};

/// How many bytes of a run's events may tell of waits.
const MOST_OF_WAITS: usize = 4 * 1024 * 1024;

/// What a run is called.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) run_id: String,
    pub(crate) trace_id: String,
}

/// How a run ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    pub(crate) verdict: v1::Verdict,
    /// How many steps ended how.
    pub(crate) counts: Counts,
    pub(crate) cancelled_by: v1::CancelledBy,
    pub(crate) elapsed: Duration,
}

/// How a run ends, as far as that is known before its summary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunEnding {
    pub(crate) verdict: v1::Verdict,
    /// Objects of the design that no step of the plan is, and that are still there.
    pub(crate) left: usize,
}

/// What is known of a unit that was attempted, when it has ended.
pub(crate) struct UnitEnd {
    /// Write requests that were sent.
    pub(crate) sent: u32,
    pub(crate) elapsed: Duration,
    pub(crate) warnings: Vec<String>,
    /// What each cluster was seen to hold after the last attempt.
    pub(crate) checked: Vec<Checked>,
    /// How the last attempt ended.
    pub(crate) last: Option<Result<Done, Failure>>,
}

/// What a unit waits for.
pub(crate) struct Waiting {
    pub(crate) text: String,
    pub(crate) readiness: v1::Readiness,
    pub(crate) attempts: u32,
}

/// Who stopped a run, and why.
#[derive(Debug)]
struct Stopped {
    by: v1::CancelledBy,
    reason: String,
}

impl Stopped {
    /// Whether it may do to try again: what the caller stopped is not wanted (case 368).
    fn is_retryable(&self) -> bool {
        self.by != v1::CancelledBy::Caller
    }

    /// What is said of what was not attempted.
    fn failure(&self) -> Failure {
        let text = format!("not attempted: {}", self.reason);
        Failure { retryable: self.is_retryable(), ..Failure::new(Reason::Cancelled, text) }
    }

    /// Has a failure that comes from the stop say whether it may do to try again.
    fn mark(&self, failure: &mut Failure) {
        if failure.reason == Reason::Cancelled {
            failure.retryable = self.is_retryable();
        }
    }
}

/// One step that has begun and has not ended.
struct Open {
    began: Instant,
    span: Span,
    /// An adapter's own result comes before those of the clusters that it acted on.
    targets: Vec<(Option<ClusterIx>, v1::TargetResult)>,
    needs: Needs,
}

/// What has happened in a run so far.
pub(crate) struct Account {
    plan: Arc<Plan>,
    identity: Identity,
    journal: Arc<Journal>,
    began: Instant,
    open: HashMap<StepIx, Open>,
    ended: Steps<Option<Ended>>,
    /// The failure of each step that others are withheld by.
    failures: HashMap<StepIx, Failure>,
    /// The spans of these.
    roots: Roots,
    /// Objects by target and uid, with the step that met each first.
    met: HashMap<(Target, String), StepIx>,
    /// None while nothing has stopped the run.
    stopped: Option<Stopped>,
    /// Bytes of what was told of waits.
    of_waits: usize,
    left_overs: LeftOvers,
}

impl Account {
    /// The account of a run that begins now.
    pub(crate) fn new(plan: Arc<Plan>, identity: Identity, journal: Arc<Journal>) -> Self {
        Self {
            ended: plan.steps.iter().map(|_| None).collect(),
            plan,
            identity,
            journal,
            began: Instant::now(),
            open: HashMap::new(),
            failures: HashMap::new(),
            roots: Roots::default(),
            met: HashMap::new(),
            stopped: None,
            left_overs: LeftOvers::default(),
            of_waits: 0,
        }
    }

    /// Something is done about a step. Gives its span.
    pub(crate) fn began(&mut self, step: StepIx) -> Span {
        let Self { open, plan, journal, .. } = self;
        let open = open.entry(step).or_insert_with(|| {
            let step = &plan.steps[step];
            journal.append(Event::StepStarted(v1::StepStarted {
                step_id: step.id.clone(),
                component: step.component.name.clone(),
            }));
            Open { began: Instant::now(), span: tell::span_of(step), targets: Vec::new(), needs: Vec::new() }
        });
        open.span.clone()
    }

    /// Something was done about what a step needs.
    pub(crate) fn needed(&mut self, step: StepIx, needs: Needs) {
        self.opened(step).needs.extend(needs);
    }

    /// A unit waits for something. Beyond [`MOST_OF_WAITS`] nothing is told of it.
    pub(crate) fn waits(&mut self, step: StepIx, target: Target, waiting: &Waiting) {
        if self.of_waits > MOST_OF_WAITS {
            return;
        }
        let target = match named(&self.plan, target) {
            target_result::Target::Cluster(name) => step_progress::Target::Cluster(name),
            target_result::Target::AdapterAddress(address) => step_progress::Target::AdapterAddress(address),
        };
        let progress = v1::StepProgress {
            step_id: self.plan.steps[step].id.clone(),
            target: Some(target),
            waiting_for: repeated(&waiting.text),
            readiness: waiting.readiness.into(),
            attempts: waiting.attempts,
        };
        self.of_waits += progress.encoded_len();
        self.journal.append(Event::StepProgress(progress));
    }

    /// The run was stopped. The first who stops it counts.
    pub(crate) fn stopped(&mut self, by: v1::CancelledBy, reason: String) {
        tracing::info!(
            { attributes::RUN_ID } = self.identity.run_id,
            by = by.as_str_name(),
            reason,
            "stopping the run"
        );
        self.stopped.get_or_insert(Stopped { by, reason });
    }

    /// What is in flight is not waited for any longer.
    pub(crate) fn abandoned(&self) {
        tracing::warn!({ attributes::RUN_ID } = self.identity.run_id, "what is in flight is not waited for any longer");
    }

    /// A unit has ended; `unit` is none if it was never attempted.
    pub(crate) fn unit_ended(&mut self, step: StepIx, target: Target, outcome: UnitOutcome, unit: Option<UnitEnd>) {
        let mut result = v1::TargetResult {
            step_id: self.plan.steps[step].id.clone(),
            target: Some(named(&self.plan, target)),
            outcome: v1::Outcome::from(outcome).into(),
            ..Default::default()
        };
        let mut checked = Vec::new();
        match unit {
            None => result.error = self.stopped.as_ref().map(|stopped| failure(&stopped.failure())),
            Some(UnitEnd { sent, elapsed, warnings, checked: seen, last }) => {
                checked.extend(seen.into_iter().map(|seen| (seen.cluster, self.checked(&result.step_id, seen))));
                result.attempts = sent;
                result.elapsed = duration(elapsed);
                result.warnings = warnings;
                match last {
                    Some(Ok(done)) => self.succeeded(step, target, &mut result, done),
                    Some(Err(mut why)) => {
                        if let Some(stopped) = &self.stopped {
                            stopped.mark(&mut why);
                        }
                        if sent > 1 {
                            why.message.push_str(&format!("; given up after {sent} attempts in {elapsed:.1?}"));
                        }
                        result.error = Some(failure(&why));
                        // Its causes have been said; those who are withheld for it repeat less.
                        self.failures.entry(step).or_insert(Failure { causes: Vec::new(), ..why });
                    }
                    None => {}
                }
            }
        }
        let Self { open, plan, journal, identity, .. } = self;
        let open = open.get_mut(&step).expect("a step is open until it is settled");
        open.span.in_scope(|| tell::target(&identity.run_id, &plan.steps[step], &result));
        let own = match target {
            Target::Cluster(cluster) => Some(cluster),
            Target::Adapter(_) => None,
        };
        let checked = checked.into_iter().map(|(cluster, result)| (Some(cluster), result));
        for (at, result) in std::iter::once((own, result)).chain(checked) {
            // What would change, and what was changed, is said once, with the target (case 249).
            open.targets.push((at, v1::TargetResult { diff: Vec::new(), altered: Vec::new(), ..result.clone() }));
            journal.append(Event::TargetResult(result));
        }
    }

    /// Takes in what proves a unit's success.
    fn succeeded(&mut self, step: StepIx, target: Target, result: &mut v1::TargetResult, done: Done) {
        if let Some(object) = done.object.as_ref().filter(|object| !object.uid.is_empty()) {
            let first = *self.met.entry((target, object.uid.clone())).or_insert(step);
            if first != step {
                result.warnings.push(same_object(&self.plan.steps[first].component.name));
            }
        }
        result.change = done.change.into();
        result.object = done.object.map(object);
        result.diff_left_out = done.diff_left_out;
        result.diff = done.diff.into_iter().map(field_diff).collect();
        result.altered = done.altered.into_iter().map(field_diff).collect();
        result.evidence = done.evidence.into();
        result.shared_with = done.shared_with.map(String::from).unwrap_or_default();
        tell_readiness(result, done.readiness);
    }

    /// What a cluster was seen to hold after others did the work (D26).
    fn checked(&self, step_id: &str, seen: Checked) -> v1::TargetResult {
        let mut result = v1::TargetResult {
            step_id: step_id.to_owned(),
            target: Some(named(&self.plan, Target::Cluster(seen.cluster))),
            outcome: v1::Outcome::from(seen.outcome).into(),
            change: seen.change.unwrap_or_default().into(),
            error: seen.failure.as_ref().map(failure),
            object: seen.object.map(object),
            evidence: if seen.failure.is_none() { v1::Evidence::Read } else { v1::Evidence::Unspecified }.into(),
            ..Default::default()
        };
        tell_readiness(&mut result, seen.readiness);
        result
    }

    /// A step has ended; `would_be_withheld` is what a real run would have held it back for.
    pub(crate) fn step_ended(&mut self, ix: StepIx, ending: Ending, would_be_withheld: Option<Hold>) {
        let plan = self.plan.clone();
        let step = &plan.steps[ix];
        let outcome = v1::Outcome::from(ending);
        let mut result = v1::StepResult {
            step_id: step.id.clone(),
            component: Some(step.component.clone()),
            route: step.route().into(),
            outcome: outcome.into(),
            would_be_withheld: would_be_withheld.map(|hold| self.withheld(hold).0),
            ..Default::default()
        };
        let mut because = match ending {
            Ending::Succeeded => String::new(),
            Ending::Failed | Ending::Indeterminate => {
                self.failures.get(&ix).map(|failure| failure.message.clone()).unwrap_or_default()
            }
            Ending::Cancelled => self.stopped.as_ref().map(|stopped| stopped.failure().message).unwrap_or_default(),
            Ending::Withheld(hold) => {
                let (withheld, because) = self.withheld(hold);
                result.withheld = Some(withheld);
                because
            }
        };
        match self.open.remove(&ix) {
            Some(mut open) => {
                result.elapsed = duration(open.began.elapsed());
                // In the plan's order, not in that of arrival.
                open.targets.sort_by_key(|(at, _)| *at);
                result.targets = open.targets.into_iter().map(|(_, target)| target).collect();
                open.needs.sort_by_key(|need| need.cluster);
                result.prerequisites = open.needs.into_iter().map(|need| self.prerequisite(ix, need)).collect();
                if ending != Ending::Succeeded {
                    because.extend(result.prerequisites.iter().filter_map(missing));
                }
                tell::ended(&open.span, outcome, &because, &result.targets);
                if ending != Ending::Succeeded {
                    self.roots.keep(ix, &open.span);
                }
            }
            None => {
                result.elapsed = duration(Duration::ZERO);
                if ending == Ending::Cancelled {
                    result.error = self.stopped.as_ref().map(|stopped| failure(&stopped.failure()));
                }
                let root = match ending {
                    Ending::Withheld(Hold { root, .. }) => Some(root),
                    _ => None,
                };
                self.roots.not_attempted(step, outcome, &because, root);
            }
        }
        let path = if step.route() == v1::Route::Adapter { "adapter" } else { "direct" };
        metrics::step_ended(outcome_name(outcome), path);
        self.ended[ix] = Some(Ended {
            ending,
            because,
            fulfilled_by: summary::fulfilled_by(&plan, step, &result),
            prerequisites: result.prerequisites.clone(),
            targets_failed: summary::targets_failed(&result),
            readiness: summary::readiness(&result),
            warnings: result.targets.iter().map(|target| target.warnings.len()).sum(),
            at: self.began.elapsed(),
        });
        self.journal.append(Event::StepResult(result));
    }

    fn prerequisite(&self, step: StepIx, mut need: Need) -> v1::PrerequisiteResult {
        if let (Err(failed), Some(stopped)) = (&mut need.result, &self.stopped) {
            stopped.mark(&mut failed.failure);
        }
        prerequisite(&self.plan, step, &need)
    }

    fn withheld(&self, Hold { by, root }: Hold) -> (v1::Withheld, String) {
        let name = |ix: StepIx| {
            let step = &self.plan.steps[ix];
            (step.id.clone(), repeated(&step.component.name))
        };
        let ((step_id, component), (root_step_id, root_component)) = (name(by), name(root));
        let why = self.failures.get(&root);
        let text = why.map(|why| repeated(&why.message)).unwrap_or_default();
        let because = if by == root {
            format!("withheld: it depends on {component}, which did not succeed: {text}")
        } else {
            format!(
                "withheld: it depends on {component}, which was withheld because {root_component} did not succeed: {text}"
            )
        };
        let root_error = why.map(briefly);
        (v1::Withheld { step_id, component, root_step_id, root_component, root_error }, because)
    }

    /// The verdict on what has ended so far.
    pub(crate) fn verdict(&self) -> v1::Verdict {
        match summary::verdict(self.ended.iter().flatten().map(|ended| ended.ending)) {
            v1::Verdict::Succeeded if self.left_overs.failed > 0 => v1::Verdict::Partial,
            verdict => verdict,
        }
    }

    /// Tells what the plan no longer has.
    pub(crate) fn left_over(&mut self, left_overs: Vec<LeftOver>) {
        for LeftOver { cluster, object: left, component, fate } in left_overs {
            let mut told = v1::LeftOver {
                object: Some(object(left)),
                component_id: component,
                cluster: self.plan.clusters[cluster].clone(),
                ..Default::default()
            };
            self.left_overs.told += 1;
            match fate {
                Fate::Told => self.left_overs.left += 1,
                Fate::Gone(change) => {
                    told.outcome = v1::Outcome::Succeeded.into();
                    told.change = change.into();
                }
                Fate::Failed(outcome, why) => {
                    self.left_overs.left += 1;
                    self.left_overs.failed += 1;
                    told.outcome = outcome.into();
                    told.error = Some(failure(&why));
                }
            }
            self.journal.append(Event::LeftOver(told));
        }
    }

    /// How the run ends.
    pub(crate) fn ending(&self) -> RunEnding {
        RunEnding { verdict: self.verdict(), left: self.left_overs.left }
    }

    /// The run has ended: every step has. The summary is the last thing that is written.
    pub(crate) fn run_ended(self) -> Finished {
        let cancelled_by = self.stopped.as_ref().map_or(v1::CancelledBy::Unspecified, |stopped| stopped.by);
        let ended: Steps<_> = self.ended.into_iter().map(|ended| ended.expect("every step has ended")).collect();
        let Identity { run_id, trace_id } = &self.identity;
        let left_overs = &self.left_overs;
        let about = About { run_id, trace_id, elapsed: self.began.elapsed(), cancelled_by, left_overs };
        let messages = summary::summary(&self.plan, &ended, &about);
        let verdict = messages.last().map(v1::RunSummary::verdict).unwrap_or_default();
        for message in messages {
            self.journal.append(Event::Summary(message));
        }
        let counts = Counts::of(ended.iter().map(|ended| ended.ending));
        Finished { verdict, counts, cancelled_by, elapsed: about.elapsed }
    }

    fn opened(&mut self, step: StepIx) -> &mut Open {
        self.open.get_mut(&step).expect("a step is open while it is worked on")
    }
}

fn tell_readiness(target: &mut v1::TargetResult, ready: Option<Ready>) {
    if let Some(Ready { readiness, note }) = ready {
        target.readiness = readiness.into();
        target.warnings.extend(note);
    }
}
