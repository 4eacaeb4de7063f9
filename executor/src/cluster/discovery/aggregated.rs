//! Everything that a cluster serves: told in one answer where the API server knows aggregated discovery, else group version by group
//! version (case 314).
//!
//! The form of the one answer is `apidiscovery.k8s.io/v2` from Kubernetes 1.30 on and `v2beta1` before it; the two are read alike.

use http::{Request, StatusCode, header};
use kube::client::Body;
use serde::Deserialize;
use tokio::time::Instant;

use super::{Resource, plain};
use crate::cluster::{Cluster, Target};

/// Both forms of aggregated discovery, and what every API server knows.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
                      application/json";

/// Where the core group is told of, and where all others are.
pub(crate) const CORE: &str = "/api";
pub(crate) const NAMED: &str = "/apis";

/// An API group.
#[derive(Deserialize)]
pub(crate) struct Group {
    #[serde(default)]
    pub(super) metadata: Metadata,
    /// The version that the cluster prefers comes first.
    #[serde(deserialize_with = "crate::cluster::null_as_default")]
    pub(super) versions: Vec<Version>,
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

/// What the API server chose to answer.
enum Told {
    Everything(Vec<Group>),
    /// The groups with their versions; the kinds have to be asked for.
    Names(Vec<plain::Names>),
}

#[derive(Deserialize)]
struct Groups {
    items: Vec<Group>,
}

#[derive(Default, Deserialize)]
pub(super) struct Metadata {
    /// Empty for the core group.
    #[serde(default)]
    pub(super) name: String,
}

#[derive(Deserialize)]
pub(super) struct Version {
    pub(super) version: String,
    #[serde(default)]
    pub(super) freshness: String,
    #[serde(default, deserialize_with = "crate::cluster::null_as_default")]
    pub(super) resources: Vec<Served>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Served {
    pub(super) resource: String,
    #[serde(deserialize_with = "crate::cluster::null_as_default")]
    pub(super) response_kind: ResponseKind,
    pub(super) scope: String,
    #[serde(deserialize_with = "crate::cluster::null_as_default")]
    pub(super) verbs: Vec<String>,
    #[serde(deserialize_with = "crate::cluster::null_as_default")]
    pub(super) subresources: Vec<Subresource>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ResponseKind {
    pub(super) kind: String,
}

#[derive(Deserialize)]
pub(super) struct Subresource {
    pub(super) subresource: String,
}

/// What `freshness` says of a version whose own server does not answer.
pub(super) const STALE: &str = "Stale";
/// What `scope` says of kinds whose objects lie in namespaces.
pub(super) const NAMESPACED: &str = "Namespaced";

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
            is_stale: freshness == STALE,
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
            resource: Resource { plural, namespaced: scope == NAMESPACED, has_status },
            can_be_listed: can("list"),
            can_be_deleted: can("delete"),
        }
    }
}

/// Asks for all groups at `path`, which is [`CORE`] or [`NAMED`]. A version whose kinds nobody tells is marked as stale.
pub(crate) async fn read(cluster: &Cluster, path: &'static str, by: Instant) -> Result<Vec<Group>, String> {
    match ask(cluster, path, by).await? {
        Told::Everything(groups) => Ok(groups),
        Told::Names(names) => Ok(plain::fill(cluster, names, by).await),
    }
}

/// The named groups, as far as one answer tells them all; nothing where it does not.
pub(super) async fn at_once(cluster: &Cluster, by: Instant) -> Vec<Group> {
    match ask(cluster, NAMED, by).await {
        Ok(Told::Everything(groups)) => groups,
        Ok(Told::Names(_)) | Err(_) => Vec::new(),
    }
}

async fn ask(cluster: &Cluster, path: &'static str, by: Instant) -> Result<Told, String> {
    let request = Request::get(path).header(header::ACCEPT, ACCEPT).body(Body::empty());
    let request = request.expect("both are constants");
    let target = Target { method: "GET", resource: "discovery", ..Target::default() };
    let reply = cluster.send(request, &target, by).await.map_err(|why| why.to_string())?;
    if reply.status != StatusCode::OK {
        return Err(format!("discovery was answered {}", reply.status));
    }
    told(&reply.body).map_err(|why| format!("the answer to discovery at {path} cannot be read: {why}"))
}

/// Reads whichever form the API server chose; `kind` tells. Anything else proves nothing, least of all that there are no groups.
fn told(body: &[u8]) -> Result<Told, String> {
    #[derive(Deserialize)]
    struct Form {
        kind: String,
    }
    let Form { kind } = parse(body)?;
    match kind.as_str() {
        "APIGroupDiscoveryList" => parse(body).map(|Groups { items }| Told::Everything(items)),
        "APIVersions" => parse(body).map(|core: plain::Core| Told::Names(vec![core.into()])),
        "APIGroupList" => parse(body).map(|list: plain::Groups| Told::Names(list.groups)),
        _ => Err("it is no list of API groups".to_owned()),
    }
}

pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_aggregated_discovery_are_read() {
        for version in ["v2", "v2beta1"] {
            let answer = serde_json::json!({
                "kind": "APIGroupDiscoveryList",
                "apiVersion": format!("apidiscovery.k8s.io/{version}"),
                "items": [{"metadata": {"name": "apps"}, "versions": [
                    {"version": "v1", "freshness": "Current", "resources": [
                        {"resource": "deployments", "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"},
                         "scope": "Namespaced", "verbs": ["get", "list"], "subresources": [
                            {"subresource": "status", "responseKind": null, "verbs": ["get"]}]},
                        {"resource": "odd", "responseKind": null, "scope": "Cluster", "verbs": null},
                    ]},
                    {"version": "v2alpha1", "freshness": "Stale"},
                ]}],
            });
            let Ok(Told::Everything(groups)) = told(answer.to_string().as_bytes()) else { panic!("{answer}") };
            let group = groups.into_iter().next().expect("there is one");
            assert_eq!(group.name(), "apps");
            let versions: Vec<_> = group.versions().collect();
            let seen: Vec<_> = versions.iter().map(|it| (it.api_version.as_str(), it.is_stale)).collect();
            assert_eq!(seen, [("apps/v1", false), ("apps/v2alpha1", true)]);
            let deployment = &versions[0].kinds[0];
            assert!(deployment.can_be_listed && deployment.resource.namespaced && deployment.resource.has_status);
        }
    }

    #[test]
    fn answer_of_somebody_else_is_not_taken_for_no_groups() {
        for body in [
            "<html>",
            "{}",
            r#"{"kind":"Status"}"#,
            r#"{"kind":"APIGroupList"}"#,
            r#"{"kind":"APIVersions"}"#,
            r#"{"kind":"APIGroupDiscoveryList"}"#,
        ] {
            assert!(told(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn plain_answers_name_the_groups() {
        let groups = br#"{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}]}]}"#;
        assert!(matches!(told(groups), Ok(Told::Names(names)) if names[0].name == "apps"));
        let core = br#"{"kind":"APIVersions","versions":["v1"]}"#;
        assert!(matches!(told(core), Ok(Told::Names(names)) if names[0].name.is_empty()));
    }
}
