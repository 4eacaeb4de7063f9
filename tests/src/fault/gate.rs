//! Holds requests back until a test lets them go.

use std::sync::Arc;

use tokio::sync::watch;

/// A gate that is shut until it is [opened](Self::open). Cheap to clone; all clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    /// Makes a gate that is shut.
    pub fn shut() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Lets everything through that waits, and all that will come.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Waits until the gate is open.
    pub(super) async fn passed(&self) {
        let mut open = self.0.subscribe();
        // We hold the sender, so it cannot be gone.
        open.wait_for(|open| *open).await.ok();
    }
}
