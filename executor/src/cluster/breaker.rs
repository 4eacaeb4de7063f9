//! Stops dialling a cluster that does not answer, so that its work fails fast and the server is not hammered (case 90).

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::{answers::classify::Obstacle, mask::Unmasked};

/// Failures in a row after which dialling pauses.
const FAILURES: u32 = 3;
/// How long it pauses.
const PAUSE: Duration = Duration::from_secs(2);

/// Counts connections that could not be made.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    obstacle: Obstacle,
    why: Unmasked,
    next_try: Option<Instant>,
}

/// Dialling pauses. The text leaves out why, which may be anything: see [`Open::why`].
#[derive(Debug, thiserror::Error)]
#[error("no connection, {failures} times in a row")]
pub(crate) struct Open {
    obstacle: Obstacle,
    why: Unmasked,
    failures: u32,
}

impl Open {
    /// What stood in the way of the last connection.
    pub(crate) fn obstacle(&self) -> Obstacle {
        self.obstacle
    }

    /// Why the last connection could not be made.
    pub(crate) fn why(&self) -> Unmasked {
        self.why.clone().followed_by(&format!(" (seen {} times in a row)", self.failures))
    }
}

impl Breaker {
    /// Whether a connection may be tried now. After a pause one try is permitted, which begins the next pause.
    pub(crate) fn permit(&self) -> Result<(), Open> {
        self.permit_at(Instant::now())
    }

    fn permit_at(&self, now: Instant) -> Result<(), Open> {
        let mut state = self.state();
        if state.failures < FAILURES {
            return Ok(());
        }
        match state.next_try {
            Some(next_try) if now < next_try => {
                Err(Open { obstacle: state.obstacle, why: state.why.clone(), failures: state.failures })
            }
            _ => {
                state.next_try = Some(now + PAUSE);
                Ok(())
            }
        }
    }

    /// A connection was made.
    pub(crate) fn closed(&self) {
        *self.state() = State::default();
    }

    /// A connection could not be made.
    pub(crate) fn failed(&self, obstacle: Obstacle, why: Unmasked) {
        self.failed_at(obstacle, why, Instant::now());
    }

    fn failed_at(&self, obstacle: Obstacle, why: Unmasked, now: Instant) {
        let mut state = self.state();
        state.failures += 1;
        state.obstacle = obstacle;
        state.why = why;
        if state.failures >= FAILURES {
            state.next_try = Some(now + PAUSE);
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialling_pauses_after_failures_in_a_row_and_is_tried_once_a_pause() {
        let breaker = Breaker::default();
        let now = Instant::now();
        for _ in 0..FAILURES {
            assert!(breaker.permit_at(now).is_ok());
            breaker.failed_at(Obstacle::Refused, "refused".into(), now);
        }
        assert_eq!(breaker.permit_at(now).unwrap_err().obstacle(), Obstacle::Refused);
        let later = now + PAUSE;
        assert!(breaker.permit_at(later).is_ok());
        assert!(breaker.permit_at(later).is_err());
        breaker.closed();
        assert!(breaker.permit_at(later).is_ok());
    }
}
