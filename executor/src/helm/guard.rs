//! Ends helm with the executor, however that ends (case 348).
//!
//! After a `kill -9` nobody is left to end a child. Linux does it, if the child asked for that by `PR_SET_PDEATHSIG`; it can only
//! ask for itself, after the fork and before helm takes its place, and there the standard library lets only unsafe code run. So
//! the executor's program is started once more, with a first argument of its own. That process asks, and then becomes helm under
//! the same process id.
//!
//! Linux watches the thread that forked, not its process: helm must be started from a thread that lives as long as the runtime,
//! such as the runtime's own workers.

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, ExitCode, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// The first argument of a process that is to become helm. What follows: the executor's process id, helm's path, its arguments.
const ARGUMENT: &str = "become-helm";
/// This very program, also when its file has been replaced meanwhile.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Whether this process's program has [`become_helm`] in its `main`. A test that runs the executor within itself has not.
static HAS_GUARD: AtomicBool = AtomicBool::new(false);

/// Becomes helm, if this process was started for that; then it only returns if it cannot. To be called first in `main`.
pub fn become_helm() -> Option<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != ARGUMENT) {
        HAS_GUARD.store(true, Ordering::Relaxed);
        return None;
    }
    let parent = arguments.next().and_then(|text| text.to_str()?.parse().ok());
    let program = arguments.next().unwrap_or_default();
    // Asked to end and not killed: helm then marks the release as failed (case 97).
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        eprintln!("Error: helm cannot be bound to the executor's life: {error}");
        return Some(ExitCode::FAILURE);
    }
    // An executor that was gone before is not told of.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != parent {
        return Some(ExitCode::FAILURE);
    }
    let error = Command::new(&program).args(arguments).exec();
    eprintln!("Error: {} cannot be run: {error}", Path::new(&program).display());
    Some(ExitCode::FAILURE)
}

/// What starts helm, with the arguments that come before helm's own.
pub(super) fn command(program: &Path) -> tokio::process::Command {
    if !HAS_GUARD.load(Ordering::Relaxed) {
        return tokio::process::Command::new(program);
    }
    let mut command = tokio::process::Command::new(THIS_PROGRAM);
    let parent = OsString::from(std::process::id().to_string());
    command.arg(ARGUMENT).arg(parent).arg(program).stdin(Stdio::null());
    command
}
