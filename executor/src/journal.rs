//! The events of one run, in order: written by the run, which never waits for a reader, and read by as many readers as come.
//!
//! All events are kept while the run goes on, so a reader that is slow or comes again costs memory in proportion to the plan and
//! never holds the run up (cases 115, 117). They are kept encoded, as they are sent, and counted in the budget of all requests:
//! an event of a run is never refused, so it is the next plan that finds less room (case 248).

pub(crate) mod fit;

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};

use prost::Message;
use prost_types::Timestamp;
use switchyard_proto::{
    Kept,
    v1::{ExecuteResponse, RunSummary, execute_response::Event},
};
use switchyard_service::budget::Share;
use tokio::sync::watch;

use self::fit::{MAX_EVENT, brief, fit};

/// Most events that a reader is given at a time, and the bytes beyond which no further one is added to them.
pub(crate) const BATCH: usize = 64;
const BATCH_BYTES: usize = 256 * 1024;

/// What an event takes beside its encoding, in bytes.
const OVERHEAD: usize = 64;
/// What an ordinary event has at most, in bytes; what is beyond that is detail.
const ORDINARY: usize = 1024;
/// How many bytes of detail a run's events may have before further ones are told without.
const MAX_DETAIL: usize = 32 * 1024 * 1024;

/// The events of one run.
#[derive(Debug)]
pub(crate) struct Journal {
    events: Mutex<Events>,
    /// Tells readers that something came, or that nothing more will.
    progress: watch::Sender<Progress>,
}

#[derive(Debug)]
struct Events {
    kept: Vec<Kept<ExecuteResponse>>,
    /// What they hold of the budget.
    share: Share,
    /// Bytes of detail among them.
    detail: usize,
    /// Messages of the summary among them.
    summaries: usize,
    /// Whether a summary that is complete is among them.
    complete: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    length: usize,
    closed: bool,
}

/// Reads a journal from some place to its end.
#[derive(Debug)]
pub(crate) struct Reader {
    journal: Arc<Journal>,
    next: usize,
    /// Whether it was given anything.
    has_read: bool,
    progress: watch::Receiver<Progress>,
}

impl Journal {
    /// A journal whose events draw from `share`.
    pub(crate) fn new(share: Share) -> Arc<Self> {
        let events = Events { kept: Vec::new(), share, detail: 0, summaries: 0, complete: false };
        Arc::new(Self { events: Mutex::new(events), progress: watch::Sender::default() })
    }

    /// Adds an event, cut to a size that every client takes. Readers are given it once it is [told](Self::tell); numbers run from 1
    /// without gaps.
    pub(crate) fn append(&self, event: Event) {
        let time = Some(Timestamp::from(SystemTime::now()));
        let mut events = self.events();
        events.complete |= matches!(&event, Event::Summary(summary) if summary.complete);
        let sequence = events.kept.len() as u64 + 1;
        let event = if events.detail > MAX_DETAIL { brief(event) } else { event };
        let mut message = ExecuteResponse { sequence, time, event: Some(event) };
        let mut kept = Kept::from(&message);
        if kept.encoded_len() > MAX_EVENT {
            message.event = message.event.map(fit);
            kept = Kept::from(&message);
        }
        if matches!(message.event, Some(Event::Summary(_))) {
            events.summaries += 1;
        } else {
            events.detail += kept.encoded_len().saturating_sub(ORDINARY);
        }
        events.share.take_anyway(kept.encoded_len() + OVERHEAD);
        events.kept.push(kept);
    }

    /// Wakes the readers if something came since. Apart from the adding, so that what happens in one moment is read in one piece:
    /// waking, sending and receiving each event by itself costs all sides more than the event.
    pub(crate) fn tell(&self) {
        let events = self.events();
        let length = events.kept.len();
        // Told under the lock, so that readers see lengths that only grow.
        self.progress.send_if_modified(|progress| std::mem::replace(&mut progress.length, length) != length);
    }

    /// Whether something was added that was not told.
    pub(crate) fn has_untold(&self) -> bool {
        self.progress.borrow().length < self.events().kept.len()
    }

    /// Nothing more will come.
    pub(crate) fn close(&self) {
        self.tell();
        self.progress.send_modify(|progress| progress.closed = true);
    }

