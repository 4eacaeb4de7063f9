//! The comparison in short: what `cargo compare` measures at length is held here where it can be counted. No time is asserted.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use switchyard_proto::v1;
use switchyard_tests::{
    client::{self, Client},
    programs::{self, Program},
    sandbox::{Cluster, ControlPlane, Folder, audit},
    work::{Shape, Work},
};

const OBJECTS: usize = 200;
const ROUNDS: usize = 2;
/// What a run may ask beside its writes: what the server is and serves, and the like.
const ONCE: usize = 12;
/// Whom the API server takes the executor for.
const USER: &str = "comparison";

/// One PATCH a component and nothing else that grows with their number (D12); none for what is there and is as asked (L4).
#[tokio::test]
async fn component_costs_one_request_and_a_run_at_most_a_dozen_more() -> anyhow::Result<()> {
    let control_plane = ControlPlane::builder().audit().start().await?;
    let cluster = control_plane.first();
    let admin = cluster.client().await?;
    let folder = Folder::new("compare-in-short")?;
    let kubeconfig = cluster.kubeconfig_for(USER, &["system:masters"])?.to_string();
    // The floor is somebody else, so that the audit log tells whose requests are whose.
    let file = folder.write("kubeconfig", &cluster.kubeconfig_admin().to_string())?;
    let planner = Program::Planner.prepare().start().await?;
    let executor = Program::Executor.prepare().start().await?;
    let client = Client::connect(&planner.url(), &executor.url()).await?;
    for round in 0..ROUNDS {
        let work = Work { namespace: format!("floor-{round}"), objects: OBJECTS, shape: Shape::Flat };
        work.prepare(&admin).await?;
        let objects = folder.write("objects", &work.lines())?;
        let before = patches(cluster).await?;
        floor(&objects, &file).await?;
        assert_eq!(patches(cluster).await? - before, OBJECTS as u64, "PATCHes of the floor");
        work.verify(&admin).await?;
        work.clear(&admin).await?;

        let work = Work { namespace: format!("switchyard-{round}"), objects: OBJECTS, shape: Shape::Fan };
        work.prepare(&admin).await?;
        for (again, change) in [(false, v1::Change::Created), (true, v1::Change::Unchanged)] {
            let before = (patches(cluster).await?, asked(cluster)?);
            let access = vec![client::kubeconfig(cluster.name(), kubeconfig.as_str())];
            let outcome = client.run(client::deploy(work.design(), &[cluster.name()]), access).await?;
            assert_eq!(outcome.verdict(), v1::Verdict::Succeeded);
            assert_eq!(outcome.targets().filter(|target| target.change() == change).count(), OBJECTS, "{change:?}");
            let needed = if again { 0 } else { OBJECTS };
            let patched = patches(cluster).await? - before.0;
            assert_eq!(patched, needed as u64, "PATCHes for {OBJECTS} components, round {round}, again: {again}");
            let asked = asked(cluster)? - before.1;
            ensure!(asked >= needed, "the audit log holds {asked} of at least {needed} requests");
            ensure!(asked - needed <= ONCE, "{} requests beside the PATCHes, more than {ONCE}", asked - needed);
            work.verify(&admin).await?;
        }
        work.clear(&admin).await?;
    }
    planner.stop().await;
    executor.stop().await;
    Ok(())
}

/// What the API server does for a component is what it does for a bare PATCH: its allocations tell, which vary by a few in a
/// hundred. A `traceparent` that is marked as sampled though nobody records it costs a fifth more of them.
#[tokio::test]
async fn component_costs_the_api_server_what_a_bare_patch_does() -> anyhow::Result<()> {
    /// So many that what a run costs once does not show.
    const OBJECTS: usize = 1000;
    let control_plane = ControlPlane::builder().start().await?;
    let cluster = control_plane.first();
    let admin = cluster.client().await?;
    let folder = Folder::new("compare-allocations")?;
    let kubeconfig = cluster.kubeconfig_admin().to_string();
    let file = folder.write("kubeconfig", &kubeconfig)?;
    let planner = Program::Planner.prepare().start().await?;
    let executor = Program::Executor.prepare().start().await?;
    let client = Client::connect(&planner.url(), &executor.url()).await?;
    // Built before anything is counted.
    programs::floor().await?;

    let work = Work { namespace: "floor".to_owned(), objects: OBJECTS, shape: Shape::Flat };
    work.prepare(&admin).await?;
    let objects = folder.write("objects", &work.lines())?;
    let before = allocations(cluster).await?;
    floor(&objects, &file).await?;
    let bare = allocations(cluster).await? - before;
    work.verify(&admin).await?;

    let work = Work { namespace: "switchyard".to_owned(), objects: OBJECTS, shape: Shape::Flat };
    work.prepare(&admin).await?;
    let before = allocations(cluster).await?;
    let access = vec![client::kubeconfig(cluster.name(), kubeconfig.as_str())];
    let outcome = client.run(client::deploy(work.design(), &[cluster.name()]), access).await?;
    let ours = allocations(cluster).await? - before;
    assert_eq!(outcome.verdict(), v1::Verdict::Succeeded);
    work.verify(&admin).await?;

    let each = |all: f64| all / OBJECTS as f64;
    ensure!(each(bare) > 500.0, "{} allocations for a PATCH: that is not what an API server does", each(bare));
    ensure!(
        ours <= 1.1 * bare,
        "a component costs the API server {:.0} allocations, a bare PATCH {:.0}",
        each(ours),
        each(bare)
    );
    planner.stop().await;
    executor.stop().await;
    Ok(())
}

/// Has the floor write the objects.
async fn floor(objects: &Path, kubeconfig: &Path) -> anyhow::Result<()> {
    let mut floor = Command::new(programs::floor().await?);
    let status = floor.arg(objects).arg("64").arg(kubeconfig).stdout(Stdio::null()).status()?;
    ensure!(status.success(), "the floor ended with {status}");
    Ok(())
}

async fn allocations(cluster: &Cluster) -> anyhow::Result<f64> {
    Ok(cluster.metrics().await?.sum("go_memstats_mallocs_total", &[]))
}

async fn patches(cluster: &Cluster) -> anyhow::Result<u64> {
    Ok(cluster.metrics().await?.requests("APPLY", "configmaps"))
}

/// Counts everything that the user has asked so far.
fn asked(cluster: &Cluster) -> anyhow::Result<usize> {
    let is_theirs = |event: &audit::Event| event.user.username == USER;
    Ok(cluster.audit().context("there is an audit log")?.iter().filter(|event| is_theirs(event)).count())
}
