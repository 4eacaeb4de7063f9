//! What lists show of the plan's objects, and what is left as it is because of that (L3, L4).

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Mutex,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use switchyard_proto::v1::{Evidence, Prune};
use switchyard_service::budget::Budget;
use tokio::{
    sync::OnceCell,
    time::{Duration, Instant},
};

use super::{Direct, Task, write::Write};
use crate::{
    cluster::{
        Change, Cluster,
        apply::Applied,
        discovery::{self, Absence, Resource},
        holdings,
    },
    core::{
        kind::group,
        plan::{self, Plan, Work},
        target::{ClusterIx, Clusters, StepIx},
    },
    fulfil::{Attempt, Done, ObjectId},
    proof::{DEPENDS_ON, Unproven, Wanted, prove},
    record::locks::Past,
};

/// The annotation that says which component an object is (D11).
const COMPONENT_ID: &str = "component.meshery.io/id";
/// Kinds that are listed at the same time on one cluster.
const AT_ONCE: usize = 8;
/// How long all lists of a cluster may take. What they do not show is written.
const PATIENCE: Duration = Duration::from_secs(30);

/// The lists of a run.
pub(super) struct Lists {
    /// What is known of the design's past in each cluster. Empty where nothing says anything.
    past: Clusters<Past>,
    by_cluster: Clusters<OnceCell<Listed>>,
    /// What pages that are looked at count against.
    room: Budget,
    /// Steps that may have changed something in a cluster in this run.
    touched: Mutex<HashSet<(StepIx, ClusterIx)>>,
}

/// What the lists of one cluster show.
#[derive(Default)]
pub(super) struct Listed {
    /// The plan's objects.
    seen: HashMap<StepIx, Seen>,
    /// Objects of the design that no step of the plan is.
    pub(super) others: Vec<Other>,
}

/// An object of the design that no step of the plan is.
pub(super) struct Other {
    pub(super) object: ObjectId,
    pub(super) resource: Resource,
    /// What its annotations say.
    pub(super) component: String,
    pub(super) depends_on: Vec<String>,
    /// Whether the executor has applied it itself.
    pub(super) is_ours: bool,
}

/// What is kept of an item.
enum Kept {
    Planned(StepIx, Seen),
    Other(Box<Other>),
}

/// One of the plan's objects as a list had it.
pub(super) struct Seen {
    verdict: Result<(), Unproven>,
    namespace: String,
    uid: String,
    pub(super) resource_version: String,
    /// The object as JSON, if it will be asked whether it is ready.
    body: Bytes,
}

/// What an item is called.
#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
}

/// What else is looked at of an item that no step of the plan is.
#[derive(Deserialize)]
struct Unplanned {
    metadata: Marks,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Marks {
    annotations: BTreeMap<String, String>,
    owner_references: Vec<IgnoredAny>,
    managed_fields: Vec<Entry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    manager: String,
    operation: String,
}

impl Lists {
    pub(super) fn new(plan: &Plan, past: Clusters<Past>, room: Budget) -> Self {
        let by_cluster = plan.clusters.iter().map(|_| OnceCell::new()).collect();
        Self { past, by_cluster, room, touched: Mutex::default() }
    }

    /// Marks a step as one that may change something in a cluster, or takes the mark away.
    fn touch(&self, at: (StepIx, ClusterIx), touched: bool) {
        let mut steps = self.touched.lock().expect("nothing panics while it holds the lock");
        if touched {
            steps.insert(at)
        } else {
            steps.remove(&at)
        };
    }

    fn is_touched(&self, at: (StepIx, ClusterIx)) -> bool {
        self.touched.lock().expect("nothing panics while it holds the lock").contains(&at)
    }
}

impl Write {
    /// Whether the design's objects are listed in a cluster before anything is written there: only where it was before, or may
    /// have been.
    pub(super) fn lists(&self, cluster: ClusterIx) -> bool {
        self.may_be_there(cluster) && !self.direct.plan.options.write_always
    }

    /// Applies the object, or leaves it as it is if need be not.
    pub(super) async fn need_be(&self, mut task: Task<'_>) -> Attempt {
        let seen = self.seen(&task).await;
        match seen {
            Some(seen) if self.may_leave(&task, seen) => return self.leave(&task, seen).await,
            Some(seen) => task.listed = Some(&seen.resource_version),
            None => {}
        }
        let at = (task.order.step, task.at);
        self.lists.touch(at, true);
        let attempt = self.mark_and_apply(&task).await;
        let is_unchanged = attempt.result.as_ref().is_ok_and(|done| done.change == Change::Unchanged.into());
        if is_unchanged && task.order.attempt == 1 {
            self.lists.touch(at, false);
        }
        attempt
    }

