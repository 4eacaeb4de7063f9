//! How many writes a cluster is given at once: grows while it copes, halves when it says that it does not.

/// Where an adaptive bound starts. API servers are at their best between 16 and 64.
const START: usize = 32;
/// Where it ends: one HTTP/2 connection carries 100 requests at a time.
const MOST: usize = 96;

/// The bound of one cluster. Never below one.
#[derive(Debug)]
pub(crate) enum Limit {
    Fixed(usize),
    Adaptive { bound: usize, successes: usize, since_cut: usize },
}

impl Limit {
    /// A fixed bound, or one that adapts.
    pub(crate) fn new(fixed: Option<usize>) -> Self {
        match fixed {
            Some(bound) => Self::Fixed(bound.max(1)),
            None => Self::Adaptive { bound: START, successes: 0, since_cut: START },
        }
    }

    pub(crate) fn bound(&self) -> usize {
        match self {
            Self::Fixed(bound) | Self::Adaptive { bound, .. } => *bound,
        }
    }

    /// An answer came that was no complaint. Adds one a round trip of the whole bound.
    pub(crate) fn coped(&mut self) {
        if let Self::Adaptive { bound, successes, since_cut } = self {
            *since_cut += 1;
            *successes += 1;
            if *successes >= *bound && *bound < MOST {
                *bound += 1;
                *successes = 0;
            }
        }
    }

    /// The server complained. What was in flight together complains together, so one cut answers for all of it.
    pub(crate) fn throttled(&mut self) {
        if let Self::Adaptive { bound, successes, since_cut } = self {
            *since_cut += 1;
            if *since_cut >= *bound {
                *bound = (*bound / 2).max(1);
                *successes = 0;
                *since_cut = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_while_the_server_copes_and_ends_somewhere() {
        let mut limit = Limit::new(None);
        (0..START).for_each(|_| limit.coped());
        assert_eq!(limit.bound(), START + 1);
        (0..100_000).for_each(|_| limit.coped());
        assert_eq!(limit.bound(), MOST);
    }

    #[test]
    fn complaints_of_one_moment_cut_once_and_the_bound_never_ends() {
        let mut limit = Limit::new(None);
        (0..START / 2).for_each(|_| limit.throttled());
        assert_eq!(limit.bound(), START / 2);
        (0..1_000).for_each(|_| limit.throttled());
        assert_eq!(limit.bound(), 1);
    }

    #[test]
    fn fixed_bound_stays() {
        let mut limit = Limit::new(Some(8));
        limit.throttled();
        limit.coped();
        assert_eq!(limit.bound(), 8);
    }
}
