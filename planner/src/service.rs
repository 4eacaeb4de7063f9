//! `switchyard.v1.PlannerService`: request in, plan out. The one place that knows [`tonic::Status`].
//!
//! A request has a [`Budget`] of memory from when it has come in to the last part of its answer, waits for its turn in one of the
//! `lanes`, and is planned off the runtime. Planning ends when it takes too long, and when nobody waits for it any more.

mod door;
mod lanes;
mod refuse;
mod weigh;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use switchyard_proto::v1::{self, PlanRequest, PlanResponse};
use switchyard_service::status::Refusal;
use switchyard_service::{budget, status, telemetry};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tracing::Span;

pub use self::door::Door;
use self::lanes::Lanes;
use crate::budget::Budget;
use crate::convert::{self, Intake, Parts, Unfit};
use crate::document::Limits;
use crate::plan;
use crate::problem::Problem;
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

    /// What this planner is.
    fn capabilities(&self, max_message_bytes: usize) -> v1::PlannerServiceGetCapabilitiesResponse {
        v1::PlannerServiceGetCapabilitiesResponse {
            version: env!("CARGO_PKG_VERSION").into(),
            features: ["encoded", "problems_as_parts", "existing"].map(String::from).into(),
            max_message_bytes: max_message_bytes as u64,
            max_clusters: convert::MOST_CLUSTERS as u32,
            max_planning_time: self.bounds.time.try_into().ok(),
        }
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
        let problems_as_parts = request.problems_as_parts;
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
        let planned = planned.map_err(|error| {
            tracing::error!(%error, "planning ended in a panic");
            status::internal().into_status()
        })?;
        let parts = match planned {
            Ok(parts) => parts,
            Err(Refused { status, why: Some(why) }) if problems_as_parts => {
                let problems = convert::problems(why).map(|problem| Ok(part(problem)));
                return Ok(Response::new(Box::pin(tokio_stream::iter(problems.chain([Err(status)])))));
            }
            Err(Refused { status, .. }) => return Err(status),
        };
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

fn part(problem: v1::Problem) -> PlanResponse {
    PlanResponse { part: Some(v1::plan_response::Part::Problem(problem)) }
}

/// Why there is no plan: the status that says so, and what it is about, if that is more than fits into a status.
struct Refused {
    status: Status,
    why: Option<plan::Refusal>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { status: refusal.into_status(), why: None }
    }
}

fn plan(
    request: PlanRequest,
    own: &Registry,
    limits: Limits,
    traceparent: String,
    budget: &Budget,
) -> Result<Parts, Refused> {
    let mut intake = Intake::new(request, limits).map_err(unfit)?;
    let form = intake.registry.take();
    let from_request = form.map(|form| Registry::from_form(form, Some(own))).transpose().map_err(refuse::registry)?;
    let layers = Layers { request: from_request.as_ref(), own };
    let planned = plan::plan_within(intake.request(), layers, budget)
        .map_err(|why| Refused { status: refuse::refusal(&why, budget).into_status(), why: Some(why) })?;
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

/// A request that cannot be planned. What is wrong with a structured design is a problem like others.
fn unfit(unfit: Unfit) -> Refused {
    let why = match &unfit {
        Unfit::Design(problem) => {
            let problems = vec![Problem::clone(problem)];
            Some(plan::Refusal::Design { problems, left_out: 0, addresses: Vec::new() })
        }
        Unfit::TooLarge { .. } | Unfit::Mistakes(_) => None,
    };
    Refused { status: refuse::unfit(unfit).into_status(), why }
}
