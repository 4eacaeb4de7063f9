//! The `Status` in which an API server says what came of a request, as far as it is read
//! (<https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.33/#status-v1-meta>).

use serde::Deserialize;

use crate::mask::Unmasked;

/// What an API server says of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    kind: String,
    pub(super) message: Unmasked,
    pub(super) reason: Unmasked,
    pub(super) details: Option<Details>,
}

/// What it is about, and what is wrong with it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Details {
    pub(crate) name: String,
    /// A resource or a kind, as the server pleases.
    pub(crate) kind: String,
    pub(super) causes: Vec<StatusCause>,
    pub(super) retry_after_seconds: u64,
}

/// One thing that is wrong.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StatusCause {
    pub(super) field: Unmasked,
    pub(super) reason: Unmasked,
    pub(super) message: Unmasked,
}

impl Status {
    /// Reads an answer; what is no `Status` is its message.
    pub(super) fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body)
            .unwrap_or_else(|_| Self { message: String::from_utf8_lossy(body).into_owned().into(), ..Self::default() })
    }

    /// What the API server itself names in an answer; none where somebody else answers, or nothing is named.
    pub(crate) fn subject_of(body: &[u8]) -> Option<Details> {
        let status: Self = serde_json::from_slice(body).ok().filter(|status: &Self| status.kind == "Status")?;
        status.details.filter(|details| !details.name.is_empty())
    }

    /// What the API server says is not there; none where it says something else.
    pub(crate) fn not_found(body: &[u8]) -> Option<Details> {
        let status: Self = serde_json::from_slice(body).ok().filter(|status: &Self| status.kind == "Status")?;
        status.details.filter(|_| status.reason.is("NotFound"))
    }
}
