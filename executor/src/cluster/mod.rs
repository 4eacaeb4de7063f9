//! One cluster as a run sees it: how to reach it, what it serves, and each request to it with a deadline and a span.
//!
//! Knows nothing of plans and runs.

pub(crate) mod access;
pub(crate) mod apply;
mod breaker;
mod client;
pub(crate) mod contents;
pub(crate) mod definition;
pub(crate) mod discovery;
pub(crate) mod fence;
pub(crate) mod holdings;
pub(crate) mod lease;
mod listing;
pub(crate) mod look;
pub(crate) mod look_back;
pub(crate) mod object;
mod obstacle;
pub(crate) mod ownership;
mod plugin;
pub(crate) mod readiness;
pub(crate) mod remove;
mod schemas;
mod watch;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::TryFutureExt;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use opentelemetry::{KeyValue, StringValue};
use serde::{Deserialize, Deserializer};
use switchyard_service::{attributes as common, telemetry};
use tokio::time::{Duration, Instant};
use tracing::{Span, field::Empty};

use self::{
    access::Way, breaker::Breaker, client::Version, discovery::Discovery, fence::Fence, plugin::Plugin,
    schemas::Schemas, watch::Watches,
};
use crate::{
    answers::classify::{Answer, Obstacle, Unanswered},
    attributes,
    mask::{OfCluster, OfDesign, Secrets, Unmasked},
    metrics,
};

/// Largest answer that is read, in bytes. An object is at most 3 MiB in a request; managed fields and discovery add to it.
const MAX_ANSWER: usize = 32 * 1024 * 1024;

/// Headers in which an API server names the flow schema and the priority level of a request
/// (<https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#diagnostics>).
const FLOW_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";
const PRIORITY_LEVEL: &str = "x-kubernetes-pf-prioritylevel-uid";

/// A cluster that has been proven workable.
pub(crate) struct Cluster {
    /// Its name in the plan.
    pub(crate) name: String,
    /// URL of its API server, without credentials.
    pub(crate) server: String,
    /// Where that is: host and port.
    place: (String, u16),
    /// What metrics call it.
    label: KeyValue,
    /// Version of its API server.
    pub(crate) version: String,
    client: client::Client,
    /// The client of the watches, made when there is a first one.
    watching: OnceLock<client::Client>,
    way: Arc<Way>,
    /// What makes its credentials, if they are made.
    plugin: Option<Arc<Plugin>>,
    /// What must not be said of what comes from here.
    secrets: OfCluster,
    discovery: Arc<Discovery>,
    watches: Watches,
    schemas: Schemas,
    /// A resource version of the moment when the cluster was proven workable, if it would say: what is above has been
    /// written since.
    baseline: Option<u64>,
    /// None where the run has no lock: it changes nothing, or nobody need be kept off, or nobody can be.
    fence: OnceLock<Arc<Fence>>,
}

/// Why a cluster is not workable, in a sentence without secrets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Access(#[from] access::Error),
    #[error("its credentials are not usable: {0}")]
    Credentials(&'static str),
    #[error("{0}")]
    Unanswered(Unanswered),
    #[error("its API server does not accept the credentials ({0})")]
    Rejected(StatusCode),
    #[error("its API server answered {status} to {path}")]
    Odd { status: StatusCode, path: &'static str },
    #[error("what answers at {server} is not a Kubernetes API server")]
    NotKubernetes { server: String },
}

/// What a request is about, for its span.
#[derive(Clone, Copy, Default)]
pub(crate) struct Target<'a> {
    pub(crate) method: &'static str,
    pub(crate) resource: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// From 1.
    pub(crate) attempt: u32,
}

/// Whether the API server stores what it makes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storing {
    Yes,
    No,
}

/// What changed, or in a dry run would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Change {
    Created,
    Configured,
    Unchanged,
    Removed,
    /// It was not there to be removed.
    #[default]
    Absent,
}

