//! Many futures in one task, each polled when it was woken, in the order in which they were.
//!
//! What `FuturesUnordered` is for, without its fairness: that one has its task scheduled anew each time that all futures were
//! polled, or that one wakes its neighbour. A worker that schedules something wakes another worker to share it, so a task with few
//! futures moves from thread to thread for every answer that comes, and what it was about to send waits meanwhile.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::{FutureExt, Stream, future::BoxFuture};

/// How many polls may follow one another before other tasks have their turn.
const POLLS: u32 = 128;

/// Futures, and a stream of what they come to. It ends when there are none and nobody can [spawn](Spawner) any.
pub(crate) struct Together<T> {
    shared: Arc<Shared<T>>,
    entries: Vec<Entry<T>>,
    /// Entries without a future.
    free: Vec<usize>,
    /// Polls since it was last left alone.
    polls: u32,
}

struct Entry<T> {
    future: Option<BoxFuture<'static, T>>,
    one: Arc<One<T>>,
    waker: Waker,
}

/// Adds futures from anywhere, the futures themselves included.
pub(crate) struct Spawner<T>(Arc<Shared<T>>);

struct Shared<T>(Mutex<State<T>>);

struct State<T> {
    next: VecDeque<Next<T>>,
    /// Whoever looks at `next` does so before they rest, so they need not be woken.
    attended: bool,
    task: Option<Waker>,
    spawners: usize,
}

enum Next<T> {
    New(BoxFuture<'static, T>),
    Woken(usize),
}

/// Wakes one of the futures.
struct One<T> {
    shared: Arc<Shared<T>>,
    index: usize,
    is_woken: AtomicBool,
}

impl<T: Send + 'static> Together<T> {
    pub(crate) fn new() -> Self {
        let state = State { next: VecDeque::new(), attended: false, task: None, spawners: 0 };
        Self { shared: Arc::new(Shared(Mutex::new(state))), entries: Vec::new(), free: Vec::new(), polls: 0 }
    }

    /// Adds a future, which is polled when the stream is polled next.
    pub(crate) fn push(&mut self, future: BoxFuture<'static, T>) {
        self.shared.state().next.push_back(Next::New(future));
    }

    /// Lets others add futures.
    pub(crate) fn spawner(&self) -> Spawner<T> {
        self.shared.state().spawners += 1;
        Spawner(self.shared.clone())
    }

    fn admit(&mut self, future: BoxFuture<'static, T>) -> usize {
        if let Some(index) = self.free.pop() {
            self.entries[index].future = Some(future);
            return index;
        }
        let index = self.entries.len();
        let one = Arc::new(One { shared: self.shared.clone(), index, is_woken: AtomicBool::new(false) });
        self.entries.push(Entry { future: Some(future), waker: Waker::from(one.clone()), one });
        index
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }
}

impl<T: Send + 'static> Stream for Together<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        loop {
            if this.polls == POLLS {
                this.polls = 0;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let mut state = this.shared.state();
            let Some(next) = state.next.pop_front() else {
                this.polls = 0;
                state.attended = false;
                if state.spawners == 0 && this.is_empty() {
                    return Poll::Ready(None);
                }
                match &mut state.task {
                    Some(task) => task.clone_from(context.waker()),
                    task => *task = Some(context.waker().clone()),
                }
                return Poll::Pending;
            };
            state.attended = true;
            drop(state);
            this.polls += 1;
            let index = match next {
                Next::New(future) => this.admit(future),
                Next::Woken(index) => index,
            };
            let entry = &mut this.entries[index];
            entry.one.is_woken.swap(false, Ordering::AcqRel);
            // Whoever has ended may still be woken.
            let Some(future) = &mut entry.future else { continue };
            if let Poll::Ready(end) = future.poll_unpin(&mut Context::from_waker(&entry.waker)) {
                entry.future = None;
                this.free.push(index);
                return Poll::Ready(Some(end));
            }
        }
    }
}

impl<T> Spawner<T> {
    /// Adds a future and has it polled.
    pub(crate) fn spawn(&self, future: BoxFuture<'static, T>) {
        self.0.change(|state| state.next.push_back(Next::New(future)));
    }
}

impl<T> Clone for Spawner<T> {
    fn clone(&self) -> Self {
        self.0.state().spawners += 1;
        Self(self.0.clone())
    }
}

impl<T> Drop for Spawner<T> {
    fn drop(&mut self) {
        self.0.change(|state| state.spawners -= 1);
    }
}

impl<T> fmt::Debug for Spawner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spawner")
    }
}

