//! Which kinds a cluster serves, and where: asked only for the group versions that a plan needs, once (D12, cases 20, 29).
//!
//! A plan that turns out to need many is answered by one question for all of them (aggregated discovery, Kubernetes 1.26);
//! in a cluster with hundreds of definitions that answer is megabytes, so it is not the first one. What is known is kept for
//! the runs that follow, for a while: what turns out to be wrong is asked for anew.

pub(crate) mod aggregated;
mod groups;
mod plain;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{Request, StatusCode};
use kube::client::Body;
use serde::Deserialize;
use tokio::{
    sync::OnceCell,
    time::{Duration, Instant, timeout_at},
};

use super::{Cluster, Target};

/// A kind as a cluster serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// Name in paths, such as `configmaps`.
    pub(crate) plural: String,
    /// Whether its objects lie in namespaces.
    pub(crate) namespaced: bool,
    /// Whether its objects have a status of their own, which somebody reports.
    pub(crate) has_status: bool,
}

/// Why a kind was not found.
#[derive(Debug)]
pub(crate) enum Error {
    /// The cluster answered and does not serve the kind; perhaps it serves one of a similar name.
    Unknown { near: Option<String> },
    /// What should be an apiVersion can be none, so nothing was asked.
    NoVersion,
    /// The cluster did not say.
    Failed(String),
}

/// What the API server itself says of a kind that is not served in the version asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// No version of its group serves it, or there is no such group: so there are no objects of it.
    Proven,
    /// This version of its group serves it, and with it all of its objects.
    Elsewhere(String, Resource),
}

#[derive(Debug)]
struct GroupVersion {
    asked: Instant,
    /// Whether it is served at all. "Not found" alone is no proof that it is not: it may come from anybody on the way.
    is_served: bool,
    kinds: BTreeMap<String, Resource>,
}

type Cell = Arc<OnceCell<Arc<GroupVersion>>>;

/// Questions for single group versions before all are asked for at once.
const SINGLE_QUESTIONS: usize = 4;
/// How long the one question for all of them may take; what is not answered by then is asked for one by one (case 20).
const ALL_AT_ONCE: Duration = Duration::from_secs(5);
/// How long the question for one group version may take, whatever time the asker has: others wait for the answer too.
const ONE: Duration = Duration::from_secs(10);
/// How long what is known of a cluster is kept for the runs that follow.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// Clusters of which something is kept, at most.
const KEPT: usize = 256;

/// What is known of a cluster's kinds so far.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    known: Mutex<BTreeMap<String, Cell>>,
    /// Group versions that were asked for one by one.
    asked: AtomicUsize,
    /// Whether all was asked for.
    all: OnceCell<()>,
}

/// What is known of the clusters of the runs before, by who asked whom: others may be shown other things.
#[derive(Debug, Default)]
pub(crate) struct Known {
    clusters: Mutex<BTreeMap<Asker, (Instant, Arc<Discovery>)>>,
}

/// A digest of how a cluster is reached.
pub(crate) type Asker = [u8; 32];

impl Known {
    /// What is known of the cluster that is reached in this way.
    pub(crate) fn of(&self, asker: Asker) -> Arc<Discovery> {
        let mut clusters = self.clusters.lock().expect("nothing panics while it holds the lock");
        clusters.retain(|_, (since, _)| since.elapsed() < KEPT_FOR);
        if clusters.len() >= KEPT
            && let Some(oldest) = clusters.iter().min_by_key(|(_, (since, _))| *since).map(|(asker, _)| *asker)
        {
            clusters.remove(&oldest);
        }
        clusters.entry(asker).or_insert_with(|| (Instant::now(), Arc::default())).1.clone()
    }
}

#[derive(Deserialize)]
struct ResourceList {
    kind: String,
    #[serde(default, deserialize_with = "super::null_as_default")]
    resources: Vec<ResourceEntry>,
}

