//! The driver: one loop that owns the schedule, the work in flight and the timers of one run.
//!
//! It performs what the schedule commands, turns what happens into the schedule's next event, and gives an account of it. It
//! decides nothing. It never waits for a reader.

mod cut_short;
mod progress;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    convert::Infallible,
    future::Future,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::Arc,
    task::Poll,
};

use futures::{FutureExt, StreamExt};
use switchyard_proto::v1;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::{
    cut_short::CutShort,
    progress::{Phase, Wait},
};
use crate::{
    answers::{
        classify::Verdict,
        failure::{Failure, Reason},
    },
    core::{
        limit::{Answer, Limit},
        plan::Plan,
        schedule::{Command, End, Event, Node, Schedule, Standing, UnitOutcome},
        target::{Clusters, StepIx, Target, Targets},
    },
    fulfil::{Attempt, Checked, Done, Fulfil, Need, Needs, Order, Progress, Sign},
    journal::Journal,
    metrics,
    report::{Account, Finished, Identity, RunEnding, UnitEnd},
    together::Together,
};

/// How many signs of work in flight may wait for the driver. One that finds no room is lost, which harms nobody.
const SIGNS: usize = 1024;

/// What reaches a run from outside.
#[derive(Debug)]
pub(crate) enum Control {
    /// Start nothing more.
    Cancel { by: v1::CancelledBy, reason: String },
    /// Wait for nothing more: what is in flight ends as what nobody can tell.
    Abandon,
}

/// Runs `plan` to its end and writes every event, the summary last, to `journal`. `before_summary` is told how that ends and waited
/// for when all work is done: whoever reads the summary may rely on it.
pub(crate) async fn run<F: Fulfil>(
    plan: Arc<Plan>,
    fulfil: Arc<F>,
    limits: Clusters<Limit>,
    identity: Identity,
    journal: Arc<Journal>,
    mut controls: mpsc::Receiver<Control>,
    before_summary: impl AsyncFnOnce(RunEnding),
) -> Finished {
    let (signs, mut signed) = mpsc::channel(SIGNS);
    let account = Account::new(plan.clone(), identity, journal.clone());
    let mut driver = Driver::new(plan, fulfil, limits, account, signs);
    driver.feed(Event::Begin);
    let mut telling = pin!(tell(&journal));
    let mut looks = progress::looks();
    while !driver.finished {
        let event = tokio::select! {
            // A cancel must not wait behind a flood of results.
            biased;
            Some(control) = controls.recv() => Some(driver.control(control)),
            Some(sign) = signed.recv() => driver.sign(sign),
            Some(worked) = driver.at_work.next() => Some(driver.worked(worked)),
            () = sleep_until(driver.timers.peek()) => Some(driver.woken()),
            _ = looks.tick() => {
                driver.tell_progress();
                None
            }
            // Nothing is ready: the moment to tell what has happened.
            never = &mut telling => match never {},
        };
        if let Some(event) = event {
            driver.feed(event);
        }
    }
    journal.tell();
    let sought = driver.fulfil.clone().left_overs(driver.account.verdict(), driver.stop.clone());
    let mut sought = pin!(sought);
    let left_overs = loop {
        tokio::select! {
            biased;
            Some(control) = controls.recv() => {
                driver.control(control);
            }
            left_overs = &mut sought => break left_overs,
        }
    };
    driver.account.left_over(left_overs);
    before_summary(driver.account.ending()).await;
    driver.account.run_ended()
}

/// Tells the journal's readers what has happened, whenever it is looked at for the second time since: first those have their turn
/// who send what the run has just asked for. Never ends.
async fn tell(journal: &Journal) -> Infallible {
    loop {
        if journal.has_untold() {
            tokio::task::yield_now().await;
            journal.tell();
        }
        pending_once().await;
    }
}

