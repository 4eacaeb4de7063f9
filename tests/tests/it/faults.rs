//! The executor's direct path against what breaks deployment engines in the field.
//!
//! Numbers in comments are those of the fault cases (`reference/fault-cases.md`) and of the rules (`design/semantics.md`).
//! The executor is the real one behind real gRPC, the API servers are real, and what a real one cannot be made to show is
//! done by a proxy between the two.

#![expect(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod answers;
mod apply;
mod clusters;
mod contents;
mod discovery;
mod drain;
mod left_over;
mod locks;
mod ownership;
mod plugins;
mod private;
mod reasons;
mod record;
mod removal;
mod requests;
mod runs;
mod secrets;
mod stage;
mod streams;
mod unchanged;
mod watches;
