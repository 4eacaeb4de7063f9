//! The text of a document, and places in it.

use std::fmt;

/// An offset into a document: bytes of its text, or for structured input the number of the value. Orders problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct At(u32);

impl At {
    /// The start of the document.
    pub const START: Self = Self(0);

    /// The place at `offset`. Documents of 4 GiB are out of reach; beyond, the last place there is.
    pub fn new(offset: usize) -> Self {
        Self(u32::try_from(offset).unwrap_or(u32::MAX))
    }

    pub(crate) fn offset(self) -> usize {
        self.0 as usize
    }
}

/// A place as an editor shows it. Both count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// The text of a document.
#[derive(Clone, Copy)]
pub struct Text<'t>(&'t str);

impl<'t> Text<'t> {
    /// The text of a document.
    pub fn new(text: &'t str) -> Self {
        Self(text)
    }

    pub(crate) fn as_str(self) -> &'t str {
        self.0
    }

    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    /// Whether the text holds a part.
    pub fn contains(&self, part: &str) -> bool {
        self.0.contains(part)
    }

    pub(crate) fn looks_like_json(self) -> bool {
        self.0.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '['])
    }

    /// Starts to look up places, which must be asked for in ascending order: the text is walked through once.
    pub fn places(self) -> Places<'t> {
        Places { text: self.0, seen: 0, line: 1, column: 1 }
    }
}

/// Turns ascending offsets into lines and columns in one walk.
pub struct Places<'t> {
    text: &'t str,
    seen: usize,
    line: usize,
    column: usize,
}

impl Places<'_> {
    /// The place of `at`.
    pub fn find(&mut self, at: At) -> Place {
        let end = at.offset().min(self.text.len());
        if let Some(passed) = self.text.as_bytes().get(self.seen..end) {
            for &byte in passed {
                match byte {
                    b'\n' => {
                        self.line += 1;
                        self.column = 1;
                    }
                    // Continuation bytes of UTF-8 start no character.
                    0x80..=0xbf => {}
                    _ => self.column += 1,
                }
            }
            self.seen = end;
        }
        Place { line: self.line, column: self.column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let mut places = Text::new("a\nß: x\r\n  y").places();
        let found: Vec<_> = [0, 2, 6, 11].map(|at| places.find(At::new(at))).map(|p| (p.line, p.column)).into();
        assert_eq!(found, [(1, 1), (2, 1), (2, 4), (3, 3)]);
    }
}
