//! A Lease in the cluster that one holder has at a time (D24): what keeps two runs of one design off one cluster, whichever
//! executor conducts them.
//!
//! Each holder applies the Lease under a field manager of its own, so the API server itself refuses the second: that is a
//! conflict over `spec.holderIdentity`. A renewal names the Lease's uid, so that it makes none anew that has gone. Whether a holder
//! is still there is judged by the API server's clock alone, from the time of the holder's last write and the `Date` of the answer;
//! no clock of ours is compared with one of another machine.
//! The holder itself relies on less than that: see [`HELD_FOR`].

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};

use http::{Method, Request, StatusCode, header};
use kube::client::Body;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Duration, Instant, sleep};

use super::{
    Cluster, Reply,
    discovery::Resource,
    object::{self, Metadata},
};
use crate::classify::Subject;

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
    pub(crate) left_behind: LeftBehind,
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
    /// Takes the Lease.
    pub(crate) async fn take(&self, cluster: &Cluster, by: Instant) -> Result<Taken, Error> {
        let mut instead_of = None;
        for attempt in 1..=TRIES {
            let reply = match self.apply(cluster, None, instead_of.as_deref(), by).await {
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
                StatusCode::CONFLICT => {}
                _ => return Err(refusal(&reply)),
            }
            instead_of = match self.holder_now(cluster, by).await.map_err(unseen)? {
                None => None,
                // What we wrote ourselves and had no answer to.
                Some((lease, _)) if lease.spec.holder_identity == self.holder => return Ok(lease.into()),
                Some((lease, Some(left))) if !self.left_behind.holds(&lease.spec.holder_identity) => {
                    return Err(Error::Held { holder: lease.spec.holder_identity, free_in: left });
                }
                Some((lease, _)) => Some(lease.metadata.common.resource_version),
            };
        }
        Err(Error::Failed("its Lease changes hands too quickly".into()))
    }

    /// Renews the Lease. That another has it meanwhile is [`Error::Held`], that it is not the one that was taken [`Error::Gone`].
    pub(crate) async fn renew(&self, cluster: &Cluster, taken: &Taken, by: Instant) -> Result<Taken, Error> {
        let reply = self.apply(cluster, Some(&taken.uid), None, by).await?;
        match reply.status {
            StatusCode::OK => match self.proof(&reply)? {
                renewed if renewed.uid == taken.uid => Ok(renewed),
                _ => Err(Error::Gone),
            },
            StatusCode::CREATED => Err(Error::Gone),
            StatusCode::CONFLICT => match self.holder_now(cluster, by).await? {
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
    pub(crate) async fn release(&self, cluster: &Cluster, taken: Option<Taken>, by: Instant) -> Result<(), Error> {
        let mut known = taken.map(|taken| taken.resource_version);
        for _ in 0..TRIES {
            let resource_version = match known.take() {
                Some(resource_version) => resource_version,
                None => match self.holder_now(cluster, by).await? {
                    Some((lease, _)) if lease.spec.holder_identity == self.holder => {
                        lease.metadata.common.resource_version
                    }
                    // Another has it, or nobody.
                    _ => return Ok(()),
                },
            };
            let options = json!({
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": { "resourceVersion": resource_version },
            });
            let reply = self.send(cluster, Method::DELETE, "", options.to_string(), by).await?;
            match reply.status {
                status if status.is_success() => return Ok(()),
                StatusCode::NOT_FOUND => return Ok(()),
                // A renewal whose answer was lost, or another's hand: a look tells.
                StatusCode::CONFLICT => {}
                _ => return Err(refusal(&reply)),
            }
        }
        Err(Error::Failed("its Lease is being written by others".into()))
    }

    /// Applies the Lease: only the one with this uid, if one is given; over another's if that is still as it was at `instead_of`.
    async fn apply(
        &self,
        cluster: &Cluster,
        uid: Option<&str>,
        instead_of: Option<&str>,
        by: Instant,
    ) -> Result<Reply, Error> {
        let now = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
        let mut lease = json!({
            "apiVersion": API_VERSION,
            "kind": "Lease",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": { "app.kubernetes.io/managed-by": "switchyard" },
                "annotations": { "switchyard.meshery.io/purpose": self.purpose },
            },
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": TERM.as_secs(),
                "renewTime": now,
            },
        });
        let mut query = format!("?fieldManager=switchyard-{}", self.holder);
        if let Some(uid) = uid {
            lease["metadata"]["uid"] = json!(uid);
        }
        if let Some(resource_version) = instead_of {
            lease["metadata"]["resourceVersion"] = json!(resource_version);
            query.push_str("&force=true");
        }
        self.send(cluster, Method::PATCH, &query, lease.to_string(), by).await
    }

    /// The Lease as it is, and how long its holder has it for certain; none when its term is over.
    async fn holder_now(&self, cluster: &Cluster, by: Instant) -> Result<Option<(Lease, Option<Duration>)>, Error> {
        let reply = self.send(cluster, Method::GET, "", String::new(), by).await?;
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

    async fn send(
        &self,
        cluster: &Cluster,
        method: Method,
        query: &str,
        body: String,
        by: Instant,
    ) -> Result<Reply, Error> {
        let resource = Resource { plural: "leases".into(), namespaced: true, has_status: false };
        let subject = Subject {
            cluster: &cluster.name,
            api_version: API_VERSION,
            kind: "Lease",
            namespace: &self.namespace,
            name: &self.name,
            kind_in_design: false,
            namespace_in_design: false,
        };
        let (method_name, content) = match method {
            Method::PATCH => ("PATCH", "application/apply-patch+yaml"),
            Method::DELETE => ("DELETE", "application/json"),
            _ => ("GET", "application/json"),
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{query}", object::path(&subject, &resource)))
            .header(header::CONTENT_TYPE, content)
            .header(header::ACCEPT, "application/json")
            .body(Body::from(body.into_bytes()))
            .map_err(|error| Error::Failed(error.to_string()))?;
        let target = object::target(method_name, &subject, &resource, 1);
        cluster.exchange(request, &target, by).await.map_err(|why| Error::Failed(why.to_string()))
    }
}

/// How long the holder has the Lease by the server's clock. None when its term is over. A Lease whose age nobody can tell is
/// held for its whole term.
fn left(lease: &Lease, date: Option<SystemTime>) -> Option<Duration> {
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
        let Metadata { uid, resource_version, .. } = lease.metadata.common;
        Self { uid, resource_version }
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
