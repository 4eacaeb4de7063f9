//! The log filter: what `--log` says, and no more than one complaint a minute from the exporter.
//!
//! While a collector is down the exporter reports every batch it loses, one every few seconds. One line says as much.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use tracing::{Event, Metadata, Subscriber, level_filters::LevelFilter, subscriber::Interest};
use tracing_subscriber::{
    EnvFilter,
    layer::{Context, Filter},
    registry::LookupSpan,
};

const INTERVAL: Duration = Duration::from_secs(60);

pub(super) struct Quiet {
    inner: EnvFilter,
    last: Mutex<Option<Instant>>,
}

impl Quiet {
    pub(super) fn new(inner: EnvFilter) -> Self {
        Self { inner, last: Mutex::new(None) }
    }

    /// Says whether the exporter may complain now, and remembers that it has.
    fn may_complain(&self, now: Instant) -> bool {
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if last.is_some_and(|last| now.duration_since(last) < INTERVAL) {
            return false;
        }
        *last = Some(now);
        true
    }
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Filter<S> for Quiet {
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        Filter::enabled(&self.inner, metadata, context)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        Filter::<S>::callsite_enabled(&self.inner, metadata)
    }

    fn event_enabled(&self, event: &Event<'_>, context: &Context<'_, S>) -> bool {
        Filter::event_enabled(&self.inner, event, context)
            && (!event.metadata().target().starts_with("opentelemetry") || self.may_complain(Instant::now()))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Filter::<S>::max_level_hint(&self.inner)
    }

    fn on_new_span(&self, attributes: &tracing::span::Attributes<'_>, id: &tracing::span::Id, context: Context<'_, S>) {
        Filter::on_new_span(&self.inner, attributes, id, context);
    }

    fn on_record(&self, id: &tracing::span::Id, values: &tracing::span::Record<'_>, context: Context<'_, S>) {
        Filter::on_record(&self.inner, id, values, context);
    }

    fn on_enter(&self, id: &tracing::span::Id, context: Context<'_, S>) {
        Filter::on_enter(&self.inner, id, context);
    }

    fn on_exit(&self, id: &tracing::span::Id, context: Context<'_, S>) {
        Filter::on_exit(&self.inner, id, context);
    }

    fn on_close(&self, id: tracing::span::Id, context: Context<'_, S>) {
        Filter::on_close(&self.inner, id, context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exporter_complains_once_a_minute() {
        let quiet = Quiet::new(EnvFilter::new("info"));
        let start = Instant::now();
        assert!(quiet.may_complain(start));
        assert!(!quiet.may_complain(start + Duration::from_secs(59)));
        assert!(quiet.may_complain(start + Duration::from_secs(60)));
    }
}
