//! One step's work on one lane, behind one trait, so that the driver knows no kind of work.

pub(crate) mod adapter;
pub(crate) mod chart;
pub(crate) mod direct;

use std::{future::Future, sync::Arc};

use switchyard_proto::v1;
use tokio::{
    sync::mpsc,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

use crate::{
    classify::Verdict,
    cluster::readiness::Report,
    diff::FieldDiff,
    failure::Failure,
    handover::NotAllowed,
    mask::Secrets,
    plan::{self, Plan, Work},
    run::Control,
    schedule::{Lane, StepIx, UnitOutcome},
};

/// One attempt that is to be made.
pub(crate) struct Order {
    pub(crate) step: StepIx,
    pub(crate) lane: Lane,
    /// From 1.
    pub(crate) attempt: u32,
    /// When the first attempt began, if one since then may have been carried out though its answer was lost.
    pub(crate) lost_since: Option<Instant>,
    /// When an answer should be there at the latest.
    pub(crate) answer_by: Instant,
    /// End of the step's time on this lane.
    pub(crate) deadline: Instant,
    /// Steps which had to end before this one and did not succeed here; whether they failed for certain.
    pub(crate) without: Vec<(StepIx, bool)>,
    pub(crate) progress: Progress,
    /// Interrupts waits, never writes (D23).
    pub(crate) stop: CancellationToken,
}

/// Tells the driver how an attempt gets on.
#[derive(Clone)]
pub(crate) struct Progress {
    pub(crate) step: StepIx,
    pub(crate) lane: Lane,
    pub(crate) control: mpsc::Sender<Control>,
}

impl Progress {
    /// The write is done and what follows is waiting: its place among the writes in flight is free.
    pub(crate) fn written(&self) {
        // If the driver has no room for this, the place is free a little later, which harms nobody.
        self.control.try_send(Control::Written { step: self.step, lane: self.lane }).ok();
    }

    /// What is waited for meanwhile, and how far that is.
    pub(crate) fn waiting(&self, ready: Ready) {
        self.control.try_send(Control::Waiting { step: self.step, lane: self.lane, ready }).ok();
    }
}

/// What an attempt came to.
pub(crate) struct Attempt {
    pub(crate) result: Result<Done, Verdict>,
    /// Write requests that were sent.
    pub(crate) sent: u32,
    /// How long the one write took to be answered, if that is known.
    pub(crate) took: Option<Duration>,
    pub(crate) warnings: Vec<String>,
    /// What each cluster was seen to hold, where others did the work (D26).
    pub(crate) checked: Vec<Checked>,
}

/// What one cluster was seen to hold.
pub(crate) struct Checked {
    pub(crate) lane: Lane,
    pub(crate) outcome: UnitOutcome,
    pub(crate) change: Option<v1::Change>,
    pub(crate) failure: Option<Failure>,
    pub(crate) object: Option<v1::ObjectRef>,
    pub(crate) readiness: Option<Ready>,
}

impl Attempt {
    /// An attempt that proved success.
    pub(crate) fn done(done: Done, sent: u32) -> Self {
        Self { result: Ok(done), sent, took: None, warnings: Vec::new(), checked: Vec::new() }
    }

    /// An attempt that ended before anything was sent.
    pub(crate) fn ended(verdict: Verdict) -> Self {
        Self { result: Err(verdict), sent: 0, took: None, warnings: Vec::new(), checked: Vec::new() }
    }
}

/// Proven success.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// Unspecified when nobody can tell.
    pub(crate) change: v1::Change,
    /// None when the component is no object.
    pub(crate) object: Option<v1::ObjectRef>,
    /// In a dry run: what would change.
    pub(crate) diff: Vec<FieldDiff>,
    /// How many fields would change beside those.
    pub(crate) diff_left_out: u32,
    /// Fields that the cluster holds otherwise than they were sent, where that was looked at (L5).
    pub(crate) altered: Vec<FieldDiff>,
    /// What the wait until it is ready came to, where one was asked for (D16).
    pub(crate) readiness: Option<Ready>,
    /// The design that the object belongs to, where it was left as it is (L1).
    pub(crate) shared_with: Option<Box<str>>,
}

/// What a wait until an object is ready came to.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) readiness: v1::Readiness,
    /// What a person should know of it.
    pub(crate) note: Option<String>,
}

impl Ready {
    /// A definition is ready when it is served, which is always waited for.
    fn served() -> Self {
        Self { readiness: v1::Readiness::Ready, note: None }
    }

    /// The report without what it quotes of `secrets`: what a controller says may repeat what the object holds.
    pub(crate) fn masked(Report { readiness, note }: Report, secrets: &Secrets) -> Self {
        Self { readiness, note: note.map(|note| secrets.render(&note)) }
    }
}

/// What was done about what a unit needs, one entry a cluster.
pub(crate) type Needs = Vec<v1::PrerequisiteResult>;

/// Carries attempts out, and sees to what they need.
pub(crate) trait Fulfil: Send + Sync + 'static {
    /// Sees to what a unit needs before its first attempt. Ends early, and in order, when `stop` is cancelled.
    fn prepare(
        self: Arc<Self>,
        step: StepIx,
        lane: Lane,
        stop: CancellationToken,
    ) -> impl Future<Output = Needs> + Send + 'static;

    /// Makes one attempt, to its end.
    fn attempt(self: Arc<Self>, order: Order) -> impl Future<Output = Attempt> + Send + 'static;

    /// Sees to what a unit that succeeded no longer needs.
    fn clear_up(self: Arc<Self>, progress: Progress) -> impl Future<Output = Needs> + Send + 'static;
}

/// Gives each attempt to whoever carries out its kind of work.
///
/// An attempt is copied a few times on its way to where it runs. What is seldom needed lies in boxes, so that what most attempts
/// are, one PATCH, stays small.
pub(crate) struct ByWork {
    pub(crate) plan: Arc<Plan>,
    pub(crate) direct: direct::Direct,
    pub(crate) adapter: adapter::ByAdapter,
    pub(crate) charts: chart::Charts,
    /// In a dry run: adapters that a run would not be allowed to call.
    pub(crate) not_allowed: Vec<NotAllowed>,
}

impl ByWork {
    /// Asks the clusters what they would say to the object that an adapter is asked for.
    async fn rehearse(&self, adapter: &plan::Adapter, order: &Order) -> Attempt {
        let mut attempt = self.direct.rehearse_for_adapter(adapter, order).await;
        let address = crate::adapter::address(&adapter.host, adapter.port.into());
        let not_allowed = self.not_allowed.iter().find(|not_allowed| not_allowed.address == address);
        attempt.warnings.extend(not_allowed.map(|it| format!("the run would be refused: {it}")));
        attempt
    }
}

impl Fulfil for ByWork {
    async fn prepare(self: Arc<Self>, step: StepIx, lane: Lane, stop: CancellationToken) -> Needs {
        self.charts.prepare(step, lane, &stop).await
    }

    async fn attempt(self: Arc<Self>, order: Order) -> Attempt {
        match &self.plan.steps[order.step.0 as usize].work {
            Work::Direct(direct) => self.direct.carry_out(direct, &order).await,
            // A dry run asks the API servers what they would say to the object; adapters are not called (S22).
            Work::Adapter(adapter) if self.plan.dry_run => Box::pin(self.rehearse(adapter, &order)).await,
            Work::Adapter(adapter) => Box::pin(self.adapter.carry_out(adapter, &order)).await,
        }
    }

    async fn clear_up(self: Arc<Self>, progress: Progress) -> Needs {
        Box::pin(self.charts.clear_up(&progress)).await
    }
}
