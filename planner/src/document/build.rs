//! Builds the tree from opened and closed brackets, keys and values, and enforces the limits. Both readers use it.

use std::borrow::Cow;

use super::limits::Limits;
use super::path::Path;
use super::text::At;
use super::tree::{Entry, Map, Node, Value};
use crate::problem::{Kind, Problem, quoted};

/// What a reader answers: a problem ends the reading.
pub(super) type Result<T> = std::result::Result<T, Box<Problem>>;

/// The unfinished part of a tree.
///
/// Values of unfinished maps and lists lie on one stack, from which each takes exactly its own when it ends: no vector
/// ever grows beyond what it holds.
pub(super) struct Builder<'t, 'l> {
    limits: &'l Limits,
    values_left: usize,
    values_allowed: usize,
    frames: Vec<Frame>,
    values: Vec<Node<'t>>,
    keys: Vec<(Cow<'t, str>, At)>,
    /// What is wrong, and did not keep the tree from being built.
    pub(super) problems: Vec<Problem>,
}

struct Frame {
    at: At,
    map: bool,
    first_value: usize,
    first_key: usize,
}

/// More duplicate keys than this in one document are not reported one by one.
const MOST_DUPLICATES: usize = 1_000;

impl<'t, 'l> Builder<'t, 'l> {
    pub(super) fn new(limits: &'l Limits, bytes: usize) -> Self {
        let values = limits.values(bytes);
        Self {
            limits,
            values_left: values,
            values_allowed: values,
            frames: Vec::new(),
            values: Vec::new(),
            keys: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Whether the innermost open bracket is a map; none when none is open.
    pub(super) fn inside_map(&self) -> Option<bool> {
        self.frames.last().map(|frame| frame.map)
    }

    /// Whether a key is due rather than a value.
    pub(super) fn key_is_due(&self) -> bool {
        self.frames.last().is_some_and(|frame| {
            frame.map && self.keys.len() - frame.first_key == self.values.len() - frame.first_value
        })
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
        self.frames.push(Frame { at, map, first_value: self.values.len(), first_key: self.keys.len() });
        Ok(())
    }

    pub(super) fn key(&mut self, key: Cow<'t, str>, at: At) -> Result<()> {
        if key.len() > self.limits.key_bytes {
            let message = format!("a key has {} bytes and the limit for a key is {}", key.len(), self.limits.key_bytes);
            return Err(self.limit(at, message));
        }
        let first = self.frames.last().map_or(0, |frame| frame.first_key);
        if self.keys.len() - first >= self.limits.keys {
            return Err(self.limit(at, format!("a map has more than {} keys", self.limits.keys)));
        }
        self.keys.push((key, at));
        Ok(())
    }

    pub(super) fn push(&mut self, node: Node<'t>) -> Result<()> {
        match self.values_left.checked_sub(1) {
            Some(left) => self.values_left = left,
            None => {
                let message =
                    format!("the document holds more than {} values, too many for its size", self.values_allowed);
                return Err(self.limit(node.at, message));
            }
        }
        self.values.push(node);
        Ok(())
    }

    /// Ends the innermost map or list.
    pub(super) fn close(&mut self) -> Node<'t> {
        let doubled = self.doubled();
        let frame = self.frames.pop().expect("a reader closes only what it opened");
        if !frame.map {
            return Node::new(frame.at, Value::List(self.values.drain(frame.first_value..).collect()));
        }
        let keys = self.keys.drain(frame.first_key..).map(|(key, _)| key);
        let nodes = self.values.drain(frame.first_value..);
        let mut entries: Vec<_> = keys.zip(nodes).map(|(key, node)| Entry { key, node }).collect();
        // From the back, so that the indexes before stay true. The first of equal keys is kept.
        for index in doubled.into_iter().rev() {
            entries.remove(index);
        }
        Node::new(frame.at, Value::Map(Map(entries)))
    }

    /// Reports keys that the innermost map has twice; answers the indexes of those that repeat another.
    fn doubled(&mut self) -> Vec<usize> {
        const FEW: usize = 16;
        let Some(first_key) = self.frames.last().filter(|frame| frame.map).map(|frame| frame.first_key) else {
            return Vec::new();
        };
        let keys = &self.keys[first_key..];
        let mut pairs = Vec::new();
        if keys.len() <= FEW {
            for (second, (key, _)) in keys.iter().enumerate().skip(1) {
                let key: &str = key;
                if let Some(first) = keys[..second].iter().position(|(other, _)| **other == *key) {
                    pairs.push((first, second));
                }
            }
        } else {
            let mut order: Vec<usize> = (0..keys.len()).collect();
            order.sort_unstable_by(|&a, &b| keys[a].0.cmp(&keys[b].0).then(a.cmp(&b)));
            for equal in order.chunk_by(|&a, &b| keys[a].0 == keys[b].0) {
                pairs.extend(equal[1..].iter().map(|&second| (equal[0], second)));
            }
            pairs.sort_unstable_by_key(|&(_, second)| second);
        }
        if pairs.is_empty() {
            return Vec::new();
        }
        let path = self.path();
        for &(first, second) in &pairs {
            if self.problems.len() == MOST_DUPLICATES {
                break;
            }
            let ((key, earlier), (_, at)) = (&self.keys[first_key + first], &self.keys[first_key + second]);
            let field = path.clone().key(key);
            let message = format!("the key {} is here for a second time; keep one of the two", quoted(key));
            self.problems.push(Problem::new(Kind::DuplicateKey, field, *at, message).repeats(*earlier));
        }
        pairs.into_iter().map(|(_, second)| second).collect()
    }

    fn limit(&self, at: At, message: String) -> Box<Problem> {
        Box::new(Problem::new(Kind::LimitExceeded, self.path(), at, message))
    }

    /// The path of what is being read.
    pub(super) fn path(&self) -> Path {
        let mut path = Path::root();
        for (index, frame) in self.frames.iter().enumerate() {
            // Values of the frame that are complete; those above belong to frames within.
            let (next_value, next_key) = match self.frames.get(index + 1) {
                Some(inner) => (inner.first_value, inner.first_key),
                None => (self.values.len(), self.keys.len()),
            };
            if frame.map {
                match self.keys[frame.first_key..next_key].last() {
                    Some((key, _)) if next_key - frame.first_key > next_value - frame.first_value => {
                        path = path.key(key);
                    }
                    _ => return path,
                }
            } else {
                path = path.index(next_value - frame.first_value);
            }
        }
        path
    }
}
