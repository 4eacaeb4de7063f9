//! How much memory planning one request may take, and all requests together.
//!
//! Whatever planning makes of a request (values, copies that aliases and references ask for, edges, objects, the answer) is
//! drawn from the request's [`Budget`] before it is made. What a budget counts are estimates that err on the high side; they
//! need not be exact, because they are compared with a limit that leaves room. The texts of problems and warnings have
//! limits of their own: beyond them they are counted and not told.
//!
//! A budget that is spent stays spent: whoever meets it ends what it does, whatever the result, and [`crate::plan`] answers
//! with the reason. The same way ends planning for which nobody waits any more. There is no clock here: whoever runs out of
//! patience calls [`Budget::stop`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

/// What every request may take, however small it is.
const BASE: u64 = 60_000_000;
/// What a request may take for each of its bytes.
const PER_BYTE: u64 = 28;
/// How much is drawn from the pool at once.
const CHUNK: u64 = 64 << 10;

/// Why a budget gives no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Spent {
    /// The request needs more than a request of its size may take.
    #[error("planning would take more memory than a request of this size may")]
    Request,
    /// Other requests hold what it needs; it may be served later.
    #[error("other requests take the memory that planning needs")]
    Pool,
    /// It was told to stop.
    #[error("planning was stopped")]
    Stopped,
}

/// What all requests together may take.
#[derive(Debug)]
pub struct Pool {
    bytes: u64,
    taken: AtomicU64,
}

impl Pool {
    /// A pool of so many bytes.
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { bytes, taken: AtomicU64::new(0) })
    }

    /// Takes `more` for a request that holds `held`. No request may hold more than it leaves to all others: however many
    /// ask for much, whoever asks for little finds room.
    fn take(&self, held: u64, more: u64) -> bool {
        let taken = self.taken.fetch_update(Relaxed, Relaxed, |taken| {
            let taken = taken.checked_add(more)?;
            let left = self.bytes.checked_sub(taken)?;
            (held + more <= left).then_some(taken)
        });
        taken.is_ok()
    }
}

/// What one request may take.
#[derive(Debug)]
pub struct Budget {
    pool: Option<Arc<Pool>>,
    limit: AtomicU64,
    /// What has been spent. Never above `drawn`, unless the budget is spent.
    used: AtomicU64,
    /// What was drawn from the pool.
    drawn: AtomicU64,
    /// What aliases and references added to the document.
    expanded: AtomicU64,
    stop: AtomicBool,
    /// 0, or why it gives no more.
    spent: AtomicU8,
}

impl Budget {
    /// The budget of a request of which nothing has arrived.
    pub fn of_request(pool: Arc<Pool>) -> Self {
        Self::new(Some(pool), BASE)
    }

    /// The budget for planning a document of so many bytes, apart from any pool.
    pub fn of_document(bytes: usize) -> Self {
        Self::new(None, BASE.saturating_add(PER_BYTE.saturating_mul(bytes as u64)))
    }

    /// A budget without an end, for what the operator brings.
    pub fn unlimited() -> Self {
        Self::new(None, u64::MAX)
    }

    fn new(pool: Option<Arc<Pool>>, limit: u64) -> Self {
        Self {
            pool,
            limit: AtomicU64::new(limit),
            used: AtomicU64::new(0),
            drawn: AtomicU64::new(0),
            expanded: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            spent: AtomicU8::new(0),
        }
    }

    /// Counts bytes of the request that have arrived. They are held up to three times: as they came, as the
    /// message, and as texts whose escapes are resolved.
    ///
    /// # Errors
    ///
    /// When there is no room for them.
    pub fn arrived(&self, bytes: usize) -> Result<(), Spent> {
        self.limit.fetch_add(PER_BYTE.saturating_mul(bytes as u64), Relaxed);
        self.spend(bytes.saturating_mul(3))
    }

    /// Takes bytes.
    ///
    /// # Errors
    ///
    /// When they are not to be had, and from then on always.
    // One thread at a time spends; another may only stop it.
    pub fn spend(&self, bytes: usize) -> Result<(), Spent> {
        let used = self.used.load(Relaxed).saturating_add(bytes as u64);
        self.used.store(used, Relaxed);
        if used <= self.drawn.load(Relaxed) && !self.stop.load(Relaxed) { Ok(()) } else { self.draw(used) }
    }

    /// Looks whether the budget is spent or planning is to stop.
    ///
    /// # Errors
    ///
    /// When it is.
    pub fn check(&self) -> Result<(), Spent> {
        self.spend(0)
    }

