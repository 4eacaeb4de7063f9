//! The direct path: applies a step's object to one cluster, removes it, or asks what either would do (S18, S20, S22).

mod existing;
mod rehearse;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
};

use bytes::Bytes;
use serde_json::Value;
use switchyard_proto::v1::{self, ObjectRef, Operation};
use tokio::{
    sync::OnceCell,
    time::{Instant, timeout_at},
};

use self::existing::{ADOPTED, Settled, taken_over};
use super::{Attempt, Done, Order, Ready};
use crate::{
    classify::{self, Provided, Provider, ProviderState, Referred, Subject, Verdict},
    cluster::{
        Change, Cluster,
        apply::{self, Applied, Patch},
        contents::Everywhere,
        definition,
        discovery::{self, Absence, Resource},
        look_back::{self, LookBack},
        ownership,
        readiness::{self, Awaited},
        remove::{self, Removal},
    },
    diff::FieldDiff,
    failure::{Failure, Reason},
    mask::{OfDesign, Secrets},
    plan::{self, Plan, Work},
    present::compare,
    schedule::{Lane, StepIx},
};

/// Fields that were altered are told up to this many, and named in a warning up to that many.
const MOST_ALTERED: usize = 20;
const NAMED: usize = 5;

/// A namespace by lane and name, and whether it was created.
type Created = BTreeMap<(u16, String), Arc<OnceCell<()>>>;

/// By step and lane: the uid of what is removed, as the first attempt saw it.
type FirstSeen = BTreeMap<(StepIx, Lane), Arc<OnceLock<String>>>;

/// Carries out the direct steps of one plan.
pub(crate) struct Direct {
    plan: Arc<Plan>,
    /// By lane.
    clusters: Vec<Arc<Cluster>>,
    /// The design's field manager.
    manager: String,
    /// Namespaces that were created because they were missing (D14): once each.
    created: Mutex<Created>,
    removed: Mutex<FirstSeen>,
    secrets: Arc<OfDesign>,
    /// What controllers put into every namespace.
    everywhere: Arc<Everywhere>,
}

/// What the cases of one attempt have in common.
struct Task<'a> {
    cluster: &'a Cluster,
    direct: &'a plan::Direct,
    order: &'a Order,
    subject: Subject<'a>,
    resource: Resource,
}

impl Direct {
    pub(crate) fn new(
        plan: Arc<Plan>,
        clusters: Vec<Arc<Cluster>>,
        secrets: Arc<OfDesign>,
        everywhere: Arc<Everywhere>,
    ) -> Self {
        let manager = ownership::manager(&plan.design.id);
        Self { manager, plan, clusters, created: Mutex::default(), removed: Mutex::default(), secrets, everywhere }
    }

    pub(crate) async fn carry_out(&self, direct: &plan::Direct, order: &Order) -> Attempt {
        let attempt = self.attempt(direct, order).await;
        match attempt.result {
            // What ends before anything is sent says nothing of an attempt before, whose answer was lost.
            Err(Verdict::Refused(failure)) if order.lost_since.is_some() && attempt.sent == 0 => {
                Attempt { result: Err(classify::in_doubt(failure)), ..attempt }
            }
            _ => attempt,
        }
    }

