//! Temporary folders that are gone after the run, even after one that was killed.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::TempDir;

use super::guardian::Guardian;

/// Set to anything, this variable keeps the folders (logs, certificates, audit logs) and prints where they are.
const KEEP: &str = "SWITCHYARD_SANDBOX_KEEP";

/// A temporary folder that is removed with this value, or when this process is gone.
#[derive(Debug)]
pub struct Folder(TempDir);

impl Folder {
    /// Creates a folder whose name tells what it is for.
    pub fn new(purpose: &str) -> anyhow::Result<Self> {
        let mut dir = tempfile::Builder::new()
            .prefix(&format!("switchyard-{purpose}-"))
            .tempdir()
            .context("failed to create a temporary folder")?;
        if std::env::var_os(KEEP).is_some() {
            dir.disable_cleanup(true);
            super::say(&format!("sandbox: keeping {}", dir.path().display()));
        } else {
            Guardian::get()?.adopt_dir(dir.path())?;
        }
        Ok(Self(dir))
    }

    /// Returns where the folder is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file into the folder, readable by this user only, and returns its path.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
        let path = self.0.path().join(name);
        let mut options = std::fs::File::options();
        options.create(true).write(true).truncate(true).mode(0o600);
        options
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("failed to write {}", path.display()))?;
        Ok(path)
    }
}