#[derive(Deserialize)]
struct ResourceEntry {
    name: String,
    kind: String,
    namespaced: bool,
}

impl Discovery {
    /// Finds `kind` of `api_version`. What is not found is asked for again unless the answer is younger than `since`: a kind
    /// may have come since (case 25).
    pub(crate) async fn find(
        &self,
        cluster: &Cluster,
        api_version: &str,
        kind: &str,
        since: Instant,
        by: Instant,
    ) -> Result<Resource, Error> {
        let mut known = self.group_version(cluster, api_version, by).await?;
        if !known.kinds.contains_key(kind) && known.asked < since {
            self.forget_stale(api_version, &known);
            known = self.group_version(cluster, api_version, by).await?;
        }
        known.kinds.get(kind).cloned().ok_or_else(|| {
            let near = known.kinds.keys().map(|known| (strsim::damerau_levenshtein(known, kind), known)).min();
            Error::Unknown { near: near.filter(|(distance, _)| *distance <= 3).map(|(_, known)| known.clone()) }
        })
    }

    /// Asks what became of a kind that [`find`](Self::find) does not know. Only a list of the API server's own that lacks it
    /// is proof of absence (D18, case 205).
    ///
    /// # Errors
    ///
    /// A sentence, when that cannot be told.
    pub(crate) async fn absence(
        &self,
        cluster: &Cluster,
        api_version: &str,
        kind: &str,
        by: Instant,
    ) -> Result<Absence, String> {
        for version in groups::versions(cluster, group(api_version), by).await? {
            match self.find(cluster, &version, kind, Instant::now(), by).await {
                Ok(resource) => return Ok(Absence::Elsewhere(version, resource)),
                Err(Error::Failed(why)) => return Err(why),
                Err(Error::Unknown { .. } | Error::NoVersion) => {}
            }
            let known = self.group_version(cluster, &version, by).await;
            if !known.is_ok_and(|known| known.is_served) {
                return Err(format!("it lists {version} among its groups and answers that it is not found"));
            }
        }
        Ok(Absence::Proven)
    }

    /// Another version of its group that serves a kind; none when there is none, or nobody can tell. Asks for the one group.
    pub(crate) async fn other_version(
        &self,
        cluster: &Cluster,
        api_version: &str,
        kind: &str,
        by: Instant,
    ) -> Option<String> {
        let versions = groups::versions_of(cluster, group(api_version), by).await?;
        for version in versions.into_iter().filter(|version| version != api_version) {
            if self.find(cluster, &version, kind, Instant::now(), by).await.is_ok() {
                return Some(version);
            }
        }
        None
    }

    async fn group_version(
        &self,
        cluster: &Cluster,
        api_version: &str,
        by: Instant,
    ) -> Result<Arc<GroupVersion>, Error> {
        let known = self.known().get(api_version).cloned();
        let cell = match known {
            Some(cell) => cell,
            None => {
                if self.asked.fetch_add(1, Ordering::Relaxed) >= SINGLE_QUESTIONS {
                    // Whatever comes of it, the single question that follows decides.
                    let all = self.all.get_or_init(|| Box::pin(self.ask_for_all(cluster, by)));
                    timeout_at(by, all).await.ok();
                }
                self.known().entry(api_version.to_owned()).or_default().clone()
            }
        };
        // One request however many steps need the answer; a failure is not kept. In a box, since most need no request. Who waits for
        // the answer to another's question waits until its own deadline (case 251).
        if let Some(known) = cell.get() {
            return Ok(known.clone());
        }
        let waited = Instant::now();
        match timeout_at(by, cell.get_or_try_init(|| Box::pin(ask(cluster, api_version, by)))).await {
            Ok(known) => known.cloned(),
            Err(_) => Err(Error::Failed(format!("no answer within {:.1?}", waited.elapsed()))),
        }
    }

