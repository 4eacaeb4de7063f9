//! Server-side apply of one object to one cluster: one PATCH, and from its answer the proof of what became of it (S18, D12).

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Cluster, Target,
    discovery::{self, Resource},
    retry_after, warnings,
};
use crate::{
    mask::{OfDesign, Secrets},
    verdict::{self, Answer, Failure, Reason, Subject, Verdict},
};

/// The engine's field manager (S18). Changing it would orphan the fields of everything that was ever deployed.
pub(crate) const FIELD_MANAGER: &str = "switchyard";

/// What may stand unescaped in a path segment (RFC 3986 `unreserved`).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What is applied.
pub(crate) struct Patch<'a> {
    pub(crate) subject: Subject<'a>,
    pub(crate) resource: &'a Resource,
    /// The object as JSON, sent as it is: the path tells the API server the namespace.
    pub(crate) manifest: Bytes,
    /// Takes over fields that another manager owns (D13).
    pub(crate) force: bool,
    /// From 1.
    pub(crate) attempt: u32,
    /// When the first attempt began, if one since then may have been carried out though its answer was lost.
    pub(crate) lost_since: Option<Instant>,
    /// What must not be said of other components either.
    pub(crate) secrets: &'a OfDesign,
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Created,
    Configured,
    Unchanged,
}

/// The object as the cluster has it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) change: Change,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

