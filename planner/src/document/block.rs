//! A fast YAML reader for designs as programs write them: block maps and lists, a scalar a line.
//!
//! It knows the smaller part of YAML that nearly every large document keeps to, and gives up without a word where anything
//! else stands, be it a mistake: then [`super::yaml`] reads the text from its start, so that what is told, and how, is
//! decided there alone. What this reader does answer is the very tree that the other one builds, places included.

use std::borrow::Cow;

use super::build::Builder;
use super::limits::Limits;
use super::scalar;
use super::tree::{Node, Value};
use crate::budget::Budget;
use crate::problem::Problem;
use crate::text::{At, Text};

/// Reads a document that holds nothing but plain block style; none when there is anything else in it.
pub(super) fn read<'t>(text: Text<'t>, limits: &Limits, budget: &Budget) -> Option<Node<'t>> {
    let text = text.as_str();
    let builder = Builder::new(limits, budget, text.len());
    let mut reader = Reader { text, bytes: text.as_bytes(), pos: 0, builder, open: Vec::new(), due: None, root: None };
    reader.document().ok()?;
    reader.root.filter(|_| reader.builder.problems.is_empty())
}

/// The text holds what this reader does not know, or a mistake.
struct Other;

impl From<Box<Problem>> for Other {
    fn from(_: Box<Problem>) -> Self {
        Self
    }
}

type Result<T> = std::result::Result<T, Other>;

struct Reader<'t, 'l> {
    text: &'t str,
    bytes: &'t [u8],
    pos: usize,
    builder: Builder<'t, 'l>,
    /// The maps and lists that are not yet complete, outermost first.
    open: Vec<Open>,
    /// Set while the innermost of them lacks the value of its last key or dash: where the null stands if none comes.
    due: Option<At>,
    root: Option<Node<'t>>,
}

/// A block map or list, and the column of its keys or dashes.
#[derive(Clone, Copy, PartialEq)]
struct Open {
    column: usize,
    map: bool,
}

