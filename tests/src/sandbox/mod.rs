//! Kubernetes and Jaeger on this machine, for as long as a test binary runs.

use std::io::Write as _;

use anyhow::anyhow;
use tokio::sync::OnceCell;

pub mod audit;
pub mod certs;
mod cluster;
mod control_plane;
mod controllers;
mod etcd;
mod folder;
mod gobuild;
mod guardian;
mod http;
mod jaeger;
mod kubeconfig;
mod metrics;
mod ports;
mod process;
mod tools;
mod trace;

pub use cluster::Cluster;
pub use control_plane::{Builder, ControlPlane};
pub use etcd::Etcd;
pub use folder::Folder;
pub use gobuild::target_folder;
pub use jaeger::Jaeger;
pub use kubeconfig::{Credential, Kubeconfig};
pub use metrics::Metrics;
pub use process::{Ended, Process, is_alive};
pub use tools::{Tool, Toolbox};
pub use trace::{Link, Span, SpanEvent, Trace};

/// The world that all tests of one binary share: the clusters `east` and `west` on one etcd, and a Jaeger that both
/// of them send their spans to.
#[derive(Debug)]
pub struct Sandbox {
    control_plane: ControlPlane,
    jaeger: Jaeger,
}

impl Sandbox {
    /// The token of the user `operator` on both clusters, who has no rights until a test grants some.
    pub const OPERATOR_TOKEN: &str = "operator-token";

    /// Returns the shared world, started by whoever asks first and ended with the process.
    ///
    /// If it could not be started, everyone is told the same reason at once, instead of each waiting for it again.
    pub async fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: OnceCell<Result<Sandbox, String>> = OnceCell::const_new();
        SHARED
            .get_or_init(|| async { Self::start().await.map_err(|error| format!("{error:#}")) })
            .await
            .as_ref()
            .map_err(|error| anyhow!("{error}"))
    }

    /// Starts such a world for the caller alone.
    pub async fn start() -> anyhow::Result<Self> {
        // All at once, so that the terminal shows the whole of what is going to be built.
        Toolbox::get(&[Tool::Etcd, Tool::KubeApiserver, Tool::Jaeger]).await?;
        let jaeger = Jaeger::start().await?;
        let control_plane = ControlPlane::builder()
            .cluster("east")
            .cluster("west")
            .tracing(&jaeger.otlp_endpoint())
            .audit()
            .token_user(Self::OPERATOR_TOKEN, "operator", &[])
            .start()
            .await?;
        Ok(Self { control_plane, jaeger })
    }

    /// Returns the cluster `east`.
    pub fn east(&self) -> &Cluster {
        &self.control_plane.clusters()[0]
    }

    /// Returns the cluster `west`.
    pub fn west(&self) -> &Cluster {
        &self.control_plane.clusters()[1]
    }

    /// Returns the control plane of both clusters.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// Returns the Jaeger that all spans go to.
    pub fn jaeger(&self) -> &Jaeger {
        &self.jaeger
    }
}

/// Tells the person at the terminal something, at once; the test harness holds back what `eprintln!` says.
pub fn say(line: &str) {
    let mut stderr = std::io::stderr().lock();
    // Nobody listening is no reason to fail.
    writeln!(stderr, "{line}").ok();
}
