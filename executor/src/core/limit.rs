//! How many writes a cluster is given at once: grows while it copes, shrinks when it says that it does not or takes ever longer.
//!
//! The bound belongs to the API server, not to the run: runs that have something to send to one server at the same time share it
//! evenly, so none of them crowds the others out, and none holds a share that it has no use for (case 252).

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use crate::in_use::InUse;

/// Where an adaptive bound starts. API server and etcd work in batches, so an object costs them less the more are in flight, up to
/// about this many; and a server in its default settings refuses nobody yet.
const START: usize = 64;
/// Where it ends: one HTTP/2 connection carries 100 requests at a time. Above [`START`] it only goes while answers take no longer:
/// a server that is far away gains by it; one that is busy has more at once to do, and with 96 a run was slower by a fifth.
const MOST: usize = 96;
/// Answers that take so many times as long as the best ones did are a sign of a queue that only grows. What is in flight waits
/// in a queue of the server anyhow, so less than this says nothing.
const TOO_LONG: u32 = 3;

/// How one answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The server said that it does not cope, to what it was asked then.
    Complaint { asked: Instant },
    /// It answered, and how long that took. `full` says whether as much was in flight as permitted: only then the answer says
    /// anything of the bound.
    Coped { took: Option<Duration>, full: bool },
}

/// The bounds of all API servers that somebody works on.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    servers: InUse<String, Mutex<Server>>,
}

#[derive(Debug)]
struct Server {
    adaptive: Adaptive,
    /// Runs that have something in flight.
    busy: usize,
}

/// One run's bound for one lane. Never below one.
#[derive(Debug)]
pub(crate) enum Limit {
    Fixed(usize),
    Shared(Share),
}

/// One run's share of what an API server is given at once, and no more than somebody asked for.
#[derive(Debug)]
pub(crate) struct Share {
    server: Arc<Mutex<Server>>,
    most: Option<usize>,
    is_busy: bool,
}

impl Limits {
    /// A share of the bound of `server`, but at most `most`, which ends with the value.
    pub(crate) fn share(&self, server: &str, most: Option<usize>) -> Limit {
        let new = || Mutex::new(Server { adaptive: Adaptive::new(), busy: 0 });
        let server = self.servers.get(server.to_owned(), new);
        Limit::Shared(Share { server, most, is_busy: false })
    }
}

impl Limit {
    pub(crate) fn bound(&self) -> usize {
        match self {
            Self::Fixed(bound) => (*bound).max(1),
            Self::Shared(share) => share.most.map_or(share.fair(), |most| share.fair().min(most)).max(1),
        }
    }

    /// Says whether the run has something in flight. Only then it has a share.
    pub(crate) fn set_busy(&mut self, is_busy: bool) {
        if let Self::Shared(share) = self {
            share.set_busy(is_busy);
        }
    }

    /// Takes an answer into account.
    pub(crate) fn answered(&self, answer: Answer) {
        if let Self::Shared(share) = self {
            let answer = match answer {
                // What somebody asked for says nothing of what the server copes with.
                Answer::Coped { took, full } => {
                    Answer::Coped { took, full: full && share.most.is_none_or(|most| most >= share.fair()) }
                }
                complaint @ Answer::Complaint { .. } => complaint,
            };
            lock(&share.server).adaptive.answered(answer, Instant::now());
        }
    }
}

impl Share {
    /// What the run is given if all that are busy are given the same. Who is not busy yet is about to be.
    fn fair(&self) -> usize {
        let Server { adaptive, busy } = &*lock(&self.server);
        adaptive.bound / (busy + usize::from(!self.is_busy))
    }

    fn set_busy(&mut self, is_busy: bool) {
        if self.is_busy != is_busy {
            self.is_busy = is_busy;
            let busy = &mut lock(&self.server).busy;
            *busy = if is_busy { *busy + 1 } else { *busy - 1 };
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set_busy(false);
    }
}

fn lock(server: &Mutex<Server>) -> MutexGuard<'_, Server> {
    server.lock().expect("nothing panics while it holds the lock")
}

