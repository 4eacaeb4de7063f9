//! The proxy as a test holds it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::bail;
use tokio::{net::TcpListener, sync::watch, time::Instant};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    log::Seen,
    rule::Rule,
    server,
    upstream::{Identity, Upstream},
};
use crate::sandbox::{Cluster, Credential, Kubeconfig, certs::Authority};

/// What the caller shows a proxy that speaks as an administrator.
const TOKEN: &str = "shown-to-the-proxy";

/// What happens to new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// They are served.
    Open,
    /// They are accepted and closed at once, so that attempts can be counted.
    Slammed,
    /// They are accepted and then nothing is said.
    Mute,
    /// Nobody listens.
    Closed,
}

/// Everything that connections and the test share.
pub(super) struct Shared {
    pub(super) upstream: Upstream,
    pub(super) acceptor: TlsAcceptor,
    pub(super) address: SocketAddr,
    pub(super) state: Mutex<State>,
    /// Rings whenever `state` changes.
    pub(super) changed: watch::Sender<()>,
    pub(super) door: watch::Sender<Door>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) rules: Vec<Rule>,
    pub(super) seen: Vec<Seen>,
    pub(super) dials: usize,
    pub(super) in_flight: usize,
    pub(super) peak: usize,
    /// Cut all at once by [`Proxy::cut`].
    pub(super) connections: CancellationToken,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.send_replace(());
        result
    }
}

/// A proxy in front of one cluster. Ends with this value. It lives in the runtime of the test that starts it.
pub struct Proxy {
    shared: Arc<Shared>,
    authority: Authority,
    cluster: String,
    _end: DropGuard,
}

impl Proxy {
    /// Starts a proxy whose requests the API server takes for an administrator's.
    pub async fn before(cluster: &Cluster) -> anyhow::Result<Self> {
        Self::start(cluster, Identity::Administrator, &["h2", "http/1.1"]).await
    }

    /// Starts a proxy that passes on the caller's own token.
    pub async fn with_callers_token(cluster: &Cluster) -> anyhow::Result<Self> {
        Self::start(cluster, Identity::Caller, &["h2", "http/1.1"]).await
    }

    /// Starts a proxy that speaks HTTP/1.1 only.
    pub async fn http1(cluster: &Cluster) -> anyhow::Result<Self> {
        Self::start(cluster, Identity::Administrator, &["http/1.1"]).await
    }

    async fn start(cluster: &Cluster, identity: Identity, protocols: &[&str]) -> anyhow::Result<Self> {
        let authority = Authority::new("proxy-ca")?;
        let acceptor = server::acceptor(&authority.server(&["127.0.0.1", "localhost"])?, protocols)?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let shared = Arc::new(Shared {
            upstream: Upstream::new(cluster, identity).await?,
            acceptor,
            address: listener.local_addr()?,
            state: Mutex::default(),
            changed: watch::Sender::new(()),
            door: watch::Sender::new(Door::Open),
        });
        let end = CancellationToken::new();
        tokio::spawn(end.clone().run_until_cancelled_owned(server::accept(shared.clone(), listener)));
        Ok(Self { shared, authority, cluster: cluster.name().to_owned(), _end: end.drop_guard() })
    }

    /// Returns where it listens.
    pub fn url(&self) -> String {
        format!("https://{}", self.shared.address)
    }

    /// Returns the authority that its certificate comes from, as PEM.
    pub fn authority(&self) -> &str {
        self.authority.certificate()
    }

    /// Returns a kubeconfig that leads through it; the context has the cluster's name.
    pub fn kubeconfig(&self) -> Kubeconfig {
        self.kubeconfig_with_token(TOKEN)
    }

    /// Returns the same with a token of the test's choice.
    pub fn kubeconfig_with_token(&self, token: &str) -> Kubeconfig {
        let credential = Credential::Token(token.to_owned());
        Kubeconfig::new().context(&self.cluster, &self.url(), self.authority(), credential)
    }

    /// Adds a rule behind those that are there.
    pub fn add(&self, rule: Rule) {
        self.shared.change(|state| state.rules.push(rule));
    }

    /// Forgets all rules, so that everything is passed on.
    pub fn clear(&self) {
        self.shared.change(|state| state.rules.clear());
    }

    /// Returns all requests so far, in the order in which they came in.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.state().seen.clone()
    }

    /// Counts the requests that `wanted` picks.
    pub fn count(&self, wanted: impl Fn(&Seen) -> bool) -> usize {
        self.shared.state().seen.iter().filter(|seen| wanted(seen)).count()
    }

    /// Counts the server-side applies to paths that end like this.
    pub fn applies(&self, end: &str) -> usize {
        self.count(|seen| seen.is_apply_of(end))
    }

    /// Counts connections that were tried and noticed, whatever became of them.
    pub fn dials(&self) -> usize {
        self.shared.state().dials
    }

    /// Forgets requests, connections and the peak, but no rules.
    pub fn forget(&self) {
        self.shared.change(|state| {
            state.seen.clear();
            state.dials = 0;
            state.peak = state.in_flight;
        });
    }

    /// Returns how many requests are in flight.
    pub fn in_flight(&self) -> usize {
        self.shared.state().in_flight
    }

    /// Returns how many requests were in flight at once, at most.
    pub fn peak_in_flight(&self) -> usize {
        self.shared.state().peak
    }

    /// Waits until so many requests that `wanted` picks have come in.
    pub async fn wait_for(&self, number: usize, wanted: impl Fn(&Seen) -> bool) -> anyhow::Result<()> {
        /// For a machine that does something else meanwhile.
        const LIMIT: Duration = Duration::from_secs(60);
        let mut changed = self.shared.changed.subscribe();
        let deadline = Instant::now() + LIMIT;
        while self.count(&wanted) < number {
            let waited = tokio::time::timeout_at(deadline, changed.changed()).await;
            if !matches!(waited, Ok(Ok(()))) {
                let paths: Vec<_> = self.seen().iter().map(|seen| format!("{} {}", seen.method, seen.path)).collect();
                bail!("the proxy has not seen {number} such requests after {LIMIT:?}, but {paths:?}");
            }
        }
        Ok(())
    }

    /// Cuts all connections that are open now.
    pub fn cut(&self) {
        self.shared.change(|state| std::mem::take(&mut state.connections)).cancel();
    }

    /// Serves new connections again.
    pub fn open(&self) {
        self.shared.door.send_replace(Door::Open);
    }

    /// Closes new connections as soon as they are there; they can be counted.
    pub fn slam(&self) {
        self.shared.door.send_replace(Door::Slammed);
    }

    /// Says nothing to new connections.
    pub fn mute(&self) {
        self.shared.door.send_replace(Door::Mute);
    }

    /// Stops listening, so that the kernel refuses new connections.
    pub fn close(&self) {
        self.shared.door.send_replace(Door::Closed);
    }
}
