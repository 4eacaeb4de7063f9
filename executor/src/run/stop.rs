//! What a run that is stopped says of what it did not do, or did not see to its end.

use std::sync::Arc;

use switchyard_proto::v1;
use tokio_util::sync::CancellationToken;

use crate::{
    classify::Verdict,
    failure::{Failure, Reason},
    fulfil::{Attempt, Needs},
    plan::Plan,
    report,
    schedule::{Lane, StepIx},
};

/// Who stopped a run, and why.
#[derive(Debug)]
pub(super) struct Stopped {
    pub(super) by: v1::CancelledBy,
    pub(super) reason: String,
}

impl Stopped {
    /// Whether it may do to try again: what the caller stopped is not wanted (case 368).
    pub(super) fn is_retryable(&self) -> bool {
        self.by != v1::CancelledBy::Caller
    }

    /// What is said of what was not attempted.
    pub(super) fn failure(&self) -> Failure {
        let text = format!("not attempted: {}", self.reason);
        Failure { retryable: self.is_retryable(), ..Failure::new(Reason::Cancelled, text) }
    }

    /// Has a failure that comes from the stop say whether it may do to try again.
    pub(super) fn mark(&self, failure: &mut Failure) {
        if failure.reason == Reason::Cancelled {
            failure.retryable = self.is_retryable();
        }
    }

    /// The same for what was needed.
    pub(super) fn mark_need(&self, need: &mut v1::PrerequisiteResult) {
        if let Some(error) = &mut need.error
            && error.reason == Reason::Cancelled.as_str()
        {
            error.retryable = self.is_retryable();
        }
    }
}

/// What work comes to that is not waited for any longer, because the process ends.
pub(super) struct CutShort {
    pub(super) abandoned: CancellationToken,
    pub(super) plan: Arc<Plan>,
    pub(super) step: StepIx,
    pub(super) lane: Lane,
}

impl CutShort {
    /// Waits until the run is abandoned. It may have been carried out, or may be yet: nobody can tell (D8).
    pub(super) async fn attempt(&self) -> Attempt {
        self.abandoned.cancelled().await;
        let (reason, who) = match self.plan.target(self.lane) {
            v1::target_result::Target::Cluster(cluster) => (Reason::AnswerLost, format!("cluster {cluster}")),
            v1::target_result::Target::AdapterAddress(address) => {
                (Reason::AdapterTimeout, format!("the adapter at {address}"))
            }
        };
        let text = format!("the executor went down before {who} had answered; the component may have been carried out");
        Attempt { sent: 1, ..Attempt::ended(Verdict::Unknown(Failure::new(reason, text))) }
    }

    /// The same for what a unit needs.
    pub(super) async fn needs(&self) -> Needs {
        self.abandoned.cancelled().await;
        let step = &self.plan.steps[self.step.0 as usize];
        let text = "the executor went down while helm was at work; its release may be left pending";
        let clusters = self.plan.clusters_of(step, &self.lane).iter();
        let needs = clusters.map(|cluster| v1::PrerequisiteResult {
            cluster: self.plan.clusters[cluster.0 as usize].clone(),
            chart: step.chart.as_ref().map(report::chart),
            outcome: v1::Outcome::Indeterminate.into(),
            error: Some(report::failure(&Failure::new(Reason::ChartPending, text))),
            ..Default::default()
        });
        needs.collect()
    }
}
