//! Accepting connections, whatever goes wrong with that for a while.

use std::{io, net::SocketAddr};

use tokio::{
    net::{TcpListener, TcpStream},
    time::{Duration, Instant, sleep},
};

/// How long to wait when no connection can be accepted: what is missing (file descriptors, memory) comes back with connections that
/// end, and trying again at once would only spin (case 321).
const PAUSE: Duration = Duration::from_millis(100);
/// How often that is reported, at most.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// A listener that does not give up.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    reported: Option<Instant>,
}

impl Acceptor {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self { listener, reported: None }
    }

    /// The next connection. Can be dropped and called again.
    pub(crate) async fn next(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok(accepted) => return accepted,
                Err(error) if is_of_the_peer(&error) => tracing::debug!(%error, "a connection ended before it began"),
                Err(error) => {
                    if self.reported.is_none_or(|reported| reported.elapsed() >= REPORT_EVERY) {
                        self.reported = Some(Instant::now());
                        tracing::warn!(%error, "connections cannot be accepted; trying again every {PAUSE:?}");
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Whether the error is that of one connection, so that the next may be accepted at once (accept(2)).
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, TimedOut};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | TimedOut)
}