/// A complete answer.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    /// The answer as far as it is classified.
    fn answer(&self) -> Answer<'_> {
        Answer {
            status: self.status,
            retry_after: retry_after(&self.headers),
            priority_level: uid(&self.headers, PRIORITY_LEVEL),
            body: &self.body,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerVersion {
    git_version: Unmasked,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fenced => {
                f.write_str("nothing was sent, since the run can no longer prove that it holds its lock there")
            }
            Self::NotSent(_, why) => write!(f, "it cannot be reached: {why}"),
            Self::Lost(_, why) => write!(f, "the connection broke: {why}"),
            Self::Silent(limit) => write!(f, "no answer within {limit:.1?}"),
        }
    }
}

impl Cluster {
    /// The cluster before anything was sent to it.
    fn unproven(name: &str, way: Way, discovery: Arc<Discovery>, design: Arc<OfDesign>) -> Result<Self, Error> {
        Ok(Self {
            name: name.to_owned(),
            server: without_credentials(&way.config.cluster_url),
            place: place(&way.config.cluster_url),
            label: label(way.known_as.as_deref()),
            version: String::new(),
            client: Self::dial(&way, Version::Http2)?,
            watching: OnceLock::new(),
            plugin: way.plugin.clone(),
            secrets: OfCluster { credentials: way.credentials.clone(), design },
            way: Arc::new(way),
            discovery,
            watches: Watches::default(),
            schemas: Schemas::default(),
            baseline: None,
            fence: OnceLock::new(),
        })
    }

    fn dial(way: &Way, version: Version) -> Result<client::Client, Error> {
        let breaker = Arc::new(Breaker::default());
        client::client(way, version, breaker).map_err(|error| Error::Credentials(access::unusable(&error)))
    }

    /// Proves that the cluster is workable: that its API server answers and accepts the credentials. Reads only. `discovery` is
    /// what is known of its kinds, `design` what must not be said of what it answers.
    pub(crate) async fn connect(
        name: &str,
        way: Way,
        discovery: Arc<Discovery>,
        design: Arc<OfDesign>,
        by: Instant,
    ) -> Result<Self, Error> {
        let mut cluster = Self::unproven(name, way, discovery, design)?;
        let mut reply = cluster.get("/version", by).await;
        if matches!(&reply, Err(Error::Unanswered(why)) if may_go_better(why)) {
            // A server or a proxy that does not speak HTTP/2 shows it in many ways; if this was not the reason, the second
            // attempt shows the real one.
            cluster.client = Self::dial(&cluster.way, Version::Http1)?;
            reply = cluster.get("/version", by).await;
        }
        let version: ServerVersion = serde_json::from_slice(&reply?.body)
            .map_err(|_| Error::NotKubernetes { server: cluster.server.clone() })?;
        cluster.version = cluster.render(&version.git_version);
        // `/version` is open to anybody in most clusters; discovery is open to whoever is authenticated.
        let (discovered, baseline) = tokio::join!(cluster.get("/api", by), cluster.read_baseline(by));
        discovered?;
        cluster.baseline = baseline;
        Ok(cluster)
    }

    /// A client with a connection of its own, for requests that stay open.
    fn watching(&self) -> &client::Client {
        self.watching.get_or_init(|| {
            let client = client::client(&self.way, self.client.version(), Arc::default());
            // What could be made once can be made again, unless a file has gone since.
            client.unwrap_or_else(|_| self.client.clone())
        })
    }

    /// What may be said of a text that came from the cluster.
    fn render(&self, text: &Unmasked) -> String {
        self.and_made(self.secrets.secrets()).render(text)
    }

    /// What must not be said where it is about an object, which is JSON.
    fn secrets_around(&self, manifest: &[u8]) -> Secrets {
        self.and_made(self.secrets.around(manifest))
    }

    /// The credentials that a plugin has made meanwhile must not be said either.
    fn and_made(&self, secrets: Secrets) -> Secrets {
        match &self.plugin {
            Some(plugin) => secrets.and(plugin.secrets()),
            None => secrets,
        }
    }

