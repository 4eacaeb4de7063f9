//! Fetching a chart with helm, into a folder that goes with it.

use std::path::PathBuf;

use base64::{Engine, prelude::BASE64_STANDARD};
use percent_encoding::percent_decode_str;

use tokio::time::{Duration, Instant, sleep};

use super::{Key, failure, release::version};
use crate::{
    archive,
    helm::{self, Bounds, Call, Folder, Helm},
    verdict::{Failure, Reason},
};

/// Memory for a fetch, in bytes: helm holds all that comes, so this is what an endless answer comes to (case 106).
const MEMORY: u64 = 512 * 1024 * 1024;

/// Pause after the first answer of a host that has no time; twice as long after each one that follows.
const PAUSE: Duration = Duration::from_millis(500);
/// Pause after which it is given up.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Whether the host said that it may have the chart a moment later (case 350).
fn has_no_time(error: &helm::Error) -> bool {
    let helm::Error::Refused(said) = error else { return false };
    let known = ["429 Too Many Requests", "502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout"];
    let codes = ["status code 429", "status code 502", "status code 503", "status code 504"];
    known.iter().chain(&codes).any(|known| said.contains(known))
}

/// A chart that has been fetched and looked over. Its file goes with it.
pub(super) struct Fetched {
    pub(super) about: archive::About,
    pub(super) path: PathBuf,
    _folder: Folder,
}

/// Has helm fetch the chart, and looks it over. The text of a failure may still hold credentials.
pub(super) async fn fetch(helm: &Helm, key: &Key, bounds: Bounds<'_>) -> Result<Fetched, Failure> {
    let shown = key.shown();
    let unfetchable = |error| failure(Reason::ChartUnfetchable, &format!("chart {shown} cannot be fetched"), error);
    let folder = Folder::new(&[]).map_err(|error| unfetchable(error.into()))?;
    // One folder further in: what helm writes beside the archive, as it does for a name that it cannot give, stays private too.
    let destination = folder.path().join("chart");
    std::fs::create_dir(&destination).map_err(|error| unfetchable(error.into()))?;
    let url = key.without_credentials();
    let mut arguments = vec![url.clone(), format!("--destination={}", destination.display())];
    if !key.version.is_empty() {
        arguments.push(format!("--version={}", key.version));
    }
    let (flags, files) =
        switchyard_proto::userinfo(&key.url).map(|userinfo| credentials(&url, userinfo)).unwrap_or_default();
    arguments.extend(flags);
    let about = helm::About { chart: &shown, ..Default::default() };
    let call = Call { command: "pull", arguments, waits: false, files, memory: MEMORY, about };
    let mut pause = PAUSE;
    while let Err(error) = helm.call(&call, bounds).await {
        if !has_no_time(&error) || pause > LONGEST_PAUSE || Instant::now() + pause >= bounds.deadline {
            return Err(unfetchable(error));
        }
        bounds.stop.run_until_cancelled(sleep(pause)).await;
        pause *= 2;
    }
    // Looking it over takes as long as unpacking it, so it is done off the runtime.
    let looked = tokio::task::spawn_blocking(move || {
        let mut files = std::fs::read_dir(destination)?.filter_map(Result::ok).map(|entry| entry.path());
        let path = files.next().ok_or(archive::Error::NotAChart)?;
        let about = archive::look_over(&path)?;
        Ok::<_, archive::Error>(Fetched { about, path, _folder: folder })
    });
    let looked = looked
        .await
        .map_err(|_| Failure::new(Reason::Internal, format!("an internal error ended the work on chart {shown}")))?;
    let refused = |why: String| Failure::new(Reason::ChartRefused, format!("chart {shown} is refused: {why}"));
    let chart = looked.map_err(|error| refused(error.to_string()))?;
    // Of an archive helm ignores the version that it is told (case 354).
    let of = |text| version(text).ok_or(text);
    let (wanted, has) = (key.version.as_str(), chart.about.version.as_str());
    if !wanted.is_empty() && shown.starts_with("https://") && of(wanted) != of(has) {
        return Err(refused(format!("the registry names version {wanted} beside its URL, and it is {has}")));
    }
    Ok(chart)
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