    /// What the lists show of the task's object.
    async fn seen(&self, task: &Task<'_>) -> Option<&Seen> {
        let order = task.order;
        // Whatever the lists cost, time for the write is left.
        let now = Instant::now();
        let by = now + (order.answer_by.saturating_duration_since(now) / 2).min(PATIENCE);
        self.listed(task.at, by).await?.seen.get(&order.step)
    }

    /// What the lists of a cluster show. They are taken once.
    pub(super) async fn listed(&self, cluster: ClusterIx, by: Instant) -> Option<&Listed> {
        Some(self.lists.by_cluster.get(cluster)?.get_or_init(|| self.list(cluster, by).boxed()).await)
    }

    /// Whether the design was in a cluster before, or may have been.
    pub(super) fn may_be_there(&self, cluster: ClusterIx) -> bool {
        self.lists.past.get(cluster).is_some_and(|past| *past != Past::Nothing)
    }

    /// Whether the object may be left as it is: it is proven to be as it should be, and nothing that it depends on has changed since.
    fn may_leave(&self, task: &Task<'_>, seen: &Seen) -> bool {
        let (order, steps) = (task.order, &self.direct.plan.steps);
        let is_touched =
            |before: StepIx| matches!(steps[before].work, Work::Adapter(_)) || self.lists.is_touched((before, task.at));
        let step = &steps[order.step];
        let is_first = order.attempt == 1 && order.lost_since.is_none();
        seen.verdict.is_ok() && is_first && step.chart.is_none() && !step.before().any(is_touched)
    }

    /// Leaves the object as it is.
    async fn leave(&self, task: &Task<'_>, seen: &Seen) -> Attempt {
        let applied = Applied {
            change: Change::Unchanged,
            namespace: seen.namespace.clone(),
            uid: seen.uid.clone(),
            resource_version: seen.resource_version.clone(),
            body: seen.body.clone(),
            ..Applied::default()
        };
        let result = self.conclude(task, applied, None).await;
        let result = result.map(|done| Done { evidence: Evidence::Listed, ..done });
        Attempt { result, sent: 0, took: None, warnings: Vec::new(), checked: Vec::new() }
    }

    async fn list(&self, at: ClusterIx, by: Instant) -> Listed {
        let plan = &self.direct.plan;
        let mut kinds = BTreeMap::<(String, String), Vec<_>>::new();
        for (ix, step) in plan.steps.iter_enumerated() {
            let Work::Direct(direct) = &step.work else { continue };
            if direct.clusters.contains(&at) {
                let kind = (direct.head.api_version.clone(), direct.head.kind.clone());
                kinds.entry(kind).or_default().push((ix, direct));
            }
        }
        if plan.options.prune != Prune::Never {
            let known = match self.lists.past.get(at) {
                Some(Past::Kinds(kinds)) => kinds.clone(),
                _ => plan.kinds_on(at).collect(),
            };
            for (api_version, kind) in known.iter() {
                // The objects of a kind are the same in every version.
                let is_listed =
                    |(version, of_plan): &(String, String)| of_plan == kind && group(version) == group(api_version);
                if !kinds.keys().any(is_listed) {
                    kinds.insert((api_version.into(), kind.into()), Vec::new());
                }
            }
        }
        let mut lists = Vec::with_capacity(kinds.len());
        for (kind, objects) in kinds {
            lists.push(self.list_kind(at, kind, objects, by).boxed());
        }
        let kept: Vec<_> = stream::iter(lists).buffer_unordered(AT_ONCE).collect().await;
        let mut listed = Listed::default();
        for kept in kept.into_iter().flatten() {
            match kept {
                Kept::Planned(ix, object) => {
                    // One name is one object; a list that says otherwise proves nothing.
                    let twice = |known: &mut Seen| known.verdict = Err(Unproven::Form);
                    listed.seen.entry(ix).and_modify(twice).or_insert(object);
                }
                Kept::Other(other) => listed.others.push(*other),
            }
        }
        listed
    }

