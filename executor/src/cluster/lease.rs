//! A Lease in the cluster that one holder has at a time (D24): what keeps two runs of one design off one cluster, whichever
//! executor conducts them. That of a design stays between runs, without a holder, and says what the design has there (L2).
//!
//! It is taken by a patch that begins with a test of who has it, so the API server itself refuses the second. A renewal tests the
//! Lease's uid, so that it takes none that was made anew. Whether a holder is still there is judged by the API server's clock alone,
//! from the time of the holder's last write, which it makes under a field manager of its own, and the `Date` of the answer; no clock
//! of ours is compared with one of another machine.
//! The holder itself relies on less than that: see [`HELD_FOR`].

mod record;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};

use http::{Method, Request, StatusCode, header};
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};
use switchyard_proto::v1;
use tokio::time::{Duration, Instant, sleep};

use self::record::{KINDS, LAST_RUN, RUN_BEFORE};
pub(crate) use self::record::{Kinds, LastRun};
use super::{
    Cluster, Reply,
    discovery::Resource,
    object::{self, Metadata},
};
use crate::answers::classify::Subject;

const API_VERSION: &str = "coordination.k8s.io/v1";
/// How long a Lease counts without a renewal. Long enough for an API server that restarts.
const TERM: Duration = Duration::from_secs(30);
/// How long its holder relies on it after a renewal was sent: shorter than its term by what the clocks of a cluster's API servers
/// may differ, and what a write that is on its way may take.
pub(crate) const HELD_FOR: Duration = Duration::from_secs(25);
/// Pause between renewals.
pub(crate) const RENEWAL: Duration = Duration::from_secs(10);
/// Pause before a renewal that failed is tried again.
pub(crate) const RENEWAL_AGAIN: Duration = Duration::from_secs(2);
/// Attempts at a Lease that others let go of in the same moment, or whose API server has no time right now.
const TRIES: u32 = 4;
/// Pause before the second attempt at a Lease whose API server has no time; longer before each one after it.
const PAUSE: Duration = Duration::from_millis(200);

/// Why a Lease was not had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// Another has it, perhaps no longer alive: then it is free in so much time.
    Held { holder: String, free_in: Duration },
    /// It was ours, and is not there any more, or was made anew: others may have had it in between.
    Gone,
    /// The credentials have no right to it.
    Forbidden,
    /// The namespace it should lie in does not exist.
    NoNamespace,
    /// The API server cannot call the webhook of this name, which it asks about Leases (case 286).
    Barred(String),
    /// The cluster did not say.
    Failed(String),
}

/// Which Lease, and for whom.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// What the Lease is for, for people.
    pub(crate) purpose: String,
    pub(crate) holder: String,
    /// What it says between runs; a Lease without goes with its holder.
    pub(crate) record: Option<Record>,
    pub(crate) left_behind: LeftBehind,
}

/// What a Lease that stays is to say.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) run: LastRun,
    /// Kinds that the run may bring; none that it only removes.
    pub(crate) kinds: Kinds,
}

/// What has become of its holder when a Lease is let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// It did nothing.
    NotBegun,
    /// It is not known to have come to an end.
    Unknown,
    /// It has come to its end, and what the design has there is still there.
    Ended(v1::Verdict),
    /// It has removed everything that the design had there.
    AllGone,
}

/// Holders that have come to their end here and could not let go of their Leases: those keep nobody off.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftBehind(Arc<Mutex<BTreeMap<String, Instant>>>);

impl LeftBehind {
    /// Remembers a holder for as long as its Leases may be there.
    pub(crate) fn add(&self, holder: &str) {
        self.lock().insert(holder.to_owned(), Instant::now() + TERM);
    }

    fn holds(&self, holder: &str) -> bool {
        let mut known = self.lock();
        known.retain(|_, until| Instant::now() < *until);
        known.contains_key(holder)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.0.lock().expect("nothing panics while it holds the lock")
    }
}

/// A Lease as its holder saw it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    uid: String,
    resource_version: String,
    /// Kinds that the design had there before.
    pub(crate) kinds: Kinds,
    /// The run before; none where there was none.
    pub(crate) before: Option<Box<LastRun>>,
}

