//! One planner and one executor for all tests of this binary, traced, with the shared world's clusters as contexts.

use std::sync::LazyLock;

use switchyard_tests::{
    client::Client,
    programs::{Program, Running},
    sandbox::{Folder, Sandbox},
};
use tokio::sync::OnceCell;

/// Both programs, and the world they work in.
pub(crate) struct Pair {
    pub(crate) world: &'static Sandbox,
    pub(crate) planner: Running,
    pub(crate) executor: Running,
    _folder: Folder,
}

static PAIR: LazyLock<OnceCell<Pair>> = LazyLock::new(OnceCell::new);

impl Pair {
    /// The pair, started on first use. Dies with the process.
    pub(crate) async fn shared() -> &'static Self {
        PAIR.get_or_init(|| async { Self::start().await.expect("the pair starts") }).await
    }

    async fn start() -> anyhow::Result<Self> {
        let world = Sandbox::shared().await?;
        let folder = Folder::new("pair")?;
        let kubeconfig = folder.write("kubeconfig.yaml", &world.control_plane().kubeconfig().to_string())?;
        let otlp = world.jaeger().otlp_url();
        let planner = Program::Planner.prepare().traced(&otlp).start().await?;
        let executor = Program::Executor
            .prepare()
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            // Wherever the adapters of the tests are; a name that does not exist is among them.
            .arg("--adapter-allow=127.0.0.1:*,[::1]:*,*.invalid:*")
            .arg("--log")
            .arg("trace")
            .traced(&otlp)
            .start()
            .await?;
        Ok(Self { world, planner, executor, _folder: folder })
    }

    /// A client of both.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.planner.url(), &self.executor.url()).await.expect("both listen")
    }
}