    async fn get(&self, path: &'static str, by: Instant) -> Result<Reply, Error> {
        let target = Target { method: "GET", resource: path, ..Target::default() };
        let send = || {
            let request = Request::get(path).body(Body::empty()).expect("the path is a constant");
            self.send(request, &target, by)
        };
        let mut reply = send().await;
        for _ in 0..2 {
            // API servers close connections that they have refused or want to see elsewhere, whatever else is on them.
            if reply.as_ref().is_err_and(may_go_better) {
                reply = send().await;
            }
        }
        // A plugin's credential that was kept may have been revoked since; the next one is new.
        if self.plugin.is_some() && reply.as_ref().is_ok_and(|reply| reply.status == StatusCode::UNAUTHORIZED) {
            reply = send().await;
        }
        let reply = reply.map_err(Error::Unanswered)?;
        match reply.status {
            StatusCode::OK => Ok(reply),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Error::Rejected(reply.status)),
            status => Err(Error::Odd { status, path }),
        }
    }

    /// The resource version of a list, which is that of the whole store. Best effort: the right to list is not required.
    async fn read_baseline(&self, by: Instant) -> Option<u64> {
        let reply = self.get("/api/v1/namespaces?limit=1", by).await.ok()?;
        let list: List = serde_json::from_slice(&reply.body).ok()?;
        list.metadata.resource_version.parse().ok()
    }

    /// From now on, what writes is only sent while `fence` is open.
    pub(crate) fn put_behind(&self, fence: Arc<Fence>) {
        self.fence.set(fence).expect("a run locks its clusters once");
    }

    /// Whether the run may write here: it has no lock, or can prove that it holds it.
    pub(crate) fn may_be_written(&self) -> bool {
        self.fence.get().is_none_or(|fence| fence.left(fence::now()).is_some())
    }

    /// Sends one request and reads its answer to the end, within a deadline and under a span of its own. Says nothing of
    /// bodies. What writes is not sent once the run cannot prove that it holds its lock.
    pub(crate) async fn send(
        &self,
        request: Request<Body>,
        target: &Target<'_>,
        by: Instant,
    ) -> Result<Reply, Unanswered> {
        if !request.method().is_safe() && !self.may_be_written() {
            return Err(Unanswered::Fenced);
        }
        self.exchange(request, target, by).await
    }

    /// Sends one request, whoever holds the lock: for the lock itself.
    async fn exchange(
        &self,
        mut request: Request<Body>,
        target: &Target<'_>,
        by: Instant,
    ) -> Result<Reply, Unanswered> {
        let span = self.span(target, request.uri());
        telemetry::inject(&span, request.headers_mut());
        // So that it is found in the server's audit log: where there is no span the server makes an id.
        let audit_id = (!span.is_disabled()).then(|| uuid::Uuid::new_v4().to_string());
        if let Some(audit_id) = &audit_id {
            request.headers_mut().insert("audit-id", HeaderValue::from_str(audit_id).expect("a uuid is ASCII"));
        }
        let counted = metrics::Request::begin(target.method, &self.label);
        let started = Instant::now();
        let exchange = async {
            let response = self.client.send(request).await.map_err(|error| {
                let (obstacle, why) = (obstacle::of(&*error), self.render(&client::innermost(&*error)));
                if client::was_not_sent(&*error) {
                    Unanswered::NotSent(obstacle, why)
                } else {
                    Unanswered::Lost(obstacle, why)
                }
            })?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await;
            let lost = |error: tower::BoxError| {
                Unanswered::Lost(obstacle::of(&*error), self.render(&client::innermost(&*error)))
            };
            let body = body.map_err(lost)?.to_bytes();
            Ok(Reply { status: head.status, headers: head.headers, body })
        };
        // Not entered: nothing in there says anything, and entering costs something each time that it is looked at.
        let result =
            tokio::time::timeout_at(by, exchange).unwrap_or_else(|_| Err(Unanswered::Silent(started.elapsed()))).await;
        counted.ended(came(&result));
        if !span.is_disabled() {
            record(&span, &result, audit_id.as_deref());
        }
        if let Ok(reply) = &result
            && reply.status == StatusCode::NOT_FOUND
            && !target.kind.is_empty()
            && !object::is_of_the_api_server(reply)
        {
            // The path is not served: what was known of the kind is out of date, for whoever asks next.
            self.discovery.forget(target.api_version);
        }
        result
    }

    /// The span of a request to `path`.
    fn span(&self, target: &Target<'_>, path: &http::Uri) -> Span {
        tracing::debug_span!(
            "request",
            { common::OTEL_NAME } = format_args!("{} {}", target.method, target.resource),
            { common::OTEL_KIND } = "client",
            { common::OTEL_STATUS_CODE } = Empty,
            { common::ERROR_TYPE } = Empty,
            { common::SERVER_ADDRESS } = self.place.0,
            { common::SERVER_PORT } = i64::from(self.place.1),
            { attributes::URL } = format_args!("{}{path}", self.server),
            { attributes::METHOD } = attributes::method(target.method),
            { attributes::STATUS_CODE } = Empty,
            { attributes::RESEND_COUNT } = target.attempt.checked_sub(1).filter(|again| *again > 0).map(i64::from),
            { attributes::CLUSTER } = self.name,
            { attributes::API_VERSION } = attributes::said(target.api_version),
            { attributes::OBJECT_KIND } = attributes::said(target.kind),
            { attributes::NAMESPACE } = attributes::said(target.namespace),
            { attributes::OBJECT_NAME } = attributes::said(target.name),
            { attributes::AUDIT_ID } = Empty,
            { attributes::FLOW_SCHEMA } = Empty,
            { attributes::PRIORITY_LEVEL } = Empty,
        )
    }

    /// Finds a kind; what is not known is asked for unless the answer is younger than `since`.
    pub(crate) async fn find(
        &self,
        api_version: &str,
        kind: &str,
        since: Instant,
        by: Instant,
    ) -> Result<discovery::Resource, discovery::Error> {
        self.discovery.find(self, api_version, kind, since, by).await
    }

    /// Asks what became of a kind that is not found.
    pub(crate) async fn absence(
        &self,
        api_version: &str,
        kind: &str,
        by: Instant,
    ) -> Result<discovery::Absence, String> {
        self.discovery.absence(self, api_version, kind, by).await
    }

    /// Another version of its group that serves a kind; none when there is none, or nobody can tell.
    pub(crate) async fn other_version(&self, api_version: &str, kind: &str, by: Instant) -> Option<String> {
        self.discovery.other_version(self, api_version, kind, by).await
    }

    /// Whether `resource_version` was written since the cluster was proven workable; none when the cluster did not say.
    fn is_since_baseline(&self, resource_version: &str) -> Option<bool> {
        Some(resource_version.parse::<u64>().ok()? > self.baseline?)
    }
}

