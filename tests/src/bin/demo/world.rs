//! What runs while the demo does: what it stands on, planner and executor.

use std::path::PathBuf;

use super::{
    ground::Ground,
    own::{Own, Place},
    screen::Screen,
    wait::wait,
};
use switchyard_tests::{
    programs::{Program, Running},
    sandbox::{Folder, Tool, Toolbox},
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
    /// What planner and executor stand on.
    pub(crate) ground: Ground,
}

impl World {
    /// Builds what is missing and starts everything.
    pub(crate) async fn start(own: Option<Own>, screen: &mut Screen) -> anyhow::Result<Self> {
        screen.heading("Getting ready")?;
        let tools = Ground::tools(own.as_ref());
        // Builds tell about themselves on standard error, with an estimate.
        let toolbox = Toolbox::get(&tools).await?;
        let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
        screen.done(format!("{} are there", names.join(", ")))?;
        Program::Planner.path().await?;
        screen.done("planner and executor are built")?;

        let folder = Folder::new("demo")?;
        let ground = Ground::start(own, screen).await?;
        let kubeconfig = ground.kubeconfig(&folder)?;
        let registry = folder.write("registry.yaml", &ground.registry()?)?;
        let otlp = ground.jaeger().otlp_url();
        let planner = Program::Planner.prepare().arg("--registry").arg(registry).traced(&otlp).start().await?;
        let executor = Program::Executor.prepare().arg("--kubeconfig").arg(&kubeconfig);
        let executor = match ground.adapter() {
            Some(address) => executor.arg("--adapter-allow").arg(address.to_string()),
            None => executor,
        };
        let executor = executor.traced(&otlp).start().await?;
        screen.done(format!("planner listens on {}, executor on {}", planner.address(), executor.address()))?;
        let grpcurl = toolbox.path(Tool::Grpcurl)?.to_owned();
        Ok(Self { planner, executor, places: ground.places(), kubeconfig, grpcurl, folder, ground })
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

    /// Tells whether the clusters are other people's.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.ground, Ground::Own { .. })
    }
}
