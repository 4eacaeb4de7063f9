//! Server-side apply of one object to one cluster: one PATCH, and from its answer the proof of what became of it (S18, D12).

mod kubectl;

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Change, Cluster, Reply, Storing,
    discovery::Resource,
    listing,
    object::{self, Found},
    ownership::without_marks,
    warnings,
};
use crate::{
    answers::classify::{self, Subject, Verdict},
    present::diff::{self, FieldDiff},
};

/// What is applied.
pub(crate) struct Patch<'a> {
    pub(crate) subject: Subject<'a>,
    pub(crate) resource: &'a Resource,
    /// The object as JSON, sent as it is: the path tells the API server the namespace.
    pub(crate) manifest: Bytes,
    /// The object's resource version before, where it is known: one that stays says for certain that nothing was written (L4).
    pub(crate) known_version: Option<&'a str>,
    /// The design's field manager (S18, L1).
    pub(crate) manager: &'a str,
    /// Takes over fields that another manager owns (D13).
    pub(crate) force: bool,
    /// From 1.
    pub(crate) attempt: u32,
    /// When the first attempt began, if one since then may have been carried out though its answer was lost.
    pub(crate) lost_since: Option<Instant>,
}

/// The object as the cluster has it now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) change: Change,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// Whether others have written it so lately that the answer alone does not say who changed it.
    pub(crate) unsure: bool,
    /// Whether it was changed, and another manager has written it too, whenever that was.
    pub(crate) has_others: bool,
    /// Fields that client-side kubectl owns alone, named, if there are any.
    pub(crate) of_kubectl: Option<Box<str>>,
    /// The whole of it as JSON, where it was written.
    pub(crate) body: Bytes,
}

/// What applying would change.
#[derive(Default)]
pub(crate) struct Rehearsed {
    /// The object as it is now; its change is what would be.
    pub(crate) applied: Applied,
    pub(crate) diff: Vec<FieldDiff>,
    /// How many fields differ beside those.
    pub(crate) diff_left_out: u32,
    /// The object as it would be.
    pub(crate) after: Option<Value>,
    /// Whether the object is there and carries no design's mark.
    pub(crate) adopts: bool,
}

/// Whether the design's marks count as a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marks {
    Count,
    Aside,
}

/// What a PATCH came to, and the server's warnings.
pub(crate) struct Outcome<T> {
    pub(crate) result: Result<T, Verdict>,
    pub(crate) warnings: Vec<String>,
}

/// An answer as far as it is read; what is only compared stays where it is.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Object<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    namespace: String,
    uid: String,
    resource_version: String,
    #[serde(borrow)]
    creation_timestamp: Cow<'a, str>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(borrow)]
    managed_fields: Vec<ManagedFields<'a>>,
}

/// What one field manager has written, as far as it is looked at.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ManagedFields<'a> {
    #[serde(borrow)]
    manager: Cow<'a, str>,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    #[serde(borrow)]
    subresource: Cow<'a, str>,
    /// The API server's time of the last write, to the second.
    #[serde(borrow)]
    time: Cow<'a, str>,
}

