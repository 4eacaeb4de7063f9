//! Credentials in, a checked configuration out: the one gate that every way into a cluster passes.
//!
//! A kubeconfig that came in a request is data, never a program (cases 92, 141, 142): whatever would make the executor run
//! something, read a file of its own, talk through somebody or act as somebody is refused by name, wherever in the file it
//! stands. Nothing is ever inferred: what is broken or missing is an error, not another cluster (case 96).

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use kube::config::{
    AuthInfo, Config, ExecAuthCluster, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster,
    NamedContext,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    discovery::Asker,
    plugin::{self, Plugin},
};
use crate::{addresses::Reach, mask::Secrets};

/// Largest kubeconfig that is read, in bytes.
const MAX_KUBECONFIG: usize = 1024 * 1024;
/// How much aliases may add to a kubeconfig, in YAML events. Those that people write have none; a bomb of 880 bytes would take 86 MB.
const MAX_REPLAYED: usize = 10_000;

/// Keys that make a user entry more than data, and what they would do.
const USER_KEYS: [(&str, &str); 9] = [
    ("exec", "runs a program"),
    ("auth-provider", "runs a login flow"),
    ("tokenFile", "reads a file of the executor"),
    ("client-certificate", "reads a file of the executor"),
    ("client-key", "reads a file of the executor"),
    ("as", "impersonates another user"),
    ("as-uid", "impersonates another user"),
    ("as-groups", "impersonates another group"),
    ("as-user-extra", "impersonates another user"),
];

/// The same for a cluster entry.
const CLUSTER_KEYS: [(&str, &str); 3] = [
    ("certificate-authority", "reads a file of the executor"),
    ("proxy-url", "sends the traffic through a proxy"),
    ("insecure-skip-tls-verify", "accepts any server"),
];

/// How a cluster of the plan is to be reached.
#[derive(Clone)]
pub(crate) enum Source {
    /// A kubeconfig from the request.
    Kubeconfig(String),
    /// A context of the executor's own kubeconfig, named in the request.
    Context(String),
    /// Nothing was said: the name is a context of the executor's own kubeconfig, or `in-cluster`.
    Name,
}

/// Who is to read a kubeconfig that is handed on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Somewhere else, so everything must be in it.
    Adapter,
    /// On this machine, for one short call.
    Helm,
}

