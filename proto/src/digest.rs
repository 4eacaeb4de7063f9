//! The digest that makes a plan's id: it proves that a plan arrived whole and unaltered (D7, D22).
//!
//! It is taken over protobuf encodings. Those are deterministic here, because the messages of a plan hold no maps and no
//! unknown fields, and prost writes fields in the order of their numbers.

use prost::Message;
use sha2::{Digest, Sha256};

use crate::v1::{PlanHeader, PlanStep};

/// Takes the digest part by part, so that a plan need not be held twice.
#[derive(Clone)]
pub struct PlanDigest {
    hash: Sha256,
    buffer: Vec<u8>,
}

impl PlanDigest {
    /// Begins with the header. Its `plan_id` and `traceparent` play no part.
    pub fn new(header: &PlanHeader) -> Self {
        let mut digest = Self { hash: Sha256::new(), buffer: Vec::new() };
        let bare = PlanHeader { plan_id: String::new(), traceparent: String::new(), ..header.clone() };
        digest.message(&bare);
        digest
    }

    /// Goes on with the next step, and answers how many bytes it has when it is sent.
    pub fn step(&mut self, step: &PlanStep) -> usize {
        self.message(step);
        self.buffer.len()
    }

    /// Ends, and answers the plan's id: 64 lower-case hex digits.
    pub fn plan_id(self) -> String {
        hex::encode(self.hash.finalize())
    }

    fn message(&mut self, message: &impl Message) {
        self.buffer.clear();
        message.encode_length_delimited(&mut self.buffer).expect("a vector grows as needed");
        self.hash.update(&self.buffer);
    }
}

/// The id of the plan made of `header` and `steps`.
pub fn plan_id<'a>(header: &PlanHeader, steps: impl IntoIterator<Item = &'a PlanStep>) -> String {
    let mut digest = PlanDigest::new(header);
    for step in steps {
        digest.step(step);
    }
    digest.plan_id()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> PlanHeader {
        PlanHeader { clusters: vec!["east".into()], step_count: 1, ..Default::default() }
    }

    #[test]
    fn trace_context_and_id_play_no_part() {
        let other = PlanHeader { plan_id: "x".into(), traceparent: "00-1-2-01".into(), ..header() };
        assert_eq!(plan_id(&header(), []), plan_id(&other, []));
    }

    #[test]
    fn every_part_plays_a_part() {
        let step = PlanStep { id: "a".into(), ..Default::default() };
        let with = plan_id(&header(), [&step]);
        assert_eq!(with.len(), 64);
        assert_ne!(with, plan_id(&header(), []));
        assert_ne!(with, plan_id(&PlanHeader { dry_run: true, ..header() }, [&step]));
        let moved = PlanStep { runs_after: vec!["b".into()], ..step.clone() };
        assert_ne!(with, plan_id(&header(), [&moved]));
    }
}