    /// The newest event's number.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.events().kept.len() as u64
    }

    /// How many bytes the events take.
    pub(crate) fn bytes(&self) -> usize {
        self.events().share.held()
    }

    /// The summary of a run that has ended: whole if it came in one message, else with the rows of its first message and not
    /// complete.
    pub(crate) fn summary(&self) -> Option<RunSummary> {
        let events = self.events();
        if !events.complete {
            return None;
        }
        let summary = |kept: &Kept<ExecuteResponse>| match kept.message().ok()?.event? {
            Event::Summary(summary) => Some(summary),
            _ => None,
        };
        // The last messages, and nothing behind them.
        let (first, last) = (events.kept.len().checked_sub(events.summaries)?, events.kept.last()?);
        let mut told = summary(last)?;
        if events.summaries > 1 {
            told.rows = summary(&events.kept[first])?.rows;
            told.complete = false;
        }
        Some(told)
    }

    /// Whether the run has given its whole account.
    fn is_complete(&self) -> bool {
        self.events().complete
    }

    /// Reads what comes after event number `after`. At the end of a journal that is closed, that is the last event once more
    /// (case 362). None beyond what was written.
    pub(crate) fn read(self: &Arc<Self>, after: u64) -> Option<Reader> {
        let after = usize::try_from(after).ok()?;
        (after <= self.events().kept.len()).then(|| Reader { next: after, ..self.read_all() })
    }

    /// Reads everything.
    pub(crate) fn read_all(self: &Arc<Self>) -> Reader {
        Reader { journal: self.clone(), next: 0, has_read: false, progress: self.progress.subscribe() }
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().expect("nothing panics while it holds the lock")
    }
}

impl Reader {
    /// The next events, at least one; none at the end of the journal. Can be dropped and called again.
    pub(crate) async fn next(&mut self) -> Option<Vec<Kept<ExecuteResponse>>> {
        let next = self.next;
        let progress = *self.progress.wait_for(|progress| progress.length > next || progress.closed).await.ok()?;
        let next = match progress.length {
            length if length > next => next,
            _ if self.has_read => return None,
            // Who begins at the end is told how it ended.
            length => length.checked_sub(1)?,
        };
        self.has_read = true;
        let mut bytes = 0;
        let fits = |event: &&Kept<ExecuteResponse>| {
            let before = bytes;
            bytes += event.encoded_len();
            before < BATCH_BYTES
        };
        let batch: Vec<_> = {
            let events = self.journal.events();
            events.kept[next..progress.length.min(next + BATCH)].iter().take_while(fits).cloned().collect()
        };
        self.next = next + batch.len();
        Some(batch)
    }

    /// Whether the journal holds a complete summary.
    pub(crate) fn is_complete(&self) -> bool {
        self.journal.is_complete()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use switchyard_proto::v1::StepStarted;
    use switchyard_service::budget::Budget;

    use super::*;

    fn event(step: &str) -> Event {
        Event::StepStarted(StepStarted { step_id: step.into(), component: String::new() })
    }

    fn journal() -> Arc<Journal> {
        Journal::new(Budget::new(0).share(0))
    }

    async fn read_all(mut reader: Reader) -> Vec<u64> {
        let mut sequences = Vec::new();
        while let Some(batch) = reader.next().await {
            sequences.extend(batch.iter().map(|event| event.message().unwrap().sequence));
        }
        sequences
    }

    #[tokio::test]
    async fn every_reader_gets_everything_in_order_without_gaps() {
        let journal = journal();
        journal.append(event("a"));
        journal.tell();
        assert!(journal.read(2).is_none(), "nothing was written there");
        let early = tokio::spawn(read_all(journal.read_all()));
        let at_the_end = tokio::spawn(read_all(journal.read(1).unwrap()));
        tokio::task::yield_now().await;
        for _ in 0..200 {
            journal.append(event("b"));
        }
        journal.close();
        assert_eq!(early.await.unwrap(), (1..=201).collect::<Vec<_>>());
        assert_eq!(at_the_end.await.unwrap(), (2..=201).collect::<Vec<_>>());
        assert_eq!(read_all(journal.read(199).unwrap()).await, [200, 201]);
        // Case 362.
        assert_eq!(read_all(journal.read(201).unwrap()).await, [201]);
        assert!(journal.read(202).is_none());
    }

    #[tokio::test]
    async fn what_happens_in_one_moment_is_read_in_one_piece() {
        let journal = journal();
        let mut reader = journal.read_all();
        journal.append(event("a"));
        assert!(reader.next().now_or_never().is_none(), "nothing was told yet");
        journal.append(event("b"));
        journal.tell();
        assert_eq!(reader.next().await.map(|events| events.len()), Some(2));
        journal.tell();
        assert!(reader.next().now_or_never().is_none(), "nothing came");
    }

    #[tokio::test]
    async fn a_reader_is_given_large_events_a_few_at_a_time() {
        let journal = journal();
        for _ in 0..10 {
            journal.append(event(&"x".repeat(BATCH_BYTES / 2)));
        }
        journal.close();
        let mut reader = journal.read_all();
        assert_eq!(reader.next().await.map(|events| events.len()), Some(2));
        assert_eq!(read_all(journal.read_all()).await.len(), 10);
    }

    /// Case 248.
    #[test]
    fn events_are_counted_in_the_budget_and_given_back_with_the_journal() {
        let budget = Budget::new(1000);
        let journal = Journal::new(budget.share(0));
        journal.append(event(&"x".repeat(5000)));
        assert!((5000..5200).contains(&budget.held()), "{}", budget.held());
        assert_eq!(journal.bytes(), budget.held());
        drop(journal);
        assert_eq!(budget.held(), 0);
    }
}
