//! Serving gRPC from the first call to the end of the drain.
//!
//! The drain has three steps. On the first signal the server turns not ready and refuses new work, but goes on
//! answering, so that probes and callers are told so rather than left with a closed port. Shortly before the grace period is
//! over comes the last call: what has not ended says how far it came. When no call and no task is left, or the time is over, whatever is still open (probes that watch, streams that did not end) is ended
//! with UNAVAILABLE and the port is closed. Connections that do not go away by themselves are then dropped: tonic would
//! wait for them for ever.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{Request, Response};
use tokio::{net::TcpListener, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{
    body::Body,
    server::NamedService,
    service::{Routes, RoutesBuilder},
    transport::server::TcpIncoming,
};
use tonic_health::{ServingStatus, server::HealthReporter};
use tower::Service;

use crate::{
    config::{self, ServeArgs},
    guard::{GuardLayer, Watch},
    shutdown::{LAST_WORDS, Shutdown},
    tls,
    trace::TraceLayer,
};

/// How often a quiet connection is asked whether it is still there: with the answer's limit below, a peer that is gone
/// is noticed within 45 s. Clients set no limit to a server's pings.
const PING_EVERY: Duration = Duration::from_secs(25);
/// How long the answer to a ping may take.
const PING_ANSWER: Duration = Duration::from_secs(10);
/// How many calls one connection may have open: many runs and their watchers, no flood.
const STREAMS_PER_CONNECTION: u32 = 256;
/// How many calls one connection may open and reset before we have looked at them: h2's own default, stated since it is
/// what holds off a rapid reset.
const PENDING_RESETS: usize = 20;
/// How long the last frames may take to leave once everything was told to end.
const CLOSING: Duration = Duration::from_secs(1);

/// The part of the grace period that is left after the last call, and the most that this may be.
const LAST_CALL_SHARE: u32 = 4;
const LONGEST_LAST_CALL: Duration = Duration::from_secs(5);

/// How a drain came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every call and task came to its end by itself.
    Clean,
    /// The grace period was over first, or so near its end that something was not waited for.
    Cut,
    /// A second signal came first.
    Aborted,
}

/// Why the server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The listener is open to others than the flags permit.
    #[error(transparent)]
    Refused(#[from] config::Error),
    /// Certificates or key cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// The listener is broken.
    #[error("could not use the open port")]
    Listener(#[source] std::io::Error),
    /// The descriptors that were compiled in cannot be read.
    #[error("could not set up reflection")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// The transport gave up.
    #[error("could not go on serving")]
    Transport(#[source] tonic::transport::Error),
    /// The transport ended though nobody asked it to.
    #[error("stopped accepting connections")]
    Ended,
}

/// A server in the making: add services, then [`serve`](Self::serve).
#[derive(Debug)]
pub struct Server {
    args: ServeArgs,
    shutdown: Shutdown,
    tasks: TaskTracker,
    services: Vec<&'static str>,
    parent_later: Vec<&'static str>,
    routes: RoutesBuilder,
}

impl Server {
    /// Starts a server without services.
    pub fn new(args: &ServeArgs, shutdown: Shutdown) -> Self {
        Self {
            args: args.clone(),
            shutdown,
            tasks: TaskTracker::new(),
            services: Vec::new(),
            parent_later: Vec::new(),
            routes: Routes::builder(),
        }
    }

    /// Adds a service. The limit for messages is a property of tonic's generated servers: set it there, from
    /// [`ServeArgs::max_message_bytes`].
    #[expect(clippy::should_implement_trait, reason = "adding to a builder, not arithmetic")]
    pub fn add<S>(mut self, service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.services.push(S::NAME);
        self.routes.add_service(service);
        self
    }

    /// Names a method, by its path, whose first message may name the parent of the call's span. When the metadata names
    /// none, its handler finds the span as [`Unparented`](crate::trace::Unparented) among the request's extensions.
    pub fn parent_in_first_message(mut self, path: &'static str) -> Self {
        self.parent_later.push(path);
        self
    }

    /// Has the drain wait for these tasks too. The tracker is closed when the drain starts; tasks may still be added
    /// then.
    pub fn tasks(mut self, tasks: TaskTracker) -> Self {
        self.tasks = tasks;
        self
    }

    /// Serves until told to shut down, and to the end of the drain.
    ///
    /// # Errors
    ///
    /// When the listener may not be used like this, or serving fails.
    pub async fn serve(self, listener: TcpListener) -> Result<Drained, Error> {
        let Self { args, shutdown, tasks, services, parent_later, mut routes } = self;
        let address = listener.local_addr().map_err(Error::Listener)?;
        args.check_address(address)?;
        let tls = tls::Tls::from_args(&args)?;

        let health = HealthReporter::new();
        for name in &services {
            health.set_service_status(name, ServingStatus::Serving).await;
        }
        routes.add_service(tonic_health::pb::health_server::HealthServer::new(
            tonic_health::server::HealthService::from_health_reporter(health.clone()),
        ));
        routes.add_service(reflection(&services).build_v1().map_err(Error::Reflection)?);
        routes.add_service(reflection(&services).build_v1alpha().map_err(Error::Reflection)?);

        let watch = Arc::new(Watch {
            services,
            parent_later,
            shutdown,
            calls: TaskTracker::new(),
            closing: CancellationToken::new(),
            max_message_bytes: args.max_message_bytes(),
        });
        let mut server = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(PING_EVERY))
            .http2_keepalive_timeout(Some(PING_ANSWER))
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS))
            // Outermost first: the span also covers what the guard refuses.
            .layer(TraceLayer(Arc::clone(&watch)))
            .layer(GuardLayer(Arc::clone(&watch)));
        let router = server.add_routes(routes.routes());
        let closing = watch.closing.clone().cancelled_owned();

        tracing::info!(%address, tls = tls.is_some(), "listening");
        let drain = Drain { watch, health, tasks, grace: args.grace_period() };
        match tls {
            None => {
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                drain.conduct(router.serve_with_incoming_shutdown(incoming, closing)).await
            }
            Some(tls) => drain.conduct(router.serve_with_incoming_shutdown(tls.incoming(listener), closing)).await,
        }
    }
}

