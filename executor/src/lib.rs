//! The executor: takes a plan in, applies what goes direct to every selected cluster, and streams each component's result
//! back as it happens, the summary last.
//!
//! `ARCHITECTURE.md` says what each module holds and which others it may know; a test holds both together.

mod adapter;
mod addresses;
mod answers;
mod attributes;
mod cluster;
mod core;
mod door;
mod fulfil;
mod helm;
mod in_use;
mod journal;
mod mask;
mod metrics;
mod present;
pub mod proof;
mod record;
mod report;
mod run;
mod together;
mod user_agent;

pub use crate::cluster::contents::Place;

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use switchyard_proto::{serving::executor_service_server::ExecutorServiceServer, v1};
use switchyard_service::{
    config::{self, ByteSize, ServeArgs},
    program,
    serve::{Drained, Server},
    shutdown::Shutdown,
};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;
use tonic::{
    codec::CompressionEncoding,
    transport::{Certificate, ClientTlsConfig, Identity},
};

pub use crate::adapter::allow::AddressPattern;
pub use crate::helm::become_helm;
use crate::{
    adapter::Adapters,
    addresses::Reach,
    cluster::{access::Access, discovery::Known, lease::LeftBehind},
    core::limit::Limits,
    door::{incoming::Incoming, runs::Runs, service::Executor, session::Shared},
    helm::Helm,
    journal::fit::MAX_LISTED,
    record::locks::Locking,
};

/// Path of the method whose plan may name the trace that the call belongs to.
const EXECUTE: &str = "/switchyard.v1.ExecutorService/Execute";

/// Paths of the methods that tell of the executor and its runs, and stop these, which is wanted most while it drains.
const ABOUT_RUNS: [&str; 5] = [
    "/switchyard.v1.ExecutorService/GetCapabilities",
    "/switchyard.v1.ExecutorService/GetRun",
    "/switchyard.v1.ExecutorService/ListRuns",
    "/switchyard.v1.ExecutorService/WatchRun",
    "/switchyard.v1.ExecutorService/CancelRun",
];

/// What is known here of the contract beyond its first version.
const FEATURES: [&str; 7] = ["encoded", "start", "existing", "get_run", "step_progress", "unchanged", "prune"];

/// Carries deployment plans out on Kubernetes clusters and streams what happened.
#[derive(Clone, Debug, clap::Parser)]
pub struct Args {
    /// What both programs take.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// The executor's own kubeconfig, or several separated by colons, merged as kubectl does; its contexts can be named as clusters. Without it only kubeconfigs sent in a request can
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
    /// Writes in flight per cluster and run, at most: a request may ask for fewer. Without it the executor finds out how many each
    /// cluster copes with. Runs on one cluster share what it copes with evenly in any case.
    #[arg(long, env = "SWITCHYARD_MAX_IN_FLIGHT", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_in_flight: Option<u16>,
    /// Runs at once.
    #[arg(long, env = "SWITCHYARD_MAX_RUNS", value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_runs: u16,
    /// Largest plan, in bytes as it is sent and about 1 KiB for each step, or with a unit such as 256MiB.
    #[arg(long, env = "SWITCHYARD_MAX_PLAN_BYTES", value_name = "BYTES", default_value = "256MiB")]
    pub max_plan_bytes: ByteSize,
    /// How long a plan may take to come, from the opening of its stream to its trailer. A stream that is silent for 5 min (10 s
    /// while 64 or more plans are coming in) is ended before.
    #[arg(long, env = "SWITCHYARD_PLAN_TIMEOUT", value_name = "DURATION", default_value = "10m", value_parser = config::duration)]
    pub plan_timeout: Duration,
    /// Namespace of the Leases that keep two runs of one design off one cluster, across executors. It must exist in every
    /// cluster.
    #[arg(long, env = "SWITCHYARD_LOCK_NAMESPACE", value_name = "NAME", default_value = "kube-system", value_parser = namespace)]
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
        max_plan_bytes,
        plan_timeout,
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
        program::Error::usage(format!("--kubeconfig {}: {error}", path.display()))
    })?;
    if let Some(program) = helm.as_deref().filter(|program| !is_program(program)) {
        return Err(program::Error::usage(format!("--helm {}: there is no program of that name", program.display())));
    }
    // A folder that cannot be removed is not worth a start.
    tokio::task::spawn_blocking(helm::sweep).await.ok();
    for trouble in access.troubles() {
        tracing::warn!(trouble, "a cluster of the executor's own kubeconfig cannot be used");
    }
    let tasks = TaskTracker::new();
    let server = Server::new(&serve, shutdown.clone());
    let budget = server.budget();
    let mut contexts = access.contexts();
    contexts.truncate(MAX_LISTED);
    let capabilities = v1::ExecutorServiceGetCapabilitiesResponse {
        version: env!("CARGO_PKG_VERSION").into(),
        features: FEATURES.map(String::from).into(),
        max_message_bytes: serve.max_message_bytes() as u64,
        max_plan_bytes: max_plan_bytes.bytes() as u64,
        max_runs: max_runs.into(),
        max_in_flight: max_in_flight.unwrap_or_default().into(),
        has_helm: false,
        takes_kubeconfigs: access.takes_kubeconfigs(),
        contexts,
    };
    let shared = Arc::new(Shared {
        incoming: Incoming::new(budget.clone(), max_plan_bytes.bytes(), plan_timeout),
        access,
        known: Known::default(),
        everywhere: Arc::new(in_every_namespace.into_iter().collect()),
        adapters: Arc::new(Adapters::new(tls, adapter_allow.clone(), reach)),
        adapter_allow,
        helm: Arc::new(Helm::new(helm)),
        runs: Runs::new(max_runs.into(), budget),
        locking: (run_lock == RunLock::Lease).then(|| Locking {
            namespace,
            tasks: tasks.clone(),
            left_behind: LeftBehind::default(),
        }),
        max_in_flight: max_in_flight.map(usize::from),
        limits: Limits::default(),
        budget: server.budget(),
        tasks: tasks.clone(),
        shutdown,
    });
    let service = ExecutorServiceServer::new(Executor { shared, capabilities })
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(serve.max_message_bytes());
    let server = ABOUT_RUNS.into_iter().fold(server, Server::to_the_end);
    Ok(server.add(service).parent_in_first_message(EXECUTE).tasks(tasks).serve(listener).await?)
}

/// Reads the name of a namespace (RFC 1123, section 2.1, as Kubernetes takes it).
fn namespace(text: &str) -> Result<String, &'static str> {
    let is_inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fits = (1..=63).contains(&text.len()) && text.chars().all(is_inside);
    let is_name = fits && !text.starts_with('-') && !text.ends_with('-');
    is_name.then(|| text.to_owned()).ok_or("want lower case letters, digits and dashes, as the name of a namespace has")
}

/// Whether that is a file that may be run.
fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// How adapters are spoken to: none means plaintext.
fn adapter_tls(ca: Option<&Path>, own: Option<(&Path, &Path)>) -> Result<Option<ClientTlsConfig>, program::Error> {
    let read = |flag: &str, path: &Path| {
        let unreadable = |error| program::Error::usage(format!("{flag} {} cannot be read: {error}", path.display()));
        std::fs::read(path).map_err(unreadable)
    };
    let Some(ca) = ca else { return Ok(None) };
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("--adapter-ca", ca)?));
    if let Some((certificate, key)) = own {
        tls = tls.identity(Identity::from_pem(read("--adapter-cert", certificate)?, read("--adapter-key", key)?));
    }
    Ok(Some(tls))
}
