//! Everything that a cluster serves, told in one answer (aggregated discovery, Kubernetes 1.30 and later).

use http::{Request, StatusCode, header};
use kube::client::Body;
use serde::Deserialize;
use tokio::time::Instant;

use super::Resource;
use crate::cluster::{Cluster, Target};

const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Where the core group is told of, and where all others are.
pub(crate) const CORE: &str = "/api";
pub(crate) const NAMED: &str = "/apis";

/// An API group.
#[derive(Deserialize)]
pub(crate) struct Group {
    #[serde(default)]
    metadata: Metadata,
    /// The version that the cluster prefers comes first.
    #[serde(deserialize_with = "crate::cluster::null_as_default")]
    versions: Vec<Version>,
}

/// One version of a group.
pub(crate) struct GroupVersion {
    pub(crate) api_version: String,
    /// Whether the API server cannot vouch for it, because the group's own server does not answer.
    pub(crate) is_stale: bool,
    pub(crate) kinds: Vec<Kind>,
}

/// One kind that is served.
pub(crate) struct Kind {
    pub(crate) kind: String,
    pub(crate) resource: Resource,
    pub(crate) can_be_listed: bool,
    pub(crate) can_be_deleted: bool,
}

#[derive(Deserialize)]
struct Groups {
    items: Vec<Group>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    freshness: String,
    #[serde(default, deserialize_with = "crate::cluster::null_as_default")]
    resources: Vec<Served>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Served {
    resource: String,
    response_kind: ResponseKind,
    scope: String,
    verbs: Vec<String>,
    subresources: Vec<Subresource>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseKind {
    kind: String,
}

#[derive(Deserialize)]
struct Subresource {
    subresource: String,
}

impl Group {
    /// Empty for the core group.
    pub(crate) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Its versions, the preferred one first.
    pub(crate) fn versions(self) -> impl Iterator<Item = GroupVersion> {
        let Self { metadata: Metadata { name }, versions } = self;
        versions.into_iter().map(move |Version { version, freshness, resources }| GroupVersion {
            api_version: if name.is_empty() { version } else { format!("{name}/{version}") },
            is_stale: freshness == "Stale",
            kinds: resources.into_iter().map(Kind::from).collect(),
        })
    }
}

impl From<Served> for Kind {
    fn from(Served { resource: plural, response_kind, scope, verbs, subresources }: Served) -> Self {
        let has_status = subresources.iter().any(|part| part.subresource == "status");
        let can = |wanted: &str| verbs.iter().any(|verb| verb == wanted);
        Self {
            kind: response_kind.kind,
            resource: Resource { plural, namespaced: scope == "Namespaced", has_status },
            can_be_listed: can("list"),
            can_be_deleted: can("delete"),
        }
    }
}

/// Asks for all groups at `path`, which is [`CORE`] or [`NAMED`].
pub(crate) async fn read(cluster: &Cluster, path: &'static str, by: Instant) -> Result<Vec<Group>, String> {
    let request = Request::get(path).header(header::ACCEPT, ACCEPT).body(Body::empty());
    let request = request.expect("both are constants");
    let target = Target { method: "GET", resource: "discovery", ..Target::default() };
    let reply = cluster.send(request, &target, by).await.map_err(|why| why.to_string())?;
    if reply.status != StatusCode::OK {
        return Err(format!("discovery was answered {}", reply.status));
    }
    let groups: Groups =
        serde_json::from_slice(&reply.body).map_err(|_| "it does not know aggregated discovery".to_owned())?;
    Ok(groups.items)
}