    /// What a list of one kind shows; nothing where it cannot be listed.
    async fn list_kind(
        &self,
        at: ClusterIx,
        (api_version, kind): (String, String),
        objects: Vec<(StepIx, &plan::Direct)>,
        by: Instant,
    ) -> Vec<Kept> {
        let Direct { plan, manager, sites, .. } = &self.direct;
        let cluster = &*sites[at].cluster;
        let Some((api_version, resource)) = self.served(cluster, api_version, &kind, by).await else {
            return Vec::new();
        };
        let schema = match objects.first() {
            Some((_, first)) => self.direct.schema(first, cluster, by).await,
            None => None,
        };
        let namespace = |direct: &plan::Direct| match resource.namespaced {
            true => direct.head.metadata.namespace.as_ref().unwrap_or(&plan.options.default_namespace).clone(),
            false => String::new(),
        };
        let mut wanted = HashMap::<_, Option<_>>::new();
        for (ix, direct) in &objects {
            let place = (namespace(direct), direct.head.metadata.name.clone());
            // Of two steps that mean one object, each may undo what the other did.
            wanted.entry(place).and_modify(|known| *known = None).or_insert(Some((*ix, *direct)));
        }
        let is_of_kind =
            |object: &&plan::Direct| object.head.kind == kind && object.head.group() == group(&api_version);
        let planned = plan.steps.iter().filter_map(plan::Step::object).filter(is_of_kind);
        let planned: HashSet<_> = planned.map(|it| (namespace(it), it.head.metadata.name.clone())).collect();
        let namespaces = plan.steps.iter().filter_map(plan::Step::object).map(namespace).collect();
        let is_kept = plan.options.wait_until_ready && resource.has_status;
        let keep = |text: &str| {
            let Item { metadata } = serde_json::from_str(text).ok()?;
            let Metadata { name, namespace, uid, resource_version, deletion_timestamp } = metadata;
            let place = (namespace, name);
            if !planned.contains(&place) && deletion_timestamp.is_none() && plan.options.prune != Prune::Never {
                let (namespace, name) = place;
                let (api_version, kind) = (api_version.clone(), kind.clone());
                let object = ObjectId { api_version, kind, namespace, name, uid, resource_version };
                return other(text, object, &resource, manager).map(Kept::Other);
            }
            let (ix, direct) = (*wanted.get(&place)?)?;
            // Read whole one at a time, and gone with its verdict: it may be secret.
            let object: Value = serde_json::from_str(text).ok()?;
            let verdict = match (self.direct.stamp(ix, direct), schema) {
                (Some(stamp), Some(schema)) => {
                    let stamped = stamp.put(schema);
                    prove(&Wanted { manager, api_version: &api_version, stamped: &stamped }, &object)
                }
                _ => Err(Unproven::Form),
            };
            let body = if is_kept { whole(object, &api_version, &kind) } else { Bytes::new() };
            Some(Kept::Planned(ix, Seen { verdict, namespace: place.0, uid, resource_version, body }))
        };
        let asked = holdings::Wanted {
            design_id: &plan.design.id,
            api_version: &api_version,
            kind: &kind,
            resource: resource.clone(),
            namespaces: &namespaces,
        };
        holdings::objects(cluster, &asked, &self.lists.room, by, keep).await.unwrap_or_else(|why| {
            tracing::debug!(cluster = cluster.name, kind, why, "the design's objects of a kind cannot be listed");
            Vec::new()
        })
    }

    /// Where a kind is served, in the version asked for or else in another; nothing where that cannot be told.
    async fn served(
        &self,
        cluster: &Cluster,
        api_version: String,
        kind: &str,
        by: Instant,
    ) -> Option<(String, Resource)> {
        match cluster.find(&api_version, kind, Instant::now(), by).await {
            Ok(resource) => Some((api_version, resource)),
            Err(discovery::Error::Unknown { .. }) => match cluster.absence(&api_version, kind, by).await {
                Ok(Absence::Elsewhere(version, resource)) => Some((version, resource)),
                Ok(Absence::Proven) | Err(_) => None,
            },
            Err(_) => None,
        }
    }
}

/// An item that no step of the plan is; nothing if it is of a controller, which copies the labels of what it works for.
fn other(text: &str, object: ObjectId, resource: &Resource, manager: &str) -> Option<Box<Other>> {
    let Unplanned { metadata: Marks { annotations, owner_references, managed_fields } } =
        serde_json::from_str(text).ok()?;
    let is_ours = managed_fields.iter().any(|entry| entry.manager == manager && entry.operation == "Apply");
    if !is_ours && !owner_references.is_empty() {
        return None;
    }
    let annotation = |name: &str| annotations.get(name).map(String::as_str).unwrap_or_default();
    let depends_on = annotation(DEPENDS_ON).split(',').filter(|id| !id.is_empty()).map(String::from);
    Some(Box::new(Other {
        object,
        resource: resource.clone(),
        component: annotation(COMPONENT_ID).to_owned(),
        depends_on: depends_on.collect(),
        is_ours,
    }))
}

/// An item as an object of its own: in lists they do not always say of which kind they are.
fn whole(mut object: Value, api_version: &str, kind: &str) -> Bytes {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object.to_string().into()
}
