//! A plan, gathered from the parts it comes in.

use switchyard_proto::{
    digest,
    v1::{PlanHeader, PlanResponse, PlanStep, PlanTrailer, execute_request, plan_response::Part},
};
use tonic::{Status, Streaming};

/// A whole plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanParts {
    /// What holds for all steps.
    pub header: PlanHeader,
    /// The steps in the plan's order.
    pub steps: Vec<PlanStep>,
    /// The last part.
    pub trailer: PlanTrailer,
}

impl PlanParts {
    /// Gathers what Plan answers. A stream that is not one header, steps and one trailer is an error (DATA_LOSS).
    pub(crate) async fn gather(mut parts: Streaming<PlanResponse>) -> Result<Self, Status> {
        let wrong = |what: &str| Status::data_loss(format!("the planner's answer is no plan: {what}"));
        let Some(Part::Header(header)) = parts.message().await?.and_then(|first| first.part) else {
            return Err(wrong("it does not begin with a header"));
        };
        let mut steps = Vec::with_capacity(header.step_count as usize);
        let trailer = loop {
            match parts.message().await?.and_then(|next| next.part) {
                Some(Part::Step(step)) => steps.push(step),
                Some(Part::Trailer(trailer)) => break trailer,
                Some(Part::Header(_)) => return Err(wrong("it has two headers")),
                Some(Part::Problem(_)) => return Err(wrong("it holds a problem, which was not asked for")),
                Some(Part::Encoded(_)) => return Err(wrong("it is in bytes, which were not asked for")),
                None => return Err(wrong("it ends without a trailer")),
            }
        };
        match parts.message().await? {
            None => Ok(Self { header, steps, trailer }),
            Some(_) => Err(wrong("it goes on after its trailer")),
        }
    }

    /// Returns the step of the component with this name; the first, if several share it.
    pub fn step(&self, component: &str) -> Option<&PlanStep> {
        self.steps.iter().find(|step| name_of(step) == component)
    }

    /// Returns the name of the component behind a step id.
    pub fn name(&self, step_id: &str) -> Option<&str> {
        self.steps.iter().find(|step| step.id == step_id).map(name_of)
    }

    /// Returns the components' names in the plan's order.
    pub fn names(&self) -> Vec<&str> {
        self.steps.iter().map(name_of).collect()
    }

    /// Gives a plan that was changed the id and the counts that go with what it now is.
    #[must_use]
    pub fn resealed(mut self) -> Self {
        self.header.step_count = self.steps.len() as u32;
        self.header.plan_id = digest::plan_id(&self.header, &self.steps);
        self.trailer = PlanTrailer { plan_id: self.header.plan_id.clone(), step_count: self.header.step_count };
        self
    }

    /// Turns the plan into what Execute is sent, in order.
    pub fn into_parts(self) -> impl Iterator<Item = execute_request::Part> {
        let Self { header, steps, trailer } = self;
        std::iter::once(execute_request::Part::Header(header))
            .chain(steps.into_iter().map(execute_request::Part::Step))
            .chain(std::iter::once(execute_request::Part::Trailer(trailer)))
    }
}

fn name_of(step: &PlanStep) -> &str {
    step.component.as_ref().map_or("", |component| component.name.as_str())
}
