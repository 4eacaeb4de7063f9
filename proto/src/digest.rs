//! The digest that makes a plan's id: it proves that a plan arrived whole and unaltered (D7, D22).
//!
//! It is taken over protobuf encodings. Those are deterministic here, because the messages of a plan hold no maps and no
//! unknown fields, and prost writes fields in the order of their numbers. What comes as bytes (`EncodedPart`) is hashed as
//! received, so that fields which this program does not know count too.

use prost::{
    DecodeError, Message,
    bytes::Buf,
    encoding::{DecodeContext, decode_key, encode_varint, skip_field},
};
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

    /// Begins with a header as it was received.
    ///
    /// # Errors
    ///
    /// If the bytes are no protobuf message.
    pub fn of_encoded_header(header: &[u8]) -> Result<Self, DecodeError> {
        let mut digest = Self { hash: Sha256::new(), buffer: Vec::new() };
        digest.bytes(&without_id_and_trace(header)?);
        Ok(digest)
    }

    /// Goes on with the next step, and answers how many bytes it has when it is sent.
    pub fn step(&mut self, step: &PlanStep) -> usize {
        self.message(step);
        self.buffer.len()
    }

    /// Goes on with the next step as it was received.
    pub fn encoded_step(&mut self, step: &[u8]) {
        self.bytes(step);
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

    fn bytes(&mut self, message: &[u8]) {
        self.buffer.clear();
        encode_varint(message.len() as u64, &mut self.buffer);
        self.hash.update(&self.buffer);
        self.hash.update(message);
    }
}

/// The numbers of `plan_id` and `traceparent` in a header.
const NOT_IN_THE_DIGEST: [u32; 2] = [1, 11];

fn without_id_and_trace(header: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut kept = Vec::with_capacity(header.len());
    let mut rest = header;
    while rest.has_remaining() {
        let field = rest;
        let (number, wire_type) = decode_key(&mut rest)?;
        skip_field(wire_type, number, &mut rest, DecodeContext::default())?;
        if !NOT_IN_THE_DIGEST.contains(&number) {
            kept.extend_from_slice(&field[..field.len() - rest.len()]);
        }
    }
    Ok(kept)
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
    fn bytes_have_the_digest_of_their_message() {
        let header = PlanHeader { plan_id: "x".into(), traceparent: "00-1-2-01".into(), ..header() };
        let step = PlanStep { id: "a".into(), ..Default::default() };
        let of_bytes = |header: &[u8]| {
            let mut digest = PlanDigest::of_encoded_header(header).unwrap();
            digest.encoded_step(&step.encode_to_vec());
            digest.plan_id()
        };
        let bytes = header.encode_to_vec();
        assert_eq!(of_bytes(&bytes), plan_id(&header, [&step]));
        // Field 1000, which nobody knows, counts.
        let longer = [&bytes[..], &[0xc2, 0x3e, 1, b'z']].concat();
        assert_ne!(of_bytes(&longer), plan_id(&header, [&step]));
        assert!(PlanDigest::of_encoded_header(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn numbers_left_out_are_those_of_id_and_trace_context() {
        let header = crate::pool().get_message_by_name("switchyard.v1.PlanHeader").unwrap();
        let number = |name| header.get_field_by_name(name).unwrap().number();
        assert_eq!(NOT_IN_THE_DIGEST, [number("plan_id"), number("traceparent")]);
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
