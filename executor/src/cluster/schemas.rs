//! Which schema each group version has, as far as two can be told apart: the hashes that an API server puts into its index of
//! OpenAPI documents (L4). They change with each definition.

use std::collections::BTreeMap;

use serde::Deserialize;
use tokio::{
    sync::OnceCell,
    time::{Duration, Instant},
};

use super::Cluster;

/// How long the question may take. Without an answer objects are written as if nothing were known of them.
const PATIENCE: Duration = Duration::from_secs(5);

/// Hashes by group version; none when the API server did not say.
#[derive(Debug, Default)]
pub(super) struct Schemas(OnceCell<BTreeMap<String, String>>);

#[derive(Deserialize)]
struct Index {
    paths: BTreeMap<String, Document>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(rename = "serverRelativeURL")]
    url: String,
}

impl Cluster {
    /// The hash of the schema of a group version, asked for once a run.
    pub(crate) async fn schema(&self, api_version: &str, by: Instant) -> Option<&str> {
        let by = by.min(Instant::now() + PATIENCE);
        let hashes = self.schemas.0.get_or_init(async || {
            let reply = self.get("/openapi/v3", by).await;
            reply.ok().and_then(|reply| read(&reply.body)).unwrap_or_default()
        });
        tokio::time::timeout_at(by, hashes).await.ok()?.get(api_version).map(String::as_str)
    }
}

fn read(body: &[u8]) -> Option<BTreeMap<String, String>> {
    let Index { paths } = serde_json::from_slice(body).ok()?;
    let hashes = paths.into_iter().filter_map(|(path, Document { url })| {
        let api_version = path.strip_prefix("apis/").or_else(|| path.strip_prefix("api/"))?;
        let (_, hash) = url.split_once("?hash=")?;
        Some((api_version.to_owned(), hash.to_owned()))
    });
    Some(hashes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_read_by_group_version() {
        let index = br#"{"paths": {
            "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=AB"}, "apis/apps/v1": {"serverRelativeURL": "/x?hash=CD"},
            "apis/apps": {"serverRelativeURL": "/x"}, "version": {"serverRelativeURL": "/openapi/v3/version?hash=EF"}}}"#;
        let wanted = [("v1", "AB"), ("apps/v1", "CD")].map(|(version, hash)| (version.to_owned(), hash.to_owned()));
        assert_eq!(read(index), Some(wanted.into()));
        assert_eq!(read(b"<html>"), None);
    }
}
