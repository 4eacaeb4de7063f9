//! Bytes that requests may hold in memory: a bound for each request, and one for all of them together.
//!
//! A request takes part by opening a [`Share`], and draws from it whatever it keeps: the bytes of a message that is still coming
//! in, a plan, what a document expands to, events, answers. A share gives everything back when it is dropped, so a request
//! cannot forget to.
//!
//! One request never holds more than it leaves free for the others. However many take as much as they can get, an ordinary
//! request that comes after them still has room.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The bytes that all requests of a process may hold together. Clones are the same budget.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    total: usize,
    held: AtomicUsize,
}

/// What one request holds of a [`Budget`].
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    most: usize,
    held: usize,
}

/// Why a request may not hold more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// The request is larger than any one may be.
    #[error("the request needs more than the {most} bytes that one request may hold")]
    Request {
        /// The bound, in bytes.
        most: usize,
    },
    /// The requests at hand leave too little. The same request may find room later.
    #[error("the requests at hand leave no room for this one; {total} bytes is the bound for all of them")]
    All {
        /// The bound for all requests, in bytes.
        total: usize,
    },
}

impl Budget {
    /// A budget of `total` bytes.
    pub fn new(total: usize) -> Self {
        Self(Arc::new(Inner { total, held: AtomicUsize::new(0) }))
    }

    /// Opens the share of a request that may hold at most `most` bytes.
    pub fn share(&self, most: usize) -> Share {
        Share { budget: self.clone(), most, held: 0 }
    }

    /// How many bytes all requests may hold together.
    pub fn total(&self) -> usize {
        self.0.total
    }

    /// How many bytes are held at the moment.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }
}

impl Share {
    /// Takes `bytes` more.
    ///
    /// # Errors
    ///
    /// When the request would hold more than it may, or more than it leaves to others. Nothing is taken then.
    pub fn take(&mut self, bytes: usize) -> Result<(), Exceeded> {
        let Self { budget, most, held } = self;
        let own = held.saturating_add(bytes);
        if own > *most {
            return Err(Exceeded::Request { most: *most });
        }
        let Inner { total, held: all } = &*budget.0;
        let take = |all: usize| Some(all.saturating_add(bytes)).filter(|all| all.saturating_add(own) <= *total);
        all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_err(|_| Exceeded::All { total: *total })?;
        *held = own;
        Ok(())
    }

    /// Takes `bytes` more whatever the bounds say: for what must be kept, such as the account of a run. New requests find less
    /// room until it is given back.
    pub fn take_anyway(&mut self, bytes: usize) {
        self.held += bytes;
        self.budget.0.held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives `bytes` back, or as many as are held.
    pub fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.held);
        self.held -= bytes;
        self.budget.0.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Hands over all that is held, to a share that lives longer.
    pub fn hand_over(&mut self) -> Self {
        Self { budget: self.budget.clone(), most: self.most, held: std::mem::take(&mut self.held) }
    }

    /// How many bytes the request may hold.
    pub fn most(&self) -> usize {
        self.most
    }

    /// How many bytes the request holds.
    pub fn held(&self) -> usize {
        self.held
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back(self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_held_is_given_back_with_its_share() {
        let budget = Budget::new(100);
        let mut share = budget.share(50);
        assert_eq!(share.take(30), Ok(()));
        assert_eq!(share.take(21), Err(Exceeded::Request { most: 50 }));
        assert_eq!((share.held(), budget.held()), (30, 30));
        share.give_back(10);
        assert_eq!(budget.held(), 20);
        drop(share);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn requests_that_take_all_they_can_get_leave_room_for_the_next() {
        let budget = Budget::new(1 << 20);
        let mut greedy: Vec<_> = (0..9).map(|_| budget.share(usize::MAX)).collect();
        // In turns, so that all of them grow side by side.
        while greedy.iter_mut().filter_map(|share| share.take(1 << 10).ok()).count() > 0 {}
        let left = (1 << 20) - budget.held();
        assert!(left >= (1 << 20) / 11, "{left}");
        assert_eq!(greedy[0].take(1 << 19), Err(Exceeded::All { total: 1 << 20 }));
        assert_eq!(budget.share(usize::MAX).take(left / 2), Ok(()));
        assert_eq!(budget.share(usize::MAX).take(usize::MAX), Err(Exceeded::All { total: 1 << 20 }));
    }

    #[test]
    fn what_must_be_kept_is_counted_beyond_the_bounds() {
        let budget = Budget::new(100);
        let mut account = budget.share(10);
        account.take_anyway(150);
        assert_eq!(budget.held(), 150);
        assert_eq!(budget.share(10).take(1), Err(Exceeded::All { total: 100 }));
        drop(account);
        assert_eq!(budget.share(10).take(1), Ok(()));
    }
}