impl<'t> Reader<'t, '_> {
    fn document(&mut self) -> Result<()> {
        while let Some(column) = self.next_line()? {
            while let Some(&Open { column: innermost, map }) = self.open.last() {
                // A list may stand in the column of the key it belongs to, and ends where a line has no dash.
                if column > innermost || (column == innermost && (map || self.at_dash())) {
                    break;
                }
                self.end()?;
            }
            self.line(column)?;
        }
        while !self.open.is_empty() {
            self.end()?;
        }
        Ok(())
    }

    /// Goes to the first line with content and answers its column; none at the end of the text.
    fn next_line(&mut self) -> Result<Option<usize>> {
        loop {
            let start = self.pos;
            self.blanks();
            let column = self.pos - start;
            if !self.line_ends(start)? {
                let marker = column == 0 && [b"---", b"..."].iter().any(|m| self.bytes[start..].starts_with(*m));
                return if marker { Err(Other) } else { Ok(Some(column)) };
            }
            if self.pos == self.bytes.len() {
                return Ok(None);
            }
        }
    }

    /// Reads a line from its first content, in `column`, to its end.
    fn line(&mut self, mut column: usize) -> Result<()> {
        loop {
            let start = self.pos;
            if self.at_dash() {
                self.pos += 1;
                self.blanks();
                let in_column_of_key = self.open.last() == Some(&Open { column, map: true });
                // Such a list has its place behind its first dash over there.
                self.begin(if in_column_of_key { self.pos } else { start }, Open { column, map: false })?;
                self.due = Some(At::new(self.pos));
                if self.peek() == Some(b'#') {
                    return Err(Other);
                }
                if self.line_ends(start)? {
                    return Ok(());
                }
                column += self.pos - start;
                continue;
            }
            let Scalar { text, plain } = match self.peek() {
                Some(b'{' | b'[' | b'|') => return self.value(column),
                _ => self.scalar()?,
            };
            if !self.at_colon() {
                return self.scalar_value(start, column, text, plain);
            }
            // The other reader looks no further than 1,024 characters for the colon of a key.
            if self.pos - start > 1_000 || (plain && text == "<<") {
                return Err(Other);
            }
            // Keys that are numbers, booleans or null are looked at more closely elsewhere.
            if plain && !matches!(scalar::plain(Cow::Borrowed(&text)), Ok(Value::String(_))) {
                return Err(Other);
            }
            self.begin(start, Open { column, map: true })?;
            self.builder.key(text, At::new(start))?;
            self.due = Some(At::new(self.pos));
            self.pos += 1;
            self.blanks();
            return if self.line_ends(start)? { Ok(()) } else { self.value(usize::MAX) };
        }
    }

    /// Sees to it that the innermost open map or list is this one: goes on with it, or opens it where a value is due. The
    /// key or dash stands at `start`.
    fn begin(&mut self, start: usize, wanted: Open) -> Result<()> {
        match self.open.last() {
            Some(&innermost) if innermost == wanted => return self.fill(),
            Some(innermost) => {
                let within = wanted.column > innermost.column
                    || (wanted.column == innermost.column && innermost.map && !wanted.map);
                if !within || self.due.take().is_none() {
                    return Err(Other);
                }
            }
            None if self.root.is_some() => return Err(Other),
            None => {}
        }
        self.builder.open(At::new(start), wanted.map)?;
        self.open.push(wanted);
        Ok(())
    }

    /// Ends the innermost map or list.
    fn end(&mut self) -> Result<()> {
        self.fill()?;
        let node = self.builder.close();
        self.open.pop();
        match self.open.is_empty() {
            true => self.root = Some(node),
            false => self.builder.push(node)?,
        }
        Ok(())
    }

    /// Puts null where a value is due and none came.
    fn fill(&mut self) -> Result<()> {
        match self.due.take() {
            Some(at) => Ok(self.builder.push(Node::new(at, Value::Null))?),
            None => Ok(()),
        }
    }

    /// Reads the value that is due from where it starts to the end of its last line. A value that starts on a line of its
    /// own stands further right than what it belongs to; one beside its key may stand in any column.
    fn value(&mut self, column: usize) -> Result<()> {
        let start = self.pos;
        let node = match (self.peek(), self.bytes.get(start + 1)) {
            (Some(b'{'), Some(b'}')) => self.nothing(true)?,
            (Some(b'['), Some(b']')) => self.nothing(false)?,
            (Some(b'|'), _) => return self.literal(column),
            _ => {
                let Scalar { text, plain } = self.scalar()?;
                return self.scalar_value(start, column, text, plain);
            }
        };
        self.take(column, node)?;
        if self.line_ends(start)? { Ok(()) } else { Err(Other) }
    }

    /// An empty map or list in brackets.
    fn nothing(&mut self, map: bool) -> Result<Node<'t>> {
        self.builder.open(At::new(self.pos), map)?;
        self.pos += 2;
        Ok(self.builder.close())
    }

    fn scalar_value(&mut self, start: usize, column: usize, text: Cow<'t, str>, plain: bool) -> Result<()> {
        let value = if plain { scalar::plain(text).map_err(|_| Other)? } else { Value::String(text) };
        self.take(column, Node::new(At::new(start), value))?;
        // A second colon is left over here, and refused.
        if self.line_ends(start)? { Ok(()) } else { Err(Other) }
    }

    /// Puts a value where one is due.
    fn take(&mut self, column: usize, node: Node<'t>) -> Result<()> {
        let within = self.open.last().is_some_and(|innermost| column > innermost.column);
        if !within || self.due.take().is_none() {
            return Err(Other);
        }
        Ok(self.builder.push(node)?)
    }

    /// A text in lines of its own, behind `|` or `|-`.
    fn literal(&mut self, column: usize) -> Result<()> {
        let header = self.pos;
        self.pos += 1;
        let clipped = self.peek() == Some(b'-');
        self.pos += usize::from(clipped);
        if !self.line_ends(header)? {
            return Err(Other);
        }
        let first = self.pos;
        self.blanks();
        let (indent, at) = (self.pos - first, At::new(self.pos));
        if indent <= self.open.last().ok_or(Other)?.column {
            return Err(Other);
        }
        let mut out = String::new();
        let mut breaks = 0;
        self.pos = first;
        while self.pos < self.bytes.len() {
            let start = self.pos;
            self.blanks();
            let end = self.run(TEXT);
            match (self.bytes.get(end), end - start) {
                (Some(b'\n'), 0) => breaks += 1,
                (_, _) if self.pos - start < indent && self.pos < end => {
                    self.pos = start;
                    break;
                }
                (Some(b'\n'), _) if self.pos < end => {
                    out.extend(std::iter::repeat_n('\n', breaks));
                    out.push_str(&self.text[start + indent..end]);
                    breaks = 1;
                }
                // Only blanks, or no line break at the end, or a character that is looked at more closely elsewhere.
                _ => return Err(Other),
            }
            self.pos = end + 1;
        }
        if out.is_empty() {
            return Err(Other);
        }
        if !clipped {
            out.push('\n');
        }
        self.take(column, Node::new(at, Value::String(Cow::Owned(out))))
    }

    fn scalar(&mut self) -> Result<Scalar<'t>> {
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => Ok(Scalar { text: self.quoted(quote)?, plain: false }),
            _ => Ok(Scalar { text: Cow::Borrowed(self.plain()?), plain: true }),
        }
    }

    /// A scalar in quotes that ends on its line.
    fn quoted(&mut self, quote: u8) -> Result<Cow<'t, str>> {
        let start = self.pos + 1;
        let line = &self.bytes[start..self.run(TEXT)];
        let (mut length, mut doubled) = (0, false);
        loop {
            match line.get(length) {
                // Two single quotes are one, and no end.
                Some(b'\'') if quote == b'\'' && line.get(length + 1) == Some(&quote) => {
                    doubled = true;
                    length += 2;
                }
                Some(&byte) if byte == quote => break,
                None => return Err(Other),
                Some(b'\\') if quote == b'"' => return Err(Other),
                Some(_) => length += 1,
            }
        }
        self.pos = start + length + 1;
        let text = &self.text[start..start + length];
        Ok(if doubled { Cow::Owned(text.replace("''", "'")) } else { Cow::Borrowed(text) })
    }

    /// A scalar without quotes, to the end of its line, or to the colon or the comment behind it.
    fn plain(&mut self) -> Result<&'t str> {
        let start = self.pos;
        let next = self.bytes.get(start + 1).copied();
        match self.bytes[start] {
            b'-' if !is_blank(next) => {}
            b'-' | b'?' | b':' | b',' | b'[' | b']' | b'{' | b'}' | b'#' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\''
            | b'"' | b'%' | b'@' | b'`' => return Err(Other),
            _ => {}
        }
        loop {
            self.pos = self.run(PLAIN);
            match self.peek() {
                Some(b':') if self.at_colon() => break,
                Some(b'#') if self.bytes[self.pos - 1] == b' ' => break,
                Some(b':' | b'#') => self.pos += 1,
                None | Some(b'\n' | b'\r') => break,
                _ => return Err(Other),
            }
        }
        let text = self.text[start..self.pos].trim_end_matches(' ');
        if self.at_colon() && self.pos != start + text.len() {
            return Err(Other);
        }
        self.pos = start + text.len();
        Ok(text)
    }

    /// Passes the end of the line; false, and nothing passed but blanks, when there is more on it. `start` is where the
    /// line, or what was read of it, starts.
    fn line_ends(&mut self, start: usize) -> Result<bool> {
        self.blanks();
        if self.peek() == Some(b'#') && (self.pos == start || self.bytes[self.pos - 1] == b' ') {
            self.pos = self.run(TEXT);
        }
        match (self.peek(), self.bytes.get(self.pos + 1)) {
            (None, _) => {}
            (Some(b'\n'), _) => self.pos += 1,
            (Some(b'\r'), Some(b'\n')) => self.pos += 2,
            (Some(byte), _) if !TEXT[usize::from(byte)] => return Err(Other),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether a dash stands here that makes the entry of a list.
    fn at_dash(&self) -> bool {
        self.peek() == Some(b'-') && is_blank(self.bytes.get(self.pos + 1).copied())
    }

    /// Whether a colon stands here that makes what was before it a key.
    fn at_colon(&self) -> bool {
        self.peek() == Some(b':') && is_blank(self.bytes.get(self.pos + 1).copied())
    }

    fn blanks(&mut self) {
        while self.peek() == Some(b' ') {
            self.pos += 1;
        }
    }

    /// Where the bytes of a class end that start here.
    fn run(&self, class: [bool; 256]) -> usize {
        let rest = &self.bytes[self.pos..];
        self.pos + rest.iter().position(|&byte| !class[usize::from(byte)]).unwrap_or(rest.len())
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.pos).copied()
    }
}