#[derive(Deserialize)]
struct Lease {
    metadata: LeaseMetadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseMetadata {
    #[serde(flatten)]
    common: Metadata,
    #[serde(default)]
    managed_fields: Vec<ManagedFields>,
}

/// What one field manager has written, as far as it is looked at.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ManagedFields {
    manager: String,
    /// The API server's time of the last write, to the second.
    time: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    holder_identity: String,
    lease_duration_seconds: u64,
}

impl Claim {
    /// Takes the Lease, and makes it if it is not there.
    pub(crate) async fn take(&self, cluster: &Cluster, by: Instant) -> Result<Taken, Error> {
        let mut seen = None;
        for attempt in 1..=TRIES {
            let reply = match self.seize(cluster, seen.as_ref(), by).await {
                Ok(reply) if !is_passing(reply.status) => reply,
                // Perhaps it was carried out; then the next one finds what it wrote.
                answer if attempt == TRIES || Instant::now() + PAUSE * attempt >= by => return Err(refusal(&answer?)),
                _ => {
                    sleep(PAUSE * attempt).await;
                    continue;
                }
            };
            match reply.status {
                StatusCode::OK | StatusCode::CREATED => return self.proof(&reply),
                StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY => {}
                _ => return Err(refusal(&reply)),
            }
            seen = match self.holder_now(cluster, by).await.map_err(unseen)? {
                None => None,
                // What we wrote ourselves and had no answer to.
                Some((lease, _)) if lease.spec.holder_identity == self.holder => return Ok(lease.into()),
                Some((lease, Some(left))) if !self.left_behind.holds(&lease.spec.holder_identity) => {
                    return Err(Error::Held { holder: lease.spec.holder_identity, free_in: left });
                }
                Some((lease, _)) => Some(lease),
            };
        }
        Err(Error::Failed("its Lease changes hands too quickly".into()))
    }

    /// Takes the Lease if nobody has it or, if it was `seen`, as long as it still is as it was then. Makes it if it is not there.
    async fn seize(&self, cluster: &Cluster, seen: Option<&Lease>, by: Instant) -> Result<Reply, Error> {
        let mut changes = vec![match seen {
            None => json!({"op": "test", "path": "/spec/holderIdentity", "value": ""}),
            Some(seen) => {
                let version = &seen.metadata.common.resource_version;
                json!({"op": "test", "path": "/metadata/resourceVersion", "value": version})
            }
        }];
        if let Some(record) = &self.record {
            let annotations = seen.map(|seen| &seen.metadata.common.annotations);
            if annotations.is_some_and(BTreeMap::is_empty) {
                changes.push(json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
            }
            // The answer then says what the last run was.
            if annotations.is_none_or(|annotations| annotations.contains_key(LAST_RUN)) {
                changes.push(json!({"op": "copy", "from": annotation(LAST_RUN), "path": annotation(RUN_BEFORE)}));
            }
            changes.push(set(LAST_RUN, &record.run));
        }
        changes.push(json!({"op": "add", "path": "/spec", "value": self.spec()}));
        let reply = self.patch(cluster, &changes, by).await?;
        if !object::says_not_there(&reply, &self.subject(cluster)) {
            return Ok(reply);
        }
        let mut annotations = json!({ "switchyard.meshery.io/purpose": self.purpose });
        if let Some(Record { run, kinds }) = &self.record {
            annotations[LAST_RUN] = run.to_string().into();
            annotations[KINDS] = kinds.to_string().into();
        }
        let lease = json!({
            "apiVersion": API_VERSION,
            "kind": "Lease",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": { "app.kubernetes.io/managed-by": "switchyard" },
                "annotations": annotations,
            },
            "spec": self.spec(),
        });
        self.send(cluster, Method::POST, lease.to_string(), by).await
    }

    fn spec(&self) -> Value {
        json!({
            "holderIdentity": self.holder,
            "leaseDurationSeconds": TERM.as_secs(),
            "renewTime": now(),
        })
    }

    /// Writes down the kinds that the holder brings, beside those that were known: before the first object of a new one (L2).
    pub(crate) async fn note_kinds(&self, cluster: &Cluster, taken: &Taken, by: Instant) -> Result<(), Error> {
        let Some(Record { kinds, .. }) = &self.record else { return Ok(()) };
        if taken.kinds.holds(kinds) {
            return Ok(());
        }
        let reply = self.patch(cluster, &[self.is_ours(), set(KINDS, &taken.kinds.and(kinds))], by).await?;
        if reply.status == StatusCode::OK { Ok(()) } else { Err(refusal(&reply)) }
    }

