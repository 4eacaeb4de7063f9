//! What became of a write whose answer was lost, when the same request is refused afterwards: a read decides it, if one can (D8,
//! case 264). A refusal says nothing of the attempt before.

use http::{Request, StatusCode, header};
use kube::client::Body;
use serde::Deserialize;
use tokio::time::{Duration, Instant};

use super::{
    Change, Cluster,
    apply::{Applied, Patch},
    discovery::Resource,
    object::{self, Found},
};
use crate::answers::classify::Subject;

/// How long the read may take: whoever asks for it has been refused, so little of the step's time may be left.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a read shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LookBack {
    /// The write was carried out.
    Done(Applied),
    /// It was not.
    NotDone,
    /// Nobody can tell.
    Open,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(flatten)]
    common: object::Metadata,
    #[serde(default)]
    creation_timestamp: String,
    #[serde(default)]
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

/// Looks for an apply of `what` that was sent at `what.lost_since` or later.
pub(crate) async fn applied(cluster: &Cluster, what: &Patch<'_>) -> LookBack {
    let subject = &what.subject;
    let by = Instant::now() + PATIENCE;
    let request = Request::get(object::path(subject, what.resource)).header(header::ACCEPT, object::METADATA_ONLY);
    let Ok(request) = request.body(Body::empty()) else { return LookBack::Open };
    let target = object::target("GET", subject, what.resource, 1);
    let (Ok(reply), Some(since)) = (cluster.send(request, &target, by).await, what.lost_since) else {
        return LookBack::Open;
    };
    if object::says_not_there(&reply, subject) {
        return LookBack::NotDone;
    }
    let object = match reply.status {
        StatusCode::OK => serde_json::from_slice::<Object>(&reply.body).ok(),
        _ => None,
    };
    let date = reply.headers.get(header::DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let (Some(Object { metadata }), Some(date)) = (object, date) else { return LookBack::Open };
    let ours = metadata
        .managed_fields
        .iter()
        .find(|entry| entry.manager == what.manager && entry.operation == "Apply" && entry.subresource.is_empty());
    let Some(ours) = ours else { return LookBack::NotDone };
    let Ok(written) = humantime::parse_rfc3339(&ours.time) else { return LookBack::Open };
    // Both times are the server's, cut to the second, and so is what they are compared with.
    let age = date.duration_since(written).unwrap_or_default().as_secs();
    let elapsed = since.elapsed().as_secs();
    let since_the_run_began = cluster.is_since_baseline(&metadata.common.resource_version);
    // What others wrote last says nothing of when we did.
    let is_newest = metadata.managed_fields.iter().all(|entry| std::ptr::eq(entry, ours) || entry.time < ours.time);
    if age > elapsed + 1 || since_the_run_began == Some(false) {
        LookBack::NotDone
    } else if age < elapsed || (since_the_run_began == Some(true) && is_newest) {
        let is_new = metadata.creation_timestamp == ours.time;
        LookBack::Done(Applied {
            change: if is_new { Change::Created } else { Change::Configured },
            namespace: metadata.common.namespace,
            uid: metadata.common.uid,
            resource_version: metadata.common.resource_version,
            ..Applied::default()
        })
    } else {
        LookBack::Open
    }
}

/// Looks for a deletion.
pub(crate) async fn removed(cluster: &Cluster, subject: &Subject<'_>, resource: &Resource) -> LookBack {
    let by = Instant::now() + PATIENCE;
    match object::read::<object::Bare>(cluster, subject, resource, object::METADATA_ONLY, by).await {
        Ok(Found::NotThere) => LookBack::Done(Applied { change: Change::Removed, ..Applied::default() }),
        Ok(Found::There(object::Bare { metadata })) if metadata.deletion_timestamp.is_none() => LookBack::NotDone,
        Ok(Found::There(_)) | Err(_) => LookBack::Open,
    }
}
