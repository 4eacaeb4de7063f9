//! The helm program, which fetches charts and installs them: the one place that runs it.
//!
//! Each call is a child process with a folder of its own that holds all it reads and writes: the kubeconfig, credentials for
//! where a chart lies, caches. The folder is private, and gone when the call is over. Nothing of our environment reaches it but
//! which authorities are trusted, and for a fetch the proxies. Its time, its memory and what it says are bounded. At its bound
//! it is asked to end before it is killed, so that helm can mark a release as failed: one that stays pending would block every
//! later install (case 97). It ends with the executor, and what it leaves behind then is removed when the next one starts.

pub(crate) mod archive;
mod folder;
mod guard;
mod places;

use std::{
    env,
    fs::File,
    io::{self, Read as _},
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::Arc,
};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, kill_process_group, prlimit};
use switchyard_service::attributes as common;
use tokio::{
    process::Child,
    sync::{OwnedMutexGuard, Semaphore},
    time::{Duration, Instant, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, field::Empty};

pub use self::guard::become_helm;
pub(crate) use self::{
    folder::{Folder, sweep},
    places::Places,
};
use crate::{
    attributes,
    in_use::InUse,
    mask::{Secrets, Unmasked},
};

/// Most that helm may answer, in bytes. A release's manifest is the largest answer, and its compressed form has to fit into an
/// object of 1 MiB.
const MAX_ANSWER: usize = 32 * 1024 * 1024;
/// Most that is kept of what helm says beside its answer, in bytes.
const MAX_SAID: usize = 1024 * 1024;
/// Largest file that helm may write, in bytes: what it says included.
const MAX_FILE: u64 = 64 * 1024 * 1024;
/// Files for what helm says. Pipes would end it, when the executor is gone, before it could mark a release as failed.
const STDOUT: &str = ".stdout";
const STDERR: &str = ".stderr";
/// How long helm may take to end when it is asked to. It then writes one object.
const GRACE: Duration = Duration::from_secs(5);
/// Part of a call's time that is kept for this, if that is less.
const GRACE_SHARE: u32 = 4;
/// What helm needs of its time beside what it waits for, on a machine that is busy.
const BESIDE_WAITS: Duration = Duration::from_secs(3);
/// What is let through of our own environment: whom to trust, which Go programs take from there.
const TRUST: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
/// The same where a chart is fetched. Which way traffic goes to a cluster is for its kubeconfig to say (case 95).
const PROXIES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"];
/// What stands in for a proxy of `http://`: nothing is there. Charts come from `https://`, and a host that leads on to `http://` is
/// not followed (case 349). Two kinds of hosts escape this, which Go asks no proxy for: those that the installation's `NO_PROXY`
/// names, and loopback addresses.
const NO_PLAIN_HTTP: (&str, &str) = ("HTTP_PROXY", "http://127.0.0.1:1");

/// The helm program.
pub(crate) struct Helm {
    /// None looks for it in `PATH`.
    program: Option<PathBuf>,
    /// Over all runs.
    places: Arc<Semaphore>,
    /// Charts that somebody is at work on.
    busy: InUse<Site, Busy>,
}

/// A chart on a cluster: the URL of the cluster's API server, and the chart's name.
pub(crate) type Site = [String; 2];

type Busy = tokio::sync::Mutex<()>;

/// One call of it.
pub(crate) struct Call<'a> {
    /// The command, such as `install`.
    pub(crate) command: &'static str,
    /// What follows it. Seen by whoever may list processes, so it holds no credentials.
    pub(crate) arguments: Vec<String>,
    /// Whether it waits for things, and is to be told how long.
    pub(crate) waits: bool,
    /// Files that it reads, by their names in its folder: there `arguments` may name them by [`Call::file`].
    pub(crate) files: Vec<(&'static str, String)>,
    /// Memory for its data, in bytes.
    pub(crate) memory: u64,
    /// What is said of it in its span.
    pub(crate) about: About<'a>,
}

/// What a call is about.
#[derive(Clone, Copy, Default)]
pub(crate) struct About<'a> {
    /// The chart's URL, without credentials.
    pub(crate) chart: &'a str,
    /// Empty when it is not known, or the call is about none.
    pub(crate) release: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) cluster: &'a str,
}

/// Until when a call may go on.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'a> {
    /// When it is killed, if it has not ended by then.
    pub(crate) deadline: Instant,
    /// Ends it early.
    pub(crate) stop: &'a CancellationToken,
}

