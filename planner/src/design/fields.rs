//! Taking typed fields out of untyped maps, with a problem for what has the wrong type.

use std::borrow::Cow;

use super::keys::{self, Clash, Finding};
use super::reference::References;
use super::{Dependency, MOST_ID, Renamed};
use crate::document::{At, Map, Node, Path, Text, Value, written};
use crate::problem::{Kind, Problem, Problems, Subject};

/// Where fields are read from: the component, for its problems, and the document's references.
pub(super) struct Reader<'r> {
    pub(super) references: &'r References,
    /// The component's id and name, made a subject only when there is something to report.
    pub(super) id: Cow<'r, str>,
    pub(super) name: Cow<'r, str>,
    pub(super) problems: &'r mut Problems,
}

impl Reader<'_> {
    /// Reports a problem of the component.
    pub(super) fn report(&mut self, kind: Kind, field: impl Into<String>, at: At, message: impl Into<String>) {
        self.problems.push(Problem::new(kind, field, at, message).of(Subject::new(&self.id, &self.name)));
    }

    /// Text, with references resolved. A number or boolean counts as its text, as it does to Meshery's YAML reader.
    pub(super) fn text<'t>(
        &mut self,
        node: Option<&Node<'t>>,
        source: Option<Text<'t>>,
        path: impl FnOnce() -> Path,
    ) -> Cow<'t, str> {
        let Some(node) = node else { return Cow::Borrowed("") };
        match scalar(node, source) {
            Some(text) => self.resolved(text, node.at, path),
            None => {
                self.wrong_type(node, path(), "text");
                Cow::Borrowed("")
            }
        }
    }

    /// The text that `text` refers to, or itself when it refers to nothing.
    pub(super) fn resolved<'t>(&mut self, text: Cow<'t, str>, at: At, path: impl FnOnce() -> Path) -> Cow<'t, str> {
        match self.references.get(&text) {
            None => text,
            Some(Ok(resolved)) => Cow::Owned(resolved.to_owned()),
            Some(Err(why)) => {
                let Self { id, name, problems, .. } = self;
                problems.add(|| Problem::new(why.kind(), path(), at, why.message()).of(Subject::new(id, name)));
                Cow::Borrowed("")
            }
        }
    }

    /// Reports an id that is too long. The component goes by one that is derived from its position.
    pub(super) fn id_length(&mut self, id: &str, node: Option<&Node<'_>>, path: impl FnOnce() -> Path) {
        if id.len() > MOST_ID {
            let message = format!("the id has {} bytes and the limit for an id is {MOST_ID}", id.len());
            self.report(Kind::LimitExceeded, path(), node.map_or(At::START, |node| node.at), message);
        }
    }

    /// A boolean; absent and `null` are false.
    pub(super) fn flag(&mut self, node: Option<&Node<'_>>, path: impl FnOnce() -> Path) -> bool {
        match node.map(|node| (&node.value, node)) {
            None | Some((Value::Null, _)) => false,
            Some((Value::Bool(value), _)) => *value,
            Some((_, node)) => {
                let wanted = match node.as_str() {
                    Some("true" | "false") => "true or false, without quotes",
                    Some("yes" | "no" | "on" | "off" | "Yes" | "No" | "On" | "Off" | "YES" | "NO" | "ON" | "OFF") => {
                        "true or false; yes, no, on and off are text here"
                    }
                    _ => "true or false",
                };
                self.wrong_type(node, path(), wanted);
                false
            }
        }
    }

    /// A map, taken; absent and `null` are empty.
    pub(super) fn map<'t>(&mut self, node: Option<Node<'t>>, path: impl FnOnce() -> Path) -> Map<'t> {
        match node {
            None => Map::default(),
            Some(Node { value: Value::Null, .. }) => Map::default(),
            Some(Node { value: Value::Map(map), .. }) => map,
            Some(node) => {
                self.wrong_type(&node, path(), "a map");
                Map::default()
            }
        }
    }

    /// Puts keys together that were broken up with spaces, and reports where that makes two keys one. Answers which were put
    /// together.
    pub(super) fn tidy(&mut self, configuration: &mut Map<'_>, kind: &str, path: impl Fn() -> Path) -> Renamed {
        let Self { id, name, problems, .. } = self;
        let mut renamed = Renamed::default();
        keys::tidy(configuration, kind, &mut |finding| {
            let Clash { below, key, at, earlier } = match finding {
                Finding::Clash(clash) => clash,
                Finding::Renamed { below, key } => {
                    return renamed.add(|| (path().join(&below().to_string()), key.into()));
                }
            };
            problems.add(|| {
                let message = format!(
                    "the key {} is here twice once the spaces are taken out of keys; keep one of the two",
                    crate::problem::quoted(key)
                );
                let problem = Problem::new(Kind::DuplicateKey, path().join(&below().to_string()), at, message);
                problem.of(Subject::new(id, name)).repeats(earlier)
            });
        });
        renamed
    }

    /// Reports that a value has a type it cannot have. The value itself is not told.
    pub(super) fn wrong_type(&mut self, node: &Node<'_>, path: Path, wanted: &str) {
        let message = format!("`{path}` is {}; it must be {wanted}", node.value.type_name());
        self.report(Kind::WrongType, path, node.at, message);
    }

    /// `dependsOn`: absent, `null` or a list of names; anything else is refused (S10).
    pub(super) fn depends_on<'t>(&mut self, node: Option<&Node<'t>>, path: impl Fn() -> Path) -> Vec<Dependency<'t>> {
        let list = match node.map(|node| (&node.value, node)) {
            None | Some((Value::Null, _)) => return Vec::new(),
            Some((Value::List(list), _)) => list,
            Some((value, node)) => {
                let hint = match value {
                    Value::String(name) => format!("; write [{}]", crate::problem::quoted(name)),
                    _ => String::new(),
                };
                let message = format!("`dependsOn` is {}; it must be a list of names{hint}", value.type_name());
                self.report(Kind::InvalidDependency, path(), node.at, message);
                return Vec::new();
            }
        };
        let mut names = Vec::with_capacity(list.len());
        for (index, item) in list.iter().enumerate() {
            match &item.value {
                Value::String(text) if !text.is_empty() => {
                    let failed = self.problems.count();
                    let name = self.resolved(text.clone(), item.at, || path().index(index));
                    if self.problems.count() == failed {
                        names.push(Dependency { name, index, at: item.at });
                    }
                }
                value => {
                    let found = match value {
                        Value::String(_) => "an empty name",
                        Value::Number(number) => &*format!("the number {}", crate::problem::quoted(number)),
                        value => value.type_name(),
                    };
                    let message = || format!("`dependsOn` holds {found}; every entry must be the name of a component");
                    let Self { id, name, problems, .. } = self;
                    problems.add(|| {
                        let problem = Problem::new(Kind::InvalidDependency, path().index(index), item.at, message());
                        problem.of(Subject::new(id, name))
                    });
                }
            }
        }
        names
    }
}

/// A scalar as text; `null` is empty. Where text is wanted, `0777` and `True` are what is written, not what they mean as a
/// number or boolean.
pub(super) fn scalar<'t>(node: &Node<'t>, source: Option<Text<'t>>) -> Option<Cow<'t, str>> {
    let as_written = || source.and_then(|source| written(source, node)).map(Cow::Borrowed);
    match &node.value {
        Value::Null => Some(Cow::Borrowed("")),
        Value::Bool(value) => Some(as_written().unwrap_or(Cow::Borrowed(if *value { "true" } else { "false" }))),
        Value::Number(text) => Some(as_written().unwrap_or_else(|| text.clone())),
        Value::String(text) => Some(text.clone()),
        Value::List(_) | Value::Map(_) => None,
    }
}

/// The first of several values that is there and not empty.
pub(super) fn first<'n, 't>(nodes: impl IntoIterator<Item = Option<&'n Node<'t>>>) -> Option<&'n Node<'t>>
where
    't: 'n,
{
    nodes.into_iter().flatten().find(|node| !node.is_null() && node.as_str() != Some(""))
}