/// Describes what is served, and nothing else: the descriptors hold the other program's services too.
fn reflection<'a>(services: &[&'static str]) -> tonic_reflection::server::Builder<'a> {
    let builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(switchyard_proto::FILE_DESCRIPTOR_SET)
        // The details of our statuses: grpcurl shows what it can look up.
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name("grpc.health.v1.Health")
        .with_service_name("grpc.reflection.v1.ServerReflection")
        .with_service_name("grpc.reflection.v1alpha.ServerReflection");
    services.iter().fold(builder, |builder, name| builder.with_service_name(*name))
}

/// What it takes to bring a server down.
struct Drain {
    watch: Arc<Watch>,
    health: HealthReporter,
    tasks: TaskTracker,
    grace: Duration,
}

impl Drain {
    /// Runs `server`, and its drain once that begins.
    async fn conduct(
        self,
        server: impl Future<Output = Result<(), tonic::transport::Error>>,
    ) -> Result<Drained, Error> {
        tokio::pin!(server);
        let drained = tokio::select! {
            // First, for an end that nobody asked for is an error whatever else is going on.
            biased;
            ended = &mut server => return Err(ended.map_or_else(Error::Transport, |()| Error::Ended)),
            drained = self.until_quiet() => drained,
        };
        self.watch.closing.cancel();
        let closing = if drained == Drained::Aborted { LAST_WORDS / 2 } else { CLOSING };
        if tokio::time::timeout(closing, server).await.is_err() {
            tracing::info!("dropping connections that stay open");
        }
        tracing::info!(outcome = ?drained, "drained");
        Ok(drained)
    }

    /// Waits for the drain to begin, and then until nothing is left to wait for or no time is left.
    async fn until_quiet(&self) -> Drained {
        let Self { watch, health, tasks, grace } = self;
        watch.shutdown.draining().await;
        let last = (*grace / LAST_CALL_SHARE).min(LONGEST_LAST_CALL);
        let last_call = Instant::now() + (*grace - last);
        for name in watch.services.iter().copied().chain([""]) {
            health.set_service_status(name, ServingStatus::NotServing).await;
        }
        watch.calls.close();
        tasks.close();
        tracing::info!(calls = watch.calls.len(), tasks = tasks.len(), grace = ?grace, "draining");
        let (drained, left) = tokio::select! {
            // Quiet wins over a signal or deadline of the same moment; a signal wins over the deadline.
            biased;
            () = self.quiet() => return Drained::Clean,
            () = watch.shutdown.aborted() => (Drained::Aborted, LAST_WORDS),
            () = tokio::time::sleep_until(last_call) => (Drained::Cut, last),
        };
        tracing::warn!(calls = watch.calls.len(), tasks = tasks.len(), left = ?left, "what is left is not waited for");
        watch.shutdown.call_last(left);
        tokio::select! {
            biased;
            () = self.quiet() => drained,
            () = watch.shutdown.aborted(), if drained != Drained::Aborted => {
                tokio::time::timeout(LAST_WORDS, self.quiet()).await.ok();
                Drained::Aborted
            }
            () = tokio::time::sleep(left) => {
                tracing::warn!(calls = watch.calls.len(), tasks = tasks.len(), "the grace period is over");
                drained
            }
        }
    }

    /// Waits until no call and no task is left.
    async fn quiet(&self) {
        futures::future::join(self.watch.calls.wait(), self.tasks.wait()).await;
    }
}