/// Why there is no configuration. No text of a kubeconfig's values is in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the kubeconfig is empty")]
    Empty,
    #[error("the kubeconfig has {0} bytes, more than the {MAX_KUBECONFIG} that are read")]
    TooLarge(usize),
    #[error("the kubeconfig cannot be read: {0}")]
    Unreadable(String),
    #[error(
        "{what} `{name}` of the kubeconfig sets `{key}`, which {does}; a kubeconfig in a request must hold plain data only"
    )]
    NotData { what: &'static str, name: String, key: &'static str, does: &'static str },
    #[error("the kubeconfig names no current-context")]
    NoContext,
    #[error("context `{0}` of the kubeconfig names no user")]
    NoUser(String),
    #[error("the kubeconfig has no {what} `{name}`")]
    Missing { what: &'static str, name: String },
    #[error("the kubeconfig gives no usable configuration: {0}")]
    Unusable(String),
    #[error("kubeconfigs in requests are refused by this executor; name one of its own contexts instead")]
    Denied,
    #[error("{asked}, and the executor has {known}; send a kubeconfig or name a context that exists")]
    UnknownContext { asked: String, known: String },
    #[error("the executor does not run in a cluster: {0}")]
    NotInCluster(&'static str),
    #[error("its credentials are not to be had: {0}")]
    Plugin(#[from] plugin::Error),
}

/// Why a kubeconfig gives no configuration. kube would quote paths, URLs and what it read.
fn unusable_kubeconfig(error: &KubeconfigError) -> Error {
    let text = match error {
        KubeconfigError::MissingClusterUrl => "its cluster has no server",
        KubeconfigError::ParseClusterUrl(_) => "its cluster's server is not a URL",
        KubeconfigError::ParseProxyUrl(_) => "its proxy-url is not a URL",
        KubeconfigError::LoadCertificateAuthority(_) => {
            "the file of `certificate-authority` cannot be read, or `certificate-authority-data` is not base64"
        }
        KubeconfigError::LoadClientCertificate(_) => {
            "the file of `client-certificate` cannot be read, or `client-certificate-data` is not base64"
        }
        KubeconfigError::LoadClientKey(_) => {
            "the file of `client-key` cannot be read, or `client-key-data` is not base64"
        }
        KubeconfigError::ParseCertificates(_) => "its certificate authority is not a certificate in PEM form",
        _ => "it cannot be read",
    };
    Error::Unusable(text.into())
}

/// Why there are no credentials of a pod.
fn not_in_cluster(error: &kube::config::InClusterError) -> Error {
    use kube::config::InClusterError as In;
    Error::NotInCluster(match error {
        In::ReadEnvironmentVariable(_) => "it has no environment variables of a pod",
        In::ReadDefaultNamespace(_) | In::ReadCertificateBundle(_) => "the files of a service account cannot be read",
        _ => "what a pod knows of its cluster is not usable",
    })
}

/// Why credentials make no client. kube's own texts quote files, headers, and what programs were given and said (case 231).
pub(crate) fn unusable(error: &kube::Error) -> &'static str {
    use kube::client::AuthError;
    match error {
        kube::Error::Auth(AuthError::ReadTokenFile(..)) => "the file of their token cannot be read",
        kube::Error::Auth(AuthError::InvalidBearerToken(_) | AuthError::InvalidBasicAuth(_)) => {
            "a token, user name or password has characters that no HTTP header may have"
        }
        kube::Error::Auth(_) => "they have a form that is not supported",
        kube::Error::RustlsTls(_) => "a certificate or key in them is not in PEM form, or they do not belong together",
        _ => "nothing can be made of them",
    }
}

/// The ways into clusters that belong to the executor itself.
#[derive(Default)]
pub(crate) struct Access {
    own: Option<Kubeconfig>,
    deny_request_kubeconfigs: bool,
    /// Where kubeconfigs of requests may lead.
    reach: Reach,
    /// By context.
    plugins: Mutex<BTreeMap<String, Arc<Plugin>>>,
}

/// How one cluster is reached.
pub(crate) struct Way {
    pub(crate) config: Config,
    /// What makes the credentials, where they are not in the configuration.
    pub(crate) plugin: Option<Arc<Plugin>>,
    /// Where it may lead.
    pub(crate) reach: Reach,
    /// What must not be said of it.
    pub(crate) credentials: Secrets,
    /// The context of the executor's own kubeconfig; none of what was sent with a request, whose names are anything.
    pub(crate) known_as: Option<String>,
}

impl Way {
    fn new(config: Config, plugin: Option<Arc<Plugin>>) -> Self {
        let AuthInfo { password, token, client_key_data, .. } = &config.auth_info;
        let credentials = [password, token, client_key_data].into_iter().flatten();
        let credentials = Secrets::of_values(credentials.map(|secret| secret.expose_secret()));
        Self { config, plugin, reach: Reach::All, credentials, known_as: None }
    }
}

impl Access {
    /// Reads the executor's own kubeconfig, if it has one.
    pub(crate) fn new(own: Option<&Path>, deny_request_kubeconfigs: bool, reach: Reach) -> Result<Self, Error> {
        Ok(Self { own: own.map(read_own).transpose()?, deny_request_kubeconfigs, reach, plugins: Mutex::default() })
    }

    /// The configuration for the cluster that the plan calls `name`.
    pub(crate) async fn way(&self, name: &str, source: &Source) -> Result<Way, Error> {
        let known_as = match source {
            Source::Kubeconfig(_) => None,
            Source::Context(context) => Some(context.clone()),
            Source::Name => Some(name.to_owned()),
        };
        Ok(Way { known_as, ..self.way_of(name, source).await? })
    }

    async fn way_of(&self, name: &str, source: &Source) -> Result<Way, Error> {
        match source {
            Source::Kubeconfig(_) if self.deny_request_kubeconfigs => Err(Error::Denied),
            Source::Kubeconfig(text) => {
                Ok(Way { reach: self.reach, ..Way::new(load(parse(text)?, None).await?, None) })
            }
            Source::Context(context) => self.own(context, || format!("context `{context}` was asked for")).await,
            Source::Name if name == "in-cluster" && !self.has_context(name) => {
                Ok(Way::new(Config::incluster().map_err(|error| not_in_cluster(&error))?, None))
            }
            Source::Name => self.own(name, || format!("no access to `{name}` was sent")).await,
        }
    }

    /// Tells ways into clusters apart.
    pub(crate) fn asker(name: &str, source: &Source) -> Asker {
        let (how, what) = match source {
            Source::Kubeconfig(text) => ("kubeconfig", text.as_str()),
            Source::Context(context) => ("context", context.as_str()),
            Source::Name => ("name", name),
        };
        Sha256::new().chain_update(how).chain_update([0]).chain_update(what).finalize().into()
    }

    /// A kubeconfig of that one cluster, with nothing else in it, for an adapter (D27) or for helm.
    pub(crate) fn kubeconfig(&self, name: &str, source: &Source, reader: Reader) -> Result<String, Error> {
        let (kubeconfig, context) = match source {
            Source::Kubeconfig(text) => (parse(text)?, None),
            Source::Context(context) => (self.own.clone().unwrap_or_default(), Some(context.as_str())),
            Source::Name if name == "in-cluster" && !self.has_context(name) => (in_cluster()?, None),
            Source::Name => (self.own.clone().unwrap_or_default(), Some(name)),
        };
        let whom = if reader == Reader::Adapter { "an adapter" } else { "helm" };
        let not_portable = |what: &str| Error::Unusable(format!("it cannot be handed to {whom}: {what}"));
        let Selected { context, cluster, user } = select(&kubeconfig, context)?;
        let mut of_user = user.auth_info.clone().unwrap_or_default();
        let reads_files = of_user.token_file.is_some() && reader == Reader::Adapter;
        if of_user.exec.is_some() || of_user.auth_provider.is_some() || reads_files {
            return Err(not_portable("its credentials are made anew by a program or a file"));
        }
        let mut of_cluster = cluster.cluster.clone().unwrap_or_default();
        let inline = |file: &mut Option<String>| -> Result<Option<String>, Error> {
            let Some(path) = file.take() else { return Ok(None) };
            let bytes = std::fs::read(&path)
                .map_err(|error| not_portable(&format!("a file that it names cannot be read ({})", error.kind())))?;
            Ok(Some(BASE64_STANDARD.encode(bytes)))
        };
        let or = |data: &mut Option<String>, other: Option<String>| *data = data.take().or(other);
        or(&mut of_cluster.certificate_authority_data, inline(&mut of_cluster.certificate_authority)?);
        or(&mut of_user.client_certificate_data, inline(&mut of_user.client_certificate)?);
        if let Some(key) = inline(&mut of_user.client_key)? {
            of_user.client_key_data.get_or_insert_with(|| key.into());
        }
        let minified = Kubeconfig {
            api_version: Some("v1".into()),
            kind: Some("Config".into()),
            current_context: Some(context.name.clone()),
            contexts: vec![context.clone()],
            clusters: vec![NamedCluster { cluster: Some(of_cluster), ..cluster.clone() }],
            auth_infos: vec![NamedAuthInfo { auth_info: Some(of_user), ..user.clone() }],
            ..Kubeconfig::default()
        };
        // JSON is YAML.
        serde_json::to_string(&minified).map_err(|_| not_portable("it cannot be written down"))
    }

    /// What is wrong with the executor's own contexts, as far as it shows without asking anybody: one sentence each.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let Some(own) = &self.own else { return Vec::new() };
        let each = own.contexts.iter().filter_map(|context| {
            let of_context = |what: &dyn std::fmt::Display| format!("context `{}`: {what}", context.name);
            let Selected { cluster, user, .. } = match select(own, Some(&context.name)) {
                Ok(selected) => selected,
                Err(error) => return Some(of_context(&error)),
            };
            let (of_cluster, of_user) = (cluster.cluster.as_ref()?, user.auth_info.as_ref()?);
            let files = [
                ("certificate-authority", &of_cluster.certificate_authority),
                ("client-certificate", &of_user.client_certificate),
                ("client-key", &of_user.client_key),
                ("tokenFile", &of_user.token_file),
            ];
            files.into_iter().find_map(|(field, file)| {
                let error = std::fs::File::open(file.as_ref()?).err()?;
                Some(of_context(&format_args!("the file of `{field}` cannot be read ({})", error.kind())))
            })
        });
        each.collect()
    }

    fn has_context(&self, name: &str) -> bool {
        self.own.iter().flat_map(|own| &own.contexts).any(|context| context.name == name)
    }

    /// Names of the contexts of the executor's own kubeconfig, in order.
    pub(crate) fn contexts(&self) -> Vec<String> {
        let contexts = self.own.iter().flat_map(|own| &own.contexts);
        let mut names: Vec<_> = contexts.map(|context| context.name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Whether kubeconfigs in requests are taken.
    pub(crate) fn takes_kubeconfigs(&self) -> bool {
        !self.deny_request_kubeconfigs
    }

    async fn own(&self, context: &str, asked: impl FnOnce() -> String) -> Result<Way, Error> {
        match &self.own {
            Some(own) if self.has_context(context) => self.with_plugin(own.clone(), context).await,
            Some(own) => {
                let names: Vec<_> = own.contexts.iter().map(|context| context.name.as_str()).collect();
                Err(Error::UnknownContext { asked: asked(), known: format!("the contexts {}", names.join(", ")) })
            }
            None => Err(Error::UnknownContext { asked: asked(), known: "no kubeconfig of its own".into() }),
        }
    }
}

impl Access {
    /// The way that a context of the executor's own kubeconfig is, with the credentials that its plugin makes.
    async fn with_plugin(&self, mut own: Kubeconfig, context: &str) -> Result<Way, Error> {
        let Selected { cluster, user, .. } = select(&own, Some(context))?;
        let of_user = user.auth_info.clone().unwrap_or_default();
        // What kube would do for these is to run a program on a thread of the runtime.
        if let Some(provider) = of_user.auth_provider.as_ref().filter(|provider| provider.name != "oidc") {
            let name = &provider.name;
            let text = format!("auth-provider `{name}` is gone from Kubernetes since 1.26; use its exec plugin");
            return Err(Error::Unusable(text));
        }
        let has_own = of_user.token.is_some() || of_user.token_file.is_some() || of_user.username.is_some();
        let Some(exec) = of_user.exec.filter(|_| !has_own) else {
            return Ok(Way::new(load(own, Some(context)).await?, None));
        };
        let told = cluster.cluster.as_ref().map(ExecAuthCluster::try_from).transpose();
        let told = told.map_err(|error| unusable_kubeconfig(&error))?;
        let user = user.name.clone();
        let plugin = self.plugin(context, || Plugin::new(exec, told));
        let answer = plugin.answer().await?;
        for entry in own.auth_infos.iter_mut().filter(|entry| entry.name == user) {
            let of_user = entry.auth_info.get_or_insert_default();
            of_user.exec = None;
            answer.fill(of_user);
        }
        let mut config = load(own, Some(context)).await?;
        // It is put into each request as it is then.
        config.auth_info.token = None;
        Ok(Way::new(config, Some(plugin)))
    }

    fn plugin(&self, context: &str, new: impl FnOnce() -> Plugin) -> Arc<Plugin> {
        let mut plugins = self.plugins.lock().expect("nothing panics while it holds the lock");
        plugins.entry(context.to_owned()).or_insert_with(|| Arc::new(new())).clone()
    }
}

/// A kubeconfig of the cluster that the executor runs in. The token is read where it is used: it does not live long.
fn in_cluster() -> Result<Kubeconfig, Error> {
    /// Where Kubernetes puts what a pod needs to reach its API server.
    const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let config = Config::incluster().map_err(|error| not_in_cluster(&error))?;
    let entry = serde_json::json!({
        "current-context": "in-cluster",
        "contexts": [{"name": "in-cluster", "context": {"cluster": "in-cluster", "user": "in-cluster"}}],
        "clusters": [{"name": "in-cluster", "cluster": {
            "server": config.cluster_url.to_string(),
            "certificate-authority": format!("{FOLDER}/ca.crt"),
        }}],
        "users": [{"name": "in-cluster", "user": {"tokenFile": format!("{FOLDER}/token")}}],
    });
    serde_json::from_value(entry).map_err(|_| Error::Unusable("it cannot be written down".into()))
}

/// Reads the executor's own kubeconfig: a file, or a list of files as `KUBECONFIG` has it. A list is merged as kubectl does: who says
/// something first wins, and files that are not there are left out as long as one is.
fn read_own(path: &Path) -> Result<Kubeconfig, Error> {
    let list: Vec<_> = std::env::split_paths(path).filter(|path| !path.as_os_str().is_empty()).collect();
    let there: Vec<_> = list.iter().filter(|path| path.exists()).collect();
    if path.exists() || there.is_empty() {
        return read_file(path);
    }
    there.into_iter().try_fold(Kubeconfig::default(), |merged, path| {
        let of_file = |error: &dyn std::fmt::Display| Error::Unreadable(format!("{}: {error}", path.display()));
        let next = read_file(path).map_err(|error| of_file(&error))?;
        merged.merge(next).map_err(|error| of_file(&error))
    })
}

/// Reads one file. kube resolves what paths in it are relative to, but quotes lines of a file that does
/// not parse; those may hold a token.
fn read_file(path: &Path) -> Result<Kubeconfig, Error> {
    Kubeconfig::read_from(path).map_err(|error| {
        Error::Unreadable(match error {
            KubeconfigError::ReadConfig(error, _) => error.to_string(), // To the operator, at start.
            KubeconfigError::Parse(error) => unparsed(&error),
            _ => "it is not a kubeconfig".into(),
        })
    })
}

/// That and where a text does not parse, without its text.
fn unparsed(error: &serde_saphyr::Error) -> String {
    match error.location() {
        Some(at) => format!("it does not parse at line {}, column {}", at.line(), at.column()),
        None => "it does not parse".into(),
    }
}

/// Reads a kubeconfig that came in a request, and refuses what is more than data.
fn parse(text: &str) -> Result<Kubeconfig, Error> {
    if text.trim().is_empty() {
        return Err(Error::Empty);
    }
    if text.len() > MAX_KUBECONFIG {
        return Err(Error::TooLarge(text.len()));
    }
    // Snippets would show lines of the file, keys and tokens among them.
    let options = serde_saphyr::options! {
        with_snippet: false,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPLAYED },
    };
    let value: Value =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| Error::Unreadable(unparsed(&error)))?;
    for (list, entry, what, keys) in
        [("users", "user", "user", USER_KEYS.as_slice()), ("clusters", "cluster", "cluster", CLUSTER_KEYS.as_slice())]
    {
        for named in value[list].as_array().into_iter().flatten() {
            for &(key, does) in keys {
                let set = &named[entry][key];
                let harmless = set.is_null() || *set == Value::Bool(false) || *set == "";
                if !harmless {
                    let name = named["name"].as_str().unwrap_or_default().to_owned();
                    return Err(Error::NotData { what, name, key, does });
                }
            }
        }
    }
    // serde's text may quote a value of the wrong type.
    serde_json::from_value(value).map_err(|_| Error::Unreadable("a field has the wrong type".into()))
}

/// The parts of a kubeconfig that one context selects.
struct Selected<'a> {
    context: &'a NamedContext,
    cluster: &'a NamedCluster,
    user: &'a NamedAuthInfo,
}

