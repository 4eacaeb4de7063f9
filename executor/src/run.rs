//! The driver: one loop that owns the schedule, the work in flight and the timers of one run.
//!
//! It performs what the schedule commands, turns what happens into the schedule's next event, and writes the journal. It
//! decides nothing. It never waits for a reader.

mod progress;
mod stop;
mod tell;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet},
    convert::Infallible,
    future::Future,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures::{FutureExt, StreamExt};
use switchyard_proto::v1::{self, execute_response::Event as Entry};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::{
    attributes,
    classify::Verdict,
    failure::{Failure, Reason},
    fulfil::{Attempt, Checked, Done, Fulfil, Needs, Order, Progress, Ready},
    journal::Journal,
    limit::{Answer, Limit},
    metrics,
    plan::Plan,
    report::{self, About, Counts, Ended},
    schedule::{Command, End, Ending, Event, Lane, Node, Schedule, StepIx, UnitOutcome},
    together::Together,
};

use self::{
    progress::{Phase, Wait},
    stop::{CutShort, Stopped},
    tell::Roots,
};

/// What reaches a run from outside.
#[derive(Debug)]
pub(crate) enum Control {
    /// Start nothing more.
    Cancel { by: v1::CancelledBy, reason: String },
    /// Wait for nothing more: what is in flight ends as what nobody can tell.
    Abandon,
    /// An attempt's write is done though the attempt goes on.
    Written { step: StepIx, lane: Lane },
    /// How far what an attempt waits for is.
    Waiting { step: StepIx, lane: Lane, ready: Ready },
}

/// What a run is called, for its events.
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

