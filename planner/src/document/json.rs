//! A strict JSON reader (RFC 8259): iterative, borrowing, with the place of every value.
//!
//! serde_json is not used, because it takes the last of two equal keys, recurses, and tells a visitor no places.

use std::borrow::Cow;

use super::build::{Builder, Result};
use super::limits::Limits;
use super::tree::{Node, Value};
use crate::budget::Budget;
use crate::problem::{Kind, Problem};
use crate::text::{At, Text};

/// Whether a byte stands for itself in a string.
fn is_plain(byte: u8) -> bool {
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
    PLAIN[usize::from(byte)]
}

/// Reads one JSON document.
pub(super) fn read<'t>(text: Text<'t>, limits: &Limits, budget: &Budget) -> (Option<Node<'t>>, Vec<Problem>) {
    let source = text.as_str();
    let mut reader = Reader {
        text: source,
        bytes: source.as_bytes(),
        // Editors on Windows put a byte-order mark in front.
        pos: if source.starts_with('\u{feff}') { 3 } else { 0 },
        builder: Builder::new(limits, budget, source.len()),
    };
    let node = reader.document();
    let mut problems = reader.builder.problems;
    match node {
        Ok(node) => (Some(node), problems),
        Err(problem) => {
            problems.push(*problem);
            (None, problems)
        }
    }
}

struct Reader<'t, 'l> {
    text: &'t str,
    bytes: &'t [u8],
    pos: usize,
    builder: Builder<'t, 'l>,
}

impl<'t> Reader<'t, '_> {
    fn document(&mut self) -> Result<Node<'t>> {
        loop {
            // Here a value is due.
            self.blanks();
            let at = At::new(self.pos);
            let mut node = match self.peek() {
                Some(b'{') => {
                    self.pos += 1;
                    self.builder.open(at, true)?;
                    self.blanks();
                    if self.peek() == Some(b'}') {
                        self.pos += 1;
                        self.builder.close()
                    } else {
                        self.key()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.pos += 1;
                    self.builder.open(at, false)?;
                    self.blanks();
                    if self.peek() == Some(b']') {
                        self.pos += 1;
                        self.builder.close()
                    } else {
                        continue;
                    }
                }
                Some(b'"') => Node::new(at, Value::String(self.string()?)),
                Some(b'-' | b'0'..=b'9') => Node::new(at, Value::Number(self.number()?)),
                Some(b't') => self.word("true", at, Value::Bool(true))?,
                Some(b'f') => self.word("false", at, Value::Bool(false))?,
                Some(b'n') => self.word("null", at, Value::Null)?,
                Some(_) => return Err(self.wrong("a value is expected here")),
                None => return Err(self.wrong("the text ends where a value is expected")),
            };
            // Here a value is complete; it may complete what it stands in.
            loop {
                let Some(map) = self.builder.inside_map() else {
                    self.blanks();
                    return if self.pos == self.bytes.len() {
                        Ok(node)
                    } else {
                        Err(self.wrong("there is more text after the end of the document"))
                    };
                };
                self.builder.push(node)?;
                self.blanks();
                match (self.peek(), map) {
                    (Some(b','), true) => {
                        self.pos += 1;
                        self.blanks();
                        self.key()?;
                        break;
                    }
                    (Some(b','), false) => {
                        self.pos += 1;
                        break;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        self.pos += 1;
                        node = self.builder.close();
                    }
                    (None, _) => return Err(self.wrong("the text ends inside a map or list; a bracket is missing")),
                    (_, true) => return Err(self.wrong("`,` or `}` is expected here")),
                    (_, false) => return Err(self.wrong("`,` or `]` is expected here")),
                }
            }
        }
    }

    fn key(&mut self) -> Result<()> {
        let at = At::new(self.pos);
        if self.peek() != Some(b'"') {
            return Err(self.wrong("a key in double quotes is expected here"));
        }
        let key = self.string()?;
        self.builder.key(key, at)?;
        self.blanks();
        if self.peek() != Some(b':') {
            return Err(self.wrong("`:` is expected here"));
        }
        self.pos += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<Cow<'t, str>> {
        let start = self.pos + 1;
        let plain = self.bytes[start..].iter().position(|&byte| !is_plain(byte));
        let end = match plain.map(|length| start + length) {
            Some(end) => end,
            None => return Err(self.wrong("this string has no end; a double quote is missing")),
        };
        match self.bytes[end] {
            b'"' => {}
            b'\\' => return self.escaped(start, end).map(Cow::Owned),
            _ => {
                self.pos = end;
                return Err(self.wrong("a line break or control character inside a string must be escaped"));
            }
        }
        self.pos = end + 1;
        Ok(Cow::Borrowed(&self.text[start..end]))
    }

    /// The string that starts at `start` and has its first backslash at `escape`.
    fn escaped(&mut self, start: usize, escape: usize) -> Result<String> {
        let mut out = String::from(&self.text[start..escape]);
        self.pos = escape;
        loop {
            let plain = self.pos;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..=0x1f)) {
                self.pos += 1;
            }
            out.push_str(&self.text[plain..self.pos]);
            match self.peek() {
                Some(b'"') => {
                    self.pos += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(_) => {
                    return Err(self.wrong("a line break or control character inside a string must be escaped"));
                }
                None => {
                    self.pos = start - 1;
                    return Err(self.wrong("this string has no end; a double quote is missing"));
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let c = match self.bytes.get(self.pos + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let first = self.hex(self.pos + 2)?;
                let code = match first {
                    0xd800..=0xdbff => {
                        let second = match self.bytes.get(self.pos + 6..self.pos + 8) {
                            Some(b"\\u") => self.hex(self.pos + 8)?,
                            _ => 0,
                        };
                        if !(0xdc00..=0xdfff).contains(&second) {
                            return Err(self.wrong("half of a surrogate pair stands alone here"));
                        }
                        self.pos += 6;
                        0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                    }
                    code => code,
                };
                let c = char::from_u32(code).ok_or_else(|| self.wrong("half of a surrogate pair stands alone here"))?;
                self.pos += 6;
                return Ok(c);
            }
            _ => return Err(self.wrong("unknown escape in a string")),
        };
        self.pos += 2;
        Ok(c)
    }

    fn hex(&self, start: usize) -> Result<u32> {
        let digits = self.bytes.get(start..start + 4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| self.wrong("`\\u` needs four hex digits"))
    }

    fn number(&mut self) -> Result<Cow<'t, str>> {
        let start = self.pos;
        if self.peek() == Some(b'-') {
            self.pos += 1;
        }
        match self.peek() {
            Some(b'0') => self.pos += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.wrong("a digit is expected here")),
        }
        if self.peek() == Some(b'.') {
            self.pos += 1;
            self.some_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.pos += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.pos += 1;
            }
            self.some_digits()?;
        }
        if let Some(b'0'..=b'9') = self.peek() {
            return Err(self.wrong("a number cannot start with 0"));
        }
        Ok(Cow::Borrowed(&self.text[start..self.pos]))
    }

    fn some_digits(&mut self) -> Result<()> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.wrong("a digit is expected here"));
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.peek() {
            self.pos += 1;
        }
    }

    fn word(&mut self, word: &str, at: At, value: Value<'t>) -> Result<Node<'t>> {
        if !self.bytes[self.pos..].starts_with(word.as_bytes()) {
            return Err(self.wrong("a value is expected here; text needs double quotes"));
        }
        self.pos += word.len();
        Ok(Node::new(at, value))
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.pos += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.pos).copied()
    }

    fn wrong(&self, what: &str) -> Box<Problem> {
        let message = format!("not valid JSON: {what}");
        Box::new(Problem::new(Kind::Syntax, self.builder.path(), At::new(self.pos), message))
    }
}

