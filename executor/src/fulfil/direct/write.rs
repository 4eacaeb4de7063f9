//! Writes a step's object to a cluster, or removes it there.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
};

use bytes::Bytes;
use switchyard_proto::v1::{Evidence, Operation};
use switchyard_service::budget::Budget;
use tokio::{
    sync::OnceCell,
    time::{Instant, timeout_at},
};

use super::{ADOPTED, Direct, Settled, Task, altered, conflict, done, gone, listed::Lists, rewritten, taken_over};
use crate::{
    answers::{
        classify::{self, Subject, Verdict},
        failure::{Failure, Reason},
    },
    cluster::{
        Change,
        apply::{self, Applied, Patch},
        definition,
        discovery::Resource,
        look_back::{self, LookBack},
        readiness::{self, Awaited},
        remove,
    },
    core::{
        plan::{self, Plan},
        target::{ClusterIx, Clusters, StepIx},
    },
    fulfil::{Attempt, Done, Order, Ready},
    mask::Secrets,
    record::locks::Past,
};

/// A namespace by cluster and name, and whether it was created.
type Created = BTreeMap<(ClusterIx, String), Arc<OnceCell<()>>>;

/// By step and cluster: the uid of what is removed, as the first attempt saw it.
type FirstSeen = BTreeMap<(StepIx, ClusterIx), Arc<OnceLock<String>>>;

/// Carries out the direct steps of one plan.
pub(crate) struct Write {
    pub(super) direct: Direct,
    /// Namespaces that were created because they were missing (D14): once each.
    created: Mutex<Created>,
    removed: Mutex<FirstSeen>,
    pub(super) lists: Lists,
}

impl Write {
    /// `past` is what is known of the design in the clusters, and `room` what pages of lists count against.
    pub(crate) fn new(direct: Direct, past: Clusters<Past>, room: Budget) -> Self {
        let lists = Lists::new(&direct.plan, past, room);
        Self { direct, created: Mutex::default(), removed: Mutex::default(), lists }
    }