/// Runs `plan` to its end and writes every event, the summary last, to `journal`. `before_summary` is told the verdict and waited
/// for when all work is done: whoever reads the summary may rely on it.
pub(crate) async fn run<F: Fulfil>(
    plan: Arc<Plan>,
    fulfil: Arc<F>,
    limits: Vec<Limit>,
    identity: Identity,
    journal: Arc<Journal>,
    (control, mut controls): (mpsc::Sender<Control>, mpsc::Receiver<Control>),
    before_summary: impl AsyncFnOnce(v1::Verdict),
) -> Finished {
    let mut driver = Driver::new(plan, fulfil, limits, identity, journal, control);
    driver.feed(Event::Begin);
    let journal = driver.journal.clone();
    let mut telling = pin!(tell(&journal));
    let mut looks = progress::looks();
    while !driver.finished {
        let event = tokio::select! {
            // A cancel must not wait behind a flood of results.
            biased;
            Some(control) = controls.recv() => driver.control(control),
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
    driver.journal.tell();
    before_summary(driver.verdict()).await;
    driver.summarise()
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

type Timer = (Instant, StepIx, Lane);

/// One step on one lane.
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

/// One step that has begun and has not ended.
struct Open {
    started: Instant,
    span: Span,
    /// In the order in which they began; few, so they are looked through.
    units: Vec<(Lane, Unit)>,
    targets: Vec<v1::TargetResult>,
    needs: Needs,
    /// Lanes on which what the step needs is seen to.
    preparing: Vec<(Lane, Wait)>,
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

impl Open {
    fn unit(&mut self, lane: Lane) -> Option<&mut Unit> {
        self.units.iter_mut().find(|(known, _)| *known == lane).map(|(_, unit)| unit)
    }

    fn take_unit(&mut self, lane: Lane) -> Option<Unit> {
        let at = self.units.iter().position(|(known, _)| *known == lane)?;
        Some(self.units.swap_remove(at).1)
    }
}

/// What is done about a unit.
#[derive(Clone, Copy)]
enum Work {
    Preparation,
    Attempt,
}

/// A unit that is worked on, and what came of it; nothing if that ended by a panic.
type AtWork = (StepIx, Lane, Work, Option<Worked>);

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
    identity: Identity,
    journal: Arc<Journal>,
    control: mpsc::Sender<Control>,
    /// Where a cluster stands in the plan.
    positions: HashMap<String, usize>,
    schedule: Schedule,
    /// By lane.
    limits: Vec<Limit>,
    /// Not tasks of their own: answers that come together are followed by requests that go out together, which costs both sides
    /// less, and nothing has to move between threads.
    at_work: Together<AtWork>,
    timers: BinaryHeap<Reverse<Timer>>,
    open: HashMap<StepIx, Open>,
    ended: Vec<Option<Ended>>,
    /// The failure of each step that others are withheld by.
    failures: HashMap<StepIx, Failure>,
    /// The spans of these.
    roots: Roots,
    /// Units that did not succeed.
    unsuccessful: HashMap<(StepIx, Lane), UnitOutcome>,
    /// Objects by lane and uid, with the step that met each first.
    met: HashMap<(Lane, String), StepIx>,
    /// Steps that failed on some lane.
    failed: HashSet<StepIx>,
    /// Dry run: steps that would be withheld, and the failure that would hold them back.
    held: HashMap<StepIx, StepIx>,
    began: Instant,
    /// None while nothing has stopped the run.
    stopped: Option<Stopped>,
    /// Cuts preparations short and interrupts the waits of attempts.
    stop: CancellationToken,
    /// Ends all work at once.
    abandoned: CancellationToken,
    finished: bool,
    /// Bytes of what was told of waits.
    told_of_waits: usize,
}

impl<F: Fulfil> Driver<F> {
    fn new(
        plan: Arc<Plan>,
        fulfil: Arc<F>,
        limits: Vec<Limit>,
        identity: Identity,
        journal: Arc<Journal>,
        control: mpsc::Sender<Control>,
    ) -> Self {
        let nodes: Vec<_> = plan
            .steps
            .iter()
            .map(|step| Node {
                lanes: plan.lanes(step).to_vec(),
                // A dry run checks what comes behind a failing step too, after it (D20).
                depends_on: if plan.dry_run { Vec::new() } else { step.depends_on.clone() },
                runs_after: if plan.dry_run { step.before().collect() } else { step.runs_after.clone() },
                is_prepared: plan.is_prepared(step),
            })
            .collect();
        // One call at a time an adapter (D27).
        let of_adapters = plan.adapters.iter().map(|_| Limit::Fixed(1));
        let limits: Vec<_> = limits.into_iter().chain(of_adapters).collect();
        let bounds: Vec<_> = limits.iter().map(Limit::bound).collect();
        let timeouts = plan.timeouts();
        let positions = plan.clusters.iter().enumerate().map(|(position, name)| (name.clone(), position)).collect();
        Self {
            positions,
            schedule: Schedule::new(&nodes, &bounds, &timeouts),
            limits,
            at_work: Together::new(),
            timers: BinaryHeap::new(),
            open: HashMap::new(),
            ended: vec![None; plan.steps.len()],
            failures: HashMap::new(),
            met: HashMap::new(),
            roots: Roots::default(),
            unsuccessful: HashMap::new(),
            failed: HashSet::new(),
            held: HashMap::new(),
            began: Instant::now(),
            stopped: None,
            stop: CancellationToken::new(),
            abandoned: CancellationToken::new(),
            finished: false,
            told_of_waits: 0,
            plan,
            fulfil,
            identity,
            journal,
            control,
        }
    }

    /// Gives the schedule an event and does what it commands.
    fn feed(&mut self, event: Event) {
        let now = Instant::now();
        let left = match &event {
            Event::Written { lane, .. } | Event::Ended { lane, .. } => Some(*lane),
            _ => None,
        };
        let commands = self.schedule.handle(event, now.into_std());
        let entered = commands.iter().filter_map(|command| match command {
            Command::Start { lane, .. } => Some(*lane),
            _ => None,
        });
        for lane in left.into_iter().chain(entered) {
            self.limits[lane.0 as usize].set_busy(self.schedule.is_busy(lane));
        }
        for command in commands {
            match command {
                Command::Prepare { step, lane } => self.prepare(step, lane),
                Command::Start { step, lane, attempt, answer_by, deadline } => {
                    self.start(step, lane, attempt, Instant::from_std(answer_by), Instant::from_std(deadline));
                }
                Command::Pause { step, lane, until } => {
                    self.timers.push(Reverse((Instant::from_std(until), step, lane)));
                    self.enter(step, lane, Phase::Paused);
                }
                Command::Conclude { step, lane, outcome } => self.conclude(step, lane, outcome),
                Command::Settle { step, ending } => self.settle(step, ending),
                Command::Finish => self.finished = true,
            }
        }
    }

    fn control(&mut self, control: Control) -> Option<Event> {
        Some(match control {
            Control::Cancel { by, reason } => {
                tracing::info!(
                    { attributes::RUN_ID } = self.identity.run_id,
                    by = by.as_str_name(),
                    reason,
                    "stopping the run"
                );
                self.stopped.get_or_insert(Stopped { by, reason });
                self.stop.cancel();
                Event::Cancel
            }
            Control::Abandon => {
                tracing::warn!(
                    { attributes::RUN_ID } = self.identity.run_id,
                    "what is in flight is not waited for any longer"
                );
                self.stop.cancel();
                self.abandoned.cancel();
                Event::Cancel
            }
            Control::Written { step, lane } => {
                self.enter(step, lane, Phase::Written);
                Event::Written { step, lane }
            }
            Control::Waiting { step, lane, ready } => {
                self.enter(step, lane, Phase::Told(ready));
                return None;
            }
        })
    }

    fn woken(&mut self) -> Event {
        let Reverse((_, step, lane)) = self.timers.pop().expect("a timer rang");
        Event::Woken { step, lane }
    }

    /// The step as one that has begun.
    fn begun(&mut self, step: StepIx) -> &mut Open {
        let Driver { open, plan, journal, .. } = self;
        open.entry(step).or_insert_with(|| {
            let step = &plan.steps[step.0 as usize];
            journal.append(Entry::StepStarted(v1::StepStarted {
                step_id: step.id.clone(),
                component: step.component.name.clone(),
            }));
            let span = tell::span_of(step);
            let started = Instant::now();
            Open { started, span, units: Vec::new(), targets: Vec::new(), needs: Vec::new(), preparing: Vec::new() }
        })
    }

    fn prepare(&mut self, step: StepIx, lane: Lane) {
        let open = self.begun(step);
        open.preparing.push((lane, Wait::new(Instant::now())));
        let span = open.span.clone();
        let preparation = self.fulfil.clone().prepare(step, lane, self.stop.clone());
        let began = Instant::now();
        let cut_short = self.cut_short(step, lane);
        let work = async move {
            let needs = tokio::select! {
                biased;
                needs = preparation => needs,
                unknown = cut_short.needs() => unknown,
            };
            Worked { attempt: None, began, needs }
        };
        self.work(step, lane, Work::Preparation, work.instrument(span));
    }

    fn start(&mut self, step: StepIx, lane: Lane, attempt: u32, answer_by: Instant, deadline: Instant) {
        let now = Instant::now();
        let open = self.begun(step);
        let lost_since = match open.unit(lane) {
            Some(unit) => unit.lost.then_some(unit.started),
            None => {
                open.units.push((lane, Unit::new(now)));
                None
            }
        };
        if let Some(unit) = open.unit(lane) {
            unit.wait.attempt(attempt);
        }
        let span = open.span.clone();
        let progress = Progress { step, lane, control: self.control.clone() };
        let without = self.without(step, lane);
        let stop = self.stop.clone();
        let ended = progress.clone();
        let order = Order { step, lane, attempt, lost_since, answer_by, deadline, without, progress, stop };
        let fulfil = self.fulfil.clone();
        let cut_short = self.cut_short(step, lane);
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
        self.work(step, lane, Work::Attempt, work.instrument(span));
    }

    fn cut_short(&self, step: StepIx, lane: Lane) -> CutShort {
        CutShort { abandoned: self.abandoned.clone(), plan: self.plan.clone(), step, lane }
    }

    fn work(&mut self, step: StepIx, lane: Lane, work: Work, doing: impl Future<Output = Worked> + Send + 'static) {
        // A panic is laid at the unit's door and ends nothing else.
        let doing = AssertUnwindSafe(doing).catch_unwind();
        self.at_work.push(doing.map(move |worked| (step, lane, work, worked.ok())).boxed());
    }

    /// Steps that had to end before this one and did not succeed on this lane; whether they failed for certain.
    fn without(&self, step: StepIx, lane: Lane) -> Vec<(StepIx, bool)> {
        let before = self.plan.steps[step.0 as usize].before();
        let missing = before.filter_map(|ix| match self.unsuccessful.get(&(ix, lane)) {
            Some(outcome) => Some((ix, *outcome == UnitOutcome::Failed)),
            None => {
                let ended = self.ended[ix.0 as usize].as_ref();
                let not_attempted =
                    |ended: &&Ended| matches!(ended.ending, Ending::Withheld { .. } | Ending::Cancelled);
                ended.filter(not_attempted).map(|_| (ix, false))
            }
        });
        missing.collect()
    }

    fn worked(&mut self, (step, lane, work, worked): AtWork) -> Event {
        let worked = worked.unwrap_or_else(|| self.panicked(step, work));
        let Driver { open, stopped, .. } = self;
        let open = open.get_mut(&step).expect("a step is open while it is worked on");
        let mut needs = worked.needs;
        if let Some(stopped) = stopped {
            needs.iter_mut().for_each(|need| stopped.mark_need(need));
        }
        open.needs.extend(needs);
        let Some(attempt) = worked.attempt else {
            open.preparing.retain(|(at, _)| *at != lane);
            return Event::Prepared { step, lane };
        };
        self.adapt(lane, &attempt, worked.began);
        let Driver { open, stopped, .. } = self;
        let open = open.get_mut(&step).expect("a step is open while it is worked on");
        let unit = open.unit(lane).expect("a unit is known while it is worked on");
        unit.sent += attempt.sent;
        for warning in attempt.warnings {
            if !unit.warnings.contains(&warning) {
                unit.warnings.push(warning);
            }
        }
        unit.checked = attempt.checked;
        let (mut last, end) = match attempt.result {
            Ok(done) => (Ok(done), End::Succeeded),
            Err(Verdict::Refused(failure)) => (Err(failure), End::Failed),
            Err(Verdict::Unknown(failure)) => (Err(failure), End::Indeterminate),
            Err(Verdict::Again { failure, after, patience, lost }) => {
                unit.lost |= lost;
                metrics::attempt_repeated(failure.reason.as_str());
                (Err(failure), End::Again { after, patience, lost })
            }
        };
        if let (Err(failure), Some(stopped)) = (&mut last, stopped) {
            stopped.mark(failure);
        }
        unit.last = Some(last);
        Event::Ended { step, lane, end }
    }

    /// What work came to that ended by a panic. The panic hook has logged it; what it says may hold anything, so it is not
    /// passed on.
    fn panicked(&self, step: StepIx, work: Work) -> Worked {
        match work {
            Work::Attempt => {
                let failure = Failure::new(Reason::Internal, "an internal error ended the work on this component");
                let attempt = Some(Attempt::ended(Verdict::Refused(failure)));
                Worked { attempt, began: Instant::now(), needs: Vec::new() }
            }
            Work::Preparation => {
                let text = "an internal error ended the work on what this component needs";
                let told = v1::PrerequisiteResult {
                    chart: self.plan.steps[step.0 as usize].chart.as_ref().map(report::chart),
                    outcome: v1::Outcome::Failed.into(),
                    error: Some(report::failure(&Failure::new(Reason::Internal, text))),
                    ..Default::default()
                };
                Worked { attempt: None, began: Instant::now(), needs: vec![told] }
            }
        }
    }

    /// Moves the bound of the lane with what the cluster answered to an attempt that began at `began`.
    fn adapt(&mut self, lane: Lane, attempt: &Attempt, began: Instant) {
        let limit = &self.limits[lane.0 as usize];
        limit.answered(match &attempt.result {
            Err(Verdict::Again { failure, .. })
                if matches!(failure.reason, Reason::Throttled | Reason::ApiUnavailable | Reason::Timeout) =>
            {
                Answer::Complaint { asked: began.into_std() }
            }
            _ => Answer::Coped { took: attempt.took, full: self.schedule.is_full(lane) },
        });
        // Others may have come or gone meanwhile that work on the same server.
        let bound = limit.bound();
        if bound != self.schedule.limit(lane) {
            self.feed(Event::Limit { lane, limit: bound });
        }
    }

    fn conclude(&mut self, step: StepIx, lane: Lane, outcome: UnitOutcome) {
        if outcome != UnitOutcome::Succeeded {
            self.unsuccessful.insert((step, lane), outcome);
        }
        if outcome == UnitOutcome::Failed {
            self.failed.insert(step);
        }
        let Driver { open, plan, journal, failures, met, stopped, identity, .. } = self;
        let open = open.get_mut(&step).expect("a step is open until it is settled");
        let mut target = v1::TargetResult {
            step_id: plan.steps[step.0 as usize].id.clone(),
            target: Some(plan.target(lane)),
            outcome: v1::Outcome::from(outcome).into(),
            ..Default::default()
        };
        let mut checked = Vec::new();
        match open.take_unit(lane) {
            None => {
                target.error = stopped.as_ref().map(|stopped| report::failure(&stopped.failure()));
            }
            Some(unit) => {
                checked.extend(unit.checked.into_iter().map(|seen| {
                    let mut checked = v1::TargetResult {
                        step_id: target.step_id.clone(),
                        target: Some(plan.target(seen.lane)),
                        outcome: v1::Outcome::from(seen.outcome).into(),
                        change: seen.change.unwrap_or_default().into(),
                        error: seen.failure.as_ref().map(report::failure),
                        object: seen.object,
                        ..Default::default()
                    };
                    tell_readiness(&mut checked, seen.readiness);
                    checked
                }));
                target.attempts = unit.sent;
                target.elapsed = report::duration(unit.started.elapsed());
                target.warnings = unit.warnings;
                match unit.last {
                    Some(Ok(done)) => {
                        if let Some(object) = done.object.as_ref().filter(|object| !object.uid.is_empty()) {
                            let first = *met.entry((lane, object.uid.clone())).or_insert(step);
                            if first != step {
                                target.warnings.push(report::same_object(&plan.steps[first.0 as usize].component.name));
                            }
                        }
                        target.change = done.change.into();
                        target.object = done.object;
                        target.diff_left_out = done.diff_left_out;
                        target.diff = done.diff.into_iter().map(report::field_diff).collect();
                        target.altered = done.altered.into_iter().map(report::field_diff).collect();
                        target.shared_with = done.shared_with.map(String::from).unwrap_or_default();
                        tell_readiness(&mut target, done.readiness);
                    }
                    Some(Err(mut failure)) => {
                        if unit.sent > 1 {
                            let took = unit.started.elapsed();
                            failure.message.push_str(&format!("; given up after {} attempts in {took:.1?}", unit.sent));
                        }
                        target.error = Some(report::failure(&failure));
                        // Its causes have been said; those who are withheld for it repeat less.
                        failures.entry(step).or_insert(Failure { causes: Vec::new(), ..failure });
                    }
                    None => {}
                }
            }
        }
        open.span.in_scope(|| tell::target(&identity.run_id, &plan.steps[step.0 as usize], &target));
        for target in std::iter::once(target).chain(checked) {
            // What would change, and what was changed, is said once, with the target (case 249).
            open.targets.push(v1::TargetResult { diff: Vec::new(), altered: Vec::new(), ..target.clone() });
            journal.append(Entry::TargetResult(target));
        }
    }

    fn settle(&mut self, ix: StepIx, ending: Ending) {
        let plan = self.plan.clone();
        let step = &plan.steps[ix.0 as usize];
        let outcome = v1::Outcome::from(ending);
        let mut result = v1::StepResult {
            step_id: step.id.clone(),
            component: Some(step.component.clone()),
            route: step.route().into(),
            outcome: outcome.into(),
            ..Default::default()
        };
        let mut because = match ending {
            Ending::Succeeded => String::new(),
            Ending::Failed | Ending::Indeterminate => {
                self.failures.get(&ix).map(|failure| failure.message.clone()).unwrap_or_default()
            }
            Ending::Cancelled => self.stopped.as_ref().map(|stopped| stopped.failure().message).unwrap_or_default(),
            Ending::Withheld { by, root } => {
                let (withheld, because) = self.withheld(by, root);
                result.withheld = Some(withheld);
                because
            }
        };
        if let Some((by, root)) = self.would_be_withheld(ix) {
            result.would_be_withheld = Some(self.withheld(by, root).0);
            self.held.insert(ix, root);
        }
        match self.open.remove(&ix) {
            Some(mut open) => {
                // In the plan's order, not in that of arrival.
                let positions = &self.positions;
                let position = |target: &v1::TargetResult| match &target.target {
                    Some(v1::target_result::Target::Cluster(name)) => positions.get(name),
                    // An adapter comes before the clusters it acted on.
                    _ => None,
                };
                open.targets.sort_by_key(position);
                result.elapsed = report::duration(open.started.elapsed());
                result.targets = open.targets;
                open.needs.sort_by_key(|need| positions.get(&need.cluster));
                result.prerequisites = open.needs;
                if ending != Ending::Succeeded {
                    because.extend(result.prerequisites.iter().filter_map(report::missing));
                }
                tell::ended(&open.span, outcome, &because, &result.targets);
                if ending != Ending::Succeeded {
                    self.roots.keep(ix, &open.span);
                }
            }
            None => {
                result.elapsed = report::duration(Duration::ZERO);
                if ending == Ending::Cancelled {
                    result.error = self.stopped.as_ref().map(|stopped| report::failure(&stopped.failure()));
                }
                let root = match ending {
                    Ending::Withheld { root, .. } => Some(root),
                    _ => None,
                };
                self.roots.not_attempted(step, outcome, &because, root);
            }
        }
        let path = if step.route() == v1::Route::Adapter { "adapter" } else { "direct" };
        metrics::step_ended(report::outcome_name(outcome), path);
        self.ended[ix.0 as usize] = Some(Ended {
            ending,
            because,
            fulfilled_by: report::fulfilled_by(&plan, step, &result),
            prerequisites: result.prerequisites.clone(),
            targets_failed: report::targets_failed(&result),
            readiness: report::readiness(&result),
            warnings: result.targets.iter().map(|target| target.warnings.len()).sum(),
            at: self.began.elapsed(),
        });
        self.journal.append(Entry::StepResult(result));
    }

    /// Which dependency would hold the step back if the run were a real one, and which failure would (D20).
    fn would_be_withheld(&self, ix: StepIx) -> Option<(StepIx, StepIx)> {
        if !self.plan.dry_run {
            return None;
        }
        self.plan.steps[ix.0 as usize].depends_on.iter().find_map(|&by| {
            self.held.get(&by).map(|&root| (by, root)).or_else(|| self.failed.contains(&by).then_some((by, by)))
        })
    }

    fn withheld(&self, by: StepIx, root: StepIx) -> (v1::Withheld, String) {
        let name = |ix: StepIx| {
            let step = &self.plan.steps[ix.0 as usize];
            (step.id.clone(), report::repeated(&step.component.name))
        };
        let ((step_id, component), (root_step_id, root_component)) = (name(by), name(root));
        let failure = self.failures.get(&root);
        let why = failure.map(|failure| report::repeated(&failure.message)).unwrap_or_default();
        let because = if by == root {
            format!("withheld: it depends on {component}, which did not succeed: {why}")
        } else {
            format!(
                "withheld: it depends on {component}, which was withheld because {root_component} did not succeed: {why}"
            )
        };
        let root_error = failure.map(report::briefly);
        (v1::Withheld { step_id, component, root_step_id, root_component, root_error }, because)
    }

    fn verdict(&self) -> v1::Verdict {
        report::verdict(self.ended.iter().flatten().map(|ended| ended.ending))
    }

    fn summarise(self) -> Finished {
        let cancelled_by = self.stopped.as_ref().map_or(v1::CancelledBy::Unspecified, |stopped| stopped.by);
        let ended: Vec<_> = self.ended.into_iter().map(|ended| ended.expect("every step has ended")).collect();
        let Identity { run_id, trace_id } = &self.identity;
        let about = About { run_id, trace_id, elapsed: self.began.elapsed(), cancelled_by };
        let messages = report::summary(&self.plan, &ended, &about);
        let verdict = messages.last().map(v1::RunSummary::verdict).unwrap_or_default();
        for message in messages {
            self.journal.append(Entry::Summary(message));
        }
        let counts = Counts::of(ended.iter().map(|ended| ended.ending));
        Finished { verdict, counts, cancelled_by, elapsed: about.elapsed }
    }
}

fn tell_readiness(target: &mut v1::TargetResult, ready: Option<Ready>) {
    if let Some(Ready { readiness, note }) = ready {
        target.readiness = readiness.into();
        target.warnings.extend(note);
    }
}

#[cfg(test)]
mod tests;
