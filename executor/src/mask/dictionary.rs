//! The values that must not be said, as a dictionary in which one looks up what begins at a place of a text.

/// From this length on, in bytes, a value is masked wherever it stands. A shorter one is masked as a word of its own, since it may
/// well be part of harmless words: `test` in `latest`.
const ANYWHERE: usize = 8;
/// Values shorter than this, in bytes, are masked between quotes only: `no` and `1` are in every other sentence.
const WORD: usize = 4;
/// Servers cut long values. From so many characters of the text on, the beginning of a value is masked as the value is.
const BEGINNING: usize = 12;

/// Values in order, each once.
#[derive(Clone, Default)]
pub(super) struct Dictionary {
    values: Vec<Vec<u8>>,
    /// For each value the longest other value that it begins with.
    within: Vec<Option<usize>>,
}

impl Dictionary {
    pub(super) fn new(mut values: Vec<Vec<u8>>) -> Self {
        values.retain(|value| !value.is_empty());
        values.sort_unstable();
        values.dedup();
        let mut within = Vec::with_capacity(values.len());
        let mut open: Vec<usize> = Vec::new();
        for (ix, value) in values.iter().enumerate() {
            while open.last().is_some_and(|&last| !value.starts_with(&values[last])) {
                open.pop();
            }
            within.push(open.last().copied());
            open.push(ix);
        }
        Self { values, within }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(super) fn into_values(self) -> Vec<Vec<u8>> {
        self.values
    }

    /// Length of what must not be said of `text` from `at` on; 0 if nothing begins there. `span` tells how many characters of what
    /// is said so many bytes stand for.
    pub(super) fn length(&self, text: &[u8], at: usize, span: impl Fn(usize) -> usize) -> usize {
        let rest = &text[at..];
        // What has the most in common with the text stands right before or right behind it.
        let behind = self.values.partition_point(|value| value.as_slice() <= rest);
        let before = behind.checked_sub(1);
        let common = |ix: Option<usize>| ix.and_then(|ix| self.values.get(ix)).map_or(0, |value| common(value, rest));
        let in_common = common(before);
        let longest = in_common.max(common(Some(behind)));
        if longest >= ANYWHERE && span(longest) >= BEGINNING {
            return longest;
        }
        // Every value that the text begins with is one that the value right before it begins with.
        let mut next = before;
        while let Some(ix) = next {
            let length = self.values[ix].len();
            if length <= in_common && stands_alone(text, at, length) {
                return length;
            }
            next = self.within[ix];
        }
        0
    }
}

/// Whether a value of `length` that stands at `at` is masked there.
fn stands_alone(text: &[u8], at: usize, length: usize) -> bool {
    let before = at.checked_sub(1).map(|before| text[before]);
    let behind = text.get(at + length).copied();
    let is_of_a_word = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    match length {
        ANYWHERE.. => true,
        WORD.. => !is_of_a_word(before) && !is_of_a_word(behind),
        _ => before == behind && matches!(before, Some(b'"' | b'\'' | b'`')),
    }
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(values: &[&str], text: &str, at: usize) -> usize {
        let values = values.iter().map(|value| value.as_bytes().to_vec()).collect();
        Dictionary::new(values).length(text.as_bytes(), at, |length| length)
    }

    #[test]
    fn longest_value_that_the_text_begins_with_is_found_whatever_else_is_there() {
        let values = ["abcdefgh", "abcdefghij", "abcdefghzz", "abcd", "b"];
        assert_eq!(length(&values, "abcdefghijk", 0), 10);
        assert_eq!(length(&values, "abcdefghy", 0), 8);
        assert_eq!(length(&values, "abcd-", 0), 4);
        assert_eq!(length(&values, "abce", 0), 0);
    }

    #[test]
    fn short_values_are_masked_as_words_and_shorter_ones_in_quotes() {
        assert_eq!(length(&["test"], "latest", 2), 0);
        assert_eq!(length(&["test"], "a test.", 2), 4);
        assert_eq!(length(&["test"], "“test”", 3), 4);
        assert_eq!(length(&["no"], "\"no\"", 1), 2);
        assert_eq!(length(&["no"], " no ", 1), 0);
    }

    #[test]
    fn beginning_of_a_value_is_masked_from_twelve_characters_on() {
        assert_eq!(length(&["0123456789abcdef"], "0123456789ab...", 0), 12);
        assert_eq!(length(&["0123456789abcdef"], "0123456789a...", 0), 0);
    }
}
