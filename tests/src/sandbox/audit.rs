//! What the API server itself says it was asked.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::Deserialize;

/// One line for each request, once it has been answered, without bodies.
pub(crate) const POLICY: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n";

/// One request, as the audit log has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The caller's `Audit-ID` header, or an id made up by the API server.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// `ResponseComplete` for most, `ResponseStarted` for a watch.
    pub stage: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` …; a server-side apply is a `patch`.
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// Who asked.
    pub user: User,
    /// The `User-Agent` header.
    #[serde(default)]
    pub user_agent: String,
    /// What it was about; absent for paths like `/readyz`.
    #[serde(rename = "objectRef")]
    pub object: Option<Object>,
    /// The answer.
    #[serde(rename = "responseStatus")]
    pub response: Option<Response>,
    /// Remarks, for example why it was allowed.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

impl Event {
    /// Returns the HTTP status of the answer, 0 if there is none.
    pub fn code(&self) -> u16 {
        self.response.as_ref().map_or(0, |response| response.code)
    }

    /// Tells whether the request is about objects of this resource (plural, as in `configmaps`) in this namespace.
    pub fn is_about(&self, resource: &str, namespace: &str) -> bool {
        self.object.as_ref().is_some_and(|object| object.resource == resource && object.namespace == namespace)
    }

    /// Tells whether the request could have changed something.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

/// Who asked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct User {
    /// The user's name.
    #[serde(default)]
    pub username: String,
    /// The user's groups.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// What a request was about.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub struct Object {
    /// The resource's plural name.
    pub resource: String,
    /// For example `status`; empty for the object itself.
    pub subresource: String,
    /// Empty for what belongs to the cluster.
    pub namespace: String,
    /// Empty for a list.
    pub name: String,
    /// Empty for the core group.
    pub api_group: String,
    /// The version within the group.
    pub api_version: String,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Response {
    /// The HTTP status.
    #[serde(default)]
    pub code: u16,
    /// The machine-readable reason of a refusal.
    #[serde(default)]
    pub reason: String,
}

/// Reads an audit log. A last line without its end is left out: it is being written.
pub(crate) fn parse(log: &str) -> anyhow::Result<Vec<Event>> {
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("not an audit event: {line}")))
        .collect()
}