fn select<'a>(kubeconfig: &'a Kubeconfig, context: Option<&'a str>) -> Result<Selected<'a>, Error> {
    let name = context.or(kubeconfig.current_context.as_deref()).filter(|name| !name.is_empty());
    let name = name.ok_or(Error::NoContext)?;
    let missing = |what, name: &str| Error::Missing { what, name: name.to_owned() };
    let context = kubeconfig.contexts.iter().find(|named| named.name == name);
    let context = context.ok_or_else(|| missing("context", name))?;
    let entry = context.context.as_ref().ok_or_else(|| missing("context", name))?;
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == entry.cluster);
    let cluster = cluster.ok_or_else(|| missing("cluster", &entry.cluster))?;
    let user = entry.user.as_deref().filter(|user| !user.is_empty()).ok_or_else(|| Error::NoUser(name.to_owned()))?;
    let user = kubeconfig.auth_infos.iter().find(|named| named.name == user).ok_or_else(|| missing("user", user))?;
    Ok(Selected { context, cluster, user })
}

async fn load(mut kubeconfig: Kubeconfig, context: Option<&str>) -> Result<Config, Error> {
    let Selected { context, cluster, .. } = select(&kubeconfig, context)?;
    let context = context.name.clone();
    if cluster.cluster.as_ref().is_some_and(|cluster| cluster.proxy_url.is_some()) {
        return Err(Error::Unusable("`proxy-url` is not supported".into()));
    }
    unwrap_data(&mut kubeconfig);
    let options = KubeConfigOptions { context: Some(context), ..KubeConfigOptions::default() };
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| unusable_kubeconfig(&error))?;
    // Retries and deadlines are ours: kube's would hold one request for minutes and answer to no budget.
    config.default_retry = false;
    // kube takes a proxy from the environment; which way traffic goes is for the kubeconfig to say (case 95).
    config.proxy_url = None;
    Ok(config)
}

