//! `switchyard.v1.PlannerService`: request in, plan out. The one place that knows [`tonic::Status`].
//!
//! A request has a [`Budget`] of memory from when it has come in to the last part of its answer, waits for its turn in one of the
//! [`lanes`], and is planned off the runtime. Planning ends when it takes too long, and when nobody waits for it any more.

mod door;
mod lanes;
mod refuse;
mod weigh;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use switchyard_proto::v1::{PlanRequest, PlanResponse};
use switchyard_service::{budget, status, telemetry};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tracing::Span;

pub use self::door::Door;
use self::lanes::Lanes;
use crate::budget::Budget;
use crate::convert::{Intake, Parts};
use crate::document::Limits;
use crate::plan;
use crate::registry::watch::Shared;
use crate::registry::{Layers, Registry};

/// What may be asked of a planner.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How large and deep a document may be.
    pub limits: Limits,
    /// How long one request may be planned, and how long it may wait for its turn.
    pub time: Duration,
}

/// The planner behind its [`Door`].
pub struct Planner {
    registry: Shared,
    bounds: Bounds,
    all_requests: budget::Budget,
    lanes: Lanes,
}

impl Planner {
    /// A planner with this registry and these bounds. What requests take is drawn from `all_requests`.
    pub fn new(registry: Shared, bounds: Bounds, all_requests: budget::Budget) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { registry, bounds, all_requests, lanes: Lanes::new(processors, bounds.time) }
    }

    fn all_requests(&self) -> &budget::Budget {
        &self.all_requests
    }

    /// Plans a request of so many bytes.
    async fn plan(
        &self,
        request: Request<PlanRequest>,
        bytes: usize,
        budget: Arc<Budget>,
    ) -> Result<Response<PlanStream>, Status> {
        let traceparent = telemetry::traceparent_for_plan(request.metadata()).unwrap_or_default();
        let request = request.into_inner();
        let registry = self.registry.now();
        let Bounds { limits, time, .. } = self.bounds;
        let turn = self.lanes.turn(bytes).await.ok_or_else(refuse::too_busy)?;
        let asked = Asked(Arc::clone(&budget));
        let (span, spent) = (Span::current(), Arc::clone(&budget));
        let planning = tokio::task::spawn_blocking(move || {
            let _within = span.enter();
            tracing::debug!(bytes, "planning begins");
            let parts = plan(request, &registry, limits, traceparent, &spent);
            // Only here: a place is free when the work has ended, not when nobody waits for it any more.
            drop(turn);
            parts
        });
        let Ok(planned) = tokio::time::timeout(time, planning).await else {
            tracing::info!(bytes, "planning took too long and was stopped");
            return Err(refuse::too_long(time).into());
        };
        let parts = planned.map_err(|error| {
            tracing::error!(%error, "planning ended in a panic");
            status::internal().into_status()
        })??;
        drop(asked);
        let held = parts.into_iter().map(move |part| {
            // What the answer takes is given back when the last of it has been sent.
            let _held = &budget;
            Ok(part)
        });
        Ok(Response::new(Box::pin(tokio_stream::iter(held))))
    }
}

/// Somebody waits for a plan. When nobody does any more, planning stops.
struct Asked(Arc<Budget>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The parts of a plan, one after the other.
pub type PlanStream = Pin<Box<dyn Stream<Item = Result<PlanResponse, Status>> + Send>>;

fn plan(
    request: PlanRequest,
    own: &Registry,
    limits: Limits,
    traceparent: String,
    budget: &Budget,
) -> Result<Parts, Status> {
    let mut intake = Intake::new(request, limits).map_err(refuse::unfit)?;
    let form = intake.registry.take();
    let from_request = form.map(|form| Registry::from_form(form, Some(own))).transpose().map_err(refuse::registry)?;
    let layers = Layers { request: from_request.as_ref(), own };
    let planned =
        plan::plan_within(intake.request(), layers, budget).map_err(|refused| refuse::refusal(refused, budget))?;
    tracing::info!(
        design.id = planned.design_id,
        steps = planned.steps.len(),
        set_aside = planned.set_aside.len(),
        warnings = planned.warnings.len(),
        "design planned"
    );
    let parts = intake.parts(planned, traceparent);
    if parts.largest.bytes > limits.bytes {
        return Err(refuse::large_part(&parts.largest, limits.bytes).into());
    }
    Ok(parts)
}
