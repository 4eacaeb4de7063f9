//! Traces as Jaeger returns them, made easy to ask about and to look at.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

use anyhow::Context as _;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

mod wire;

/// The spans of one trace, earliest first.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// The spans.
    pub spans: Vec<Span>,
}

/// One span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The trace, in hex.
    pub trace_id: String,
    /// The span, in hex.
    pub id: String,
    /// The span that caused it, in hex; it need not be in the trace.
    pub parent: Option<String>,
    /// `service.name` of the program that sent it.
    pub service: String,
    /// What was done.
    pub name: String,
    /// When it began, in nanoseconds since 1970.
    pub start: u64,
    /// When it ended, in nanoseconds since 1970.
    pub end: u64,
    /// The attributes; values that are not strings as their JSON text.
    pub attributes: BTreeMap<String, String>,
    /// The types of the attributes' values as OTLP's JSON names them: `stringValue`, `intValue`, …
    pub kinds: BTreeMap<String, String>,
    /// The message, if the span's status is an error.
    pub error: Option<String>,
    /// Spans elsewhere that it points to.
    pub links: Vec<Link>,
    /// What happened during the span; log lines become such events.
    pub events: Vec<SpanEvent>,
}

/// A pointer to a span, usually of another trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The trace, in hex.
    pub trace_id: String,
    /// The span, in hex.
    pub span_id: String,
}

/// Something that happened during a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanEvent {
    /// What happened.
    pub name: String,
    /// The attributes, as those of spans.
    pub attributes: BTreeMap<String, String>,
}

impl Span {
    /// Returns how long it took.
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.end.saturating_sub(self.start))
    }

    /// Returns an attribute.
    pub fn attribute(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }
}

impl Trace {
    /// Reads the answer of `/api/v3/traces/{id}`.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut spans = Vec::new();
        // Streamed: a large trace comes as several documents, one after another.
        for answer in serde_json::Deserializer::from_str(text).into_iter::<wire::Answer>() {
            let wire::Answer { result } = answer.context("not a trace as Jaeger writes it")?;
            for resource in result.resource_spans {
                let attributes = map(resource.resource.attributes);
                let service = attributes.get("service.name").cloned().unwrap_or_default();
                let wires = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                spans.extend(wires.map(|span| Span::from_wire(span, &service)));
            }
        }
        spans.sort_by_key(|span| span.start);
        Ok(Self { spans })
    }

    /// Returns the spans with this name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Span> {
        self.spans.iter().filter(move |span| span.name == name)
    }

    /// Returns the spans of this service.
    pub fn of<'a>(&'a self, service: &'a str) -> impl Iterator<Item = &'a Span> {
        self.spans.iter().filter(move |span| span.service == service)
    }

    /// Returns the names of the services that took part.
    pub fn services(&self) -> BTreeSet<&str> {
        self.spans.iter().map(|span| span.service.as_str()).collect()
    }

    /// Returns the spans directly below one.
    pub fn children<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Span> {
        self.spans.iter().filter(move |span| span.parent.as_deref() == Some(id))
    }

    /// Returns the spans whose parent is not in the trace.
    pub fn roots(&self) -> impl Iterator<Item = &Span> {
        let ids: BTreeSet<&str> = self.spans.iter().map(|span| span.id.as_str()).collect();
        self.spans.iter().filter(move |span| span.parent.as_deref().is_none_or(|parent| !ids.contains(parent)))
    }

    /// Tells whether `ancestor` is above `span`, however far.
    pub fn is_below(&self, span: &Span, ancestor: &Span) -> bool {
        let mut at = span;
        // A cycle cannot be longer than the trace.
        for _ in 0..self.spans.len() {
            let Some(parent) = at.parent.as_deref() else { return false };
            if parent == ancestor.id {
                return true;
            }
            let Some(next) = self.spans.iter().find(|one| one.id == parent) else { return false };
            at = next;
        }
        false
    }

    /// Draws the trace as a tree: durations, services and names, children below their parents in order of time.
    pub fn tree(&self) -> String {
        let mut below: BTreeMap<&str, Vec<&Span>> = BTreeMap::new();
        for span in &self.spans {
            below.entry(span.parent.as_deref().unwrap_or_default()).or_default().push(span);
        }
        let mut text = String::new();
        let roots: Vec<&Span> = self.roots().collect();
        // With the lines that are drawn before it: what is to be drawn next is last.
        let mut todo: Vec<(&Span, String, &str)> =
            roots.into_iter().rev().map(|span| (span, String::new(), "")).collect();
        while let Some((span, indent, branch)) = todo.pop() {
            let mark = span.error.as_ref().map_or_else(String::new, |error| format!("  !! {error}"));
            let duration = format!("{:.1?}", span.duration());
            writeln!(text, "{duration:>9}  {indent}{branch}{}: {}{mark}", span.service, span.name).ok();
            let children = below.remove(span.id.as_str()).unwrap_or_default();
            let indent = match branch {
                "" => indent,
                "└ " => indent + "  ",
                _ => indent + "│ ",
            };
            let last = children.len().saturating_sub(1);
            todo.extend(
                children
                    .into_iter()
                    .enumerate()
                    .rev()
                    .map(|(index, child)| (child, indent.clone(), if index == last { "└ " } else { "├ " })),
            );
        }
        text
    }
}

