//! `Debug` for messages that carry kubeconfigs, designs, manifests or credentials (D25): says who and where, never what.

use std::fmt;

use crate::{
    meshes::{ProcessOamRequest, ProvisionRequest},
    v1::{
        AdapterRoute, Chart, ClusterAccess, Design, DirectRoute, EncodedPart, ExecuteRequest, cluster_access, design,
        execute_request::Part,
    },
};

/// Returns the part of a URL that may hold credentials, the `@` behind it left out.
pub fn userinfo(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?', '#']).next()?;
    Some(authority.rsplit_once('@')?.0)
}

/// Returns a URL as it may be shown: without credentials.
pub fn without_userinfo(url: &str) -> String {
    match userinfo(url) {
        Some(userinfo) => url.replacen(&format!("{userinfo}@"), "", 1),
        None => url.to_owned(),
    }
}

/// Returns a URL as it may be shown: without credentials, and without the values of its query, one of which may be a signature.
pub fn presentable(url: &str) -> String {
    let url = without_userinfo(url);
    let Some((place, query)) = url.split_once('?') else { return url };
    let (query, fragment) = query.split_once('#').map_or((query, ""), |(query, fragment)| (query, fragment));
    let names = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) => format!("{name}=[redacted]"),
        None => "[redacted]".to_owned(),
    });
    let mark = if fragment.is_empty() { "" } else { "#" };
    format!("{place}?{}{mark}{fragment}", names.collect::<Vec<_>>().join("&"))
}

impl fmt::Debug for Chart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chart")
            .field("url", &presentable(&self.url))
            .field("version", &self.version)
            .field("namespace", &self.namespace)
            .finish()
    }
}

impl fmt::Debug for ClusterAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterAccess").field("name", &self.name).field("source", &self.source).finish()
    }
}

impl fmt::Debug for cluster_access::Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubeconfig(_) => f.write_str("Kubeconfig([redacted])"),
            Self::Context(context) => f.debug_tuple("Context").field(context).finish(),
        }
    }
}

impl fmt::Debug for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Design").field("source", &self.source).finish()
    }
}

impl fmt::Debug for design::Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document(text) => write!(f, "Document({} bytes)", text.len()),
            Self::Structured(_) => f.write_str("Structured(..)"),
        }
    }
}

impl fmt::Debug for DirectRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectRoute")
            .field("clusters", &self.clusters)
            .field("manifest", &format_args!("{} bytes", self.manifest.len()))
            .finish()
    }
}

impl fmt::Debug for AdapterRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdapterRoute")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("clusters", &self.clusters)
            .field("protocol", &self.protocol)
            .finish()
    }
}

impl fmt::Debug for EncodedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedPart")
            .field("kind", &self.kind())
            .field("bytes", &format_args!("{} bytes", self.bytes.len()))
            .finish()
    }
}

impl fmt::Debug for ExecuteRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Manifests may hold Secret data, so parts are named and not shown.
        let part = match &self.part {
            None => "none",
            Some(Part::Header(_)) => "header",
            Some(Part::Step(_)) => "step",
            Some(Part::Trailer(_)) => "trailer",
            Some(Part::Cluster(_)) => "cluster",
            Some(Part::Cancel(_)) => "cancel",
            Some(Part::Encoded(_)) => "encoded",
            Some(Part::Start(_)) => "start",
        };
        f.debug_struct("ExecuteRequest").field("part", &part).finish()
    }
}

impl fmt::Debug for ProcessOamRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessOamRequest")
            .field("delete_op", &self.delete_op)
            .field("components", &self.oam_comps.len())
            .field("kubeconfigs", &self.kube_configs.len())
            .finish()
    }
}

impl fmt::Debug for ProvisionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProvisionRequest")
            .field("delete_op", &self.delete_op)
            .field("declarations", &self.declarations.len())
            .field("kubeconfigs", &self.kube_configs.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_says_nothing_of_the_content() {
        const CANARY: &str = "canary-7f1";
        let shown = [
            format!(
                "{:?}",
                ClusterAccess { name: "c".into(), source: Some(cluster_access::Source::Kubeconfig(CANARY.into())) }
            ),
            format!("{:?}", Design { source: Some(design::Source::Document(CANARY.into())) }),
            format!("{:?}", Chart { url: format!("https://u:{CANARY}@h/x"), ..Default::default() }),
            format!("{:?}", DirectRoute { manifest: CANARY.into(), ..Default::default() }),
            format!("{:?}", AdapterRoute { declaration: CANARY.into(), ..Default::default() }),
            format!("{:?}", ProcessOamRequest { kube_configs: vec![CANARY.into()], ..Default::default() }),
            format!("{:?}", ProvisionRequest { kube_configs: vec![CANARY.into()], ..Default::default() }),
        ];
        for text in shown {
            assert!(!text.contains(CANARY), "{text}");
        }
    }

    #[test]
    fn url_is_shown_without_credentials_and_otherwise_whole() {
        for (url, shown) in [
            ("https://user:p%40ss@host:5000/a/b.tgz?c=d@e", "https://host:5000/a/b.tgz?c=d@e"),
            ("oci://token@host/a", "oci://host/a"),
            ("oci://host/a@sha256:0", "oci://host/a@sha256:0"),
            ("no url", "no url"),
        ] {
            assert_eq!(without_userinfo(url), shown);
        }
    }

    #[test]
    fn url_is_presented_without_the_values_of_its_query() {
        for (url, shown) in [
            (
                "https://u:p@host/a.tgz?X-Amz-Signature=5f&v=1#x",
                "https://host/a.tgz?X-Amz-Signature=[redacted]&v=[redacted]#x",
            ),
            ("https://host/a.tgz?5f1c", "https://host/a.tgz?[redacted]"),
            ("oci://host/a", "oci://host/a"),
        ] {
            assert_eq!(presentable(url), shown);
        }
    }
}
