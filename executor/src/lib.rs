//! The executor: takes a plan in, applies what goes direct to every selected cluster, and streams each component's result
//! back as it happens, the summary last.
//!
//! Arrows point one way: `service` → `session` → `run` → the pure centre (`schedule`, `verdict`, `intake`, `report`). The
//! clusters know nothing of plans and runs.

mod adapter;
mod addresses;
mod archive;
mod attributes;
mod cluster;
mod diff;
mod fulfil;
mod handover;
mod helm;
mod in_use;
mod intake;
mod journal;
mod limit;
mod locks;
mod mask;
mod metrics;
mod plan;
mod refuse;
mod report;
mod run;
mod runs;
mod schedule;
mod service;
mod session;
mod together;
mod verdict;

pub use crate::cluster::contents::Place;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use switchyard_proto::serving::executor_service_server::ExecutorServiceServer;
use switchyard_service::{
    config::ServeArgs,
    program,
    serve::{Drained, Server},
    shutdown::Shutdown,
};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

pub use crate::adapter::allow::AddressPattern;
pub use crate::helm::become_helm;
use crate::{
    adapter::Adapters,
    addresses::Reach,
    cluster::{access::Access, discovery::Known},
    helm::Helm,
    limit::Limits,
    locks::Locking,
    runs::Runs,
    service::Executor,
    session::Shared,
};

/// Path of the method whose plan may name the trace that the call belongs to.
const EXECUTE: &str = "/switchyard.v1.ExecutorService/Execute";

/// Carries deployment plans out on Kubernetes clusters and streams what happened.
#[derive(Clone, Debug, clap::Parser)]
pub struct Args {
    /// What both programs take.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// The executor's own kubeconfig; its contexts can be named as clusters. Without it only kubeconfigs sent in a request can
    /// be used, and `in-cluster`.
    #[arg(long, env = "SWITCHYARD_KUBECONFIG", value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,
    /// Refuse credentials that are sent in requests.
    #[arg(long, env = "SWITCHYARD_DENY_REQUEST_KUBECONFIGS")]
    pub deny_request_kubeconfigs: bool,
    /// Refuse to connect to loopback, link-local, private and other special addresses where a request names an API server or an
    /// adapter; names are looked at when they are resolved. Contexts of --kubeconfig, adapters of --adapter-allow, and helm, which
    /// fetches charts by itself, are not concerned.
    #[arg(long, env = "SWITCHYARD_DENY_PRIVATE_ADDRESSES")]
    pub deny_private_addresses: bool,
    /// Writes in flight per cluster and run; without it the executor finds out how many each cluster copes with.
    #[arg(long, env = "SWITCHYARD_MAX_IN_FLIGHT", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_in_flight: Option<u16>,
    /// Runs at once.
    #[arg(long, env = "SWITCHYARD_MAX_RUNS", value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_runs: u16,
    /// Namespace of the Leases that keep two runs of one design off one cluster, across executors. It must exist in every
    /// cluster.
    #[arg(long, env = "SWITCHYARD_LOCK_NAMESPACE", value_name = "NAME", default_value = "kube-system")]
    pub lock_namespace: String,
    /// How far two runs of one design are kept off one cluster: `lease` across executors, `process` within this one alone.
    #[arg(long, env = "SWITCHYARD_RUN_LOCK", value_name = "HOW", value_enum, default_value_t = RunLock::Lease)]
    pub run_lock: RunLock,
    /// Objects that controllers put into every namespace, as RESOURCE/NAME or RESOURCE.GROUP/NAME, comma-separated. A
    /// namespace that holds nothing else beside the design can be undeployed; they go with it.
    #[arg(
        long,
        env = "SWITCHYARD_IN_EVERY_NAMESPACE",
        value_name = "OBJECT",
        value_delimiter = ',',
        default_value = "configmaps/kube-root-ca.crt,configmaps/istio-ca-root-cert,serviceaccounts/default"
    )]
    pub in_every_namespace: Vec<Place>,
    /// The helm program (4.3.1 or later) that Include Dependencies installs charts with. Default: the one on PATH. Without one,
    /// components are applied all the same and their prerequisites say HELM_MISSING. Whom it trusts where charts lie is set by
    /// SSL_CERT_FILE and SSL_CERT_DIR, the way there by HTTPS_PROXY and NO_PROXY; nothing else of the environment
    /// reaches it.
    #[arg(long, env = "SWITCHYARD_HELM", value_name = "PATH")]
    pub helm: Option<PathBuf>,
    /// Adapters that may be handed credentials of the executor's own clusters (contexts of --kubeconfig), as HOST:PORT; several are
    /// separated by commas. `*` in HOST stands for any characters, `*` as PORT for any port. A kubeconfig that was sent with a request
    /// goes to any adapter. Default: none.
    #[arg(long, env = "SWITCHYARD_ADAPTER_ALLOW", value_name = "HOST:PORT", value_delimiter = ',')]
    pub adapter_allow: Vec<AddressPattern>,
    /// PEM file with the authorities that adapters' certificates are checked against; without it adapters are spoken to in
    /// plaintext, which is what those in the field speak.
    #[arg(long, env = "SWITCHYARD_ADAPTER_CA", value_name = "PATH")]
    pub adapter_ca: Option<PathBuf>,
    /// PEM file with the certificate that is shown to adapters. Default: none.
    #[arg(long, env = "SWITCHYARD_ADAPTER_CERT", value_name = "PATH", requires_all = ["adapter_ca", "adapter_key"])]
    pub adapter_cert: Option<PathBuf>,
    /// PEM file with the private key of --adapter-cert. Default: none.
    #[arg(long, env = "SWITCHYARD_ADAPTER_KEY", value_name = "PATH", requires_all = ["adapter_ca", "adapter_cert"])]
    pub adapter_key: Option<PathBuf>,
}