struct Scalar<'t> {
    text: Cow<'t, str>,
    plain: bool,
}

fn is_blank(byte: Option<u8>) -> bool {
    matches!(byte, None | Some(b' ' | b'\n' | b'\r' | b'\t'))
}

/// Bytes of a line that need no second look. Tabs do, and what starts characters that YAML knows more about: controls
/// beyond ASCII and the byte-order mark.
const TEXT: [bool; 256] = {
    let mut text = [true; 256];
    let mut byte = 0;
    while byte < 0x20 {
        text[byte] = false;
        byte += 1;
    }
    text[0x7f] = false;
    text[0xc2] = false;
    text[0xef] = false;
    text
};

/// Bytes of a line that do not end a plain scalar.
const PLAIN: [bool; 256] = {
    let mut plain = TEXT;
    plain[b':' as usize] = false;
    plain[b'#' as usize] = false;
    plain
};

#[cfg(test)]
mod tests {
    use super::super::yaml;
    use super::*;
    use proptest::prelude::*;

    /// The tree with the place of every value.
    fn told(node: &Node<'_>, out: &mut String) {
        use std::fmt::Write as _;
        let _ = write!(out, "{:?}", node.at);
        match &node.value {
            Value::Null => out.push('~'),
            Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Value::Number(text) => out.push_str(text),
            Value::String(text) => out.push_str(&format!("{text:?}")),
            Value::List(list) => {
                out.push('[');
                list.iter().for_each(|node| told(node, out));
                out.push(']');
            }
            Value::Map(map) => {
                out.push('{');
                map.iter().for_each(|entry| {
                    out.push_str(&format!("{:?}:", entry.key));
                    told(&entry.node, out);
                });
                out.push('}');
            }
        }
    }