impl<T: Send + 'static> Wake for One<T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.shared.change(|state| state.next.push_back(Next::Woken(self.index)));
        }
    }
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().expect("nothing panics while it holds the lock")
    }

    /// Changes the state and has it looked at.
    fn change(&self, change: impl FnOnce(&mut State<T>)) {
        let mut state = self.state();
        change(&mut state);
        let task = if state.attended { None } else { state.task.take() };
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future, sync::atomic::AtomicUsize};

    use futures::StreamExt;
    use proptest::prelude::*;
    use tokio::sync::{mpsc, oneshot};

    use super::*;

    /// Counts how often the task was scheduled.
    #[derive(Default)]
    struct Scheduled(AtomicUsize);

    impl Wake for Scheduled {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Scheduled {
        fn times(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn poll<T: Send + 'static>(together: &mut Together<T>, scheduled: &Arc<Scheduled>) -> Poll<Option<T>> {
        together.poll_next_unpin(&mut Context::from_waker(&Waker::from(scheduled.clone())))
    }

    #[test]
    fn neighbours_wake_one_another_without_the_task_being_scheduled() {
        let scheduled = Arc::<Scheduled>::default();
        let mut together = Together::new();
        let (ask, asked) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        together.push(async { answer.send(asked.await.is_ok()).ok().map(|()| "answered") }.boxed());
        together.push(async { ask.send(()).ok().map(|()| "asked") }.boxed());
        together.push(async { answered.await.ok().and(Some("heard")) }.boxed());
        let ends: Vec<_> = std::iter::from_fn(|| match poll(&mut together, &scheduled) {
            Poll::Ready(end) => end,
            Poll::Pending => None,
        })
        .collect();
        assert_eq!(ends, [Some("asked"), Some("answered"), Some("heard")]);
        assert_eq!(scheduled.times(), 0);
        assert_eq!(poll(&mut together, &scheduled), Poll::Ready(None), "nobody can add any");
    }

    #[test]
    fn outside_the_task_is_scheduled_once() {
        let scheduled = Arc::<Scheduled>::default();
        let mut together = Together::new();
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel::<usize>()).unzip();
        for receiver in receivers {
            together.push(receiver.boxed());
        }
        assert_eq!(poll(&mut together, &scheduled), Poll::Pending);
        for (number, sender) in senders.into_iter().enumerate().rev() {
            sender.send(number).unwrap();
        }
        assert_eq!(scheduled.times(), 1);
        // In the order in which they were woken.
        for number in [2, 1, 0] {
            assert_eq!(poll(&mut together, &scheduled), Poll::Ready(Some(Ok(number))));
        }
        assert_eq!(poll(&mut together, &scheduled), Poll::Ready(None));
    }

    #[test]
    fn who_may_spawn_keeps_it_from_ending() {
        let scheduled = Arc::<Scheduled>::default();
        let mut together = Together::new();
        let spawner = together.spawner();
        assert_eq!(poll(&mut together, &scheduled), Poll::Pending);
        let inner = spawner.clone();
        spawner.spawn(async move { inner.spawn(future::ready("inner").boxed()) }.map(|()| "outer").boxed());
        assert_eq!(scheduled.times(), 1);
        assert_eq!(poll(&mut together, &scheduled), Poll::Ready(Some("outer")));
        assert_eq!(poll(&mut together, &scheduled), Poll::Ready(Some("inner")));
        assert_eq!(poll(&mut together, &scheduled), Poll::Pending);
        drop(spawner);
        assert_eq!(scheduled.times(), 2);
        assert_eq!(poll(&mut together, &scheduled), Poll::Ready(None));
    }

    #[test]
    fn who_is_never_content_leaves_others_their_turn() {
        let scheduled = Arc::<Scheduled>::default();
        let mut together = Together::<()>::new();
        let restless = future::poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::Pending
        });
        together.push(restless.boxed());
        for turn in 1..4 {
            assert_eq!(poll(&mut together, &scheduled), Poll::Pending);
            assert_eq!(scheduled.times(), turn);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Woken from other threads at any moment, some before they are polled, some again and again, none is forgotten.
        #[test]
        fn nobody_is_forgotten(waits in prop::collection::vec(0_usize..6, 0..120)) {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
            let ends = runtime.block_on(async {
                let mut together = Together::new();
                for (index, &wait) in waits.iter().enumerate() {
                    let (sender, mut receiver) = mpsc::channel(1);
                    tokio::spawn(async move {
                        for _ in 0..wait {
                            tokio::task::yield_now().await;
                            sender.send(()).await.ok();
                        }
                    });
                    together.push(async move {
                        let mut heard = 0;
                        while receiver.recv().await.is_some() {
                            heard += 1;
                        }
                        (index, heard)
                    }.boxed());
                }
                let all = together.collect::<Vec<_>>();
                tokio::time::timeout(std::time::Duration::from_secs(30), all).await
            });
            let mut ends = ends.expect("somebody was not woken");
            ends.sort_unstable();
            prop_assert_eq!(ends, waits.into_iter().enumerate().collect::<Vec<_>>());
        }
    }
}
