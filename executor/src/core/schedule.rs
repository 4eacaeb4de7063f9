//! Which step may start, is withheld, is done: the state machine at the centre of a run.
//!
//! Pure: no async, no I/O, no clock. The driver (`run`) performs the commands and turns what happens into the next event;
//! it decides nothing, and nothing here performs anything.
//!
//! A step has one *unit* a target. A target's *lane* is its bound of writes in flight, and what waits for a place there.
//! Declared dependencies hold between steps, because a step that fails on one cluster has failed (S7, S14). Order that
//! nobody declared holds between units, so clusters do not wait for one another (D6). Among units that may start, the one
//! with the longest chain behind it goes first, because that chain bounds the length of the run.
//!
//! A unit of a step that needs something is *prepared* before it is ready: when nothing holds it back any more, whatever it
//! needs is seen to, outside of its lane's bound and of the step's time. How that ended is no matter of the schedule (S13).
//!
//! A rehearsal withholds nothing: it tries what comes behind a failing step too, after it, and says what the failure would
//! have held back (D20).

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

use crate::core::target::{StepIx, Steps, Target, Targets};

/// The kind of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// What depends on a step that did not succeed is withheld.
    CarryOut,
    /// Nothing is withheld (D20).
    Rehearse,
}

/// One step of one plan, as far as order is concerned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    /// Where the step is carried out; at least one, no repeats.
    pub(crate) targets: Vec<Target>,
    /// Steps that must succeed first; each comes earlier in the plan.
    pub(crate) depends_on: Vec<StepIx>,
    /// Steps that must end first, whatever their outcome; each comes earlier in the plan.
    pub(crate) runs_after: Vec<StepIx>,
    /// Whether the step needs something that is seen to before each of its units starts.
    pub(crate) is_prepared: bool,
}

/// What happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The run begins. First, once.
    Begin,
    /// A preparation ended, well or badly.
    Prepared { step: StepIx, target: Target },
    /// An attempt no longer holds its place among the writes in flight, though it goes on (it waits for something).
    Written { step: StepIx, target: Target },
    /// An attempt ended.
    Ended { step: StepIx, target: Target, end: End },
    /// A pause is over.
    Woken { step: StepIx, target: Target },
    /// The in-flight bound of a target changed. At least one is always permitted.
    Limit { target: Target, limit: usize },
    /// No new attempt may start. Attempts in flight end and count; preparations are to be cut short.
    Cancel,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Succeeded,
    Failed,
    /// Nobody can tell.
    Indeterminate,
    /// Not done, and worth another try.
    Again {
        /// What the server asked for; without it the pause grows with the attempts.
        after: Option<Duration>,
        patience: Patience,
        /// Whether this attempt may have been carried out though its answer was lost.
        lost: bool,
    },
}

/// How long something is worth trying again. Counted over the attempts in a row that ended the same way: trouble of one kind
/// does not use up what another kind deserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// Counted from the start of the first of these attempts.
    pub(crate) budget: Duration,
    /// Attempts, the first included.
    pub(crate) tries: u32,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// See to what the unit needs. Once a unit, before its first attempt.
    Prepare { step: StepIx, target: Target },
    /// Begin an attempt. It should have its answer by `answer_by`, which leaves time to find out what became of an answer
    /// that was lost, if there is any; `deadline` is the end of the step's time on this target.
    Start { step: StepIx, target: Target, attempt: u32, answer_by: Instant, deadline: Instant },
    /// Wake the unit at `until`.
    Pause { step: StepIx, target: Target, until: Instant },
    /// The unit has come to its end: report it.
    Conclude { step: StepIx, target: Target, outcome: UnitOutcome },
    /// The step has come to its end: report it. Once a step. `would_be_withheld` is for rehearsals: what would have held the
    /// step back.
    Settle { step: StepIx, ending: Ending, would_be_withheld: Option<Hold> },
    /// Every step has been settled. Once, last.
    Finish,
}

/// How a unit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnitOutcome {
    Succeeded,
    /// Never attempted, because the run was stopped.
    Cancelled,
    Indeterminate,
    Failed,
}

