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

/// Bytes that stand for themselves, and with which no character starts that may have to be escaped.
const PLAIN: [bool; 256] = {
    let mut plain = [true; 256];
    let mut byte = 0;
    while byte < 0x20 {
        plain[byte] = false;
        byte += 1;
    }
    // Quote, backslash, DEL, and the first bytes of U+0080–00BF, U+2000–2FFF and U+F000–FFFF.
    let others = [b'"', b'\\', 0x7f, 0xc2, 0xe2, 0xef];
    let mut index = 0;
    while index < others.len() {
        plain[others[index] as usize] = false;
        index += 1;
    }
    plain
};

/// A string in quotes, escaped so that JSON and YAML readers agree on it.
///
/// API servers read the body of an apply as YAML. There a line separator inside quotes is folded into a blank
/// (U+0085, U+2028, U+2029), and other controls, the byte-order mark and U+FFFE and U+FFFF are refused. Escaped they are
/// the same character to both. Characters beyond U+FFFF stay as they are: half of a surrogate pair is nothing to YAML.
pub(super) fn write_string(out: &mut impl Sink, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some(index) = rest.bytes().position(|byte| !PLAIN[usize::from(byte)]) {
        let (plain, special) = rest.split_at(index);
        out.push_str(plain);
        let Some(c) = special.chars().next() else { break };
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' || is_special(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
        rest = &special[c.len_utf8()..];
    }
    out.push_str(rest);
    out.push('"');
}

/// How many bytes a string has in JSON, without its quotes.
pub(super) fn string_length(text: &str) -> usize {
    let mut length = Length(0);
    write_string(&mut length, text);
    length.0 - 2
}

/// Whether YAML does something else with a character than JSON.
fn is_special(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_yaml_reads_otherwise_is_escaped() {
        let written = |text: &str| {
            let mut out = String::new();
            write_string(&mut out, text);
            out
        };
        let text = "a\u{7f}b\u{85}c\u{9b}d\u{2028}e\u{2029}f\u{feff}g\u{fffe}h\u{ffff}";
        assert_eq!(written(text), r#""a\u007fb\u0085c\u009bd\u2028e\u2029f\ufeffg\ufffeh\uffff""#);
        for text in ["é\u{a0}ß", "“quoted” – …", "\u{2027}\u{202a}", "ﬁ\u{fffd}", "😀\u{1fffe}"] {
            assert_eq!(written(text), format!("\"{text}\""));
        }
        assert_eq!(written("\"\\\n\r\t\u{1}"), r#""\"\\\n\r\t\u0001""#);
        assert_eq!(string_length(text), written(text).len() - 2);
    }
}
