//! One object in a cluster: its path, and its metadata as far as the engine looks at it.

use std::collections::BTreeMap;

use http::{Request, StatusCode, header};
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Cluster, Reply, Target,
    discovery::{self, Resource},
};
use crate::{
    answers::classify::{self, Status, Subject, Verdict},
    mask::Unmasked,
};

/// What may stand unescaped in a path segment (RFC 3986 `unreserved`).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Asks for the metadata alone, so that nothing secret travels where only marks are looked at. Servers of aggregated APIs
/// that do not know that form answer with the object.
pub(crate) const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Room for a path with its query, in bytes, so that most are put together in one piece.
const PATH: usize = 224;

/// The path under which the object is served.
pub(crate) fn path(subject: &Subject<'_>, resource: &Resource) -> String {
    let mut path = collection(subject.api_version, resource, subject.namespace);
    path.push('/');
    path.extend(utf8_percent_encode(subject.name, SEGMENT));
    path
}

/// The path under which all objects of the kind are served; in every namespace if `namespace` is empty.
pub(crate) fn collection(api_version: &str, resource: &Resource, namespace: &str) -> String {
    let mut path = String::with_capacity(PATH);
    path.push_str(&discovery::root(api_version));
    if resource.namespaced && !namespace.is_empty() {
        path.push_str("/namespaces/");
        path.extend(utf8_percent_encode(namespace, SEGMENT));
    }
    path.push('/');
    path.push_str(&resource.plural);
    path
}

/// Metadata, as far as it is looked at.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) deletion_timestamp: Option<String>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) owner_references: Vec<OwnerReference>,
}

/// What owns an object: the garbage collector removes the object when all of its owners are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct OwnerReference {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// One of the conditions that an object says it is in.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: Unmasked,
    pub(crate) message: Unmasked,
}

/// An object of which only the metadata is looked at.
#[derive(Deserialize)]
pub(crate) struct Bare {
    pub(crate) metadata: Metadata,
}

/// The label that says which design an object belongs to (D11).
pub(crate) const DESIGN_LABEL: &str = "design.meshery.io/id";

impl Metadata {
    /// The design that the object is marked with.
    pub(crate) fn design(&self) -> Option<&str> {
        self.labels.get(DESIGN_LABEL).map(String::as_str)
    }
}

/// What a read found.
pub(crate) enum Found<T> {
    /// The object is there.
    There(T),
    /// The API server says that it is not; nothing less than its own word counts (case 74).
    NotThere,
}

/// Whether an answer is the API server's word that this very object is not there. A 404 of a proxy, of a path that is not
/// served, or about a namespace of the same name, is not.
pub(crate) fn says_not_there(reply: &Reply, subject: &Subject<'_>) -> bool {
    if reply.status != StatusCode::NOT_FOUND {
        return false;
    }
    Status::not_found(&reply.body).is_some_and(|details| {
        details.name == subject.name && (details.kind != "namespaces" || subject.kind == "Namespace")
    })
}

/// Whether a 404 names what is not there, as the API server does for a path that it serves.
pub(super) fn is_of_the_api_server(reply: &Reply) -> bool {
    Status::subject_of(&reply.body).is_some()
}

/// Reads the object as `T`.
pub(crate) async fn read<T: serde::de::DeserializeOwned>(
    cluster: &Cluster,
    subject: &Subject<'_>,
    resource: &Resource,
    accept: &'static str,
    by: Instant,
) -> Result<Found<T>, Verdict> {
    let request = Request::get(path(subject, resource)).header(header::ACCEPT, accept).body(Body::empty());
    let request = request.map_err(|error| classify::no_path(&error))?;
    let target = target("GET", subject, resource, 1);
    let reply = cluster.send(request, &target, by).await.map_err(|why| classify::unread(subject, &why))?;
    if says_not_there(&reply, subject) {
        return Ok(Found::NotThere);
    }
    if reply.status != StatusCode::OK {
        return Err(classify::answered(subject, &reply.answer(), &cluster.secrets_around(b"")));
    }
    serde_json::from_slice(&reply.body).map(Found::There).map_err(|_| classify::odd(subject, "it is not an object"))
}

/// What a request about the object is about, for its span.
pub(crate) fn target<'a>(
    method: &'static str,
    subject: &Subject<'a>,
    resource: &'a Resource,
    attempt: u32,
) -> Target<'a> {
    Target {
        method,
        resource: &resource.plural,
        api_version: subject.api_version,
        kind: subject.kind,
        namespace: subject.namespace,
        name: subject.name,
        attempt,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;

    fn subject(name: &'static str) -> Subject<'static> {
        Subject {
            cluster: "east",
            api_version: "v1",
            kind: "ConfigMap",
            namespace: "a b",
            name,
            kind_in_design: false,
            namespace_in_design: false,
        }
    }

    #[test]
    fn names_are_escaped_in_the_path() {
        let subject = subject("x/../y?z");
        let resource = Resource { plural: "configmaps".into(), namespaced: true, has_status: false };
        assert_eq!(path(&subject, &resource), "/api/v1/namespaces/a%20b/configmaps/x%2F..%2Fy%3Fz");
    }

    #[test]
    fn only_the_api_servers_own_word_means_that_an_object_is_not_there() {
        let reply =
            |status, body: &str| Reply { status, headers: HeaderMap::new(), body: Bytes::from(body.to_owned()) };
        let word = r#"{"kind":"Status","reason":"NotFound","details":{"name":"a","kind":"configmaps"}}"#;
        assert!(says_not_there(&reply(StatusCode::NOT_FOUND, word), &subject("a")));
        assert!(!says_not_there(&reply(StatusCode::NOT_FOUND, word), &subject("b")));
        assert!(!says_not_there(&reply(StatusCode::NOT_FOUND, "<html>not found</html>"), &subject("a")));
        assert!(!says_not_there(&reply(StatusCode::NOT_FOUND, ""), &subject("a")));
        assert!(!says_not_there(&reply(StatusCode::OK, word), &subject("a")));
        let namespace = r#"{"kind":"Status","reason":"NotFound","details":{"name":"a","kind":"namespaces"}}"#;
        assert!(!says_not_there(&reply(StatusCode::NOT_FOUND, namespace), &subject("a")));
    }
}
