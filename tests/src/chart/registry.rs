//! The OCI registry in `sandbox/go/registry`.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::bail;

use super::{Chart, run};
use crate::sandbox::{Folder, Process, Tool, Toolbox, certs::Authority};

/// It listens within milliseconds; the limit is for a machine that compiles meanwhile.
const START: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// A registry that runs until this value is dropped.
#[derive(Debug)]
pub struct Registry {
    _process: Process,
    address: String,
    login: Option<(String, String)>,
    folder: Folder,
}

impl Registry {
    /// Starts one whose certificate comes from `authority`. With a name and a password nobody else comes in.
    pub async fn start(authority: &Authority, login: Option<(&str, &str)>) -> anyhow::Result<Self> {
        let folder = Folder::new("registry")?;
        let identity = authority.server(&["127.0.0.1", "localhost"])?;
        folder.write("authority.pem", authority.certificate())?;
        let mut command = Toolbox::get(&[Tool::Registry]).await?.command(Tool::Registry)?;
        command.arg("--cert").arg(folder.write("certificate.pem", &identity.certificate)?);
        command.arg("--key").arg(folder.write("key.pem", &identity.key)?);
        command.arg("--port-file").arg(folder.path().join("address"));
        if let Some((user, password)) = login {
            command.args(["--user", user, "--password", password]);
        }
        let mut process = Process::start("registry", &command, &folder.path().join("log"))?;
        let deadline = Instant::now() + START;
        let address = loop {
            if let Ok(address) = fs::read_to_string(folder.path().join("address")) {
                break address;
            }
            process.check_running()?;
            if Instant::now() >= deadline {
                bail!("the registry did not say within {START:?} where it listens:\n{}", process.log_tail());
            }
            tokio::time::sleep(POLL).await;
        };
        let login = login.map(|(user, password)| (user.to_owned(), password.to_owned()));
        Ok(Self { _process: process, address, login, folder })
    }

    /// Returns host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Has helm push the chart, and returns its URL, without a version and without credentials.
    pub async fn push(&self, chart: &Chart) -> anyhow::Result<String> {
        let (path, _folder) = chart.package().await?;
        let mut command = Toolbox::get(&[Tool::Helm]).await?.command(Tool::Helm)?;
        let url = format!("oci://{}/charts", self.address);
        command.arg("push").arg(path).arg(&url).arg("--ca-file").arg(self.folder.path().join("authority.pem"));
        command.env("HOME", self.folder.path());
        if let Some((user, password)) = &self.login {
            command.args(["--username", user, "--password", password]);
        }
        run(command).await?;
        Ok(format!("{url}/{}", chart.name))
    }
}
