//! The tree itself.

use std::borrow::Cow;
use std::fmt;

use crate::text::At;

/// A value and where it stood.
#[derive(Clone, PartialEq)]
pub struct Node<'t> {
    /// Where the value starts.
    pub at: At,
    /// The value.
    pub value: Value<'t>,
}

/// A value of JSON. Numbers are kept as they were written, so that nothing is lost on the way to a manifest.
#[derive(Clone, PartialEq)]
pub enum Value<'t> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as JSON writes it.
    Number(Cow<'t, str>),
    /// A string.
    String(Cow<'t, str>),
    /// A list.
    List(Vec<Node<'t>>),
    /// A map.
    Map(Map<'t>),
}

/// A key and its value.
#[derive(Clone, PartialEq)]
pub struct Entry<'t> {
    /// The key.
    pub key: Cow<'t, str>,
    /// The value.
    pub node: Node<'t>,
}

/// A map in the order in which it was written. Keys are unique.
#[derive(Clone, PartialEq, Default)]
pub struct Map<'t>(pub Vec<Entry<'t>>);

/// A tree holds secrets; what is printed by mistake is its shape.
impl fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.value.type_name())
    }
}

impl<'t> Node<'t> {
    /// A value that stands at `at`.
    pub fn new(at: At, value: Value<'t>) -> Self {
        Self { at, value }
    }

    /// A string.
    pub fn string(at: At, text: impl Into<Cow<'t, str>>) -> Self {
        Self::new(at, Value::String(text.into()))
    }

    /// The map, when it is one.
    pub fn as_map(&self) -> Option<&Map<'t>> {
        match &self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The list, when it is one.
    pub fn as_list(&self) -> Option<&[Node<'t>]> {
        match &self.value {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// The string, when it is one.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// Whether two values are the same, wherever they stand.
    fn says_the_same_as(&self, other: &Node<'_>) -> bool {
        match (&self.value, &other.value) {
            (Value::List(one), Value::List(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.says_the_same_as(other))
            }
            (Value::Map(one), Value::Map(other)) => one.says_the_same_as(other),
            (one, other) => one == other,
        }
    }

    /// What lies under `keys`, map in map.
    pub fn get(&self, keys: &[&str]) -> Option<&Node<'t>> {
        keys.iter().try_fold(self, |node, key| node.as_map()?.get(key))
    }
}

impl Value<'_> {
    /// What a person calls the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

impl<'t> Map<'t> {
    /// An empty map with room for so many entries.
    pub fn with_capacity(entries: usize) -> Self {
        Self(Vec::with_capacity(entries))
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Node<'t>> {
        self.0.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    /// The value of `key`, to change it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node<'t>> {
        self.0.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node)
    }

    /// Takes `key` and its value out.
    pub fn remove(&mut self, key: &str) -> Option<Node<'t>> {
        let index = self.0.iter().position(|entry| entry.key == key)?;
        Some(self.0.remove(index).node)
    }

    /// Sets `key`, in its place when it is there, at the end otherwise.
    pub fn set(&mut self, key: impl Into<Cow<'t, str>>, node: Node<'t>) {
        let key = key.into();
        match self.get_mut(&key) {
            Some(old) => *old = node,
            None => self.0.push(Entry { key, node }),
        }
    }

    /// The map under `key`; what is not a map there is replaced by an empty one.
    pub fn map_mut(&mut self, key: &'t str) -> &mut Map<'t> {
        let index = match self.0.iter().position(|entry| entry.key == key) {
            Some(index) => index,
            None => {
                self.0.push(Entry { key: key.into(), node: Node::new(At::START, Value::Map(Map::default())) });
                self.0.len() - 1
            }
        };
        let value = &mut self.0[index].node.value;
        if !matches!(value, Value::Map(_)) {
            *value = Value::Map(Map::default());
        }
        match value {
            Value::Map(map) => map,
            _ => unreachable!("it was made a map just above"),
        }
    }

    /// Whether two maps hold the same in the same order, wherever they stand.
    pub fn says_the_same_as(&self, other: &Map<'_>) -> bool {
        self.says_the_same_beside(other, &[])
    }

    /// The same, whatever stands under some keys.
    pub fn says_the_same_beside(&self, other: &Map<'_>, keys: &[&str]) -> bool {
        let counts = |entry: &&Entry<'_>| !keys.contains(&entry.key.as_ref());
        let (mut ours, mut theirs) = (self.0.iter().filter(counts), other.0.iter().filter(counts));
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return true,
                (Some(one), Some(other)) if one.key == other.key && one.node.says_the_same_as(&other.node) => {}
                _ => return false,
            }
        }
    }

    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &Entry<'t>> + Clone {
        self.0.iter()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
