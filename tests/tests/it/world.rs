//! One cluster whose controllers work and whose pods come up, and both programs, for the tests that need a cluster to do
//! something by itself.

use std::{sync::LazyLock, time::Duration};

use switchyard_proto::v1::{ClusterAccess, PlanRequest};
use switchyard_tests::{
    client::{self, Client},
    programs::{Program, Running},
    sandbox::{Cluster, ControlPlane},
};
use tokio::sync::OnceCell;

/// Longer than any run here takes, so that one that hangs is a failure.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct World {
    control_plane: ControlPlane,
    planner: Running,
    executor: Running,
}

static WORLD: LazyLock<OnceCell<World>> = LazyLock::new(OnceCell::new);

impl World {
    /// The token of a user who has no rights until a test grants some, and the user's name.
    pub(crate) const DEPLOYER: (&str, &str) = ("token-of-the-deployer", "deployer");

    /// The world, started on first use. Dies with the process.
    pub(crate) async fn shared() -> &'static Self {
        let start = || async {
            let (token, user) = Self::DEPLOYER;
            let control_plane = ControlPlane::builder().audit().token_user(token, user, &[]);
            let control_plane = control_plane.controller_manager().scheduler().kwok().start().await?;
            let planner = Program::Planner.prepare().start().await?;
            let executor = Program::Executor.prepare().start().await?;
            anyhow::Ok(Self { control_plane, planner, executor })
        };
        WORLD.get_or_init(|| async { start().await.expect("the world starts") }).await
    }

    /// The cluster, which plans call `main`.
    pub(crate) fn cluster(&self) -> &Cluster {
        self.control_plane.first()
    }

    /// An administrator's way into it.
    pub(crate) fn access(&self) -> Vec<ClusterAccess> {
        vec![client::kubeconfig("main", self.cluster().kubeconfig_admin().to_string())]
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.planner.url(), &self.executor.url()).await.expect("both listen")
    }

    pub(crate) async fn run(&self, request: PlanRequest) -> client::Outcome {
        self.run_with(request, self.access()).await
    }

    pub(crate) async fn run_with(&self, request: PlanRequest, access: Vec<ClusterAccess>) -> client::Outcome {
        let client = self.client().await;
        let run = tokio::time::timeout(LIMIT, client.run(request, access));
        run.await.expect("the run ends").expect("the run starts")
    }
}
