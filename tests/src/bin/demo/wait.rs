//! Waiting, and saying for what.

use std::{
    io,
    time::{Duration, Instant},
};

use super::screen::{Paint, Screen};

/// Often enough to look alive.
const TICK: Duration = Duration::from_millis(100);

/// Waits for `what`, told as `text` together with the time it has taken.
pub(crate) async fn wait<T>(screen: &mut Screen, text: &str, what: impl Future<Output = T>) -> io::Result<T> {
    let since = Instant::now();
    let mut what = std::pin::pin!(what);
    loop {
        let elapsed = format!("{:.1} s", since.elapsed().as_secs_f64());
        screen.moving(format!("{text} {}", screen.paint(Paint::Faint, elapsed)))?;
        if let Ok(result) = tokio::time::timeout(TICK, &mut what).await {
            return Ok(result);
        }
    }
}

/// Writes a duration as people say it.
pub(crate) fn spoken(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds < 0.00995 => format!("{:.1} ms", seconds * 1e3),
        seconds if seconds < 0.0995 => format!("{:.0} ms", seconds * 1e3),
        seconds if seconds < 9.95 => format!("{seconds:.1} s"),
        seconds => format!("{seconds:.0} s"),
    }
}
