//! One step's work on one target, behind one trait, so that the driver knows no kind of work.
//!
//! Carrying out and rehearsing are two implementations of it, and the one that rehearses has nothing that writes.

pub(crate) mod adapter;
mod carry_out;
pub(crate) mod chart;
pub(crate) mod direct;
pub(crate) mod handover;
mod rehearse;

use std::{future::Future, sync::Arc};

use switchyard_proto::v1;
use tokio::{
    sync::mpsc,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::{carry_out::CarryOut, rehearse::Rehearse};
use crate::{
    answers::{classify::Verdict, failure::Failure},
    cluster::{Cluster, readiness::Report},
    core::{
        schedule::{Standing, UnitOutcome},
        target::{ClusterIx, StepIx, Target},
    },
    mask::Secrets,
    present::diff::FieldDiff,
};

/// What belongs to one cluster of a plan.
pub(crate) struct Site {
    pub(crate) cluster: Arc<Cluster>,
    /// A kubeconfig for adapters: complete, and with nothing but the one cluster's access in it. Empty where none is called.
    pub(crate) for_adapters: String,
    /// A kubeconfig for helm, or why there is none.
    pub(crate) for_helm: Result<String, String>,
}

/// One attempt that is to be made.
pub(crate) struct Order {
    pub(crate) step: StepIx,
    pub(crate) target: Target,
    /// From 1.
    pub(crate) attempt: u32,
    /// When the first attempt began, if one since then may have been carried out though its answer was lost.
    pub(crate) lost_since: Option<Instant>,
    /// When an answer should be there at the latest.
    pub(crate) answer_by: Instant,
    /// End of the step's time on this target.
    pub(crate) deadline: Instant,
    /// Steps which had to end before this one and did not succeed here.
    pub(crate) without: Vec<(StepIx, Standing)>,
    pub(crate) progress: Progress,
    /// Interrupts waits, never writes (D23).
    pub(crate) stop: CancellationToken,
}

/// What an attempt says while it goes on.
#[derive(Debug)]
pub(crate) enum Sign {
    /// Its write is done.
    Written { step: StepIx, target: Target },
    /// How far what it waits for is.
    Waiting { step: StepIx, target: Target, ready: Ready },
}

/// Tells the driver how an attempt gets on.
#[derive(Clone)]
pub(crate) struct Progress {
    pub(crate) step: StepIx,
    pub(crate) target: Target,
    pub(crate) signs: mpsc::Sender<Sign>,
}

impl Progress {
    /// The write is done and what follows is waiting: its place among the writes in flight is free.
    pub(crate) fn written(&self) {
        // If the driver has no room for this, the place is free a little later, which harms nobody.
        self.signs.try_send(Sign::Written { step: self.step, target: self.target }).ok();
    }

    /// What is waited for meanwhile, and how far that is.
    pub(crate) fn waiting(&self, ready: Ready) {
        self.signs.try_send(Sign::Waiting { step: self.step, target: self.target, ready }).ok();
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
    pub(crate) cluster: ClusterIx,
    pub(crate) outcome: UnitOutcome,
    pub(crate) change: Option<v1::Change>,
    pub(crate) failure: Option<Failure>,
    pub(crate) object: Option<ObjectId>,
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
    pub(crate) object: Option<ObjectId>,
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
    /// What that rests on.
    pub(crate) evidence: v1::Evidence,
}

impl Done {
    /// Success of which no more is known.
    pub(crate) fn new(change: v1::Change, object: Option<ObjectId>) -> Self {
        Self {
            change,
            object,
            diff: Vec::new(),
            diff_left_out: 0,
            altered: Vec::new(),
            readiness: None,
            shared_with: None,
            evidence: v1::Evidence::Unspecified,
        }
    }
}

/// An object as it was found or left. What is not known is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectId {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

/// An object of the design that no step of the plan is (L6).
#[derive(Clone, Debug)]
pub(crate) struct LeftOver {
    pub(crate) cluster: ClusterIx,
    pub(crate) object: ObjectId,
    /// The component that it was; empty when it does not say.
    pub(crate) component: String,
    pub(crate) fate: Fate,
}

/// What became of it.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// It was told and stays.
    Told,
    /// It is gone.
    Gone(v1::Change),
    /// It was to be removed, and was not.
    Failed(v1::Outcome, Failure),
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

/// What was done about the chart that a unit needs on one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    pub(crate) cluster: ClusterIx,
    /// The namespace that the chart is for.
    pub(crate) namespace: String,
    /// Its release; empty where there is none.
    pub(crate) release: String,
    pub(crate) result: Result<NeedDone, NeedFailed>,
}

/// What was needed is there, or no longer is.
#[derive(Clone, Debug)]
pub(crate) struct NeedDone {
    pub(crate) change: v1::Change,
    pub(crate) note: String,
}

/// It was not seen to.
#[derive(Clone, Debug)]
pub(crate) struct NeedFailed {
    pub(crate) outcome: UnitOutcome,
    pub(crate) failure: Failure,
}

impl Need {
    /// One of which nothing more is known.
    pub(crate) fn failed(cluster: ClusterIx, outcome: UnitOutcome, failure: Failure) -> Self {
        let result = Err(NeedFailed { outcome, failure });
        Self { cluster, namespace: String::new(), release: String::new(), result }
    }
}

/// What was done about what a unit needs, one entry a cluster.
pub(crate) type Needs = Vec<Need>;

/// Carries attempts out, and sees to what they need.
pub(crate) trait Fulfil: Send + Sync + 'static {
    /// Sees to what a unit needs before its first attempt. Ends early, and in order, when `stop` is cancelled.
    fn prepare(
        self: Arc<Self>,
        step: StepIx,
        target: Target,
        stop: CancellationToken,
    ) -> impl Future<Output = Needs> + Send + 'static;

    /// Makes one attempt, to its end.
    fn attempt(self: Arc<Self>, order: Order) -> impl Future<Output = Attempt> + Send + 'static;

    /// Sees to what a unit that succeeded no longer needs.
    fn clear_up(self: Arc<Self>, progress: Progress) -> impl Future<Output = Needs> + Send + 'static;

    /// Sees to what the plan no longer has, once every step has ended with this verdict.
    fn left_overs(
        self: Arc<Self>,
        verdict: v1::Verdict,
        stop: CancellationToken,
    ) -> impl Future<Output = Vec<LeftOver>> + Send + 'static;
}
