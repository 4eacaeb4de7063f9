//! The way from the command line to the exit code, the same for both programs.
//!
//! Order matters twice. On the way in: arguments, telemetry, port, signals. On the way out: the server drains, the
//! services' own tasks end, and only then telemetry is flushed, whichever way `run` came to its end.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    ffi::OsString,
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, error::ErrorKind};
use futures::FutureExt;
use tokio::net::TcpListener;

pub use crate::config::Program;
use crate::{
    config::ServeArgs,
    listen, metrics,
    serve::{self, Drained},
    shutdown::Shutdown,
    status::chain,
    telemetry::{self, lines},
};

/// How long a program that was told to stop at once may take to do so.
const ABORT_LIMIT: Duration = Duration::from_secs(1);

/// Why a program ends before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line is wrong or a file it names cannot be read: exit code 2. The text is one sentence that names
    /// the file.
    #[error("{0}")]
    Usage(String),
    /// Anything else: exit code 1.
    #[error(transparent)]
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Blames the command line or a file that it names, in one sentence.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    /// Blames whatever `source` says.
    pub fn failed(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(source.into())
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => 1,
        }
    }
}

impl From<serve::Error> for Error {
    fn from(error: serve::Error) -> Self {
        match error {
            serve::Error::Refused(_) | serve::Error::Tls { .. } => Self::Usage(chain(&error)),
            other => Self::failed(other),
        }
    }
}

impl From<listen::Error> for Error {
    fn from(error: listen::Error) -> Self {
        match error {
            listen::Error::Refused(_) | listen::Error::PortFile { .. } => Self::Usage(chain(&error)),
            other @ listen::Error::Bind { .. } => Self::failed(other),
        }
    }
}

/// Reads a command line as `program` would.
///
/// # Errors
///
/// When it is wrong, or asks for help or the version.
pub fn parse_from<A: Parser + AsRef<ServeArgs>>(
    program: &Program,
    line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<A, clap::Error> {
    let Program { name, version, listen } = *program;
    let mut command = A::command()
        .name(name)
        .bin_name(name)
        .version(version)
        .mut_arg("listen", |argument| argument.required(false).default_value(listen));
    let matches = command.try_get_matches_from_mut(line)?;
    let args = A::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    match args.as_ref().check() {
        Ok(()) => Ok(args),
        Err(error) => Err(command.error(ErrorKind::ValueValidation, error)),
    }
}

/// Runs a program from its command line to its exit code.
///
/// `run` is given a port that is open already, so that `--port-file` is written whatever else takes its time.
pub fn main<A, F, R>(program: &Program, run: F) -> ExitCode
where
    A: Parser + AsRef<ServeArgs>,
    F: FnOnce(A, TcpListener, Shutdown) -> R,
    R: Future<Output = Result<Drained, Error>>,
{
    install_crypto();
    let args: A = match parse_from(program, std::env::args_os()) {
        Ok(args) => args,
        // Help and the version.
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => return complain(program, &Error::Usage(in_one_sentence(&error))),
    };
    say_panics();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(program, &Error::failed(error)),
    };
    let outcome = runtime.block_on(async {
        let telemetry = telemetry::init(program, args.as_ref());
        let outcome = AssertUnwindSafe(listen_and_run(program, args, run)).catch_unwind().await;
        telemetry.shutdown().await;
        outcome
    });
    // Blocking work that was given up on must not hold the process.
    runtime.shutdown_timeout(ABORT_LIMIT);
    match outcome {
        Ok(Ok(Drained::Clean)) => ExitCode::SUCCESS,
        Ok(Ok(Drained::Cut | Drained::Aborted)) => ExitCode::FAILURE,
        Ok(Err(error)) => complain(program, &error),
        Err(_panic) => ExitCode::from(101),
    }
}

/// Chooses the implementation of cryptography for the process. Harmless when it is chosen already.
pub fn install_crypto() {
    // rustls panics at first use if two are compiled in and none is chosen; this way a new dependency cannot bring that
    // about.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

async fn listen_and_run<A, F, R>(program: &Program, args: A, run: F) -> Result<Drained, Error>
where
    A: AsRef<ServeArgs>,
    F: FnOnce(A, TcpListener, Shutdown) -> R,
    R: Future<Output = Result<Drained, Error>>,
{
    let shutdown = Shutdown::from_signals().map_err(Error::failed)?;
    let listener = listen::bind(args.as_ref()).await?;
    let metrics = match args.as_ref().metrics_listen {
        Some(address) => Some(metrics::open(address, telemetry::resource(program)).await.map_err(Error::failed)?),
        None => None,
    };
    let metrics = async {
        match metrics {
            Some(endpoint) => endpoint.serve().await,
            None => std::future::pending().await,
        }
    };
    tracing::info!(program = program.name, version = program.version, "starting");
    let given_up = async {
        shutdown.aborted().await;
        tokio::time::sleep(ABORT_LIMIT).await;
    };
    tokio::select! {
        // First, for what it returns says more than that the time is over.
        biased;
        outcome = run(args, listener, shutdown.clone()) => outcome,
        () = given_up => Ok(Drained::Aborted),
        never = metrics => match never {},
    }
}

/// Says on standard error, in one line, why the program ends.
fn complain(program: &Program, error: &Error) -> ExitCode {
    let text = match error {
        Error::Usage(text) => text.clone(),
        Error::Failed(source) => chain(source.as_ref()),
    };
    lines::say(&format!("{}: {text}\n", program.name));
    lines::flush();
    ExitCode::from(error.exit_code())
}

/// What is wrong with a command line, without the advice that follows it.
fn in_one_sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let lines: Vec<_> = first.lines().map(str::trim).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

/// Has panics told on the way of log lines: whoever panics must not wait for a reader either.
fn say_panics() {
    panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        lines::say(&format!("thread '{}' {panic}\n", thread.name().unwrap_or("<unnamed>")));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            lines::say(&format!("{backtrace}\n"));
        }
    }));
}
