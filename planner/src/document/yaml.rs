//! A YAML reader over the events of granit-parser: iterative, borrowing, with the place of every value.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, Tag};

use super::build::{Builder, Result};
use super::dialect::{self, Flow};
use super::limits::Limits;
use super::scalar;
use super::tree::{Entry, Map, Node, Value};
use crate::budget::Budget;
use crate::problem::{Kind, Problem};
use crate::text::{At, Text};

/// Reads the one YAML document of a text. Documents that hold nothing do not count.
pub(super) fn read<'t>(text: Text<'t>, limits: &Limits, budget: &Budget) -> (Option<Node<'t>>, Vec<Problem>) {
    let mut reader = Reader {
        limits,
        budget,
        builder: Builder::new(limits, budget, text.len()),
        open: Vec::new(),
        anchors: HashMap::new(),
        aliased_values: 0,
        document: None,
    };
    let end = reader.run(text);
    let mut problems = reader.builder.problems;
    match end {
        Ok(()) => {
            let empty = Node::new(At::START, Value::Null);
            (Some(reader.document.unwrap_or(empty)), problems)
        }
        Err(problem) => {
            problems.push(*problem);
            (None, problems)
        }
    }
}

struct Reader<'t, 'l> {
    limits: &'l Limits,
    budget: &'l Budget,
    builder: Builder<'t, 'l>,
    /// For every open map or list: its anchor, 0 for none, and where its merge keys are.
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored<'t>>,
    aliased_values: usize,
    document: Option<Node<'t>>,
}

struct Open {
    anchor: usize,
    merges: bool,
    /// Whether it stands in brackets, its own or those around it.
    flow: bool,
}

struct Anchored<'t> {
    node: Node<'t>,
    size: Size,
}

/// The extent of a tree.
#[derive(Default, Clone, Copy)]
struct Size {
    values: usize,
    bytes: usize,
    height: usize,
}

/// A merge key among ordinary ones: no YAML text can hold it, as keys that long are refused.
const MERGE: &str = "<<";

