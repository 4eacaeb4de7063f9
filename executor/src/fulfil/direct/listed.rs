//! What lists show of the plan's objects, and what is left as it is because of that (L3, L4).

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Mutex,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use serde::Deserialize;
use serde_json::Value;
use switchyard_proto::v1::Evidence;
use switchyard_service::budget::Budget;
use tokio::{
    sync::OnceCell,
    time::{Duration, Instant},
};

use super::{Direct, Task, write::Write};
use crate::{
    cluster::{Change, apply::Applied, holdings},
    fulfil::{Attempt, Done},
    locks::Past,
    plan::{self, Plan, Work},
    proof::{Stamp, Unproven, Wanted, prove},
    target::{ClusterIx, Clusters, StepIx},
};

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

/// What the lists of one cluster show of the plan's objects.
#[derive(Default)]
pub(super) struct Listed(HashMap<StepIx, Seen>);

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
        let may_be_there = self.lists.past.get(cluster).is_some_and(|past| *past != Past::Nothing);
        may_be_there && !self.direct.plan.options.write_always
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
        let listed = self.lists.by_cluster.get(task.at)?.get_or_init(|| self.list(task.at, by).boxed());
        listed.await.0.get(&order.step)
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
        let mut kinds = BTreeMap::<_, Vec<_>>::new();
        for (ix, step) in self.direct.plan.steps.iter_enumerated() {
            let Work::Direct(direct) = &step.work else { continue };
            if direct.clusters.contains(&at) {
                let kind = (direct.head.api_version.as_str(), direct.head.kind.as_str());
                kinds.entry(kind).or_default().push((ix, direct));
            }
        }
        let mut lists = Vec::with_capacity(kinds.len());
        for (kind, objects) in kinds {
            lists.push(self.list_kind(at, kind, objects, by).boxed());
        }
        let seen: Vec<_> = stream::iter(lists).buffer_unordered(AT_ONCE).collect().await;
        Listed(seen.into_iter().flatten().collect())
    }

    /// What a list of one kind shows of the plan's objects; nothing where it cannot be listed.
    async fn list_kind(
        &self,
        at: ClusterIx,
        (api_version, kind): (&str, &str),
        objects: Vec<(StepIx, &plan::Direct)>,
        by: Instant,
    ) -> HashMap<StepIx, Seen> {
        let Direct { plan, manager, sites, .. } = &self.direct;
        let cluster = &*sites[at].cluster;
        let Some((_, first)) = objects.first() else { return HashMap::new() };
        let (Ok(resource), Some(schema)) =
            (cluster.find(api_version, kind, Instant::now(), by).await, self.direct.schema(first, cluster, by).await)
        else {
            return HashMap::new();
        };
        let namespace = |direct: &plan::Direct| match resource.namespaced {
            true => direct.head.metadata.namespace.as_ref().unwrap_or(&plan.options.default_namespace).clone(),
            false => String::new(),
        };
        let namespaces = objects.iter().map(|(_, direct)| namespace(direct)).collect();
        let mut wanted = HashMap::<_, Option<_>>::new();
        for (ix, direct) in &objects {
            let place = (namespace(direct), direct.head.metadata.name.clone());
            // Of two steps that mean one object, each may undo what the other did.
            wanted.entry(place).and_modify(|known| *known = None).or_insert(Some((*ix, *direct)));
        }
        let is_kept = plan.options.wait_until_ready && resource.has_status;
        let keep = |text: &str| {
            let Item { metadata } = serde_json::from_str(text).ok()?;
            let Metadata { name, namespace, uid, resource_version } = metadata;
            let place = (namespace, name);
            let (ix, direct) = (*wanted.get(&place)?)?;
            // Read whole one at a time, and gone with its verdict: it may be secret.
            let object: Value = serde_json::from_str(text).ok()?;
            let verdict = Stamp::new(&direct.manifest).ok_or(Unproven::Form).and_then(|stamp| {
                let stamped = stamp.put(schema);
                prove(&Wanted { manager, api_version, stamped: &stamped }, &object)
            });
            let body = if is_kept { whole(object, api_version, kind) } else { Bytes::new() };
            Some((ix, Seen { verdict, namespace: place.0, uid, resource_version, body }))
        };
        let asked = holdings::Wanted {
            design_id: &plan.design.id,
            api_version,
            kind,
            resource: resource.clone(),
            namespaces: &namespaces,
        };
        let listed = match holdings::objects(cluster, &asked, &self.lists.room, by, keep).await {
            Ok(listed) => listed,
            Err(why) => {
                tracing::debug!(cluster = cluster.name, kind, why, "the design's objects of a kind cannot be listed");
                return HashMap::new();
            }
        };
        let mut seen = HashMap::<StepIx, Seen>::new();
        for (ix, object) in listed {
            // One name is one object; a list that says otherwise proves nothing.
            let twice = |known: &mut Seen| known.verdict = Err(Unproven::Form);
            seen.entry(ix).and_modify(twice).or_insert(object);
        }
        seen
    }
}

/// An item as an object of its own: in lists they do not always say of which kind they are.
fn whole(mut object: Value, api_version: &str, kind: &str) -> Bytes {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object.to_string().into()
}
