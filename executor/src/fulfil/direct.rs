//! The direct path: applies a step's object to one cluster, removes it, or asks what either would do (S18, S20, S22).
//!
//! What both who write and who rehearse have in common is here, and reads only.

mod defined;
mod existing;
mod left_over;
mod listed;
mod rehearse;
mod stamped;
mod write;

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use serde_json::Value;
use switchyard_proto::v1::{self, Evidence, Operation};
use tokio::time::Instant;

use self::existing::{ADOPTED, Settled, taken_over};
pub(crate) use self::{rehearse::Rehearse, write::Write};
use super::{Attempt, Done, ObjectId, Order, Site};
use crate::{
    answers::{
        classify::{self, Provided, Provider, ProviderState, Referred, Subject, Verdict},
        failure::{Failure, Reason},
    },
    cluster::{
        Change, Cluster,
        apply::{Applied, Patch},
        contents::Everywhere,
        discovery::{self, Absence, Resource},
        ownership,
        remove::{Removal, Removed},
    },
    core::{
        plan::{self, Plan, Work},
        schedule::Standing,
        target::{ClusterIx, Clusters, StepIx},
    },
    mask::{OfDesign, Secrets},
    present::{compare, diff::FieldDiff},
};

/// Fields that were altered are told up to this many, and named in a warning up to that many.
const MOST_ALTERED: usize = 20;
const NAMED: usize = 5;

/// The direct steps of one plan, and where they go.
pub(crate) struct Direct {
    plan: Arc<Plan>,
    sites: Arc<Clusters<Site>>,
    /// The design's field manager.
    manager: String,
    secrets: Arc<OfDesign>,
    /// What controllers put into every namespace.
    everywhere: Arc<Everywhere>,
    /// What tells the definitions of the design apart, by the step that brings them.
    definitions: BTreeMap<StepIx, String>,
    /// The verdict in the light of what other components bring along.
    in_light: fn(Provided<'_>, Verdict, &Subject<'_>) -> Verdict,
}

/// What the cases of one attempt have in common.
struct Task<'a> {
    cluster: &'a Cluster,
    at: ClusterIx,
    direct: &'a plan::Direct,
    order: &'a Order,
    subject: Subject<'a>,
    resource: Resource,
    /// The object as JSON, as it is sent.
    manifest: Bytes,
    /// Its resource version before it is written, where a list showed it.
    listed: Option<&'a str>,
}

impl Direct {
    pub(crate) fn new(
        plan: Arc<Plan>,
        sites: Arc<Clusters<Site>>,
        secrets: Arc<OfDesign>,
        everywhere: Arc<Everywhere>,
    ) -> Self {
        let (manager, definitions) = (ownership::manager(&plan.design.id), stamped::definitions(&plan));
        Self { manager, plan, sites, secrets, everywhere, definitions, in_light: classify::in_light_of }
    }

    /// Makes an attempt at an object on a cluster: finds out where it is there, and has `act` do the rest.
    async fn attempt(
        &self,
        what: (&plan::Direct, ClusterIx),
        order: &Order,
        act: impl AsyncFnOnce(Task<'_>) -> Attempt,
    ) -> Attempt {
        let attempt = self.located(what, order, act).await;
        match attempt.result {
            // What ends before anything is sent says nothing of an attempt before, whose answer was lost.
            Err(Verdict::Refused(failure)) if order.lost_since.is_some() && attempt.sent == 0 => {
                Attempt { result: Err(classify::in_doubt(failure)), ..attempt }
            }
            _ => attempt,
        }
    }

    async fn located(
        &self,
        (direct, at): (&plan::Direct, ClusterIx),
        order: &Order,
        act: impl AsyncFnOnce(Task<'_>) -> Attempt,
    ) -> Attempt {
        let cluster = &*self.sites[at].cluster;
        let head = &direct.head;
        let options = &self.plan.options;
        let mut subject = self.subject(direct, cluster);
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
        let manifest = match undeploys || self.is_of_an_adapter(order) {
            true => direct.manifest.clone(),
            false => self.stamped(order.step, direct, cluster, order.answer_by).await,
        };
        let mut task = Task { cluster, at, direct, order, subject, resource, manifest, listed: None };
        if !task.resource.namespaced {
            if task.subject.namespace != options.default_namespace {
                warnings.push(format!("{} is cluster-scoped, so its namespace was left out", head.kind));
            }
            task.subject.namespace = "";
        }
        let mut attempt = act(task).await;
        warnings.append(&mut attempt.warnings);
        Attempt { warnings, ..attempt }
    }

    /// What an object is as the design has it.
    fn subject<'a>(&'a self, direct: &'a plan::Direct, cluster: &'a Cluster) -> Subject<'a> {
        let head = &direct.head;
        Subject {
            cluster: &cluster.name,
            api_version: &head.api_version,
            kind: &head.kind,
            namespace: head.metadata.namespace.as_deref().unwrap_or(&self.plan.options.default_namespace),
            name: &head.metadata.name,
            kind_in_design: direct.kind_by.is_some(),
            namespace_in_design: direct.namespace_by.is_some(),
        }
    }

