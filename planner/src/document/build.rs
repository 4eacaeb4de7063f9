//! Builds the tree from opened and closed brackets, keys and values, and enforces the limits. Both readers use it.

use std::borrow::Cow;

use super::limits::Limits;
use super::path::Path;
use super::tree::{Entry, Map, Node, Value};
use super::write;
use crate::budget::Budget;
use crate::problem::{Kind, Problem, quoted};
use crate::text::At;

/// What a reader answers: a problem ends the reading.
pub(super) type Result<T> = std::result::Result<T, Box<Problem>>;

/// The unfinished part of a tree.
///
/// Values of unfinished lists lie on one stack and entries of unfinished maps on another, from which each takes exactly its
/// own when it ends: no vector ever grows beyond what it holds.
pub(super) struct Builder<'t, 'l> {
    limits: &'l Limits,
    budget: &'l Budget,
    values_left: usize,
    values_allowed: usize,
    frames: Vec<Frame>,
    items: Vec<Node<'t>>,
    entries: Vec<Entry<'t>>,
    /// Where the keys of `entries` stand.
    places: Vec<At>,
    /// Keys of open maps that have no value yet.
    keys: Vec<(Cow<'t, str>, At)>,
    /// What is wrong, and did not keep the tree from being built.
    pub(super) problems: Vec<Problem>,
    /// Bytes of their texts.
    told: usize,
}

struct Frame {
    at: At,
    map: bool,
    /// Whether a key of the map has no value yet.
    key: bool,
    /// Where in `entries`, or in `items`, its own begin.
    first: usize,
}

/// More duplicate keys than this in one document are not reported one by one.
const MOST_DUPLICATES: usize = 1_000;

/// Nor are those beyond so many bytes of text: a path can be as long as a hundred of the longest keys.
const MOST_TOLD: usize = 1 << 20;

/// Values are paid for in blocks of so many, before they are made.
const BLOCK: usize = 1_024;

/// What a value takes: itself and its key, and as much again while it lies on a stack that has just grown.
const VALUE: usize = 3 * size_of::<Entry<'static>>() / 2;

/// Whether a key has at most `most` bytes as JSON. No character takes more than six times its bytes there.
fn fits(key: &str, most: usize) -> bool {
    const LONGEST: usize = "\\u0085".len();
    key.len() <= most / LONGEST || (key.len() <= most && write::string_length(key) <= most)
}

impl<'t, 'l> Builder<'t, 'l> {
    pub(super) fn new(limits: &'l Limits, budget: &'l Budget, bytes: usize) -> Self {
        let values = limits.values(bytes);
        Self {
            limits,
            budget,
            values_left: values,
            values_allowed: values,
            frames: Vec::new(),
            items: Vec::new(),
            entries: Vec::new(),
            places: Vec::new(),
            keys: Vec::new(),
            problems: Vec::new(),
            told: 0,
        }
    }

    /// Whether the innermost open bracket is a map; none when none is open.
    pub(super) fn inside_map(&self) -> Option<bool> {
        self.frames.last().map(|frame| frame.map)
    }

    /// Whether a key is due rather than a value.
    pub(super) fn key_is_due(&self) -> bool {
        self.frames.last().is_some_and(|frame| frame.map && !frame.key)
    }