    /// Renews the Lease. That another has it meanwhile is [`Error::Held`], that it is not the one that was taken [`Error::Gone`].
    pub(crate) async fn renew(&self, cluster: &Cluster, taken: &Taken, by: Instant) -> Result<Taken, Error> {
        let changes = [
            json!({"op": "test", "path": "/metadata/uid", "value": taken.uid}),
            self.is_ours(),
            json!({"op": "add", "path": "/spec/renewTime", "value": now()}),
        ];
        let reply = self.patch(cluster, &changes, by).await?;
        match reply.status {
            StatusCode::OK => {
                let renewed = self.proof(&reply)?;
                Ok(Taken { resource_version: renewed.resource_version, ..taken.clone() })
            }
            _ if object::says_not_there(&reply, &self.subject(cluster)) => Err(Error::Gone),
            StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY => match self.holder_now(cluster, by).await? {
                None => Err(Error::Gone),
                Some((lease, left)) if lease.spec.holder_identity != self.holder => {
                    Err(Error::Held { holder: lease.spec.holder_identity, free_in: left.unwrap_or_default() })
                }
                Some((lease, _)) if lease.metadata.common.uid != taken.uid => Err(Error::Gone),
                Some(_) => Err(Error::Failed("its Lease is being written by others".into())),
            },
            _ => Err(refusal(&reply)),
        }
    }

    /// Lets go of the Lease, if it is still ours. What is left of it is free after its term. `taken` is how it was seen last;
    /// without it, it is looked at first.
    pub(crate) async fn release(
        &self,
        cluster: &Cluster,
        taken: Option<Taken>,
        end: Leave,
        by: Instant,
    ) -> Result<(), Error> {
        let mut known = taken;
        for attempt in 1..=TRIES {
            let taken = match known.take() {
                Some(taken) => taken,
                None => match self.holder_now(cluster, by).await? {
                    Some((lease, _)) if lease.spec.holder_identity == self.holder => lease.into(),
                    // Another has it, or nobody.
                    _ => return Ok(()),
                },
            };
            let reply = match (&self.record, end) {
                (None, _) | (_, Leave::AllGone) => self.remove(cluster, &taken, by).await?,
                // It was made for this.
                (_, Leave::NotBegun) if taken.before.is_none() => self.remove(cluster, &taken, by).await?,
                (Some(record), end) => self.patch(cluster, &self.leave(record, end), by).await?,
            };
            match reply.status {
                status if status.is_success() => return Ok(()),
                StatusCode::NOT_FOUND => return Ok(()),
                // A renewal whose answer was lost, or another's hand: a look tells.
                StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY => {}
                status if is_passing(status) && attempt < TRIES && Instant::now() + PAUSE * attempt < by => {
                    sleep(PAUSE * attempt).await;
                }
                _ => return Err(refusal(&reply)),
            }
        }
        Err(Error::Failed("its Lease is being written by others".into()))
    }

    /// The changes by which a Lease that stays is left.
    fn leave(&self, record: &Record, end: Leave) -> Vec<Value> {
        let mut changes = vec![self.is_ours()];
        match end {
            Leave::NotBegun => {
                changes.push(json!({"op": "move", "from": annotation(RUN_BEFORE), "path": annotation(LAST_RUN)}));
            }
            Leave::Ended(verdict) => changes.push(set(LAST_RUN, &record.run.ended(verdict))),
            Leave::Unknown | Leave::AllGone => {}
        }
        changes.push(json!({"op": "add", "path": "/spec/holderIdentity", "value": ""}));
        changes
    }