/// What came of a request: a status code, or why there is none.
fn came(result: &Result<Reply, Unanswered>) -> Result<u16, &'static str> {
    match result {
        Ok(reply) => Ok(reply.status.as_u16()),
        Err(Unanswered::Fenced | Unanswered::NotSent(..)) => Err("not_sent"),
        Err(Unanswered::Lost(..)) => Err("lost"),
        Err(Unanswered::Silent(_)) => Err("timeout"),
    }
}

fn record(span: &Span, result: &Result<Reply, Unanswered>, audit_id: Option<&str>) {
    if !matches!(result, Err(Unanswered::Fenced | Unanswered::NotSent(..))) {
        span.record(attributes::AUDIT_ID, audit_id);
    }
    match result {
        Ok(reply) => {
            span.record(attributes::STATUS_CODE, i64::from(reply.status.as_u16()));
            if !reply.status.is_success() {
                span.record(common::OTEL_STATUS_CODE, "error");
                span.record(common::ERROR_TYPE, reply.status.as_str());
                // Whose share of the server it was: what a person looks for who is throttled.
                span.record(attributes::FLOW_SCHEMA, uid(&reply.headers, FLOW_SCHEMA));
                span.record(attributes::PRIORITY_LEVEL, uid(&reply.headers, PRIORITY_LEVEL));
            }
        }
        Err(_) => {
            span.record(common::OTEL_STATUS_CODE, "error");
            span.record(common::ERROR_TYPE, came(result).err());
        }
    }
}

/// Host and port of an API server.
fn place(url: &http::Uri) -> (String, u16) {
    let by_scheme = if url.scheme_str() == Some("http") { 80 } else { 443 };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    (host.to_owned(), url.port_u16().unwrap_or(by_scheme))
}

