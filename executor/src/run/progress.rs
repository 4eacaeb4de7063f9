//! What is told of a run while something is waited for.

use prost::Message;
use switchyard_proto::v1::{self, execute_response::Event as Entry, step_progress, target_result};
use tokio::time::{Duration, Instant, Interval, MissedTickBehavior, interval_at};

use super::{Driver, Open, Unit};
use crate::{
    fulfil::{Fulfil, Ready},
    plan::Work,
    report,
    schedule::{Lane, StepIx},
};

/// How often it is looked what is waited for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a wait is before it is told of, and again.
const TOLD_EVERY: Duration = Duration::from_secs(5);
/// How many waits are told of at one look.
const AT_ONCE: usize = 20;
/// How many bytes of a run's events may tell of waits.
const MOST: usize = 4 * 1024 * 1024;

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
type At = (Instant, StepIx, Lane);

impl<F: Fulfil> Driver<F> {
    /// Notes what a unit does. One that has come to its end does nothing any more.
    pub(super) fn enter(&mut self, step: StepIx, lane: Lane, phase: Phase) {
        if let Some(unit) = self.open.get_mut(&step).and_then(|open| open.unit(lane)) {
            unit.wait.phase = phase;
        }
    }

    /// Tells of what has been waited for long enough.
    pub(super) fn tell_progress(&mut self) {
        let now = Instant::now();
        let mut due: Vec<At> = Vec::new();
        for (step, open) in &self.open {
            let waits = open.units.iter().map(|(lane, unit)| (lane, &unit.wait));
            let waits = waits.chain(open.preparing.iter().map(|(lane, wait)| (lane, wait)));
            let waits = waits.filter(|(_, wait)| wait.told + TOLD_EVERY <= now);
            due.extend(waits.map(|(lane, wait)| (wait.told, *step, *lane)));
        }
        due.sort_unstable();
        due.truncate(AT_ONCE);
        for (_, step, lane) in due {
            if self.told_of_waits > MOST {
                return;
            }
            let Some(progress) = self.progress(step, lane, now) else { continue };
            self.told_of_waits += progress.encoded_len();
            self.journal.append(Entry::StepProgress(progress));
        }
    }

    fn progress(&mut self, ix: StepIx, lane: Lane, now: Instant) -> Option<v1::StepProgress> {
        let plan = self.plan.clone();
        let step = &plan.steps[ix.0 as usize];
        let open = self.open.get_mut(&ix)?;
        let (waiting_for, readiness, attempts) = match wait_in(open, lane) {
            Found::Unit(unit) => {
                unit.wait.told = now;
                let (text, readiness) = self::waiting_for(&plan, &step.work, lane, unit);
                (text, readiness, unit.wait.attempts)
            }
            Found::Preparing(wait) => {
                wait.told = now;
                let url = step.chart.as_ref().map(|chart| report::chart(chart).url).unwrap_or_default();
                (format!("what it needs: {url}"), v1::Readiness::Unspecified, 0)
            }
            Found::Nothing => return None,
        };
        let target = match plan.target(lane) {
            target_result::Target::Cluster(name) => step_progress::Target::Cluster(name),
            target_result::Target::AdapterAddress(address) => step_progress::Target::AdapterAddress(address),
        };
        Some(v1::StepProgress {
            step_id: step.id.clone(),
            target: Some(target),
            waiting_for: report::repeated(&waiting_for),
            readiness: readiness.into(),
            attempts,
        })
    }
}

enum Found<'a> {
    Unit(&'a mut Unit),
    Preparing(&'a mut Wait),
    Nothing,
}

fn wait_in(open: &mut Open, lane: Lane) -> Found<'_> {
    let Open { units, preparing, .. } = open;
    if let Some((_, unit)) = units.iter_mut().find(|(known, _)| *known == lane) {
        return Found::Unit(unit);
    }
    match preparing.iter_mut().find(|(known, _)| *known == lane) {
        Some((_, wait)) => Found::Preparing(wait),
        None => Found::Nothing,
    }
}

/// What a unit waits for, in words.
fn waiting_for(plan: &crate::plan::Plan, work: &Work, lane: Lane, unit: &Unit) -> (String, v1::Readiness) {
    let unknown = v1::Readiness::Unspecified;
    match &unit.wait.phase {
        Phase::Asked => match plan.target(lane) {
            target_result::Target::Cluster(name) => (format!("an answer of cluster {name}"), unknown),
            target_result::Target::AdapterAddress(address) => {
                (format!("an answer of the adapter at {address}"), unknown)
            }
        },
        Phase::Paused => {
            let why = unit.last.as_ref().and_then(|last| last.as_ref().err()).map(|failure| failure.message.as_str());
            (format!("the time to try again: {}", why.unwrap_or_default()), unknown)
        }
        Phase::Told(Ready { readiness, note }) => (note.clone().unwrap_or_default(), *readiness),
        Phase::Written if plan.operation == v1::Operation::Undeploy => ("the object to be gone".into(), unknown),
        Phase::Written => match work {
            Work::Direct(direct) if direct.head.is_definition() => ("the kind to be served".into(), unknown),
            Work::Direct(_) | Work::Adapter(_) => ("the object to be ready".into(), v1::Readiness::Progressing),
        },
    }
}
