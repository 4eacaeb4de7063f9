//! Until when a run may write to a cluster: for as long as it can prove that it holds its lock there (D24).
//!
//! The lock is a Lease, which others may take over once its term is over. Whoever holds it knows how long that is at least:
//! its term from the moment when the last renewal that was answered was *sent*. After that, nothing is sent that writes, even if
//! nobody had the time to stop the run: a process that was paused for a minute goes on where it was.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// The time since the machine was started, sleep included: a clock that nobody sets, and that goes on while a machine sleeps.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Open until some moment, and shut for ever once that has come.
#[derive(Debug)]
pub(crate) struct Fence {
    /// By the clock above, in microseconds.
    until: AtomicU64,
}

impl Fence {
    /// Open until `until`.
    pub(crate) fn open_until(until: Duration) -> Self {
        Self { until: AtomicU64::new(micros(until)) }
    }

    /// How much longer it is open at `now`; none when it is shut.
    pub(crate) fn left(&self, now: Duration) -> Option<Duration> {
        let left = self.until.load(Ordering::Acquire).checked_sub(micros(now))?;
        (left > 0).then_some(Duration::from_micros(left))
    }

    /// Keeps it open until `until`. Once it was shut it stays so: others may have written since. Says whether it is open.
    pub(crate) fn extend(&self, until: Duration, now: Duration) -> bool {
        let extend = |known: u64| (known > micros(now)).then_some(known.max(micros(until)));
        self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, extend).is_ok()
    }

    /// Shuts it for ever.
    pub(crate) fn shut(&self) {
        self.until.store(0, Ordering::Release);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn clock_goes_forward() {
        let before = now();
        assert!(before > Duration::ZERO && now() >= before);
    }

    proptest! {
        /// Whatever comes when, it is open only before the last moment that it was extended to in time, and never again after.
        #[test]
        fn fence_that_was_shut_stays_shut(
            events in prop::collection::vec((0_u64..40, prop::option::of(0_u64..40)), 0..20),
        ) {
            let second = Duration::from_secs;
            let mut now = second(100);
            let mut until = second(120);
            let fence = Fence::open_until(until);
            let mut shut = false;
            for (passes, extension) in events {
                now += second(passes);
                shut |= now >= until;
                prop_assert_eq!(fence.left(now), (!shut).then(|| until - now));
                match extension {
                    Some(0) => {
                        fence.shut();
                        shut = true;
                    }
                    Some(more) => {
                        prop_assert_eq!(fence.extend(now + second(more), now), !shut);
                        until = until.max(now + second(more));
                    }
                    None => {}
                }
            }
        }
    }
}
