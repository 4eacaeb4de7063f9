//! How large, deep and dense a document may be.

/// Bounds of what the planner reads. A document beyond one of them is refused, naming the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of text.
    pub bytes: usize,
    /// Levels of maps and lists in each other.
    pub depth: usize,
    /// Bytes of one key.
    pub key_bytes: usize,
    /// Keys of one map.
    pub keys: usize,
    /// Values that YAML aliases may add to those that are written out.
    pub aliased_values: usize,
    /// Bytes of text that YAML aliases and references may add.
    pub expanded_bytes: usize,
}

impl Limits {
    /// Limits for documents of up to `bytes` bytes.
    pub const fn for_bytes(bytes: usize) -> Self {
        Self {
            bytes,
            // The deepest of the 1,093 designs we know has 29 levels (a CRD's schema); prost reads at most 33 levels of
            // a Struct. 100 leaves room and keeps every recursive walk over a tree within a small stack.
            depth: 100,
            // The longest key in those designs has 146 bytes; the longest that Kubernetes takes (an annotation) 317.
            // In the body of an apply, which API servers read as YAML, a key with its quotes has at most 1,024 characters.
            key_bytes: 1_022,
            keys: 200_000,
            aliased_values: 200_000,
            expanded_bytes: 16 << 20,
        }
    }

    /// How many values a text of `bytes` bytes may hold. Designs need about 20 bytes a value; a text of `[0,0,0…` needs
    /// two, and would take a hundred times its size in memory.
    pub fn values(&self, bytes: usize) -> usize {
        (bytes / 6).max(100_000)
    }
}

/// Documents of up to 16 MiB, the default size of a message.
impl Default for Limits {
    fn default() -> Self {
        Self::for_bytes(16 << 20)
    }
}