#[cfg(test)]
mod tests {
    use super::super::write::to_json;
    use super::*;
    use crate::problem::settle;

    fn parse(text: &str) -> std::result::Result<String, Vec<Problem>> {
        let (node, problems) = read(Text::new(text), &Limits::default(), &Budget::unlimited());
        match node {
            Some(node) if problems.is_empty() => Ok(to_json(&node)),
            _ => Err(problems),
        }
    }

    #[test]
    fn what_is_read_is_written_back() {
        for text in [
            r#"{"a":[1,-0,2.50,1e400,18446744073709551616],"b":{"c":null,"d":true,"e":false},"f":""}"#,
            "[]",
            "{}",
            r#"[[],{},[[]],"a\"b\\c\n\u0001"]"#,
            "\"ß😀\"",
        ] {
            assert_eq!(parse(text).as_deref(), Ok(text));
        }
        assert!(parse(" \u{feff}[1]").is_err());
        assert_eq!(parse("\u{feff} [ 1 , 2 ] \n").as_deref(), Ok("[1,2]"));
        assert_eq!(parse(r#""\ud83d\ude00\/\u00df""#).as_deref(), Ok("\"😀/ß\""));
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in [
            "",
            "{",
            "[",
            "[1",
            "[1,",
            "[1,]",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "-",
            "tru",
            "nul",
            "\"a",
            "\"a\nb\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\udc00\"",
            "[1}",
            "{\"a\":1]",
            "1 2",
            "'a'",
            "NaN",
        ] {
            let problems = parse(text).expect_err(text);
            assert_eq!(problems.len(), 1, "{text}");
            assert_eq!(problems[0].kind, Kind::Syntax, "{text}");
        }
    }

    #[test]
    fn a_key_given_twice_is_reported_with_both_places() {
        let text = "{\"a\": {\"x\": 1,\n \"y\": 2,\n \"x\": 3}}";
        let mut problems = parse(text).expect_err("a duplicate key");
        settle(&mut problems, Some(&Text::new(text)));
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].field, "a.x");
        assert!(problems[0].to_string().ends_with("(first in line 1, column 8; again in line 3, column 2)"));
    }

    #[test]
    fn duplicates_are_found_in_large_maps_too() {
        let keys: Vec<_> = (0..100).map(|i| format!("\"k{}\":1", i % 98)).collect();
        let problems = parse(&format!("{{{}}}", keys.join(","))).expect_err("duplicates");
        let fields: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, ["k0", "k1"]);
    }

    #[test]
    fn a_syntax_error_says_where_it_is() {
        let problems = parse(r#"{"components": [{"a": 1}, {"b": [true, x]}]}"#).expect_err("no JSON");
        assert_eq!(problems[0].field, "components[1].b[1]");
        assert_eq!(problems[0].at, At::new(39));
    }
}
