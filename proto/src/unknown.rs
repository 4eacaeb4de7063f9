//! Which fields of a message this program does not know: they were added to the contract after it was built.

use prost::{DecodeError, bytes::Buf};
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage, Value};
use std::sync::LazyLock;

use crate::FILE_DESCRIPTOR_SET;

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the build wrote the descriptors"));

/// Returns the descriptors of the contract.
pub(crate) fn pool() -> &'static DescriptorPool {
    &POOL
}

/// Returns the unknown fields of an encoded message of the contract, nested messages included, each as a sentence part such as
/// `options: field 23 of switchyard.v1.RunOptions`. `message` is the full name of its type.
///
/// # Errors
///
/// If the bytes are no such message.
///
/// # Panics
///
/// If the contract has no message of that name.
pub fn unknown_fields(message: &str, bytes: impl Buf) -> Result<Vec<String>, DecodeError> {
    let descriptor = pool().get_message_by_name(message).expect("callers name messages of the contract");
    let mut found = Vec::new();
    gather(&DynamicMessage::decode(descriptor, bytes)?, "", &mut found);
    Ok(found)
}

fn gather(message: &DynamicMessage, path: &str, found: &mut Vec<String>) {
    let place = if path.is_empty() { String::new() } else { format!("{path}: ") };
    let name = message.descriptor().full_name().to_owned();
    let mut numbers: Vec<u32> = message.unknown_fields().map(|field| field.number()).collect();
    numbers.dedup();
    found.extend(numbers.into_iter().map(|number| format!("{place}field {number} of {name}")));
    for (field, value) in message.fields() {
        let path = if path.is_empty() { field.name().to_owned() } else { format!("{path}.{}", field.name()) };
        match value {
            Value::Message(message) => gather(message, &path, found),
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    if let Value::Message(message) = item {
                        gather(message, &format!("{path}[{index}]"), found);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{Component, PlanHeader, PlanStep, RunOptions, Warning};
    use prost::Message;

    #[test]
    fn a_message_of_today_has_none() {
        let step = PlanStep { id: "a".into(), component: Some(Component::default()), ..Default::default() };
        assert_eq!(unknown_fields("switchyard.v1.PlanStep", &*step.encode_to_vec()), Ok(Vec::new()));
    }

    #[test]
    fn fields_are_named_wherever_they_stand() {
        let header = PlanHeader {
            options: Some(RunOptions::default()),
            warnings: vec![Warning::default(), Warning::default()],
            ..Default::default()
        };
        let mut bytes = header.encode_to_vec();
        // Options and the second warning once more, the former with field 1000: decoding merges messages and appends to lists.
        bytes.extend([0x3a, 3, 0xc0, 0x3e, 1, 0x52, 3, 0xc0, 0x3e, 1, 0xc0, 0x3e, 1]);
        let found = unknown_fields("switchyard.v1.PlanHeader", &*bytes).unwrap();
        assert_eq!(
            found,
            [
                "field 1000 of switchyard.v1.PlanHeader",
                "options: field 1000 of switchyard.v1.RunOptions",
                "warnings[2]: field 1000 of switchyard.v1.Warning"
            ]
        );
        assert!(unknown_fields("switchyard.v1.PlanHeader", &bytes[..bytes.len() - 1]).is_err());
    }
}
