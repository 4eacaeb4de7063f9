//! `$(#ref.<path>)`: a string that holds one is replaced, as a whole, by the text at that path of the document.
//!
//! The path goes by position in the whole document as it was written, so every reference is looked up before anything is
//! read, moved or set aside (D5). In legacy files it may start at the services. A key with dots is put in brackets:
//! `$(#ref.services.[a.b].name)`.
//!
//! What references add to a document counts against the same limit as what YAML aliases add.

use std::cell::Cell;
use std::collections::HashMap;

use crate::budget::Budget;
use crate::document::{Limits, Map, Node, Text, Value};
use crate::problem::{Kind, quoted};

const REF: &str = "$(#ref.";
const USE: &str = "$(#use ";

/// Whether a text can hold no reference, not even one whose letters are escaped.
pub(super) fn is_without(text: &Text<'_>) -> bool {
    let escaped = || ["\\u", "\\U", "\\x", "\\\n", "\\\r"].iter().any(|part| text.contains(part));
    !(text.contains("$(#") || text.contains("\\") && escaped())
}

/// All references of a document, looked up, by their paths.
#[derive(Default)]
pub(super) struct References {
    found: HashMap<String, Result<String, Dead>>,
    /// Whether any string looks as if it referred to something.
    any: bool,
    /// What references may still add to the document.
    left: Cell<usize>,
    limit: usize,
}

/// What is at the end of a path that leads to no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dead {
    /// Another reference.
    Reference,
    /// Something else, of this type.
    Other(&'static str),
    /// Nothing.
    Nothing,
}

/// Why a string cannot be replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unresolved<'a> {
    /// It asks for another document.
    Import,
    /// Its path ends before its bracket.
    Broken,
    /// It holds two references.
    Several,
    /// Its path leads nowhere.
    Dead(&'a str, Dead),
    /// With it, references would add more than they may.
    TooMuch(usize),
}

impl Unresolved<'_> {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Import | Self::Broken | Self::Several | Self::Dead(..) => Kind::UnresolvedReference,
            Self::TooMuch(_) => Kind::LimitExceeded,
        }
    }

    /// The sentence for a person. Only the path is ever quoted: what stands around it may be anything.
    pub(super) fn message(&self) -> String {
        match self {
            Self::Import => "`$(#use …)` is not supported; put what it imports into the design".into(),
            Self::Broken => {
                "the path of a reference ends before its `)`; put a key with other characters than letters, digits, \
                             `_`, `-` and `/` in brackets, such as $(#ref.vars.[my key])"
                    .into()
            }
            Self::Several => "a text with two references: it can be replaced by one only, as a whole".into(),
            Self::TooMuch(limit) => format!("references add more than {limit} bytes to the document; write them out"),
            Self::Dead(path, Dead::Reference) => {
                format!("reference {} leads to another reference, and those are not followed", quoted(path))
            }
            Self::Dead(path, Dead::Other(found)) => {
                format!("reference {} leads to {found}; it must lead to text", quoted(path))
            }
            Self::Dead(path, Dead::Nothing) => format!(
                "reference {} leads to nothing in this document; the path goes by key and position, such as \
                 components.0.displayName",
                quoted(path)
            ),
        }
    }
}

