//! A log line with the ids of the trace and the span that it belongs to (case 328).

use std::fmt;

use opentelemetry::{Context, trace::TraceContextExt};
use tracing::{Event, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// Adds `trace_id` and `span_id` to what `inner` writes.
pub(super) struct WithTrace<F> {
    inner: F,
    is_json: bool,
}

impl<F> WithTrace<F> {
    /// Around a format that writes one JSON object a line.
    pub(super) fn json(inner: F) -> Self {
        Self { inner, is_json: true }
    }

    /// Around a format that writes text.
    pub(super) fn text(inner: F) -> Self {
        Self { inner, is_json: false }
    }
}

impl<S, N, F> FormatEvent<S, N> for WithTrace<F>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        // The layer that traces makes each span that is entered the current one.
        let span = Context::map_current(|current| current.span().span_context().clone());
        if !span.is_valid() {
            return self.inner.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        let (trace_id, span_id) = (span.trace_id(), span.span_id());
        match line.trim_end().strip_suffix('}') {
            Some(object) if self.is_json => {
                writeln!(writer, r#"{object},"trace_id":"{trace_id}","span_id":"{span_id}"}}"#)
            }
            _ => writeln!(writer, "{} trace_id={trace_id} span_id={span_id}", line.trim_end()),
        }
    }
}
