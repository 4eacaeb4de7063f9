//! `switchyard.v1.PlannerService`: request in, plan out. The one place that knows [`tonic::Status`].

mod refuse;

use std::pin::Pin;
use std::sync::Arc;

use switchyard_proto::v1::planner_service_server::PlannerService;
use switchyard_proto::v1::{PlanRequest, PlanResponse};
use switchyard_service::{status, telemetry};
use tokio::sync::Semaphore;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tracing::Span;

use crate::convert::{Intake, Parts};
use crate::document::Limits;
use crate::plan;
use crate::registry::watch::Shared;
use crate::registry::{Layers, Registry};

/// The service.
pub struct Planner {
    registry: Shared,
    limits: Limits,
    /// Planning is work for a processor, and a large design takes memory: more at once than there are processors would
    /// only make each slower.
    working: Arc<Semaphore>,
}

impl Planner {
    /// A service that plans with this registry and reads documents within these limits.
    pub fn new(registry: Shared, limits: Limits) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { registry, limits, working: Arc::new(Semaphore::new(processors)) }
    }
}

/// The parts of a plan, one after the other.
pub type PlanStream = Pin<Box<dyn Stream<Item = Result<PlanResponse, Status>> + Send>>;

#[tonic::async_trait]
impl PlannerService for Planner {
    type PlanStream = PlanStream;

    async fn plan(&self, request: Request<PlanRequest>) -> Result<Response<PlanStream>, Status> {
        let traceparent = telemetry::traceparent_for_plan(request.metadata()).unwrap_or_default();
        let request = request.into_inner();
        let registry = self.registry.now();
        let limits = self.limits;
        let permit = Arc::clone(&self.working).acquire_owned().await.map_err(|_| status::internal().into_status())?;
        let span = Span::current();
        let planning = tokio::task::spawn_blocking(move || {
            let parts = span.in_scope(|| plan(request, &registry, limits, traceparent));
            drop(permit);
            parts
        });
        let parts = planning.await.map_err(|error| {
            tracing::error!(%error, "planning ended in a panic");
            status::internal().into_status()
        })?;
        Ok(Response::new(Box::pin(tokio_stream::iter(parts?.into_iter().map(Ok)))))
    }
}

fn plan(request: PlanRequest, own: &Registry, limits: Limits, traceparent: String) -> Result<Parts, Status> {
    let mut intake = Intake::new(request, limits).map_err(refuse::unfit)?;
    let form = intake.registry.take();
    let from_request = form.map(|form| Registry::from_form(form, Some(own))).transpose().map_err(refuse::registry)?;
    let layers = Layers { request: from_request.as_ref(), own };
    let planned = plan::plan(intake.request(), layers).map_err(refuse::refusal)?;
    tracing::info!(
        design.id = planned.design_id,
        steps = planned.steps.len(),
        set_aside = planned.set_aside.len(),
        warnings = planned.warnings.len(),
        "design planned"
    );
    Ok(intake.parts(planned, traceparent))
}