    pub(crate) async fn carry_out(&self, object: &plan::Direct, cluster: ClusterIx, order: &Order) -> Attempt {
        let act = async |task: Task<'_>| match self.direct.plan.operation {
            Operation::Undeploy => Box::pin(self.remove(&task)).await,
            Operation::Deploy | Operation::Unspecified if self.lists(cluster) => Box::pin(self.need_be(task)).await,
            Operation::Deploy | Operation::Unspecified => self.mark_and_apply(&task).await,
        };
        self.direct.attempt((object, cluster), order, act).await
    }

    /// Applies the object, unless it is there without a design's mark and such are not to be adopted.
    pub(super) async fn mark_and_apply(&self, task: &Task<'_>) -> Attempt {
        match self.direct.refuse_unmarked(task).await {
            Ok(()) => self.apply(task).await,
            Err(verdict) => Attempt::ended(verdict),
        }
    }

    async fn apply(&self, task: &Task<'_>) -> Attempt {
        let Task { cluster, direct, order, subject, .. } = task;
        let sent = Instant::now();
        let mut outcome = apply::apply(cluster, &self.direct.patch(task), order.answer_by).await;
        let took = Some(sent.elapsed());
        let (mut sent, mut shared_with) = (1, None);
        if let Some(conflict) = conflict(&outcome.result) {
            match Box::pin(self.direct.settle(task, conflict)).await {
                Ok(Settled::Force { from }) => {
                    let forced = Patch { force: true, ..self.direct.patch(task) };
                    outcome = Box::pin(apply::apply(cluster, &forced, order.answer_by)).await;
                    outcome.warnings.extend(from.as_deref().map(taken_over));
                    sent += 1;
                }
                Ok(Settled::Shared { applied, with }) => {
                    outcome.result = Ok(applied);
                    shared_with = Some(with);
                }
                Err(verdict) => outcome.result = Err(verdict),
            }
        }
        // Forcing may have left the other manager no field to be seen by.
        if let Ok(applied) = &outcome.result
            && (applied.has_others || sent > 1)
            && Box::pin(self.direct.was_adopted(task, applied)).await
        {
            outcome.warnings.push(ADOPTED.into());
        }
        if let Ok(applied) = &mut outcome.result
            && applied.of_kubectl.is_some()
        {
            let (patch, force) = (self.direct.patch(task), self.direct.plan.options.force_conflicts);
            let (applied, patch) = (std::mem::take(applied), Patch { force, ..patch });
            let settled = Box::pin(apply::settle_with_kubectl(cluster, &patch, applied, force, order.answer_by)).await;
            outcome.result = settled.result;
            outcome.warnings.extend(settled.warnings);
        }
        let altered = match &outcome.result {
            Ok(applied) if self.direct.plan.options.report_altered && applied.change != Change::Unchanged => {
                let after = serde_json::from_slice(&applied.body);
                after.map(|after| altered(direct, &after, &self.direct.secrets)).unwrap_or_default()
            }
            Ok(_) | Err(_) => Vec::new(),
        };
        outcome.warnings.extend(rewritten(&altered));
        let result = match outcome.result {
            Err(Verdict::Refused(failure))
                if failure.reason == Reason::NamespaceNotFound && self.direct.plan.options.create_namespaces =>
            {
                Err(Box::pin(self.create_namespace(task, failure)).await)
            }
            Ok(applied) if direct.head.is_definition() || self.direct.plan.options.wait_until_ready => {
                Box::pin(self.conclude(task, applied, shared_with.as_deref())).await
            }
            Ok(applied) => Ok(done(subject, applied, Vec::new())),
            Err(verdict) => match self.direct.tell(verdict, subject, direct, order) {
                Verdict::Refused(failure) if order.lost_since.is_some() => {
                    let patch = self.direct.patch(task);
                    let seen = Box::pin(look_back::applied(cluster, &patch)).await;
                    let applied = decide(seen, failure);
                    applied.map(|applied| Done { evidence: Evidence::Read, ..done(subject, applied, Vec::new()) })
                }
                verdict => Err(verdict),
            },
        };
        let result = result.map(|done| {
            let evidence = if shared_with.is_some() { Evidence::Read } else { done.evidence };
            Done { shared_with, altered, evidence, ..done }
        });
        Attempt { result, sent, took, warnings: outcome.warnings, checked: Vec::new() }
    }

    /// Waits for what has to be waited for once the object is as it should be. `shared_with` is another design that it belongs to.
    pub(super) async fn conclude(
        &self,
        task: &Task<'_>,
        applied: Applied,
        shared_with: Option<&str>,
    ) -> Result<Done, Verdict> {
        let Task { cluster, direct, order, subject, .. } = task;
        let Plan { options, design, .. } = &*self.direct.plan;
        if direct.head.is_definition() {
            order.progress.written();
            definition::served(cluster, subject.api_version, subject.name, &order.stop, order.deadline).await?;
            let readiness = options.wait_until_ready.then(Ready::served);
            return Ok(Done { readiness, ..done(subject, applied, Vec::new()) });
        }
        match options.wait_until_ready {
            true => Ok(self.until_ready(task, applied, shared_with.unwrap_or(&design.id)).await),
            false => Ok(done(subject, applied, Vec::new())),
        }
    }

    /// Waits until the object, which carries the mark of the design `design_id`, is ready.
    async fn until_ready(&self, task: &Task<'_>, applied: Applied, design_id: &str) -> Done {
        let Task { cluster, order, subject, .. } = task;
        order.progress.written();
        let masked = |report| {
            let secrets = Secrets::around(&task.direct.manifest, &self.direct.secrets);
            Ready::masked(report, &secrets)
        };
        let awaited = Awaited {
            tell: &|report| order.progress.waiting(masked(report)),
            subject: subject.clone(),
            resource: &task.resource,
            design_id,
            written: serde_json::from_slice(&applied.body).ok(),
        };
        let report = readiness::until_ready(cluster, awaited, &order.stop, order.deadline).await;
        Done { readiness: Some(masked(report)), ..done(subject, applied, Vec::new()) }
    }

    async fn remove(&self, task: &Task<'_>) -> Attempt {
        let order = task.order;
        let first_seen = {
            let mut removed = self.removed.lock().expect("nothing panics while it holds the lock");
            removed.entry((order.step, task.at)).or_default().clone()
        };
        let removal = self.direct.removal(task, &first_seen);
        let accepted = || order.progress.written();
        let outcome = remove::remove(task.cluster, &removal, order.answer_by, order.deadline, accepted).await;
        let result = match outcome.result {
            Ok(removed) => Ok(gone(task, removed)),
            Err(Verdict::Refused(failure)) if order.lost_since.is_some() => {
                let seen = look_back::removed(task.cluster, &task.subject, &task.resource).await;
                decide(seen, failure).map(|applied| {
                    let applied = Applied { namespace: task.subject.namespace.to_owned(), ..applied };
                    Done { evidence: Evidence::Read, ..done(&task.subject, applied, Vec::new()) }
                })
            }
            Err(verdict) => Err(verdict),
        };
        Attempt { result, sent: outcome.sent, took: None, warnings: outcome.warnings, checked: Vec::new() }
    }

    /// Creates the object's namespace, once however many objects miss it, and asks for another attempt.
    async fn create_namespace(&self, task: &Task<'_>, missing: Failure) -> Verdict {
        let Task { cluster, at, order, subject, .. } = task;
        let key = (*at, subject.namespace.to_owned());
        let cell = self.created.lock().expect("nothing panics while it holds the lock").entry(key).or_default().clone();
        let create = || async {
            let name = subject.namespace;
            let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let resource = Resource { plural: "namespaces".into(), namespaced: false, has_status: false };
            let patch = Patch {
                subject: Subject { api_version: "v1", kind: "Namespace", namespace: "", name, ..subject.clone() },
                resource: &resource,
                manifest: Bytes::from(manifest.to_string()),
                known_version: None,
                manager: &self.direct.manager,
                force: false,
                attempt: 1,
                lost_since: None,
            };
            apply::apply(cluster, &patch, order.answer_by).await.result.map(|_| ())
        };
        // Who waits for another to create it waits until its own deadline.
        let created = timeout_at(order.answer_by, cell.get_or_try_init(create)).await;
        match created.unwrap_or(Ok(&())) {
            Ok(()) => classify::namespace_created(missing),
            Err(Verdict::Refused(failure)) => Verdict::Refused(Failure {
                message: format!("{}; creating it failed: {}", missing.message, failure.message),
                ..failure
            }),
            Err(verdict) => verdict,
        }
    }
}

/// What a refusal means after an attempt whose answer was lost, by what a read showed of that one.
fn decide(seen: LookBack, refused: Failure) -> Result<Applied, Verdict> {
    match seen {
        LookBack::Done(applied) => Ok(applied),
        LookBack::NotDone => Err(Verdict::Refused(refused)),
        LookBack::Open => Err(classify::in_doubt(refused)),
    }
}