    async fn remove(&self, cluster: &Cluster, taken: &Taken, by: Instant) -> Result<Reply, Error> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "resourceVersion": taken.resource_version },
        });
        self.send(cluster, Method::DELETE, options.to_string(), by).await
    }

    fn is_ours(&self) -> Value {
        json!({"op": "test", "path": "/spec/holderIdentity", "value": self.holder})
    }

    /// Makes the changes (RFC 6902) all together or none of them.
    async fn patch(&self, cluster: &Cluster, changes: &[Value], by: Instant) -> Result<Reply, Error> {
        self.send(cluster, Method::PATCH, json!(changes).to_string(), by).await
    }

    /// The Lease as it is, and how long its holder has it for certain; none when its term is over.
    async fn holder_now(&self, cluster: &Cluster, by: Instant) -> Result<Option<(Lease, Option<Duration>)>, Error> {
        let reply = self.send(cluster, Method::GET, String::new(), by).await?;
        match reply.status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(None),
            _ => return Err(refusal(&reply)),
        }
        let lease: Lease = serde_json::from_slice(&reply.body)
            .map_err(|_| Error::Failed("what was answered is not a Lease".into()))?;
        let date = reply.headers.get(header::DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
        let left = left(&lease, date);
        Ok(Some((lease, left)))
    }

    fn proof(&self, reply: &Reply) -> Result<Taken, Error> {
        match serde_json::from_slice::<Lease>(&reply.body) {
            Ok(lease) if lease.spec.holder_identity == self.holder => Ok(lease.into()),
            _ => Err(Error::Failed("its answer is not the Lease".into())),
        }
    }

    fn subject<'a>(&'a self, cluster: &'a Cluster) -> Subject<'a> {
        Subject {
            cluster: &cluster.name,
            api_version: API_VERSION,
            kind: "Lease",
            namespace: &self.namespace,
            name: &self.name,
            kind_in_design: false,
            namespace_in_design: false,
        }
    }

    async fn send(&self, cluster: &Cluster, method: Method, body: String, by: Instant) -> Result<Reply, Error> {
        let resource = Resource { plural: "leases".into(), namespaced: true, has_status: false };
        let subject = self.subject(cluster);
        let (method_name, content) = match method {
            Method::PATCH => ("PATCH", "application/json-patch+json"),
            Method::POST => ("POST", "application/json"),
            Method::DELETE => ("DELETE", "application/json"),
            _ => ("GET", "application/json"),
        };
        let mut uri = match method {
            Method::POST => object::collection(API_VERSION, &resource, &self.namespace),
            _ => object::path(&subject, &resource),
        };
        if matches!(method, Method::PATCH | Method::POST) {
            uri.push_str(&format!("?fieldManager=switchyard-{}", self.holder));
        }
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::CONTENT_TYPE, content)
            .header(header::ACCEPT, "application/json")
            .body(Body::from(body.into_bytes()))
            .map_err(|error| Error::Failed(error.to_string()))?;
        let target = object::target(method_name, &subject, &resource, 1);
        cluster.exchange(request, &target, by).await.map_err(|why| Error::Failed(why.to_string()))
    }
}

