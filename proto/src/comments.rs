//! Every field of what a caller sends says what happens when it is absent, and whatever can grow states its limit.

use std::collections::BTreeSet;

use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor, OneofDescriptor};

use crate::pool;

/// The comment before a message, field or oneof of the contract, in one line.
fn comment(file: &prost_reflect::FileDescriptor, path: &[i32]) -> String {
    let source = file.file_descriptor_proto().source_code_info.as_ref().unwrap();
    let location = source.location.iter().find(|location| location.path == path);
    let comment = location.map(|location| location.leading_comments().to_owned()).unwrap_or_default();
    comment.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn of_field(field: &FieldDescriptor) -> String {
    comment(&field.parent_message().parent_file(), field.path())
}

fn of_oneof(oneof: &OneofDescriptor) -> String {
    comment(&oneof.parent_message().parent_file(), oneof.path())
}

/// Every message of ours that a caller may send, with what is in it.
fn sent() -> Vec<MessageDescriptor> {
    let services = pool().services().filter(|service| service.package_name() == "switchyard.v1");
    let mut open: Vec<_> =
        services.flat_map(|service| service.methods().map(|method| method.input()).collect::<Vec<_>>()).collect();
    let (mut known, mut found) = (BTreeSet::new(), Vec::new());
    while let Some(message) = open.pop() {
        if message.package_name() != "switchyard.v1"
            || message.is_map_entry()
            || !known.insert(message.full_name().to_owned())
        {
            continue;
        }
        open.extend(message.fields().filter_map(|field| field.kind().as_message().cloned()));
        found.push(message);
    }
    found
}

/// The words of which one says what absence means, for a field like this.
fn of_absence(field: &FieldDescriptor) -> &'static [&'static str] {
    if field.is_list() || field.is_map() {
        return &["Empty:", "Required"];
    }
    match field.kind() {
        Kind::String | Kind::Bytes => &["Empty:", "Empty only", "May be empty", "Never empty", "Required"],
        Kind::Bool if field.supports_presence() => &["Absent:"],
        Kind::Bool => &["False:"],
        Kind::Enum(_) => &["Unspecified:", "Required"],
        Kind::Message(_) => &["Absent:", "Absent or null:", "Required"],
        _ => &["0:", "0,", "0 and", "Never 0", "Required"],
    }
}

#[test]
fn every_field_of_a_request_says_what_absence_means_and_how_much_it_takes() {
    let messages = sent();
    assert!(messages.len() > 25, "only {} messages were found", messages.len());
    let mut wanting = Vec::new();
    for message in messages {
        for oneof in message.oneofs().filter(|oneof| !oneof.is_synthetic()) {
            if !of_oneof(&oneof).contains("Required: exactly one is set.") {
                wanting.push(format!("{}: whether it is required", oneof.full_name()));
            }
        }
        for field in message.fields() {
            let said = of_field(&field);
            // Of a oneof's member the oneof says it.
            let is_member = field.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic());
            if !is_member && !of_absence(&field).iter().any(|words| said.contains(words)) {
                wanting.push(format!("{}: absence: {said}", field.full_name()));
            }
            let grows =
                field.cardinality() == Cardinality::Repeated || matches!(field.kind(), Kind::String | Kind::Bytes);
            let limits = ["at most", "At most", "No limit of its own"];
            if grows && !limits.iter().any(|words| said.contains(words)) {
                wanting.push(format!("{}: limit: {said}", field.full_name()));
            }
        }
    }
    assert!(wanting.is_empty(), "what these comments do not say:\n{}", wanting.join("\n"));
}

/// What holds secret values says so, since who stores or logs requests goes by it.
#[test]
fn every_field_that_holds_secrets_says_so() {
    for (message, field) in [
        ("Design", "document"),
        ("Design", "structured"),
        ("DirectRoute", "manifest"),
        ("AdapterRoute", "declaration"),
        ("EncodedPart", "bytes"),
        ("Chart", "url"),
        ("ClusterAccess", "kubeconfig"),
    ] {
        let message = pool().get_message_by_name(&format!("switchyard.v1.{message}")).unwrap();
        let said = of_field(&message.get_field_by_name(field).unwrap());
        assert!(["secret", "redential"].iter().any(|word| said.contains(word)), "{field}: {said}");
    }
}
