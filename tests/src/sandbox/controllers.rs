//! What makes a cluster do something by itself: controller manager, scheduler, and kwok in place of kubelets.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use k8s_openapi::{
    api::core::v1::{Node, NodeStatus, ServiceAccount},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use serde::Deserialize;

use super::{
    cluster::Cluster,
    gobuild,
    process::{POLL, Process},
    tools::{Tool, Toolbox},
};

/// The controllers take a few seconds to start on two cores.
const START: Duration = Duration::from_secs(60);

/// Starts a controller manager and waits until its controllers work.
pub(crate) async fn controller_manager(cluster: &Cluster, tools: &Toolbox) -> anyhow::Result<()> {
    let folder = cluster.folder().path();
    let mut command = with_kubeconfigs(cluster, tools, Tool::KubeControllerManager)?;
    command
        // Nodes get no addresses from us, and the token controller for bootstrapping finds nothing to do.
        .arg("--controllers=*,-nodeipam,-bootstrap-signer-controller")
        .arg("--service-account-private-key-file")
        .arg(folder.join("service-accounts.key"))
        .arg("--root-ca-file")
        .arg(folder.join("ca.crt"));
    start(cluster, Tool::KubeControllerManager, &command)?;
    // The last thing that makes pods possible.
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client().await?, "default");
    until(cluster, "the default service account", async || accounts.get("default").await.is_ok()).await
}

/// Starts a scheduler.
pub(crate) fn scheduler(cluster: &Cluster, tools: &Toolbox) -> anyhow::Result<()> {
    let command = with_kubeconfigs(cluster, tools, Tool::KubeScheduler)?;
    start(cluster, Tool::KubeScheduler, &command)
}

/// Starts kwok, creates a node for it, and waits until that node is ready.
pub(crate) async fn kwok(cluster: &Cluster, tools: &Toolbox) -> anyhow::Result<()> {
    let mut command = tools.command(Tool::Kwok)?;
    command.arg("--manage-all-nodes=true").arg("--kubeconfig").arg(kubeconfig(cluster)?);
    for stage in stages()? {
        command.arg("--config").arg(stage);
    }
    start(cluster, Tool::Kwok, &command)?;
    let nodes: Api<Node> = Api::all(cluster.client().await?);
    create_node(nodes.clone().into_client(), "pretended").await?;
    until(cluster, "the node to be ready", async || {
        let conditions = nodes.get("pretended").await.ok().and_then(|node| node.status?.conditions);
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
    })
    .await
}

async fn create_node(client: Client, name: &str) -> anyhow::Result<()> {
    let capacity: BTreeMap<String, Quantity> = [("cpu", "32"), ("memory", "256Gi"), ("pods", "110")]
        .map(|(resource, amount)| (resource.to_owned(), Quantity(amount.to_owned())))
        .into();
    let node = Node {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        status: Some(NodeStatus {
            capacity: Some(capacity.clone()),
            allocatable: Some(capacity),
            ..NodeStatus::default()
        }),
        ..Node::default()
    };
    Api::all(client).create(&PostParams::default(), &node).await.context("failed to create a node")?;
    Ok(())
}

fn with_kubeconfigs(cluster: &Cluster, tools: &Toolbox, tool: Tool) -> anyhow::Result<Command> {
    let kubeconfig = kubeconfig(cluster)?;
    let mut command = tools.command(tool)?;
    for flag in ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"] {
        command.arg(flag).arg(&kubeconfig);
    }
    // Nobody scrapes them, and a port not taken cannot clash.
    command.args(["--leader-elect=false", "--secure-port=0"]);
    Ok(command)
}

fn kubeconfig(cluster: &Cluster) -> anyhow::Result<PathBuf> {
    // Written once: by the second time somebody may be reading it.
    let path = cluster.folder().path().join("admin.kubeconfig");
    if path.exists() {
        return Ok(path);
    }
    cluster.folder().write("admin.kubeconfig", &cluster.kubeconfig_admin().to_string())
}

fn start(cluster: &Cluster, tool: Tool, command: &Command) -> anyhow::Result<()> {
    let log = cluster.folder().path().join(format!("{tool}.log"));
    cluster.keep(Process::start(&format!("{tool} of {}", cluster.name()), command, &log)?);
    Ok(())
}

async fn until(cluster: &Cluster, what: &str, mut done: impl AsyncFnMut() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + START;
    while !done().await {
        cluster.check_companions()?;
        if Instant::now() >= deadline {
            bail!("waited {START:?} for {what} in {}", cluster.name());
        }
        tokio::time::sleep(POLL * 5).await;
    }
    Ok(())
}

/// Finds the files that say how kwok's nodes and pods live. They are in its module, and kwok refuses to start without.
fn stages() -> anyhow::Result<Vec<PathBuf>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Module {
        dir: PathBuf,
    }
    // Fetches the module if Go's cache does not hold it any more; `go list` would say an empty folder.
    let output = gobuild::go("kwok")
        .args(["mod", "download", "-json", "sigs.k8s.io/kwok"])
        .stdin(Stdio::null())
        .output()
        .context("kwok needs the stage files of its Go module, and there is no `go` to find them: install Go")?;
    let Module { dir } = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("failed to find kwok's module: {}", String::from_utf8_lossy(&output.stderr)))?;
    let mut files = Vec::new();
    for kind in ["pod/fast", "node/fast", "node/heartbeat-with-lease"] {
        let folder = dir.join("kustomize/stage").join(kind);
        for entry in fs::read_dir(&folder).with_context(|| format!("failed to read {}", folder.display()))? {
            let path = entry?.path();
            let is_stage = path.extension().is_some_and(|extension| extension == "yaml")
                && path.file_stem().is_some_and(|stem| stem != "kustomization");
            if is_stage {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
