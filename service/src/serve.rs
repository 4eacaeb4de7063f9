//! Serving gRPC from the first call to the end of the drain.
//!
//! The drain has three steps. On the first signal the server turns not ready and refuses new work, but goes on
//! answering, so that probes and callers are told so rather than left with a closed port. Shortly before the grace period is
//! over comes the last call: what has not ended says how far it came. When no call and no task is left, or the time is over,
//! whatever is still open (probes that watch, streams that did not end) is ended with UNAVAILABLE and the port is closed.
//! Connections that do not go away by themselves are then dropped: they would be waited for for ever.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{Request, Response};
use tokio::{net::TcpListener, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{
    body::Body,
    server::NamedService,
    service::{Routes, RoutesBuilder},
};
use tonic_health::{ServingStatus, server::HealthReporter};
use tower::{Service, ServiceBuilder};

use crate::{
    budget::Budget,
    config::{self, ServeArgs},
    connection::{self, Bounds},
    guard::{GuardLayer, Watch},
    shutdown::{LAST_WORDS, Shutdown},
    status::chain,
    tls,
    trace::TraceLayer,
    web::WebLayer,
};

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
    #[error("{flag}: {why}")]
    Tls {
        /// The flag that names the file.
        flag: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The listener is broken.
    #[error("could not use the open port")]
    Listener(#[source] std::io::Error),
    /// The descriptors that were compiled in cannot be read.
    #[error("could not set up reflection")]
    Reflection(#[source] tonic_reflection::server::Error),
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
    to_the_end: Vec<&'static str>,
    routes: RoutesBuilder,
    budget: Budget,
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
            to_the_end: Vec::new(),
            routes: Routes::builder(),
            budget: Budget::new(args.max_held_bytes.bytes()),
        }
    }

    /// The budget of all requests, of which the server counts what comes in. Services count in it what they keep.
    pub fn budget(&self) -> Budget {
        self.budget.clone()
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

    /// Names a method, by its path, that is served while the server drains too (case 332).
    pub fn to_the_end(mut self, path: &'static str) -> Self {
        self.to_the_end.push(path);
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
        let Self { args, shutdown, tasks, services, parent_later, to_the_end, mut routes, budget } = self;
        let address = listener.local_addr().map_err(Error::Listener)?;
        args.check_address(address)?;
        let tls =
            tls::Tls::from_args(&args).map_err(|error| Error::Tls { flag: error.flag(&args), why: chain(&error) })?;

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
            to_the_end,
            shutdown,
            calls: TaskTracker::new(),
            closing: CancellationToken::new(),
            max_message_bytes: args.max_message_bytes(),
            budget,
        });
        let service = ServiceBuilder::new()
            // Outermost first: what comes in gRPC-Web is gRPC from there on, and the span also covers what the guard refuses.
            .layer(WebLayer::new(&args.grpc_web_origins))
            .layer(TraceLayer(Arc::clone(&watch)))
            .layer(GuardLayer(Arc::clone(&watch)))
            .service(routes.routes().prepare());

        tracing::info!(%address, tls = tls.is_some(), "listening");
        let serving = connection::serve(listener, tls, service, Bounds::from_args(&args), watch.closing.clone());
        Drain { watch, health, tasks, grace: args.grace_period() }.conduct(serving).await
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
    async fn conduct(self, server: impl Future<Output = ()>) -> Result<Drained, Error> {
        tokio::pin!(server);
        let drained = tokio::select! {
            // First, for an end that nobody asked for is an error whatever else is going on.
            biased;
            () = &mut server => return Err(Error::Ended),
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
            // A signal comes first: it makes the last call by itself, at which everything falls quiet without having been waited
            // for. Quiet wins over the deadline of the same moment.
            biased;
            () = watch.shutdown.aborted() => (Drained::Aborted, LAST_WORDS),
            () = self.quiet() => return Drained::Clean,
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
