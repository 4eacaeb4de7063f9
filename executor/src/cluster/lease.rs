//! A Lease in the cluster that one holder has at a time (D24): what keeps two runs of one design off one cluster, whichever
//! executor conducts them.
//!
//! Each holder applies the Lease under a field manager of its own, so the API server itself refuses the second: that is a
//! conflict over `spec.holderIdentity`. Whether a holder is still there is judged by the API server's clock alone, from the
//! time of the holder's last write and the `Date` of the answer; no clock of ours is compared with one of another machine.

use std::time::SystemTime;

use http::{Method, Request, StatusCode, header};
use kube::client::Body;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Duration, Instant};

use super::{
    Cluster, Reply,
    discovery::Resource,
    object::{self, Metadata},
};
use crate::verdict::Subject;

const API_VERSION: &str = "coordination.k8s.io/v1";
/// How long a Lease counts without a renewal. Long enough for an API server that restarts.
const TERM: Duration = Duration::from_secs(30);
/// Pause between renewals: two may fail before the Lease is free to others.
pub(crate) const RENEWAL: Duration = Duration::from_secs(10);
/// Attempts at a Lease that others let go of in the same moment.
const TRIES: usize = 4;

/// Why a Lease was not had.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// Another has it, perhaps no longer alive: then it is free in so much time.
    Held { holder: String, free_in: Duration },
    /// The credentials do not permit it.
    Forbidden,
    /// The namespace it should lie in does not exist.
    NoNamespace,
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
    /// Takes the Lease, and answers with its resource version.
    pub(crate) async fn take(&self, cluster: &Cluster, by: Instant) -> Result<String, Error> {
        let mut instead_of = None;
        for _ in 0..TRIES {
            let reply = self.apply(cluster, instead_of.as_deref(), by).await?;
            match reply.status {
                StatusCode::OK | StatusCode::CREATED => return self.proof(&reply),
                StatusCode::CONFLICT => {}
                _ => return Err(refusal(&reply)),
            }
            instead_of = match self.holder_now(cluster, by).await? {
                None => None,
                // What we wrote ourselves and had no answer to.
                Some((lease, _)) if lease.spec.holder_identity == self.holder => {
                    return Ok(lease.metadata.common.resource_version);
                }
                Some((lease, Some(left))) => {
                    return Err(Error::Held { holder: lease.spec.holder_identity, free_in: left });
                }
                Some((lease, None)) => Some(lease.metadata.common.resource_version),
            };
        }
        Err(Error::Failed("its Lease changes hands too quickly".into()))
    }

    /// Renews the Lease. That another has it meanwhile is [`Error::Held`].
    pub(crate) async fn renew(&self, cluster: &Cluster, by: Instant) -> Result<String, Error> {
        let reply = self.apply(cluster, None, by).await?;
        match reply.status {
            StatusCode::OK | StatusCode::CREATED => self.proof(&reply),
            StatusCode::CONFLICT => match self.holder_now(cluster, by).await? {
                Some((lease, left)) if lease.spec.holder_identity != self.holder => {
                    Err(Error::Held { holder: lease.spec.holder_identity, free_in: left.unwrap_or_default() })
                }
                _ => Err(Error::Failed("its Lease is being written by others".into())),
            },
            _ => Err(refusal(&reply)),
        }
    }

    /// Lets go of the Lease, if it is still as it was at `resource_version`. What is left of it is free after its term.
    pub(crate) async fn release(&self, cluster: &Cluster, resource_version: &str, by: Instant) -> Result<(), Error> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "resourceVersion": resource_version },
        });
        let reply = self.send(cluster, Method::DELETE, "", options.to_string(), by).await?;
        match reply.status {
            status if status.is_success() => Ok(()),
            // Another has it, or nobody.
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok(()),
            _ => Err(refusal(&reply)),
        }
    }

    /// Applies the Lease; over another's if that is still as it was at `instead_of`.
    async fn apply(&self, cluster: &Cluster, instead_of: Option<&str>, by: Instant) -> Result<Reply, Error> {
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

    fn proof(&self, reply: &Reply) -> Result<String, Error> {
        match serde_json::from_slice::<Lease>(&reply.body) {
            Ok(lease) if lease.spec.holder_identity == self.holder => Ok(lease.metadata.common.resource_version),
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
        cluster.send(request, &target, by).await.map_err(|why| Error::Failed(why.to_string()))
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

fn refusal(reply: &Reply) -> Error {
    match reply.status {
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Error::Forbidden,
        StatusCode::NOT_FOUND => Error::NoNamespace,
        status => Error::Failed(format!("it answered {status}")),
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

    #[test]
    fn lease_whose_age_nobody_can_tell_is_held() {
        assert_eq!(left(&lease("soon"), at("2026-11-30T10:00:11Z")), Some(Duration::from_secs(30)));
        assert_eq!(left(&lease("2026-11-30T10:00:00Z"), None), Some(Duration::from_secs(30)));
    }
}