    /// Asks for every group version at once. What the API server cannot vouch for now is left to a question of its own.
    async fn ask_for_all(&self, cluster: &Cluster, by: Instant) {
        let asked = Instant::now();
        let groups = aggregated::at_once(cluster, by.min(asked + ALL_AT_ONCE)).await;
        let mut known = self.known();
        for version in groups.into_iter().flat_map(aggregated::Group::versions) {
            let cell = known.entry(version.api_version).or_default();
            if !version.is_stale {
                let kinds = version.kinds.into_iter().map(|it| (it.kind, it.resource)).collect();
                // One that is known already stays as it is.
                cell.set(Arc::new(GroupVersion { asked, is_served: true, kinds })).ok();
            }
        }
    }

    /// Forgets what the group version was said to serve, but not that it was asked for.
    pub(super) fn forget(&self, api_version: &str) {
        if let Some(cell) = self.known().get_mut(api_version) {
            *cell = Cell::default();
        }
    }

    /// Forgets what all versions of a group were said to serve.
    pub(super) fn forget_group(&self, group: &str) {
        let mut known = self.known();
        for (_, cell) in known.iter_mut().filter(|(api_version, _)| in_group(api_version, group)) {
            *cell = Cell::default();
        }
    }

    fn forget_stale(&self, api_version: &str, stale: &Arc<GroupVersion>) {
        let mut known = self.known();
        if known.get(api_version).is_some_and(|cell| cell.get().is_some_and(|it| Arc::ptr_eq(it, stale))) {
            known.insert(api_version.to_owned(), Cell::default());
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Cell>> {
        self.known.lock().expect("nothing panics while it holds the lock")
    }
}

fn in_group(api_version: &str, group: &str) -> bool {
    api_version.split_once('/').is_some_and(|(its, _)| its == group)
}

/// The group of an apiVersion; empty for the core group.
pub(crate) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The path under which a group version is served.
pub(crate) fn root(api_version: &str) -> String {
    if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") }
}

/// Whether a text is `version` or `group/version`, each of characters that they can have.
fn is_api_version(text: &str) -> bool {
    let is_segment = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        !text.trim_matches('.').is_empty() && text.bytes().all(fits)
    };
    match text.split_once('/') {
        Some((group, version)) => is_segment(group) && is_segment(version),
        None => is_segment(text),
    }
}

async fn ask(cluster: &Cluster, api_version: &str, by: Instant) -> Result<Arc<GroupVersion>, Error> {
    if !is_api_version(api_version) {
        return Err(Error::NoVersion);
    }
    let asked = Instant::now();
    let by = by.min(asked + ONE);
    let request =
        Request::get(root(api_version)).body(Body::empty()).map_err(|error| Error::Failed(error.to_string()))?;
    let target = Target { method: "GET", resource: "discovery", api_version, ..Target::default() };
    let reply = cluster.send(request, &target, by).await.map_err(|why| Error::Failed(why.to_string()))?;
    let is_served = reply.status == StatusCode::OK;
    let kinds = match reply.status {
        StatusCode::OK => {
            let list: ResourceList = serde_json::from_slice(&reply.body)
                .map_err(|_| Error::Failed("what it answered is not discovery".into()))?;
            if list.kind != "APIResourceList" {
                return Err(Error::Failed("it answered something else than its kinds".into()));
            }
            let (kinds, parts): (Vec<_>, Vec<_>) =
                list.resources.into_iter().partition(|entry| !entry.name.contains('/'));
            let reported: BTreeSet<_> = parts.iter().filter_map(|part| part.name.strip_suffix("/status")).collect();
            let resource = |ResourceEntry { name: plural, kind, namespaced }| {
                let has_status = reported.contains(plural.as_str());
                (kind, Resource { plural, namespaced, has_status })
            };
            kinds.into_iter().map(resource).collect()
        }
        StatusCode::NOT_FOUND => BTreeMap::new(),
        status => return Err(Error::Failed(format!("it answered {status}"))),
    };
    Ok(Arc::new(GroupVersion { asked, is_served, kinds }))
}
