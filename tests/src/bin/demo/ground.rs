//! What planner and executor stand on: clusters, whoever helps to write to them, and Jaeger.

use std::{net::SocketAddr, path::PathBuf, time::Instant};

use anyhow::Context as _;
use futures::try_join;

use super::{
    own::{Own, Place},
    registry,
    screen::{Paint, Screen},
    wait::{spoken, wait},
};
use switchyard_tests::{
    adapter::Adapter,
    sandbox::{Cluster, ControlPlane, Folder, Jaeger, Kubeconfig, Tool},
};

/// Who the executor and the adapter are on clusters of ours, so that these can tell what the two asked for.
const USER: &str = "switchyard";
/// Everything is permitted to it, and API servers take its requests into the trace they come with.
const GROUP: &str = "system:masters";

/// Clusters and what stands beside them. The fields are in the order in which they have to end.
#[derive(Debug)]
pub(crate) enum Ground {
    /// Clusters of ours: controllers work in them and pods pretend to run. An adapter stands behind the model `mesh`.
    Ours {
        /// The adapter.
        adapter: Box<Adapter>,
        /// The clusters.
        control_plane: Box<ControlPlane>,
        /// Jaeger.
        jaeger: Box<Jaeger>,
    },
    /// Clusters of other people. An adapter would be handed their credentials, so there is none.
    Own {
        /// Which they are.
        own: Own,
        /// Jaeger.
        jaeger: Box<Jaeger>,
    },
}

impl Ground {
    /// Names the tools that it takes.
    pub(crate) fn tools(own: Option<&Own>) -> Vec<Tool> {
        let mut tools = vec![Tool::Jaeger, Tool::Grpcurl];
        if own.is_none() {
            tools.extend([Tool::Etcd, Tool::KubeApiserver, Tool::KubeControllerManager, Tool::KubeScheduler]);
            tools.extend([Tool::Kwok, Tool::Adapter]);
        }
        tools
    }

    /// Starts it and says what is there.
    pub(crate) async fn start(own: Option<Own>, screen: &mut Screen) -> anyhow::Result<Self> {
        let since = Instant::now();
        let ground = match own {
            None => {
                let text = "starting two Kubernetes clusters, Jaeger and an adapter; 5 to 15 seconds are usual";
                let ground = wait(screen, text, Self::ours()).await??;
                let text =
                    "two Kubernetes clusters (etcd, API servers, controllers, pretended nodes) and Jaeger are up";
                screen.done(format!("{text}, after {}", spoken(since.elapsed())))?;
                ground
            }
            Some(own) => {
                let jaeger = wait(screen, "starting Jaeger", Jaeger::start()).await??;
                screen.done(format!("Jaeger is up, after {}", spoken(since.elapsed())))?;
                Self::Own { own, jaeger: Box::new(jaeger) }
            }
        };
        for Place { name, server } in ground.places() {
            let whose = match ground {
                Self::Ours { .. } => screen.paint(Paint::Faint, "only for this demo"),
                Self::Own { .. } => screen.paint(Paint::Wary, "yours; it will be written to"),
            };
            screen.line(format!("      cluster {} at {server} ({whose})", screen.paint(Paint::Strong, name)))?;
        }
        let mesh = registry::MESH;
        match &ground {
            Self::Ours { adapter, .. } => screen.done(format!(
                "an adapter listens on {}; the registry names it for the model {mesh}",
                adapter.address()
            ))?,
            Self::Own { .. } => screen.line(format!(
                "      no adapter is started, as it would be handed your credentials: the registry has the executor\n      \
                 itself stand behind the model {mesh}, and the design stays as it is"
            ))?,
        }
        Ok(ground)
    }

    async fn ours() -> anyhow::Result<Self> {
        let jaeger = Jaeger::start().await?;
        let clusters = ControlPlane::builder().cluster("east").cluster("west").tracing(&jaeger.otlp_endpoint()).audit();
        let clusters = clusters.controller_manager().scheduler().kwok().start();
        let adapter = Adapter::prepare().traced(&jaeger.otlp_url()).start();
        let (control_plane, adapter) = try_join!(clusters, adapter)?;
        Ok(Self::Ours { adapter: adapter.into(), control_plane: control_plane.into(), jaeger: jaeger.into() })
    }

    /// Returns the clusters that are written to.
    pub(crate) fn places(&self) -> Vec<Place> {
        let place = |cluster: &Cluster| Place { name: cluster.name().to_owned(), server: cluster.url() };
        match self {
            Self::Ours { control_plane, .. } => control_plane.clusters().iter().map(place).collect(),
            Self::Own { own, .. } => own.places.clone(),
        }
    }

    /// Returns the path of a kubeconfig with a context for each cluster; written to `folder`, if there was none.
    pub(crate) fn kubeconfig(&self, folder: &Folder) -> anyhow::Result<PathBuf> {
        match self {
            Self::Ours { control_plane, .. } => {
                let clusters = control_plane.clusters().iter();
                let all = clusters.map(|cluster| cluster.kubeconfig_for(USER, &[GROUP]));
                let all = all.collect::<anyhow::Result<Vec<_>>>()?;
                folder.write("kubeconfig.yaml", &all.into_iter().fold(Kubeconfig::new(), Kubeconfig::merge).to_string())
            }
            Self::Own { own, .. } => Ok(own.path.clone()),
        }
    }

    /// Returns the registry: with an adapter in it, if there is one.
    pub(crate) fn registry(&self) -> anyhow::Result<String> {
        match self {
            Self::Ours { adapter, .. } => registry::with_adapter(adapter.address()),
            Self::Own { .. } => Ok(registry::TEXT.to_owned()),
        }
    }

    /// Returns where the adapter listens, if there is one.
    pub(crate) fn adapter(&self) -> Option<SocketAddr> {
        match self {
            Self::Ours { adapter, .. } => Some(adapter.address()),
            Self::Own { .. } => None,
        }
    }

    /// Returns the Jaeger that the traces go to.
    pub(crate) fn jaeger(&self) -> &Jaeger {
        match self {
            Self::Ours { jaeger, .. } | Self::Own { jaeger, .. } => jaeger,
        }
    }

    /// Returns the last of our own clusters; none, if they are other people's.
    pub(crate) fn last_cluster(&self) -> Option<&Cluster> {
        match self {
            Self::Ours { control_plane, .. } => control_plane.clusters().last(),
            Self::Own { .. } => None,
        }
    }

    /// Says what the demo has had written so far, by the word of those who were asked; nothing, if they are other people's.
    pub(crate) fn asked(&self) -> anyhow::Result<Option<Asked>> {
        let Self::Ours { adapter, control_plane, .. } = self else { return Ok(None) };
        let mut asked = Asked { calls: adapter.calls().len(), ..Asked::default() };
        for cluster in control_plane.clusters() {
            let log = cluster.audit().context("failed to read what an API server was asked")?;
            let writes = log.iter().filter(|event| event.user.username == USER && event.is_write());
            let (dry, real): (Vec<_>, Vec<_>) = writes.partition(|event| event.uri.contains("dryRun=All"));
            asked.dry_runs += dry.len();
            asked.writes += real.len();
        }
        Ok(Some(asked))
    }
}

/// What was asked of clusters and adapter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Requests that change nothing.
    pub(crate) dry_runs: usize,
    /// Requests that could change something.
    pub(crate) writes: usize,
    /// Calls of the adapter.
    pub(crate) calls: usize,
}
