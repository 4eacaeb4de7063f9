//! What a cluster would say to an object (S22, D20).
//!
//! The API server goes all the way and stores nothing, so it cannot be asked about an object whose namespace comes with the
//! design. Such an object is tried in a namespace that is there (L11): what the server says of the object itself holds there too,
//! what it says of the place does not.

use std::sync::{Mutex, OnceLock};

use serde_json::Value;
use switchyard_proto::v1::{Evidence, Operation};

use super::{ADOPTED, Direct, Settled, Task, altered, conflict, defined::Schemas, done, gone, rewritten, taken_over};
use crate::{
    answers::{
        classify::{self, Subject, Verdict},
        failure::{Failure, Reason},
    },
    cluster::{
        Change,
        apply::{self, Marks, Outcome, Patch, Rehearsed},
        remove,
    },
    core::{plan, target::ClusterIx},
    fulfil::{Attempt, Done, Order},
};

/// Every cluster has it.
const TRIED_IN: &str = "default";

/// Rehearses the direct steps of one plan, and what adapters are asked for. Nothing here writes.
pub(crate) struct Rehearse {
    pub(super) direct: Direct,
    /// Of kinds that the design defines.
    pub(super) schemas: Mutex<Schemas>,
}

impl Rehearse {
    pub(crate) fn new(direct: Direct) -> Self {
        let direct = Direct { in_light: classify::in_light_of_rehearsal, ..direct };
        Self { direct, schemas: Mutex::default() }
    }

    pub(crate) async fn rehearse(&self, object: &plan::Direct, cluster: ClusterIx, order: &Order) -> Attempt {
        let act = async |task: Task<'_>| match self.direct.plan.operation {
            Operation::Undeploy => self.removal(&task).await,
            Operation::Deploy | Operation::Unspecified => match self.direct.refuse_unmarked(&task).await {
                Ok(()) => self.apply(&task).await,
                Err(verdict) => Attempt::ended(verdict),
            },
        };
        let attempt = Box::pin(self.direct.attempt((object, cluster), order, act)).await;
        match attempt.result {
            Err(missing @ Verdict::Unknown(_))
                if attempt.sent == 0 && missing.failure().reason == Reason::KindUnknown =>
            {
                Box::pin(self.by_definition(missing, (object, cluster), order)).await
            }
            _ => attempt,
        }
    }

    async fn removal(&self, task: &Task<'_>) -> Attempt {
        let first_seen = OnceLock::new();
        let outcome =
            remove::rehearse(task.cluster, &self.direct.removal(task, &first_seen), task.order.answer_by).await;
        let result = outcome.result.map(|removed| gone(task, removed));
        Attempt { result, sent: outcome.sent, took: None, warnings: outcome.warnings, checked: Vec::new() }
    }

    async fn apply(&self, task: &Task<'_>) -> Attempt {
        let (cluster, by) = (task.cluster, task.order.answer_by);
        let mut outcome = apply::rehearse(cluster, &self.direct.patch(task), Marks::Count, by).await;
        let (mut sent, mut shared_with) = (1, None);
        if let Some(conflict) = conflict(&outcome.result) {
            match self.direct.settle(task, conflict).await {
                Ok(Settled::Force { from }) => {
                    let forced = Patch { force: true, ..self.direct.patch(task) };
                    outcome = apply::rehearse(cluster, &forced, Marks::Count, by).await;
                    outcome.warnings.extend(from.as_deref().map(taken_over));
                    sent += 1;
                }
                Ok(Settled::Shared { applied, with }) => {
                    outcome.result = Ok(Rehearsed { applied, ..Rehearsed::default() });
                    shared_with = Some(with);
                }
                Err(verdict) => outcome.result = Err(verdict),
            }
        }
        if outcome.result.as_ref().is_ok_and(|rehearsed| rehearsed.adopts) {
            outcome.warnings.push(ADOPTED.into());
        }
        let result = match outcome.result {
            Ok(rehearsed) => Ok(rehearsed),
            Err(verdict) => match self.direct.tell(verdict, &task.subject, task.direct, task.order) {
                Verdict::Unknown(missing) if missing.reason == Reason::NamespaceNotFound && self.comes(task) => {
                    sent += 1;
                    let tried = self.try_elsewhere(task, Verdict::Unknown(missing)).await;
                    outcome.warnings.extend(tried.warnings);
                    tried.result
                }
                verdict => Err(verdict),
            },
        };
        let result = result.map(|Rehearsed { applied, diff, diff_left_out, after, .. }| {
            let altered = after.map(|after| altered(task.direct, &after, &self.direct.secrets)).unwrap_or_default();
            outcome.warnings.extend(rewritten(&altered));
            let force = self.direct.plan.options.force_conflicts;
            let of_kubectl = applied.of_kubectl.as_deref();
            outcome.warnings.extend(of_kubectl.map(|held| apply::rehearsed_with_kubectl(held, force)));
            let evidence = Evidence::Read;
            Done { shared_with, altered, diff_left_out, evidence, ..done(&task.subject, applied, diff) }
        });
        Attempt { result, sent, took: None, warnings: outcome.warnings, checked: Vec::new() }
    }

    /// Whether the run itself would bring the object's namespace along.
    fn comes(&self, task: &Task<'_>) -> bool {
        let is_created = self.direct.plan.options.create_namespaces && !self.direct.is_of_an_adapter(task.order);
        task.direct.namespace_by.is_some() || is_created
    }

    /// Tries an object whose namespace is `missing` in one that is there. What is wrong with the object itself is wrong
    /// everywhere; whatever else stands in its way there leaves what is `missing`.
    async fn try_elsewhere(&self, task: &Task<'_>, missing: Verdict) -> Outcome<Rehearsed> {
        let cannot_tell = |missing| Outcome { result: Err(missing), warnings: Vec::new() };
        let Some(manifest) = in_namespace(&task.manifest, TRIED_IN) else { return cannot_tell(missing) };
        let subject = Subject { namespace: TRIED_IN, ..task.subject.clone() };
        let patch = Patch { subject, manifest: manifest.into(), ..self.direct.patch(task) };
        let mut tried = apply::rehearse(task.cluster, &patch, Marks::Count, task.order.answer_by).await;
        let namespace = task.subject.namespace;
        tried.result = match tried.result {
            // Another object of that name tells nothing of this one.
            Ok(Rehearsed { applied, .. }) if applied.change != Change::Created => return cannot_tell(missing),
            Ok(mut rehearsed) => {
                rehearsed.applied.namespace = namespace.to_owned();
                if let Some(after) = &mut rehearsed.after {
                    after["metadata"]["namespace"] = namespace.into();
                }
                tried.warnings.push(format!(
                    "tried in namespace {TRIED_IN}, since namespace {namespace} would only be there in the run"
                ));
                Ok(rehearsed)
            }
            Err(Verdict::Refused(failure)) if matches!(failure.reason, Reason::Invalid | Reason::TooLarge) => {
                let text = format!("{} (tried in namespace {TRIED_IN})", failure.message);
                Err(Verdict::Refused(Failure { message: text, ..failure }))
            }
            Err(_) => return cannot_tell(missing),
        };
        tried
    }
}

/// The object as JSON, in another namespace.
fn in_namespace(manifest: &[u8], namespace: &str) -> Option<String> {
    let mut object: Value = serde_json::from_slice(manifest).ok()?;
    object.get_mut("metadata")?.as_object_mut()?.insert("namespace".into(), namespace.into());
    Some(object.to_string())
}