/// How a step ended (D8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Succeeded,
    Failed,
    Indeterminate,
    /// Not attempted (S11).
    Withheld(Hold),
    Cancelled,
}

/// What holds a step back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The direct dependency that did not succeed.
    pub(crate) by: StepIx,
    /// The step at the start of the chain.
    pub(crate) root: StepIx,
}

/// How a step that comes before another one has come out on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It succeeded, or is none of this target's.
    Sound,
    Failed,
    /// It was not attempted, or nobody can tell.
    Missing,
}

impl From<UnitOutcome> for Ending {
    /// Of the worst of a step's units.
    fn from(worst: UnitOutcome) -> Self {
        match worst {
            UnitOutcome::Succeeded => Self::Succeeded,
            UnitOutcome::Cancelled => Self::Cancelled,
            UnitOutcome::Indeterminate => Self::Indeterminate,
            UnitOutcome::Failed => Self::Failed,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnitState {
    Blocked,
    Preparing,
    Ready,
    Running {
        in_flight: bool,
    },
    Pausing,
    /// With an outcome, unless the step was not attempted.
    Ended(Option<UnitOutcome>),
}

#[derive(Debug)]
struct Unit {
    step: StepIx,
    target: Target,
    state: UnitState,
    /// Units that must end before this one may start.
    waits: u32,
    attempts: u32,
    first_started: Option<Instant>,
    last_started: Option<Instant>,
    /// The last attempts, as far as they ended the same way.
    row: Option<Row>,
    lost: bool,
    /// Units that wait for this one.
    followers: Vec<u32>,
}

/// Attempts in a row that ended the same way.
#[derive(Clone, Copy, Debug)]
struct Row {
    patience: Patience,
    /// When the first of them started.
    since: Instant,
    tries: u32,
}

#[derive(Debug)]
struct Step {
    units: std::ops::Range<u32>,
    /// Dependencies that have not succeeded yet. None in a rehearsal.
    waits: u32,
    /// In a rehearsal: dependencies, in the plan's order, and how many of them have not been settled yet. Only then is it known
    /// what would have held the step back.
    depends_on: Box<[StepIx]>,
    unsettled: u32,
    would_be_withheld: Option<Hold>,
    /// Units that have not ended yet.
    open: u32,
    is_prepared: bool,
    worst: UnitOutcome,
    ending: Option<Ending>,
    /// Steps that depend on this one.
    dependents: Vec<StepIx>,
    /// Length of the longest chain behind this step.
    height: u32,
}

#[derive(Debug)]
struct Lane {
    limit: usize,
    /// How long a unit may take from its first start to its end.
    timeout: Duration,
    in_flight: usize,
    /// Those that were tried before come first, so that none is given up behind others while its time goes by; then those with the
    /// longest chain behind them.
    ready: BinaryHeap<(bool, u32, Reverse<u32>)>,
}

/// A run, as far as order and outcomes are concerned.
#[derive(Debug)]
pub(crate) struct Schedule {
    mode: Mode,
    steps: Steps<Step>,
    targets: Box<[Target]>,
    units: Vec<Unit>,
    lanes: Targets<Lane>,
    unsettled: usize,
    cancelled: bool,
    finished: bool,
}

impl Schedule {
    /// A schedule of `nodes` in an order that respects their edges. `lanes` says of each target how many writes may be in flight,
    /// and how long a unit may take from its first start to its end.
    pub(crate) fn new(mode: Mode, nodes: &[Node], lanes: &Targets<(usize, Duration)>) -> Self {
        let mut units = Vec::with_capacity(nodes.iter().map(|node| node.targets.len()).sum());
        let mut steps: Steps<Step> = Steps::with_capacity(nodes.len());
        for node in nodes {
            let step = steps.next_key();
            let first = units.len() as u32;
            for &target in &node.targets {
                units.push(Unit {
                    step,
                    target,
                    state: UnitState::Blocked,
                    waits: 0,
                    attempts: 0,
                    first_started: None,
                    last_started: None,
                    row: None,
                    lost: false,
                    followers: Vec::new(),
                });
            }
            let range = first..units.len() as u32;
            let (waits, rehearsed) = match mode {
                Mode::CarryOut => (node.depends_on.len(), &[][..]),
                Mode::Rehearse => (0, &node.depends_on[..]),
            };
            for &earlier in rehearsed.iter().chain(&node.runs_after) {
                debug_assert!(earlier < step, "steps come in an order that respects their edges");
                Self::follow(&mut units, steps[earlier].units.clone(), range.clone());
            }
            for &earlier in &node.depends_on {
                debug_assert!(earlier < step, "steps come in an order that respects their edges");
                steps[earlier].dependents.push(step);
            }
            steps.push(Step {
                open: range.len() as u32,
                units: range,
                waits: waits as u32,
                depends_on: rehearsed.into(),
                unsettled: rehearsed.len() as u32,
                would_be_withheld: None,
                is_prepared: node.is_prepared,
                worst: UnitOutcome::Succeeded,
                ending: None,
                dependents: Vec::new(),
                height: 0,
            });
        }
        for (ix, node) in nodes.iter().enumerate().rev() {
            let height = steps[StepIx::from(ix)].height + 1;
            for earlier in node.depends_on.iter().chain(&node.runs_after) {
                let earlier = &mut steps[*earlier];
                earlier.height = earlier.height.max(height);
            }
        }
        let lanes = lanes.map(|&(limit, timeout)| Lane {
            limit: limit.max(1),
            timeout,
            in_flight: 0,
            ready: BinaryHeap::new(),
        });
        Self {
            mode,
            targets: lanes.keys().collect(),
            unsettled: steps.len(),
            steps,
            units,
            lanes,
            cancelled: false,
            finished: false,
        }
    }

    /// Makes the later units wait for the earlier ones: target by target where both have the target, else for all of them.
    fn follow(units: &mut [Unit], earlier: std::ops::Range<u32>, later: std::ops::Range<u32>) {
        for follower in later {
            let target = units[follower as usize].target;
            let same = earlier.clone().find(|&unit| units[unit as usize].target == target);
            let awaited = same.map_or(earlier.clone(), |unit| unit..unit + 1);
            for unit in awaited {
                units[unit as usize].followers.push(follower);
                units[follower as usize].waits += 1;
            }
        }
    }

    /// Takes in what happened at `now` and answers what is to be done.
    #[must_use]
    pub(crate) fn handle(&mut self, event: Event, now: Instant) -> Vec<Command> {
        let mut commands = Vec::new();
        match event {
            Event::Begin => {
                for unit in 0..self.units.len() as u32 {
                    self.make_ready(unit, &mut commands);
                }
            }
            Event::Prepared { step, target } => {
                let unit = self.unit(step, target);
                self.prepared(unit, &mut commands);
            }
            Event::Written { step, target } => {
                let unit = self.unit(step, target);
                self.leave_flight(unit);
            }
            Event::Ended { step, target, end } => {
                let unit = self.unit(step, target);
                self.ended(unit, end, now, &mut commands);
            }
            Event::Woken { step, target } => {
                let unit = self.unit(step, target);
                if self.units[unit as usize].state == UnitState::Pausing {
                    self.enqueue(unit);
                }
            }
            Event::Limit { target, limit } => self.lanes[target].limit = limit.max(1),
            Event::Cancel => self.cancel(&mut commands),
        }
        self.dispatch(now, &mut commands);
        if self.unsettled == 0 && !self.finished {
            self.finished = true;
            commands.push(Command::Finish);
        }
        commands
    }

    /// How much may be in flight on the target.
    pub(crate) fn limit(&self, target: Target) -> usize {
        self.lanes[target].limit
    }

    /// Whether anything is in flight on the target. Nothing waits for its place otherwise.
    pub(crate) fn is_busy(&self, target: Target) -> bool {
        self.lanes[target].in_flight > 0
    }

    /// Whether as much is in flight on the target as is permitted.
    pub(crate) fn is_full(&self, target: Target) -> bool {
        let lane = &self.lanes[target];
        lane.in_flight >= lane.limit
    }

    /// How a step, which comes before one that has a unit on the target, has come out there.
    pub(crate) fn standing(&self, step: StepIx, target: Target) -> Standing {
        let Step { units, ending, .. } = &self.steps[step];
        let outcome = units.clone().find_map(|unit| match &self.units[unit as usize] {
            Unit { target: at, state: UnitState::Ended(Some(outcome)), .. } if *at == target => Some(*outcome),
            _ => None,
        });
        match (outcome, ending) {
            (Some(UnitOutcome::Succeeded), _) => Standing::Sound,
            (Some(UnitOutcome::Failed), _) => Standing::Failed,
            (Some(UnitOutcome::Indeterminate | UnitOutcome::Cancelled), _) => Standing::Missing,
            (None, Some(Ending::Withheld(_) | Ending::Cancelled)) => Standing::Missing,
            (None, _) => Standing::Sound,
        }
    }

    fn unit(&self, step: StepIx, target: Target) -> u32 {
        self.steps[step]
            .units
            .clone()
            .find(|&unit| self.units[unit as usize].target == target)
            .expect("the driver names only units that were started")
    }

    fn make_ready(&mut self, unit: u32, commands: &mut Vec<Command>) {
        let state = &mut self.units[unit as usize];
        let step = &self.steps[state.step];
        if state.state != UnitState::Blocked || state.waits > 0 || step.waits > 0 || step.ending.is_some() {
            return;
        }
        if step.is_prepared && !self.cancelled {
            state.state = UnitState::Preparing;
            commands.push(Command::Prepare { step: state.step, target: state.target });
        } else {
            self.enqueue(unit);
        }
    }

    fn prepared(&mut self, unit: u32, commands: &mut Vec<Command>) {
        if self.units[unit as usize].state != UnitState::Preparing {
            return;
        }
        if self.cancelled {
            self.conclude(unit, UnitOutcome::Cancelled, commands);
        } else {
            self.enqueue(unit);
        }
    }

    fn enqueue(&mut self, unit: u32) {
        let state = &mut self.units[unit as usize];
        state.state = UnitState::Ready;
        let height = self.steps[state.step].height;
        self.lanes[state.target].ready.push((state.attempts > 0, height, Reverse(unit)));
    }

    fn dispatch(&mut self, now: Instant, commands: &mut Vec<Command>) {
        // Giving up on a unit may make others ready, also of targets that were looked at before.
        while !self.cancelled && self.start_what_may(now, commands) {}
    }

    /// Starts what may start, and says whether it gave a unit up.
    fn start_what_may(&mut self, now: Instant, commands: &mut Vec<Command>) -> bool {
        let mut gave_up = false;
        for at in 0..self.targets.len() {
            let target = self.targets[at];
            loop {
                let lane = &mut self.lanes[target];
                if lane.in_flight >= lane.limit {
                    break;
                }
                let Some((_, _, Reverse(unit))) = lane.ready.pop() else { break };
                let state = &mut self.units[unit as usize];
                if state.state != UnitState::Ready {
                    continue;
                }
                let deadline = *state.first_started.get_or_insert(now) + lane.timeout;
                let left = deadline.saturating_duration_since(now);
                let shortest = shortest_attempt(lane.timeout);
                if state.attempts > 0 && left < shortest {
                    // Its time went by while it waited for its place.
                    let outcome = state.given_up();
                    self.conclude(unit, outcome, commands);
                    gave_up = true;
                    continue;
                }
                state.state = UnitState::Running { in_flight: true };
                state.attempts += 1;
                state.last_started = Some(now);
                lane.in_flight += 1;
                commands.push(Command::Start {
                    step: state.step,
                    target,
                    attempt: state.attempts,
                    answer_by: now + if left / 2 < shortest { left } else { left / 2 },
                    deadline,
                });
            }
        }
        gave_up
    }

    fn leave_flight(&mut self, unit: u32) {
        let state = &mut self.units[unit as usize];
        if state.state == (UnitState::Running { in_flight: true }) {
            state.state = UnitState::Running { in_flight: false };
            self.lanes[state.target].in_flight -= 1;
        }
    }

    fn ended(&mut self, unit: u32, end: End, now: Instant, commands: &mut Vec<Command>) {
        self.leave_flight(unit);
        let state = &mut self.units[unit as usize];
        if !matches!(state.state, UnitState::Running { .. }) {
            return;
        }
        let outcome = match end {
            End::Succeeded => UnitOutcome::Succeeded,
            End::Failed => UnitOutcome::Failed,
            End::Indeterminate => UnitOutcome::Indeterminate,
            End::Again { after, patience, lost } => {
                state.lost |= lost;
                let timeout = self.lanes[state.target].timeout;
                let first = state.first_started.expect("a unit that ran has started");
                let row = state.count(patience);
                let latest = (row.since + patience.budget).min(first + timeout - shortest_attempt(timeout));
                let until = match after {
                    Some(asked) => Some(now + asked),
                    // The last try comes when patience ends, and not as long before that as the last pause would be.
                    None => (now < latest).then(|| (now + backoff(state.step, state.attempts)).min(latest)),
                };
                let until = until.filter(|until| *until <= latest && row.tries < patience.tries);
                if let Some(until) = until.filter(|_| !self.cancelled) {
                    state.state = UnitState::Pausing;
                    commands.push(Command::Pause { step: state.step, target: state.target, until });
                    return;
                }
                state.given_up()
            }
        };
        self.conclude(unit, outcome, commands);
    }

    fn conclude(&mut self, unit: u32, outcome: UnitOutcome, commands: &mut Vec<Command>) {
        let state = &mut self.units[unit as usize];
        state.state = UnitState::Ended(Some(outcome));
        let ix = state.step;
        commands.push(Command::Conclude { step: ix, target: state.target, outcome });
        let step = &mut self.steps[ix];
        let first_failure = step.worst == UnitOutcome::Succeeded && outcome != UnitOutcome::Succeeded;
        step.worst = step.worst.max(outcome);
        step.open -= 1;
        let open = step.open;
        if open == 0 && step.unsettled == 0 {
            let ending = step.worst.into();
            self.settle(ix, ending, commands);
        }
        self.release(unit, commands);
        if self.mode == Mode::Rehearse {
            return;
        }
        if first_failure && outcome != UnitOutcome::Cancelled {
            // Whatever the other clusters say, this step has not succeeded: what depends on it need not wait to hear it.
            self.withhold_dependents(ix, commands);
        } else if open == 0 && self.steps[ix].ending == Some(Ending::Succeeded) {
            for dependent in std::mem::take(&mut self.steps[ix].dependents) {
                let step = &mut self.steps[dependent];
                step.waits -= 1;
                if step.waits == 0 {
                    for unit in step.units.clone() {
                        self.make_ready(unit, commands);
                    }
                }
            }
        }
    }

    fn settle(&mut self, ix: StepIx, ending: Ending, commands: &mut Vec<Command>) {
        if self.mode == Mode::Rehearse {
            return self.settle_rehearsed(ix, ending, commands);
        }
        self.steps[ix].ending = Some(ending);
        self.unsettled -= 1;
        commands.push(Command::Settle { step: ix, ending, would_be_withheld: None });
    }

    /// Says what would have held a step back, and settles those that had to wait for that with their own end.
    fn settle_rehearsed(&mut self, ix: StepIx, ending: Ending, commands: &mut Vec<Command>) {
        let mut settling = vec![(ix, ending)];
        while let Some((ix, ending)) = settling.pop() {
            let would_be_withheld = self.would_be_withheld(ix);
            let step = &mut self.steps[ix];
            step.ending = Some(ending);
            step.would_be_withheld = would_be_withheld;
            self.unsettled -= 1;
            commands.push(Command::Settle { step: ix, ending, would_be_withheld });
            for dependent in std::mem::take(&mut step.dependents) {
                let step = &mut self.steps[dependent];
                step.unsettled -= 1;
                if step.unsettled == 0 && step.open == 0 && step.ending.is_none() {
                    settling.push((dependent, step.worst.into()));
                }
            }
        }
    }

    /// In a rehearsal: which dependency would hold the step back, and which failure would.
    fn would_be_withheld(&self, ix: StepIx) -> Option<Hold> {
        self.steps[ix].depends_on.iter().find_map(|&by| {
            let Step { would_be_withheld, worst, .. } = &self.steps[by];
            let root = would_be_withheld.map(|hold| hold.root);
            root.or((*worst == UnitOutcome::Failed).then_some(by)).map(|root| Hold { by, root })
        })
    }

    fn release(&mut self, unit: u32, commands: &mut Vec<Command>) {
        for follower in std::mem::take(&mut self.units[unit as usize].followers) {
            self.units[follower as usize].waits -= 1;
            self.make_ready(follower, commands);
        }
    }

    fn withhold_dependents(&mut self, failed: StepIx, commands: &mut Vec<Command>) {
        let mut chain = vec![failed];
        while let Some(by) = chain.pop() {
            let root = match self.steps[by].ending {
                Some(Ending::Withheld(Hold { root, .. })) => root,
                _ => by,
            };
            for dependent in std::mem::take(&mut self.steps[by].dependents) {
                if self.steps[dependent].ending.is_none() {
                    self.settle(dependent, Ending::Withheld(Hold { by, root }), commands);
                    self.end_units(dependent, commands);
                    chain.push(dependent);
                }
            }
        }
    }

    /// Ends the units of a step that is not attempted; what merely runs after it may go on.
    fn end_units(&mut self, ix: StepIx, commands: &mut Vec<Command>) {
        for unit in self.steps[ix].units.clone() {
            self.units[unit as usize].state = UnitState::Ended(None);
            self.release(unit, commands);
        }
    }

    fn cancel(&mut self, commands: &mut Vec<Command>) {
        if std::mem::replace(&mut self.cancelled, true) {
            return;
        }
        for ix in self.steps.keys() {
            if self.steps[ix].ending.is_some() {
                continue;
            }
            let units = self.steps[ix].units.clone();
            let is_begun = |unit: &Unit| unit.attempts > 0 || unit.state == UnitState::Preparing;
            if !units.clone().any(|unit| is_begun(&self.units[unit as usize])) {
                self.settle(ix, Ending::Cancelled, commands);
                self.end_units(ix, commands);
                continue;
            }
            for unit in units {
                match self.units[unit as usize].state {
                    UnitState::Blocked | UnitState::Ready if self.units[unit as usize].attempts == 0 => {
                        self.conclude(unit, UnitOutcome::Cancelled, commands);
                    }
                    UnitState::Pausing | UnitState::Ready => {
                        let outcome = self.units[unit as usize].given_up();
                        self.conclude(unit, outcome, commands);
                    }
                    // A preparation is cut short by the driver; the unit ends when that is over.
                    UnitState::Blocked | UnitState::Preparing | UnitState::Running { .. } | UnitState::Ended(_) => {}
                }
            }
        }
    }
}

impl Unit {
    /// Counts an attempt that ended in a way which deserves this patience.
    fn count(&mut self, patience: Patience) -> Row {
        let since = self.last_started.expect("a unit that ran has started");
        let row = match self.row {
            Some(row) if row.patience == patience => Row { tries: row.tries + 1, ..row },
            _ => Row { patience, since, tries: 1 },
        };
        *self.row.insert(row)
    }

    /// What a unit comes to that is not tried again: an attempt whose answer was lost may have been carried out (D8).
    fn given_up(&self) -> UnitOutcome {
        if self.lost { UnitOutcome::Indeterminate } else { UnitOutcome::Failed }
    }
}

/// What an attempt needs to be worth beginning, of the time that a step has on a target: one that is cut short at once would only
/// make a failure that is known into one that is not.
fn shortest_attempt(timeout: Duration) -> Duration {
    timeout / 8
}

/// The pause before the next attempt: 100 ms that double up to 5 s, spread by up to a quarter so that steps which were
/// refused together do not come back together. The spread depends on the step alone, so that a run can be repeated.
fn backoff(step: StepIx, attempts: u32) -> Duration {
    let base = Duration::from_millis(100 << attempts.saturating_sub(1).min(6)).min(Duration::from_secs(5));
    let spread =
        (usize::from(step) as u32).wrapping_mul(2_654_435_761).wrapping_add(attempts.wrapping_mul(40_503)) >> 24;
    base + base * spread / 1024
}

#[cfg(test)]
mod load;
#[cfg(test)]
mod tests;