/// Why a call did not do what it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("helm is not there: {0}")]
    Missing(String),
    #[error("helm is not there: {} is too old, version 4 is needed", .0.display())]
    TooOld(PathBuf, Unmasked),
    #[error("helm could not be run: {0}")]
    NotRun(#[from] io::Error),
    /// In helm's own words, which may hold anything.
    #[error("helm refused")]
    Refused(Unmasked),
    #[error("it took longer than the {0:.1?} that there were")]
    Late(Duration),
    #[error("its answer has more than {} MiB", MAX_ANSWER / (1024 * 1024))]
    TooLong,
    #[error("it needed more than {} MiB of memory", .0 / (1024 * 1024))]
    Memory(u64),
    #[error("it was ended by signal {0}, which did not come from here; perhaps the machine had no memory left")]
    Killed(i32),
    #[error("it was stopped")]
    Stopped,
}

impl Error {
    /// The error with what may be said of helm's own words.
    pub(crate) fn render(&self, secrets: &Secrets) -> String {
        match self {
            Self::Refused(said) => secrets.render(said),
            Self::TooOld(_, said) => format!("{self}: {}", secrets.render(said)),
            error => error.to_string(),
        }
    }
}

/// How a process ended.
enum End {
    ByItself(ExitStatus),
    Late,
    Stopped,
}

impl Bounds<'_> {
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// When a program that has not ended by itself is asked to.
    fn asked(&self) -> Instant {
        self.deadline - (self.left() / GRACE_SHARE).min(GRACE)
    }

    /// The flag that says how long each of helm's own waits may take: less than it has, so that it ends by itself and says why.
    fn flag(&self) -> String {
        let left = self.asked().saturating_duration_since(Instant::now());
        let waits = left.saturating_sub(BESIDE_WAITS).min(left * 4 / 5).max(left / 4);
        format!("--timeout={}ms", waits.as_millis())
    }
}

impl Call<'_> {
    /// How an argument names one of the files: it is relative to the folder, in which helm is run.
    pub(crate) fn file(name: &str) -> String {
        format!("./{name}")
    }
}

impl Helm {
    /// The program at a path, or the one that `PATH` leads to when it is needed.
    pub(crate) fn new(program: Option<PathBuf>) -> Self {
        Self { program, places: Arc::new(Semaphore::new(places::ALL)), busy: InUse::default() }
    }

    /// The places of a new run on so many clusters.
    pub(crate) fn places(&self, clusters: usize) -> Places {
        Places::new(self.places.clone(), clusters)
    }

    /// Waits until nobody else of this process is at work on a chart on a cluster, in whatever namespace, and keeps others from it
    /// for as long as the answer lives. None if that takes until the deadline. Helm itself only keeps two from one release, and
    /// two releases of one chart would race for what it has for the whole cluster (case 345).
    pub(crate) async fn alone(&self, site: Site, deadline: Instant) -> Option<OwnedMutexGuard<()>> {
        let busy = self.busy.get(site, Busy::default);
        timeout_at(deadline, busy.lock_owned()).await.ok()
    }

    /// Runs helm to its end and gives what it wrote to its standard output.
    pub(crate) async fn call(&self, call: &Call<'_>, bounds: Bounds<'_>) -> Result<String, Error> {
        let About { chart, release, namespace, cluster } = call.about;
        let span = tracing::info_span!(
            "helm",
            { common::OTEL_NAME } = format_args!("helm {}", call.command),
            { common::OTEL_KIND } = "client",
            { common::OTEL_STATUS_CODE } = Empty,
            { common::ERROR_TYPE } = Empty,
            { attributes::CHART } = chart,
            { attributes::RELEASE } = attributes::said(release),
            { attributes::NAMESPACE } = attributes::said(namespace),
            { attributes::CLUSTER } = attributes::said(cluster),
        );
        let result = self.run(call, bounds).instrument(span.clone()).await;
        record(&span, &result);
        result
    }

