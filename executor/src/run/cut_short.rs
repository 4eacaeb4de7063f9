//! What work comes to that is not waited for any longer, because the process ends.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    answers::{
        classify::Verdict,
        failure::{Failure, Reason},
    },
    core::{
        plan::Plan,
        schedule::UnitOutcome,
        target::{StepIx, Target},
    },
    fulfil::{Attempt, Need, Needs},
};

/// A unit that may be left at any moment.
pub(super) struct CutShort {
    pub(super) abandoned: CancellationToken,
    pub(super) plan: Arc<Plan>,
    pub(super) step: StepIx,
    pub(super) target: Target,
}

impl CutShort {
    /// Waits until the run is abandoned. It may have been carried out, or may be yet: nobody can tell (D8).
    pub(super) async fn attempt(&self) -> Attempt {
        self.abandoned.cancelled().await;
        let reason = match self.target {
            Target::Cluster(_) => Reason::AnswerLost,
            Target::Adapter(_) => Reason::AdapterTimeout,
        };
        let who = self.plan.describe(self.target);
        let text = format!("the executor went down before {who} had answered; the component may have been carried out");
        Attempt { sent: 1, ..Attempt::ended(Verdict::Unknown(Failure::new(reason, text))) }
    }

    /// The same for what a unit needs.
    pub(super) async fn needs(&self) -> Needs {
        self.abandoned.cancelled().await;
        let text = "the executor went down while helm was at work; its release may be left pending";
        let failure = || Failure::new(Reason::ChartPending, text);
        let clusters = self.plan.clusters_of(self.step, &self.target).iter();
        clusters.map(|&cluster| Need::failed(cluster, UnitOutcome::Indeterminate, failure())).collect()
    }
}
