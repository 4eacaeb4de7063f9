//! Starts a control plane to play with and keeps it up until Ctrl-C: `sandbox-up east west`.
//!
//! Prints `pid=…` for each process and `kubeconfig=…` with a context for each cluster, then `ready`.

use std::process::ExitCode;

use switchyard_tests::sandbox::{ControlPlane, Folder};

const HELP: &str = "\
usage: sandbox-up [NAME]...

Starts an API server for each name (one called `main` without any) on one etcd, and keeps them up until Ctrl-C.
There are no controllers: nothing runs, nothing becomes ready, and a Namespace that is deleted stays.";

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbox-up: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> anyhow::Result<()> {
    let names: Vec<_> = std::env::args().skip(1).collect();
    if let Some(flag) = names.iter().find(|name| name.starts_with('-')) {
        let asked = matches!(flag.as_str(), "-h" | "--help");
        println!("{HELP}");
        anyhow::ensure!(asked, "there is no flag {flag}");
        return Ok(());
    }
    let builder = names.iter().fold(ControlPlane::builder(), |builder, name| builder.cluster(name));
    let control_plane = builder.start().await?;
    let folder = Folder::new("kubeconfig")?;
    let kubeconfig = folder.write("kubeconfig.yaml", &control_plane.kubeconfig().to_string())?;
    for pid in control_plane.pids() {
        println!("pid={pid}");
    }
    println!("kubeconfig={}", kubeconfig.display());
    println!("ready");
    tokio::signal::ctrl_c().await?;
    Ok(())
}
