//! Which versions a group has, in the plain form that every API server answers in.

use http::{Request, StatusCode, header};
use kube::client::Body;
use serde::Deserialize;
use tokio::time::Instant;

use crate::cluster::{Cluster, Target};

#[derive(Deserialize)]
struct Core {
    kind: String,
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct Groups {
    kind: String,
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    name: String,
    versions: Vec<Version>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    group_version: String,
}

/// The apiVersions of a group, as the API server lists them; none when it lists its groups and this is none of them.
///
/// # Errors
///
/// A sentence, when the answer is anything else than 200 with the list.
pub(super) async fn versions(cluster: &Cluster, group: &str, by: Instant) -> Result<Vec<String>, String> {
    let path = if group.is_empty() { "/api" } else { "/apis" };
    let request = Request::get(path).header(header::ACCEPT, "application/json").body(Body::empty());
    let request = request.expect("both are constants");
    let target = Target { method: "GET", resource: "discovery", ..Target::default() };
    let reply = cluster.send(request, &target, by).await.map_err(|why| why.to_string())?;
    if reply.status != StatusCode::OK {
        return Err(format!("asked for its groups it answered {}", reply.status));
    }
    read(group, &reply.body).ok_or_else(|| "asked for its groups it answered something else".to_owned())
}

/// The apiVersions of one group, asked for alone; none when that is not answered with a group. No proof of anything.
pub(super) async fn versions_of(cluster: &Cluster, group: &str, by: Instant) -> Option<Vec<String>> {
    // The core group has one version.
    if group.is_empty() {
        return None;
    }
    let request = Request::get(format!("/apis/{group}")).header(header::ACCEPT, "application/json");
    let target = Target { method: "GET", resource: "discovery", ..Target::default() };
    let reply = cluster.send(request.body(Body::empty()).ok()?, &target, by).await.ok()?;
    let group: Group = serde_json::from_slice(&reply.body).ok().filter(|_| reply.status == StatusCode::OK)?;
    Some(group.versions.into_iter().map(|version| version.group_version).collect())
}

fn read(group: &str, body: &[u8]) -> Option<Vec<String>> {
    if group.is_empty() {
        let core: Core = serde_json::from_slice(body).ok().filter(|core: &Core| core.kind == "APIVersions")?;
        return Some(core.versions);
    }
    let all: Groups = serde_json::from_slice(body).ok().filter(|all: &Groups| all.kind == "APIGroupList")?;
    let group = all.groups.into_iter().find(|it| it.name == group);
    let versions = group.into_iter().flat_map(|group| group.versions);
    Some(versions.map(|version| version.group_version).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_list_that_lacks_a_group_says_that_there_is_none() {
        let list =
            br#"{"kind":"APIGroupList","groups":[{"name":"a.example","versions":[{"groupVersion":"a.example/v2"}]}]}"#;
        assert_eq!(read("a.example", list), Some(vec!["a.example/v2".to_owned()]));
        assert_eq!(read("b.example", list), Some(Vec::new()));
        assert_eq!(read("", br#"{"kind":"APIVersions","versions":["v1"]}"#), Some(vec!["v1".to_owned()]));
        for body in ["{}", "<html></html>", r#"{"kind":"APIGroupList"}"#, r#"{"kind":"Status","groups":[]}"#] {
            assert_eq!(read("a.example", body.as_bytes()), None, "{body}");
        }
    }
}
