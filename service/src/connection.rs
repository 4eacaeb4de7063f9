//! One connection from its first byte to its last: how long it may take to begin, how long it may lie idle, how old it may get
//! (case 322).
//!
//! A connection that is idle or old is told to go (GOAWAY, RFC 9113, section 6.8): it takes no new calls, and those that are open go
//! on to their end, however long that is.

use std::{
    convert::Infallible,
    future::pending,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Duration, Instant, sleep, timeout},
};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};
use tonic::body::Body;
use tower::{Service, ServiceExt};

use crate::{
    accept::Acceptor,
    config::ServeArgs,
    greeting::{Greeted, greet},
    metrics,
    places::{Place, Places},
    tls::Tls,
};

/// How long a peer may take to shake hands and to begin HTTP/2: a round trip or four, and patience.
const BEGINNING: Duration = Duration::from_secs(10);
/// How often a quiet connection is asked whether it is still there: with the answer's limit below, a peer that is gone
/// is noticed within 45 s. Clients set no limit to a server's pings.
const PING_EVERY: Duration = Duration::from_secs(25);
/// How long the answer to a ping may take.
const PING_ANSWER: Duration = Duration::from_secs(10);
/// How many calls one connection may have open: many runs and their watchers, no flood.
const STREAMS: u32 = 256;
/// How many calls one connection may open and reset before we have looked at them, and how many of its frames may be in error: h2's
/// own defaults, stated since they are what holds off a rapid reset.
const PENDING_RESETS: usize = 20;
const LOCAL_RESETS: usize = 1024;
/// How large the headers of a call may be, in bytes: hyper's own default.
const HEADERS: u32 = 16 * 1024;
/// How much of an answer waits for a peer that does not read, in bytes, for each of its calls.
const UNREAD: usize = 128 * 1024;
/// How often the refusal of connections is reported, at most.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// A call that is open on a connection: an extension of the request.
#[derive(Debug, Clone)]
pub(crate) struct OpenCall {
    _token: TaskTrackerToken,
}

/// What holds for every connection.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    places: Places,
    idle: Option<Duration>,
    age: Option<Duration>,
}

impl Bounds {
    pub(crate) fn from_args(args: &ServeArgs) -> Self {
        let bound = |duration: Duration| Some(duration).filter(|duration| !duration.is_zero());
        Self {
            places: Places::new(args.max_connections.map(usize::from), args.max_connections_per_peer.map(usize::from)),
            idle: bound(args.max_connection_idle),
            age: bound(args.max_connection_age),
        }
    }
}

/// Serves connections until `closing`, and those that are open to their end.
pub(crate) async fn serve<S>(
    listener: TcpListener,
    tls: Option<Tls>,
    service: S,
    bounds: Bounds,
    closing: CancellationToken,
) where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let tls = tls.map(Arc::new);
    let mut acceptor = Acceptor::new(listener);
    // They end with this function.
    let mut connections = JoinSet::new();
    let mut reported: Option<Instant> = None;
    loop {
        let (stream, peer) = tokio::select! {
            biased;
            () = closing.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = acceptor.next() => accepted,
        };
        match bounds.places.take(peer.ip()) {
            Ok(place) => {
                let connection = Connection { peer, bounds: bounds.clone(), closing: closing.clone(), _place: place };
                connections.spawn(connection.conduct(stream, tls.clone(), service.clone()));
            }
            Err(full) => {
                metrics::connection_refused("places");
                if reported.is_none_or(|reported| reported.elapsed() >= REPORT_EVERY) {
                    reported = Some(Instant::now());
                    tracing::warn!(%peer, "a connection is refused: {full}");
                } else {
                    tracing::debug!(%peer, "a connection is refused: {full}");
                }
            }
        }
    }
    drop(acceptor);
    while connections.join_next().await.is_some() {}
}

struct Connection {
    peer: SocketAddr,
    bounds: Bounds,
    closing: CancellationToken,
    _place: Place,
}

impl Connection {
    async fn conduct<S>(self, stream: TcpStream, tls: Option<Arc<Tls>>, service: S)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        let peer = self.peer;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, %peer, "could not turn off Nagle's algorithm");
        }
        match tls {
            None => self.begin(greet(stream), service).await,
            Some(tls) => {
                let shaken = async {
                    let accepted = tls.acceptor().accept(stream).await;
                    greet(accepted.inspect_err(|_| metrics::connection_refused("handshake"))?).await
                };
                self.begin(shaken, service).await;
            }
        }
    }

    /// Serves the connection if it begins to speak HTTP/2 in time.
    async fn begin<S, IO>(self, beginning: impl Future<Output = io::Result<Option<Greeted<IO>>>>, service: S)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        IO: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let peer = self.peer;
        match self.closing.run_until_cancelled(timeout(BEGINNING, beginning)).await {
            None => {}
            Some(Ok(Ok(Some(stream)))) => self.speak(stream, service).await,
            Some(Ok(Ok(None))) => {
                metrics::connection_refused("protocol");
                tracing::debug!(%peer, "a connection does not speak HTTP/2");
            }
            Some(Ok(Err(error))) => tracing::debug!(%error, %peer, "a connection did not begin well"),
            Some(Err(_)) => {
                metrics::connection_refused("timeout");
                tracing::debug!(%peer, "a connection took too long to begin");
            }
        }
    }

    async fn speak<S>(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send, service: S)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        let calls = Calls::default();
        let opened = calls.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(opened.open());
            service.clone().oneshot(request)
        });
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_ANSWER)
            .max_concurrent_streams(STREAMS)
            .max_pending_accept_reset_streams(PENDING_RESETS)
            .max_local_error_reset_streams(LOCAL_RESETS)
            .max_header_list_size(HEADERS)
            .max_send_buf_size(UNREAD);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut time_to_go = pin!(self.time_to_go(&calls));
        let mut is_told = false;
        loop {
            tokio::select! {
                ended = &mut connection => {
                    if let Err(error) = ended {
                        tracing::debug!(error = &error as &dyn std::error::Error, peer = %self.peer, "a connection ended badly");
                    }
                    return;
                }
                () = &mut time_to_go, if !is_told => {
                    is_told = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }

    /// Waits until the connection is to take no more calls.
    async fn time_to_go(&self, calls: &Calls) {
        let Self { bounds: Bounds { idle, age, .. }, closing, .. } = self;
        tokio::select! {
            () = closing.cancelled() => {}
            () = after(*age) => {}
            () = async { match idle { Some(idle) => calls.idle_for(*idle).await, None => pending().await } } => {}
        }
    }
}

/// Waits for so long; for ever if there is no bound.
pub(crate) async fn after(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => pending().await,
    }
}

/// The calls of one connection.
#[derive(Debug, Clone, Default)]
struct Calls {
    open: TaskTracker,
    opened: Arc<AtomicU64>,
}

impl Calls {
    fn open(&self) -> OpenCall {
        self.opened.fetch_add(1, Ordering::Relaxed);
        OpenCall { _token: self.open.token() }
    }

    /// Waits until no call has been open for so long.
    async fn idle_for(&self, time: Duration) {
        // It is waited for again and again, and only a closed one comes to an end.
        self.open.close();
        loop {
            self.open.wait().await;
            let opened = self.opened.load(Ordering::Relaxed);
            sleep(time).await;
            if self.open.is_empty() && self.opened.load(Ordering::Relaxed) == opened {
                return;
            }
        }
    }
}