    /// Whether it is a rehearsal for an adapter, which does otherwise than a PATCH does: it writes the whole object whoever has
    /// fields of it, and may bring the namespace along and the kind (case 306).
    fn is_of_an_adapter(&self, order: &Order) -> bool {
        matches!(self.plan.steps[order.step].work, Work::Adapter(_))
    }

    fn patch<'a>(&'a self, task: &'a Task<'a>) -> Patch<'a> {
        Patch {
            subject: task.subject.clone(),
            resource: &task.resource,
            manifest: task.manifest.clone(),
            known_version: task.listed,
            manager: &self.manager,
            force: false,
            attempt: task.order.attempt,
            lost_since: task.order.lost_since,
        }
    }

    fn removal<'a>(&'a self, task: &'a Task<'a>, first_seen: &'a OnceLock<String>) -> Removal<'a> {
        Removal {
            subject: task.subject.clone(),
            resource: &task.resource,
            design_id: &self.plan.design.id,
            leaves_shared: self.plan.options.existing == v1::Existing::Share,
            manifest: &task.direct.manifest,
            delete_foreign: self.plan.options.delete_foreign,
            everywhere: &self.everywhere,
            attempt: task.order.attempt,
            lost_before: task.order.lost_since.is_some(),
            first_seen,
            stop: &task.order.stop,
        }
    }

    /// The verdict in the light of what other components of the design bring along.
    fn tell(&self, verdict: Verdict, subject: &Subject<'_>, direct: &plan::Direct, order: &Order) -> Verdict {
        let provider = |step: StepIx| Provider {
            component: self.plan.steps[step].component.name.as_str(),
            state: match order.without.iter().find(|(without, _)| *without == step) {
                None | Some((_, Standing::Sound)) => ProviderState::Sound,
                Some((_, Standing::Failed)) => ProviderState::Failed,
                Some((_, Standing::Missing)) => ProviderState::Missing,
            },
        };
        let reference =
            |it: &plan::Reference| Referred { kind: it.kind.clone(), name: it.name.clone(), by: provider(it.by) };
        let referred: Vec<_> = direct.refers_to.iter().map(reference).collect();
        let provided = Provided {
            kind: direct.kind_by.map(provider),
            namespace: direct.namespace_by.map(provider),
            referred: &referred,
            chart: self.plan.steps[order.step].chart.is_some(),
            adapter: self.is_of_an_adapter(order),
            creates_namespaces: self.plan.options.create_namespaces,
        };
        (self.in_light)(provided, verdict, subject)
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

/// What became of an object that was to go.
fn gone(task: &Task<'_>, removed: Removed) -> Done {
    let applied = Applied {
        change: removed.change,
        namespace: task.subject.namespace.to_owned(),
        uid: removed.uid,
        ..Applied::default()
    };
    let (shared_with, evidence) = (removed.shared_with, Evidence::Read);
    Done { shared_with, evidence, ..done(&task.subject, applied, Vec::new()) }
}

fn done(subject: &Subject<'_>, applied: Applied, diff: Vec<FieldDiff>) -> Done {
    let object = ObjectId {
        api_version: subject.api_version.to_owned(),
        kind: subject.kind.to_owned(),
        namespace: applied.namespace,
        name: subject.name.to_owned(),
        uid: applied.uid,
        resource_version: applied.resource_version,
    };
    Done { diff, evidence: Evidence::Written, ..Done::new(applied.change.into(), Some(object)) }
}

fn absent(subject: &Subject<'_>) -> Done {
    let applied = Applied { change: Change::Absent, ..Applied::default() };
    Done { evidence: Evidence::Read, ..done(subject, applied, Vec::new()) }
}
