//! Cutting a status to what every client accepts.
//!
//! A status travels in HTTP/2 headers, its details in base64. Clients limit how many bytes of headers they take, and
//! beyond the limit the whole answer is lost: hyper, and with it tonic, stops at 16 KiB; gRPC's C core (C++, Python,
//! Ruby) refuses more and more often from 8 KiB on and always at 16 KiB; grpc-go takes 16 MiB. So 8 KiB it is.

use std::collections::BTreeMap;

use tonic_types::{FieldViolation, PreconditionViolation, QuotaViolation};

/// How many bytes of headers a status may take, counted as HTTP/2 does: names, values, and 32 for each pair.
pub const HEADER_LIST_BYTES: usize = 8 * 1024;

/// How many bytes the text of a status may have: it stays under 1 KiB.
pub const TEXT_BYTES: usize = 1023;

/// The headers that are there anyway, with some room for what a proxy adds.
const OTHER_HEADERS: usize = 512;
/// Type names, tags and lengths of up to five details, the reason, the domain and a delay.
const ENVELOPE: usize = 512;
/// What is kept for the violation that counts the others, and for the metadata that repeats the number.
const LAST_VIOLATION: usize = 256;
/// Tags and lengths of one violation.
const OVERHEAD: usize = 20;
/// How much one description may have. With the other limits, at least one violation fits beside the longest text and
/// metadata.
const DESCRIPTION_BYTES: usize = 767;
/// How much any other value may have: a field's path, a subject, a name, an address.
const VALUE_BYTES: usize = 255;
/// How much the reason of a violation may have, which is a short name: what AIP-193 permits.
const REASON_BYTES: usize = 63;
/// How much the metadata may take altogether.
const METADATA_BYTES: usize = 512;

/// Cuts `text` between characters so that it has at most `bytes` bytes, an ellipsis included if anything was cut.
pub fn capped(text: &str, bytes: usize) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() <= bytes {
        return text.to_owned();
    }
    let mut end = bytes.saturating_sub(ELLIPSIS.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut cut = text[..end].to_owned();
    if bytes >= ELLIPSIS.len() {
        cut.push_str(ELLIPSIS);
    }
    cut
}

/// Something of which a status lists several.
pub(super) trait Violation {
    /// Cuts its texts.
    fn capped(self) -> Self;
    /// Counts the bytes of its texts.
    fn bytes(&self) -> usize;
    /// Makes the one that counts those that did not fit.
    fn left_out(description: String) -> Self;
}

/// The bytes of details that are still free.
pub(super) struct Room {
    free: usize,
    taken: usize,
}

impl Room {
    /// Counts what is free when `text`, percent-encoded in one header and once more among the details, has its place.
    pub(super) fn beside_text(text: &str) -> Self {
        let encoded: usize = text.bytes().map(|byte| if byte.is_ascii_alphanumeric() { 1 } else { 3 }).sum();
        let base64 = HEADER_LIST_BYTES - OTHER_HEADERS - encoded;
        let free = (base64 / 4 * 3).saturating_sub(text.len() + ENVELOPE + LAST_VIOLATION);
        Self { free, taken: 0 }
    }

    /// Says how many violations were given a place.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// Gives a place to metadata, leaving out what is too much of it.
    pub(super) fn take_metadata(&mut self, metadata: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut room = METADATA_BYTES.min(self.free);
        let before = room;
        let kept = metadata
            .into_iter()
            .map(|(key, value)| (capped(&key, VALUE_BYTES), capped(&value, VALUE_BYTES)))
            .filter(|(key, value)| take(&mut room, key.len() + value.len() + OVERHEAD))
            .collect();
        self.free -= before - room;
        kept
    }

    /// Gives a place to as many violations as fit, in their order, and counts the others in a last one.
    pub(super) fn take<V: Violation>(&mut self, violations: Vec<V>) -> Vec<V> {
        let asked = violations.len();
        let mut kept: Vec<V> = violations
            .into_iter()
            .map(V::capped)
            .take_while(|violation| take(&mut self.free, violation.bytes() + OVERHEAD))
            .collect();
        self.taken += kept.len();
        let left_out = asked - kept.len();
        if left_out > 0 {
            // The place for this one was kept. Whatever else is asked for finds no room, so there is only one of it in
            // practice, and a status with several lists has at most one for each.
            self.free = 0;
            kept.push(V::left_out(format!("{left_out} more are not listed: one answer has no room for them")));
        }
        kept
    }
}

/// Takes `bytes` out of `room` if they fit.
fn take(room: &mut usize, bytes: usize) -> bool {
    match room.checked_sub(bytes) {
        Some(rest) => {
            *room = rest;
            true
        }
        None => false,
    }
}

impl Violation for FieldViolation {
    fn capped(mut self) -> Self {
        self.field = capped(&self.field, VALUE_BYTES);
        self.reason = capped(&self.reason, REASON_BYTES);
        self.description = capped(&self.description, DESCRIPTION_BYTES);
        self
    }

    fn bytes(&self) -> usize {
        self.field.len() + self.reason.len() + self.description.len()
    }

    fn left_out(description: String) -> Self {
        Self::new("", description)
    }
}

impl Violation for PreconditionViolation {
    fn capped(mut self) -> Self {
        self.r#type = capped(&self.r#type, REASON_BYTES);
        self.subject = capped(&self.subject, VALUE_BYTES);
        self.description = capped(&self.description, DESCRIPTION_BYTES);
        self
    }

    fn bytes(&self) -> usize {
        self.r#type.len() + self.subject.len() + self.description.len()
    }

    fn left_out(description: String) -> Self {
        Self::new("LEFT_OUT", "", description)
    }
}

impl Violation for QuotaViolation {
    fn capped(mut self) -> Self {
        self.subject = capped(&self.subject, VALUE_BYTES);
        self.description = capped(&self.description, DESCRIPTION_BYTES);
        self
    }

    fn bytes(&self) -> usize {
        self.subject.len() + self.description.len()
    }

    fn left_out(description: String) -> Self {
        Self::new("", description)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_is_never_longer_than_asked_for() {
        for text in ["", "abc", "äöü", "日本語テキスト", "a😀b😀c"] {
            for bytes in 0..30 {
                let cut = capped(text, bytes);
                assert!(cut.len() <= bytes, "{cut:?} for {bytes}");
                assert_eq!(cut == text, text.len() <= bytes);
            }
        }
    }
}
