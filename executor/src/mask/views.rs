//! A text as those read it who know how it was quoted: with escapes resolved and encodings decoded, each byte with the place that
//! it has in the text. Whatever a value was spelled like, in one of the views it stands as it is.

/// How often quotes may be in quotes: JSON in a JSON string in a log line.
const DEPTH: usize = 3;
/// Shortest runs that are decoded, in characters: base64 of four bytes without padding.
const SHORTEST: usize = 6;

/// One way to read a text.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) bytes: Vec<u8>,
    /// For each byte, which bytes of the text it stands for.
    pub(super) places: Vec<(u32, u32)>,
}

impl View {
    fn of(text: &str) -> Self {
        let places = (0..text.len() as u32).map(|at| (at, at + 1)).collect();
        Self { bytes: text.as_bytes().to_vec(), places }
    }

    /// The bytes of the text that `length` bytes from `at` on stand for.
    pub(super) fn range(&self, at: usize, length: usize) -> (usize, usize) {
        (self.places[at].0 as usize, self.places[at + length - 1].1 as usize)
    }

    fn push(&mut self, bytes: &[u8], place: (u32, u32)) {
        self.bytes.extend_from_slice(bytes);
        self.places.resize(self.bytes.len(), place);
    }

    fn push_char(&mut self, c: char, place: (u32, u32)) {
        self.push(c.encode_utf8(&mut [0; 4]).as_bytes(), place);
    }

    /// The view with everything resolved that `resolve` knows; none if that is nothing. It is asked at each byte, and answers what
    /// stands there and how many bytes that takes.
    fn resolved(&self, resolve: impl Fn(&[u8]) -> Option<(Resolved, usize)>) -> Option<Self> {
        let mut view = Self::default();
        let mut changed = false;
        let mut at = 0;
        while at < self.bytes.len() {
            let (start, end) = self.places[at];
            match resolve(&self.bytes[at..]) {
                Some((resolved, length)) => {
                    let place = (start, self.places[at + length - 1].1);
                    match resolved {
                        Resolved::Char(c) => view.push_char(c, place),
                        Resolved::Byte(byte) => view.push(&[byte], place),
                        Resolved::Nothing => {}
                    }
                    changed = true;
                    at += length;
                }
                None => {
                    view.push(&self.bytes[at..=at], (start, end));
                    at += 1;
                }
            }
        }
        changed.then_some(view)
    }
}

enum Resolved {
    Char(char),
    Byte(u8),
    Nothing,
}

/// All ways to read a text that are known here, the text as it is first.
pub(super) fn views(text: &str) -> Vec<View> {
    let mut views = vec![View::of(text)];
    for depth in 0..DEPTH {
        match views[depth].resolved(backslash) {
            Some(view) => views.push(view),
            None => break,
        }
    }
    for level in 0..views.len() {
        let others: [Resolve; 8] = [quotes, double_quotes, percent, form, entity, indentation, fold, yaml];
        let others = others.map(|resolve| views[level].resolved(resolve));
        let decoded = base64(&views[level]).into_iter().chain(hex(&views[level]));
        // What was in other quotes, or encoded, may have escapes of its own.
        for view in others.into_iter().flatten().chain(decoded) {
            views.extend(view.resolved(backslash));
            views.push(view);
        }
    }
    views
}

type Resolve = fn(&[u8]) -> Option<(Resolved, usize)>;