    async fn run(&self, call: &Call<'_>, bounds: Bounds<'_>) -> Result<String, Error> {
        let given = bounds.left();
        let program = self.program()?;
        let folder = Folder::new(&call.files)?;
        let mut command = guard::command(&program);
        command
            .arg(call.command)
            .args(&call.arguments)
            .args(call.waits.then(|| bounds.flag()))
            .env_clear()
            .env("HOME", folder.path())
            .env("TMPDIR", folder.path())
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::from(folder.file(STDOUT)?))
            .stderr(Stdio::from(folder.file(STDERR)?))
            // What a terminal sends to us is not for it: how it ends is for us to say.
            .process_group(0)
            .kill_on_drop(true);
        let fetches = call.about.cluster.is_empty();
        let proxies = if fetches { PROXIES.as_slice() } else { &[] };
        command.envs(fetches.then_some(NO_PLAIN_HTTP));
        command.envs(TRUST.iter().chain(proxies).filter_map(|key| Some((key, env::var_os(key)?))));
        let mut child = command.spawn()?;
        for (resource, most) in [(Resource::Data, call.memory), (Resource::Fsize, MAX_FILE)] {
            let limit = Rlimit { current: Some(most), maximum: Some(most) };
            prlimit(pid(&child), resource, limit).map_err(io::Error::from)?;
        }
        let end = end(&mut child, bounds).await;
        let out = folder.open(STDOUT).and_then(|file| read(file, MAX_ANSWER + 1));
        let err = folder.open(STDERR).and_then(|file| read(file, MAX_SAID));
        folder.remove().await;
        let (out, err) = (out?, err?);
        match end? {
            End::Stopped => Err(Error::Stopped),
            End::Late => Err(Error::Late(given)),
            // What is cut off would be taken for what is not there.
            End::ByItself(_) if out.len() > MAX_ANSWER => Err(Error::TooLong),
            End::ByItself(status) if status.success() => Ok(out),
            End::ByItself(_) if ran_out_of_memory(&err) => Err(Error::Memory(call.memory)),
            End::ByItself(status) if let Some(signal) = status.signal() => Err(Error::Killed(signal)),
            // Helm 3 does not know what helm 4 must be told.
            End::ByItself(_) if said(&err).starts_with("unknown flag: ") => {
                Err(Error::TooOld(program, said(&err).into()))
            }
            End::ByItself(_) if fetches && err.contains("proxyconnect tcp: dial tcp 127.0.0.1:1:") => {
                Err(Error::Refused("it leads on to http://, which is not followed".into()))
            }
            End::ByItself(_) => Err(Error::Refused(said(&err).into())),
        }
    }

    /// Whether there is such a program.
    pub(crate) fn is_there(&self) -> bool {
        self.program().is_ok()
    }

    fn program(&self) -> Result<PathBuf, Error> {
        if let Some(program) = &self.program {
            let there = std::fs::metadata(program);
            return there
                .map(|_| program.clone())
                .map_err(|error| Error::Missing(format!("{}: {error}", program.display())));
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path).map(|folder| folder.join("helm")).find(|path| path.is_file());
        found.ok_or_else(|| Error::Missing("no program `helm` on PATH, and --helm was not given".into()))
    }
}

fn pid(child: &Child) -> Option<Pid> {
    // None once it has been waited for, which is when its number may belong to somebody else.
    child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
}

/// Waits until the child has ended: by itself, or because it was made to.
async fn end(child: &mut Child, bounds: Bounds<'_>) -> io::Result<End> {
    let (end, killed_at) = tokio::select! {
        status = child.wait() => return status.map(End::ByItself),
        () = sleep_until(bounds.asked()) => (End::Late, bounds.deadline),
        () = bounds.stop.cancelled() => (End::Stopped, Instant::now() + GRACE),
    };
    if let Some(pid) = pid(child) {
        kill_process(pid, Signal::TERM).ok();
    }
    if timeout_at(killed_at, child.wait()).await.is_err() {
        // With whatever it started, which would hold its outputs open.
        if let Some(pid) = pid(child) {
            kill_process_group(pid, Signal::KILL).ok();
        }
        child.kill().await?;
    }
    Ok(end)
}

/// Reads what was written to a file, to a bound.
fn read(file: File, most: usize) -> io::Result<String> {
    let mut kept = Vec::new();
    file.take(most as u64).read_to_end(&mut kept)?;
    Ok(String::from_utf8_lossy(&kept).into_owned())
}

/// What helm said was wrong, without the lines that only accompany it.
fn said(err: &str) -> &str {
    let said = err.split_once("Error: ").map_or(err, |(_, said)| said).trim();
    let said =
        ["INSTALLATION FAILED: ", "UPGRADE FAILED: "].iter().find_map(|mark| said.strip_prefix(mark)).unwrap_or(said);
    if said.is_empty() { "it ended without a word" } else { said }
}

fn ran_out_of_memory(err: &str) -> bool {
    err.starts_with("fatal error: ") && (err.contains("out of memory") || err.contains("cannot allocate memory"))
        || err.starts_with("runtime: out of memory")
}

