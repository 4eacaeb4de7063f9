//! Carries steps out.

use std::sync::Arc;

use switchyard_proto::v1;
use tokio_util::sync::CancellationToken;

use super::{Attempt, Fulfil, LeftOver, Needs, Order, Progress, adapter::ByAdapter, chart::Charts, direct::Write};
use crate::core::{
    plan::{Plan, Work},
    target::{StepIx, Target},
};

/// Gives each attempt to whoever carries out its kind of work.
///
/// An attempt is copied a few times on its way to where it runs. What is seldom needed lies in boxes, so that what most attempts
/// are, one PATCH, stays small.
pub(crate) struct CarryOut {
    pub(crate) plan: Arc<Plan>,
    pub(crate) direct: Write,
    pub(crate) adapter: ByAdapter,
    pub(crate) charts: Charts,
}

impl Fulfil for CarryOut {
    async fn prepare(self: Arc<Self>, step: StepIx, target: Target, stop: CancellationToken) -> Needs {
        self.charts.prepare(step, target, &stop).await
    }

    async fn attempt(self: Arc<Self>, order: Order) -> Attempt {
        match (&self.plan.steps[order.step].work, order.target) {
            (Work::Direct(object), Target::Cluster(cluster)) => self.direct.carry_out(object, cluster, &order).await,
            (Work::Adapter(adapter), _) => Box::pin(self.adapter.carry_out(adapter, &order)).await,
            (Work::Direct(_), Target::Adapter(_)) => unreachable!("direct steps have clusters as targets"),
        }
    }

    async fn clear_up(self: Arc<Self>, progress: Progress) -> Needs {
        Box::pin(self.charts.clear_up(&progress)).await
    }

    async fn left_overs(self: Arc<Self>, verdict: v1::Verdict, stop: CancellationToken) -> Vec<LeftOver> {
        self.direct.left_overs(verdict, &stop).await
    }
}
