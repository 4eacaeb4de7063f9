//! One etcd and the clusters on it.

use futures::future::{try_join, try_join_all};

use super::{
    cluster::{Cluster, Settings, TokenUser},
    controllers,
    etcd::Etcd,
    folder::Folder,
    kubeconfig::Kubeconfig,
    tools::{Tool, Toolbox},
};

/// An etcd with as many API servers as were asked for. Everything ends with this value, or with the process.
#[derive(Debug)]
pub struct ControlPlane {
    // Before etcd: an API server without its database would only complain.
    clusters: Vec<Cluster>,
    etcd: Etcd,
    _folder: Folder,
}

impl ControlPlane {
    /// Describes a control plane; without any further word it has one cluster, `main`, as plain as possible.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the clusters in the order in which they were asked for.
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// Returns the cluster with this name.
    pub fn cluster(&self, name: &str) -> Option<&Cluster> {
        self.clusters.iter().find(|cluster| cluster.name() == name)
    }

    /// Returns the first cluster.
    pub fn first(&self) -> &Cluster {
        &self.clusters[0]
    }

    /// Returns the etcd, to look at or to disturb.
    pub fn etcd(&mut self) -> &mut Etcd {
        &mut self.etcd
    }

    /// Returns an administrator's kubeconfig with a context for each cluster.
    pub fn kubeconfig(&self) -> Kubeconfig {
        self.clusters.iter().fold(Kubeconfig::new(), |all, cluster| all.merge(cluster.kubeconfig_admin()))
    }

    /// Returns the ids of all processes.
    pub fn pids(&self) -> Vec<u32> {
        self.clusters.iter().flat_map(Cluster::pids).chain([self.etcd.pid()]).collect()
    }
}

/// What a control plane shall be like.
#[derive(Debug, Default)]
pub struct Builder {
    clusters: Vec<String>,
    api_server: Option<Tool>,
    settings: Settings,
    controller_manager: bool,
    scheduler: bool,
    kwok: bool,
}

impl Builder {
    /// Asks for a cluster of this name.
    #[must_use]
    pub fn cluster(mut self, name: &str) -> Self {
        self.clusters.push(name.to_owned());
        self
    }

    /// Has etcd and the API servers send all their spans to `otlp`, a `host:port` that speaks OTLP over gRPC.
    #[must_use]
    pub fn tracing(mut self, otlp: &str) -> Self {
        self.settings.otlp = Some(otlp.to_owned());
        self
    }

    /// Has the API servers write audit logs.
    #[must_use]
    pub fn audit(mut self) -> Self {
        self.settings.audit = true;
        self
    }

    /// Makes a user known to the API servers by a token. Rights come from roles, or from the groups.
    #[must_use]
    pub fn token_user(mut self, token: &str, user: &str, groups: &[&str]) -> Self {
        self.settings.token_users.push(TokenUser {
            token: token.to_owned(),
            user: user.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
        });
        self
    }

    /// Gives the API servers one more flag, for example `--max-requests-inflight=5`.
    #[must_use]
    pub fn flag(mut self, flag: &str) -> Self {
        self.settings.flags.push(flag.to_owned());
        self
    }

    /// Asks for a controller manager for each cluster: without one, namespaces are never removed and nothing is
    /// collected or made out of a Deployment. Pods then need a service account, as in a cluster of the real world.
    #[must_use]
    pub fn controller_manager(mut self) -> Self {
        self.controller_manager = true;
        self.service_accounts()
    }

    /// Has pods need a service account, as in a cluster of the real world. Without a controller manager nobody makes the account
    /// `default` of a namespace.
    #[must_use]
    pub fn service_accounts(mut self) -> Self {
        self.settings.service_accounts = true;
        self
    }

    /// Asks for API servers of another version than the newest.
    #[must_use]
    pub fn api_server(mut self, tool: Tool) -> Self {
        self.api_server = Some(tool);
        self
    }

    /// Asks for a scheduler for each cluster.
    #[must_use]
    pub fn scheduler(mut self) -> Self {
        self.scheduler = true;
        self
    }

    /// Asks for kwok for each cluster, with one node: pods that are scheduled then pretend to run.
    #[must_use]
    pub fn kwok(mut self) -> Self {
        self.kwok = true;
        self
    }

    /// Starts everything and waits until it is ready.
    pub async fn start(self) -> anyhow::Result<ControlPlane> {
        let Self { mut clusters, api_server, settings, controller_manager, scheduler, kwok } = self;
        let api_server = api_server.unwrap_or(Tool::KubeApiserver);
        if clusters.is_empty() {
            clusters.push("main".to_owned());
        }
        let mut wanted = vec![Tool::Etcd, api_server];
        wanted.extend(controller_manager.then_some(Tool::KubeControllerManager));
        wanted.extend(scheduler.then_some(Tool::KubeScheduler));
        wanted.extend(kwok.then_some(Tool::Kwok));
        let tools = Toolbox::get(&wanted).await?;

        let folder = Folder::new("etcd")?;
        let etcd = Etcd::start(&tools, &folder, settings.otlp.as_deref()).await?;
        let api_server = tools.path(api_server)?;
        let starting = clusters.iter().map(|name| Cluster::start(api_server.to_owned(), etcd.url(), name, &settings));
        let clusters = try_join_all(starting).await?;
        let tools = &tools;
        let companions = clusters.iter().map(async |cluster| {
            if scheduler {
                controllers::scheduler(cluster, tools)?;
            }
            let manager = async {
                if controller_manager {
                    controllers::controller_manager(cluster, tools).await?;
                }
                anyhow::Ok(())
            };
            let nodes = async {
                if kwok {
                    controllers::kwok(cluster, tools).await?;
                }
                anyhow::Ok(())
            };
            try_join(manager, nodes).await
        });
        try_join_all(companions).await?;
        Ok(ControlPlane { clusters, etcd, _folder: folder })
    }
}