    async fn attempt(&self, direct: &plan::Direct, order: &Order) -> Attempt {
        let cluster = &*self.clusters[order.lane.0 as usize];
        let head = &direct.head;
        let options = &self.plan.options;
        let mut subject = Subject {
            cluster: &cluster.name,
            api_version: &head.api_version,
            kind: &head.kind,
            namespace: head.metadata.namespace.as_deref().unwrap_or(&options.default_namespace),
            name: &head.metadata.name,
            kind_in_design: direct.kind_by.is_some(),
            namespace_in_design: direct.namespace_by.is_some(),
        };
        // What is known will do if it holds the kind; what is not known is asked for anew.
        let found = cluster.find(subject.api_version, subject.kind, Instant::now(), order.answer_by).await;
        let undeploys = self.plan.operation == Operation::Undeploy;
        let elsewhere;
        let resource = match found {
            Ok(resource) => resource,
            Err(discovery::Error::Unknown { .. }) if undeploys => {
                match Box::pin(cluster.absence(subject.api_version, subject.kind, order.answer_by)).await {
                    // Its objects are the same in every version.
                    Ok(Absence::Elsewhere(version, resource)) => {
                        elsewhere = version;
                        subject.api_version = &elsewhere;
                        resource
                    }
                    // The adapter may be the only one that knows it.
                    Ok(Absence::Proven) if self.is_of_an_adapter(order) && !subject.kind_in_design => {
                        let verdict = classify::kind_unknown(&subject, None, None);
                        return Attempt::ended(self.tell(verdict, &subject, direct, order));
                    }
                    // No kind, no objects (D18, case 67).
                    Ok(Absence::Proven) => return Attempt::done(absent(&subject), 0),
                    Err(why) => return Attempt::ended(classify::discovery_failed(&subject, &why)),
                }
            }
            Err(discovery::Error::Unknown { near }) => {
                // Asked once: what another version serves will hardly come in this one, and what the design brings may.
                let elsewhere = match order.attempt == 1 && !subject.kind_in_design {
                    true => Box::pin(cluster.other_version(subject.api_version, subject.kind, order.answer_by)).await,
                    false => None,
                };
                let verdict = classify::kind_unknown(&subject, near.as_deref(), elsewhere.as_deref());
                return Attempt::ended(self.tell(verdict, &subject, direct, order));
            }
            Err(discovery::Error::NoVersion) => return Attempt::ended(classify::no_version(&subject)),
            Err(discovery::Error::Failed(why)) => return Attempt::ended(classify::discovery_failed(&subject, &why)),
        };
        let mut warnings = Vec::new();
        let mut task = Task { cluster, direct, order, subject, resource };
        if !task.resource.namespaced {
            if task.subject.namespace != options.default_namespace {
                warnings.push(format!("{} is cluster-scoped, so its namespace was left out", head.kind));
            }
            task.subject.namespace = "";
        }
        if !undeploys
            && self.plan.options.existing == v1::Existing::RefuseUnmarked
            && let Err(verdict) = Box::pin(self.refuse_unmarked(&task)).await
        {
            return Attempt { warnings, ..Attempt::ended(verdict) };
        }
        let mut attempt = match (undeploys, self.plan.dry_run) {
            (false, false) => self.apply(&task).await,
            (false, true) => Box::pin(self.rehearse(&task)).await,
            (true, _) => Box::pin(self.remove(&task)).await,
        };
        warnings.append(&mut attempt.warnings);
        Attempt { warnings, ..attempt }
    }

    /// Whether it is a rehearsal for an adapter, which does otherwise than a PATCH does: it writes the whole object whoever has
    /// fields of it, and may bring the namespace along and the kind (case 306).
    fn is_of_an_adapter(&self, order: &Order) -> bool {
        matches!(self.plan.steps[order.step.0 as usize].work, Work::Adapter(_))
    }

    /// What the cluster would say to the object that an adapter is asked for.
    pub(crate) async fn rehearse_for_adapter(&self, adapter: &plan::Adapter, order: &Order) -> Attempt {
        let note = "adapters are not called in a dry run";
        let Some(object) = &adapter.object else {
            let text = format!("cannot tell in a dry run: the component is not a Kubernetes object, and {note}");
            return Attempt::ended(Verdict::Unknown(Failure::new(Reason::KindUnknown, text)));
        };
        let mut attempt = self.carry_out(object, order).await;
        attempt.warnings.push(note.into());
        attempt
    }

