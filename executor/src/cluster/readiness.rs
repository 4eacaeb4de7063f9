//! Waiting until an object that was written is ready (D16): by watch, bounded, and interruptible.
//!
//! What comes of it is told beside the outcome and withholds nothing (S13).

mod fresh;
mod judge;

use serde_json::Value;
use switchyard_proto::v1;
use tokio::time::{Duration, Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::judge::{State, is_custom, judge};
use super::{
    Cluster,
    discovery::Resource,
    object::{self, Found},
    watch::Look,
};
use crate::{answers::classify::Subject, mask::Unmasked};

/// How long a controller may take for its first word. An object of whose kind nobody ever reports a status is ready then
/// (case 56).
const FIRST_WORD: Duration = Duration::from_secs(10);
/// When a wait is told of first, and how often.
const FIRST_TOLD: Duration = Duration::from_secs(3);
const TOLD_EVERY: Duration = Duration::from_secs(5);
/// Pause between looks where watching is not permitted.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

/// What is waited for.
pub(crate) struct Awaited<'a> {
    pub(crate) subject: Subject<'a>,
    pub(crate) resource: &'a Resource,
    /// The design whose mark the object carries.
    pub(crate) design_id: &'a str,
    /// The object as it was written, if that was seen.
    pub(crate) written: Option<Value>,
    /// Is told now and then how far a long wait is.
    pub(crate) tell: &'a (dyn Fn(Report) + Send + Sync),
}

/// What a wait came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) readiness: v1::Readiness,
    /// What a person should know of it.
    pub(crate) note: Option<Unmasked>,
}

impl Report {
    /// The report on an object that was in `state` when the wait ended, because of `end`.
    fn of(state: State, end: &str) -> Self {
        let (readiness, note) = match state {
            State::Ready => return Self { readiness: v1::Readiness::Ready, note: None },
            State::Progressing(why) => (v1::Readiness::Progressing, format!("not ready {end}: {why}")),
            State::Stalled(why) => (v1::Readiness::Stalled, format!("it will not become ready: {why}")),
            State::Silent => (v1::Readiness::Unknown, format!("not known to be ready {end}: no status was reported")),
            State::Outdated => {
                let why = "its status says nothing of the generation that was written, and is not newer than that";
                (v1::Readiness::Unknown, format!("not known to be ready {end}: {why}"))
            }
        };
        Self { readiness, note: Some(note.into()) }
    }
}

/// Waits until the object is ready, has stalled, `deadline` is there, or `stop` says so.
pub(crate) async fn until_ready(
    cluster: &Cluster,
    what: Awaited<'_>,
    stop: &CancellationToken,
    deadline: Instant,
) -> Report {
    // A kind without a status is ready when it is stored.
    if !what.resource.has_status {
        return Report::of(State::Ready, "");
    }
    let began = Instant::now();
    let least = what.written.as_ref().and_then(version);
    let judged = |object: &Value| judge_as_written(object, what.written.as_ref());
    let mut state = what.written.as_ref().map_or(State::Silent, judged);
    if state == State::Ready {
        // Most objects are ready as they are stored; nobody needs to watch them.
        return Report::of(state, "");
    }
    if what.written.as_ref().is_some_and(is_claim) && Box::pin(is_bound_later(cluster, &what, deadline)).await {
        let note = "it is bound when the first pod that uses it is scheduled (WaitForFirstConsumer)";
        return Report { readiness: v1::Readiness::Ready, note: Some(note.into()) };
    }
    let mut next_told = began + FIRST_TOLD;
    let mut looks = cluster.watches.looks(cluster, &what.subject, what.resource, what.design_id);
    loop {
        if matches!(state, State::Ready | State::Stalled(_)) {
            return Report::of(state, "");
        }
        let look = tokio::select! {
            // A stop comes first, or a busy watch would hide it.
            biased;
            () = stop.cancelled() => return Report::of(state, "when the wait was cancelled"),
            () = sleep_until(deadline) => return Report::of(state, &format!("after {:.1?}", began.elapsed())),
            () = sleep_until(began + FIRST_WORD), if state == State::Silent => {
                let note = format!("nobody reported a status in {} s; it counts as ready", FIRST_WORD.as_secs());
                return Report { readiness: v1::Readiness::Ready, note: Some(note.into()) };
            }
            // A controller that has nothing new to say writes nothing.
            () = sleep_until(began + FIRST_WORD), if state == State::Outdated => {
                return Report::of(state, &format!("after {:.1?}", began.elapsed()));
            }
            () = sleep_until(next_told) => {
                (what.tell)(Report::of(state.clone(), "yet"));
                next_told = Instant::now() + TOLD_EVERY;
                continue;
            }
            look = looks.next() => look,
        };
        state = match look {
            // A watch that was there before may still show the object as it was before the write.
            Look::There(object) if version(&object) < least => state,
            Look::There(object) => judged(&object),
            Look::Nothing => state,
            Look::Gone => {
                let note = Some("it was deleted while it was waited for".into());
                return Report { readiness: v1::Readiness::Unknown, note };
            }
            Look::Refused if looks.is_wide() => {
                looks = cluster.watches.looks(cluster, &what.subject, what.resource, what.design_id);
                state
            }
            Look::Refused => {
                tokio::select! {
                    object = read_later(cluster, &what, deadline) => object.as_ref().map_or(state, judged),
                    () = stop.cancelled() => state,
                }
            }
        };
    }
}

fn is_claim(object: &Value) -> bool {
    object["kind"] == "PersistentVolumeClaim" && object["apiVersion"] == "v1" && object["status"]["phase"] == "Pending"
}

/// Whether a claim waits for a pod to use it, so that waiting for the claim before the pod would never end (case 299).
async fn is_bound_later(cluster: &Cluster, what: &Awaited<'_>, by: Instant) -> bool {
    let class = what.written.as_ref().and_then(|claim| claim["spec"]["storageClassName"].as_str());
    let Some(name) = class.filter(|name| !name.is_empty()) else { return false };
    let (api_version, kind) = ("storage.k8s.io/v1", "StorageClass");
    let subject = Subject { api_version, kind, namespace: "", name, ..what.subject.clone() };
    let resource = Resource { plural: "storageclasses".into(), namespaced: false, has_status: false };
    match object::read::<Value>(cluster, &subject, &resource, "application/json", by).await {
        Ok(Found::There(class)) => class["volumeBindingMode"] == "WaitForFirstConsumer",
        Ok(Found::NotThere) | Err(_) => false,
    }
}

/// Judges an object that was written: what was reported of it before does not count (case 273).
fn judge_as_written(object: &Value, written: Option<&Value>) -> State {
    match judge(object) {
        State::Ready | State::Stalled(_) if is_custom(object) && !fresh::is_fresh(object, written) => State::Outdated,
        state => state,
    }
}

/// Looks at the object after a pause.
async fn read_later(cluster: &Cluster, what: &Awaited<'_>, deadline: Instant) -> Option<Value> {
    sleep_until(deadline.min(Instant::now() + BETWEEN_LOOKS)).await;
    let found = object::read::<Value>(cluster, &what.subject, what.resource, "application/json", deadline).await;
    match found {
        Ok(Found::There(object)) => Some(object),
        Ok(Found::NotThere) | Err(_) => None,
    }
}

/// The object's resource version, which grows (Kubernetes 1.35, comparable within a resource type).
fn version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}
