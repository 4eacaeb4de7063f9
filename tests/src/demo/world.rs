//! What runs while the demo does: clusters, Jaeger, planner and executor.

use std::{path::PathBuf, time::Instant};

use super::{
    own::{Own, Place},
    screen::{Paint, Screen},
    wait::{spoken, wait},
};
use crate::{
    programs::{Program, Running},
    sandbox::{Cluster, Folder, Jaeger, Sandbox, Tool, Toolbox},
};

/// Everything that has been started.
#[derive(Debug)]
pub(crate) struct World {
    /// The planner.
    pub(crate) planner: Running,
    /// The executor.
    pub(crate) executor: Running,
    /// The clusters that are written to.
    pub(crate) places: Vec<Place>,
    /// A kubeconfig with a context for each.
    pub(crate) kubeconfig: PathBuf,
    /// grpcurl.
    pub(crate) grpcurl: PathBuf,
    /// A folder to leave files in, which goes with the rest.
    pub(crate) folder: Folder,
    ground: Ground,
}

/// What planner and executor stand on.
#[derive(Debug)]
enum Ground {
    /// Clusters of ours.
    Sandbox(Sandbox),
    /// Clusters of other people, and our Jaeger.
    Own(Jaeger),
}

impl Ground {
    fn jaeger(&self) -> &Jaeger {
        match self {
            Self::Sandbox(sandbox) => sandbox.jaeger(),
            Self::Own(jaeger) => jaeger,
        }
    }
}

impl World {
    /// Builds what is missing and starts everything.
    pub(crate) async fn start(own: Option<Own>, screen: &mut Screen) -> anyhow::Result<Self> {
        screen.heading("Getting ready")?;
        let mut tools = vec![Tool::Jaeger, Tool::Grpcurl];
        if own.is_none() {
            tools.extend([Tool::Etcd, Tool::KubeApiserver]);
        }
        // Builds tell about themselves on standard error, with an estimate.
        let toolbox = Toolbox::get(&tools).await?;
        let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
        screen.done(format!("{} are there", names.join(", ")))?;
        Program::Planner.path().await?;
        screen.done("planner and executor are built")?;

        let since = Instant::now();
        let folder = Folder::new("demo")?;
        let (ground, places, kubeconfig) = match own {
            None => {
                let starting = "starting etcd, two Kubernetes API servers and Jaeger; 5 to 10 seconds are usual";
                let sandbox = wait(screen, starting, Sandbox::start()).await??;
                let kubeconfig = folder.write("kubeconfig.yaml", &sandbox.control_plane().kubeconfig().to_string())?;
                let place = |cluster: &Cluster| Place { name: cluster.name().to_owned(), server: cluster.url() };
                let places = sandbox.control_plane().clusters().iter().map(place).collect();
                screen.done(format!(
                    "etcd, two Kubernetes API servers and Jaeger are up, after {}",
                    spoken(since.elapsed())
                ))?;
                (Ground::Sandbox(sandbox), places, kubeconfig)
            }
            Some(Own { path, places }) => {
                let jaeger = wait(screen, "starting Jaeger", Jaeger::start()).await??;
                screen.done(format!("Jaeger is up, after {}", spoken(since.elapsed())))?;
                (Ground::Own(jaeger), places, path)
            }
        };
        for Place { name, server } in &places {
            let whose = match ground {
                Ground::Sandbox(_) => screen.paint(Paint::Faint, "only for this demo"),
                Ground::Own(_) => screen.paint(Paint::Wary, "yours; it will be written to"),
            };
            screen.line(format!("      cluster {} at {server} ({whose})", screen.paint(Paint::Strong, name)))?;
        }

        let otlp = ground.jaeger().otlp_url();
        let planner = Program::Planner.prepare().traced(&otlp).start().await?;
        let executor = Program::Executor.prepare().arg("--kubeconfig").arg(&kubeconfig).traced(&otlp).start().await?;
        screen.done(format!("planner listens on {}, executor on {}", planner.address(), executor.address()))?;
        let grpcurl = toolbox.path(Tool::Grpcurl)?.to_owned();
        Ok(Self { planner, executor, places, kubeconfig, grpcurl, folder, ground })
    }

    /// Ends everything: first those who write, then what they write to.
    pub(crate) async fn stop(self, screen: &mut Screen) -> anyhow::Result<()> {
        let Self { planner, executor, places: _, kubeconfig: _, grpcurl: _, folder, ground } = self;
        let (executor, planner) =
            wait(screen, "stopping", async { tokio::join!(executor.stop(), planner.stop()) }).await?;
        for (name, (status, log)) in [("executor", executor), ("planner", planner)] {
            if !status.success() {
                let tail: Vec<&str> = log.lines().rev().take(5).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                screen.line(format!("  the {name} did not end well ({status}):\n{}", tail.join("\n")))?;
            }
        }
        drop(ground);
        drop(folder);
        screen.line("")?;
        screen.done("everything has been stopped and cleaned away")?;
        Ok(())
    }

    /// Returns the names of the clusters.
    pub(crate) fn cluster_names(&self) -> Vec<&str> {
        self.places.iter().map(|place| place.name.as_str()).collect()
    }

    /// Returns the Jaeger that the traces go to.
    pub(crate) fn jaeger(&self) -> &Jaeger {
        self.ground.jaeger()
    }

    /// Tells whether the clusters are other people's.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.ground, Ground::Own(_))
    }

    /// Returns the last of our own clusters; none, if they are other people's.
    pub(crate) fn last_cluster(&self) -> Option<&Cluster> {
        match &self.ground {
            Ground::Sandbox(sandbox) => Some(sandbox.west()),
            Ground::Own(_) => None,
        }
    }
}