/// Is pending when it is looked at for the first time.
async fn pending_once() {
    let mut looked = false;
    std::future::poll_fn(|_| if std::mem::replace(&mut looked, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

async fn sleep_until(timer: Option<&Reverse<Timer>>) {
    match timer {
        Some(Reverse((until, ..))) => tokio::time::sleep_until(*until).await,
        None => std::future::pending().await,
    }
}

type Timer = (Instant, StepIx, Target);

/// One step on one target, from its first attempt to its end.
struct Unit {
    started: Instant,
    sent: u32,
    lost: bool,
    warnings: Vec<String>,
    /// What each cluster was seen to hold after the last attempt.
    checked: Vec<Checked>,
    /// How the last attempt ended.
    last: Option<Result<Done, Failure>>,
    wait: Wait,
}

impl Unit {
    fn new(started: Instant) -> Self {
        Self {
            started,
            sent: 0,
            lost: false,
            warnings: Vec::new(),
            checked: Vec::new(),
            last: None,
            wait: Wait::new(started),
        }
    }
}

/// What is done about a unit.
#[derive(Clone, Copy)]
enum Work {
    Preparation,
    Attempt,
}

/// A unit that is worked on, and what came of it; nothing if that ended by a panic.
type AtWork = (StepIx, Target, Work, Option<Worked>);

/// What work on a unit came to.
struct Worked {
    /// None of a preparation.
    attempt: Option<Attempt>,
    /// When the work began.
    began: Instant,
    /// What was done about what the unit needs, or no longer needs.
    needs: Needs,
}

struct Driver<F> {
    plan: Arc<Plan>,
    fulfil: Arc<F>,
    account: Account,
    /// Where work in flight says how it gets on.
    signs: mpsc::Sender<Sign>,
    schedule: Schedule,
    limits: Targets<Limit>,
    /// Not tasks of their own: answers that come together are followed by requests that go out together, which costs both sides
    /// less, and nothing has to move between threads.
    at_work: Together<AtWork>,
    timers: BinaryHeap<Reverse<Timer>>,
    units: HashMap<(StepIx, Target), Unit>,
    /// Units for which what they need is seen to.
    preparing: HashMap<(StepIx, Target), Wait>,
    /// Cuts preparations short and interrupts the waits of attempts.
    stop: CancellationToken,
    /// Ends all work at once.
    abandoned: CancellationToken,
    finished: bool,
}

impl<F: Fulfil> Driver<F> {
    fn new(
        plan: Arc<Plan>,
        fulfil: Arc<F>,
        limits: Clusters<Limit>,
        account: Account,
        signs: mpsc::Sender<Sign>,
    ) -> Self {
        let node = |step| Node {
            targets: plan.targets(step),
            depends_on: step.depends_on.clone(),
            runs_after: step.runs_after.clone(),
            is_prepared: plan.is_prepared(step),
        };
        let nodes: Vec<_> = plan.steps.iter().map(node).collect();
        // One call at a time an adapter (D27).
        let limits = Targets { clusters: limits, adapters: plan.adapters.iter().map(|_| Limit::Fixed(1)).collect() };
        let lanes = Targets {
            clusters: limits.clusters.iter().map(|limit| (limit.bound(), plan.time_on_cluster())).collect(),
            adapters: limits.adapters.iter().map(|limit| (limit.bound(), plan.time_through_adapter())).collect(),
        };
        Self {
            schedule: Schedule::new(plan.mode(), &nodes, &lanes),
            limits,
            at_work: Together::new(),
            timers: BinaryHeap::new(),
            units: HashMap::new(),
            preparing: HashMap::new(),
            stop: CancellationToken::new(),
            abandoned: CancellationToken::new(),
            finished: false,
            plan,
            fulfil,
            account,
            signs,
        }
    }

    /// Gives the schedule an event and does what it commands.
    fn feed(&mut self, event: Event) {
        let now = Instant::now();
        let left = match &event {
            Event::Written { target, .. } | Event::Ended { target, .. } => Some(*target),
            _ => None,
        };
        let commands = self.schedule.handle(event, now.into_std());
        let entered = commands.iter().filter_map(|command| match command {
            Command::Start { target, .. } => Some(*target),
            _ => None,
        });
        for target in left.into_iter().chain(entered) {
            self.limits[target].set_busy(self.schedule.is_busy(target));
        }
        for command in commands {
            match command {
                Command::Prepare { step, target } => self.prepare(step, target),
                Command::Start { step, target, attempt, answer_by, deadline } => {
                    self.start(step, target, attempt, Instant::from_std(answer_by), Instant::from_std(deadline));
                }
                Command::Pause { step, target, until } => {
                    self.timers.push(Reverse((Instant::from_std(until), step, target)));
                    self.enter(step, target, Phase::Paused);
                }
                Command::Conclude { step, target, outcome } => self.conclude(step, target, outcome),
                Command::Settle { step, ending, would_be_withheld } => {
                    self.account.step_ended(step, ending, would_be_withheld);
                }
                Command::Finish => self.finished = true,
            }
        }
    }

    fn control(&mut self, control: Control) -> Event {
        match control {
            Control::Cancel { by, reason } => self.account.stopped(by, reason),
            Control::Abandon => {
                self.account.abandoned();
                self.abandoned.cancel();
            }
        }
        self.stop.cancel();
        Event::Cancel
    }

    fn sign(&mut self, sign: Sign) -> Option<Event> {
        match sign {
            Sign::Written { step, target } => {
                self.enter(step, target, Phase::Written);
                Some(Event::Written { step, target })
            }
            Sign::Waiting { step, target, ready } => {
                self.enter(step, target, Phase::Told(ready));
                None
            }
        }
    }

    fn woken(&mut self) -> Event {
        let Reverse((_, step, target)) = self.timers.pop().expect("a timer rang");
        Event::Woken { step, target }
    }

    fn prepare(&mut self, step: StepIx, target: Target) {
        let began = Instant::now();
        let span = self.account.began(step);
        self.preparing.insert((step, target), Wait::new(began));
        let preparation = self.fulfil.clone().prepare(step, target, self.stop.clone());
        let cut_short = self.cut_short(step, target);
        let work = async move {
            let needs = tokio::select! {
                biased;
                needs = preparation => needs,
                unknown = cut_short.needs() => unknown,
            };
            Worked { attempt: None, began, needs }
        };
        self.work(step, target, Work::Preparation, work.instrument(span));
    }

    fn start(&mut self, step: StepIx, target: Target, attempt: u32, answer_by: Instant, deadline: Instant) {
        let now = Instant::now();
        let span = self.account.began(step);
        let unit = self.units.entry((step, target)).or_insert_with(|| Unit::new(now));
        let lost_since = unit.lost.then_some(unit.started);
        unit.wait.attempt(attempt);
        let progress = Progress { step, target, signs: self.signs.clone() };
        let without = self.without(step, target);
        let stop = self.stop.clone();
        let ended = progress.clone();
        let order = Order { step, target, attempt, lost_since, answer_by, deadline, without, progress, stop };
        let fulfil = self.fulfil.clone();
        let cut_short = self.cut_short(step, target);
        let work = async move {
            let attempt = tokio::select! {
                biased;
                attempt = fulfil.clone().attempt(order) => attempt,
                unknown = cut_short.attempt() => unknown,
            };
            let needs = match attempt.result {
                Ok(_) => tokio::select! {
                    biased;
                    needs = fulfil.clear_up(ended) => needs,
                    unknown = cut_short.needs() => unknown,
                },
                Err(_) => Vec::new(),
            };
            Worked { attempt: Some(attempt), began: now, needs }
        };
        self.work(step, target, Work::Attempt, work.instrument(span));
    }

    fn cut_short(&self, step: StepIx, target: Target) -> CutShort {
        CutShort { abandoned: self.abandoned.clone(), plan: self.plan.clone(), step, target }
    }

    fn work(&mut self, step: StepIx, target: Target, work: Work, doing: impl Future<Output = Worked> + Send + 'static) {
        // A panic is laid at the unit's door and ends nothing else.
        let doing = AssertUnwindSafe(doing).catch_unwind();
        self.at_work.push(doing.map(move |worked| (step, target, work, worked.ok())).boxed());
    }

    /// Steps that had to end before this one and did not succeed on this target.
    fn without(&self, step: StepIx, target: Target) -> Vec<(StepIx, Standing)> {
        let standings = self.plan.steps[step].before().map(|before| (before, self.schedule.standing(before, target)));
        standings.filter(|(_, standing)| *standing != Standing::Sound).collect()
    }

    fn worked(&mut self, (step, target, work, worked): AtWork) -> Event {
        let Worked { attempt, began, needs } = worked.unwrap_or_else(|| self.panicked(step, target, work));
        self.account.needed(step, needs);
        let Some(attempt) = attempt else {
            self.preparing.remove(&(step, target));
            return Event::Prepared { step, target };
        };
        self.adapt(target, &attempt, began);
        let unit = self.units.get_mut(&(step, target)).expect("a unit is known while it is worked on");
        unit.sent += attempt.sent;
        for warning in attempt.warnings {
            if !unit.warnings.contains(&warning) {
                unit.warnings.push(warning);
            }
        }
        unit.checked = attempt.checked;
        let (last, end) = match attempt.result {
            Ok(done) => (Ok(done), End::Succeeded),
            Err(Verdict::Refused(failure)) => (Err(failure), End::Failed),
            Err(Verdict::Unknown(failure)) => (Err(failure), End::Indeterminate),
            Err(Verdict::Again { failure, after, patience, lost }) => {
                unit.lost |= lost;
                metrics::attempt_repeated(failure.reason.as_str());
                (Err(failure), End::Again { after, patience, lost })
            }
        };
        unit.last = Some(last);
        Event::Ended { step, target, end }
    }

    /// What work came to that ended by a panic. The panic hook has logged it; what it says may hold anything, so it is not
    /// passed on.
    fn panicked(&self, step: StepIx, target: Target, work: Work) -> Worked {
        let failure = |what| Failure::new(Reason::Internal, format!("an internal error ended the work on {what}"));
        let (attempt, needs) = match work {
            Work::Attempt => (Some(Attempt::ended(Verdict::Refused(failure("this component")))), Vec::new()),
            Work::Preparation => {
                let need = |&cluster| Need::failed(cluster, UnitOutcome::Failed, failure("what this component needs"));
                (None, self.plan.clusters_of(step, &target).iter().map(need).collect())
            }
        };
        Worked { attempt, began: Instant::now(), needs }
    }

    /// Moves the bound of the target with what was answered to an attempt that began at `began`.
    fn adapt(&mut self, target: Target, attempt: &Attempt, began: Instant) {
        let limit = &self.limits[target];
        limit.answered(match &attempt.result {
            Err(Verdict::Again { failure, .. }) if failure.reason.is_overload() => {
                Answer::Complaint { asked: began.into_std() }
            }
            _ => Answer::Coped { took: attempt.took, full: self.schedule.is_full(target) },
        });
        // Others may have come or gone meanwhile that work on the same server.
        let bound = limit.bound();
        if bound != self.schedule.limit(target) {
            self.feed(Event::Limit { target, limit: bound });
        }
    }

    fn conclude(&mut self, step: StepIx, target: Target, outcome: UnitOutcome) {
        let unit = self.units.remove(&(step, target)).map(|unit| UnitEnd {
            sent: unit.sent,
            elapsed: unit.started.elapsed(),
            warnings: unit.warnings,
            checked: unit.checked,
            last: unit.last,
        });
        self.account.unit_ended(step, target, outcome, unit);
    }
}

#[cfg(test)]
mod tests;
