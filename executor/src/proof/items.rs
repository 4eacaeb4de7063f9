//! Lists whose items are owned one by one: by key, or as members of a set.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{
    Unproven,
    walk::{Fields, ITSELF, Part, Place},
};

/// Combinations of key fields that the items of one list may leave out. More is nobody's list, and would cost too much.
const MOST_COMBINATIONS: usize = 8;

/// Matches the items of the manifest with the members of our entry and with the items of the object.
pub(super) fn items<'a>(
    manifest: &'a [Value],
    fields: &'a Fields,
    object: &'a [Value],
    pending: &mut Vec<Part<'a>>,
) -> Result<(), Unproven> {
    let members = || fields.iter().filter(|(member, _)| *member != ITSELF);
    let (member, _) = members().next().ok_or(Unproven::Ownership)?;
    if member.starts_with("v:") {
        let members = members().map(|(member, below)| Ok((set_member(member)?, below)));
        of_set(manifest, members.collect::<Result<_, _>>()?, object)
    } else {
        let members = members().map(|(member, below)| Member::read(member, below));
        of_keyed(manifest, &members.collect::<Result<Vec<_>, _>>()?, object, pending)
    }
}

/// A scalar as a text that equal scalars share and others do not.
fn scalar(value: &Value) -> Result<String, Unproven> {
    match value {
        Value::String(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::Number(number) if !number.is_f64() => Ok(value.to_string()),
        Value::Null | Value::Number(_) => Err(Unproven::Incomparable),
        Value::Array(_) | Value::Object(_) => Err(Unproven::Form),
    }
}

fn set_member(member: &str) -> Result<String, Unproven> {
    let text = member.strip_prefix("v:").ok_or(Unproven::Form)?;
    scalar(&serde_json::from_str(text).map_err(|_| Unproven::Form)?)
}

/// The positions of the object's items; twice is as bad as not at all.
fn positions<K: std::hash::Hash + Eq>(
    keys: impl Iterator<Item = Result<K, Unproven>>,
) -> Result<HashMap<K, Option<usize>>, Unproven> {
    let mut positions = HashMap::new();
    for (ix, key) in keys.enumerate() {
        positions.entry(key?).and_modify(|position| *position = None).or_insert(Some(ix));
    }
    Ok(positions)
}

/// Whether one item comes after the last, which it then is.
fn comes_after(last: &mut Option<usize>, position: usize) -> Result<(), Unproven> {
    if last.is_some_and(|last| last >= position) {
        return Err(Unproven::Order);
    }
    *last = Some(position);
    Ok(())
}

fn of_set(manifest: &[Value], members: HashMap<String, &Value>, object: &[Value]) -> Result<(), Unproven> {
    if members.len() != manifest.len() {
        return Err(Unproven::Ownership);
    }
    let positions = positions(object.iter().map(scalar))?;
    let mut last = None;
    for item in manifest {
        let item = scalar(item)?;
        let below = members.get(&item).and_then(|below| below.as_object()).ok_or(Unproven::Ownership)?;
        if !below.is_empty() {
            return Err(Unproven::Form);
        }
        // One that the manifest has twice does not come after itself.
        let position = positions.get(&item).copied().flatten().ok_or(Unproven::Order)?;
        comes_after(&mut last, position)?;
    }
    Ok(())
}

/// An item that we own fields of, by its key.
struct Member<'a> {
    key: Map<String, Value>,
    fields: &'a Fields,
}

impl<'a> Member<'a> {
    fn read(member: &str, below: &'a Value) -> Result<Self, Unproven> {
        let key = member.strip_prefix("k:").and_then(|key| serde_json::from_str(key).ok()).ok_or(Unproven::Form)?;
        let fields = below.as_object().ok_or(Unproven::Form)?;
        // Else others have made the item anew, and only some of its fields are ours.
        if !fields.is_empty() && !fields.contains_key(ITSELF) {
            return Err(Unproven::Ownership);
        }
        Ok(Self { key, fields })
    }

    fn owns(&self, field: &str) -> bool {
        self.fields.contains_key(&format!("f:{field}"))
    }
}

/// For each key field, its value; none of those that are left out.
type Key = Vec<Option<String>>;

fn key_of(item: &Map<String, Value>, names: &[&String]) -> Result<Key, Unproven> {
    names.iter().map(|name| item.get(*name).map(scalar).transpose()).collect()
}

/// The key without the fields that `like` leaves out.
fn narrowed(key: &Key, like: &Key) -> Key {
    key.iter().zip(like).map(|(field, like)| field.clone().filter(|_| like.is_some())).collect()
}

fn of_keyed<'a>(
    manifest: &'a [Value],
    members: &[Member<'a>],
    object: &'a [Value],
    pending: &mut Vec<Part<'a>>,
) -> Result<(), Unproven> {
    if members.len() != manifest.len() {
        return Err(Unproven::Ownership);
    }
    let names: Vec<&String> = members.first().map(|member| member.key.keys().collect()).unwrap_or_default();
    let keys: Vec<Key> = members.iter().map(|member| whole(&member.key, &names)).collect::<Result<_, _>>()?;
    if members.iter().any(|member| member.key.len() != names.len()) {
        return Err(Unproven::Form);
    }
    let of_item = |item: &Value| whole(item.as_object().ok_or(Unproven::Form)?, &names);
    let positions = positions(object.iter().map(of_item))?;
    let mut by_key = Vec::<(Key, HashMap<Key, Vec<usize>>)>::new();
    let mut taken = vec![false; members.len()];
    let mut last = None;
    for item in manifest {
        let key = key_of(item.as_object().ok_or(Unproven::Form)?, &names)?;
        let like = |known: &Key| known.iter().zip(&key).all(|(known, field)| known.is_some() == field.is_some());
        let at = match by_key.iter().position(|(known, _)| like(known)) {
            Some(at) => at,
            None if by_key.len() == MOST_COMBINATIONS => return Err(Unproven::Form),
            None => {
                let mut found = HashMap::<Key, Vec<usize>>::new();
                for (ix, of_member) in keys.iter().enumerate() {
                    found.entry(narrowed(of_member, &key)).or_default().push(ix);
                }
                by_key.push((key.clone(), found));
                by_key.len() - 1
            }
        };
        // A key field that the manifest leaves out is one that we do not own: the API server has filled it in.
        let left_out = || names.iter().zip(&key).filter(|(_, field)| field.is_none()).map(|(name, _)| name);
        let is_meant = |ix: &&usize| !left_out().any(|name| members[**ix].owns(name));
        let mut meant = by_key[at].1.get(&key).into_iter().flatten().filter(is_meant);
        let (Some(&ix), None) = (meant.next(), meant.next()) else { return Err(Unproven::Ownership) };
        if std::mem::replace(&mut taken[ix], true) {
            return Err(Unproven::Order);
        }
        let position = positions.get(&keys[ix]).copied().flatten().ok_or(Unproven::Order)?;
        comes_after(&mut last, position)?;
        let fields = members[ix].fields;
        pending.push(Part { place: Place::Below, manifest: item, fields, object: &object[position] });
    }
    Ok(())
}

/// The key of what has all of its fields.
fn whole(item: &Map<String, Value>, names: &[&String]) -> Result<Key, Unproven> {
    let key = key_of(item, names)?;
    if key.iter().all(Option::is_some) { Ok(key) } else { Err(Unproven::Form) }
}
