//! The fields of spans as log lines in JSON need them.
//!
//! Every span of a step or a request has its fields written, and hardly one is ever seen in a log line. The library sorts them in
//! a map of JSON values first, and reads all of them back when one is recorded later (an outcome, a status): a sixth of what the
//! executor computed for a component. Here they are written once, as they come.

use std::{cell::Cell, fmt};

use serde::{Serialize, Serializer};
use tracing::{
    field::{Field, Visit},
    span::Record,
};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{FormatFields, FormattedFields, format::Writer},
};

thread_local! {
    /// Where fields are put together, so that a span allocates once and not each time that its text grows.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Writes fields as a JSON object and adds later ones at its end. A field that is recorded twice is there twice; readers take
/// the last.
#[derive(Debug, Default)]
pub(super) struct Appended;

impl<'writer> FormatFields<'writer> for Appended {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        write(&mut writer, "{", fields)
    }

    fn add_fields(&self, current: &'writer mut FormattedFields<Self>, fields: &Record<'_>) -> fmt::Result {
        let object = &mut current.fields;
        object.pop();
        let before = match object.as_str() {
            "" => "{",
            "{" => "",
            _ => ",",
        };
        write(object, before, fields)
    }
}

/// Writes `before`, the fields as members of an object, and the end of the object.
fn write(into: &mut dyn fmt::Write, before: &str, fields: impl RecordFields) -> fmt::Result {
    // Taken and not borrowed: showing a value may open a span of its own.
    let mut text = SCRATCH.take();
    text.clear();
    text.extend_from_slice(before.as_bytes());
    let mut members = Members { text, first: true, result: Ok(()) };
    fields.record(&mut members);
    let Members { mut text, result, .. } = members;
    text.push(b'}');
    let written = str::from_utf8(&text).map_err(|_| fmt::Error).and_then(|text| into.write_str(text));
    SCRATCH.set(text);
    result.and(written)
}

struct Members {
    text: Vec<u8>,
    first: bool,
    result: fmt::Result,
}

impl Members {
    fn member(&mut self, field: &Field, value: impl Serialize) {
        let name = field.name();
        let name = name.strip_prefix("r#").unwrap_or(name);
        if !std::mem::take(&mut self.first) {
            self.text.push(b',');
        }
        let named = serde_json::to_writer(&mut self.text, name);
        self.text.push(b':');
        let written = named.and_then(|()| serde_json::to_writer(&mut self.text, &value));
        self.result = self.result.and(written.map_err(|_| fmt::Error));
    }
}

impl Visit for Members {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.member(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.member(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.member(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.member(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.member(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.member(field, Shown(value));
    }
}

/// A value as the text that a person is shown.
struct Shown<'a>(&'a dyn fmt::Debug);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:?}", self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use serde_json::{Value, json};
    use tracing_subscriber::{Layer, Registry, layer::SubscriberExt, registry::LookupSpan};

    use super::*;

    /// Keeps the fields of the last span that was closed.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<String>>);

    impl<S: tracing::Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Kept {
        fn on_close(&self, id: tracing::span::Id, context: tracing_subscriber::layer::Context<'_, S>) {
            let span = context.span(&id).unwrap();
            let extensions = span.extensions();
            extensions.get::<FormattedFields<Appended>>().unwrap().fields.clone_into(&mut self.0.lock().unwrap());
        }
    }

    fn fields_of(make: impl FnOnce() -> tracing::Span) -> String {
        let kept = Kept::default();
        let logs = tracing_subscriber::fmt::layer().json().fmt_fields(Appended).with_writer(io::sink);
        // The first layer is the last to hear of an end.
        tracing::subscriber::with_default(Registry::default().with(kept.clone()).with(logs), || drop(make()));
        kept.0.lock().unwrap().split_off(0)
    }

    #[test]
    fn fields_of_all_types_are_a_json_object() {
        let fields = fields_of(|| {
            tracing::info_span!(
                "span",
                { "http.request.method" } = "PATCH",
                number = 7,
                negative = -7,
                part = 0.5,
                whole = true,
                r#type = "raw",
                shown = %"a \"quoted\" \\ line\nand \u{1} \u{e9}",
                debugged = ?Some("x"),
                later = tracing::field::Empty,
            )
        });
        let expected = json!({
            "http.request.method": "PATCH", "number": 7, "negative": -7, "part": 0.5, "whole": true, "type": "raw",
            "shown": "a \"quoted\" \\ line\nand \u{1} \u{e9}", "debugged": "Some(\"x\")",
        });
        assert_eq!(serde_json::from_str::<Value>(&fields).unwrap(), expected, "{fields}");
    }

    #[test]
    fn later_fields_follow_the_earlier_ones() {
        let later = |span: tracing::Span| {
            span.record("later", "}");
            span.record("last", 2);
            span
        };
        let fields = fields_of(|| {
            later(tracing::info_span!("span", a = 1, later = tracing::field::Empty, last = tracing::field::Empty))
        });
        assert_eq!(fields, r#"{"a":1,"later":"}","last":2}"#);
        let fields = fields_of(|| {
            later(tracing::info_span!("span", later = tracing::field::Empty, last = tracing::field::Empty))
        });
        assert_eq!(fields, r#"{"later":"}","last":2}"#);
        assert_eq!(fields_of(|| tracing::info_span!("span")), "{}");
    }
}