    /// Books bytes that an alias or a reference adds to the document against `limit`. False when that is too much: a
    /// mistake in the design, which can say the same in its own words.
    #[must_use]
    pub fn expand(&self, bytes: usize, limit: usize) -> bool {
        self.expanded.fetch_add(bytes as u64, Relaxed).saturating_add(bytes as u64) <= limit as u64
    }

    /// How many bytes aliases and references have added.
    pub fn expanded(&self) -> usize {
        usize::try_from(self.expanded.load(Relaxed)).unwrap_or(usize::MAX)
    }

    /// What has been taken so far, for [`Self::back_to`].
    pub fn taken(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Gives back what was taken since, because what was made of it is gone.
    pub fn back_to(&self, taken: u64) {
        self.used.fetch_min(taken, Relaxed);
    }

    /// Ends planning at the next opportunity, from any thread.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        let left = self.limit().saturating_sub(self.used.load(Relaxed));
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Why the budget gives no more; none as long as it does.
    pub fn spent(&self) -> Option<Spent> {
        match self.spent.load(Relaxed) {
            0 => None,
            1 => Some(Spent::Request),
            2 => Some(Spent::Pool),
            _ => Some(Spent::Stopped),
        }
    }

    #[cold]
    fn draw(&self, used: u64) -> Result<(), Spent> {
        if let Some(spent) = self.spent() {
            return Err(spent);
        }
        let (drawn, limit) = (self.drawn.load(Relaxed), self.limit());
        let why = if self.stop.load(Relaxed) {
            Spent::Stopped
        } else if used > limit {
            Spent::Request
        } else {
            let more = used.div_ceil(CHUNK).saturating_mul(CHUNK).min(limit).saturating_sub(drawn);
            if self.pool.as_ref().is_none_or(|pool| pool.take(drawn, more)) {
                self.drawn.store(drawn + more, Relaxed);
                return Ok(());
            }
            Spent::Pool
        };
        self.spent.store(why as u8 + 1, Relaxed);
        // From now on every question comes here, also after something was given back.
        self.stop.store(true, Relaxed);
        Err(why)
    }

    /// How much the request may take: never more than half of the pool, or it could not be served even alone.
    pub fn limit(&self) -> u64 {
        let limit = self.limit.load(Relaxed);
        self.pool.as_ref().map_or(limit, |pool| limit.min((pool.bytes / 2).saturating_sub(CHUNK)))
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.taken.fetch_sub(*self.drawn.get_mut(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_stays_spent() {
        let budget = Budget::of_document(1_000);
        assert_eq!(budget.spend(60_028_000), Ok(()));
        assert_eq!(budget.spend(1), Err(Spent::Request));
        budget.back_to(0);
        assert_eq!(budget.spend(0), Err(Spent::Request));
        assert_eq!(budget.spent(), Some(Spent::Request));
    }

    #[test]
    fn what_is_gone_is_given_back() {
        let budget = Budget::of_document(0);
        let taken = budget.taken();
        assert_eq!(budget.spend(50_000_000), Ok(()));
        budget.back_to(taken);
        assert_eq!(budget.spend(50_000_000), Ok(()));
    }

    #[test]
    fn whoever_asks_for_little_finds_room_beside_any_number_who_ask_for_much() {
        let pool = Pool::new(1 << 30);
        let greedy: Vec<_> = (0..10)
            .map(|_| {
                let budget = Budget::of_request(Arc::clone(&pool));
                let _ = budget.arrived(16 << 20);
                while budget.spend(1 << 20).is_ok() {}
                budget
            })
            .collect();
        assert!(greedy.iter().all(|budget| budget.spent().is_some()));
        let modest = Budget::of_request(Arc::clone(&pool));
        assert_eq!(modest.arrived(100_000), Ok(()));
        drop((greedy, modest));
        assert_eq!(pool.taken.load(Relaxed), 0);
    }

    #[test]
    fn a_request_that_is_too_large_for_the_pool_is_not_told_to_come_back() {
        let budget = Budget::of_request(Pool::new(100 << 20));
        assert_eq!(budget.arrived(16 << 20), Ok(()));
        while budget.spend(1 << 20).is_ok() {}
        assert_eq!(budget.spent(), Some(Spent::Request));
    }

    #[test]
    fn a_stop_ends_what_is_going_on() {
        let budget = Budget::unlimited();
        assert_eq!(budget.check(), Ok(()));
        budget.stop();
        assert_eq!(budget.check(), Err(Spent::Stopped));
    }
}