/// Additive increase, multiplicative decrease.
#[derive(Debug)]
struct Adaptive {
    bound: usize,
    /// When the bound was cut last.
    cut: Option<Instant>,
    /// Answers of the present round, and how long they took together. A round is as many answers as the bound.
    round: (u32, Duration),
    /// How long the answers of the best round took, on average. Forgotten slowly: objects and neighbours change.
    best: Option<Duration>,
    /// How long the answers of the last rounds took in which the bound was [`START`].
    at_start: Option<Duration>,
}

impl Adaptive {
    fn new() -> Self {
        Self { bound: START, cut: None, round: (0, Duration::ZERO), best: None, at_start: None }
    }

    fn answered(&mut self, answer: Answer, now: Instant) {
        match answer {
            // What was asked before the last cut says nothing of the bound that there is since: one cut a burst.
            Answer::Complaint { asked } if self.cut.is_none_or(|cut| asked > cut) => {
                self.bound = (self.bound / 2).max(1);
                self.cut = Some(now);
                self.round = (0, Duration::ZERO);
            }
            Answer::Coped { took: Some(took), full: true } => {
                self.round.0 += 1;
                self.round.1 += took;
                if self.round.0 as usize >= self.bound {
                    self.end_round();
                }
            }
            Answer::Complaint { .. } | Answer::Coped { .. } => {}
        }
    }

    fn end_round(&mut self) {
        let (answers, took) = std::mem::take(&mut self.round);
        let mean = took / answers;
        let best = self.best.map_or(mean, |best| mean.min(best + best / 16));
        self.best = Some(best);
        if self.bound == START {
            self.at_start = Some(self.at_start.map_or(mean, |known| (known * 3 + mean) / 4));
        }
        if mean > best * TOO_LONG {
            self.bound = (self.bound - self.bound.div_ceil(8)).max(1);
        } else if self.bound < START || self.holds(mean) {
            self.bound = (self.bound + 1).min(MOST);
        } else if self.bound > START {
            self.bound -= 1;
        }
    }

