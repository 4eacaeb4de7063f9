//! Fetching a chart with helm, into a folder that goes with it.

use std::path::PathBuf;

use base64::{Engine, prelude::BASE64_STANDARD};
use percent_encoding::percent_decode_str;
use tokio::time::{Duration, Instant, sleep};

use super::{Key, release::version};
use crate::{
    answers::{
        classify,
        failure::{Failure, Reason},
    },
    helm::{self, Bounds, Call, Folder, Helm, archive},
    mask::Secrets,
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

/// Has helm fetch the chart, and looks it over.
pub(super) async fn fetch(helm: &Helm, key: &Key, bounds: Bounds<'_>) -> Result<Fetched, Failure> {
    let shown = key.shown();
    let secrets = Secrets::of_url(&key.url);
    let unfetchable = |error: helm::Error| {
        classify::helm_failed(Reason::ChartUnfetchable, &format!("chart {shown} cannot be fetched"), &error, &secrets)
    };
    let folder = Folder::new(&[]).map_err(|error| unfetchable(error.into()))?;
    // One folder further in: what helm writes beside the archive, as it does for a name that it cannot give, stays private too.
    let destination = folder.path().join("chart");
    std::fs::create_dir(&destination).map_err(|error| unfetchable(error.into()))?;
    let Source { mut arguments, files } = source(key);
    arguments.push(format!("--destination={}", destination.display()));
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
    // What is in an archive is its host's word too.
    let chart = looked.map_err(|error| refused(secrets.render(&error.to_string().into())))?;
    // Of an archive helm ignores the version that it is told (case 354).
    let of = |text| version(text).ok_or(text);
    let (wanted, has) = (key.version.as_str(), chart.about.version.as_str());
    if !wanted.is_empty() && shown.starts_with("https://") && of(wanted) != of(has) {
        return Err(refused(format!("the registry names version {wanted} beside its URL, and it is {has}")));
    }
    Ok(chart)
}

/// How helm is told where the chart lies.
struct Source {
    arguments: Vec<String>,
    files: Vec<(&'static str, String)>,
}

/// Where the chart lies and who helm is to say it is. A command line can be read by others, so credentials are in files, and so is a
/// URL of an archive, whose query may be a signature.
fn source(key: &Key) -> Source {
    let url = switchyard_proto::without_userinfo(&key.url);
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let login = switchyard_proto::userinfo(&key.url).map(|userinfo| {
        let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
        [user, password].map(|text| percent_decode_str(text).decode_utf8_lossy().into_owned())
    });
    match scheme {
        "oci" => of_registry(&url, host, login, &key.version),
        _ => of_archive(&url, &format!("{scheme}://{host}"), login),
    }
}

type Login = Option<[String; 2]>;

fn of_registry(url: &str, host: &str, login: Login, version: &str) -> Source {
    let name = "registry.json";
    let mut arguments = vec![url.to_owned()];
    if !version.is_empty() {
        arguments.push(format!("--version={version}"));
    }
    let files = login.map(|[user, password]| {
        arguments.push(format!("--registry-config={}", Call::file(name)));
        let auth = BASE64_STANDARD.encode(format!("{user}:{password}"));
        (name, serde_json::json!({"auths": {host: {"auth": auth}}}).to_string())
    });
    Source { arguments, files: files.into_iter().collect() }
}

/// An archive as the one chart of a repository whose index helm need not fetch: from there helm takes the URL, and who it is to say
/// it is for as long as it is at this host.
fn of_archive(url: &str, host: &str, login: Login) -> Source {
    let (repositories, index) = ("repositories.yaml", "chart-index.yaml");
    let [user, password] = login.unwrap_or_default();
    let known = serde_json::json!({"repositories": [
        {"name": "chart", "url": host, "username": user, "password": password}
    ]});
    let listed = serde_json::json!({"apiVersion": "v1", "entries": {"chart": [
        {"apiVersion": "v2", "name": "chart", "version": "0.0.0", "urls": [url]}
    ]}});
    let config = format!("--repository-config={}", Call::file(repositories));
    Source {
        arguments: vec!["chart/chart".into(), config, "--repository-cache=.".into()],
        files: vec![(repositories, known.to_string()), (index, listed.to_string())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::target::ClusterIx;

    #[test]
    fn what_is_secret_in_a_url_is_in_files_and_the_arguments_only_name_them() {
        for url in [
            "oci://robot:p%40ss:word@charts:5000/x",
            "https://robot:p%40ss:word@charts/x-1.0.0.tgz",
            "https://robot:p%40ss:word@charts/x-1.0.0.tgz?X-Amz-Signature=5f1c",
        ] {
            let key =
                Key { cluster: ClusterIx::from(0), url: url.into(), version: String::new(), namespace: String::new() };
            let Source { arguments, files } = source(&key);
            let secret = ["robot", "ss:word", "5f1c"];
            assert!(!secret.iter().any(|secret| arguments.concat().contains(secret)), "{arguments:?}");
            let said = files.iter().map(|(_, text)| text.as_str()).collect::<String>();
            let encoded = BASE64_STANDARD.encode("robot:p@ss:word");
            assert!(said.contains("p@ss:word") || said.contains(&encoded), "{said}");
            assert_eq!(said.contains("5f1c"), url.contains("5f1c"), "{said}");
        }
    }
}
