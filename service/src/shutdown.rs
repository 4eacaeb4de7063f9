//! The two steps of going down: first drain, then abort.
//!
//! A [`Shutdown`] is a handle that many hold. The first signal starts the drain: no new work, what runs comes to an end
//! within the grace period. The second aborts: nothing is waited for any more.

use std::{io, sync::Arc};

use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Tells everyone who holds it that the program is to drain, and then that it is to stop at once.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    steps: Steps,
    // Ends the task that waits for signals when the last handle is gone.
    _signals: Option<Arc<AbortOnDrop>>,
}

#[derive(Debug, Clone, Default)]
struct Steps {
    drain: CancellationToken,
    abort: CancellationToken,
}

#[derive(Debug)]
struct AbortOnDrop(JoinHandle<()>);

impl Shutdown {
    /// Makes a handle that only [`drain`](Self::drain) and [`abort`](Self::abort) trigger, as tests want it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a handle that drains on the first SIGTERM or SIGINT and aborts on the second.
    ///
    /// # Errors
    ///
    /// When the process may not wait for signals.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn from_signals() -> io::Result<Self> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let steps = Steps::default();
        let task = tokio::spawn({
            let steps = steps.clone();
            async move {
                for step in [&steps.drain, &steps.abort] {
                    let name = tokio::select! {
                        _ = terminate.recv() => "SIGTERM",
                        _ = interrupt.recv() => "SIGINT",
                    };
                    tracing::info!(signal = name, "received a signal");
                    step.cancel();
                }
            }
        });
        Ok(Self { steps, _signals: Some(Arc::new(AbortOnDrop(task))) })
    }

    /// Starts the drain, as the first signal does.
    pub fn drain(&self) {
        self.steps.drain.cancel();
    }

    /// Gives up waiting, as the second signal does.
    pub fn abort(&self) {
        self.steps.drain.cancel();
        self.steps.abort.cancel();
    }

    /// Waits until the drain starts. Cancel-safe.
    pub async fn draining(&self) {
        self.steps.drain.cancelled().await;
    }

    /// Says whether the drain has started.
    pub fn is_draining(&self) -> bool {
        self.steps.drain.is_cancelled()
    }

    /// Waits until the program is to stop at once. Cancel-safe.
    pub async fn aborted(&self) {
        self.steps.abort.cancelled().await;
    }

    /// Makes a token that is cancelled when the drain starts, and whose own cancelling concerns nobody else.
    pub fn token(&self) -> CancellationToken {
        self.steps.drain.child_token()
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn abort_implies_drain() {
        let shutdown = Shutdown::new();
        let token = shutdown.token();
        assert!(!shutdown.is_draining());

        shutdown.abort();

        shutdown.draining().await;
        shutdown.aborted().await;
        assert!(token.is_cancelled());
    }

    #[tokio::test]
    async fn cancelling_a_child_token_drains_nobody() {
        let shutdown = Shutdown::new();
        shutdown.token().cancel();
        assert!(!shutdown.is_draining());
    }
}