/// What metrics call a cluster: contexts of the executor's own are a closed set, names of requests are not (case 139).
fn label(known_as: Option<&str>) -> KeyValue {
    // Counted instead of copied: it goes along with every request.
    let name: Arc<str> = known_as.unwrap_or("(of a request)").into();
    KeyValue::new(attributes::CLUSTER, StringValue::from(name))
}

/// Reads null as the default: an empty list of an API server is null where its field is not optional.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Whether the same question may have an answer on a new connection, or in another version of HTTP.
fn may_go_better(why: &Unanswered) -> bool {
    match why {
        Unanswered::Lost(Obstacle::Timeout, _) => true,
        Unanswered::Lost(obstacle, _) | Unanswered::NotSent(obstacle, _) => !obstacle.stays(),
        Unanswered::Fenced | Unanswered::Silent(_) => false,
    }
}

/// The URL as far as it may be shown.
fn without_credentials(url: &http::Uri) -> String {
    let host = url.host().unwrap_or_default();
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    let path = url.path().trim_end_matches('/');
    format!("{}://{host}{port}{path}", url.scheme_str().unwrap_or("https"))
}

/// The warnings of an answer (RFC 9111 section 5.5 as Kubernetes uses it: `299 - "text"`).
fn warnings(headers: &HeaderMap) -> Vec<Unmasked> {
    let values = headers.get_all(header::WARNING).into_iter().filter_map(|value| value.to_str().ok());
    values
        .map(|value| match value.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"')) {
            Some((text, _)) => text.replace("\\\"", "\"").replace("\\\\", "\\").into(),
            None => value.into(),
        })
        .collect()
}

/// A UID that the server put into a header of its answer.
fn uid<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let is_of_a_uid = |c: char| c.is_ascii_hexdigit() || c == '-';
    headers.get(name)?.to_str().ok().filter(|uid| (1..=64).contains(&uid.len()) && uid.chars().all(is_of_a_uid))
}

/// How long the server asked to wait (RFC 9110 section 10.2.3, in seconds, as API servers send it).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn warnings_are_unquoted() {
        let mut headers = HeaderMap::new();
        headers.append(header::WARNING, HeaderValue::from_static("299 - \"unknown field \\\"spec.x\\\"\""));
        headers.append(header::WARNING, HeaderValue::from_static("299 - \"deprecated\""));
        assert_eq!(warnings(&headers), ["unknown field \"spec.x\"".into(), "deprecated".into()]);
    }

    /// Case 261: whoever sends, and whenever the run hears of it.
    #[tokio::test]
    async fn nothing_that_writes_is_sent_once_the_fence_is_shut() {
        // Nobody listens there, so what is sent is not answered.
        let kubeconfig = r#"{"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "contexts": [
            {"name": "c", "context": {"cluster": "c", "user": "c"}}], "users": [{"name": "c"}], "current-context": "c"}"#;
        let way = access::Access::default().way("c", &access::Source::Kubeconfig(kubeconfig.into())).await.unwrap();
        let cluster = Cluster::unproven("c", way, Arc::default(), Arc::default()).unwrap();
        let send = async |method: Method| {
            let request = Request::builder().method(method).uri("/api/v1/x").body(Body::empty()).unwrap();
            cluster.send(request, &Target::default(), Instant::now() + Duration::from_secs(10)).await.map(|_| ())
        };
        let fence = Arc::new(Fence::open_until(fence::now() + Duration::from_secs(60)));
        cluster.put_behind(fence.clone());
        assert!(matches!(send(Method::PATCH).await, Err(Unanswered::NotSent(..))));
        fence.shut();
        for method in [Method::PATCH, Method::DELETE, Method::POST, Method::PUT] {
            assert!(matches!(send(method).await, Err(Unanswered::Fenced)));
        }
        assert!(matches!(send(Method::GET).await, Err(Unanswered::NotSent(..))));
    }

    #[test]
    fn url_is_shown_without_credentials() {
        let url = "https://user:canary@host:6443/k8s/clusters/c-1/".parse().unwrap();
        assert_eq!(without_credentials(&url), "https://host:6443/k8s/clusters/c-1");
    }
}
