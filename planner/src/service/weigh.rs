//! How much memory a request takes once it is decoded, found out before it is.
//!
//! Two bytes can say "one more model of the registry", which in memory is a hundred times as much. Texts are not counted
//! here: they take what they take on the wire, which was counted as it arrived. The walk follows the messages of
//! `PlanRequest`; what it does not know is counted like a small message, so that a field that is added later is not free.

use std::mem::size_of;

use prost::encoding::{WireType, decode_key, decode_varint};
use prost_types::Value;
use switchyard_proto::v1::{Model, Registrant};

/// A message on the way from the request to what it is made of.
#[derive(Clone, Copy)]
enum Shape {
    Request,
    Design,
    Struct,
    Entry,
    Value,
    List,
    Registry,
    Registrant,
    /// Anything whose fields hold no messages.
    Flat,
}

/// Lists grow by doubling: while one moves, the old and the new one are there.
const GROWING: usize = 3;
/// A text in a list.
const TEXT: usize = GROWING * size_of::<String>() + 16;
/// A value in a list, and the same in the tree that is made of it.
const ITEM: usize = GROWING * size_of::<Value>() + 64;
/// A key with its value in a map, and the same in the tree. Maps are B-trees whose leaves have room for eleven entries.
const ENTRY: usize = 2 * (size_of::<String>() + size_of::<Value>()) + 96;
/// The first leaf of a map.
const LEAF: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 64;
/// A registrant, and the same in a registry.
const REGISTRANT: usize = GROWING * size_of::<Registrant>() + 500;
/// A model, and the same in a registry.
const MODEL: usize = GROWING * size_of::<Model>() + 700;
/// What is not known.
const OTHER: usize = 200;

/// The estimate in bytes. What is no message is weighed as far as it can be read: decoding gets no further.
pub(super) fn weigh(message: &[u8]) -> usize {
    let mut weight = 0_usize;
    // What is left of the message that is being read, and of those around it. Decoding has a limit of depth as well.
    let mut open = vec![(message, Shape::Request)];
    while let Some((rest, shape)) = open.last_mut() {
        let shape = *shape;
        if rest.is_empty() {
            open.pop();
            continue;
        }
        let Ok((field, wire)) = decode_key(rest) else { return weight };
        let length = match wire {
            WireType::LengthDelimited => decode_varint(rest).ok(),
            WireType::Varint => decode_varint(rest).ok().map(|_| 0),
            WireType::ThirtyTwoBit => Some(4),
            WireType::SixtyFourBit => Some(8),
            // Nothing is made of groups.
            WireType::StartGroup | WireType::EndGroup => Some(0),
        };
        let length = length.and_then(|length| usize::try_from(length).ok());
        let Some((content, behind)) = length.and_then(|length| rest.split_at_checked(length)) else { return weight };
        *rest = behind;
        if wire == WireType::LengthDelimited {
            let (bytes, within) = part(shape, field);
            weight = weight.saturating_add(bytes);
            if !matches!(within, Shape::Flat) {
                open.push((content, within));
            }
        }
    }
    weight
}

/// What a field of a message takes, and what it holds.
fn part(shape: Shape, field: u32) -> (usize, Shape) {
    match (shape, field) {
        (Shape::Request, 1) => (0, Shape::Design),
        (Shape::Request, 4) => (TEXT, Shape::Flat),
        (Shape::Request, 6) => (0, Shape::Registry),
        (Shape::Design, 1) | (Shape::Entry, 1) | (Shape::Value, 3) => (0, Shape::Flat),
        (Shape::Design, 2) => (0, Shape::Struct),
        (Shape::Struct, 1) => (ENTRY, Shape::Entry),
        (Shape::Entry, 2) => (0, Shape::Value),
        (Shape::Value, 5) => (LEAF, Shape::Struct),
        (Shape::Value, 6) => (0, Shape::List),
        (Shape::List, 1) => (ITEM, Shape::Value),
        (Shape::Registry, 1) => (REGISTRANT, Shape::Registrant),
        (Shape::Registry, 2) => (MODEL, Shape::Flat),
        (Shape::Registrant, 4) => (0, Shape::Value),
        (Shape::Registry, 3) | (Shape::Registrant, _) => (0, Shape::Flat),
        _ => (OTHER, Shape::Flat),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use prost_types::value::Kind;
    use prost_types::{ListValue, Struct};
    use switchyard_proto::v1::{Design, PlanRequest, Registry, design::Source};

    fn of(request: PlanRequest) -> usize {
        weigh(&request.encode_to_vec())
    }

    #[test]
    fn texts_weigh_nothing() {
        let design = Design { source: Some(Source::Document("x".repeat(1_000))) };
        assert_eq!(of(PlanRequest { design: Some(design), ..PlanRequest::default() }), 0);
    }

    #[test]
    fn empty_models_and_registrants_weigh_what_they_become() {
        let registry = Registry { models: vec![Model::default(); 1_000], ..Registry::default() };
        assert_eq!(of(PlanRequest { registry: Some(registry), ..PlanRequest::default() }), 1_000 * MODEL);
        let registry = Registry { registrants: vec![Registrant::default(); 1_000], ..Registry::default() };
        assert_eq!(of(PlanRequest { registry: Some(registry), ..PlanRequest::default() }), 1_000 * REGISTRANT);
        assert_eq!(of(PlanRequest { clusters: vec![String::new(); 1_000], ..PlanRequest::default() }), 1_000 * TEXT);
    }

    #[test]
    fn structured_values_are_found_at_any_depth() {
        let value = |kind| Value { kind: Some(kind) };
        let list = value(Kind::ListValue(ListValue { values: vec![Value::default(); 10] }));
        let inner = Struct { fields: [("a".to_owned(), list)].into() };
        let outer = Struct { fields: [("b".to_owned(), value(Kind::StructValue(inner)))].into() };
        let design = Design { source: Some(Source::Structured(outer)) };
        let weight = of(PlanRequest { design: Some(design), ..PlanRequest::default() });
        assert_eq!(weight, ENTRY + LEAF + ENTRY + 10 * ITEM);
    }

    #[test]
    fn what_is_no_message_ends_the_walk() {
        assert_eq!(weigh(&[0xff; 100]), 0);
        assert_eq!(weigh(&[0x22, 0, 0x22, 200]), TEXT);
    }
}
