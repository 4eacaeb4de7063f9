//! Discovery group version by group version, which every API server knows.

use futures::{StreamExt, future::join_all, stream};
use http::{Request, StatusCode};
use kube::client::Body;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    aggregated::{self, Group, Metadata, ResponseKind, Served, Subresource, Version},
    root,
};
use crate::cluster::{Cluster, Target};

/// Groups that are asked for at the same time.
const AT_ONCE: usize = 8;

/// What `/apis` answers.
#[derive(Deserialize)]
pub(super) struct Groups {
    pub(super) groups: Vec<Names>,
}

/// What `/api` answers.
#[derive(Deserialize)]
pub(super) struct Core {
    versions: Vec<String>,
}

/// A group and its versions.
#[derive(Deserialize)]
pub(super) struct Names {
    /// Empty for the core group.
    pub(super) name: String,
    /// The version that the cluster prefers comes first.
    versions: Vec<Name>,
}

#[derive(Deserialize)]
struct Name {
    version: String,
}

#[derive(Deserialize)]
struct ResourceList {
    kind: String,
    #[serde(default, deserialize_with = "crate::cluster::null_as_default")]
    resources: Vec<ResourceEntry>,
}

#[derive(Deserialize)]
struct ResourceEntry {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default, deserialize_with = "crate::cluster::null_as_default")]
    verbs: Vec<String>,
}

impl From<Core> for Names {
    fn from(Core { versions }: Core) -> Self {
        Self { name: String::new(), versions: versions.into_iter().map(|version| Name { version }).collect() }
    }
}

/// Asks for the kinds of each version of the groups, and tells all as aggregated discovery would.
pub(super) async fn fill(cluster: &Cluster, groups: Vec<Names>, by: Instant) -> Vec<Group> {
    let filled = groups.into_iter().map(|group| fill_one(cluster, group, by));
    stream::iter(filled).buffered(AT_ONCE).collect().await
}

async fn fill_one(cluster: &Cluster, Names { name, versions }: Names, by: Instant) -> Group {
    let filled = versions.into_iter().map(|Name { version }| {
        let api_version = if name.is_empty() { version.clone() } else { format!("{name}/{version}") };
        async move {
            match kinds(cluster, &api_version, by).await {
                Some(resources) => Version { version, freshness: String::new(), resources },
                // One that is listed and then not told is on its way in or out, or its own server does not answer.
                None => Version { version, freshness: aggregated::STALE.to_owned(), resources: Vec::new() },
            }
        }
    });
    let versions = join_all(filled).await;
    Group { metadata: Metadata { name }, versions }
}

/// The kinds of one group version; nothing when they are not told.
async fn kinds(cluster: &Cluster, api_version: &str, by: Instant) -> Option<Vec<Served>> {
    let request = Request::get(root(api_version)).body(Body::empty()).ok()?;
    let target = Target { method: "GET", resource: "discovery", api_version, ..Target::default() };
    let reply = cluster.send(request, &target, by).await.ok()?;
    if reply.status != StatusCode::OK {
        return None;
    }
    let list: ResourceList = aggregated::parse(&reply.body).ok()?;
    (list.kind == "APIResourceList").then(|| served(list.resources))
}

fn served(resources: Vec<ResourceEntry>) -> Vec<Served> {
    let (kinds, parts): (Vec<_>, Vec<_>) = resources.into_iter().partition(|entry| !entry.name.contains('/'));
    let one = |ResourceEntry { name: resource, kind, namespaced, verbs }| {
        let own = parts.iter().filter_map(|part| part.name.strip_prefix(&resource)?.strip_prefix('/'));
        let subresources = own.map(|name| Subresource { subresource: name.to_owned() }).collect();
        let scope = if namespaced { aggregated::NAMESPACED } else { "Cluster" }.to_owned();
        Served { resource, response_kind: ResponseKind { kind }, scope, verbs, subresources }
    };
    kinds.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_kinds_are_told_as_aggregated_discovery_tells_them() {
        let list = r#"{"kind":"APIResourceList","resources":[
            {"name":"deployments","kind":"Deployment","namespaced":true,"verbs":["list","delete"]},
            {"name":"deployments/status","kind":"Deployment","namespaced":true},
            {"name":"nodes","kind":"Node","namespaced":false,"verbs":["list"]}]}"#;
        let ResourceList { resources, .. } = aggregated::parse(list.as_bytes()).unwrap();
        let kinds: Vec<_> = served(resources).into_iter().map(aggregated::Kind::from).collect();
        let told: Vec<_> = kinds
            .iter()
            .map(|it| {
                (it.kind.as_str(), it.resource.namespaced, it.resource.has_status, it.can_be_listed, it.can_be_deleted)
            })
            .collect();
        assert_eq!(told, [("Deployment", true, true, true, true), ("Node", false, false, true, false)]);
    }
}