impl<'t> Reader<'t, '_> {
    fn run(&mut self, text: Text<'t>) -> Result<()> {
        // The builder counts depth itself and gives the better message; the parser's limit is the net below it.
        let options = granit_parser::options! {
            emit_comments: false,
            // Both as Go reads it.
            block_scalar_eof_without_line_feed: true,
            bom_inside_document_as_content: true,
            // Their names are looked at.
            emit_anchor_events: true,
            flow_nesting_limit: self.limits.depth + 1,
            block_nesting_limit: self.limits.depth + 1,
        };
        let source = text.as_str();
        if let Some((offset, what)) = dialect::prologue(source) {
            return Err(self.wrong(At::new(offset), what));
        }
        for next in Parser::new_from_str_with_options(source, options) {
            let (event, span) = next.map_err(|error| self.refused(error.kind(), error.marker()))?;
            let at = at(&span.start);
            match event {
                Event::Scalar(text, style, anchor, tag) => {
                    let key = self.builder.key_is_due();
                    if key && style == ScalarStyle::Plain && tag.is_none() && text == MERGE {
                        // Quoted, `<<` is a key like any other; nobody has needed to tell the two apart in one map.
                        self.open.last_mut().expect("a key stands in a map").merges = true;
                    }
                    if self.in_brackets() {
                        let end = self::at(&span.end).offset();
                        let plain = style == ScalarStyle::Plain;
                        let flow = Flow { key, plain, tagged: tag.is_some(), anchored: anchor != 0 };
                        if let Some(what) = flow.objection(source, at.offset(), end) {
                            return Err(self.wrong(at, what));
                        }
                    }
                    let node = Node::new(at, self.scalar(text, style, tag.as_deref(), at)?);
                    if !key {
                        self.finished(node, anchor)?;
                        continue;
                    }
                    self.remember(&node, anchor)?;
                    let Some(key) = scalar::key(node.value) else { return Err(self.wrong(at, "a key must be text")) };
                    self.builder.key(key, at)?;
                }
                Event::Alias(anchor) => {
                    let key = self.builder.key_is_due();
                    let node = self.alias(anchor, at)?;
                    match (key, node.value) {
                        // Where it is written is where the anchor stands, and how, too (case 214).
                        (false, value @ (Value::Number(_) | Value::Bool(_))) => {
                            self.finished(Node::new(node.at, value), 0)?;
                        }
                        (false, value) => self.finished(Node::new(at, value), 0)?,
                        (true, value) => match scalar::key(value) {
                            Some(key) => self.builder.key(key, at)?,
                            None => return Err(self.wrong(at, "a key must be text")),
                        },
                    }
                }
                Event::SequenceStart(_, anchor, _) => self.open(source, at, false, anchor)?,
                Event::MappingStart(_, anchor, _) => self.open(source, at, true, anchor)?,
                Event::Anchor(_, name) => {
                    let rest = source.get(self::at(&span.end).offset()..).unwrap_or_default();
                    if !dialect::is_anchor(&name, rest) {
                        let what = "the name of an anchor is letters, digits, `-` and `_`, and has a blank behind it";
                        return Err(self.wrong(at, what));
                    }
                }
                Event::SequenceEnd | Event::MappingEnd => {
                    let node = self.builder.close();
                    let Open { anchor, merges, .. } = self.open.pop().expect("events of a parser are balanced");
                    let node = if merges { self.merged(node)? } else { node };
                    self.finished(node, anchor)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn in_brackets(&self) -> bool {
        self.open.last().is_some_and(|open| open.flow)
    }

    fn open(&mut self, source: &str, at: At, map: bool, anchor: usize) -> Result<()> {
        if self.builder.key_is_due() {
            return Err(self.wrong(at, "a key must be text, not a map or a list"));
        }
        self.builder.open(at, map)?;
        let flow = self.in_brackets() || matches!(source.as_bytes().get(at.offset()), Some(b'{' | b'['));
        self.open.push(Open { anchor, merges: false, flow });
        Ok(())
    }

    fn scalar(&self, text: Cow<'t, str>, style: ScalarStyle, tag: Option<&Tag>, at: At) -> Result<Value<'t>> {
        // As Go has it: any quote makes text, and so does any tag but those of numbers, booleans and null.
        let tag = tag.map(full);
        let core = tag.as_deref().map(|tag| tag.strip_prefix("tag:yaml.org,2002:").unwrap_or_default());
        let plain = match core {
            Some("binary") => {
                return match STANDARD.decode(text.as_bytes()).ok().and_then(|bytes| String::from_utf8(bytes).ok()) {
                    Some(text) => Ok(Value::String(text.into())),
                    None => Err(self.wrong(at, "what is tagged as binary is not the base64 of a text")),
                };
            }
            Some(tag) => matches!(tag, "int" | "float" | "bool" | "null" | "timestamp"),
            None => style == ScalarStyle::Plain,
        };
        if !plain {
            return Ok(Value::String(text));
        }
        let infinite = "infinity and not-a-number cannot be sent to Kubernetes; quote it if it is meant as text";
        let value = scalar::plain(text).map_err(|_| self.wrong(at, infinite))?;
        match core.is_none_or(|tag| is_of_type(&value, tag)) {
            true => Ok(value),
            false => Err(self.wrong(at, "a value is not of the type of its tag")),
        }
    }

    fn finished(&mut self, node: Node<'t>, anchor: usize) -> Result<()> {
        self.remember(&node, anchor)?;
        if self.builder.inside_map().is_some() {
            return self.builder.push(node);
        }
        if node.is_null() {
            return Ok(());
        }
        if self.document.is_some() {
            let message = "a second YAML document starts here; a design is one document. If these are Kubernetes \
                           manifests, import them into a design first";
            return Err(Box::new(Problem::new(Kind::NotADesign, "", node.at, message)));
        }
        self.document = Some(node);
        Ok(())
    }

    /// Keeps what stands at an anchor; 0 is none.
    fn remember(&mut self, node: &Node<'t>, anchor: usize) -> Result<()> {
        if anchor != 0 {
            let size = self.size(node);
            self.pay(size, node.at)?;
            self.anchors.insert(anchor, Anchored { node: node.clone(), size });
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, at: At) -> Result<Node<'t>> {
        let Some(Anchored { size, .. }) = self.anchors.get(&anchor) else {
            return Err(self.wrong(at, "an alias stands inside the value it stands for"));
        };
        let size = *size;
        if self.builder.depth() + size.height > self.limits.depth {
            let message = format!(
                "with aliases filled in, maps and lists are nested more than {} levels deep",
                self.limits.depth
            );
            return Err(Box::new(Problem::new(Kind::LimitExceeded, self.builder.path(), at, message)));
        }
        self.pay(size, at)?;
        Ok(self.anchors[&anchor].node.clone())
    }

    /// Books a copy of a tree against what aliases may add.
    fn pay(&mut self, size: Size, at: At) -> Result<()> {
        self.aliased_values += size.values;
        let Limits { aliased_values, expanded_bytes, .. } = *self.limits;
        let fits = self.aliased_values <= aliased_values && self.budget.expand(size.bytes, expanded_bytes);
        if fits && self.budget.spend(size.values * size_of::<Entry<'t>>()).is_ok() {
            return Ok(());
        }
        let message = format!(
            "YAML aliases add more than {aliased_values} values or {expanded_bytes} bytes to the document; write them out"
        );
        Err(Box::new(Problem::new(Kind::LimitExceeded, self.builder.path(), at, message)))
    }

    fn size(&self, node: &Node<'_>) -> Size {
        let mut size = Size::default();
        let mut todo = vec![(node, 0)];
        while let Some((node, depth)) = todo.pop() {
            size.values += 1;
            size.height = size.height.max(depth);
            match &node.value {
                Value::String(text) | Value::Number(text) => size.bytes += text.len(),
                Value::List(list) => {
                    size.height = size.height.max(depth + 1);
                    todo.extend(list.iter().map(|node| (node, depth + 1)));
                }
                Value::Map(map) => {
                    size.height = size.height.max(depth + 1);
                    for entry in map.iter() {
                        size.bytes += entry.key.len();
                        todo.push((&entry.node, depth + 1));
                    }
                }
                Value::Null | Value::Bool(_) => {}
            }
            // Enough to be refused; no need to walk on.
            if size.values > self.limits.aliased_values {
                break;
            }
        }
        size
    }

    /// Puts the maps of `<<` into the map that holds it. What the map says itself wins, then the first of several.
    fn merged(&self, node: Node<'t>) -> Result<Node<'t>> {
        let Value::Map(mut map) = node.value else { return Ok(node) };
        let Some(merge) = map.remove(MERGE) else { return Ok(Node::new(node.at, Value::Map(map))) };
        let sources = match merge.value {
            Value::List(list) => list,
            value => vec![Node::new(merge.at, value)],
        };
        let mut held: HashSet<Cow<'t, str>> = map.iter().map(|entry| entry.key.clone()).collect();
        for source in sources {
            let Value::Map(Map(entries)) = source.value else {
                return Err(self.wrong(source.at, "`<<` takes a map or a list of maps"));
            };
            if map.0.len() + entries.len() > self.limits.keys {
                let message = format!("with `<<` filled in, a map has more than {} keys", self.limits.keys);
                return Err(Box::new(Problem::new(Kind::LimitExceeded, self.builder.path(), source.at, message)));
            }
            map.0.extend(entries.into_iter().filter(|entry| held.insert(entry.key.clone())));
        }
        Ok(Node::new(node.at, Value::Map(map)))
    }

    fn wrong(&self, at: At, what: &str) -> Box<Problem> {
        Box::new(Problem::new(Kind::Syntax, self.builder.path(), at, format!("cannot be read as YAML: {what}")))
    }

    /// The parser's complaint. Its texts hold nothing of the document but single characters.
    fn refused(&self, kind: &ErrorKind, marker: &Marker) -> Box<Problem> {
        match kind {
            ErrorKind::RecursionLimitExceeded => {
                let message = format!("maps and lists are nested more than {} levels deep", self.limits.depth);
                Box::new(Problem::new(Kind::LimitExceeded, self.builder.path(), at(marker), message))
            }
            ErrorKind::UnknownAnchor => {
                self.wrong(at(marker), "this alias has no anchor before it; text that starts with `*` needs quotes")
            }
            kind => self.wrong(at(marker), &kind.to_string()),
        }
    }
}

/// Whether a value is of the type that a tag of YAML itself names. Dates are text here.
fn is_of_type(value: &Value<'_>, tag: &str) -> bool {
    match (tag, value) {
        ("int", Value::Number(text)) => text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok(),
        ("float", Value::Number(_)) | ("bool", Value::Bool(_)) | ("null", Value::Null) => true,
        _ => false,
    }
}

/// A tag without abbreviation.
fn full(tag: &Tag) -> String {
    let (handle, suffix) = tag.parts();
    [handle, suffix].concat()
}

fn at(marker: &Marker) -> At {
    At::new(marker.byte_offset().unwrap_or_default())
}