/// Applies the object.
pub(crate) async fn apply(cluster: &Cluster, what: &Patch<'_>, by: Instant) -> Outcome<Applied> {
    let sent = Instant::now();
    let reply = match send(cluster, what, Storing::Yes, by).await {
        Ok(reply) => reply,
        Err(verdict) => return Outcome { result: Err(verdict), warnings: Vec::new() },
    };
    let date = reply.headers.get(header::DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
    // What a lost attempt wrote was written by this step too.
    let took = what.lost_since.unwrap_or(sent).elapsed();
    let answered = Answered { created: reply.status == StatusCode::CREATED, date, took };
    let said = masked_warnings(cluster, &reply, what);
    let mut left = None;
    let result = serde_json::from_slice(&reply.body)
        .inspect(|object: &Object<'_>| left = of_kubectl(object, &reply, what))
        .map_err(|_| classify::odd(&what.subject, "it is not an object"))
        .and_then(|object| proof(cluster, what, object, &answered))
        .map(|applied| Applied { body: reply.body.clone(), of_kubectl: left, ..applied });
    let result = match result {
        Ok(applied) if applied.unsure && Box::pin(was_the_same(cluster, what, &applied, by)).await => {
            Ok(Applied { change: Change::Unchanged, has_others: false, ..applied })
        }
        result => result,
    };
    Outcome { result, warnings: said }
}

/// Fields that client-side `kubectl apply` still owns alone. The answer is read whole only where it owns any.
fn of_kubectl(object: &Object<'_>, reply: &Reply, what: &Patch<'_>) -> Option<Box<str>> {
    object.metadata.managed_fields.iter().find(|entry| entry.manager == kubectl::MANAGER)?;
    kubectl::held(&serde_json::from_slice(&reply.body).ok()?, what.manager).map(String::into_boxed_str)
}

/// What is to be said in a dry run of fields that client-side kubectl owns alone.
pub(crate) fn rehearsed_with_kubectl(held: &str, take_over: bool) -> String {
    if take_over { kubectl::they_would_go(held) } else { kubectl::they_stay(held) }
}

/// Takes over what client-side kubectl owns of an object that was applied, and applies it again, so that what the design does not
/// have goes (case 295). Answers what is to be said.
pub(crate) async fn settle_with_kubectl(
    cluster: &Cluster,
    what: &Patch<'_>,
    applied: Applied,
    take_over: bool,
    by: Instant,
) -> Outcome<Applied> {
    let Some(held) = applied.of_kubectl.clone() else { return Outcome { result: Ok(applied), warnings: Vec::new() } };
    if take_over && take_from_kubectl(cluster, what, &applied, by).await {
        let again = apply(cluster, what, by).await;
        let result = again.result.map(|again| Applied { change: Change::Configured, ..again });
        return Outcome { result, warnings: vec![kubectl::they_went(&held)] };
    }
    Outcome { result: Ok(applied), warnings: vec![kubectl::they_stay(&held)] }
}

/// Whether what kubectl owned is ours now.
async fn take_from_kubectl(cluster: &Cluster, what: &Patch<'_>, applied: &Applied, by: Instant) -> bool {
    let Ok(object) = serde_json::from_slice::<Value>(&applied.body) else { return false };
    let Some(patch) = kubectl::taking_over(&object, what.manager) else { return false };
    let path = format!("{}?fieldManager={}", object::path(&what.subject, what.resource), what.manager);
    let request = Request::patch(path).header(header::CONTENT_TYPE, "application/json-patch+json");
    let Ok(request) = request.body(Body::from(Bytes::from(patch.to_string()))) else { return false };
    let target = object::target("PATCH", &what.subject, what.resource, what.attempt);
    cluster.send(request, &target, by).await.is_ok_and(|reply| reply.status == StatusCode::OK)
}

/// Asks what applying the object would change (S22): the API server goes all the way and stores nothing.
pub(crate) async fn rehearse(cluster: &Cluster, what: &Patch<'_>, marks: Marks, by: Instant) -> Outcome<Rehearsed> {
    let failed = |verdict| Outcome { result: Err(verdict), warnings: Vec::new() };
    let before = match object::read::<Value>(cluster, &what.subject, what.resource, "application/json", by).await {
        Ok(Found::There(object)) => Some(object),
        Ok(Found::NotThere) => None,
        Err(verdict) => return failed(verdict),
    };
    let reply = match send(cluster, what, Storing::No, by).await {
        Ok(reply) => reply,
        Err(verdict) => return failed(verdict),
    };
    let result = match serde_json::from_slice::<Value>(&reply.body) {
        Ok(after) if after["metadata"]["name"] == what.subject.name => {
            let (diff, diff_left_out) = match marks {
                Marks::Count => diff::diff(before.as_ref(), &after),
                Marks::Aside => diff::diff(before.clone().map(without_marks).as_ref(), &without_marks(after.clone())),
            };
            let change = match (&before, diff.is_empty()) {
                (None, _) => Change::Created,
                (Some(_), false) => Change::Configured,
                (Some(_), true) => Change::Unchanged,
            };
            let namespace = after["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            let of_before =
                |key: &str| before.as_ref().and_then(|it| it["metadata"][key].as_str()).unwrap_or_default().to_owned();
            let applied = Applied {
                change,
                namespace,
                uid: of_before("uid"),
                resource_version: of_before("resourceVersion"),
                of_kubectl: kubectl::held(&after, what.manager).map(String::into_boxed_str),
                ..Applied::default()
            };
            let adopts = before.as_ref().is_some_and(|it| it["metadata"]["labels"][object::DESIGN_LABEL].is_null());
            Ok(Rehearsed { applied, diff, diff_left_out, after: Some(after), adopts })
        }
        _ => Err(classify::odd(&what.subject, "it is not the object")),
    };
    Outcome { result, warnings: masked_warnings(cluster, &reply, what) }
}

/// Sends the PATCH; whatever is not 200 or 201 is classified.
async fn send(cluster: &Cluster, what: &Patch<'_>, storing: Storing, by: Instant) -> Result<Reply, Verdict> {
    let subject = &what.subject;
    let request = patch(what, storing).map_err(|error| classify::no_path(&error))?;
    let target = object::target("PATCH", subject, what.resource, what.attempt);
    let reply = cluster.send(request, &target, by).await.map_err(|why| classify::unanswered(subject, &why))?;
    match reply.status {
        StatusCode::OK | StatusCode::CREATED => Ok(reply),
        status if status.is_success() => Err(classify::unproven(subject, status)),
        _ => Err(classify::answered(subject, &reply.answer(), &cluster.secrets_around(&what.manifest))),
    }
}

/// The object may be secret, so what the server warns of is masked like what it refuses.
fn masked_warnings(cluster: &Cluster, reply: &Reply, what: &Patch<'_>) -> Vec<String> {
    let warnings = warnings(&reply.headers);
    if warnings.is_empty() {
        return Vec::new();
    }
    let secrets = cluster.secrets_around(&what.manifest);
    warnings.iter().map(|warning| secrets.render(warning)).collect()
}

fn patch(what: &Patch<'_>, storing: Storing) -> Result<Request<Body>, http::Error> {
    let mut path = object::path(&what.subject, what.resource);
    path.push_str("?fieldManager=");
    path.push_str(what.manager);
    path.push_str("&fieldValidation=Strict");
    if what.force {
        path.push_str("&force=true");
    }
    if storing == Storing::No {
        path.push_str("&dryRun=All");
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
fn proof(cluster: &Cluster, what: &Patch<'_>, object: Object<'_>, answered: &Answered) -> Result<Applied, Verdict> {
    let subject = &what.subject;
    let metadata = object.metadata;
    if metadata.name != subject.name
        || (!object.kind.is_empty() && object.kind != subject.kind)
        || metadata.uid.is_empty()
    {
        let text = format!("it is {} {}", object.kind, metadata.name);
        return Err(classify::odd(subject, &cluster.render(&text.into())));
    }
    if metadata.deletion_timestamp.is_some() {
        return Err(classify::being_deleted(subject));
    }
    let mut unsure = false;
    let change = if answered.created {
        Change::Created
    } else {
        let ours = metadata
            .managed_fields
            .iter()
            .find(|entry| entry.manager == what.manager && entry.operation == "Apply" && entry.subresource.is_empty());
        let entry_time = ours.map(|entry| &*entry.time);
        // Whoever wrote in the same second or later, such as the status, has moved the resource version too (case 315).
        let is_later = |entry: &ManagedFields| entry_time.is_some_and(|ours| *entry.time >= *ours);
        let of_others =
            metadata.managed_fields.iter().filter(|entry| !ours.is_some_and(|ours| std::ptr::eq(*entry, ours)));
        unsure = what.lost_since.is_none() && of_others.into_iter().any(is_later);
        let is_known = what.known_version == Some(&*metadata.resource_version);
        let wrote = !is_known
            && (ours.is_none()
                || may_be_of_this_request(entry_time, answered)
                    && cluster.is_since_baseline(&metadata.resource_version).unwrap_or(true));
        match wrote {
            // An attempt whose answer was lost may have created the object: then it is as old as our entry.
            true if what.lost_since.is_some() && entry_time == Some(&*metadata.creation_timestamp) => Change::Created,
            true => Change::Configured,
            false => Change::Unchanged,
        }
    };
    let is_of_others = |entry: &ManagedFields| entry.manager != what.manager && entry.subresource.is_empty();
    let has_others = change == Change::Configured && metadata.managed_fields.iter().any(is_of_others);
    Ok(Applied {
        change,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        unsure: unsure && change == Change::Configured,
        has_others,
        of_kubectl: None,
        body: Bytes::new(),
    })
}

/// Whether what the design says of the object was the same right before its last write, so that the write was somebody else's, such
/// as a controller's (case 315).
async fn was_the_same(cluster: &Cluster, what: &Patch<'_>, applied: &Applied, by: Instant) -> bool {
    let before = revision_before::<Value>(cluster, &what.subject, what.resource, applied, "application/json", by);
    let (Some(items), Ok(after)) = (before.await, serde_json::from_slice::<Value>(&applied.body)) else { return false };
    let ours = |object: &Value| {
        let entries = object["metadata"]["managedFields"].as_array().map_or(&[][..], Vec::as_slice);
        let is_ours = |entry: &&Value| {
            entry["manager"] == what.manager && entry["operation"] == "Apply" && entry["subresource"].is_null()
        };
        entries.iter().find(is_ours).map(|entry| entry["fieldsV1"].clone())
    };
    let Ok(declared) = serde_json::from_slice::<Value>(&what.manifest) else { return false };
    items.into_iter().filter(|before| before["metadata"]["uid"] == applied.uid.as_str()).any(|before| {
        ours(&before).is_some() && ours(&before) == ours(&after) && is_same_where_declared(&declared, &before, &after)
    })
}

/// Whether an object is the same before and after in all that is declared of it. Lists are compared whole.
fn is_same_where_declared(declared: &Value, before: &Value, after: &Value) -> bool {
    // What is written there is found elsewhere.
    if declared.get("stringData").is_some() && before["data"] != after["data"] {
        return false;
    }
    let same = |(key, declared): (&String, &Value)| match key.as_str() {
        // Objects in lists do not always say of which kind they are.
        "apiVersion" | "kind" => true,
        key => is_same(declared, &before[key], &after[key]),
    };
    declared.as_object().is_some_and(|declared| declared.iter().all(same))
}

fn is_same(declared: &Value, before: &Value, after: &Value) -> bool {
    match declared {
        Value::Object(declared) if before.is_object() && after.is_object() => {
            declared.iter().all(|(key, declared)| is_same(declared, &before[key], &after[key]))
        }
        _ => before == after,
    }
}

/// The object's metadata as it was right before the write that `applied` tells of; none when nobody can tell.
pub(crate) async fn before(
    cluster: &Cluster,
    subject: &Subject<'_>,
    resource: &Resource,
    applied: &Applied,
    by: Instant,
) -> Option<object::Metadata> {
    let items = revision_before::<object::Bare>(cluster, subject, resource, applied, listing::METADATA_LIST, by);
    items.await?.into_iter().map(|item| item.metadata).find(|metadata| metadata.uid == applied.uid)
}

/// What had the object's name in the revision before the write.
async fn revision_before<T: serde::de::DeserializeOwned>(
    cluster: &Cluster,
    subject: &Subject<'_>,
    resource: &Resource,
    applied: &Applied,
    accept: &'static str,
    by: Instant,
) -> Option<Vec<T>> {
    // Resource versions are revisions of the whole store (https://kubernetes.io/docs/reference/using-api/api-concepts/,
    // "Resource versions"), so the one before shows the object without this write.
    let revision = applied.resource_version.parse::<u64>().ok()?.checked_sub(1)?;
    let mut path = object::collection(subject.api_version, resource, subject.namespace);
    path.push_str("?fieldSelector=metadata.name%3D");
    path.extend(utf8_percent_encode(subject.name, NON_ALPHANUMERIC));
    path.push_str(&format!("&resourceVersion={revision}&resourceVersionMatch=Exact"));
    let request = Request::get(path).header(header::ACCEPT, accept).body(Body::empty()).ok()?;
    let reply = cluster.send(request, &object::target("LIST", subject, resource, 1), by).await.ok()?;
    if reply.status != StatusCode::OK {
        return None;
    }
    serde_json::from_slice::<Revision<T>>(&reply.body).ok().map(|revision| revision.items)
}

#[derive(Deserialize)]
struct Revision<T> {
    items: Vec<T>,
}

/// Whether a field manager's entry may have been written by the request that was answered: both times are the server's, cut
/// to the second, and the entry is written somewhere between the request and the answer.
fn may_be_of_this_request(entry: Option<&str>, answered: &Answered) -> bool {
    let entry = entry.and_then(|time| humantime::parse_rfc3339(time).ok());
    let (Some(entry), Some(date)) = (entry, answered.date) else { return true };
    date.duration_since(entry).map_or(true, |age| age.as_secs() <= answered.took.as_secs() + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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

    /// Case 315.
    #[test]
    fn what_others_wrote_is_no_change_of_what_is_declared() {
        let declared =
            json!({"kind": "A", "metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"replicas": 1, "list": [1]}});
        let before = json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"replicas": 1, "list": [1]}});
        let same = |change: fn(&mut Value)| {
            let mut after = before.clone();
            change(&mut after);
            is_same_where_declared(&declared, &before, &after)
        };
        assert!(same(|it| it["status"] = json!({"ready": true})));
        assert!(same(|it| it["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "1"})));
        assert!(same(|it| it["spec"]["other"] = json!(1)));
        assert!(!same(|it| it["spec"]["replicas"] = json!(2)));
        assert!(!same(|it| it["spec"]["list"] = json!([1, 2])));
        assert!(!same(|it| it["metadata"]["labels"] = json!({"x": "2"})));
        let secret = json!({"stringData": {"a": "b"}});
        assert!(!is_same_where_declared(&secret, &json!({"data": {"a": "MQ=="}}), &json!({"data": {"a": "Yg=="}})));
    }

    #[test]
    fn slow_answer_widens_what_may_be_of_this_request() {
        let slow = Answered { took: Duration::from_secs(10), ..answered("Sun, 29 Nov 2026 10:00:15 GMT") };
        assert!(may_be_of_this_request(Some("2026-11-29T10:00:05Z"), &slow));
    }
}
