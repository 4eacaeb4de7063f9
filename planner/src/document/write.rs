//! The tree as JSON text. Recursion is bounded by the depth that reading allows.

use std::cell::RefCell;

use super::tree::{Entry, Map, Node, Value};
use crate::budget::{Budget, Spent};

/// The tree as compact JSON. Numbers and the order of keys are as they were read.
pub fn to_json(node: &Node<'_>) -> String {
    let mut out = String::new();
    write_node(&mut out, node, usize::MAX);
    out
}

/// A map as compact JSON.
pub fn map_to_json(map: &Map<'_>) -> String {
    let mut out = String::new();
    write_entries(&mut out, map.iter(), usize::MAX);
    out
}

/// Where JSON is written to.
pub(super) trait Sink {
    /// Takes a character.
    fn push(&mut self, c: char);
    /// Takes a text.
    fn push_str(&mut self, text: &str);
    /// How many bytes it has taken.
    fn written(&self) -> usize;
}

impl Sink for String {
    fn push(&mut self, c: char) {
        self.push(c);
    }

    fn push_str(&mut self, text: &str) {
        self.push_str(text);
    }

    fn written(&self) -> usize {
        self.len()
    }
}

/// Only counts the bytes.
struct Length(usize);

impl Sink for Length {
    fn push(&mut self, c: char) {
        self.0 += c.len_utf8();
    }

    fn push_str(&mut self, text: &str) {
        self.0 += text.len();
    }

    fn written(&self) -> usize {
        self.0
    }
}

/// From this size on, in bytes, the length of a text is found out before it is written.
const LARGE: usize = 1 << 20;

/// The map of these entries as compact JSON, twice of whose bytes are drawn from `budget`: it is kept, and sent.
///
/// # Errors
///
/// When there is no room for it. Escapes and what aliases repeat can make it many times larger than its text was.
pub fn entries_to_json<'n, 't: 'n>(
    entries: impl Iterator<Item = &'n Entry<'t>> + Clone,
    budget: &Budget,
) -> Result<String, Spent> {
    thread_local! {
        // Written here first, so that what is kept has its exact size without growing step by step.
        static SCRATCH: RefCell<String> = const { RefCell::new(String::new()) };
    }
    SCRATCH.with_borrow_mut(|scratch| {
        // What one long value left behind is not kept for the life of a thread.
        scratch.clear();
        scratch.shrink_to(LARGE);
        write_entries(scratch, entries.clone(), LARGE);
        if scratch.len() <= LARGE {
            budget.spend(2 * scratch.len())?;
            return Ok(scratch.as_str().to_owned());
        }
        let mut length = Length(0);
        write_entries(&mut length, entries.clone(), budget.left() / 2);
        budget.spend(length.0.saturating_mul(2))?;
        let mut text = String::with_capacity(length.0);
        write_entries(&mut text, entries, usize::MAX);
        Ok(text)
    })
}

/// Writes until there are more than `most` bytes, and then nothing more.
fn write_node(out: &mut impl Sink, node: &Node<'_>, most: usize) {
    match &node.value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(text) => out.push_str(text),
        Value::String(text) => write_string(out, text),
        Value::List(list) => {
            out.push('[');
            for (index, item) in list.iter().enumerate() {
                if out.written() > most {
                    return;
                }
                if index > 0 {
                    out.push(',');
                }
                write_node(out, item, most);
            }
            out.push(']');
        }
        Value::Map(map) => write_entries(out, map.iter(), most),
    }
}

fn write_entries<'n, 't: 'n>(out: &mut impl Sink, entries: impl Iterator<Item = &'n Entry<'t>>, most: usize) {
    out.push('{');
    for (index, entry) in entries.enumerate() {
        if out.written() > most {
            return;
        }
        if index > 0 {
            out.push(',');
        }
        write_string(out, &entry.key);
        out.push(':');
        write_node(out, &entry.node, most);
    }
    out.push('}');
}

/// Bytes that stand for themselves in a JSON string.
const PLAIN: [bool; 256] = {
    let mut plain = [true; 256];
    let mut byte = 0;
    while byte < 0x20 {
        plain[byte] = false;
        byte += 1;
    }
    plain[b'"' as usize] = false;
    plain[b'\\' as usize] = false;
    plain
};

/// Whether a byte stands for itself in a JSON string.
pub(super) fn is_plain(byte: u8) -> bool {
    PLAIN[usize::from(byte)]
}

/// A string in quotes, escaped as JSON wants it.
pub(super) fn write_string(out: &mut impl Sink, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some(index) = rest.bytes().position(|byte| !is_plain(byte)) {
        out.push_str(&rest[..index]);
        match rest.as_bytes()[index] {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            byte => out.push_str(&format!("\\u{byte:04x}")),
        }
        rest = &rest[index + 1..];
    }
    out.push_str(rest);
    out.push('"');
}