    /// Whether answers that took so long show that more in flight do not simply wait longer: then they would take longer in
    /// proportion to the bound. A quarter of that, and one in 64, is put up with, since no two rounds are alike.
    fn holds(&self, mean: Duration) -> bool {
        let above = (self.bound - START) as u32;
        self.at_start.is_none_or(|known| mean <= known + known / 64 + known * above / (4 * START as u32))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUICK: Answer = Answer::Coped { took: Some(Duration::from_millis(20)), full: true };
    const SLOW: Answer = Answer::Coped { took: Some(Duration::from_millis(200)), full: true };

    fn after(adaptive: &mut Adaptive, number: usize, answer: Answer) -> usize {
        (0..number).for_each(|_| adaptive.answered(answer, Instant::now()));
        adaptive.bound
    }

    #[test]
    fn grows_while_the_server_copes_and_ends_somewhere() {
        let mut adaptive = Adaptive::new();
        assert_eq!(after(&mut adaptive, START, QUICK), START + 1);
        assert_eq!(after(&mut adaptive, 100_000, QUICK), MOST);
    }

    /// Where the bound is, on average, before a server that answers so many a second at most and is so far away. Rounds differ by a
    /// sixth.
    fn settles(rate: f64, away: Duration) -> usize {
        const ROUNDS: usize = 4_000;
        let mut adaptive = Adaptive::new();
        let mut random = 1_u32;
        let mut sum = 0;
        for _ in 0..ROUNDS {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let differs = 0.83 + 0.34 * f64::from(random >> 16) / 65_536.0;
            let queue = Duration::from_secs_f64(adaptive.bound as f64 / rate);
            let took = away.max(queue).mul_f64(differs);
            let bound = adaptive.bound;
            sum += after(&mut adaptive, bound, Answer::Coped { took: Some(took), full: true });
        }
        sum / ROUNDS
    }

    #[test]
    fn goes_beyond_its_start_for_a_server_that_is_far_and_not_for_one_that_is_busy() {
        let busy = settles(900.0, Duration::from_millis(5));
        assert!((START..START + START / 8).contains(&busy), "{busy}");
        let far = settles(5_000.0, Duration::from_millis(60));
        assert!(far > MOST - MOST / 8, "{far}");
    }

    /// Case 265: as many refusals as were in flight together are one burst, however many they are.
    #[test]
    fn one_burst_of_complaints_cuts_the_bound_once() {
        let mut adaptive = Adaptive::new();
        let mut asked = Instant::now();
        for left in [32, 16, 8, 4, 2, 1, 1] {
            let burst = adaptive.bound;
            for answer in 1..=burst as u32 {
                let now = asked + Duration::from_millis(5) * answer;
                adaptive.answered(Answer::Complaint { asked }, now);
                assert_eq!(adaptive.bound, left, "after complaint {answer} of {burst}");
            }
            asked += Duration::from_secs(1);
        }
    }

    #[test]
    fn answers_that_take_ever_longer_shrink_the_bound_until_they_are_the_rule() {
        let mut adaptive = Adaptive::new();
        after(&mut adaptive, 10 * START, QUICK);
        let before = adaptive.bound;
        let shrunk = after(&mut adaptive, 5 * MOST, SLOW);
        assert!(shrunk < before * 3 / 4, "{before} to {shrunk}");
        // A server that is like this now is not punished for what it was.
        assert_eq!(after(&mut adaptive, 100_000, SLOW), MOST);
    }

    #[test]
    fn what_was_not_held_back_by_the_bound_says_nothing_of_it() {
        let mut adaptive = Adaptive::new();
        assert_eq!(
            after(&mut adaptive, 10_000, Answer::Coped { took: Some(Duration::from_millis(1)), full: false }),
            START
        );
        // Nor does a lone quick answer make a full round look slow.
        assert_eq!(after(&mut adaptive, START, SLOW), START + 1);
    }

    #[test]
    fn runs_on_one_server_share_its_bound_and_none_ends_up_with_nothing() {
        let limits = Limits::default();
        let busy = |server, most| {
            let mut limit = limits.share(server, most);
            limit.set_busy(true);
            limit
        };
        let first = busy("https://a", None);
        assert_eq!(first.bound(), START);
        let others: Vec<_> = (0..3).map(|_| busy("https://a", None)).collect();
        let elsewhere = busy("https://b", None);
        assert_eq!((first.bound(), others[0].bound(), elsewhere.bound()), (START / 4, START / 4, START));
        let crowd: Vec<_> = (0..100).map(|_| busy("https://a", None)).collect();
        assert_eq!(first.bound(), 1);
        drop((others, crowd));
        assert_eq!(first.bound(), START);
    }

    /// Case 250.
    #[test]
    fn what_is_asked_for_stays_within_the_fair_share() {
        let limits = Limits::default();
        let mut asks = limits.share("https://a", Some(1000));
        let mut modest = limits.share("https://a", Some(8));
        asks.set_busy(true);
        assert_eq!(asks.bound(), START);
        modest.set_busy(true);
        assert_eq!((asks.bound(), modest.bound()), (START / 2, 8));
        // It is full by what it asked for, which says nothing of the server.
        for _ in 0..10 * START {
            modest.answered(QUICK);
        }
        assert_eq!(asks.bound(), START / 2);
    }

    /// Case 252.
    #[test]
    fn runs_that_send_nothing_hold_no_share() {
        let limits = Limits::default();
        let [mut first, mut second] = [(); 2].map(|()| limits.share("https://a", None));
        first.set_busy(true);
        assert_eq!((first.bound(), second.bound()), (START, START / 2));
        second.set_busy(true);
        assert_eq!((first.bound(), second.bound()), (START / 2, START / 2));
        second.set_busy(false);
        second.set_busy(false);
        assert_eq!(first.bound(), START);
    }

    #[test]
    fn fixed_bound_stays() {
        let limit = Limit::Fixed(8);
        limit.answered(Answer::Complaint { asked: Instant::now() });
        assert_eq!(limit.bound(), 8);
    }

    proptest! {
        #[test]
        fn the_bound_stays_within_its_limits(answers in prop::collection::vec((0u64..500, any::<bool>(), 0u8..10), 0..3_000)) {
            let mut adaptive = Adaptive::new();
            let mut now = Instant::now() + Duration::from_secs(1);
            for (took, full, complains) in answers {
                let took = Some(Duration::from_millis(took));
                now += Duration::from_millis(1);
                let asked = now - Duration::from_millis(complains.into());
                adaptive.answered(if complains < 3 { Answer::Complaint { asked } } else { Answer::Coped { took, full } }, now);
                prop_assert!((1..=MOST).contains(&adaptive.bound));
            }
        }
    }
}
