//! A process of its own that cleans up when this one is gone.
//!
//! Statics are never dropped and `kill -9` runs no code, so neither may be relied upon to end the children of a test
//! run. `PR_SET_PDEATHSIG` would need `unsafe` (`pre_exec`), is lost when the *thread* that started the child ends,
//! and removes no folders. A pipe has none of these problems: the kernel closes our end whatever happens to us, and
//! the guardian (a shell script, so it needs no binary of ours) sees end of file.

use std::{
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{ChildStdin, Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
};

use anyhow::Context as _;

/// The guardian of this process, started with the first thing to guard.
pub(crate) struct Guardian(Mutex<ChildStdin>);

impl Guardian {
    /// Returns the one guardian of this process.
    pub(crate) fn get() -> anyhow::Result<&'static Self> {
        static GUARDIAN: OnceLock<Result<Guardian, String>> = OnceLock::new();
        GUARDIAN
            .get_or_init(|| Self::start().map_err(|error| format!("{error:#}")))
            .as_ref()
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    fn start() -> anyhow::Result<Self> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", include_str!("guardian.sh"), "switchyard-guardian"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            // Out of our process group: what kills the group (a terminal, a CI runner) must not kill the guardian.
            .process_group(0)
            .spawn()
            .context("failed to start /bin/sh, which cleans up after the sandbox")?;
        let stdin = child.stdin.take().context("the guardian has no standard input")?;
        Ok(Self(Mutex::new(stdin)))
    }

    /// Has the process group `pid` killed when this process is gone.
    pub(crate) fn adopt(&self, pid: u32) -> anyhow::Result<()> {
        self.tell(&format!("+pid {pid}"))
    }

    /// Takes back [`adopt`](Self::adopt), because the process has ended and its number may be given to another.
    pub(crate) fn forget(&self, pid: u32) {
        // Without a guardian there is nothing to take back.
        self.tell(&format!("-pid {pid}")).ok();
    }

    /// Has the folder removed when this process is gone; a folder that is gone by then is fine.
    pub(crate) fn adopt_dir(&self, dir: &Path) -> anyhow::Result<()> {
        self.tell(&format!("+dir {}", dir.display()))
    }

    // One write for a line: shorter than PIPE_BUF, so the guardian sees all of it or nothing.
    fn tell(&self, line: &str) -> anyhow::Result<()> {
        let mut stdin = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stdin.write_all(format!("{line}\n").as_bytes()).context("the guardian of the sandbox is gone")
    }
}
