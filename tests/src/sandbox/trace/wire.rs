//! The parts of OTLP's JSON that are read.

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
pub(super) struct Answer {
    pub(super) result: Result,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Result {
    #[serde(default)]
    pub(super) resource_spans: Vec<ResourceSpans>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceSpans {
    #[serde(default)]
    pub(super) resource: Resource,
    #[serde(default)]
    pub(super) scope_spans: Vec<ScopeSpans>,
}

#[derive(Deserialize, Default)]
pub(super) struct Resource {
    #[serde(default)]
    pub(super) attributes: Vec<KeyValue>,
}

#[derive(Deserialize)]
pub(super) struct ScopeSpans {
    #[serde(default)]
    pub(super) spans: Vec<Span>,
}

#[derive(Deserialize)]
pub(super) struct KeyValue {
    pub(super) key: String,
    #[serde(default)]
    pub(super) value: Value,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Span {
    pub(super) trace_id: String,
    pub(super) span_id: String,
    pub(super) parent_span_id: String,
    pub(super) name: String,
    pub(super) start_time_unix_nano: Value,
    pub(super) end_time_unix_nano: Value,
    pub(super) attributes: Vec<KeyValue>,
    pub(super) status: Status,
    pub(super) links: Vec<Link>,
    pub(super) events: Vec<Event>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Status {
    pub(super) code: Value,
    pub(super) message: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Link {
    pub(super) trace_id: String,
    pub(super) span_id: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) attributes: Vec<KeyValue>,
}
