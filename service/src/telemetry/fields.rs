//! The fields of spans as log lines in JSON need them.
//!
//! What the library does when a field is recorded later (an outcome, a status) is to read all fields of the span back from JSON
//! and to write them anew: a dozen allocations each time, for spans of which hardly one is ever seen in a log line.

use std::fmt;

use tracing::span::Record;
use tracing_subscriber::{
    field::RecordFields,
    fmt::{
        FormatFields, FormattedFields,
        format::{JsonFields, Writer},
    },
};

/// Writes fields as a JSON object and adds later ones at its end. A field that is recorded twice is there twice; readers take
/// the last.
#[derive(Debug, Default)]
pub(super) struct Appended;

impl<'writer> FormatFields<'writer> for Appended {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        JsonFields::new().format_fields(writer, fields)
    }

    fn add_fields(&self, current: &'writer mut FormattedFields<Self>, fields: &Record<'_>) -> fmt::Result {
        let mut later = String::new();
        JsonFields::new().format_fields(Writer::new(&mut later), fields)?;
        append(&mut current.fields, &later);
        Ok(())
    }
}

/// Adds the members of one object to another.
fn append(object: &mut String, later: &str) {
    let members = later.strip_prefix('{').unwrap_or_default();
    match object.strip_suffix('}').map(str::len) {
        _ if members.is_empty() || members == "}" => {}
        Some(length) if length > 1 => {
            object.truncate(length);
            object.push(',');
            object.push_str(members);
        }
        _ => later.clone_into(object),
    }
}

#[cfg(test)]
mod tests {
    use super::append;

    #[test]
    fn later_members_follow_the_earlier_ones() {
        let appended = |object: &str, later| {
            let mut object = object.to_owned();
            append(&mut object, later);
            object
        };
        assert_eq!(appended(r#"{"a":1}"#, r#"{"b":"}"}"#), r#"{"a":1,"b":"}"}"#);
        assert_eq!(appended("{}", r#"{"b":2}"#), r#"{"b":2}"#);
        assert_eq!(appended("", r#"{"b":2}"#), r#"{"b":2}"#);
        assert_eq!(appended(r#"{"a":1}"#, "{}"), r#"{"a":1}"#);
    }
}
