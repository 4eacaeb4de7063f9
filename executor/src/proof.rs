//! Whether applying a manifest would change nothing, proven from the listed object alone (L4). Pure.
//!
//! What is proven is not written. The proof rests on what the API server itself keeps. The annotation [`APPLIED`] says which
//! manifest our last apply sent and under which schema, so that our managed-fields entry was that manifest's set of fields
//! then. The walk says that the entry still is that set, and that the object holds every value of it, every list in the
//! manifest's order. Then merging gives the object that is there, nothing is removed, nothing conflicts, and an API server
//! writes nothing. It is assumed that mutating admission gives the same answer twice.
//!
//! No schema is needed: `fieldsV1` shows by itself how fine each list and map is owned
//! (<https://kubernetes.io/docs/reference/using-api/server-side-apply/>). Nothing here recurses, however deep an object is. What
//! cannot be told is not proven, which costs one request and does no harm.

mod items;
mod stamp;
mod walk;

use serde_json::{Map, Value};

pub use self::stamp::{Stamp, Stamped};

/// The annotation that says what our last apply sent (L4).
pub const APPLIED: &str = "switchyard.dev/applied";
/// The annotation that says which components the object's one depends on, by id, with commas between (L6).
pub const DEPENDS_ON: &str = "switchyard.dev/depends-on";
/// The annotation that says which version of the design last changed the object (D11). It is no reason to write.
pub const DESIGN_VERSION: &str = "design.meshery.io/version";

/// What an object is held against.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The field manager that applies it.
    pub manager: &'a str,
    /// The manifest's apiVersion.
    pub api_version: &'a str,
    /// The manifest as it would be sent.
    pub stamped: &'a Stamped,
}

/// Why an object is not proven to be as its manifest says. Any of it means no more than that the manifest is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Unproven {
    /// It is being deleted.
    #[error("it is being deleted")]
    BeingDeleted,
    /// Not exactly one managed-fields entry is the applier's.
    #[error("not exactly one entry of its managed fields is ours")]
    NoEntry,
    /// Our entry is of another version of the kind.
    #[error("it was applied in another version")]
    OtherVersion,
    /// Its annotation does not name this manifest under this schema.
    #[error("it was applied from another manifest, or under another schema")]
    OtherManifest,
    /// Our entry is not the manifest's set of fields.
    #[error("others own some of its fields, or we own others")]
    Ownership,
    /// The object holds another value than the manifest, spelt otherwise included.
    #[error("a value differs")]
    Value,
    /// An item of a list is not there exactly once, or not in the manifest's order.
    #[error("a list differs")]
    Order,
    /// The manifest has a null or a float, whose merging depends on the schema.
    #[error("it has values that cannot be compared")]
    Incomparable,
    /// One of the parts is not of the form that is known here.
    #[error("its form is not known")]
    Form,
}

/// Proves that applying the manifest would leave `object`, as a LIST or GET gave it, as it is.
///
/// That it is the only item with its name, that nothing which it depends on was changed since the LIST, and, of a definition,
/// that it is served, is for the caller to see to.
///
/// # Errors
///
/// The first reason found why that is not proven.
pub fn prove(wanted: &Wanted<'_>, object: &Value) -> Result<(), Unproven> {
    let metadata = object.get("metadata").and_then(Value::as_object).ok_or(Unproven::Form)?;
    if metadata.get("deletionTimestamp").is_some_and(|it| !it.is_null()) {
        return Err(Unproven::BeingDeleted);
    }
    // First what most objects that have changed fail by, and what costs least.
    let applied = metadata.get("annotations").and_then(|annotations| annotations.get(APPLIED));
    if applied.and_then(Value::as_str) != Some(&wanted.stamped.digest) {
        return Err(Unproven::OtherManifest);
    }
    let fields = entry(metadata, wanted)?;
    let manifest: Value = serde_json::from_slice(&wanted.stamped.manifest).map_err(|_| Unproven::Form)?;
    walk::walk(&manifest, fields, object)
}

/// The fields of the one entry that is the applier's.
fn entry<'a>(metadata: &'a Map<String, Value>, wanted: &Wanted<'_>) -> Result<&'a Map<String, Value>, Unproven> {
    let entries = metadata.get("managedFields").and_then(Value::as_array).ok_or(Unproven::NoEntry)?;
    let says =
        |entry: &Value, key: &str, text: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default() == text;
    let is_ours = |entry: &&Value| {
        says(entry, "manager", wanted.manager) && says(entry, "operation", "Apply") && says(entry, "subresource", "")
    };
    let mut ours = entries.iter().filter(is_ours);
    let (Some(entry), None) = (ours.next(), ours.next()) else { return Err(Unproven::NoEntry) };
    if !says(entry, "apiVersion", wanted.api_version) {
        return Err(Unproven::OtherVersion);
    }
    let fields = entry.get("fieldsV1").and_then(Value::as_object);
    fields.filter(|_| says(entry, "fieldsType", "FieldsV1")).ok_or(Unproven::NoEntry)
}

#[cfg(test)]
mod tests;
