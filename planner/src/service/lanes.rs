//! Who may plan when: a bounded number at once, and a bounded number who wait.
//!
//! Planning is work for a processor: more at once than there are processors would only make each slower. Large requests
//! and small ones wait in lanes of their own, so that whoever asks for little is served while others are at work on much.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests of up to so many bytes are small. They are planned within a fraction of a second, whatever is in them.
const SMALL: usize = 256 << 10;
/// How many may wait in a lane. What they hold while they wait is drawn from the pool.
const WAITING: usize = 256;

/// The lanes.
pub(super) struct Lanes {
    small: Lane,
    large: Lane,
    /// How long somebody may wait.
    patience: Duration,
}

struct Lane {
    working: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Lanes {
    /// Lanes for a machine with so many processors.
    pub(super) fn new(processors: usize, patience: Duration) -> Self {
        let lane = || Lane { working: Arc::new(Semaphore::new(processors)), waiting: Semaphore::new(WAITING) };
        Self { small: lane(), large: lane(), patience }
    }

    /// Waits for a turn; none when too many wait already, or when the turn does not come in time.
    pub(super) async fn turn(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let lane = if bytes <= SMALL { &self.small } else { &self.large };
        let _waiting = lane.waiting.try_acquire().ok()?;
        let turn = Arc::clone(&lane.working).acquire_owned();
        tokio::time::timeout(self.patience, turn).await.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn small_requests_do_not_wait_for_large_ones() {
        let lanes = Lanes::new(1, Duration::from_secs(5));
        let large = lanes.turn(16 << 20).await.expect("a turn");
        assert!(lanes.turn(1_000).await.is_some());
        assert!(lanes.turn(16 << 20).await.is_none());
        drop(large);
        assert!(lanes.turn(16 << 20).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_behind_too_many_is_told_at_once() {
        let lanes = Lanes::new(1, Duration::from_secs(5));
        let _held = lanes.turn(1).await.expect("a turn");
        let mut waiting: Vec<_> = (0..WAITING).map(|_| Box::pin(lanes.turn(1))).collect();
        for turn in &mut waiting {
            assert!(futures_poll(turn).is_none());
        }
        let start = tokio::time::Instant::now();
        assert!(lanes.turn(1).await.is_none());
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::Pin::new(future).poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}
