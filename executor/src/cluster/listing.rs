//! Complete lists: every page of a kind, and every kind that can lie in a namespace (cases 201, 202, 204, 206).
//!
//! Whoever asks whether something of others is in a cluster asks here. A list is complete or it is an error: an answer that
//! could be somebody else's (a 404 of a proxy, an empty page without the list's form) is never taken for "nothing there".

use http::{Request, StatusCode, header};
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Cluster, Reply, Target, Unanswered,
    discovery::{self, Resource, aggregated},
    object::{self, Metadata},
};

/// Asks for lists of metadata alone; servers of aggregated APIs that do not know them answer with the objects.
pub(super) const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// Objects a page.
const PAGE: usize = 500;
/// How often a list begins anew because its continue token has expired (410). A token lives for about five minutes.
const RESTARTS: usize = 3;

/// Groups that serve measurements of other objects and no objects. None of their kinds can be deleted, so a metrics server
/// that is down hides nothing.
const MEASUREMENTS: [&str; 3] = ["metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"];

/// A kind, in the version that it is listed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) resource: Resource,
}

impl Kind {
    pub(super) fn group(&self) -> &str {
        discovery::group(&self.api_version)
    }
}

/// What a list holds.
#[derive(Debug)]
pub(super) struct Listed<T> {
    pub(super) items: Vec<T>,
    /// Whether there is more, because the caller had enough.
    pub(super) more: bool,
}

/// What is asked for.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) accept: &'static str,
    /// Objects with this label and value; all if there is none.
    pub(super) label: Option<(&'a str, &'a str)>,
}

/// What comes of a list as it goes on.
pub(super) enum Piece<'a> {
    /// It begins anew: what came so far does not count.
    Anew,
    /// A page.
    Page(&'a Reply),
}

/// Why a list did not come to its end.
#[derive(Debug)]
pub(super) enum Unlisted {
    /// The credentials may not list the kind there.
    Forbidden(String),
    Failed(String),
}