/// Where an annotation stands, as a JSON pointer (RFC 6901).
fn annotation(key: &str) -> String {
    format!("/metadata/annotations/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn set(key: &str, value: &impl ToString) -> Value {
    json!({"op": "add", "path": annotation(key), "value": value.to_string()})
}

fn now() -> String {
    humantime::format_rfc3339_micros(SystemTime::now()).to_string()
}

/// How long the holder has the Lease by the server's clock. None when its term is over, or nobody has it. A Lease whose age nobody
/// can tell is held for its whole term.
fn left(lease: &Lease, date: Option<SystemTime>) -> Option<Duration> {
    if lease.spec.holder_identity.is_empty() {
        return None;
    }
    let term = Duration::from_secs(lease.spec.lease_duration_seconds.max(1));
    let written =
        lease.metadata.managed_fields.iter().filter(|entry| entry.manager.ends_with(&lease.spec.holder_identity));
    let written = written.filter_map(|entry| humantime::parse_rfc3339(&entry.time).ok()).max();
    let (Some(written), Some(date)) = (written, date) else { return Some(term) };
    // Both are cut to the second, and the answer came after the write.
    let age = date.duration_since(written).unwrap_or_default().saturating_sub(Duration::from_secs(1));
    term.checked_sub(age).filter(|left| !left.is_zero())
}

impl From<Lease> for Taken {
    fn from(lease: Lease) -> Self {
        let Metadata { uid, resource_version, annotations, .. } = lease.metadata.common;
        let kinds = annotations.get(KINDS).map(|kinds| Kinds::parse(kinds)).unwrap_or_default();
        let before = annotations.get(RUN_BEFORE).and_then(|run| LastRun::parse(run)).map(Box::new);
        Self { uid, resource_version, kinds, before }
    }
}

/// Whether the same request may do better in a moment.
fn is_passing(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

/// Only a lack of rights is [`Error::Forbidden`]: a run goes on without a lock where nobody could take one, and not where taking it
/// failed.
fn refusal(reply: &Reply) -> Error {
    let text = String::from_utf8_lossy(&reply.body);
    match reply.status {
        StatusCode::FORBIDDEN if text.contains("NamespaceTerminating") => {
            Error::Failed("the namespace where it should lie is being terminated".into())
        }
        StatusCode::FORBIDDEN if text.contains("denied the request") || text.contains("ValidatingAdmissionPolicy") => {
            Error::Failed("a webhook or policy of the cluster denies it".into())
        }
        StatusCode::FORBIDDEN => Error::Forbidden,
        StatusCode::NOT_FOUND => Error::NoNamespace,
        StatusCode::INTERNAL_SERVER_ERROR if let Some(webhook) = webhook(&reply.body) => Error::Barred(webhook),
        status => Error::Failed(format!("it answered {status}")),
    }
}

/// The webhook that could not be called.
fn webhook(body: &[u8]) -> Option<String> {
    let status: serde_json::Value = serde_json::from_slice(body).ok()?;
    let (_, rest) = status["message"].as_str()?.split_once("failed calling webhook \"")?;
    rest.split_once('"').map(|(name, _)| name.to_owned())
}

/// What it means that the Lease which is in the way cannot be looked at: somebody has it.
fn unseen(error: Error) -> Error {
    match error {
        Error::Forbidden => {
            Error::Failed("another run may have it, and the credentials may not read whose it is".into())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(written: &str) -> Lease {
        let lease = json!({
            "metadata": {"managedFields": [
                {"manager": "switchyard-mine", "time": written},
                {"manager": "switchyard-other", "time": "2026-11-30T12:00:00Z"},
            ]},
            "spec": {"holderIdentity": "mine", "leaseDurationSeconds": 30},
        });
        serde_json::from_value(lease).unwrap()
    }

    fn at(date: &str) -> Option<SystemTime> {
        humantime::parse_rfc3339(date).ok()
    }

    #[test]
    fn lease_is_held_for_its_term_by_the_servers_clock() {
        let lease = lease("2026-11-30T10:00:00Z");
        assert_eq!(left(&lease, at("2026-11-30T10:00:11Z")), Some(Duration::from_secs(20)));
        assert_eq!(left(&lease, at("2026-11-30T10:00:30Z")), Some(Duration::from_secs(1)));
        assert_eq!(left(&lease, at("2026-11-30T10:00:31Z")), None);
        assert_eq!(left(&lease, at("2026-11-30T09:59:59Z")), Some(Duration::from_secs(30)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_ended_here_keeps_nobody_off_for_as_long_as_its_lease_may_be_there() {
        let left_behind = LeftBehind::default();
        left_behind.clone().add("ended");
        assert!(left_behind.holds("ended") && !left_behind.holds("other"));
        tokio::time::advance(TERM).await;
        assert!(!left_behind.holds("ended"));
    }

    #[test]
    fn lease_whose_age_nobody_can_tell_is_held() {
        assert_eq!(left(&lease("soon"), at("2026-11-30T10:00:11Z")), Some(Duration::from_secs(30)));
        assert_eq!(left(&lease("2026-11-30T10:00:00Z"), None), Some(Duration::from_secs(30)));
    }

    fn refused(code: u16, body: &str) -> Error {
        let status = StatusCode::from_u16(code).unwrap();
        refusal(&Reply { status, headers: http::HeaderMap::new(), body: bytes::Bytes::from(body.to_owned()) })
    }

    /// Case 261: whatever keeps a run from a lock that others could take is no licence to go without.
    #[test]
    fn only_a_lack_of_rights_lets_a_run_go_without_a_lock() {
        let lack = r#"leases.coordination.k8s.io "a" is forbidden: User "u" cannot patch resource "leases""#;
        assert_eq!(refused(403, lack), Error::Forbidden);
        for (code, body) in [
            (401, "Unauthorized"),
            (403, r#"{"details": {"causes": [{"reason": "NamespaceTerminating"}]}}"#),
            (403, r#"admission webhook "a.b" denied the request"#),
            (429, ""),
            (503, ""),
        ] {
            assert!(matches!(refused(code, body), Error::Failed(_)), "{code} {body}");
        }
        let away =
            r#"{"message": "Internal error occurred: failed calling webhook \"a.b\": failed to call webhook: EOF"}"#;
        assert_eq!(refused(500, away), Error::Barred("a.b".into()));
        assert!(matches!(unseen(Error::Forbidden), Error::Failed(_)));
    }
}
