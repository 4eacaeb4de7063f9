//! Logs and traces: set up once by [`init`], shut down once by the [`Guard`].
//!
//! Traces are configured by the standard `OTEL_*` variables and nothing else. Without an endpoint nothing is exported,
//! but calls and runs still have ids: a `traceparent` that comes in is continued, and what goes out can be joined by others. It is
//! marked as sampled only if a caller says that somebody records it: an API server makes spans of its own for what is sampled,
//! which costs it a tenth of a write.
//!
//! Spans of which there are many (steps, requests) are of level DEBUG. They are made when they are exported or when `--log`
//! asks for them; otherwise nobody would see them, and making them is a fifth of what a component costs.

mod context;
mod exporter;
mod fields;
mod line;
pub(crate) mod lines;
pub(crate) mod lost;
mod quiet;
mod settings;

use std::{
    io::{self, IsTerminal},
    sync::{LazyLock, OnceLock},
    time::Duration,
};

use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider},
};
use tracing::{Level, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, registry::LookupSpan, util::SubscriberInitExt};

use crate::{
    attributes,
    config::{LogFormat, Program, ServeArgs},
};

use self::line::WithTrace;
pub(crate) use context::set_parent;
pub use context::{
    Place, inject, inject_metadata, place_of, set_parent_from_metadata, set_parent_from_plan, trace_id_of,
    traceparent_for_plan, traceparent_of,
};

/// How long the last spans may take to leave.
pub const FLUSH_LIMIT: Duration = Duration::from_secs(3);

/// What does not go into traces. The exporter speaks gRPC itself: with its own libraries let in it would export its own
/// exporting, for ever.
const UNTRACED: [&str; 6] = ["h2", "hyper", "hyper_util", "tonic", "tower", "opentelemetry"];

/// Whether spans leave this process. Where nobody has set that up, as in tests, they are taken to.
static EXPORTS: OnceLock<bool> = OnceLock::new();

/// This process, in traces and in metrics.
static INSTANCE: LazyLock<uuid::Uuid> = LazyLock::new(uuid::Uuid::new_v4);

fn exports() -> bool {
    EXPORTS.get().copied().unwrap_or(true)
}

/// Owns the tracer provider. Whoever holds it calls [`shutdown`](Self::shutdown) last, on every way out.
#[derive(Debug)]
#[must_use = "spans are lost unless it is shut down"]
pub struct Guard {
    provider: SdkTracerProvider,
}

/// Sets up logs and traces for the process. Has to be called inside a tokio runtime, which then carries the exporter.
///
/// A process has one subscriber: when there is one already, as between tests, it stays.
pub fn init(program: &Program, args: &ServeArgs) -> Guard {
    let (exporter, trouble) = match exporter::from_environment() {
        Ok(exporter) => (exporter, None),
        Err(trouble) => (None, Some(trouble)),
    };
    let exporting = exporter.is_some();
    let provider = SdkTracerProvider::builder().with_resource(resource(program));
    let provider = match exporter {
        Some(exporter) => provider.with_span_processor(lost::batches(exporter)),
        None => provider.with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOff))),
    };
    let provider = provider.build();

    let logs = logs(args).with_filter(quiet::Quiet::new(args.log.to_env_filter()));
    EXPORTS.get_or_init(|| exporting);
    let spans = if exporting { Level::DEBUG } else { Level::INFO };
    let installed = tracing_subscriber::registry().with(logs).with(layer(&provider, spans)).try_init();
    let unusable = settings::troubles(exporter::read);
    match trouble {
        _ if installed.is_err() => {}
        Some(trouble) => tracing::warn!(%trouble, "traces are not exported"),
        None => tracing::debug!(exporting, "telemetry is set up"),
    }
    if installed.is_ok() && exporting {
        unusable.iter().for_each(|trouble| tracing::warn!("{trouble}"));
    }
    Guard { provider }
}

/// Makes the layer that turns spans into OpenTelemetry's, with its own filter: of this product's, those up to level `spans`. Tests put
/// it over a provider of their own.
pub fn layer<S>(provider: &SdkTracerProvider, spans: Level) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("switchyard"))
        // Thread names and idle times say nothing about tasks, and source paths nothing to an operator.
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_location(false)
        .with_filter(traced(spans))
}

fn traced(spans: Level) -> Targets {
    Targets::new()
        .with_default(Level::INFO)
        .with_target("switchyard", spans)
        .with_targets(UNTRACED.map(|target| (target, LevelFilter::OFF)))
}

impl Guard {
    /// Sends what is left and stops, within [`FLUSH_LIMIT`].
    pub async fn shutdown(self) {
        let Self { provider } = self;
        // The provider blocks its thread until the exporter is done, and the exporter needs the runtime's threads: on
        // one of these both would wait until the time is over, and the spans would be lost.
        let flush = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_LIMIT));
        match tokio::time::timeout(FLUSH_LIMIT, flush).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the last spans may be lost"),
            Ok(Err(_)) | Err(_) => tracing::warn!("the last spans are lost: they did not leave in time"),
        }
        // It waits for somebody who reads, which may be the runtime that this one is on.
        tokio::task::spawn_blocking(lines::flush).await.ok();
    }
}

fn logs<S>(args: &ServeArgs) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let terminal = io::stderr().is_terminal();
    let format = args.log_format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json });
    let layer = tracing_subscriber::fmt::layer().with_writer(lines::ToLines);
    match format {
        LogFormat::Text => {
            let format = tracing_subscriber::fmt::format().with_ansi(terminal);
            layer.with_ansi(terminal).event_format(WithTrace::text(format)).boxed()
        }
        LogFormat::Json => {
            let format = tracing_subscriber::fmt::format().json().flatten_event(true);
            let format = format.with_current_span(true).with_span_list(false);
            layer.event_format(WithTrace::json(format)).fmt_fields(fields::Appended).boxed()
        }
    }
}

pub(crate) fn resource(program: &Program) -> Resource {
    let Program { name, version, listen: _ } = *program;
    let unset = |variable| std::env::var_os(variable).is_none_or(|value| value.is_empty());
    let given = |key: &str| {
        std::env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|list| {
            list.split(',').any(|pair| pair.split_once('=').is_some_and(|(name, _)| name.trim() == key))
        })
    };
    // What is set in code wins over the environment, so only what the environment leaves open is set.
    let defaults = [
        (attributes::SERVICE_NAME, unset("OTEL_SERVICE_NAME"), name.to_owned()),
        (attributes::SERVICE_VERSION, true, version.to_owned()),
        (attributes::SERVICE_INSTANCE_ID, true, INSTANCE.to_string()),
    ];
    let defaults = defaults.into_iter().filter(|(key, open, _)| *open && !given(key));
    Resource::builder().with_attributes(defaults.map(|(key, _, value)| KeyValue::new(key, value))).build()
}
