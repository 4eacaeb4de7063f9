//! The events of one run, in order: written by the run, which never waits for a reader, and read by as many readers as come.
//!
//! All events are kept while the run goes on: a step makes about four of a few hundred bytes, so a reader that is slow or comes
//! again costs memory in proportion to the plan and never holds the run up (cases 115, 117).

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};

use prost_types::Timestamp;
use switchyard_proto::{
    Kept,
    v1::{ExecuteResponse, execute_response::Event},
};
use tokio::sync::watch;

/// Most events that a reader is given at a time.
pub(crate) const BATCH: usize = 64;

/// The events of one run.
#[derive(Debug)]
pub(crate) struct Journal {
    events: Mutex<Vec<Kept<ExecuteResponse>>>,
    /// Tells readers that something came, or that nothing more will.
    progress: watch::Sender<Progress>,
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
    progress: watch::Receiver<Progress>,
}

impl Journal {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { events: Mutex::default(), progress: watch::Sender::default() })
    }

    /// Adds an event, which readers are given once it is [told](Self::tell); numbers run from 1 without gaps.
    pub(crate) fn append(&self, event: Event) {
        let mut events = self.events();
        let sequence = events.len() as u64 + 1;
        let time = Some(Timestamp::from(SystemTime::now()));
        events.push(ExecuteResponse { sequence, time, event: Some(event) }.into());
    }

    /// Wakes the readers if something came since. Apart from the adding, so that what happens in one moment is read in one piece:
    /// waking, sending and receiving each event by itself costs all sides more than the event.
    pub(crate) fn tell(&self) {
        let events = self.events();
        let length = events.len();
        // Told under the lock, so that readers see lengths that only grow.
        self.progress.send_if_modified(|progress| std::mem::replace(&mut progress.length, length) != length);
    }

    /// Whether something was added that was not told.
    pub(crate) fn has_untold(&self) -> bool {
        self.progress.borrow().length < self.events().len()
    }

    /// Nothing more will come.
    pub(crate) fn close(&self) {
        self.tell();
        self.progress.send_modify(|progress| progress.closed = true);
    }

    /// The newest event's number.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.events().len() as u64
    }

    /// Reads what comes after event number `after`.
    pub(crate) fn read(self: &Arc<Self>, after: u64) -> Reader {
        Reader { journal: self.clone(), next: after as usize, progress: self.progress.subscribe() }
    }

    fn events(&self) -> MutexGuard<'_, Vec<Kept<ExecuteResponse>>> {
        self.events.lock().expect("nothing panics while it holds the lock")
    }
}

impl Reader {
    /// The next events, at least one; none at the end of the journal. Can be dropped and called again.
    pub(crate) async fn next(&mut self) -> Option<Vec<Kept<ExecuteResponse>>> {
        let next = self.next;
        let progress = *self.progress.wait_for(|progress| progress.length > next || progress.closed).await.ok()?;
        if progress.length <= next {
            return None;
        }
        let batch = self.journal.events()[next..progress.length.min(next + BATCH)].to_vec();
        self.next += batch.len();
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use switchyard_proto::v1::StepStarted;

    use super::*;

    fn event(step: &str) -> Event {
        Event::StepStarted(StepStarted { step_id: step.into(), component: String::new() })
    }

    async fn read_all(mut reader: Reader) -> Vec<u64> {
        let mut sequences = Vec::new();
        while let Some(batch) = reader.next().await {
            sequences.extend(batch.iter().map(|event| event.sequence));
        }
        sequences
    }

    #[tokio::test]
    async fn every_reader_gets_everything_in_order_without_gaps() {
        let journal = Journal::new();
        journal.append(event("a"));
        journal.tell();
        let early = tokio::spawn(read_all(journal.read(0)));
        tokio::task::yield_now().await;
        for _ in 0..200 {
            journal.append(event("b"));
        }
        journal.close();
        assert_eq!(early.await.unwrap(), (1..=201).collect::<Vec<_>>());
        assert_eq!(read_all(journal.read(199)).await, [200, 201]);
        assert_eq!(read_all(journal.read(500)).await, [0; 0]);
    }

    #[tokio::test]
    async fn what_happens_in_one_moment_is_read_in_one_piece() {
        let journal = Journal::new();
        let mut reader = journal.read(0);
        journal.append(event("a"));
        assert!(reader.next().now_or_never().is_none(), "nothing was told yet");
        journal.append(event("b"));
        journal.tell();
        assert_eq!(reader.next().await.map(|events| events.len()), Some(2));
        journal.tell();
        assert!(reader.next().now_or_never().is_none(), "nothing came");
    }
}
