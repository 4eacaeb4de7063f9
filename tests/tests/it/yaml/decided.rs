//! What is decided otherwise than Go has it. Each decision is a row of `docs/yaml.md`; whatever else differs is a mistake.

use std::collections::BTreeSet;

use serde_json::Value;
use switchyard_planner::problem::{Kind, Problem};

use super::Judgement;

/// The rows of `docs/yaml.md`, by how they begin.
pub(super) const ROWS: &[&str] = &[BOOLEANS, TWICE, DIGITS, MERGED, LINES, SECOND, EMPTY, VERSION, TABS, REFUSED];
const BOOLEANS: &str = "`yes`, `no`, `on`, `off`, `y`, `n` without quotes";
const TWICE: &str = "a key twice in one map";
const DIGITS: &str = "digits of numbers";
const MERGED: &str = "a key that stands before `<<` and is merged by it";
const LINES: &str = "U+0085, U+2028 and U+2029, not escaped";
const SECOND: &str = "a second document";
const EMPTY: &str = "an empty document before the first";
const VERSION: &str = "`%YAML 1.2`";
const TABS: &str = "tabs where only blanks may stand";
const REFUSED: &str = "what YAML 1.1 and YAML 1.2 read in two ways, or only one of them";

/// Which decisions have been met.
#[derive(Default)]
pub(super) struct Met(pub(super) BTreeSet<&'static str>);

impl Met {
    fn row(&mut self, row: &'static str) -> bool {
        self.0.insert(row);
        true
    }

    /// Where what we read differs from what Go read, but for what is decided.
    pub(super) fn difference(&mut self, ours: &Value, go: &Value) -> Option<String> {
        match (ours, go) {
            (Value::String(word), Value::Bool(value)) if old_boolean(word) == Some(*value) => {
                self.row(BOOLEANS);
                None
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => (a.iter().zip(b).enumerate())
                .find_map(|(index, (a, b))| Some(format!("[{index}]{}", self.difference(a, b)?))),
            (Value::Object(a), Value::Object(b)) => match (number(a), number(b)) {
                (Some(a), Some(b)) => (!self.one_number(a, b)).then(String::new),
                (None, None) if a.len() == b.len() => a.iter().find_map(|(key, value)| {
                    let old = || old_boolean(key).map(|value| if value { "true" } else { "false" });
                    let other = b.get(key).or_else(|| {
                        self.row(BOOLEANS);
                        b.get(old()?)
                    });
                    let deeper = other.map_or(Some(String::new()), |other| self.difference(value, other))?;
                    Some(format!(".{key}{deeper}"))
                }),
                _ => Some(String::new()),
            },
            (a, b) => (a != b).then(String::new),
        }
    }

    /// Whether two texts are one number. What fits 64 bits is the same to the last digit; the rest is a double to Go.
    fn one_number(&mut self, ours: &str, go: &str) -> bool {
        let whole = |text: &str| {
            text.parse::<i128>().ok().filter(|n| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(n))
        };
        if ours != go && whole(ours).is_none() {
            self.row(DIGITS);
        }
        match (whole(ours), whole(go)) {
            (Some(a), Some(b)) => a == b,
            _ => ours.parse::<f64>().ok().zip(go.parse::<f64>().ok()).is_some_and(|(a, b)| a == b),
        }
    }

    /// Whether it is decided that what Go read of a document is not what we read.
    pub(super) fn otherwise(&mut self, ours: &Value, go: &Judgement) -> bool {
        // yaml.v3 is the judge of merges, and of nothing else.
        let merged = go.merged.as_ref().is_some_and(|merged| self.difference(ours, merged).is_none());
        merged && self.row(MERGED)
    }

    /// Whether it is decided that we read what Go refuses with these words.
    pub(super) fn read(&mut self, document: &str, error: &str) -> bool {
        let line = |is: fn(&str) -> bool| document.split(['\n', '\r']).any(is);
        let row = if error.contains("found incompatible YAML document") && line(is_version_1_2) {
            VERSION
        } else if TAB.iter().any(|text| error.contains(text)) && line(has_tab_for_blank) {
            TABS
        } else if error.contains("did not find expected node content") && line(|line| line.starts_with("...")) {
            EMPTY
        } else {
            return false;
        };
        self.row(row)
    }

    /// Whether it is decided that we refuse what Go reads.
    pub(super) fn refused(&mut self, document: &str, problem: &Problem, go: &Judgement) -> bool {
        let row = match problem.kind {
            Kind::DuplicateKey if go.repeats => TWICE,
            _ if go.more => SECOND,
            Kind::Syntax if told(document, &problem.message) => REFUSED,
            _ => return false,
        };
        self.row(row)
    }

    /// An empty first document is the design to Go.
    pub(super) fn passed_over(&mut self, go: &Judgement) -> bool {
        go.error.is_empty() && go.yaml.is_null() && go.more && self.row(EMPTY)
    }

    /// To Go these characters are line breaks. It is asked with others in their place.
    pub(super) fn lines(&mut self, document: &str) -> String {
        if document.contains(super::SEPARATORS.map(|(separator, _)| separator)) {
            self.row(LINES);
        }
        super::SEPARATORS.iter().fold(document.to_owned(), |text, &(from, to)| text.replace(from, to))
    }
}

/// The boolean that a word of YAML 1.1 stands for.
fn old_boolean(word: &str) -> Option<bool> {
    match word {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

fn number(map: &serde_json::Map<String, Value>) -> Option<&str> {
    map.get(super::NUMBER).filter(|_| map.len() == 1)?.as_str()
}

fn is_version_1_2(line: &str) -> bool {
    line.split_ascii_whitespace().take(2).eq(["%YAML", "1.2"])
}

/// What Go says of tabs.
const TAB: &[&str] = &[
    "found character that cannot start any token",
    "found a tab character where an indentation space is expected",
    "found a tab character that violates indentation",
];

/// Whether a tab stands among the blanks before a line's content, dashes, and question marks.
fn has_tab_for_blank(line: &str) -> bool {
    let content = line.trim_start_matches([' ', '\t', '-', '?', ':']);
    line[..line.len() - content.len()].contains('\t')
}

/// Whether a complaint of ours is about what the two versions of YAML read in two ways, or only one of them.
fn told(document: &str, message: &str) -> bool {
    let ends_in_colon = || {
        let ends = |(_, rest): (&str, &str)| rest.starts_with([',', '[', ']', '{', '}']);
        document.char_indices().any(|(at, c)| c == ':' && ends(document[at..].split_at(1)))
    };
    let message = message.strip_prefix("cannot be read as YAML: ").unwrap_or(message);
    match message {
        "in brackets, a tag needs a value"
        | "in brackets, text that starts with `:` or holds a `?` needs quotes"
        | "in brackets, the colon behind a key needs a blank behind itself"
        | "in brackets, a key and its colon stand on one line"
        | "the name of an anchor is letters, digits, `-` and `_`, and has a blank behind it"
        | "infinity and not-a-number cannot be sent to Kubernetes; quote it if it is meant as text"
        | "a value is not of the type of its tag"
        | "what is tagged as binary is not the base64 of a text"
        | "the only directive that is known is `%YAML 1.1`"
        | "a byte-order mark stands where no text begins"
        | "simple key expected ':'"
        | "comments must be separated from other tokens by whitespace" => true,
        "while parsing a quoted scalar, found unknown escape character" => document.contains("\\'"),
        "plain scalar cannot start with '-' followed by ,[]{}" => document.contains(['[', '{']),
        "this alias has no anchor before it; text that starts with `*` needs quotes" => document.contains('*'),
        "illegal placement of ':' indicator" => ends_in_colon(),
        _ if message.starts_with("while parsing a flow mapping, did not find expected") => ends_in_colon(),
        _ if message.contains("tag") => document.contains('!'),
        _ => false,
    }
}
