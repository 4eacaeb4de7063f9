//! Hostile requests, against the executor as a process of its own: whatever a request of n bytes holds, the process takes at most
//! 64 MB and 30 n more, and the next caller is served within a second meanwhile.
//!
//! A test program of its own, which cargo runs after the others: what keeps both cores busy for seconds would take from the tests
//! beside it the time that they wait for an API server, and they from it the second that it promises to others.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod intake;
mod runs;
mod victim;
mod wire;