impl References {
    /// Looks up every reference in the document. Ends early when the budget is spent.
    pub(super) fn collect(root: &Node<'_>, legacy: bool, limits: &Limits, budget: &Budget) -> Self {
        let mut found = HashMap::new();
        let services = legacy.then(|| root.get(&["services"])).flatten();
        let mut document = Document { root, services, maps: HashMap::new(), budget };
        let mut left = limits.expanded_bytes.saturating_sub(budget.expanded());
        let mut any = false;
        let mut todo = vec![root];
        while let Some(node) = todo.pop() {
            match &node.value {
                Value::String(text) if text.contains("$(#") => {
                    any = true;
                    let Some(Ok(path)) = path(text) else { continue };
                    if found.contains_key(path) {
                        continue;
                    }
                    if budget.spend(2 * size_of::<(String, Result<String, Dead>)>() + path.len()).is_err() {
                        break;
                    }
                    let text = document.look_up(path).map(|text| {
                        // Many paths may lead to one large text, which is then held as often.
                        left = left.saturating_sub(text.len());
                        if left == 0 { String::new() } else { text.to_owned() }
                    });
                    found.insert(path.to_owned(), text);
                }
                Value::List(list) => todo.extend(list),
                Value::Map(map) => todo.extend(map.iter().map(|entry| &entry.node)),
                _ => {}
            }
        }
        // Both what is held here and what is put into the document. When there is no room for it, planning ends.
        if !found.is_empty() {
            let _ = budget.spend(2 * limits.expanded_bytes);
        }
        Self { found, any, left: Cell::new(left), limit: limits.expanded_bytes }
    }

    /// What `text` refers to, or why that cannot be said; none when it refers to nothing. What it refers to is taken to be
    /// put into the document.
    pub(super) fn get<'a>(&'a self, text: &'a str) -> Option<Result<&'a str, Unresolved<'a>>> {
        if !self.any || !text.contains("$(#") {
            return None;
        }
        if text.contains(USE) {
            return Some(Err(Unresolved::Import));
        }
        let path = match path(text)? {
            Ok(path) => path,
            Err(why) => return Some(Err(why)),
        };
        Some(match self.found.get(path)? {
            Err(dead) => Err(Unresolved::Dead(path, *dead)),
            Ok(found) => match self.left.get().checked_sub(found.len()).filter(|left| *left > 0) {
                Some(left) => {
                    self.left.set(left);
                    Ok(found)
                }
                None => {
                    self.left.set(0);
                    Err(Unresolved::TooMuch(self.limit))
                }
            },
        })
    }

    /// Whether no string of the document looks like a reference.
    pub(super) fn is_empty(&self) -> bool {
        !self.any
    }
}

/// The path in a string that refers to something; none where no bracket ends it.
fn path(text: &str) -> Option<Result<&str, Unresolved<'_>>> {
    let rest = &text[text.find(REF)? + REF.len()..];
    let path = &rest[..path_length(rest)];
    Some(match rest[path.len()..].strip_prefix(')') {
        Some(after) if after.contains(REF) => Err(Unresolved::Several),
        Some(_) => Ok(path),
        None if rest.contains(')') => Err(Unresolved::Broken),
        None => return None,
    })
}

/// Length of the path at the beginning of `text`, in bytes: it ends at the first character that no path has. What follows is
/// not part of the reference, and may be a password (D25).
fn path_length(text: &str) -> usize {
    let is_plain = |c: char| c.is_alphanumeric() || ['_', '-', '/'].contains(&c);
    let mut at = 0;
    let mut key_begins = true;
    while let Some(c) = text[at..].chars().next() {
        at += match c {
            '[' if key_begins => match text[at..].find([']', ')']) {
                Some(end) if text[at + end..].starts_with(']') => end + 1,
                _ => break,
            },
            '.' => 1,
            c if is_plain(c) => c.len_utf8(),
            _ => break,
        };
        key_begins = c == '.';
    }
    at
}

/// The document that references lead into.
struct Document<'n, 't> {
    root: &'n Node<'t>,
    /// Where paths of legacy files may start as well.
    services: Option<&'n Node<'t>>,
    /// The keys of large maps that were looked into, so that many references into one are no more than as many look-ups.
    maps: HashMap<*const Map<'t>, HashMap<&'n str, &'n Node<'t>>>,
    budget: &'n Budget,
}

