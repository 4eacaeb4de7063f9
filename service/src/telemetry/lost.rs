//! Spans that do not arrive: told in the log and counted (case 326).
//!
//! The SDK's queue drops what finds no room, says so once, and counts for itself alone. Here the room is looked at before, by the same
//! bound, so that the SDK has nothing to drop.

use std::{
    env,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use opentelemetry::{Context, KeyValue, global, metrics::Counter};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor},
};

use crate::attributes::METER;

/// Spans that wait to be exported, unless `OTEL_BSP_MAX_QUEUE_SIZE` says otherwise: all that one failure may withhold end at once.
const MOST: usize = 16 * 1024;

static LOST: LazyLock<Counter<u64>> = LazyLock::new(|| {
    global::meter(METER)
        .u64_counter("switchyard.telemetry.spans.lost")
        .with_description("Spans that were not exported, by why")
        .build()
});

const REASONS: [&str; 2] = ["queue_full", "export_failed"];

/// Shows the counters before there is anything to count.
pub(crate) fn show() {
    REASONS.iter().for_each(|reason| lost(reason, 0));
}

fn lost(reason: &'static str, spans: usize) {
    LOST.add(spans as u64, &[KeyValue::new("reason", reason)]);
}

/// Hands spans to `exporter` in batches.
pub(super) fn batches<E: SpanExporter + 'static>(exporter: E) -> impl SpanProcessor + 'static {
    let most = env::var("OTEL_BSP_MAX_QUEUE_SIZE").ok().and_then(|size| size.trim().parse().ok()).unwrap_or(MOST);
    let queued = Arc::new(AtomicUsize::new(0));
    let config = BatchConfigBuilder::default().with_max_queue_size(most).build();
    let exporter = Counted { inner: exporter, queued: queued.clone() };
    let inner = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
    Bounded { inner, queued, most }
}

#[derive(Debug)]
struct Counted<E> {
    inner: E,
    queued: Arc<AtomicUsize>,
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.queued.fetch_sub(spans, Ordering::Relaxed);
        let exported = self.inner.export(batch).await;
        if exported.is_err() {
            lost(REASONS[1], spans);
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[derive(Debug)]
struct Bounded {
    inner: BatchSpanProcessor,
    queued: Arc<AtomicUsize>,
    most: usize,
}

impl SpanProcessor for Bounded {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        if self.queued.fetch_add(1, Ordering::Relaxed) < self.most {
            return self.inner.on_end(span);
        }
        self.queued.fetch_sub(1, Ordering::Relaxed);
        lost(REASONS[0], 1);
        // The target is one whose complaints are rationed.
        tracing::warn!(
            name: "queue full",
            target: "opentelemetry_queue",
            most = self.most,
            "spans are lost: more end than can be exported (OTEL_BSP_MAX_QUEUE_SIZE)"
        );
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
