//! Private folders, and those that a killed executor left behind (case 348).
//!
//! Each is locked with `flock` for as long as it is in use. The kernel lets go of the lock however the process ends, so a folder
//! whose lock can be had is nobody's. That also holds for containers that share a volume, where process ids say nothing.

use std::{
    env,
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use rustix::{fs::OFlags, process::geteuid};
use tempfile::TempDir;

/// What the names of all such folders begin with.
const PREFIX: &str = "switchyard-private-";
/// Tries at a folder that another process sweeps away in the moment in which it is made.
const TRIES: usize = 8;

/// A folder that nobody else can look into. It is removed with the value.
pub(crate) struct Folder {
    folder: TempDir,
    /// Held, never read.
    _lock: File,
}

impl Folder {
    /// Makes one below the folder for temporary files, with these files in it, by their names.
    pub(crate) fn new(files: &[(&'static str, String)]) -> io::Result<Self> {
        for _ in 0..TRIES {
            let mode = Permissions::from_mode(0o700);
            let folder = tempfile::Builder::new().prefix(PREFIX).permissions(mode).tempdir()?;
            let Some(lock) = lock(folder.path())? else { continue };
            let new = Self { folder, _lock: lock };
            for (name, text) in files {
                new.file(name)?.write_all(text.as_bytes())?;
            }
            return Ok(new);
        }
        Err(io::Error::other("the private folders are swept away as fast as they are made"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a file in it.
    pub(super) fn file(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.path().join(name))
    }

    /// Opens a file in it for reading.
    pub(super) fn open(&self, name: &str) -> io::Result<File> {
        File::open(self.path().join(name))
    }

    /// Removes it, off the runtime: helm's caches are many files. Dropping does the same where a call is cut off.
    pub(super) async fn remove(self) {
        let removed = tokio::task::spawn_blocking(move || self.folder.close()).await;
        if !matches!(removed, Ok(Ok(()))) {
            tracing::error!("a folder of helm's could not be removed; it may hold credentials");
        }
    }
}

/// Locks a folder that was just made; none if a sweep was quicker.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    let lock = File::open(folder)?;
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(None),
        // Where folders cannot be locked, they cannot be swept either.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    // The sweep may have been over before the lock was had.
    let is_there = fs::metadata(folder).is_ok_and(|there| lock.metadata().is_ok_and(|ours| ours.ino() == there.ino()));
    Ok(is_there.then_some(lock))
}

/// Removes the folders of executors that are no longer there.
pub(crate) fn sweep() {
    let Ok(entries) = fs::read_dir(env::temp_dir()) else { return };
    let ours = entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    let swept = ours.filter(|entry| sweep_one(&entry.path()).is_ok_and(|swept| swept)).count();
    if swept > 0 {
        tracing::warn!(swept, "removed private folders of helm's that an executor left behind when it was killed");
    }
}

/// Removes a folder, if it is ours and nobody has it locked.
fn sweep_one(path: &Path) -> io::Result<bool> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let lock = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let about = lock.metadata()?;
    if about.uid() != geteuid().as_raw() || about.mode() & 0o777 != 0o700 || lock.try_lock().is_err() {
        return Ok(false);
    }
    // The lock is held until it is gone, so that nobody takes it for their new one.
    fs::remove_dir_all(path).map(|()| true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn folder_in_use_is_left_and_one_of_a_dead_process_is_removed() {
        let used = Folder::new(&[("kubeconfig", "secret".into())]).unwrap();
        assert!(!sweep_one(used.path()).unwrap());
        assert_eq!(fs::read_to_string(used.path().join("kubeconfig")).unwrap(), "secret");
        // As the kernel does it for a process that is gone.
        let Folder { folder, _lock: lock } = used;
        drop(lock);
        assert!(sweep_one(folder.path()).unwrap());
        assert!(!folder.path().exists());
    }

    #[test]
    fn folder_of_somebody_else_is_left() {
        let place = tempfile::tempdir().unwrap();
        let open = place.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        assert!(!sweep_one(&open).unwrap());
        let target = place.path().join("target");
        fs::create_dir(&target).unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o700)).unwrap();
        let link = place.path().join("link");
        symlink(&target, &link).unwrap();
        sweep_one(&link).unwrap_err();
        assert!(open.exists() && target.exists());
    }
}