    /// Whether this reader knows the text; if so, it must build the tree of the other one.
    fn agree(text: &str) -> bool {
        let limits = Limits::default();
        let budget = Budget::unlimited();
        let Some(here) = read(Text::new(text), &limits, &budget) else { return false };
        let (there, problems) = yaml::read(Text::new(text), &limits, &budget);
        let tell = |node: &Node<'_>| {
            let mut out = String::new();
            told(node, &mut out);
            out
        };
        assert!(problems.is_empty(), "refused over there: {problems:?}\n{text}");
        assert_eq!(tell(&here), tell(&there.expect("a tree")), "{text}");
        true
    }

    #[test]
    fn both_readers_build_the_same_tree() {
        for text in [
            "a:\nb: 1\n",
            "a:",
            "a: b",
            "- a\n- b",
            "a:   # c\nb:\n  - x\n  -\n  - \nc:\n- y\n-\n- z: 1\n  w:\n",
            "- - a\n  - b\n-\n  k: v\n- -\n- - -\n",
            "'a': \"b\"\n\"c\": d\ne: 'it''s'\nf: ''\ng: \"\"\nh: '\\d'\n",
            "- -   a\n  -   b\n",
            "a: |\n  x\n\n  y: z\n   # no comment\n# a comment\nb: |-\n   z\n\n\nc: |  # comment\n x\n",
            "- |\n x\n- |-\n  y\n- a: |\n    z\n",
            "a:\n- |\n x\n",
            "a:\n  |\n  x\nb: 1\n",
            "a:\n  b:\n\n# c\nc: {}\nd: []\n",
            "- {}\n- []\n",
            "a: x\r\nb:\r\n- c\r\n# d\r\n",
            "a: -1\nb: -c\nc: x:y\nd: x#y\ne: x # y\nf: http://a/b?c=d&e#f\ng: a, b\n",
            "a:\n  text on a line of its own\nb:\n  'c'\n",
            "ä: ß→😀\nb: x\u{2028}y\n",
            "  a: 1\n  b: 2\n",
            "a: ~\nb: null\nc: yes\nd: true\ne: 0644\nf: 1_000\ng: 2026-11-29\n",
            "a:\n    b:\n        c: 1\n    d: 2\ne:\n- f:\n    - g\n  h: i\n",
            "a: b  \nc:  \nd:  e  # f\n",
            "\n\n# x\n  # y\na: 1\n\n   \nb: 2\n   # z\n",
            "-a: 1\n--b: 2\na-: 3\n",
            "a:\n-\n-\nb:\n",
            "- a:\n- b:\n  c:\n",
            "a: =\nb: <\nc: .\nd: $(x)\ne: (f)\n",
        ] {
            assert!(agree(text), "not read here: {text:?}");
        }
    }

    #[test]
    fn what_is_unusual_is_left_to_the_other_reader() {
        for text in [
            "",
            "# nothing\n",
            "a",
            "\u{feff}a: 1\n",
            "--- \na: 1\n",
            "a: 1\n---\nb: 1\n",
            "a: 1\n...\n",
            "%YAML 1.2\n",
            "a: 1\na: 2\n",
            "a: &x 1\nb: *x\n",
            "<<: 1\n",
            "a: !!str 1\n",
            "a: [1]\n",
            "a: {b: c}\n",
            "a: >\n  b\n",
            "a: |+\n  b\n",
            "a: |2\n   b\n",
            "a: b\n  c\n",
            "a: \"b\n  c\"\n",
            "a: \"\\n\"\n",
            "a: 'b\n",
            "a: b: c\n",
            "a:\tb\n",
            "a: b\tc\n",
            "a: 1\n b: 2\n",
            "a:\n  b: 1\n c: 2\n",
            "- a\nb: 1\n",
            "a: 1\n- b\n",
            "? a\n: b\n",
            "a: @b\n",
            "a: `b\n",
            "a: %b\n",
            "a: .inf\n",
            "a: - b\n",
            "a: \"b\" c\n",
            "a: {} b\n",
            "a: \u{85}\n",
            "a: \u{7}\n",
            "a\n: b\n",
            "\"a\" : b\n",
            "a : b\n",
            "a: |\n b",
            "a: |\n\n b\n",
            "a: |\n  b\n   \n  c\n",
            " - a\n- b\n",
            "a:\nb\n",
            "1: a\n",
            "true: a\n",
            "~: a\n",
        ] {
            assert!(read(Text::new(text), &Limits::default(), &Budget::unlimited()).is_none(), "{text:?}");
        }
    }

    #[test]
    fn limits_are_left_to_the_other_reader() {
        let limits = Limits { depth: 3, keys: 2, key_bytes: 3, ..Limits::default() };
        for (text, read_here) in [
            ("a:\n  b:\n    c: 1\n", true),
            ("a:\n  b:\n    c:\n      d: 1\n", false),
            ("a: 1\nb: 2\nc: 3\n", false),
            ("abcd: 1\n", false),
        ] {
            assert_eq!(read(Text::new(text), &limits, &Budget::unlimited()).is_some(), read_here, "{text}");
        }
    }

    fn agree_on_designs(folder: &str) {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let (mut here, mut all) = (0, 0);
        for file in std::fs::read_dir(folder).expect("the folder is there") {
            let text = std::fs::read_to_string(file.expect("a file").path()).expect("text");
            here += usize::from(agree(&text));
            all += 1;
        }
        eprintln!("{here} of {all} designs are read here");
        assert!(here > 0);
    }

    #[test]
    fn both_readers_agree_on_every_design() {
        agree_on_designs("tests/designs");
    }

    #[test]
    #[ignore = "needs ../shared/corpus, which is no part of the repository"]
    fn both_readers_agree_on_every_design_of_the_corpus() {
        agree_on_designs("../../shared/corpus/designs");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_lines_are_read_as_over_there_or_not_at_all(
            lines in prop::collection::vec(
                " {0,4}(- {1,3}){0,2}(([a-m]|[n-p] |'q'|\"r\"): {0,2})?(x|y z|'u''v'|\"w\"|\\||\\|-|\\{\\}|\\[\\]|1|~|:|-|ä)?( {0,2}# s)?\r?",
                0..7,
            ),
        ) {
            agree(&lines.join("\n"));
            agree(&(lines.join("\n") + "\n"));
        }

        #[test]
        fn any_text_is_read_as_over_there_or_not_at_all(
            text in "([ab'\"#:|&-]|[ab]: |- |  |\n|\n  |\n- |: \n|\\{\\}|\r\n|1|~|ä| #|\n# b\n){0,24}",
        ) {
            agree(&text);
        }
    }
}
