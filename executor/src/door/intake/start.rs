//! What a caller may call its run. It is said again in events, spans and the log, so it is short and holds nothing that could
//! break a line.

use switchyard_proto::v1;

use super::{Error, invalid};

/// Longest request id, in bytes.
const MAX_REQUEST_ID: usize = 128;
/// Most labels.
const MAX_LABELS: usize = 32;
/// Longest key and value of a label, in bytes.
const MAX_KEY: usize = 63;
const MAX_VALUE: usize = 255;

pub(super) fn check(v1::Start { request_id, labels }: &v1::Start) -> Result<(), Error> {
    if request_id.len() > MAX_REQUEST_ID || !request_id.bytes().all(|byte| is_plain(byte) || byte == b':') {
        let what = format!("a request id is at most {MAX_REQUEST_ID} bytes of letters, digits and `-_.:/`");
        return invalid("start.request_id", what);
    }
    if labels.len() > MAX_LABELS {
        let what = format!("{} labels, at most {MAX_LABELS} are taken", labels.len());
        return invalid("start.labels", what);
    }
    // In order, so that of several that are wrong the same one is named each time.
    let mut labels: Vec<_> = labels.iter().collect();
    labels.sort_unstable();
    for (key, value) in labels {
        if key.is_empty() || key.len() > MAX_KEY || !key.bytes().all(is_plain) {
            let what = format!("the key of a label is 1 to {MAX_KEY} bytes of letters, digits and `-_./`");
            return invalid("start.labels", what);
        }
        if value.len() > MAX_VALUE || value.chars().any(char::is_control) {
            let what = format!("the value of a label is at most {MAX_VALUE} bytes, without control characters");
            return invalid(format!("start.labels[{key}]"), what);
        }
    }
    Ok(())
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_./".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(request_id: &str, labels: &[(&str, &str)]) -> v1::Start {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        v1::Start { request_id: request_id.into(), labels }
    }

    #[test]
    fn what_is_short_and_plain_is_taken() {
        let longest = ("k".repeat(MAX_KEY), "v".repeat(MAX_VALUE));
        let labels = [("team", "web shop"), ("example.com/ticket", ""), (&longest.0, &longest.1)];
        assert_eq!(check(&start("ci:build/7-a_b.c", &labels)), Ok(()));
        assert_eq!(check(&start(&"i".repeat(MAX_REQUEST_ID), &[])), Ok(()));
        assert_eq!(check(&start("", &[])), Ok(()));
    }

    #[test]
    fn what_is_not_is_named() {
        let many: Vec<_> = (0..=MAX_LABELS).map(|number| number.to_string()).collect();
        let many: Vec<_> = many.iter().map(|key| (key.as_str(), "")).collect();
        for (start, wanted) in [
            (start(&"i".repeat(MAX_REQUEST_ID + 1), &[]), "start.request_id"),
            (start("two words", &[]), "start.request_id"),
            (start("", &many), "start.labels"),
            (start("", &[("", "")]), "start.labels"),
            (start("", &[("a=b", "")]), "start.labels"),
            (start("", &[(&"k".repeat(MAX_KEY + 1), "")]), "start.labels"),
            (start("", &[("team", "two\nlines")]), "start.labels[team]"),
            (start("", &[("team", &"v".repeat(MAX_VALUE + 1))]), "start.labels[team]"),
        ] {
            match check(&start) {
                Err(Error::Invalid { field, .. }) => assert_eq!(field, wanted),
                other => panic!("{start:?}: {other:?}"),
            }
        }
    }
}
