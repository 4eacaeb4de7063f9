//! Asks the clusters what they would say to each step, and changes nothing (S22, D20).

use std::sync::Arc;

use switchyard_proto::v1;
use tokio_util::sync::CancellationToken;

use super::{Attempt, Fulfil, LeftOver, Needs, Order, Progress, chart::Charts, direct, handover::NotAllowed};
use crate::{
    answers::{
        classify::Verdict,
        failure::{Failure, Reason},
    },
    core::{
        plan::{Adapter, Plan, Work},
        target::{ClusterIx, StepIx, Target},
    },
};

/// What is said of every component of an adapter.
const NOT_CALLED: &str = "adapters are not called in a dry run";

/// Rehearses the steps of one plan.
pub(crate) struct Rehearse {
    pub(crate) plan: Arc<Plan>,
    pub(crate) direct: direct::Rehearse,
    pub(crate) charts: Charts,
    /// Adapters that a run would not be allowed to call.
    pub(crate) not_allowed: Vec<NotAllowed>,
}

impl Rehearse {
    /// What the cluster would say to the object that an adapter is asked for.
    async fn for_adapter(&self, adapter: &Adapter, cluster: ClusterIx, order: &Order) -> Attempt {
        let Some(object) = &adapter.object else {
            let text = format!("cannot tell in a dry run: the component is not a Kubernetes object, and {NOT_CALLED}");
            return Attempt::ended(Verdict::Unknown(Failure::new(Reason::KindUnknown, text)));
        };
        let mut attempt = self.direct.rehearse(object, cluster, order).await;
        attempt.warnings.push(NOT_CALLED.into());
        attempt
    }
}

impl Fulfil for Rehearse {
    async fn prepare(self: Arc<Self>, step: StepIx, target: Target, stop: CancellationToken) -> Needs {
        self.charts.prepare(step, target, &stop).await
    }

    async fn attempt(self: Arc<Self>, order: Order) -> Attempt {
        match (&self.plan.steps[order.step].work, order.target) {
            (Work::Direct(object), Target::Cluster(cluster)) => self.direct.rehearse(object, cluster, &order).await,
            (Work::Adapter(adapter), Target::Cluster(cluster)) => {
                let mut attempt = self.for_adapter(adapter, cluster, &order).await;
                let address = crate::adapter::address(&adapter.host, adapter.port.into());
                let not_allowed = self.not_allowed.iter().find(|not_allowed| not_allowed.address == address);
                attempt.warnings.extend(not_allowed.map(|it| format!("the run would be refused: {it}")));
                attempt
            }
            (_, Target::Adapter(_)) => unreachable!("steps are rehearsed on clusters"),
        }
    }

    async fn clear_up(self: Arc<Self>, progress: Progress) -> Needs {
        self.charts.clear_up(&progress).await
    }

    /// Without a lock nothing says which kinds the design had.
    async fn left_overs(self: Arc<Self>, _: v1::Verdict, _: CancellationToken) -> Vec<LeftOver> {
        Vec::new()
    }
}
