//! How much memory planning one request may take.
//!
//! Whatever planning makes of a request (values, copies that aliases and references ask for, edges, objects, the answer) is
//! drawn from the request's [`Budget`] before it is made, and what a budget gives comes out of the request's [`Share`] of what
//! all requests may hold. What a budget counts are estimates that err on the high side; they need not be exact, because they
//! are compared with a limit that leaves room. The texts of problems and warnings have limits of their own: beyond them they
//! are counted and not told.
//!
//! A budget that is spent stays spent: whoever meets it ends what it does, whatever the result, and [`crate::plan`] answers
//! with the reason. The same way ends planning for which nobody waits any more. There is no clock here: whoever runs out of
//! patience calls [`Budget::stop`].

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use switchyard_service::budget::{self, Exceeded, Share};

/// What every request may take, however small it is.
const BASE: u64 = 60_000_000;
/// What a request may take for each of its bytes.
const PER_BYTE: u64 = 28;
/// How much is drawn from the share at once.
const CHUNK: u64 = 64 << 10;

/// Why a budget gives no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Spent {
    /// The request needs more than a request of its size may take.
    #[error("planning would take more memory than a request of this size may")]
    Request,
    /// Other requests hold what it needs; it may be served later.
    #[error("other requests take the memory that planning needs")]
    Others,
    /// It was told to stop.
    #[error("planning was stopped")]
    Stopped,
}

/// What one request may take.
#[derive(Debug)]
pub struct Budget {
    /// Of what all requests may hold. None for what is no request.
    share: Option<Mutex<Share>>,
    limit: u64,
    /// What has been spent. Never above `drawn`, unless the budget is spent.
    used: AtomicU64,
    /// What was drawn from the share.
    drawn: AtomicU64,
    /// What aliases and references added to the document.
    expanded: AtomicU64,
    stop: AtomicBool,
    /// 0, or why it gives no more.
    spent: AtomicU8,
}

impl Budget {
    /// The budget of a request of so many bytes. They are held up to three times: as they came, as the message, and as texts
    /// whose escapes are resolved. If there is no room for that, the budget is spent from the beginning.
    pub fn of_request(bytes: usize, all: &budget::Budget) -> Self {
        // Never more than half, or it could not be served even alone.
        let share = all.share((all.total() / 2).saturating_sub(CHUNK as usize));
        let of_document = Self::of_document(bytes);
        let limit = of_document.limit.min(share.most() as u64);
        let budget = Self { share: Some(Mutex::new(share)), limit, ..of_document };
        let _ = budget.spend(bytes.saturating_mul(3));
        budget
    }

    /// The budget for planning a document of so many bytes that is no request.
    pub fn of_document(bytes: usize) -> Self {
        Self::new(BASE.saturating_add(PER_BYTE.saturating_mul(bytes as u64)))
    }

    /// A budget without an end, for what the operator brings.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    fn new(limit: u64) -> Self {
        Self {
            share: None,
            limit,
            used: AtomicU64::new(0),
            drawn: AtomicU64::new(0),
            expanded: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            spent: AtomicU8::new(0),
        }
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
            2 => Some(Spent::Others),
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
            match self.take(more) {
                Ok(()) => {
                    self.drawn.store(drawn + more, Relaxed);
                    return Ok(());
                }
                Err(Exceeded::Request { .. }) => Spent::Request,
                Err(Exceeded::All { .. }) => Spent::Others,
            }
        };
        self.spent.store(why as u8 + 1, Relaxed);
        // From now on every question comes here, also after something was given back.
        self.stop.store(true, Relaxed);
        Err(why)
    }

    fn take(&self, bytes: u64) -> Result<(), Exceeded> {
        let Some(share) = &self.share else { return Ok(()) };
        share.lock().unwrap_or_else(PoisonError::into_inner).take(bytes as usize)
    }

    /// How much the request may take.
    pub fn limit(&self) -> u64 {
        self.limit
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
        let all = budget::Budget::new(1 << 30);
        let greedy: Vec<_> = (0..10)
            .map(|_| {
                let budget = Budget::of_request(16 << 20, &all);
                while budget.spend(1 << 20).is_ok() {}
                budget
            })
            .collect();
        assert!(greedy.iter().all(|budget| budget.spent().is_some()));
        let modest = Budget::of_request(100_000, &all);
        assert_eq!(modest.check(), Ok(()));
        drop((greedy, modest));
        assert_eq!(all.held(), 0);
    }

    #[test]
    fn a_request_that_would_not_fit_even_alone_is_not_told_to_come_back() {
        let budget = Budget::of_request(16 << 20, &budget::Budget::new(100 << 20));
        assert_eq!(budget.check(), Ok(()));
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