/// How far two runs of one design are kept off one cluster (D24).
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RunLock {
    /// Across executors, by a Lease in each cluster.
    Lease,
    /// Within this process.
    Process,
}

impl AsRef<ServeArgs> for Args {
    fn as_ref(&self) -> &ServeArgs {
        &self.serve
    }
}

/// Serves on `listener` until `shutdown`, and to the end of the drain.
///
/// # Errors
///
/// When the executor's own kubeconfig cannot be read, or serving fails.
pub async fn run(args: Args, listener: TcpListener, shutdown: Shutdown) -> Result<Drained, program::Error> {
    let Args {
        serve,
        kubeconfig,
        deny_request_kubeconfigs,
        deny_private_addresses,
        max_in_flight,
        max_runs,
        lock_namespace: namespace,
        run_lock,
        in_every_namespace,
        helm,
        adapter_allow,
        adapter_ca,
        adapter_cert,
        adapter_key,
    } = args;
    let tls = adapter_tls(adapter_ca.as_deref(), adapter_cert.as_deref().zip(adapter_key.as_deref()))?;
    let reach = if deny_private_addresses { Reach::Public } else { Reach::All };
    let access = Access::new(kubeconfig.as_deref(), deny_request_kubeconfigs, reach).map_err(|error| {
        let path = kubeconfig.as_deref().unwrap_or(Path::new(""));
        program::Error::usage(format!("{}: {error}", path.display()))
    })?;
    // A folder that cannot be removed is not worth a start.
    tokio::task::spawn_blocking(helm::sweep).await.ok();
    let tasks = TaskTracker::new();
    let shared = Arc::new(Shared {
        access,
        known: Known::default(),
        everywhere: Arc::new(in_every_namespace.into_iter().collect()),
        adapters: Arc::new(Adapters::new(tls, adapter_allow.clone(), reach)),
        adapter_allow,
        helm: Arc::new(Helm::new(helm)),
        runs: Runs::new(max_runs.into()),
        locking: (run_lock == RunLock::Lease).then(|| Locking { namespace, tasks: tasks.clone() }),
        max_in_flight: max_in_flight.map(usize::from),
        limits: Limits::default(),
        tasks: tasks.clone(),
        shutdown: shutdown.clone(),
    });
    let service = ExecutorServiceServer::new(Executor { shared }).max_decoding_message_size(serve.max_message_bytes());
    Ok(Server::new(&serve, shutdown).add(service).parent_in_first_message(EXECUTE).tasks(tasks).serve(listener).await?)
}

/// How adapters are spoken to: none means plaintext.
fn adapter_tls(ca: Option<&Path>, own: Option<(&Path, &Path)>) -> Result<Option<ClientTlsConfig>, program::Error> {
    let read = |path: &Path| {
        let unreadable = |error| program::Error::usage(format!("{} cannot be read: {error}", path.display()));
        std::fs::read(path).map_err(unreadable)
    };
    let Some(ca) = ca else { return Ok(None) };
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?));
    if let Some((certificate, key)) = own {
        tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    Ok(Some(tls))
}
