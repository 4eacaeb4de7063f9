//! Builds programs from the Go modules in `sandbox/go` and `k8s/helm`, once for each state of their files.

use std::{
    env,
    fs::{self, File},
    io::{self, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

use super::{process::Process, say};

/// How one program is built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe {
    /// The name of the program.
    pub(crate) name: &'static str,
    /// The folder under `sandbox/go` whose `go.mod` pins the version.
    pub(crate) module: &'static str,
    /// The Go package with the program's `main`.
    pub(crate) package: &'static str,
    /// Linker flags beside those that strip debug information.
    pub(crate) ldflags: &'static str,
    /// How long it takes on two cores with an empty Go cache.
    pub(crate) cold_seconds: u64,
}

impl Recipe {
    /// Returns the folder that holds the module, where `go` is run.
    fn source(&self) -> PathBuf {
        module_folder(self.module)
    }

    /// Returns where the program is kept. What decides the outcome of the build is in the folder's name; the package is
    /// named by `go.mod`'s line `tool`.
    fn target(&self) -> anyhow::Result<PathBuf> {
        let mut hash = Sha256::new();
        for path in files(&self.source())? {
            hash.update(fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?);
        }
        hash.update(self.ldflags);
        let key = hex::encode(&hash.finalize()[..6]);
        Ok(bin_folder().join(format!("{}-{key}", self.module)).join(self.name))
    }
}

/// Returns the files below a folder, in order. Most modules have but `go.mod` and `go.sum`, the adapter has its source too.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let context = || format!("failed to read {}", folder.display());
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>).with_context(context)?;
    let mut files = Vec::with_capacity(entries.len());
    for entry in entries {
        match entry.file_type().with_context(context)?.is_dir() {
            true => files.append(&mut self::files(&entry.path())?),
            false => files.push(entry.path()),
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the folder of one of the pinned Go modules. That of helm lies with the images, which have the same helm.
pub(crate) fn module_folder(module: &str) -> PathBuf {
    let folder = if module == "helm" { "../k8s" } else { "sandbox/go" };
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(module)
}

/// Returns cargo's target folder, which is the only place of the working copy that we write to.
pub fn target_folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"));
    // Joining an absolute path replaces the root, as wished.
    root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

fn bin_folder() -> PathBuf {
    target_folder().join("sandbox/bin")
}

/// Returns the `go` command, prepared to run in one of the pinned modules.
pub(crate) fn go(module: &str) -> Command {
    let mut command = Command::new("go");
    command.current_dir(module_folder(module)).env("CGO_ENABLED", "0").env("GOWORK", "off").env("GOFLAGS", "");
    command
}

/// Returns where the programs are, having built those that were not there.
pub(crate) fn build(recipes: &[Recipe]) -> anyhow::Result<Vec<PathBuf>> {
    let targets = recipes.iter().map(Recipe::target).collect::<anyhow::Result<Vec<_>>>()?;
    if targets.iter().all(|target| target.is_file()) {
        return Ok(targets);
    }
    let go_version = require_go(recipes, &targets)?;
    let _lock = lock()?;
    // Looked at again: whoever held the lock has most likely built the very same programs.
    let todo: Vec<(&Recipe, &PathBuf)> = recipes.iter().zip(&targets).filter(|(_, target)| !target.is_file()).collect();
    if todo.len() > 1 {
        let names: Vec<&str> = todo.iter().map(|(recipe, _)| recipe.name).collect();
        let seconds = todo.iter().map(|(recipe, _)| recipe.cold_seconds).sum();
        say(&format!(
            "sandbox: building {} with {go_version}, once; about {} on two cores if Go has none of it yet",
            names.join(", "),
            minutes(seconds),
        ));
    }
    for (index, (recipe, target)) in todo.iter().enumerate() {
        build_one(recipe, target, &format!("[{}/{}]", index + 1, todo.len()))?;
    }
    Ok(targets)
}

fn require_go(recipes: &[Recipe], targets: &[PathBuf]) -> anyhow::Result<String> {
    let output = Command::new("go").arg("version").stdin(Stdio::null()).output();
    if let Ok(output) = output
        && output.status.success()
    {
        let text = String::from_utf8_lossy(&output.stdout);
        return Ok(text.split_whitespace().nth(2).unwrap_or("go").to_owned());
    }
    let missing: Vec<&str> =
        recipes.iter().zip(targets).filter(|(_, t)| !t.is_file()).map(|(recipe, _)| recipe.name).collect();
    bail!(
        "the sandbox needs {}, found neither in KUBEBUILDER_ASSETS nor on PATH in a version that will do: install Go \
         1.26 or newer and it builds them, or set KUBEBUILDER_ASSETS to a folder that has them",
        missing.join(", "),
    )
}

/// Waits until no other process builds. The lock is the kernel's, so it ends with its holder, however that ends.
fn lock() -> anyhow::Result<File> {
    let folder = bin_folder();
    fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let file = File::create(folder.join(".lock")).context("failed to create the lock of the tools")?;
    if file.try_lock().is_err() {
        say("sandbox: another process is building tools, waiting for it");
        file.lock().context("failed to wait for the lock of the tools")?;
    }
    Ok(file)
}

fn build_one(recipe: &Recipe, target: &Path, place: &str) -> anyhow::Result<()> {
    let folder = target.parent().context("no folder to build into")?;
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let unfinished = target.with_extension("unfinished");
    let log = target.with_extension("log");
    fs::write(&log, "").with_context(|| format!("failed to write {}", log.display()))?;

    let mut command = go(recipe.module);
    command
        .args(["build", "-trimpath", "-buildvcs=false", "-ldflags"])
        .arg(format!("-s -w {}", recipe.ldflags).trim_end())
        .arg("-o")
        .arg(&unfinished)
        .arg(recipe.package);
    let mut build = Process::start(&format!("go build {}", recipe.name), &command, &log)?;
    let mut progress =
        Progress::start(format!("sandbox: {place} {} (about {} if cold)", recipe.name, minutes(recipe.cold_seconds)));
    let status = loop {
        if let Some(status) = build.exited() {
            break status;
        }
        progress.tick();
        thread::sleep(Duration::from_millis(100));
    };
    progress.finish(if status.success() { "built" } else { "failed" });
    if !status.success() {
        bail!("failed to build {} from {}:\n{}", recipe.name, recipe.source().display(), build.log_tail());
    }
    // Under its own name only when it is whole.
    fs::rename(&unfinished, target).with_context(|| format!("failed to put {} in place", target.display()))?;
    fs::remove_file(&log).ok();
    Ok(())
}

/// Tells how long something has been going on: in place on a terminal, every half minute elsewhere.
struct Progress {
    text: String,
    started: Instant,
    said: Instant,
    terminal: bool,
}

impl Progress {
    fn start(text: String) -> Self {
        let now = Instant::now();
        let progress = Self { text, started: now, said: now, terminal: io::stderr().is_terminal() };
        if !progress.terminal {
            say(&progress.text);
        }
        progress
    }

    fn tick(&mut self) {
        let every = Duration::from_secs(if self.terminal { 1 } else { 30 });
        if self.said.elapsed() < every {
            return;
        }
        self.said = Instant::now();
        let elapsed = minutes(self.started.elapsed().as_secs());
        if self.terminal {
            write!(io::stderr(), "\r{}: {elapsed} \x1b[K", self.text).ok();
        } else {
            say(&format!("{}: {elapsed} so far", self.text));
        }
    }

    fn finish(self, how: &str) {
        let back = if self.terminal { "\r" } else { "" };
        let clear = if self.terminal { "\x1b[K" } else { "" };
        say(&format!("{back}{}: {how} in {}{clear}", self.text, minutes(self.started.elapsed().as_secs())));
    }
}

fn minutes(seconds: u64) -> String {
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, seconds) => format!("{minutes} min {seconds:02} s"),
    }
}