impl From<Unlisted> for String {
    fn from(why: Unlisted) -> Self {
        match why {
            Unlisted::Forbidden(why) | Unlisted::Failed(why) => why,
        }
    }
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub(super) struct Page<T> {
    kind: String,
    metadata: PageMeta,
    #[serde(default = "Vec::new", deserialize_with = "super::null_as_default")]
    pub(super) items: Vec<T>,
}

impl<T> Page<T> {
    /// Where the next page begins; none when this is the last.
    pub(super) fn next(&self) -> Option<String> {
        Some(&self.metadata.r#continue).filter(|token| !token.is_empty()).cloned()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PageMeta {
    r#continue: String,
}

/// Lists the objects of a kind, in every namespace if `namespace` is empty, to the last page, or until `enough` says so
/// after a page. `keep` reduces each object to what is wanted of it.
///
/// # Errors
///
/// A sentence, when a page was not answered, or by anything else than a list.
pub(super) async fn list<T>(
    cluster: &Cluster,
    kind: &Kind,
    namespace: &str,
    by: Instant,
    mut keep: impl FnMut(Metadata) -> T,
    enough: impl Fn(&[T]) -> bool,
) -> Result<Listed<T>, String> {
    let mut listed = Listed { items: Vec::new(), more: false };
    let ask = Ask { accept: METADATA_LIST, label: None };
    pages(cluster, kind, namespace, ask, by, |piece| {
        let Piece::Page(reply) = piece else {
            listed.items.clear();
            return Ok(None);
        };
        let page: Page<object::Bare> = page(kind, reply)?;
        let next = page.next();
        listed.items.extend(page.items.into_iter().map(|item| keep(item.metadata)));
        listed.more = next.is_some() && enough(&listed.items);
        Ok(next.filter(|_| !listed.more))
    })
    .await?;
    Ok(listed)
}

/// Lists the objects of a kind, in every namespace if `namespace` is empty, page by page, until `take` answers no place where the
/// next one begins. Never from a cache, which could be behind: no `resourceVersion` is asked for.
///
/// # Errors
///
/// When a page was not answered, or what `take` answers.
pub(super) async fn pages(
    cluster: &Cluster,
    kind: &Kind,
    namespace: &str,
    ask: Ask<'_>,
    by: Instant,
    mut take: impl FnMut(Piece<'_>) -> Result<Option<String>, Unlisted>,
) -> Result<(), Unlisted> {
    let path = object::collection(&kind.api_version, &kind.resource, namespace);
    let target = Target {
        method: "LIST",
        resource: &kind.resource.plural,
        api_version: &kind.api_version,
        kind: &kind.kind,
        namespace,
        ..Target::default()
    };
    let (mut token, mut restarts) = (String::new(), 0);
    loop {
        let request = Request::get(page_path(&path, ask.label, &token)).header(header::ACCEPT, ask.accept);
        let request = request.body(Body::empty()).map_err(|error| Unlisted::Failed(error.to_string()))?;
        let reply = cluster.send(request, &target, by).await;
        let failed = |why: Unanswered| Unlisted::Failed(format!("listing {} failed: {why}", kind.resource.plural));
        let reply = reply.map_err(failed)?;
        if reply.status == StatusCode::GONE && !token.is_empty() && restarts < RESTARTS {
            (token, restarts) = (String::new(), restarts + 1);
            take(Piece::Anew)?;
            continue;
        }
        match take(Piece::Page(&reply))? {
            None => return Ok(()),
            Some(next) if next == token => {
                return Err(Unlisted::Failed(format!("the list of {} does not go on", kind.resource.plural)));
            }
            Some(next) => token = next,
        }
    }
}

fn page_path(path: &str, label: Option<(&str, &str)>, token: &str) -> String {
    let mut path = format!("{path}?limit={PAGE}");
    if let Some((label, value)) = label {
        path.push_str("&labelSelector=");
        path.extend(utf8_percent_encode(label, NON_ALPHANUMERIC));
        path.push_str("%3D");
        path.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
    }
    if !token.is_empty() {
        path.push_str("&continue=");
        path.extend(utf8_percent_encode(token, NON_ALPHANUMERIC));
    }
    path
}

/// Reads a page.
pub(super) fn page<'a, T: Deserialize<'a>>(kind: &Kind, reply: &'a Reply) -> Result<Page<T>, Unlisted> {
    let plural = &kind.resource.plural;
    if reply.status != StatusCode::OK {
        let why = format!("listing {plural} of {} was answered {}", kind.api_version, reply.status);
        return Err(match reply.status {
            StatusCode::FORBIDDEN => Unlisted::Forbidden(why),
            _ => Unlisted::Failed(why),
        });
    }
    let page = serde_json::from_slice::<Page<T>>(&reply.body).ok().filter(|page| page.kind.ends_with("List"));
    page.ok_or_else(|| {
        let why = format!("listing {plural} of {} was answered by something else than a list", kind.api_version);
        Unlisted::Failed(why)
    })
}

/// Every kind whose objects go with their namespace: what can be listed and deleted, which is what Kubernetes' own deletion
/// of namespaces looks at. Each in the first version that serves it, over all versions of its group.
///
/// # Errors
///
/// A sentence, when discovery fails, or when the server of a group does not answer: what it holds cannot be told then.
pub(super) async fn namespaced_kinds(cluster: &Cluster, by: Instant) -> Result<Vec<Kind>, String> {
    let mut found = Vec::new();
    for path in [aggregated::CORE, aggregated::NAMED] {
        for group in aggregated::read(cluster, path, by).await? {
            if !MEASUREMENTS.contains(&group.name()) {
                found.extend(contents_of(group)?);
            }
        }
    }
    Ok(found)
}

fn contents_of(group: aggregated::Group) -> Result<Vec<Kind>, String> {
    let mut found = Vec::<Kind>::new();
    for version in group.versions() {
        let api_version = version.api_version;
        if version.is_stale {
            return Err(format!("the server of {api_version} does not answer"));
        }
        for aggregated::Kind { kind, resource, can_be_listed, can_be_deleted } in version.kinds {
            let is_known = found.iter().any(|known| known.resource.plural == resource.plural);
            if resource.namespaced && can_be_listed && can_be_deleted && !is_known {
                found.push(Kind { api_version: api_version.clone(), kind, resource });
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;
    use serde_json::{Value, json};

    use super::*;

    fn group(versions: &Value) -> aggregated::Group {
        serde_json::from_value(json!({"metadata": {"name": "a.example"}, "versions": versions})).unwrap()
    }

    fn served(plural: &str, scope: &str, verbs: &[&str]) -> Value {
        json!({"resource": plural, "responseKind": {"kind": plural}, "scope": scope, "verbs": verbs})
    }

    const ALL: &[&str] = &["delete", "get", "list"];

    #[test]
    fn each_kind_is_listed_in_the_first_version_that_serves_it() {
        let group = group(&json!([
            {"version": "v1", "resources": [served("both", "Namespaced", ALL)]},
            {"version": "v1beta1", "resources": [served("both", "Namespaced", ALL), served("late", "Namespaced", ALL)]},
        ]));
        let found: Vec<_> =
            contents_of(group).unwrap().into_iter().map(|kind| (kind.api_version, kind.resource.plural)).collect();
        let wanted = [("a.example/v1", "both"), ("a.example/v1beta1", "late")];
        assert_eq!(found, wanted.map(|(version, plural)| (version.to_owned(), plural.to_owned())));
    }

    #[test]
    fn what_no_namespace_deletion_would_delete_is_not_looked_at() {
        let group = group(&json!([{"version": "v1", "resources": [
            served("views", "Namespaced", &["get", "list"]),
            served("commands", "Namespaced", &["create"]),
            served("wide", "Cluster", ALL),
            served("things", "Namespaced", ALL),
        ]}]));
        let found: Vec<_> = contents_of(group).unwrap().into_iter().map(|kind| kind.resource.plural).collect();
        assert_eq!(found, ["things"]);
    }

    #[test]
    fn a_version_whose_server_is_down_hides_what_it_holds() {
        let things = served("things", "Namespaced", ALL);
        let group = group(&json!([
            {"version": "v1", "resources": [things]},
            {"version": "v1beta1", "freshness": "Stale", "resources": []},
        ]));
        assert!(contents_of(group).is_err());
    }

    #[test]
    fn only_a_list_is_taken_for_one() {
        let kind = Kind {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            resource: Resource { plural: "configmaps".into(), namespaced: true, has_status: false },
        };
        let read = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            let reply = Reply { status, headers: HeaderMap::new(), body: Bytes::from(body.to_owned()) };
            page::<object::Bare>(&kind, &reply).map(|page| page.items.len()).map_err(String::from)
        };
        assert_eq!(read(200, r#"{"kind":"PartialObjectMetadataList","metadata":{},"items":null}"#), Ok(0));
        assert_eq!(read(200, r#"{"kind":"ConfigMapList","metadata":{},"items":[{"metadata":{"name":"a"}}]}"#), Ok(1));
        for (status, body) in [
            (200, "{}"),
            (200, "<html>welcome</html>"),
            (200, r#"{"kind":"ConfigMap","metadata":{}}"#),
            (404, "404 page not found"),
            (404, r#"{"kind":"Status","reason":"NotFound","details":{}}"#),
            (405, ""),
        ] {
            assert!(read(status, body).is_err(), "{status} {body}");
        }
    }
}
