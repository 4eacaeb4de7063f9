//! The log filter: what `--log` says, and no more than one complaint of a kind a minute from the exporter.
//!
//! While a collector is down the exporter reports every batch it loses, one every few seconds. One line says as much. What is no
//! complaint is not counted, and one kind does not silence another (case 326).

use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use tracing::{Event, Level, Metadata, Subscriber, level_filters::LevelFilter, subscriber::Interest};
use tracing_subscriber::{
    EnvFilter,
    layer::{Context, Filter},
    registry::LookupSpan,
};

const INTERVAL: Duration = Duration::from_secs(60);

pub(super) struct Quiet {
    inner: EnvFilter,
    /// By kind, which is what the SDK names the event: a closed set.
    last: Mutex<HashMap<&'static str, Instant>>,
}

impl Quiet {
    pub(super) fn new(inner: EnvFilter) -> Self {
        Self { inner, last: Mutex::default() }
    }

    /// Says whether the exporter may complain now, and remembers that it has.
    fn may_complain(&self, kind: &'static str, now: Instant) -> bool {
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if last.get(kind).is_some_and(|last| now.duration_since(*last) < INTERVAL) {
            return false;
        }
        last.insert(kind, now);
        true
    }
}

/// Whether the exporter, or the SDK around it, says that something is wrong.
fn is_complaint(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("opentelemetry") && *metadata.level() <= Level::WARN
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
            && (!is_complaint(event.metadata()) || self.may_complain(event.metadata().name(), Instant::now()))
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
        assert!(quiet.may_complain("lost", start));
        assert!(!quiet.may_complain("lost", start + Duration::from_secs(59)));
        assert!(quiet.may_complain("lost", start + Duration::from_secs(60)));
    }

    /// Case 326: spans that are lost are told, whatever else the SDK has to say.
    #[test]
    fn one_kind_of_complaint_does_not_silence_another() {
        let quiet = Quiet::new(EnvFilter::new("info"));
        let start = Instant::now();
        assert!(quiet.may_complain("lost", start));
        assert!(quiet.may_complain("late", start));
    }
}
