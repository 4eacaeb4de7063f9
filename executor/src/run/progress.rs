//! What is told of a run while something is waited for.

use switchyard_proto::v1;
use tokio::time::{Duration, Instant, Interval, MissedTickBehavior, interval_at};

use super::{Driver, Unit};
use crate::{
    core::{
        plan::{Plan, Work},
        target::{StepIx, Target},
    },
    fulfil::{Fulfil, Ready},
    report::Waiting,
};

/// How often it is looked what is waited for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a wait is before it is told of, and again.
const TOLD_EVERY: Duration = Duration::from_secs(5);
/// How many waits are told of at one look.
const AT_ONCE: usize = 20;
/// When to look.
pub(super) fn looks() -> Interval {
    let mut looks = interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// What a unit does at the moment.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// An attempt was made and not answered.
    Asked,
    /// The write is done, and what comes of it is waited for.
    Written,
    /// The same, and how far that is.
    Told(Ready),
    /// The next attempt comes later.
    Paused,
}

/// A wait, and when it was told of.
pub(super) struct Wait {
    phase: Phase,
    attempts: u32,
    told: Instant,
}

impl Wait {
    pub(super) fn new(began: Instant) -> Self {
        Self { phase: Phase::Asked, attempts: 0, told: began }
    }

    /// An attempt begins.
    pub(super) fn attempt(&mut self, number: u32) {
        self.phase = Phase::Asked;
        self.attempts = number;
    }
}

/// One wait of a run.
type At = (Instant, StepIx, Target);

impl<F: Fulfil> Driver<F> {
    /// Notes what a unit does. One that has come to its end does nothing any more.
    pub(super) fn enter(&mut self, step: StepIx, target: Target, phase: Phase) {
        if let Some(unit) = self.units.get_mut(&(step, target)) {
            unit.wait.phase = phase;
        }
    }

    /// Tells of what has been waited for long enough.
    pub(super) fn tell_progress(&mut self) {
        let now = Instant::now();
        let waits = self.units.iter().map(|(at, unit)| (at, &unit.wait)).chain(&self.preparing);
        let due = waits.filter(|(_, wait)| wait.told + TOLD_EVERY <= now);
        let mut due: Vec<At> = due.map(|(&(step, target), wait)| (wait.told, step, target)).collect();
        due.sort_unstable();
        due.truncate(AT_ONCE);
        for (_, step, target) in due {
            let waiting = if let Some(unit) = self.units.get_mut(&(step, target)) {
                unit.wait.told = now;
                let (text, readiness) = waiting_for(&self.plan, step, target, unit);
                Waiting { text, readiness, attempts: unit.wait.attempts }
            } else if let Some(wait) = self.preparing.get_mut(&(step, target)) {
                wait.told = now;
                let chart = self.plan.steps[step].chart.as_ref();
                let url = chart.map(|chart| switchyard_proto::presentable(&chart.url)).unwrap_or_default();
                let text = format!("what it needs: {url}");
                Waiting { text, readiness: v1::Readiness::Unspecified, attempts: 0 }
            } else {
                continue;
            };
            self.account.waits(step, target, &waiting);
        }
    }
}

/// What a unit waits for, in words.
fn waiting_for(plan: &Plan, step: StepIx, target: Target, unit: &Unit) -> (String, v1::Readiness) {
    let unknown = v1::Readiness::Unspecified;
    match &unit.wait.phase {
        Phase::Asked => (format!("an answer of {}", plan.describe(target)), unknown),
        Phase::Paused => {
            let why = unit.last.as_ref().and_then(|last| last.as_ref().err()).map(|failure| failure.message.as_str());
            (format!("the time to try again: {}", why.unwrap_or_default()), unknown)
        }
        Phase::Told(Ready { readiness, note }) => (note.clone().unwrap_or_default(), *readiness),
        Phase::Written if plan.operation == v1::Operation::Undeploy => ("the object to be gone".into(), unknown),
        Phase::Written => match &plan.steps[step].work {
            Work::Direct(direct) if direct.head.is_definition() => ("the kind to be served".into(), unknown),
            Work::Direct(_) | Work::Adapter(_) => ("the object to be ready".into(), v1::Readiness::Progressing),
        },
    }
}