fn record(span: &Span, result: &Result<String, Error>) {
    let Err(error) = result else { return };
    let kind = match error {
        Error::Missing(_) | Error::TooOld(..) => "missing",
        Error::NotRun(_) => "not_run",
        Error::Refused(_) => "refused",
        Error::Late(_) => "timeout",
        Error::TooLong => "answer_too_long",
        Error::Killed(_) => "killed",
        Error::Memory(_) => "memory",
        Error::Stopped => "stopped",
    };
    span.record(common::OTEL_STATUS_CODE, "error");
    span.record(common::ERROR_TYPE, kind);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program in helm's place: the shell, which runs a script.
    async fn run(script: &str, within: Duration, memory: u64) -> Result<String, Error> {
        let helm = Helm::new(Some("/bin/sh".into()));
        let stop = CancellationToken::new();
        let call = Call {
            command: "./script",
            arguments: vec!["first".into()],
            waits: true,
            files: vec![("script", script.to_owned())],
            memory,
            about: About::default(),
        };
        let bounds = Bounds { deadline: Instant::now() + within, stop: &stop };
        helm.call(&call, bounds).await
    }

    const LONG: Duration = Duration::from_secs(60);
    const ROOM: u64 = 256 * 1024 * 1024;

    #[tokio::test]
    async fn program_runs_in_a_private_folder_and_is_told_how_long_its_waits_may_take() {
        let said = run("echo $1; echo $2; stat -c %a .; stat -c %a script; pwd", LONG, ROOM).await.unwrap();
        let lines: Vec<_> = said.lines().collect();
        // The time that is kept for its end, and a part of the rest.
        let told: u64 = lines[1].strip_prefix("--timeout=").unwrap().strip_suffix("ms").unwrap().parse().unwrap();
        assert!(told < 44_001, "{told}");
        assert_eq!((lines[0], lines[2], lines[3]), ("first", "700", "600"));
        assert!(!std::path::Path::new(lines[4]).exists(), "the folder is gone");
    }

    #[tokio::test]
    async fn program_that_ends_when_asked_to_is_asked_before_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("asked");
        let script = format!("trap 'touch {}; exit 1' TERM; while :; do sleep 0.01; done", mark.display());
        assert!(matches!(run(&script, Duration::from_secs(2), ROOM).await, Err(Error::Late(_))));
        assert!(mark.exists());
    }

    #[tokio::test]
    async fn program_that_does_not_listen_is_killed_with_all_it_started() {
        let script = "trap '' TERM; sleep 3600";
        assert!(matches!(run(script, Duration::from_millis(400), ROOM).await, Err(Error::Late(_))));
    }

    #[tokio::test]
    async fn what_a_program_left_running_does_not_hold_up_its_end() {
        assert_eq!(run("sleep 30 & echo done", LONG, ROOM).await.unwrap(), "done\n");
    }

    #[tokio::test]
    async fn what_a_program_says_is_bounded_and_it_is_not_held_up() {
        let said = run("head -c 9000000 /dev/zero; exit 0", LONG, ROOM).await.unwrap();
        assert_eq!(said.len(), 9_000_000);
        // An answer that is cut off is none.
        let too_long = format!("head -c {} /dev/zero; exit 0", MAX_ANSWER + 1);
        assert!(matches!(run(&too_long, LONG, ROOM).await, Err(Error::TooLong)));
        assert!(run("exec cat /dev/zero", LONG, ROOM).await.is_err());
        let Err(Error::Refused(said)) = run("head -c 9000000 /dev/zero >&2; exit 1", LONG, ROOM).await else {
            panic!("refused")
        };
        assert_eq!(format!("{said:?}"), format!("Unmasked({MAX_SAID} bytes)"));
    }

    #[tokio::test]
    async fn refusal_is_what_helm_said_of_it() {
        let secrets = Secrets::of_values(["canary-7f1"]);
        let refused = async |script: &str| run(script, LONG, ROOM).await.unwrap_err().render(&secrets);
        let script =
            "echo 'level=ERROR msg=x' >&2; echo 'Error: INSTALLATION FAILED: canary-7f1 is no good' >&2; exit 1";
        assert_eq!(refused(script).await, "[redacted] is no good");
        assert_eq!(
            run(script, LONG, ROOM).await.unwrap_err().to_string(),
            "helm refused",
            "its words have one way out"
        );
        assert_eq!(refused("exit 3").await, "it ended without a word");
        let old = refused("echo 'Error: unknown flag: --server-side' >&2; exit 1").await;
        assert!(old.contains("version 4 is needed"), "{old}");
        // A chart's own words (case 350).
        let failing = "echo 'Error: INSTALLATION FAILED: execution error: unknown flag: --server-side' >&2; exit 1";
        assert_eq!(refused(failing).await, "execution error: unknown flag: --server-side");
        let killed = refused("kill -9 $$").await;
        assert!(killed.contains("ended by signal 9"), "{killed}");
    }

    #[tokio::test]
    async fn memory_is_bounded() {
        // Memory of the shell's own: what is between the quotes.
        let script = "x=$(head -c 50000000 /dev/zero | tr '\\0' x); echo ${#x}";
        assert_eq!(run(script, LONG, 1 << 30).await.unwrap(), "50000000\n");
        assert!(run(script, LONG, 16 << 20).await.is_err());
    }
}