impl<'n, 't> Document<'n, 't> {
    /// The text at a path.
    fn look_up<'p: 'n>(&mut self, path: &'p str) -> Result<&'n str, Dead> {
        let keys = keys(path);
        let node =
            self.walk(self.root, &keys).or_else(|| self.services.and_then(|services| self.walk(services, &keys)));
        match node.map(|node| &node.value) {
            Some(Value::String(found)) if found.contains(REF) || found.contains(USE) => Err(Dead::Reference),
            Some(Value::String(found))
                if !(self.services.is_some() && found.is_empty() && keys.last() == Some(&"name")) =>
            {
                Ok(found)
            }
            Some(value) if !matches!(value, Value::Null | Value::String(_)) => Err(Dead::Other(value.type_name())),
            _ => self.service_key(&keys).ok_or(Dead::Nothing),
        }
    }

    fn walk(&mut self, start: &'n Node<'t>, keys: &[&str]) -> Option<&'n Node<'t>> {
        let mut node = start;
        for (depth, key) in keys.iter().enumerate() {
            // What registrants carry is not for anybody's eyes (D25), unless it is the user's own setting.
            let settings = keys[..depth].iter().any(|key| matches!(*key, "configuration" | "settings"));
            if *key == "metadata" && !settings && depth > 0 && matches!(keys[depth - 1], "registrant" | "connection") {
                return None;
            }
            node = match &node.value {
                Value::Map(map) => self.get(map, key)?,
                Value::List(list) => list.get(key.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        Some(node)
    }

    fn get(&mut self, map: &'n Map<'t>, key: &str) -> Option<&'n Node<'t>> {
        const FEW: usize = 32;
        if map.0.len() <= FEW {
            return map.get(key);
        }
        let budget = self.budget;
        let index = self.maps.entry(std::ptr::from_ref(map)).or_insert_with(|| {
            let room = 2 * size_of::<(&str, &Node<'_>)>() * map.0.len();
            match budget.spend(room) {
                Ok(()) => map.iter().map(|entry| (entry.key.as_ref(), &entry.node)).collect(),
                Err(_) => HashMap::new(),
            }
        });
        index.get(key).copied()
    }

    /// A service without a name is called by its key.
    fn service_key<'k>(&mut self, keys: &[&'k str]) -> Option<&'k str> {
        let services = self.services?.as_map()?;
        let keys = keys.strip_prefix(&["services"]).unwrap_or(keys);
        match keys {
            [key, "name"] => self.get(services, key)?.as_map().map(|_| *key),
            _ => None,
        }
    }
}

/// The keys of a dotted path.
fn keys(path: &str) -> Vec<&str> {
    // No document is deeper; a longer path leads to nothing.
    const MOST: usize = 200;
    let mut keys = Vec::new();
    let mut rest = path;
    while !rest.is_empty() && keys.len() < MOST {
        let (key, after) = match rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            Some((key, after)) => (key, after.strip_prefix('.').unwrap_or(after)),
            None => rest.split_once('.').unwrap_or((rest, "")),
        };
        keys.push(key);
        rest = after;
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::read;

    fn resolve(document: &str, text: &str, legacy: bool) -> Option<Result<String, String>> {
        let (root, _) = read(Text::new(document), &Limits::default());
        let root = root.expect("a document");
        let whole = Node::new(crate::document::At::START, Value::List(vec![Node::string(root.at, text)]));
        let Value::Map(mut map) = root.value else { panic!("a map") };
        map.set("zzz", whole);
        let root = Node::new(root.at, Value::Map(map));
        let references = References::collect(&root, legacy, &Limits::default(), &Budget::unlimited());
        Some(references.get(text)?.map(str::to_owned).map_err(|why| why.message()))
    }

    #[test]
    fn a_reference_replaces_the_whole_string() {
        let document = r#"{"components": [{"displayName": "db"}]}"#;
        let found = resolve(document, "x$(#ref.components.0.displayName)y", false);
        assert_eq!(found, Some(Ok("db".into())));
        assert_eq!(resolve(document, "$(HOME) and $(#x", false), None);
    }

    #[test]
    fn an_escaped_reference_is_not_overlooked() {
        for text in ["[\"$(#ref.a)\"]", "[\"\\u0024(#ref.a)\"]", "- \"\\x24(#ref.a)\"", "- \"$(\\\n  #ref.a)\""] {
            assert!(!is_without(&Text::new(text)), "{text}");
        }
        assert!(is_without(&Text::new("[\"$(HOME) \\n #ref.a\"]")));
    }

    #[test]
    fn what_leads_to_no_text_is_told() {
        let document = r#"{"a": {"b": 1}, "c": "$(#ref.d)", "d": null}"#;
        for path in ["x", "a", "a.b", "a.b.c", "c", "d", "components.9"] {
            let found = resolve(document, &format!("$(#ref.{path})"), false).expect("a reference");
            assert!(found.expect_err("leads to no text").contains(&format!("\"{path}\"")));
        }
        assert!(
            resolve(document, "$(#use https://user:secret@example.com)", false)
                .expect("one")
                .is_err_and(|why| !why.contains("secret"))
        );
    }

    #[test]
    fn only_the_path_is_quoted_and_it_ends_where_no_path_goes_on() {
        let document = r#"{"vars": {"host": {}, "name": "db", "my key": "x"}}"#;
        let refused = |text| resolve(document, text, false).expect("a reference").expect_err("leads to no text");
        for text in [
            "https://$(#ref.vars.host)/?password=canary-7&x=(y)",
            "$(#ref.vars.host?password=canary-7)",
            "$(#ref.vars.host password=canary-7) (x)",
            "$(#ref.[?password=canary-7&x=(y)](z)",
            "$(#ref.vars.name) canary-7 $(#ref.vars.host)",
        ] {
            let why = refused(text);
            assert!(!why.contains("canary-7"), "{why}");
        }
        assert!(refused("https://$(#ref.vars.host)/?password=canary-7&x=(y)").contains("\"vars.host\""));
        let resolved = |text| resolve(document, text, false).expect("a reference").expect("text");
        assert_eq!(resolved("https://$(#ref.vars.name)/?x=(y)"), "db");
        assert_eq!(resolved("$(#ref.vars.[my key])"), "x");
        assert_eq!(resolve(document, "$(#ref.vars.name", false), None);
    }

    #[test]
    fn legacy_paths_may_start_at_a_service_and_keys_may_have_dots() {
        let document = "vars: {ns: a}\nservices:\n  mesh: {settings: {version: '1'}}\n  ns.x: {}\n";
        let resolved = |text| resolve(document, text, true).expect("a reference").expect("text");
        assert_eq!(resolved("$(#ref.mesh.settings.version)"), "1");
        assert_eq!(resolved("$(#ref.vars.ns)"), "a");
        assert_eq!(resolved("$(#ref.services.[ns.x].name)"), "ns.x");
    }

    #[test]
    fn what_a_registrant_carries_cannot_be_referred_to() {
        let document = r#"{"components": [{"model": {"registrant": {"metadata": {"key": "canary"}}},
            "configuration": {"registrant": {"metadata": {"key": "mine"}}}}]}"#;
        let at = |path: &str| resolve(document, &format!("$(#ref.components.0.{path})"), false).expect("a reference");
        assert!(at("model.registrant.metadata.key").is_err());
        assert_eq!(at("configuration.registrant.metadata.key"), Ok("mine".into()));
    }

    #[test]
    fn what_references_add_is_bounded() {
        let document = format!("{{\"big\": \"{}\"}}", "x".repeat(1_000));
        let (root, _) = read(Text::new(&document), &Limits::default());
        let Some(Node { at, value: Value::Map(mut map) }) = root else { panic!("a map") };
        map.set("use", Node::string(at, "$(#ref.big)"));
        let root = Node::new(at, Value::Map(map));
        let limits = Limits { expanded_bytes: 3_500, ..Limits::default() };
        let references = References::collect(&root, false, &limits, &Budget::unlimited());
        let resolved = || references.get("$(#ref.big)").expect("a reference").map(str::len);
        // One copy is held for all.
        assert_eq!([resolved(), resolved()], [Ok(1_000), Ok(1_000)]);
        assert_eq!(resolved(), Err(Unresolved::TooMuch(3_500)));
    }
}
