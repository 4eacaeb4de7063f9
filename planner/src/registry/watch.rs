//! The planner's registry while it runs: read again when the file changes.

use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use super::Registry;
use super::file::{self, Error, Stamp};

/// A registry that may be replaced while others look at it.
#[derive(Debug, Clone)]
pub struct Shared(Arc<RwLock<Arc<Registry>>>);

impl Shared {
    /// Shares a registry.
    pub fn new(registry: Registry) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(registry))))
    }

    /// The registry as it is now. A plan is made with one version from beginning to end.
    pub fn now(&self) -> Arc<Registry> {
        Arc::clone(&self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn replace(&self, registry: Registry) {
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(registry);
    }
}

/// How often the file is looked at. Mounted files give no notice that could be relied on, and a look costs microseconds.
const EVERY: Duration = Duration::from_secs(1);

/// A registry and the file it comes from.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    shared: Shared,
    seen: Option<Stamp>,
}

impl Watch {
    /// Reads the registry for the first time; a broken one is an error here.
    pub fn start(path: PathBuf) -> Result<Self, Error> {
        // Before the content, so that a change in between is seen as one.
        let seen = file::stamp(&path)?;
        let read = file::read(&path)?;
        log(&path, &read);
        Ok(Self { path, shared: Shared::new(read.registry), seen: Some(seen) })
    }

    /// The registry, to be shared.
    pub fn shared(&self) -> Shared {
        self.shared.clone()
    }

    /// Looks at the file from time to time, for as long as it is polled. A broken new version is refused with a log line,
    /// once, and the old one stays.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let looked = tokio::task::spawn_blocking(move || {
                self.look();
                self
            });
            match looked.await {
                Ok(watch) => self = watch,
                // The runtime is going down, or the look panicked; the first needs no word and the second has had it.
                Err(_) => return,
            }
        }
    }

    /// Reads the registry again if it changed.
    pub fn look(&mut self) {
        let stamp = match file::stamp(&self.path) {
            Ok(stamp) if self.seen.as_ref() == Some(&stamp) => return,
            Ok(stamp) => stamp,
            Err(error) => {
                if self.seen.take().is_some() {
                    refused(&error);
                }
                return;
            }
        };
        // Before the content is read, so that a change in between is seen as one.
        self.seen = Some(stamp);
        match file::read(&self.path) {
            Ok(read) => {
                log(&self.path, &read);
                self.shared.replace(read.registry);
            }
            Err(error) => refused(&error),
        }
    }
}

fn refused(error: &Error) {
    tracing::warn!(error = %chain(error), "new version of the registry refused; the old one stays");
}

fn log(path: &std::path::Path, read: &file::Read) {
    let (registrants, models) = read.registry.size();
    tracing::info!(path = %path.display(), registrants, models, "registry read");
    if !read.skipped.is_empty() {
        let files = read.skipped.len();
        let first = read.skipped[0].display().to_string();
        tracing::warn!(files, first, "files in the registry folder hold nothing of a registry");
    }
}

/// An error and what caused it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
