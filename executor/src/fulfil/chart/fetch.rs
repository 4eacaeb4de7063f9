//! Fetching a chart with helm, into a folder that goes with it.

use std::path::PathBuf;

use base64::{Engine, prelude::BASE64_STANDARD};
use percent_encoding::percent_decode_str;
use tempfile::TempDir;

use super::{Key, failure};
use crate::{
    archive,
    helm::{self, Bounds, Call, Helm},
    mask,
    verdict::{Failure, Reason},
};

/// Memory for a fetch, in bytes: helm holds all that comes, so this is what an endless answer comes to (case 106).
const MEMORY: u64 = 512 * 1024 * 1024;

/// A chart that has been fetched and looked over. Its file goes with it.
pub(super) struct Fetched {
    pub(super) about: archive::About,
    pub(super) path: PathBuf,
    _folder: TempDir,
}

/// Has helm fetch the chart, and looks it over. The text of a failure may still hold credentials.
pub(super) async fn fetch(helm: &Helm, key: &Key, bounds: Bounds<'_>) -> Result<Fetched, Failure> {
    let shown = key.shown();
    let unfetchable = |error| failure(Reason::ChartUnfetchable, &format!("chart {shown} cannot be fetched"), error);
    let folder = helm::private_folder("switchyard-chart-").map_err(|error| unfetchable(error.into()))?;
    let mut arguments = vec![shown.clone(), format!("--destination={}", folder.path().display())];
    if !key.version.is_empty() {
        arguments.push(format!("--version={}", key.version));
    }
    let (flags, files) = mask::userinfo(&key.url).map(|userinfo| credentials(&shown, userinfo)).unwrap_or_default();
    arguments.extend(flags);
    let about = helm::About { chart: &shown, ..Default::default() };
    let call = Call { command: "pull", arguments, waits: false, files, memory: MEMORY, about };
    helm.call(&call, bounds).await.map_err(unfetchable)?;
    // Looking it over takes as long as unpacking it, so it is done off the runtime.
    let looked = tokio::task::spawn_blocking(move || {
        let mut files = std::fs::read_dir(folder.path())?.filter_map(Result::ok).map(|entry| entry.path());
        let path = files.next().ok_or(archive::Error::NotAChart)?;
        let about = archive::look_over(&path)?;
        Ok::<_, archive::Error>(Fetched { about, path, _folder: folder })
    });
    let looked = looked
        .await
        .map_err(|_| Failure::new(Reason::Internal, format!("an internal error ended the work on chart {shown}")))?;
    let refused = |error| Failure::new(Reason::ChartRefused, format!("chart {shown} is refused: {error}"));
    looked.map_err(refused)
}

/// Files from which helm takes who it is to say it is, and the flags that name them: credentials on a command line could be read
/// by others.
fn credentials(url: &str, userinfo: &str) -> (Vec<String>, Vec<(&'static str, String)>) {
    let (registry, repositories, index) = ("registry.json", "repositories.yaml", "chart-index.yaml");
    let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
    let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let (user, password) = (decoded(user), decoded(password));
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let host = rest.split('/').next().unwrap_or_default();
    if scheme == "oci" {
        let auth = BASE64_STANDARD.encode(format!("{user}:{password}"));
        let config = serde_json::json!({"auths": {host: {"auth": auth}}});
        return (vec![format!("--registry-config={}", Call::file(registry))], vec![(registry, config.to_string())]);
    }
    // Helm has credentials for a repository only, and knows by its index which files are the repository's.
    let known = serde_json::json!({"repositories": [
        {"name": "chart", "url": format!("{scheme}://{host}"), "username": user, "password": password}
    ]});
    let listed = serde_json::json!({"apiVersion": "v1", "entries": {"chart": [
        {"apiVersion": "v2", "name": "chart", "version": "0.0.0", "urls": [url]}
    ]}});
    let flags = [format!("--repository-config={}", Call::file(repositories)), "--repository-cache=.".into()];
    (flags.into(), vec![(repositories, known.to_string()), (index, listed.to_string())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_in_files_and_the_flags_only_name_them() {
        for url in ["oci://charts:5000/x", "https://charts/x-1.0.0.tgz"] {
            let (flags, files) = credentials(url, "robot:p%40ss:word");
            assert!(flags.iter().all(|flag| !flag.contains("robot") && !flag.contains("ss:word")), "{flags:?}");
            let said = files.iter().map(|(_, text)| text.as_str()).collect::<String>();
            let encoded = BASE64_STANDARD.encode("robot:p@ss:word");
            assert!(said.contains("p@ss:word") || said.contains(&encoded), "{said}");
        }
    }
}
