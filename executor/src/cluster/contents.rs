//! What would go along with a definition or a namespace: the objects in it that are not of the design (D19, cases 70, 71).

use futures::{StreamExt, TryStreamExt, stream};
use http::{Request, StatusCode, header};
use kube::client::Body;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Cluster, Target,
    discovery::{Resource, aggregated},
    object::{self, Found, Metadata},
};
use crate::verdict::Subject;

/// Asks for lists of metadata alone.
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// Names that are told; the rest is counted.
const TOLD: usize = 5;
/// Lists at once.
const AT_ONCE: usize = 8;

/// Objects that are not of the design.
#[derive(Debug, Default)]
pub(crate) struct Foreign {
    pub(crate) count: usize,
    pub(crate) names: Vec<String>,
    more: bool,
}

impl Foreign {
    fn add(&mut self, name: String) {
        self.count += 1;
        if self.names.len() < TOLD {
            self.names.push(name);
        }
    }

    /// "3 objects", or "500 objects or more" when not all were counted.
    pub(crate) fn count_text(&self) -> String {
        match (self.count, self.more) {
            (1, false) => "1 object".into(),
            (count, false) => format!("{count} objects"),
            (count, true) => format!("{count} objects or more"),
        }
    }
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default, deserialize_with = "super::null_as_default")]
    items: Vec<Item>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListMeta {
    r#continue: String,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Definition {
    spec: DefinitionSpec,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    group: String,
    names: DefinitionNames,
    scope: String,
    versions: Vec<DefinitionVersion>,
}

#[derive(Deserialize)]
struct DefinitionNames {
    plural: String,
}

#[derive(Deserialize)]
struct DefinitionVersion {
    name: String,
    #[serde(default)]
    served: bool,
}

/// Objects of the kind that a definition defines.
pub(crate) async fn of_definition(
    cluster: &Cluster,
    subject: &Subject<'_>,
    resource: &Resource,
    design_id: &str,
    by: Instant,
) -> Result<Foreign, String> {
    let read = object::read::<Definition>(cluster, subject, resource, "application/json", by).await;
    let Found::There(Definition { spec }) = read.map_err(|_| "the definition cannot be read".to_owned())? else {
        return Ok(Foreign::default());
    };
    let Some(version) = spec.versions.iter().find(|version| version.served) else { return Ok(Foreign::default()) };
    let resource = Resource { plural: spec.names.plural, namespaced: spec.scope == "Namespaced", has_status: false };
    let mut foreign = Foreign::default();
    let list = list(cluster, &format!("{}/{}", spec.group, version.name), &resource, "", by).await?;
    gather(&mut foreign, &resource, list, design_id);
    Ok(foreign)
}

/// Objects in a namespace.
pub(crate) async fn of_namespace(
    cluster: &Cluster,
    namespace: &str,
    design_id: &str,
    by: Instant,
) -> Result<Foreign, String> {
    let kinds = namespaced_kinds(cluster, by).await?;
    let lists = stream::iter(kinds).map(|(api_version, resource)| async move {
        let list = list(cluster, &api_version, &resource, namespace, by).await?;
        Ok::<_, String>((resource, list))
    });
    let lists: Vec<_> = lists.buffered(AT_ONCE).try_collect().await?;
    let mut foreign = Foreign::default();
    for (resource, list) in lists {
        gather(&mut foreign, &resource, list, design_id);
    }
    Ok(foreign)
}

fn gather(foreign: &mut Foreign, resource: &Resource, list: Option<List>, design_id: &str) {
    let Some(list) = list else { return };
    foreign.more |= !list.metadata.r#continue.is_empty();
    for Item { metadata } in list.items {
        if metadata.design() == Some(design_id) || comes_by_itself(resource, &metadata) {
            continue;
        }
        let place = if metadata.namespace.is_empty() { String::new() } else { format!("{}/", metadata.namespace) };
        foreign.add(format!("{} {place}{}", resource.plural, metadata.name));
    }
}

/// Whether the cluster itself makes the object, wherever there is a namespace or an owner.
fn comes_by_itself(resource: &Resource, metadata: &Metadata) -> bool {
    let generated = match resource.plural.as_str() {
        "events" | "endpoints" | "endpointslices" => true,
        "configmaps" => metadata.name == "kube-root-ca.crt",
        "serviceaccounts" => metadata.name == "default",
        "secrets" => metadata.annotations.contains_key("kubernetes.io/service-account.name"),
        _ => false,
    };
    // What has an owner goes with it, and the owner is looked at itself.
    generated || !metadata.owner_references.is_empty()
}

/// One page is enough to refuse. A kind that cannot be listed by anybody (405) holds nothing to keep.
async fn list(
    cluster: &Cluster,
    api_version: &str,
    resource: &Resource,
    namespace: &str,
    by: Instant,
) -> Result<Option<List>, String> {
    let path = format!("{}?limit=500", object::collection(api_version, resource, namespace));
    let target = Target { method: "LIST", resource: &resource.plural, api_version, namespace, ..Target::default() };
    let request = Request::get(&path).header(header::ACCEPT, METADATA_LIST).body(Body::empty());
    let request = request.map_err(|error| error.to_string())?;
    let reply = cluster.send(request, &target, by).await.map_err(|why| why.to_string())?;
    match reply.status {
        StatusCode::OK => serde_json::from_slice(&reply.body).map(Some).map_err(|error| format!("odd list: {error}")),
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Ok(None),
        status => Err(format!("listing {} was answered {status}", resource.plural)),
    }
}

/// Every kind whose objects lie in namespaces and can be listed, in the version the cluster prefers.
async fn namespaced_kinds(cluster: &Cluster, by: Instant) -> Result<Vec<(String, Resource)>, String> {
    let mut found = Vec::new();
    for path in [aggregated::CORE, aggregated::NAMED] {
        for group in aggregated::read(cluster, path, by).await? {
            let name = group.name().to_owned();
            // Measurements of other objects, not objects.
            if name == "metrics.k8s.io" {
                continue;
            }
            let Some(preferred) = group.versions().next() else { continue };
            if preferred.is_stale {
                return Err(format!("the API group {name} does not answer"));
            }
            let kinds = preferred.kinds.into_iter().filter(|kind| kind.resource.namespaced && kind.can_be_listed);
            found.extend(kinds.map(|kind| (preferred.api_version.clone(), kind.resource)));
        }
    }
    Ok(found)
}
