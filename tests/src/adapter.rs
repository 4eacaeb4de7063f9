//! The reference adapter in `sandbox/go/adapter`: a peer on grpc-go that writes to the clusters it is given, and misbehaves on
//! demand as adapters in the field do.

use std::{
    ffi::{OsStr, OsString},
    fs,
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use prost_types::{Value, value::Kind};
use serde::Deserialize;
use switchyard_proto::v1::{AdapterProtocol, Model, Registrant, Registry};

use crate::sandbox::{Folder, Process, Tool, Toolbox};

/// It listens within milliseconds; the limit is for a machine that compiles meanwhile.
const START: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// How the adapter shall be started. Without knobs it does what it is asked.
#[derive(Debug, Clone, Default)]
pub struct Preparation {
    knobs: Vec<OsString>,
    listen: Option<SocketAddr>,
    otlp: Option<String>,
}

impl Preparation {
    /// Turns a knob, such as `--fail-empty` or `--slow=2s`; the adapter's `--help` lists them.
    #[must_use]
    pub fn knob(mut self, knob: impl AsRef<OsStr>) -> Self {
        self.knobs.push(knob.as_ref().to_owned());
        self
    }

    /// Has it listen there, and not on a port of the kernel's choice.
    #[must_use]
    pub fn at(self, address: SocketAddr) -> Self {
        Self { listen: Some(address), ..self }
    }

    /// Has it send its spans to `otlp` (a URL), as the service `adapter`.
    #[must_use]
    pub fn traced(self, otlp: &str) -> Self {
        Self { otlp: Some(otlp.to_owned()), ..self }
    }

    /// Starts it and waits until it says where it listens.
    pub async fn start(self) -> anyhow::Result<Adapter> {
        let Self { knobs, listen, otlp } = self;
        let folder = Folder::new("adapter")?;
        let calls = folder.path().join("calls");
        let mut command = Toolbox::get(&[Tool::Adapter]).await?.command(Tool::Adapter)?;
        command.arg("--listen").arg(listen.map_or_else(|| "127.0.0.1:0".to_owned(), |address| address.to_string()));
        command.arg("--port-file").arg(folder.path().join("address")).arg("--call-log").arg(&calls).args(knobs);
        command.env_remove("OTEL_EXPORTER_OTLP_ENDPOINT").env_remove("KUBECONFIG");
        if let Some(otlp) = otlp {
            command.env("OTEL_EXPORTER_OTLP_ENDPOINT", otlp).env("OTEL_SERVICE_NAME", "adapter");
        }
        let mut process = Process::start("adapter", &command, &folder.path().join("log"))?;
        let deadline = Instant::now() + START;
        let address = loop {
            let said = fs::read_to_string(folder.path().join("address"));
            if let Some(address) = said.ok().and_then(|text| text.trim().parse().ok()) {
                break address;
            }
            process.check_running()?;
            if Instant::now() >= deadline {
                bail!("the adapter did not say within {START:?} where it listens:\n{}", process.log_tail());
            }
            tokio::time::sleep(POLL).await;
        };
        Ok(Adapter { process, address, calls, folder })
    }
}

/// An adapter that runs until this value is dropped.
#[derive(Debug)]
pub struct Adapter {
    process: Process,
    address: SocketAddr,
    calls: PathBuf,
    folder: Folder,
}

/// One line of the adapter's own log.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
#[derive(Default)]
pub struct Entry {
    /// `connection`, `call`, `written` (what was asked for has been done) or `end`.
    pub event: String,
    /// Tells calls apart.
    pub id: u64,
    /// `Provision` or `ProcessOAM`.
    pub method: String,
    /// Names of the components.
    pub names: Vec<String>,
    /// Whether they are removed.
    pub delete_op: bool,
    /// Who asks.
    pub username: String,
    /// How many kubeconfigs came.
    pub kubeconfigs: usize,
    /// The URLs of the clusters in each of them.
    pub servers: Vec<Vec<String>>,
    /// Milliseconds that the caller was going to wait.
    pub deadline: Option<u64>,
    /// The header of that name.
    pub traceparent: String,
    /// The run that the call belongs to.
    pub run: String,
    /// The step that the call belongs to.
    pub step: String,
    /// How the request was compressed; empty when it was not.
    pub compression: String,
    /// Calls under way, this one included.
    pub running: u64,
    /// The component as it was sent.
    pub component: serde_json::Value,
    /// How the call ended.
    pub code: String,
    /// Whether the caller no longer waited.
    pub left: bool,
}

impl Adapter {
    /// Prepares a start.
    pub fn prepare() -> Preparation {
        Preparation::default()
    }

    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the process, to end it or to see that it has.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Returns a folder of its own that lives as long as it does.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns everything that it has written, to look for secrets.
    pub fn call_log(&self) -> String {
        fs::read_to_string(&self.calls).unwrap_or_default()
    }

    /// Returns its log so far.
    pub fn entries(&self) -> Vec<Entry> {
        let log = self.call_log();
        // A line that is being written has no end yet.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        whole.lines().map(|line| serde_json::from_str(line).expect("the adapter writes JSON lines")).collect()
    }

    /// Returns the calls so far that did not end as UNIMPLEMENTED.
    pub fn calls(&self) -> Vec<Entry> {
        let entries = self.entries().into_iter();
        entries.filter(|entry| entry.event == "call" && entry.code != "Unimplemented").collect()
    }

    /// Waits for an entry, at most `limit`.
    pub async fn wait_for(&self, limit: Duration, mut wanted: impl FnMut(&Entry) -> bool) -> anyhow::Result<Entry> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(entry) = self.entries().into_iter().find(&mut wanted) {
                return Ok(entry);
            }
            if Instant::now() >= deadline {
                bail!("the adapter did not write within {limit:?} what was waited for:\n{}", self.call_log());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Ends it, as a crash does, and returns where it listened.
    pub fn kill(mut self) -> SocketAddr {
        self.process.kill();
        self.address
    }
}

/// Says that the registrant `mesh` at this address stands behind the model `mesh`, and asks it in this way.
pub fn registry(address: SocketAddr, protocol: AdapterProtocol) -> Registry {
    registry_at(&address.ip().to_string(), address.port().into(), protocol)
}

/// Says the same of an address that need not be usable.
pub fn registry_at(host: &str, port: f64, protocol: AdapterProtocol) -> Registry {
    let registrant = Registrant {
        name: "mesh".into(),
        kind: "meshery".into(),
        host: host.into(),
        port: Some(Value { kind: Some(Kind::NumberValue(port)) }),
        protocol: protocol.into(),
    };
    let model = Model { name: "mesh".into(), registrant: "mesh".into(), ..Model::default() };
    Registry { registrants: vec![registrant], models: vec![model], ..Registry::default() }
}

/// Reserves a port that nobody listens on.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("failed to find a free port")?;
    Ok(listener.local_addr()?)
}
