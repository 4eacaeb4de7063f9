//! Plans made by hand, for tests of the executor alone.

use std::time::Duration;

use serde_json::Value;
use switchyard_proto::v1::{
    Component, DesignRef, DirectRoute, Operation, PlanHeader, PlanStep, PlanTrailer, RunOptions, plan_step::Route,
};
use uuid::Uuid;

use crate::client::PlanParts;

/// A plan in the making.
#[derive(Debug, Clone)]
pub struct Draft {
    header: PlanHeader,
    steps: Vec<PlanStep>,
}

impl Draft {
    /// Begins a plan to deploy a design of its own (no two drafts share one) on clusters.
    pub fn on(clusters: &[&str]) -> Self {
        let id = Uuid::new_v4().to_string();
        let header = PlanHeader {
            operation: Operation::Deploy.into(),
            clusters: clusters.iter().map(|&name| name.to_owned()).collect(),
            design: Some(DesignRef { name: format!("design {id}"), id, version: "0.0.1".to_owned() }),
            options: Some(RunOptions { default_namespace: "default".to_owned(), ..RunOptions::default() }),
            ..PlanHeader::default()
        };
        Self { header, steps: Vec::new() }
    }

    /// Changes the options.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut RunOptions)) -> Self {
        change(self.header.options.get_or_insert_default());
        self
    }

    /// Gives each step so many milliseconds on each cluster.
    #[must_use]
    pub fn step_timeout(self, milliseconds: u64) -> Self {
        let timeout = prost_types::Duration::try_from(Duration::from_millis(milliseconds));
        self.options(|options| options.step_timeout = timeout.ok())
    }

    /// Makes it a plan to take down. Its steps have to come in the order of removal.
    #[must_use]
    pub fn undeploy(mut self) -> Self {
        self.header.operation = Operation::Undeploy.into();
        self
    }

    /// Makes it a dry run.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.header.dry_run = true;
        self
    }

    /// Gives the design this id.
    #[must_use]
    pub fn design(mut self, id: &str) -> Self {
        self.header.design = Some(DesignRef { id: id.to_owned(), ..DesignRef::default() });
        self
    }

    /// Returns the design's id.
    pub fn design_id(&self) -> &str {
        self.header.design.as_ref().map_or("", |design| &design.id)
    }

    /// Adds a step that applies an object to all clusters, after the steps that it depends on. The component is called
    /// `name`, and so is the step.
    #[must_use]
    pub fn apply(mut self, name: &str, depends_on: &[&str], object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.steps.push(PlanStep {
            id: name.to_owned(),
            component: Some(Component {
                name: name.to_owned(),
                kind: text(&object["kind"]),
                api_version: text(&object["apiVersion"]),
                model: "kubernetes".to_owned(),
                ..Component::default()
            }),
            depends_on: depends_on.iter().map(|&id| id.to_owned()).collect(),
            route: Some(Route::Direct(DirectRoute {
                clusters: self.header.clusters.clone(),
                manifest: object.to_string(),
            })),
            ..PlanStep::default()
        });
        self
    }

    /// Has the last step run after others, whatever became of those.
    #[must_use]
    pub fn runs_after(mut self, others: &[&str]) -> Self {
        if let Some(last) = self.steps.last_mut() {
            last.runs_after = others.iter().map(|&id| id.to_owned()).collect();
        }
        self
    }

    /// Returns the names of the clusters.
    pub fn clusters(&self) -> &[String] {
        &self.header.clusters
    }

    /// Returns how many steps there are so far.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Ends the plan.
    pub fn seal(&self) -> PlanParts {
        let Self { header, steps } = self.clone();
        PlanParts { header, steps, trailer: PlanTrailer::default() }.resealed()
    }
}
