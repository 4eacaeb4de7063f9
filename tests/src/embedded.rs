//! The executor inside the test's own process: everything of it but its telemetry, and it costs nothing to start.

use anyhow::Context as _;
use switchyard_executor::Args;
use switchyard_service::{
    program::{self, Program},
    serve::Drained,
    shutdown::Shutdown,
};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::client::Client;

const PROGRAM: Program = Program { name: "switchyard-executor", version: "test", listen: "127.0.0.1:0" };

/// An executor that serves until it is [drained](Self::drain), or until this value is dropped.
#[derive(Debug)]
pub struct Executor {
    url: String,
    shutdown: Shutdown,
    serving: Option<JoinHandle<Result<Drained, program::Error>>>,
}

impl Executor {
    /// Starts one with the flags of the real program.
    pub async fn start(flags: &[&str]) -> anyhow::Result<Self> {
        program::install_crypto();
        let args = program::parse_from::<Args>(&PROGRAM, [&[PROGRAM.name], flags].concat())?;
        let listener = TcpListener::bind(args.serve.listen).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let shutdown = Shutdown::new();
        let serving = tokio::spawn(switchyard_executor::run(args, listener, shutdown.clone()));
        Ok(Self { url, shutdown, serving: Some(serving) })
    }

    /// Returns where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Connects to it. There is no planner behind this client.
    pub async fn client(&self) -> anyhow::Result<Client> {
        Client::connect(&self.url, &self.url).await
    }

    /// Returns what the signals of the real program would trigger.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Drains it and returns how that came out.
    pub async fn drain(mut self) -> anyhow::Result<Drained> {
        self.shutdown.drain();
        let serving = self.serving.take().context("an executor is drained once")?;
        Ok(serving.await??)
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}
