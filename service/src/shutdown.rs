//! The steps of going down: first drain, then a last call, then the end.
//!
//! A [`Shutdown`] is a handle that many hold. The first signal starts the drain: no new work, what runs comes to an end
//! within the grace period. Shortly before that is over comes the last call: whoever still has something to say says it now.
//! The second signal aborts: nothing is waited for any more but what is said at the last call, which it makes too.

use std::{
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// What an abort leaves for what is said at the last call.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(400);

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
    last_call: CancellationToken,
    abort: CancellationToken,
    /// When whatever is left is cut off. Known once the last call was made.
    end: Arc<OnceLock<Instant>>,
}

#[derive(Debug)]
struct AbortOnDrop(JoinHandle<()>);

impl Shutdown {
    /// Makes a handle that only [`drain`](Self::drain) and [`abort`](Self::abort) trigger, as tests want it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a handle that drains on the first SIGTERM or SIGINT and aborts on the second. SIGHUP does nothing: what a program reads
    /// again it reads when it changes.
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
        let mut hangup = signal(SignalKind::hangup())?;
        let steps = Steps::default();
        let task = tokio::spawn({
            let steps = steps.clone();
            async move {
                for step in [Steps::drain, Steps::abort] {
                    let name = loop {
                        tokio::select! {
                            _ = terminate.recv() => break "SIGTERM",
                            _ = interrupt.recv() => break "SIGINT",
                            // Its default would end the process without a drain (case 331).
                            Some(()) = hangup.recv() => tracing::info!(
                                signal = "SIGHUP",
                                "nothing to be done: certificates and registry are read again whenever they change"
                            ),
                        }
                    };
                    tracing::info!(signal = name, "received a signal");
                    step(&steps);
                }
            }
        });
        Ok(Self { steps, _signals: Some(Arc::new(AbortOnDrop(task))) })
    }

    /// Starts the drain, as the first signal does.
    pub fn drain(&self) {
        self.steps.drain();
    }

    /// Gives up waiting, as the second signal does.
    pub fn abort(&self) {
        self.steps.abort();
    }

    /// Makes the last call: so much time is left until everything is cut off.
    pub(crate) fn call_last(&self, left: Duration) {
        self.steps.call_last(left);
    }

    /// Waits until the drain starts. Cancel-safe.
    pub async fn draining(&self) {
        self.steps.drain.cancelled().await;
    }

    /// Says whether the drain has started.
    pub fn is_draining(&self) -> bool {
        self.steps.drain.is_cancelled()
    }

    /// Waits for the last call: whatever has not ended is not waited for any longer, and who has something to say says it now.
    /// Cancel-safe.
    pub async fn last_call(&self) {
        self.steps.last_call.cancelled().await;
    }

    /// How much time is left until everything is cut off; none before the last call.
    pub fn time_left(&self) -> Option<Duration> {
        self.steps.end.get().map(|end| end.saturating_duration_since(Instant::now()))
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

impl Steps {
    fn drain(&self) {
        self.drain.cancel();
    }

    fn call_last(&self, left: Duration) {
        self.end.get_or_init(|| Instant::now() + left);
        self.last_call.cancel();
    }

    fn abort(&self) {
        self.drain();
        // Before the last call: who comes to an end because of that must not look like somebody who would have anyway.
        self.abort.cancel();
        self.call_last(LAST_WORDS);
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
        shutdown.last_call().await;
        shutdown.aborted().await;
        assert!(token.is_cancelled());
        assert!(shutdown.time_left().is_some_and(|left| left <= LAST_WORDS));
    }

    #[tokio::test]
    async fn cancelling_a_child_token_drains_nobody() {
        let shutdown = Shutdown::new();
        shutdown.token().cancel();
        assert!(!shutdown.is_draining());
    }
}
