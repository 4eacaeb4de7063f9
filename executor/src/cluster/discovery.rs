//! Which kinds a cluster serves, and where: asked only for the group versions that a plan needs, once (D12, cases 20, 29).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use http::{Request, StatusCode};
use kube::client::Body;
use serde::Deserialize;
use tokio::{sync::OnceCell, time::Instant};

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
    /// The cluster did not say.
    Failed(String),
}

#[derive(Debug)]
struct GroupVersion {
    asked: Instant,
    kinds: BTreeMap<String, Resource>,
}

type Cell = Arc<OnceCell<Arc<GroupVersion>>>;

/// What is known of a cluster's kinds so far.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    known: Mutex<BTreeMap<String, Cell>>,
}

#[derive(Deserialize)]
struct ResourceList {
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

    async fn group_version(
        &self,
        cluster: &Cluster,
        api_version: &str,
        by: Instant,
    ) -> Result<Arc<GroupVersion>, Error> {
        let cell = self.known().entry(api_version.to_owned()).or_default().clone();
        // One request however many steps need the answer; a failure is not kept.
        cell.get_or_try_init(|| ask(cluster, api_version, by)).await.cloned()
    }

    /// Forgets what the group version was said to serve.
    pub(super) fn forget(&self, api_version: &str) {
        self.known().remove(api_version);
    }

    fn forget_stale(&self, api_version: &str, stale: &Arc<GroupVersion>) {
        let mut known = self.known();
        if known.get(api_version).is_some_and(|cell| cell.get().is_some_and(|it| Arc::ptr_eq(it, stale))) {
            known.remove(api_version);
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Cell>> {
        self.known.lock().expect("nothing panics while it holds the lock")
    }
}

/// The path under which a group version is served.
pub(crate) fn root(api_version: &str) -> String {
    if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") }
}

async fn ask(cluster: &Cluster, api_version: &str, by: Instant) -> Result<Arc<GroupVersion>, Error> {
    let asked = Instant::now();
    let request =
        Request::get(root(api_version)).body(Body::empty()).map_err(|error| Error::Failed(error.to_string()))?;
    let target = Target { method: "GET", resource: "discovery", api_version, ..Target::default() };
    let reply = cluster.send(request, &target, by).await.map_err(|why| Error::Failed(why.to_string()))?;
    let kinds = match reply.status {
        StatusCode::OK => {
            let list: ResourceList =
                serde_json::from_slice(&reply.body).map_err(|error| Error::Failed(format!("odd answer: {error}")))?;
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
    Ok(Arc::new(GroupVersion { asked, kinds }))
}
