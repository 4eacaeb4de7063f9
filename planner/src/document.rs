//! Text -> a tree of values that remember where they stood.
//!
//! Designs and registries are both read from here. The tree borrows from the text wherever it can, keeps numbers as they
//! were written, keeps the order of keys, and holds for every value its byte offset; line and column are worked out only
//! for what is reported. Reading is iterative and bounded by [`Limits`], so that a hostile document costs little.

mod block;
mod build;
mod dialect;
mod json;
mod limits;
mod path;
mod scalar;
mod tree;
mod write;
mod yaml;

pub use crate::text::{At, Place, Text};
pub use limits::Limits;
pub use path::Path;
pub use scalar::written;
pub use tree::{Entry, Map, Node, Value};
pub use write::{entries_to_json, map_to_json, to_json};

use crate::budget::Budget;
use crate::problem::{Kind, Problem};

/// Something that was read, and may have been meant otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// Where.
    pub at: At,
    /// The path.
    pub field: String,
    /// What was read, and what to do.
    pub message: String,
}

/// Reads JSON or YAML that the operator brings: nothing is drawn from any budget.
pub fn read<'t>(text: Text<'t>, limits: &Limits) -> (Option<Node<'t>>, Vec<Problem>) {
    let (node, problems, _) = read_within(text, limits, &Budget::unlimited());
    (node, problems)
}

/// Reads JSON or YAML, and draws what that takes from `budget`. When the budget is spent, the answer means nothing.
///
/// What starts like JSON is read as JSON, and as YAML when that fails, because `{a: b}` is YAML too. When neither works,
/// the JSON reader's complaint is kept, as the text was most likely meant to be JSON. Problems that leave the tree usable
/// (a key given twice) come beside it, so that they can be reported together with what is wrong further up.
///
/// What starts like JSON and is YAML comes with a doubt that says where it ceased to be JSON: a forgotten comma can make one text
/// of two values.
pub fn read_within<'t>(
    text: Text<'t>,
    limits: &Limits,
    budget: &Budget,
) -> (Option<Node<'t>>, Vec<Problem>, Option<Doubt>) {
    if text.len() > limits.bytes {
        let message = format!(
            "the document has {} bytes and the limit is {}; split the design, or raise the limit of the planner",
            text.len(),
            limits.bytes
        );
        return (None, vec![Problem::new(Kind::LimitExceeded, "", At::START, message)], None);
    }
    let taken = budget.taken();
    if !text.looks_like_json() {
        if let Some(node) = block::read(text, limits, budget) {
            return (Some(node), Vec::new(), None);
        }
        budget.back_to(taken);
        let (node, problems) = yaml::read(text, limits, budget);
        return (node, problems, None);
    }
    match json::read(text, limits, budget) {
        (None, problems) if problems.iter().all(|problem| problem.kind == Kind::Syntax) => {
            budget.back_to(taken);
            match yaml::read(text, limits, budget) {
                (None, _) => (None, problems, None),
                (read, others) => {
                    let doubt = problems.into_iter().next_back().map(|problem| not_json(text, problem));
                    (read, others, doubt)
                }
            }
        }
        (node, problems) => (node, problems, None),
    }
}

fn not_json(text: Text<'_>, Problem { at, field, message, .. }: Problem) -> Doubt {
    let place = text.places().find(at);
    let message = format!("starts like JSON and was read as YAML, because it is {message} ({place})");
    Doubt { at, field, message }
}
