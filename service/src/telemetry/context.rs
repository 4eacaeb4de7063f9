//! Carrying a trace across a process boundary: W3C `traceparent` in and out.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    Context,
    propagation::{Extractor, TextMapPropagator},
    trace::{SpanContext, TraceContextExt},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tonic::metadata::MetadataMap;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// Continues the trace named in `metadata`, if it names one. To be called before `span` is entered.
pub fn set_parent_from_metadata(span: &Span, metadata: &MetadataMap) {
    set_parent(span, metadata.as_ref());
}

/// Continues the trace that a plan's `traceparent` names. To be called before `span` is entered.
///
/// A malformed or empty one is no error: `span` then keeps the parent it has, or starts a trace. Whether the trace is recorded is
/// for this process to say, if it exports spans: a planner that exports none cannot tell.
pub fn set_parent_from_plan(span: &Span, traceparent: &str) {
    let traceparent = if super::exports() { Cow::Borrowed(traceparent) } else { marked(traceparent, "00") };
    let mut headers = HeaderMap::with_capacity(1);
    if let Ok(value) = HeaderValue::from_str(&traceparent) {
        headers.insert(HeaderName::from_static(TRACEPARENT), value);
    }
    set_parent(span, &headers);
}

/// Gives the `traceparent` by which whoever carries a plan out continues the current span, that of a call with this metadata. Whether
/// the trace is recorded is as the caller says; if it says nothing and spans are not exported here, that is left open.
pub fn traceparent_for_plan(metadata: &MetadataMap) -> Option<String> {
    let traceparent = traceparent_of(&Span::current())?;
    let settled = super::exports() || parent(metadata.as_ref()).is_some();
    Some(if settled { traceparent } else { marked(&traceparent, "01").into_owned() })
}

/// The same with other flags; what is not well formed stays as it is.
fn marked<'a>(traceparent: &'a str, flags: &str) -> Cow<'a, str> {
    match traceparent.rsplit_once('-') {
        Some((rest, _)) if is_well_formed(traceparent) => format!("{rest}-{flags}").into(),
        _ => traceparent.into(),
    }
}

/// Gives the `traceparent` that makes another program continue `span`. None when no subscriber traces it.
pub fn traceparent_of(span: &Span) -> Option<String> {
    span_context(span).map(|context| spelled(&context))
}

/// As `traceparent` spells it (W3C Trace Context, version 00).
fn spelled(context: &SpanContext) -> String {
    let flags = context.trace_flags().to_u8();
    format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id())
}

/// Where a span stands in its trace, for other spans to lead to after it has ended.
#[derive(Debug, Clone)]
pub struct Place(SpanContext);

/// Where `span` stands; None when nobody traces it.
pub fn place_of(span: &Span) -> Option<Place> {
    if span.is_disabled() { None } else { span_context(span).map(Place) }
}

impl Place {
    /// Has `span` link to this place.
    pub fn link(&self, span: &Span) {
        span.add_link(self.0.clone());
    }
}

/// Gives the id of the trace that `span` belongs to: 32 hex digits, also when nothing is exported.
pub fn trace_id_of(span: &Span) -> Option<String> {
    span_context(span).map(|context| context.trace_id().to_string())
}

/// Writes `traceparent` and `tracestate` into the headers of an outgoing call, so that it continues `span`, or the current span if
/// nobody wants to see `span`.
pub fn inject(span: &Span, headers: &mut HeaderMap) {
    let context = if span.is_disabled() { span_context(&Span::current()) } else { span_context(span) };
    let Some(context) = context else { return };
    let traceparent = HeaderValue::from_str(&spelled(&context)).expect("hex digits and dashes");
    headers.insert(HeaderName::from_static(TRACEPARENT), traceparent);
    let tracestate = context.trace_state().header();
    if !tracestate.is_empty()
        && let Ok(tracestate) = HeaderValue::from_str(&tracestate)
    {
        headers.insert(HeaderName::from_static(TRACESTATE), tracestate);
    }
}

/// Writes `traceparent` and `tracestate` into the metadata of an outgoing gRPC call, so that it continues `span`.
pub fn inject_metadata(span: &Span, metadata: &mut MetadataMap) {
    let mut headers = HeaderMap::with_capacity(2);
    inject(span, &mut headers);
    for (name, value) in &headers {
        if let (Ok(key), Ok(value)) = (
            tonic::metadata::AsciiMetadataKey::from_bytes(name.as_str().as_bytes()),
            tonic::metadata::AsciiMetadataValue::try_from(value.as_bytes()),
        ) {
            metadata.insert(key, value);
        }
    }
}

/// Continues the trace named in `headers`, and says whether they name one.
pub(crate) fn set_parent(span: &Span, headers: &HeaderMap) -> bool {
    let Some(parent) = parent(headers) else { return false };
    // It fails for a span that nobody traces, which then needs no parent, and for one that was entered before,
    // which the callers do not do.
    let _ = span.set_parent(parent);
    true
}

/// The place in a trace that `headers` name, if they name one.
fn parent(headers: &HeaderMap) -> Option<Context> {
    let named = headers.get(TRACEPARENT)?.to_str().ok()?;
    if !is_well_formed(named) {
        return None;
    }
    // The empty context, not the current one: an invalid header must not take its parent from whatever runs here.
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &HeadersRead(headers));
    context.span().span_context().is_valid().then_some(context)
}

/// Checks lengths and digits, which the propagator does not: it takes `00-1-1-1` for a parent.
fn is_well_formed(traceparent: &str) -> bool {
    let digits = |part: &str, length| {
        part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let parts: Vec<&str> = traceparent.splitn(5, '-').collect();
    match parts.as_slice() {
        [version, trace, span, flags, rest @ ..] => {
            digits(version, 2)
                && *version != "ff"
                && digits(trace, 32)
                && digits(span, 16)
                && digits(flags, 2)
                // Later versions may add parts; this one has none.
                && (rest.is_empty() || *version != "00")
        }
        _ => false,
    }
}

fn span_context(span: &Span) -> Option<SpanContext> {
    let context = span.context().span().span_context().clone();
    context.is_valid().then_some(context)
}

struct HeadersRead<'a>(&'a HeaderMap);

impl Extractor for HeadersRead<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT, TRACESTATE]
    }
}

#[cfg(test)]
mod tests {
    use super::{is_well_formed, marked};

    #[test]
    fn only_flags_are_marked() {
        let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(marked(traceparent, "00"), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
        for odd in ["", "nonsense", "00-1-1-01"] {
            assert_eq!(marked(odd, "00"), odd);
        }
    }

    #[test]
    fn only_whole_traceparents_are_taken() {
        assert!(is_well_formed("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
        assert!(is_well_formed("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"));
        for bad in [
            "",
            "00",
            "00-1-1-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert!(!is_well_formed(bad), "{bad}");
        }
    }
}