/// What a PATCH came to, and the server's warnings.
pub(crate) struct Outcome {
    pub(crate) result: Result<Applied, Verdict>,
    pub(crate) warnings: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    kind: String,
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    creation_timestamp: String,
    deletion_timestamp: Option<String>,
    managed_fields: Vec<ManagedFields>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ManagedFields {
    manager: String,
    operation: String,
    subresource: String,
    time: String,
}

/// Applies the object.
pub(crate) async fn apply(cluster: &Cluster, what: &Patch<'_>, by: Instant) -> Outcome {
    let subject = &what.subject;
    let request = match patch(what) {
        Ok(request) => request,
        Err(error) => {
            let failure = Failure::new(Reason::ManifestInvalid, format!("the object has no usable path: {error}"));
            return Outcome { result: Err(Verdict::Refused(failure)), warnings: Vec::new() };
        }
    };
    let target = Target {
        method: "PATCH",
        resource: &what.resource.plural,
        api_version: subject.api_version,
        kind: subject.kind,
        namespace: subject.namespace,
        name: subject.name,
        attempt: what.attempt,
    };
    let sent = Instant::now();
    let reply = match cluster.send(request, &target, by).await {
        Ok(reply) => reply,
        Err(why) => return Outcome { result: Err(verdict::unanswered(subject, &why)), warnings: Vec::new() },
    };
    if reply.status == StatusCode::OK || reply.status == StatusCode::CREATED {
        let date = reply.headers.get(header::DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
        // What a lost attempt wrote was written by this step too.
        let took = what.lost_since.unwrap_or(sent).elapsed();
        let answered = Answered { created: reply.status == StatusCode::CREATED, date, took };
        let result = serde_json::from_slice(&reply.body)
            .map_err(|_| unexpected(subject, "it answered with something that is not an object"))
            .and_then(|object| proof(cluster, what, object, &answered));
        // The object may be secret, so its warnings are masked like refusals.
        let warnings = warnings(&reply.headers);
        let warnings = if warnings.is_empty() {
            warnings
        } else {
            let secrets = Secrets::around(&what.manifest, what.secrets);
            warnings.iter().map(|warning| secrets.mask(&verdict::capped(warning))).collect()
        };
        return Outcome { result, warnings };
    }
    let verdict = if reply.status.is_success() {
        verdict::unproven(subject, reply.status)
    } else {
        let answer = Answer { status: reply.status, retry_after: retry_after(&reply.headers), body: &reply.body };
        verdict::answered(subject, &answer, &Secrets::around(&what.manifest, what.secrets))
    };
    Outcome { result: Err(verdict), warnings: Vec::new() }
}

fn patch(what: &Patch<'_>) -> Result<Request<Body>, http::Error> {
    let mut path = discovery::root(what.subject.api_version);
    if what.resource.namespaced {
        path.push_str("/namespaces/");
        path.extend(utf8_percent_encode(what.subject.namespace, SEGMENT));
    }
    path.push('/');
    path.push_str(&what.resource.plural);
    path.push('/');
    path.extend(utf8_percent_encode(what.subject.name, SEGMENT));
    path.push_str("?fieldManager=");
    path.push_str(FIELD_MANAGER);
    path.push_str("&fieldValidation=Strict");
    if what.force {
        path.push_str("&force=true");
    }
    Request::builder()
        .method(Method::PATCH)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
        .header(header::ACCEPT, "application/json")
        .body(Body::from(what.manifest.clone()))
}

struct Answered {
    created: bool,
    /// The server's clock when it answered.
    date: Option<SystemTime>,
    /// From the first request that may have written the object to this answer.
    took: Duration,
}

/// Proves from the answer that the object is the one that was sent, and tells what changed.
fn proof(cluster: &Cluster, what: &Patch<'_>, object: Object, answered: &Answered) -> Result<Applied, Verdict> {
    let subject = &what.subject;
    let metadata = object.metadata;
    if metadata.name != subject.name
        || (!object.kind.is_empty() && object.kind != subject.kind)
        || metadata.uid.is_empty()
    {
        let text = format!("it answered with {} {} instead", object.kind, metadata.name);
        return Err(unexpected(subject, &verdict::capped(&text)));
    }
    if metadata.deletion_timestamp.is_some() {
        return Err(verdict::being_deleted(subject));
    }
    let change = if answered.created {
        Change::Created
    } else {
        let ours = metadata
            .managed_fields
            .iter()
            .find(|entry| entry.manager == FIELD_MANAGER && entry.operation == "Apply" && entry.subresource.is_empty());
        let entry_time = ours.map(|entry| entry.time.as_str());
        let wrote = ours.is_none()
            || may_be_of_this_request(entry_time, answered)
                && cluster.is_since_baseline(&metadata.resource_version).unwrap_or(true);
        match wrote {
            // An attempt whose answer was lost may have created the object: then it is as old as our entry.
            true if what.lost_since.is_some() && entry_time == Some(&metadata.creation_timestamp) => Change::Created,
            true => Change::Configured,
            false => Change::Unchanged,
        }
    };
    Ok(Applied {
        change,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
    })
}

/// Whether a field manager's entry may have been written by the request that was answered: both times are the server's, cut
/// to the second, and the entry is written somewhere between the request and the answer.
fn may_be_of_this_request(entry: Option<&str>, answered: &Answered) -> bool {
    let entry = entry.and_then(|time| humantime::parse_rfc3339(time).ok());
    let (Some(entry), Some(date)) = (entry, answered.date) else { return true };
    date.duration_since(entry).map_or(true, |age| age.as_secs() <= answered.took.as_secs() + 1)
}

fn unexpected(subject: &Subject<'_>, what: &str) -> Verdict {
    Verdict::Refused(Failure::new(
        Reason::UnexpectedAnswer,
        format!("cluster {} did not prove that {} {} was applied: {what}", subject.cluster, subject.kind, subject.name),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(date: &str) -> Answered {
        Answered { created: false, date: httpdate::parse_http_date(date).ok(), took: Duration::from_millis(5) }
    }

    #[test]
    fn clearly_older_entry_is_of_an_earlier_request() {
        let answered = answered("Sun, 29 Nov 2026 10:00:05 GMT");
        assert!(!may_be_of_this_request(Some("2026-11-29T10:00:03Z"), &answered));
        assert!(may_be_of_this_request(Some("2026-11-29T10:00:04Z"), &answered));
        assert!(may_be_of_this_request(Some("2026-11-29T10:00:05Z"), &answered));
    }

    #[test]
    fn slow_answer_widens_what_may_be_of_this_request() {
        let slow = Answered { took: Duration::from_secs(10), ..answered("Sun, 29 Nov 2026 10:00:15 GMT") };
        assert!(may_be_of_this_request(Some("2026-11-29T10:00:05Z"), &slow));
    }

    #[test]
    fn names_are_escaped_in_the_path() {
        let subject = Subject {
            cluster: "east",
            api_version: "v1",
            kind: "ConfigMap",
            namespace: "a b",
            name: "x/../y?z",
            kind_in_design: false,
            namespace_in_design: false,
        };
        let resource = Resource { plural: "configmaps".into(), namespaced: true };
        let what = Patch {
            subject,
            resource: &resource,
            manifest: Bytes::new(),
            force: false,
            attempt: 1,
            lost_since: None,
            secrets: &OfDesign::default(),
        };
        let request = patch(&what).unwrap();
        assert_eq!(
            request.uri().to_string(),
            "/api/v1/namespaces/a%20b/configmaps/x%2F..%2Fy%3Fz?fieldManager=switchyard&fieldValidation=Strict"
        );
    }
}