    /// How many brackets are open.
    pub(super) fn depth(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn open(&mut self, at: At, map: bool) -> Result<()> {
        if self.frames.len() >= self.limits.depth {
            let message = format!("maps and lists are nested more than {} levels deep", self.limits.depth);
            return Err(self.limit(at, message));
        }
        let first = if map { self.entries.len() } else { self.items.len() };
        self.frames.push(Frame { at, map, key: false, first });
        Ok(())
    }

    pub(super) fn key(&mut self, key: Cow<'t, str>, at: At) -> Result<()> {
        if !fits(&key, self.limits.key_bytes) {
            let limit = self.limits.key_bytes;
            let message = format!("a key has {} bytes, or more as JSON, and the limit for a key is {limit}", key.len());
            return Err(self.limit(at, message));
        }
        let frame = self.frames.last_mut().expect("a key stands in a map");
        if self.entries.len() - frame.first >= self.limits.keys {
            return Err(self.limit(at, format!("a map has more than {} keys", self.limits.keys)));
        }
        frame.key = true;
        self.keys.push((key, at));
        Ok(())
    }

    pub(super) fn push(&mut self, node: Node<'t>) -> Result<()> {
        match self.values_left.checked_sub(1) {
            Some(left) => {
                if left % BLOCK == 0 && self.budget.spend(BLOCK * VALUE).is_err() {
                    return Err(self.limit(node.at, "the document takes more than it may".into()));
                }
                self.values_left = left;
            }
            None => {
                let message =
                    format!("the document holds more than {} values, too many for its size", self.values_allowed);
                return Err(self.limit(node.at, message));
            }
        }
        match self.frames.last_mut() {
            Some(frame) if frame.map => {
                frame.key = false;
                let (key, at) = self.keys.pop().expect("a value in a map comes after its key");
                self.entries.push(Entry { key, node });
                self.places.push(at);
            }
            _ => self.items.push(node),
        }
        Ok(())
    }

    /// Ends the innermost map or list.
    pub(super) fn close(&mut self) -> Node<'t> {
        let doubled = self.doubled();
        let frame = self.frames.pop().expect("a reader closes only what it opened");
        if !frame.map {
            return Node::new(frame.at, Value::List(self.items.drain(frame.first..).collect()));
        }
        self.places.truncate(frame.first);
        let mut entries: Vec<_> = self.entries.drain(frame.first..).collect();
        // From the back, so that the indexes before stay true. The first of equal keys is kept.
        for index in doubled.into_iter().rev() {
            entries.remove(index);
        }
        Node::new(frame.at, Value::Map(Map(entries)))
    }

    /// Reports keys that the innermost map has twice; answers the indexes of those that repeat another.
    fn doubled(&mut self) -> Vec<usize> {
        const FEW: usize = 16;
        let Some(first) = self.frames.last().filter(|frame| frame.map).map(|frame| frame.first) else {
            return Vec::new();
        };
        let entries = &self.entries[first..];
        let mut pairs = Vec::new();
        if entries.len() <= FEW {
            for (second, Entry { key, .. }) in entries.iter().enumerate().skip(1) {
                if let Some(first) = entries[..second].iter().position(|other| other.key == *key) {
                    pairs.push((first, second));
                }
            }
        } else {
            let mut order: Vec<usize> = (0..entries.len()).collect();
            order.sort_unstable_by(|&a, &b| entries[a].key.cmp(&entries[b].key).then(a.cmp(&b)));
            for equal in order.chunk_by(|&a, &b| entries[a].key == entries[b].key) {
                pairs.extend(equal[1..].iter().map(|&second| (equal[0], second)));
            }
            pairs.sort_unstable_by_key(|&(_, second)| second);
        }
        if pairs.is_empty() {
            return Vec::new();
        }
        let path = self.path();
        for &(earlier, second) in &pairs {
            if self.problems.len() == MOST_DUPLICATES || self.told > MOST_TOLD {
                break;
            }
            let key = &self.entries[first + second].key;
            let (earlier, at) = (self.places[first + earlier], self.places[first + second]);
            let field = path.clone().key(key);
            let message = format!("the key {} is here for a second time; keep one of the two", quoted(key));
            let problem = Problem::new(Kind::DuplicateKey, field, at, message).repeats(earlier);
            self.told += problem.field.len() + problem.message.len();
            self.problems.push(problem);
        }
        pairs.into_iter().map(|(_, second)| second).collect()
    }

    fn limit(&self, at: At, message: String) -> Box<Problem> {
        Box::new(Problem::new(Kind::LimitExceeded, self.path(), at, message))
    }

    /// The path of what is being read.
    pub(super) fn path(&self) -> Path {
        let mut path = Path::root();
        let mut keys = self.keys.iter();
        for (index, frame) in self.frames.iter().enumerate() {
            if !frame.map {
                // Items of the list that are complete; those above belong to lists within.
                let within = self.frames[index + 1..].iter().find(|inner| !inner.map);
                path = path.index(within.map_or(self.items.len(), |inner| inner.first) - frame.first);
                continue;
            }
            match keys.next().filter(|_| frame.key) {
                Some((key, _)) => path = path.key(key),
                None => return path,
            }
        }
        path
    }
}
