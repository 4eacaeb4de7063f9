//! Text -> a tree of values that remember where they stood.
//!
//! Designs and registries are both read from here. The tree borrows from the text wherever it can, keeps numbers as they
//! were written, keeps the order of keys, and holds for every value its byte offset; line and column are worked out only
//! for what is reported. Reading is iterative and bounded by [`Limits`], so that a hostile document costs little.

mod block;
mod build;
mod json;
mod limits;
mod path;
mod scalar;
mod text;
mod tree;
mod write;
mod yaml;

pub use limits::Limits;
pub use path::Path;
pub use text::{At, Place, Text};
pub use tree::{Entry, Map, Node, Value};
pub use write::{entries_to_json, map_to_json, to_json, write_string};

use crate::problem::{Kind, Problem};

/// Reads JSON or YAML.
///
/// What starts like JSON is read as JSON, and as YAML when that fails, because `{a: b}` is YAML too. When neither works,
/// the JSON reader's complaint is kept, as the text was most likely meant to be JSON. Problems that leave the tree usable
/// (a key given twice) come beside it, so that they can be reported together with what is wrong further up.
pub fn read<'t>(text: Text<'t>, limits: &Limits) -> (Option<Node<'t>>, Vec<Problem>) {
    if text.len() > limits.bytes {
        let message = format!(
            "the document has {} bytes and the limit is {}; split the design, or raise the limit of the planner",
            text.len(),
            limits.bytes
        );
        return (None, vec![Problem::new(Kind::LimitExceeded, "", At::START, message)]);
    }
    if !text.looks_like_json() {
        return match block::read(text, limits) {
            Some(node) => (Some(node), Vec::new()),
            None => yaml::read(text, limits),
        };
    }
    match json::read(text, limits) {
        (None, problems) if problems.iter().all(|problem| problem.kind == Kind::Syntax) => {
            match yaml::read(text, limits) {
                (None, _) => (None, problems),
                read => read,
            }
        }
        read => read,
    }
}