impl Span {
    fn from_wire(span: wire::Span, service: &str) -> Self {
        let links = span.links.into_iter();
        let events = span.events.into_iter();
        let failed = match &span.status.code {
            Value::String(code) => code == "STATUS_CODE_ERROR",
            code => *code == 2,
        };
        Self {
            trace_id: hex_id(&span.trace_id),
            id: hex_id(&span.span_id),
            parent: Some(hex_id(&span.parent_span_id)).filter(|id| !id.is_empty()),
            service: service.to_owned(),
            name: span.name,
            start: nanos(&span.start_time_unix_nano),
            end: nanos(&span.end_time_unix_nano),
            kinds: kinds(&span.attributes),
            attributes: map(span.attributes),
            error: failed.then_some(span.status.message),
            links: links.map(|l| Link { trace_id: hex_id(&l.trace_id), span_id: hex_id(&l.span_id) }).collect(),
            events: events.map(|e| SpanEvent { name: e.name, attributes: map(e.attributes) }).collect(),
        }
    }
}

/// OTLP's JSON writes ids in hex, protobuf's own JSON in base64; which one comes depends on Jaeger's version.
fn hex_id(id: &str) -> String {
    let is_hex = matches!(id.len(), 0 | 16 | 32) && id.chars().all(|c| c.is_ascii_hexdigit());
    match BASE64_STANDARD.decode(id) {
        Ok(bytes) if !is_hex => hex::encode(bytes),
        _ => id.to_lowercase(),
    }
}

fn nanos(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_default()
}

fn kinds(attributes: &[wire::KeyValue]) -> BTreeMap<String, String> {
    let kind = |pair: &wire::KeyValue| pair.value.as_object().and_then(|of_type| of_type.keys().next().cloned());
    attributes.iter().map(|pair| (pair.key.clone(), kind(pair).unwrap_or_default())).collect()
}

fn map(attributes: Vec<wire::KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Value| match value {
        // `{"stringValue": "…"}`, `{"intValue": "5"}`, `{"boolValue": true}` …
        Value::Object(of_type) => of_type.into_iter().next().map_or_else(String::new, |(_, value)| match value {
            Value::String(text) => text,
            other => other.to_string(),
        }),
        other => other.to_string(),
    };
    attributes.into_iter().map(|pair| (pair.key, text(pair.value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_drawn_as_a_tree() {
        let span = |id: &str, parent: &str, name: &str, start: u64| {
            serde_json::json!({
                "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": id, "parentSpanId": parent, "name": name,
                "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 1_500_000).to_string(),
                "status": if name == "c" { serde_json::json!({"code": 2, "message": "no"}) } else { Value::from(()) },
            })
        };
        let mut spans = vec![
            span("00000000000000a1", "00000000000000ff", "a", 1),
            span("00000000000000b1", "00000000000000a1", "b", 2),
            span("00000000000000c1", "00000000000000b1", "c", 3),
            span("00000000000000d1", "00000000000000a1", "d", 4),
        ];
        spans.iter_mut().for_each(|span| {
            let map = span.as_object_mut().unwrap();
            map.retain(|_, value| !value.is_null());
        });
        let resource = serde_json::json!({"attributes": [{"key": "service.name", "value": {"stringValue": "s"}}]});
        let answer = serde_json::json!({"result": {"resourceSpans": [
            {"resource": resource, "scopeSpans": [{"spans": spans}]}
        ]}});
        let trace = Trace::parse(&answer.to_string()).unwrap();
        let expected = "    1.5ms  s: a\n    1.5ms  ├ s: b\n    1.5ms  │ └ s: c  !! no\n    1.5ms  └ s: d\n";
        assert_eq!(trace.tree(), expected);
        assert!(trace.is_below(&trace.spans[2], &trace.spans[0]));
        assert!(!trace.is_below(&trace.spans[3], &trace.spans[1]));
    }
}
