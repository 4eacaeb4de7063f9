//! What a run came to, gathered from its events.

use std::collections::BTreeMap;

use switchyard_proto::v1::{
    self, ExecuteResponse, RunStarted, RunSummary, StepResult, TargetResult, execute_response::Event,
};
use tonic::Status;

/// Everything that a run said.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The events as they came.
    pub events: Vec<ExecuteResponse>,
    /// The steps' results in the order in which the steps ended.
    pub results: Vec<StepResult>,
    /// The summary; one that came in several messages, put together.
    pub summary: RunSummary,
}

impl Outcome {
    /// Takes the next event in.
    pub fn take(&mut self, event: ExecuteResponse) {
        match &event.event {
            Some(Event::StepResult(result)) => self.results.push(result.clone()),
            Some(Event::Summary(summary)) => {
                let mut rows = std::mem::take(&mut self.summary.rows);
                self.summary = summary.clone();
                rows.append(&mut self.summary.rows);
                self.summary.rows = rows;
            }
            _ => {}
        }
        self.events.push(event);
    }

    /// Checks that the run was told to its end.
    pub(crate) fn whole(self) -> Result<Self, Status> {
        if self.summary.complete {
            Ok(self)
        } else {
            Err(Status::data_loss("the stream ended without a complete summary"))
        }
    }

    /// Returns how the run began, or nothing if it did not.
    pub fn started(&self) -> Option<&RunStarted> {
        self.events.iter().find_map(|event| match &event.event {
            Some(Event::RunStarted(started)) => Some(started),
            _ => None,
        })
    }

    /// Returns the results of single targets, in the order in which they came.
    pub fn targets(&self) -> impl Iterator<Item = &TargetResult> {
        self.events.iter().filter_map(|event| match &event.event {
            Some(Event::TargetResult(result)) => Some(result),
            _ => None,
        })
    }

    /// Returns the result of the component with this name; the first, if several share it.
    pub fn result(&self, component: &str) -> Option<&StepResult> {
        self.results.iter().find(|result| name_of(result) == component)
    }

    /// Returns how a component ended on one cluster, as its own event says it: differences stand there alone.
    pub fn target(&self, component: &str, cluster: &str) -> Option<&TargetResult> {
        let step_id = &self.result(component)?.step_id;
        let name = v1::target_result::Target::Cluster(cluster.to_owned());
        self.targets().find(|target| target.step_id == *step_id && target.target.as_ref() == Some(&name))
    }

    /// Returns how each component ended, by name. Of several that share a name the last to end counts.
    pub fn outcomes(&self) -> BTreeMap<&str, v1::Outcome> {
        self.results.iter().map(|result| (name_of(result), result.outcome())).collect()
    }

    /// Returns the verdict.
    pub fn verdict(&self) -> v1::Verdict {
        self.summary.verdict()
    }
}

fn name_of(result: &StepResult) -> &str {
    result.component.as_ref().map_or("", |component| component.name.as_str())
}