/// Escapes with a backslash, as in JSON, Go, YAML and shells.
fn backslash(text: &[u8]) -> Option<(Resolved, usize)> {
    let (b'\\', rest) = text.split_first()? else { return None };
    let simple = |c| Some((Resolved::Char(c), 2));
    match *rest.first()? {
        b'n' => simple('\n'),
        b'r' => simple('\r'),
        b't' => simple('\t'),
        b'a' => simple('\u{7}'),
        b'b' => simple('\u{8}'),
        b'f' => simple('\u{c}'),
        b'v' => simple('\u{b}'),
        b'e' | b'E' => simple('\u{1b}'),
        b'x' => Some((Resolved::Byte(u8::try_from(number(rest.get(1..3)?, 16)?).ok()?), 4)),
        b'u' => unicode(rest),
        b'U' => Some((Resolved::Char(char::from_u32(number(rest.get(1..9)?, 16)?)?), 10)),
        b'0'..=b'7' => {
            let length = rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
            Some((Resolved::Byte(u8::try_from(number(&rest[..length], 8)?).ok()?), 1 + length))
        }
        // A folded line: the break and the indentation of the next one are not part of the value.
        b'\n' | b'\r' => {
            let blank = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            Some((Resolved::Nothing, 1 + blank))
        }
        byte if byte.is_ascii_punctuation() || byte == b' ' => simple(char::from(byte)),
        _ => None,
    }
}

/// `uXXXX`, or two of them that make one character.
fn unicode(rest: &[u8]) -> Option<(Resolved, usize)> {
    let first = number(rest.get(1..5)?, 16)?;
    if let Some(c) = char::from_u32(first) {
        return Some((Resolved::Char(c), 6));
    }
    let second = number(rest.get(5..)?.strip_prefix(b"\\u")?.get(..4)?, 16)?;
    let pair = [u16::try_from(first).ok()?, u16::try_from(second).ok()?];
    let c = char::decode_utf16(pair).next()?.ok()?;
    Some((Resolved::Char(c), 12))
}

/// Single quotes in single quotes: doubled ones (YAML, SQL), and how shells leave a string and come back to it.
fn quotes(text: &[u8]) -> Option<(Resolved, usize)> {
    let spelling = ["'\\''", "'\"'\"'", "''"].into_iter().find(|spelling| text.starts_with(spelling.as_bytes()))?;
    Some((Resolved::Char('\''), spelling.len()))
}

/// Doubled ones in double quotes (CSV).
fn double_quotes(text: &[u8]) -> Option<(Resolved, usize)> {
    text.starts_with(b"\"\"").then_some((Resolved::Char('"'), 2))
}

/// `%26`, as in URLs.
fn percent(text: &[u8]) -> Option<(Resolved, usize)> {
    let (b'%', rest) = text.split_first()? else { return None };
    Some((Resolved::Byte(u8::try_from(number(rest.get(..2)?, 16)?).ok()?), 3))
}

/// The same where a plus stands for a blank, as in forms.
fn form(text: &[u8]) -> Option<(Resolved, usize)> {
    percent(text).or_else(|| text.starts_with(b"+").then_some((Resolved::Char(' '), 1)))
}

/// Escapes that mean something else in YAML: `\xe9` is a byte in Go and a character there.
fn yaml(text: &[u8]) -> Option<(Resolved, usize)> {
    let own = [(b"\\_", '\u{a0}'), (b"\\N", '\u{85}'), (b"\\L", '\u{2028}'), (b"\\P", '\u{2029}')];
    if let Some((escape, c)) = own.into_iter().find(|(escape, _)| text.starts_with(*escape)) {
        return Some((Resolved::Char(c), escape.len()));
    }
    match backslash(text)? {
        (Resolved::Byte(byte), length) => Some((Resolved::Char(char::from(byte)), length)),
        other => Some(other),
    }
}

/// `&amp;`, as in the pages of proxies.
fn entity(text: &[u8]) -> Option<(Resolved, usize)> {
    let named = [("&amp;", '&'), ("&lt;", '<'), ("&gt;", '>'), ("&quot;", '"'), ("&apos;", '\'')];
    if let Some((name, c)) = named.into_iter().find(|(name, _)| text.starts_with(name.as_bytes())) {
        return Some((Resolved::Char(c), name.len()));
    }
    let digits = text.strip_prefix(b"&#")?;
    let end = digits.iter().take(9).position(|byte| *byte == b';')?;
    let code = match digits[..end].split_first()? {
        (b'x' | b'X', hex) => number(hex, 16)?,
        _ => number(&digits[..end], 10)?,
    };
    Some((Resolved::Char(char::from_u32(code)?), 3 + end))
}

