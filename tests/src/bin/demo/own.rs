//! People's own clusters.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, anyhow, bail};
use kube::config::Kubeconfig;

/// A kubeconfig and the contexts of it that are to be used.
#[derive(Debug)]
pub(crate) struct Own {
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// The clusters, named after their contexts.
    pub(crate) places: Vec<Place>,
}

/// A cluster to write to.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Name: the context's.
    pub(crate) name: String,
    /// URL of the API server.
    pub(crate) server: String,
}

impl Own {
    /// Reads the kubeconfig and finds the contexts in it.
    pub(crate) fn read(path: PathBuf, contexts: Vec<String>) -> anyhow::Result<Self> {
        let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        // What the parser says quotes the file, which holds secrets.
        let config = Kubeconfig::from_yaml(&text).map_err(|_| anyhow!("{} is no kubeconfig", path.display()))?;
        let mut places: Vec<Place> = Vec::new();
        for name in contexts {
            if places.iter().any(|place| place.name == name) {
                bail!("context {name} is named twice");
            }
            let Some(context) = config.contexts.iter().find(|context| context.name == name) else {
                let names: Vec<&str> = config.contexts.iter().map(|context| context.name.as_str()).collect();
                bail!("{} has no context {name}; it has {}", path.display(), names.join(", "));
            };
            let cluster = context.context.as_ref().map(|context| context.cluster.as_str());
            let server = config
                .clusters
                .iter()
                .find(|named| Some(named.name.as_str()) == cluster)
                .and_then(|named| named.cluster.as_ref()?.server.clone())
                .with_context(|| format!("context {name} of {} names no cluster with a server", path.display()))?;
            places.push(Place { name, server: without_password(&server) });
        }
        // The executor may be started elsewhere.
        let path = path.canonicalize().with_context(|| format!("failed to find {}", path.display()))?;
        Ok(Self { path, places })
    }
}

fn without_password(server: &str) -> String {
    match (server.split_once("://"), server.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => server.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchyard_tests::sandbox::{Credential, Folder, Kubeconfig};

    #[test]
    fn contexts_are_found_and_unknown_ones_refused_with_the_choices() {
        let folder = Folder::new("own").unwrap();
        let config = Kubeconfig::new()
            .context("kind", "https://name:password@127.0.0.1:6443", "", Credential::Nothing)
            .context("prod", "https://10.0.0.1", "", Credential::Nothing);
        let path = folder.write("config", &config.to_string()).unwrap();

        let own = Own::read(path.clone(), vec!["kind".to_owned()]).unwrap();
        assert_eq!(own.places.len(), 1);
        assert_eq!(own.places[0].server, "https://127.0.0.1:6443");

        let error = Own::read(path.clone(), vec!["kint".to_owned()]).unwrap_err().to_string();
        assert!(error.ends_with("has no context kint; it has kind, prod"), "{error}");
        let error = Own::read(path, vec!["kind".to_owned(), "kind".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "context kind is named twice");
    }
}