    async fn apply(&self, task: &Task<'_>) -> Attempt {
        let Task { cluster, direct, order, subject, .. } = task;
        let sent = Instant::now();
        let mut outcome = apply::apply(cluster, &self.patch(task), order.answer_by).await;
        let took = Some(sent.elapsed());
        let (mut sent, mut shared_with) = (1, None);
        if let Some(conflict) = conflict(&outcome.result) {
            match Box::pin(self.settle(task, conflict)).await {
                Ok(Settled::Force { from }) => {
                    let forced = Patch { force: true, ..self.patch(task) };
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
            && Box::pin(self.was_adopted(task, applied)).await
        {
            outcome.warnings.push(ADOPTED.into());
        }
        let altered = match &outcome.result {
            Ok(applied) if self.plan.options.report_altered && applied.change != Change::Unchanged => {
                let after = serde_json::from_slice(&applied.body);
                after.map(|after| altered(direct, &after, &self.secrets)).unwrap_or_default()
            }
            Ok(_) | Err(_) => Vec::new(),
        };
        outcome.warnings.extend(rewritten(&altered));
        let result = match outcome.result {
            Err(Verdict::Refused(failure))
                if failure.reason == Reason::NamespaceNotFound && self.plan.options.create_namespaces =>
            {
                Err(Box::pin(self.create_namespace(task, failure)).await)
            }
            Ok(applied) if direct.head.is_definition() => {
                order.progress.written();
                let served =
                    definition::served(cluster, subject.api_version, subject.name, &order.stop, order.deadline);
                Box::pin(served).await.map(|()| Done {
                    readiness: self.plan.options.wait_until_ready.then(Ready::served),
                    ..done(subject, applied, Vec::new())
                })
            }
            Ok(applied) if self.plan.options.wait_until_ready => {
                let design_id = shared_with.as_deref().unwrap_or(&self.plan.design.id);
                Ok(Box::pin(self.until_ready(task, applied, design_id)).await)
            }
            Ok(applied) => Ok(done(subject, applied, Vec::new())),
            Err(verdict) => match self.tell(verdict, subject, direct, order) {
                Verdict::Refused(failure) if order.lost_since.is_some() => {
                    let patch = self.patch(task);
                    let seen = Box::pin(look_back::applied(cluster, &patch)).await;
                    decide(seen, failure).map(|applied| done(subject, applied, Vec::new()))
                }
                verdict => Err(verdict),
            },
        };
        let result = result.map(|done| Done { shared_with, altered, ..done });
        Attempt { result, sent, took, warnings: outcome.warnings, checked: Vec::new() }
    }

    /// Waits until the object, which carries the mark of the design `design_id`, is ready.
    async fn until_ready(&self, task: &Task<'_>, applied: Applied, design_id: &str) -> Done {
        let Task { cluster, order, subject, .. } = task;
        order.progress.written();
        let masked = |report| {
            let secrets = Secrets::around(&task.direct.manifest, &self.secrets);
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
            removed.entry((order.step, order.lane)).or_default().clone()
        };
        let removal = Removal {
            subject: task.subject.clone(),
            resource: &task.resource,
            design_id: &self.plan.design.id,
            leaves_shared: self.plan.options.existing == v1::Existing::Share,
            manifest: &task.direct.manifest,
            delete_foreign: self.plan.options.delete_foreign,
            everywhere: &self.everywhere,
            dry_run: self.plan.dry_run,
            attempt: order.attempt,
            lost_before: order.lost_since.is_some(),
            first_seen: &first_seen,
            stop: &order.stop,
        };
        let accepted = || order.progress.written();
        let outcome = remove::remove(task.cluster, &removal, order.answer_by, order.deadline, accepted).await;
        let result = match outcome.result {
            Ok(removed) => {
                let applied = Applied {
                    change: removed.change,
                    namespace: task.subject.namespace.to_owned(),
                    uid: removed.uid,
                    ..Applied::default()
                };
                Ok(Done { shared_with: removed.shared_with, ..done(&task.subject, applied, Vec::new()) })
            }
            Err(Verdict::Refused(failure)) if order.lost_since.is_some() => {
                let seen = look_back::removed(task.cluster, &task.subject, &task.resource).await;
                decide(seen, failure).map(|applied| {
                    let namespace = task.subject.namespace.to_owned();
                    done(&task.subject, Applied { namespace, ..applied }, Vec::new())
                })
            }
            Err(verdict) => Err(verdict),
        };
        Attempt { result, sent: outcome.sent, took: None, warnings: outcome.warnings, checked: Vec::new() }
    }

    fn patch<'a>(&'a self, task: &'a Task<'a>) -> Patch<'a> {
        Patch {
            subject: task.subject.clone(),
            resource: &task.resource,
            manifest: task.direct.manifest.clone(),
            manager: &self.manager,
            force: false,
            dry_run: self.plan.dry_run,
            attempt: task.order.attempt,
            lost_since: task.order.lost_since,
        }
    }

    /// The verdict in the light of what other components of the design bring along.
    fn tell(&self, verdict: Verdict, subject: &Subject<'_>, direct: &plan::Direct, order: &Order) -> Verdict {
        let provider = |step: StepIx| Provider {
            component: self.plan.steps[step.0 as usize].component.name.as_str(),
            state: match order.without.iter().find(|(without, _)| *without == step) {
                None => ProviderState::Sound,
                Some((_, true)) => ProviderState::Failed,
                Some((_, false)) => ProviderState::Missing,
            },
        };
        let reference =
            |it: &plan::Reference| Referred { kind: it.kind.clone(), name: it.name.clone(), by: provider(it.by) };
        let referred: Vec<_> = direct.refers_to.iter().map(reference).collect();
        let provided = Provided {
            kind: direct.kind_by.map(provider),
            namespace: direct.namespace_by.map(provider),
            referred: &referred,
            chart: self.plan.steps[order.step.0 as usize].chart.is_some(),
            adapter: self.is_of_an_adapter(order),
            creates_namespaces: self.plan.options.create_namespaces,
            dry_run: self.plan.dry_run,
        };
        classify::in_light_of(provided, verdict, subject)
    }

    /// Creates the object's namespace, once however many objects miss it, and asks for another attempt.
    async fn create_namespace(&self, task: &Task<'_>, missing: Failure) -> Verdict {
        let Task { cluster, order, subject, .. } = task;
        let key = (order.lane.0, subject.namespace.to_owned());
        let cell = self.created.lock().expect("nothing panics while it holds the lock").entry(key).or_default().clone();
        let create = || async {
            let name = subject.namespace;
            let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let resource = Resource { plural: "namespaces".into(), namespaced: false, has_status: false };
            let patch = Patch {
                subject: Subject { api_version: "v1", kind: "Namespace", namespace: "", name, ..subject.clone() },
                resource: &resource,
                manifest: Bytes::from(manifest.to_string()),
                manager: &self.manager,
                force: false,
                dry_run: false,
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

/// Declared fields that the API server took and holds otherwise (case 219), masked.
fn altered(direct: &plan::Direct, after: &Value, of_design: &OfDesign) -> Vec<FieldDiff> {
    let Ok(declared) = serde_json::from_slice::<Value>(&direct.manifest) else { return Vec::new() };
    let mut differences = compare::differences(&declared, after);
    if differences.is_empty() {
        return Vec::new();
    }
    differences.truncate(MOST_ALTERED);
    let secrets = Secrets::around(&direct.manifest, of_design).and(Secrets::of_value(after));
    let told = compare::tell(&differences, |text| secrets.mask(text)).into_iter();
    // What was sent came before what is held.
    told.map(|FieldDiff { path, before, after }| FieldDiff { path, before: after, after: before }).collect()
}

/// What to say of fields that were altered.
fn rewritten(altered: &[FieldDiff]) -> Option<String> {
    if altered.is_empty() {
        return None;
    }
    let paths: Vec<_> = altered.iter().take(NAMED).map(|field| field.path.as_str()).collect();
    let more = if altered.len() > NAMED { format!(" and {} more", altered.len() - NAMED) } else { String::new() };
    Some(format!(
        "the cluster holds other values than were sent in {}{more}, as a mutating webhook or policy has it",
        paths.join(", ")
    ))
}

/// The conflict that a request ended in.
fn conflict<T>(result: &Result<T, Verdict>) -> Option<Failure> {
    match result {
        Err(Verdict::Refused(failure)) if failure.reason == Reason::Conflict => Some(failure.clone()),
        Ok(_) | Err(_) => None,
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

fn done(subject: &Subject<'_>, applied: Applied, diff: Vec<FieldDiff>) -> Done {
    let object = ObjectRef {
        api_version: subject.api_version.to_owned(),
        kind: subject.kind.to_owned(),
        namespace: applied.namespace,
        name: subject.name.to_owned(),
        uid: applied.uid,
        resource_version: applied.resource_version,
    };
    Done {
        change: applied.change.into(),
        object: Some(object),
        diff,
        diff_left_out: 0,
        altered: Vec::new(),
        readiness: None,
        shared_with: None,
    }
}

fn absent(subject: &Subject<'_>) -> Done {
    done(subject, Applied { change: Change::Absent, ..Applied::default() }, Vec::new())
}
