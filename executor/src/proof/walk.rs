//! Walks manifest, managed-fields entry and object together.

use serde_json::{Map, Value};

use super::{DESIGN_VERSION, Unproven, items};

/// Our members of the set below some field, as `fieldsV1` has them: `f:name`, `k:{key}`, `v:value`, and `.` for the field itself.
pub(super) type Fields = Map<String, Value>;

/// The field itself is a member.
pub(super) const ITSELF: &str = ".";

/// What the API server takes out of every entry: what an object is and is called.
const OF_NO_ENTRY: [&str; 2] = ["apiVersion", "kind"];
const OF_NO_ENTRY_IN_METADATA: [&str; 2] = ["name", "namespace"];

/// Where the walk is, as far as that matters.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Root,
    Metadata,
    Annotations,
    Below,
}

/// What belongs together of the three.
pub(super) struct Part<'a> {
    pub(super) place: Place,
    pub(super) manifest: &'a Value,
    pub(super) fields: &'a Fields,
    pub(super) object: &'a Value,
}

pub(super) fn walk(manifest: &Value, fields: &Fields, object: &Value) -> Result<(), Unproven> {
    let mut pending = vec![Part { place: Place::Root, manifest, fields, object }];
    while let Some(part) = pending.pop() {
        if part.fields.is_empty() {
            // A leaf: the value is ours as a whole.
            same(part.manifest, part.object)?;
            continue;
        }
        match (part.manifest, part.object) {
            (Value::Object(manifest), Value::Object(object)) => {
                members(part.place, manifest, part.fields, object, &mut pending)?;
            }
            (Value::Array(manifest), Value::Array(object)) => {
                items::items(manifest, part.fields, object, &mut pending)?;
            }
            (Value::Object(_) | Value::Array(_), _) => return Err(Unproven::Value),
            // It has members and cannot have any.
            _ => return Err(Unproven::Ownership),
        }
    }
    Ok(())
}

fn members<'a>(
    place: Place,
    manifest: &'a Map<String, Value>,
    fields: &'a Fields,
    object: &'a Map<String, Value>,
    pending: &mut Vec<Part<'a>>,
) -> Result<(), Unproven> {
    let mut found = usize::from(fields.contains_key(ITSELF));
    let mut member = String::new();
    for (key, value) in manifest {
        let below = match place {
            Place::Root if OF_NO_ENTRY.contains(&key.as_str()) => continue,
            Place::Metadata if OF_NO_ENTRY_IN_METADATA.contains(&key.as_str()) => continue,
            Place::Root if key == "metadata" => Place::Metadata,
            Place::Metadata if key == "annotations" => Place::Annotations,
            _ => Place::Below,
        };
        member.clear();
        member.extend(["f:", key.as_str()]);
        let below_fields = fields.get(&member).and_then(Value::as_object).ok_or(Unproven::Ownership)?;
        found += 1;
        let held = object.get(key).ok_or(Unproven::Value)?;
        if matches!(place, Place::Annotations) && key == DESIGN_VERSION {
            // Another version of the design is no reason to write.
            match (value, held) {
                (Value::String(_), Value::String(_)) if below_fields.is_empty() => continue,
                _ => return Err(Unproven::Value),
            }
        }
        pending.push(Part { place: below, manifest: value, fields: below_fields, object: held });
    }
    // Else there are members that the manifest does not have, and applying it would give them up.
    if found == fields.len() { Ok(()) } else { Err(Unproven::Ownership) }
}

/// Whether both are the same JSON without nulls and floats.
fn same(manifest: &Value, object: &Value) -> Result<(), Unproven> {
    let mut pending = Vec::new();
    let mut next = Some((manifest, object));
    while let Some((manifest, object)) = next {
        match (manifest, object) {
            (Value::Null, _) => return Err(Unproven::Incomparable),
            (Value::Number(number), _) if number.is_f64() => return Err(Unproven::Incomparable),
            (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
                for (key, value) in a {
                    pending.push((value, b.get(key).ok_or(Unproven::Value)?));
                }
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => pending.extend(a.iter().zip(b)),
            (Value::String(a), Value::String(b)) if a == b => {}
            (Value::Bool(a), Value::Bool(b)) if a == b => {}
            (Value::Number(a), Value::Number(b)) if a == b => {}
            _ => return Err(Unproven::Value),
        }
        next = pending.pop();
    }
    Ok(())
}
