//! Paths in a document, as people write them: `components[3].configuration.metadata.labels["a.b"]`.

use std::fmt::{self, Write};

/// A path in a document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path(String);

impl Path {
    /// The document itself.
    pub fn root() -> Self {
        Self::default()
    }

    /// The value of `key` in the map at this path.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        if !plain {
            let mut quoted = String::new();
            super::write::write_string(&mut quoted, key);
            let _ = write!(self.0, "[{quoted}]");
            return self;
        }
        if !self.0.is_empty() {
            self.0.push('.');
        }
        self.0.push_str(key);
        self
    }

    /// What lies under `keys`, map in map.
    #[must_use]
    pub fn keys(self, keys: &[&str]) -> Self {
        keys.iter().fold(self, |path, key| path.key(key))
    }

    /// A path below this one.
    #[must_use]
    pub fn join(mut self, below: &str) -> Self {
        if !self.0.is_empty() && !below.starts_with('[') {
            self.0.push('.');
        }
        self.0.push_str(below);
        self
    }

    /// The item `index` of the list at this path.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        let _ = write!(self.0, "[{index}]");
        self
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_no_words_are_quoted() {
        let path = Path::root().key("services").key("a.b").key("dependsOn").index(0);
        assert_eq!(path.to_string(), "services[\"a.b\"].dependsOn[0]");
    }
}
