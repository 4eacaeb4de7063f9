//! The tree as JSON text. Recursion is bounded by the depth that reading allows.

use super::tree::{Map, Node, Value};

/// The tree as compact JSON. Numbers and the order of keys are as they were read.
pub fn to_json(node: &Node<'_>) -> String {
    let mut out = String::new();
    write_node(&mut out, node);
    out
}

/// A map as compact JSON.
pub fn map_to_json(map: &Map<'_>) -> String {
    let mut out = String::with_capacity(256);
    write_map(&mut out, map);
    out.shrink_to_fit();
    out
}

fn write_node(out: &mut String, node: &Node<'_>) {
    match &node.value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(text) => out.push_str(text),
        Value::String(text) => write_string(out, text),
        Value::List(list) => {
            out.push('[');
            for (index, item) in list.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_node(out, item);
            }
            out.push(']');
        }
        Value::Map(map) => write_map(out, map),
    }
}

fn write_map(out: &mut String, map: &Map<'_>) {
    out.push('{');
    for (index, entry) in map.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_string(out, &entry.key);
        out.push(':');
        write_node(out, &entry.node);
    }
    out.push('}');
}

/// A string in quotes, escaped as JSON wants it.
pub fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut plain = 0;
    for (index, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..=0x1f => "",
            _ => continue,
        };
        out.push_str(&text[plain..index]);
        if escape.is_empty() {
            out.push_str(&format!("\\u{byte:04x}"));
        } else {
            out.push_str(escape);
        }
        plain = index + 1;
    }
    out.push_str(&text[plain..]);
    out.push('"');
}
