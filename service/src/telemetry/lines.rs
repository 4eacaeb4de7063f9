//! Log lines on their way to standard error. Whoever should read them may not, and a pipe that is full holds up whoever writes to it:
//! so that is a thread of its own, and serving does not wait for it (case 331).

use std::{
    collections::VecDeque,
    io::{self, Write},
    mem,
    sync::{Condvar, LazyLock, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use tracing_subscriber::fmt::MakeWriter;

/// Bytes of lines that wait, at most; what comes beyond is lost, and counted.
const MOST: usize = 4 * 1024 * 1024;
/// How long the last lines may take to be written.
const LAST: Duration = Duration::from_secs(1);

/// The lines of this process.
static LINES: LazyLock<&'static Lines> = LazyLock::new(|| {
    let lines: &'static Lines = Box::leak(Box::default());
    // Without a thread there is no log; the program serves all the same.
    thread::Builder::new().name("log".to_owned()).spawn(|| lines.write_on(io::stderr)).ok();
    lines
});

#[derive(Default)]
struct Lines {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    /// Of what waits and of what is being written.
    bytes: usize,
    lost: u64,
}

impl Lines {
    fn push(&self, line: &[u8]) {
        let mut state = self.state();
        if state.bytes + line.len() > MOST {
            state.lost += 1;
            return;
        }
        state.bytes += line.len();
        state.waiting.push_back(line.to_vec());
        drop(state);
        self.changed.notify_all();
    }

    /// Writes lines as they come, for ever.
    fn write_on<W: Write>(&self, open: impl Fn() -> W) {
        loop {
            let mut state = self.state();
            while state.waiting.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            let lines = mem::take(&mut state.waiting);
            drop(state);
            let mut written = 0;
            for line in lines {
                // There is nobody to tell.
                open().write_all(&line).ok();
                written += line.len();
            }
            let mut state = self.state();
            state.bytes -= written;
            let lost = mem::take(&mut state.lost);
            drop(state);
            self.changed.notify_all();
            if lost > 0 {
                tracing::warn!(lost, "log lines are lost: nobody read them");
            }
        }
    }

    /// Waits until everything is written, but no longer than `limit`.
    fn flush(&self, limit: Duration) {
        let waited = self.changed.wait_timeout_while(self.state(), limit, |state| state.bytes > 0);
        drop(waited);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Where log lines are written to.
pub(super) struct ToLines;

/// One line.
pub(super) struct Line(());

impl MakeWriter<'_> for ToLines {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line(())
    }
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LINES.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Says something that is no event of the log, in its order.
pub(crate) fn say(line: &str) {
    LINES.push(line.as_bytes());
}

/// Waits a moment for the last lines to be written.
pub(crate) fn flush() {
    LINES.flush(LAST);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Writes when it is told to.
    struct Slow(mpsc::Receiver<()>);

    impl Write for &Slow {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(io::Error::other)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_nobody_reads_have_a_bound_and_are_counted() {
        let lines: &'static Lines = Box::leak(Box::default());
        let (read, slow) = mpsc::channel();
        thread::spawn(move || {
            let slow = Slow(slow);
            lines.write_on(|| &slow);
        });
        let line = vec![b'x'; MOST / 4];
        for _ in 0..10 {
            lines.push(&line);
        }
        assert!(lines.state().bytes <= MOST && lines.state().lost == 6, "{}", lines.state().lost);
        (0..4).for_each(|_| read.send(()).unwrap());
        lines.flush(Duration::from_secs(30));
        assert_eq!(lines.state().bytes, 0);
    }
}