/// The indentation of a line, which a block of text in YAML has and its value has not.
fn indentation(text: &[u8]) -> Option<(Resolved, usize)> {
    let (b'\n', rest) = text.split_first()? else { return None };
    let blank = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    (blank > 0).then_some((Resolved::Char('\n'), 1 + blank))
}

/// A break between words that stands for a blank.
fn fold(text: &[u8]) -> Option<(Resolved, usize)> {
    let (b'\n', rest) = text.split_first()? else { return None };
    let blank = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    Some((Resolved::Char(' '), 1 + blank))
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    let text = std::str::from_utf8(digits).ok()?;
    if text.starts_with('+') { None } else { u32::from_str_radix(text, radix).ok() }
}

/// Runs of base64 in either alphabet, wrapped lines too. Where a run begins within its group of four nobody knows, so there are
/// four readings of it.
fn base64(view: &View) -> Vec<View> {
    let runs = runs(view, |byte| sextet(byte).is_some());
    let read = |offset: usize| {
        let mut read = View::default();
        for run in &runs {
            let run = run.get(offset..).unwrap_or_default();
            for (ix, pair) in run.windows(2).enumerate() {
                let (Some(high), Some(low)) = (sextet(view.bytes[pair[0]]), sextet(view.bytes[pair[1]])) else {
                    continue;
                };
                let place = (view.places[pair[0]].0, view.places[pair[1]].1);
                match ix % 4 {
                    0 => read.push(&[high << 2 | low >> 4], place),
                    1 => read.push(&[high << 4 | low >> 2], place),
                    2 => read.push(&[high << 6 | low], place),
                    _ => {}
                }
            }
            let padding =
                run.last().map_or(0, |last| view.bytes[last + 1..].iter().take_while(|byte| **byte == b'=').count());
            if let (Some(last), Some(place)) = (run.last(), read.places.last_mut()) {
                let end = view.places[last + padding].1;
                place.1 = end;
                read.push(&[0], (end, end));
            }
        }
        read
    };
    if runs.is_empty() { Vec::new() } else { (0..4).map(read).collect() }
}

fn sextet(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    })
}

/// Runs of hexadecimal digits.
fn hex(view: &View) -> Option<View> {
    let runs = runs(view, |byte| byte.is_ascii_hexdigit());
    let mut read = View::default();
    for run in runs.iter().flat_map(|run| [&run[..], &run[1..]]) {
        for pair in run.chunks_exact(2) {
            let digits = [view.bytes[pair[0]], view.bytes[pair[1]]];
            let byte = number(&digits, 16).and_then(|byte| u8::try_from(byte).ok()).unwrap_or_default();
            read.push(&[byte], (view.places[pair[0]].0, view.places[pair[1]].1));
        }
        if let Some(&(_, end)) = read.places.last() {
            read.push(&[0], (end, end));
        }
    }
    (!runs.is_empty()).then_some(read)
}

/// Positions of the bytes of each run that is long enough. A break between lines, and the indentation behind it, are in no run and
/// end none.
fn runs(view: &View, is_of_it: impl Fn(u8) -> bool) -> Vec<Vec<usize>> {
    let mut runs = Vec::new();
    let mut run = Vec::new();
    let mut at = 0;
    while at < view.bytes.len() {
        if is_of_it(view.bytes[at]) {
            run.push(at);
            at += 1;
            continue;
        }
        let blank = view.bytes[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        if blank > 0 && matches!(view.bytes[at], b'\n' | b'\r') {
            at += blank;
            continue;
        }
        if run.len() >= SHORTEST {
            runs.push(std::mem::take(&mut run));
        }
        run.clear();
        at += 1;
    }
    if run.len() >= SHORTEST {
        runs.push(run);
    }
    runs
}
