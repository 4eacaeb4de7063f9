//! etcd: the one database behind all API servers of a control plane.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{
    folder::Folder,
    http,
    ports::{self, ATTEMPTS, is_clash},
    process::{POLL, Process},
    tools::{Tool, Toolbox, version_of},
};

/// A second is usual; a busy machine may need a few.
const START: Duration = Duration::from_secs(60);

/// A running etcd with its data in a temporary folder.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    url: String,
}

impl Etcd {
    /// Starts etcd and waits until it answers. `otlp`, as `host:port`, is where its spans go.
    pub async fn start(tools: &Toolbox, folder: &Folder, otlp: Option<&str>) -> anyhow::Result<Self> {
        for _ in 1..ATTEMPTS {
            match Self::try_start(tools, folder, otlp).await {
                Err(error) if is_clash(&error) => {}
                result => return result,
            }
        }
        Self::try_start(tools, folder, otlp).await
    }

    async fn try_start(tools: &Toolbox, folder: &Folder, otlp: Option<&str>) -> anyhow::Result<Self> {
        let [client, peer] = ports::free()?;
        let (url, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let data = folder.path().join("etcd");
        // What an attempt that met a taken port has left says other ports than ours.
        fs::remove_dir_all(&data).ok();
        let path = tools.path(Tool::Etcd)?;
        let mut command = Command::new(path);
        command.arg("--data-dir").arg(data).args([
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            // A crash of the machine is no reason to keep a test's data.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ]);
        if let Some(otlp) = otlp {
            // Before 3.6 these were experimental, and their names said so.
            let prefix = match version_of(Tool::Etcd, path) {
                Some(version) if version < (3, 6) => "--experimental-",
                _ => "--",
            };
            command.args([
                format!("{prefix}enable-distributed-tracing=true"),
                format!("{prefix}distributed-tracing-address={otlp}"),
                format!("{prefix}distributed-tracing-sampling-rate=1000000"),
            ]);
        }
        let log = folder.path().join("etcd.log");
        fs::write(&log, "").context("failed to empty etcd's log")?;
        let mut etcd = Self { process: Process::start("etcd", &command, &log)?, url };
        etcd.ready().await?;
        Ok(etcd)
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let health = format!("{}/health", self.url);
        let deadline = Instant::now() + START;
        loop {
            self.process.check_running()?;
            if http::get(&health).await.is_ok() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("etcd did not answer within {START:?}:\n{}", self.process.log_tail());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns the address for clients.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the process, to look at or to disturb.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}
