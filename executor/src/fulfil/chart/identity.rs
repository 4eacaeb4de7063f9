//! Which chart a URL means, whatever version it names (case 344).
//!
//! A release is found again by its chart's repository and name. Both are read from the URL, so that they are known before the
//! chart is fetched, and are the same for the next version: `https://h/download/app-1.2.3/app-1.2.3.tgz` means what
//! `https://h/download/app-1.3.0/app-1.3.0.tgz` means.

use percent_encoding::percent_decode_str;
use uuid::Uuid;

/// Label on releases that says which chart they were installed from.
pub(super) const LABEL: &str = "switchyard.chart";

/// A chart without its version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    /// Without credentials and query.
    repository: String,
    /// As the URL has it. Nearly always also the chart's own name.
    pub(super) name: String,
}

impl Identity {
    pub(super) fn of(url: &str) -> Self {
        let url = switchyard_proto::without_userinfo(url);
        let (scheme, rest) = url.split_once("://").unwrap_or(("", &url));
        let place = rest.split(['?', '#']).next().unwrap_or_default();
        let (host, path) = place.split_once('/').unwrap_or((place, ""));
        let (folder, last) = path.rsplit_once('/').unwrap_or(("", path));
        let (name, version) = match scheme {
            "oci" => (last.split([':', '@']).next().unwrap_or_default(), None),
            _ => file(last),
        };
        let repository = match version {
            Some(version) => folder.replace(version.trim_start_matches('v'), ""),
            None => folder.to_owned(),
        };
        Self { repository: format!("{scheme}://{host}/{repository}"), name: name.to_owned() }
    }

    /// What marks a release of this chart.
    pub(super) fn mark(&self) -> String {
        let text = format!("{}/{}", self.repository, self.name);
        format!("{LABEL}={}", Uuid::new_v5(&Uuid::NAMESPACE_URL, text.as_bytes()))
    }
}

/// Name and version in the name of an archive, such as `app-1.2.3.tgz`.
fn file(file: &str) -> (&str, Option<&str>) {
    let stem = [".tgz", ".tar.gz"].iter().find_map(|end| file.strip_suffix(end)).unwrap_or(file);
    let dash = stem.match_indices('-').map(|(at, _)| at).find(|at| begins_as_version(&stem[at + 1..]));
    dash.map_or((stem, None), |at| (&stem[..at], Some(&stem[at + 1..])))
}

/// Whether a text begins with two numbers and a dot between them, after a `v` perhaps.
fn begins_as_version(text: &str) -> bool {
    let text = text.strip_prefix('v').unwrap_or(text);
    let after = text.trim_start_matches(|c: char| c.is_ascii_digit());
    after.len() < text.len()
        && after.strip_prefix('.').is_some_and(|next| next.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether the URL names a file. Helm gives the archive the last part of the decoded path for its name, so one that leads up, or
/// is empty, would have it written beside its folder (case 348).
pub(super) fn names_a_file(url: &str) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    let place = rest.split(['?', '#']).next().unwrap_or_default();
    let Some((_, path)) = place.split_once('/') else { return false };
    let path = percent_decode_str(path).decode_utf8_lossy();
    let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    !matches!(last, "" | "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_one_chart_are_one_chart() {
        for (one, other, name) in [
            ("https://h/app-1.2.3.tgz", "https://user:pw@h/app-v2.0.0-rc.1.tgz?signature=x", "app"),
            ("https://h/download/app-1.2.3/app-1.2.3.tgz", "https://h/download/app-1.3.0/app-1.3.0.tgz", "app"),
            (
                "https://h/download/v1.2.3/my-app-2-1.2.3.tgz",
                "https://h/download/v1.3.0/my-app-2-1.3.0.tgz",
                "my-app-2",
            ),
            ("https://h/v1.2.3/app-v1.2.3.tgz", "https://h/v1.3.0/app-v1.3.0.tgz", "app"),
            ("oci://h:5000/charts/app", "oci://user:pw@h:5000/charts/app:1.2.3", "app"),
            ("oci://h/charts/app:1.2.3", "oci://h/charts/app@sha256:00", "app"),
            ("https://h/app.tgz", "https://h/app.tgz#x", "app"),
        ] {
            let (one, other) = (Identity::of(one), Identity::of(other));
            assert_eq!(one, other);
            assert_eq!((one.name.as_str(), one.mark()), (name, other.mark()));
        }
    }

    #[test]
    fn charts_of_other_repositories_and_names_are_others() {
        let urls = [
            "https://h/app-1.2.3.tgz",
            "https://i/app-1.2.3.tgz",
            "https://h/charts/app-1.2.3.tgz",
            "https://h/app-crds-1.2.3.tgz",
            "oci://h/app",
            "oci://h/charts/app",
        ];
        let mut marks: Vec<_> = urls.iter().map(|url| Identity::of(url).mark()).collect();
        marks.sort();
        marks.dedup();
        assert_eq!(marks.len(), urls.len());
    }

    #[test]
    fn url_without_a_file_is_known() {
        for url in [
            "https://h",
            "https://h/",
            "https://h//",
            "https://h/?a=b",
            "https://h/a/..",
            "https://h/a/%2e%2e/",
            "https://h/a%2F..",
            "https://h/.",
            "oci://h",
        ] {
            assert!(!names_a_file(url), "{url}");
        }
        for url in ["https://h/a.tgz", "https://h/a/", "https://h/a/b?c=/", "oci://h/a:1"] {
            assert!(names_a_file(url), "{url}");
        }
    }
}
