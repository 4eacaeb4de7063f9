//! One child process: started with a log file of its own, watched, and ended with certainty.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use wait4::Wait4 as _;

use super::guardian::Guardian;

/// How often something is looked at that cannot be waited for.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// How a process ended, and what it had used by then. The kernel's word on memory is left out: it begins with what the parent
/// held.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// Processor time, its own and the kernel's for it.
    pub cpu: Duration,
}

/// A child process that leads a process group of its own and ends with this value, or with this process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    status: Option<ExitStatus>,
}

impl Process {
    /// Starts `command` with standard output and error going to the file `log`.
    ///
    /// The process that is started first waits for a word from us and only then becomes `command`. That word comes
    /// after the guardian knows its id, so there is no moment in which we can die and leave it running.
    pub fn start(name: &str, command: &Command, log: &Path) -> anyhow::Result<Self> {
        let guardian = Guardian::get()?;
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("failed to create the log of {name}, {}", log.display()))?;
        let mut gate = Command::new("/bin/sh");
        gate.args(["-c", r#"read -r go && exec "$@" </dev/null"#, name])
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => gate.env(key, value),
                None => gate.env_remove(key),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            gate.current_dir(dir);
        }
        let mut child = gate.spawn().with_context(|| format!("failed to start {name}"))?;
        let stdin = child.stdin.take();
        let process = Self { name: name.to_owned(), child, log: log.to_owned(), status: None };
        guardian.adopt(process.id())?;
        stdin.context("no standard input")?.write_all(b"go\n").with_context(|| format!("failed to start {name}"))?;
        Ok(process)
    }

    /// Returns the process id, which is also the id of its process group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the name given at the start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the file that standard output and error go to.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Returns everything the process has written so far.
    pub fn log(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Returns the last lines of the log, indented, for error messages.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(20);
        lines[from..].iter().map(|line| format!("  | {line}\n")).collect()
    }

    /// Returns the exit status if the process has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        if self.status.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.ended(status);
        }
        self.status
    }

    /// Fails with the tail of the log if the process has ended.
    pub fn check_running(&mut self) -> anyhow::Result<()> {
        match self.exited() {
            Some(status) => bail!("{} ended ({}):\n{}", self.name, describe(status), self.log_tail()),
            None => Ok(()),
        }
    }

    /// Waits until the process has ended by itself, at most `limit`.
    pub async fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.exited() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until the process has ended by itself and tells what it used. After `limit` it is killed.
    pub async fn ended_by_itself(mut self, limit: Duration) -> anyhow::Result<Ended> {
        let (name, pid) = (self.name.clone(), self.pid());
        let waiting = tokio::task::spawn_blocking(move || {
            // The kernel tells what a process used to whoever collects it, and only then.
            let usage = self.child.wait4().with_context(|| format!("failed to wait for {}", self.name))?;
            self.ended(usage.status);
            let cpu = usage.rusage.utime + usage.rusage.stime;
            anyhow::Ok((Ended { status: usage.status, cpu }, self))
        });
        tokio::pin!(waiting);
        let (ended, process) = match tokio::time::timeout(limit, &mut waiting).await {
            Ok(ended) => ended??,
            Err(_) => {
                kill_process_group(pid, Signal::KILL).ok();
                waiting.await??;
                bail!("{name} was killed: it did not end within {limit:?}");
            }
        };
        if !ended.status.success() {
            bail!("{name} ended ({}):\n{}", describe(ended.status), process.log_tail());
        }
        Ok(ended)
    }

    /// Sends a signal to the process alone, not to its group.
    pub fn signal(&mut self, signal: Signal) {
        // After the end the number may belong to someone else.
        if self.exited().is_none() {
            kill_process(self.pid(), signal).ok();
        }
    }

    /// Asks the process to end (SIGTERM) and kills it if it has not done so within `grace`.
    pub async fn stop(&mut self, grace: Duration) -> ExitStatus {
        self.signal(Signal::TERM);
        match self.wait(grace).await {
            Some(status) => status,
            None => self.kill(),
        }
    }

    /// Kills the whole process group and waits for the end.
    pub fn kill(&mut self) -> ExitStatus {
        if let Some(status) = self.exited() {
            return status;
        }
        kill_process_group(self.pid(), Signal::KILL).ok();
        let status = self.child.wait().unwrap_or_else(|_| ExitStatus::from_raw(Signal::KILL.as_raw()));
        self.ended(status);
        status
    }

    fn ended(&mut self, status: ExitStatus) {
        self.status = Some(status);
        if let Ok(guardian) = Guardian::get() {
            guardian.forget(self.child.id());
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".to_owned(),
    }
}

/// Tells whether a process with this id exists and is more than a name that nobody has collected yet.
pub fn is_alive(pid: u32) -> bool {
    // The state is the first field after the program's name, which is in brackets and may itself hold brackets.
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| stat.rsplit_once(") ").map(|(_, rest)| !rest.starts_with(['Z', 'X'])))
        .unwrap_or(false)
}
