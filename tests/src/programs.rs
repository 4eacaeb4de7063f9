//! The two programs as their users run them: built by cargo, started with flags, ended with SIGTERM.

use std::{
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};

use crate::sandbox::{Folder, Process};

/// A program listens within milliseconds; the limit is for a machine that compiles meanwhile.
const START: Duration = Duration::from_secs(30);
/// Longer than the programs' own default for a drain.
const STOP: Duration = Duration::from_secs(40);

/// One of the two programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Makes plans.
    Planner,
    /// Runs them.
    Executor,
}

impl Program {
    /// Returns the name of package and program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Planner => "switchyard-planner",
            Self::Executor => "switchyard-executor",
        }
    }

    /// Returns the program's path, having had cargo build both programs, in the profile that this was built in.
    pub async fn path(self) -> anyhow::Result<PathBuf> {
        built(self.name()).await
    }

    /// Prepares a start on a port of the kernel's choice.
    pub fn prepare(self) -> Preparation {
        Preparation { program: self, arguments: Vec::new(), environment: Vec::new() }
    }
}

/// The bare loop that Switchyard is compared with.
const FLOOR: &str = "floor";

/// The client in Rust, in `tests/clients`.
const EXAMPLE: &str = "client";

/// Returns the path of the client in Rust, built like the programs.
pub async fn example() -> anyhow::Result<PathBuf> {
    built(EXAMPLE).await
}

/// Returns the path of the bare loop, built like the programs.
pub async fn floor() -> anyhow::Result<PathBuf> {
    built(FLOOR).await
}

async fn built(name: &'static str) -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<Result<BTreeMap<String, PathBuf>, String>> = OnceLock::new();
    tokio::task::spawn_blocking(move || {
        let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
        let built = built.as_ref().map_err(|error| anyhow!("{error}"))?;
        built.get(name).cloned().with_context(|| format!("cargo built no program {name}"))
    })
    .await?
}

/// What a program shall be started with.
#[derive(Debug, Clone)]
pub struct Preparation {
    program: Program,
    arguments: Vec<OsString>,
    environment: Vec<(String, OsString)>,
}

impl Preparation {
    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Sets an environment variable. Of our own environment, `SWITCHYARD_*`, `OTEL_*` and `KUBECONFIG` are not passed on.
    #[must_use]
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((key.to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Has the program send its traces to `otlp` (a URL), and often enough for a test to wait for them.
    #[must_use]
    pub fn traced(self, otlp: &str) -> Self {
        self.env("OTEL_EXPORTER_OTLP_ENDPOINT", otlp).env("OTEL_BSP_SCHEDULE_DELAY", "200")
    }

    /// Starts the program and waits until it says where it listens.
    pub async fn start(self) -> anyhow::Result<Running> {
        let Self { program, arguments, environment } = self;
        let name = program.name();
        let folder = Folder::new(name.trim_start_matches("switchyard-"))?;
        let port_file = folder.path().join("address");
        let mut command = Command::new(program.path().await?);
        for (key, _) in env::vars_os() {
            let text = key.to_string_lossy();
            if text.starts_with("SWITCHYARD_") || text.starts_with("OTEL_") || text == "KUBECONFIG" {
                command.env_remove(&key);
            }
        }
        if program == Program::Planner && cfg!(debug_assertions) {
            // Unoptimised code on a busy machine gets more time than the default.
            command.env("SWITCHYARD_MAX_PLANNING_TIME", "2m");
        }
        command.args(["--listen", "127.0.0.1:0", "--port-file"]).arg(&port_file).args(arguments).envs(environment);
        let mut process = Process::start(name, &command, &folder.path().join("log"))?;
        let deadline = Instant::now() + START;
        let address = loop {
            if let Some(address) = fs::read_to_string(&port_file).ok().and_then(|text| text.trim().parse().ok()) {
                break address;
            }
            process.check_running()?;
            if Instant::now() >= deadline {
                bail!("{name} did not say within {START:?} where it listens:\n{}", process.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        Ok(Running { process, address, _folder: folder })
    }
}

/// A program that runs until [`stop`](Self::stop), or until this value is dropped.
#[derive(Debug)]
pub struct Running {
    process: Process,
    address: SocketAddr,
    _folder: Folder,
}

impl Running {
    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the same as a URL, the form that tonic wants.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns everything it has written to standard output and error so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Returns the process, to send it signals or to read its memory use.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Asks it to end and returns how it did. Its log ends with it, so it is returned too.
    pub async fn stop(mut self) -> (ExitStatus, String) {
        let status = self.process.stop(STOP).await;
        (status, self.process.log())
    }
}

/// Returns a cargo command for this workspace, to be run from a test.
pub fn cargo(subcommand: &str) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"));
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg(subcommand).current_dir(root);
    // What cargo tells a test about its own crate would have build scripts run, and what depends on them built, once more each time
    // that cargo runs from a test and not from a terminal.
    for (key, _) in env::vars_os() {
        let text = key.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&key);
        }
    }
    command
}

/// Has cargo build both programs, and the bare loop. Cargo itself tells the person at the terminal about it.
fn build() -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut command = cargo("build");
    // With the bare loop this crate is named too: cargo then takes the features that the tests were built with, and does not build
    // half of the dependencies a second time.
    command.args(["--message-format=json-render-diagnostics", "-p", "switchyard-tests"]);
    command.args(["--bin", FLOOR, "--example", EXAMPLE]);
    for program in [Program::Planner, Program::Executor] {
        command.args(["-p", program.name(), "--bin", program.name()]);
    }
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    // What cargo told this process about its own package would be news to build scripts, which would run again, each time.
    let told = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
    for (name, _) in env::vars_os() {
        if told.iter().any(|told| name.to_string_lossy().starts_with(told)) {
            command.env_remove(name);
        }
    }
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("failed to run cargo, which builds the programs under test")?;
    if !output.status.success() {
        bail!("cargo could not build the programs under test ({})", output.status);
    }
    // One JSON document a line; only those about programs have an `executable` that is not null.
    let artifacts = output.stdout.split(|&byte| byte == b'\n').filter_map(|line| {
        let message: serde_json::Value = serde_json::from_slice(line).ok()?;
        let name = message["target"]["name"].as_str()?.to_owned();
        Some((name, PathBuf::from(message["executable"].as_str()?)))
    });
    Ok(artifacts.collect())
}
