//! What Go reads otherwise than YAML 1.2, or refuses.
//!
//! Go's reader (`sigs.k8s.io/yaml`) knows YAML 1.1. Where the two versions make different values of one text, nobody can tell which
//! was meant, so it is refused; so is what Go refuses, because the design could not be read anywhere else.

/// A scalar in brackets.
#[derive(Clone, Copy)]
pub(super) struct Flow {
    pub(super) key: bool,
    /// Whether it has no quotes.
    pub(super) plain: bool,
    pub(super) tagged: bool,
    pub(super) anchored: bool,
}

/// What may stand between two words on several lines.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

impl Flow {
    /// Says why a scalar in brackets cannot be read, if it cannot. It stands in `source` from `start` to `end`.
    pub(super) fn objection(self, source: &str, start: usize, end: usize) -> Option<&'static str> {
        let (before, rest) = (source.get(..start)?, source.get(end..)?);
        let written = source.get(start..end)?;
        if self.plain && self.tagged && written.is_empty() {
            return Some("in brackets, a tag needs a value");
        }
        if self.plain && (written.starts_with(':') || written.contains('?')) {
            return Some("in brackets, text that starts with `:` or holds a `?` needs quotes");
        }
        let behind = rest.trim_start_matches(BLANKS);
        let after = behind.strip_prefix(':')?;
        if self.plain && after.starts_with([',', '[', ']', '{', '}']) {
            return Some("in brackets, the colon behind a key needs a blank behind itself");
        }
        let ahead = before.trim_end_matches(BLANKS);
        if !self.key || ahead.ends_with('?') {
            return None;
        }
        // From the tag or the anchor of the key, if it has one, to its colon.
        let first = if self.tagged || self.anchored { ahead.len() } else { start };
        if source.get(first..end + rest.len() - behind.len())?.contains(['\r', '\n']) {
            return Some("in brackets, a key and its colon stand on one line");
        }
        None
    }
}

/// What is wrong before the first line of a document's content, and where.
pub(super) fn prologue(source: &str) -> Option<(usize, &'static str)> {
    const BOM: char = '\u{feff}';
    let content = source.strip_prefix(BOM).unwrap_or(source);
    let mut offset = source.len() - content.len();
    for line in content.split_inclusive('\n') {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (None, _) | (Some("%YAML"), Some("1.1" | "1.2")) => {}
            (Some(word), _) if word.starts_with('#') => {}
            _ if line.starts_with('%') => return Some((offset, "the only directive that is known is `%YAML 1.1`")),
            (Some("..."), _) if line.starts_with("...") => {
                return Some((offset, "a document ends here and none has begun"));
            }
            _ if line.starts_with(BOM) => return Some((offset, "a byte-order mark stands where no text begins")),
            _ => return None,
        }
        offset += line.len();
    }
    None
}

/// Whether Go knows an anchor of this name, behind which this text stands.
pub(super) fn is_anchor(name: &str, rest: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    name.bytes().all(known) && (rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n', ',', ']', '}']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objection(source: &str, scalar: &str, flow: Flow) -> bool {
        let start = source.find(scalar).expect("the scalar");
        flow.objection(source, start, start + scalar.len()).is_some()
    }

    #[test]
    fn what_is_read_in_two_ways_in_brackets_is_refused() {
        let key = Flow { key: true, plain: true, tagged: false, anchored: false };
        let value = Flow { key: false, ..key };
        let quoted = Flow { plain: false, ..key };
        for (source, scalar, flow) in [
            ("{a:, b: 1}", "a", key),
            ("{a :}", "a", key),
            ("{:a: 1}", ":a", key),
            ("[a?b]", "a?b", value),
            ("{a\n: 1}", "a", key),
            ("{\"a\nb\": 1}", "\"a\nb\"", quoted),
            ("{!\n a: 1}", "a", Flow { tagged: true, ..key }),
        ] {
            assert!(objection(source, scalar, flow), "{source}");
        }
        for (source, scalar, flow) in [
            ("{a: 1}", "a", key),
            ("{a: b:c}", "b:c", value),
            ("{\"a\":[1]}", "\"a\"", quoted),
            ("{\"a?\": 1}", "\"a?\"", quoted),
            ("{? a\n: 1}", "a", key),
            ("{\n a: 1}", "a", key),
            ("{&x a: 1}", "a", Flow { anchored: true, ..key }),
            ("[a\n, b]", "a", value),
        ] {
            assert!(!objection(source, scalar, flow), "{source}");
        }
        let source = "[!x , 1]";
        assert!(Flow { tagged: true, ..value }.objection(source, 4, 4).is_some());
    }

    #[test]
    fn what_stands_before_a_document_is_looked_at() {
        for fine in ["", "a: 1", "# c\n\n%YAML 1.1\n---\n%FOO\n", "---\n...\n", "....\n", " %x"] {
            assert_eq!(prologue(fine), None, "{fine:?}");
        }
        assert_eq!(prologue("# c\n%FOO\n---\n").map(|(offset, _)| offset), Some(4));
        assert_eq!(prologue("\n...\na: 1\n").map(|(offset, _)| offset), Some(1));
        for wrong in ["%YAML1.1\n---\n", "%TAG ! x\n---\n", "# c\n\u{feff}a: b\n"] {
            assert!(prologue(wrong).is_some(), "{wrong:?}");
        }
        assert_eq!(prologue("\u{feff}a: b\n"), None);
    }

    #[test]
    fn names_of_anchors_end_where_go_ends_them() {
        assert!(is_anchor("a-b_1", "") && is_anchor("a", " x") && is_anchor("a", "\nx") && is_anchor("a", ", b]"));
        assert!(!is_anchor("a:", " x") && !is_anchor("a", "[1]") && !is_anchor("é", ""));
    }
}
