//! The object as it is sent: with the annotation that says what it was applied from (L4).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tokio::time::Instant;

use super::Direct;
use crate::{
    cluster::Cluster,
    core::{
        plan::{self, Plan, Step},
        target::StepIx,
    },
    proof::Stamp,
};

/// What tells the definitions apart whose kinds the plan has objects of. A definition that was just changed is in the API server's
/// own documents only later.
pub(super) fn definitions(plan: &Plan) -> BTreeMap<StepIx, String> {
    let objects = plan.steps.iter().filter_map(Step::object);
    let brought: BTreeSet<_> = objects.filter_map(|object| object.kind_by).collect();
    let digest = |ix: StepIx| {
        let definition = plan.steps[ix].object()?;
        Some((ix, format!("definition {}", Stamp::new(&definition.manifest)?.put("").digest)))
    };
    brought.into_iter().filter_map(digest).collect()
}

impl Direct {
    /// The object as it is sent to a cluster. Where nobody can tell which schema its kind has there, it says nothing of itself.
    pub(super) async fn stamped(&self, step: StepIx, object: &plan::Direct, cluster: &Cluster, by: Instant) -> Bytes {
        let Some(stamp) = self.stamp(step, object) else { return object.manifest.clone() };
        match self.schema(object, cluster, by).await {
            Some(schema) => stamp.put(schema).manifest,
            None => stamp.unstamped(),
        }
    }

    pub(super) fn stamp(&self, step: StepIx, object: &plan::Direct) -> Option<Stamp> {
        let steps = &self.plan.steps;
        let depends_on: Vec<_> = steps[step].depends_on.iter().map(|before| steps[*before].id.as_str()).collect();
        Some(Stamp::new(&object.manifest)?.after(&depends_on))
    }

    /// What the schema of the object's kind is called.
    pub(super) async fn schema<'a>(
        &'a self,
        object: &plan::Direct,
        cluster: &'a Cluster,
        by: Instant,
    ) -> Option<&'a str> {
        match object.kind_by {
            Some(definition) => self.definitions.get(&definition).map(String::as_str),
            None => cluster.schema(&object.head.api_version, by).await,
        }
    }
}