/// Removes the line breaks that wrapped base64 has: kubectl reads over them, kube's decoder does not (case 94).
fn unwrap_data(kubeconfig: &mut Kubeconfig) {
    let plain = |data: &str| data.split_ascii_whitespace().collect::<String>();
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.certificate_authority_data = cluster.certificate_authority_data.as_deref().map(plain);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        user.client_certificate_data = user.client_certificate_data.as_deref().map(plain);
        let key = user.client_key_data.as_ref().map(|key| SecretString::from(plain(key.expose_secret())));
        user.client_key_data = key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(user: &str, cluster: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:1'{cluster}}}}}]\n\
             users: [{{name: u, user: {{token: canary-7f1{user}}}}}, {{name: other, user: {{}}}}]\n"
        )
    }

    async fn refusal(text: &str) -> String {
        let access = Access::default();
        let source = Source::Kubeconfig(text.to_owned());
        let text = access.way("east", &source).await.map(|_| ()).unwrap_err().to_string();
        assert!(!text.contains("canary-7f1"), "{text}");
        text
    }

    #[tokio::test]
    async fn plain_data_is_accepted() {
        let source = Source::Kubeconfig(kubeconfig("", ""));
        let config = Access::default().way("east", &source).await.unwrap().config;
        assert_eq!(config.cluster_url.to_string(), "https://127.0.0.1:1/");
        assert!(!config.default_retry);
    }

    #[tokio::test]
    async fn whatever_is_more_than_data_is_refused_by_name() {
        for (key, _) in USER_KEYS {
            let text = refusal(&kubeconfig(&format!(", {key}: x"), "")).await;
            assert!(text.contains(&format!("`{key}`")) && text.contains("user `u`"), "{text}");
        }
        for (key, _) in CLUSTER_KEYS {
            let text = refusal(&kubeconfig("", &format!(", {key}: true"))).await;
            assert!(text.contains(&format!("`{key}`")) && text.contains("cluster `k`"), "{text}");
        }
        let unselected = kubeconfig("", "").replace("name: other, user: {}", "name: other, user: {exec: {command: x}}");
        assert!(refusal(&unselected).await.contains("user `other`"));
    }

    #[tokio::test]
    async fn broken_kubeconfig_never_falls_back() {
        assert_eq!(refusal("  \n").await, Error::Empty.to_string());
        assert!(refusal("a: [canary-7f1").await.contains("does not parse"));
        assert!(refusal("users: 3").await.contains("wrong type"));
        let good = kubeconfig("", "");
        assert_eq!(refusal(&good.replace("current-context: c", "")).await, Error::NoContext.to_string());
        assert!(refusal(&good.replace("current-context: c", "current-context: d")).await.contains("no context `d`"));
        assert!(refusal(&good.replace("cluster: k,", "cluster: z,")).await.contains("no cluster `z`"));
        assert!(refusal(&good.replace("user: u}", "user: z}")).await.contains("no user `z`"));
    }

    #[tokio::test]
    async fn name_without_access_is_refused_and_says_what_there_is() {
        let error = Access::default().way("east", &Source::Name).await.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("no access to `east` was sent"), "{error}");
    }

    #[test]
    fn own_kubeconfig_that_does_not_parse_is_not_quoted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "users: [{token: canary-7f1\n").unwrap();
        let error = Access::new(Some(file.path()), false, Reach::All).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("does not parse at line") && !error.contains("canary-7f1"), "{error}");
        let missing =
            Access::new(Some(Path::new("/does/not/exist")), false, Reach::All).map(|_| ()).unwrap_err().to_string();
        assert!(missing.contains("No such file"), "{missing}");
    }

    #[test]
    fn own_kubeconfig_may_be_a_list_and_its_first_file_wins() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let other = kubeconfig("", "").replace("name: c,", "name: d,").replace("127.0.0.1:1", "127.0.0.1:2");
        let (one, two) = (write("one", kubeconfig("", "")), write("two", other));
        let list = std::env::join_paths([&folder.path().join("missing"), &one, &two]).unwrap();
        let own = read_own(Path::new(&list)).unwrap();
        assert_eq!(own.contexts.iter().map(|context| context.name.as_str()).collect::<Vec<_>>(), ["c", "d"]);
        assert_eq!(own.clusters[0].cluster.as_ref().unwrap().server.as_deref(), Some("https://127.0.0.1:1"));
        let missing = std::env::join_paths(["/does/not", "/exist"]).unwrap();
        assert!(read_own(Path::new(&missing)).unwrap_err().to_string().contains("No such file"));
    }

    #[test]
    fn contexts_that_cannot_work_are_told_at_start_with_their_field() {
        let text = kubeconfig(", client-key: /does/not/exist", "")
            .replace("contexts: [", "contexts: [{name: anonymous, context: {cluster: k}}, ");
        let access = Access { own: Some(serde_saphyr::from_str(&text).unwrap()), ..Access::default() };
        let troubles = access.troubles();
        assert_eq!(troubles[0], "context `anonymous`: context `anonymous` of the kubeconfig names no user");
        assert_eq!(troubles[1], "context `c`: the file of `client-key` cannot be read (entity not found)");
    }

    #[test]
    fn adapter_gets_the_selected_cluster_and_nothing_else() {
        let text = kubeconfig("", "").replace("name: other, user: {}", "name: other, user: {token: canary-other}");
        let handed = Access::default().kubeconfig("east", &Source::Kubeconfig(text), Reader::Adapter).unwrap();
        assert!(handed.contains("https://127.0.0.1:1") && handed.contains("canary-7f1"));
        assert!(!handed.contains("canary-other"));
        assert!(parse(&handed).is_ok());
    }

    #[test]
    fn helm_may_read_a_file_of_ours_and_run_no_program() {
        let own = |user: &str| {
            let text = kubeconfig("", "").replace("token: canary-7f1", user);
            Access { own: Some(serde_saphyr::from_str(&text).unwrap()), ..Access::default() }
        };
        let handed =
            |user: &str, reader| own(user).kubeconfig("c", &Source::Name, reader).map_err(|error| error.to_string());
        assert!(handed("tokenFile: /x", Reader::Helm).unwrap().contains("/x"));
        for (user, reader) in [("tokenFile: /x", Reader::Adapter), ("exec: {command: x}", Reader::Helm)] {
            let error = handed(user, reader).unwrap_err();
            assert!(error.contains("made anew by a program or a file"), "{error}");
        }
    }

    #[test]
    fn adapter_is_not_handed_the_cluster_that_the_executor_runs_in_and_is_told_why() {
        let error = Access::default().kubeconfig("in-cluster", &Source::Name, Reader::Adapter).unwrap_err();
        // As the token of a pod is in a file, or here, outside of any cluster.
        assert!(matches!(error, Error::Unusable(_) | Error::NotInCluster(_)), "{error}");
    }

    #[tokio::test]
    async fn request_kubeconfigs_can_be_denied() {
        let access = Access { deny_request_kubeconfigs: true, ..Access::default() };
        let source = Source::Kubeconfig(kubeconfig("", ""));
        assert!(matches!(access.way("east", &source).await, Err(Error::Denied)));
    }
}
