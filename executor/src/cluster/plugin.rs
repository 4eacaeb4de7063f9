//! Exec plugins: programs, named in the executor's own kubeconfig, that make credentials
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>).
//!
//! kube would run them on a thread of the runtime, for as long as they like, once for every run and cluster, and quote what they
//! were given and what they said. Here a plugin is a child process with a bound on its time and its output. One at a time runs for
//! a context, its answer is used until it expires or an API server rejects it, and it is never quoted.

use std::{
    io,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use http::{HeaderValue, Request, Response, StatusCode, header::AUTHORIZATION};
use hyper::body::Incoming;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    client::Body,
    config::{AuthInfo, ExecAuthCluster, ExecConfig, ExecInteractiveMode},
};
use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    time::{Instant, timeout},
};
use tower::{BoxError, Service};

use crate::mask::Secrets;

/// How long a plugin may take. Those of clouds ask a metadata service or a login server, which takes seconds.
const LONGEST: Duration = Duration::from_secs(30);
/// Most that is read of its output, in bytes. A credential with a certificate has some kilobytes.
const MAX_OUTPUT: u64 = 256 * 1024;
/// A credential that ends sooner than this is not used any more: a request has to arrive before it ends.
const MARGIN: Duration = Duration::from_secs(10);

/// Why a plugin gave no credential. Says nothing of its environment, its arguments and its output (case 231).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("its exec plugin wants to ask a person (interactiveMode: Always), and there is none here")]
    Interactive,
    #[error("its exec plugin has no command")]
    NoCommand,
    #[error("the program of its exec plugin is not there, or must not be run ({0})")]
    NotStarted(io::ErrorKind),
    #[error("its exec plugin did not end within {} s", LONGEST.as_secs())]
    Late,
    #[error("its exec plugin failed ({0}); run it by hand to see why")]
    Failed(ExitStatus),
    #[error("its exec plugin wrote something else than an ExecCredential of the apiVersion that was asked for")]
    Unreadable,
    #[error("its exec plugin gave neither a token nor a certificate with its key")]
    Empty,
    #[error("an internal error ended the wait for its exec plugin")]
    Internal,
}

/// The plugin of one context.
pub(crate) struct Plugin {
    exec: ExecConfig,
    cluster: Option<ExecAuthCluster>,
    /// Held while it runs.
    line: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answer: Option<Arc<Answer>>,
    /// When it last failed, and why: who waited for that run does not start another.
    failed: Option<(Instant, Error)>,
}

/// A credential.
pub(crate) struct Answer {
    token: Option<SecretString>,
    certificate: Option<(String, SecretString)>,
    expires: Option<SystemTime>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credential {
    api_version: String,
    kind: String,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<Time>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl Answer {
    fn is_fresh(&self) -> bool {
        self.expires.is_none_or(|expires| SystemTime::now() + MARGIN < expires)
    }

    /// Puts the credential where a kubeconfig would have it.
    pub(crate) fn fill(&self, user: &mut AuthInfo) {
        user.token = self.token.clone();
        if let Some((certificate, key)) = &self.certificate {
            // kube reads base64 there, and the plugin wrote PEM.
            user.client_certificate_data = Some(encoded(certificate));
            user.client_key_data = Some(encoded(key.expose_secret()).into());
        }
    }

    fn header(&self) -> Option<HeaderValue> {
        let token = self.token.as_ref()?;
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose_secret())).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    fn of(written: &[u8], asked: Option<&str>) -> Result<Self, Error> {
        let written = std::str::from_utf8(written).map_err(|_| Error::Unreadable)?;
        let options = serde_saphyr::options! { with_snippet: false };
        let Credential { api_version, kind, status } =
            serde_saphyr::from_str_with_options(written, options).map_err(|_| Error::Unreadable)?;
        if kind != "ExecCredential" || asked.is_some_and(|asked| asked != api_version) {
            return Err(Error::Unreadable);
        }
        let answer = Self {
            token: status.token.filter(|token| !token.is_empty()).map(SecretString::from),
            certificate: status.client_certificate_data.zip(status.client_key_data.map(SecretString::from)),
            expires: status.expiration_timestamp.map(|Time(time)| SystemTime::from(time)),
        };
        let is_usable = answer.header().is_some() || (answer.token.is_none() && answer.certificate.is_some());
        if is_usable { Ok(answer) } else { Err(Error::Empty) }
    }
}

fn encoded(text: &str) -> String {
    base64::Engine::encode(&base64::prelude::BASE64_STANDARD, text)
}

impl Plugin {
    /// The plugin that `exec` describes, for a cluster that it is told of if it wants to be. Nothing is run yet.
    pub(crate) fn new(exec: ExecConfig, cluster: Option<ExecAuthCluster>) -> Self {
        Self { exec, cluster, line: Default::default(), state: Mutex::default() }
    }

    /// A credential that has not expired: the one that is there, or one that the plugin makes now.
    pub(crate) async fn answer(self: &Arc<Self>) -> Result<Arc<Answer>, Error> {
        if let Some(answer) = self.fresh() {
            return Ok(answer);
        }
        // A task of its own, which ends by itself: what the plugin says serves others too, if nobody waits for it any more.
        let plugin = self.clone();
        let asked = Instant::now();
        tokio::spawn(async move { plugin.renew(asked).await }).await.map_err(|_| Error::Internal)?
    }

    /// What must not be said: the credential as it is now.
    pub(crate) fn secrets(&self) -> Secrets {
        let answer = self.state().answer.clone();
        let key = answer.iter().filter_map(|answer| answer.certificate.as_ref().map(|(_, key)| key));
        let token = answer.iter().filter_map(|answer| answer.token.as_ref());
        Secrets::of_values(token.chain(key).map(|secret| secret.expose_secret()))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }

    fn fresh(&self) -> Option<Arc<Answer>> {
        self.state().answer.clone().filter(|answer| answer.is_fresh())
    }

    /// Drops a credential that an API server did not accept, if it is the one that is there.
    fn reject(&self, rejected: &Arc<Answer>) {
        let mut state = self.state();
        if state.answer.as_ref().is_some_and(|answer| Arc::ptr_eq(answer, rejected)) {
            state.answer = None;
        }
    }

    async fn renew(&self, asked: Instant) -> Result<Arc<Answer>, Error> {
        let _line = self.line.lock().await;
        if let Some(answer) = self.fresh() {
            return Ok(answer);
        }
        if let Some((when, error)) = &self.state().failed
            && *when >= asked
        {
            return Err(error.clone());
        }
        let made = self.run().await;
        let mut state = self.state();
        match made {
            Ok(answer) => Ok(state.answer.insert(Arc::new(answer)).clone()),
            Err(error) => {
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn run(&self) -> Result<Answer, Error> {
        let ExecConfig { api_version, command, args, env, interactive_mode, provide_cluster_info, .. } = &self.exec;
        if *interactive_mode == Some(ExecInteractiveMode::Always) {
            return Err(Error::Interactive);
        }
        let command = command.as_deref().filter(|command| !command.is_empty()).ok_or(Error::NoCommand)?;
        let mut spec = serde_json::json!({"interactive": false});
        if *provide_cluster_info && let Some(cluster) = &self.cluster {
            spec["cluster"] = serde_json::to_value(cluster).map_err(|_| Error::Internal)?;
        }
        let info = serde_json::json!({"apiVersion": api_version, "kind": "ExecCredential", "spec": spec});
        let named = env.iter().flatten().filter_map(|entry| Some((entry.get("name")?, entry.get("value")?)));
        let mut child = Command::new(command)
            .args(args.iter().flatten())
            .envs(named)
            .env("KUBERNETES_EXEC_INFO", info.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Nobody is told what it says, so nobody listens.
            .stderr(Stdio::null())
            // With whatever it starts, so that all of it can be ended.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::NotStarted(error.kind()))?;
        let out = child.stdout.take();
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let ended = timeout(LONGEST, async { tokio::join!(gather(out), child.wait()) }).await;
        let Ok((out, status)) = ended else {
            end(group, &mut child).await;
            return Err(Error::Late);
        };
        let status = status.map_err(|error| Error::NotStarted(error.kind()))?;
        if status.success() {
            return Answer::of(&out, api_version.as_deref());
        }
        Err(Error::Failed(status))
    }
}

async fn end(group: Option<Pid>, child: &mut Child) {
    if let Some(group) = group {
        kill_process_group(group, Signal::KILL).ok();
    }
    child.kill().await.ok();
}

/// Reads to the end and keeps the beginning.
async fn gather(output: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    if let Some(mut output) = output {
        (&mut output).take(MAX_OUTPUT).read_to_end(&mut kept).await.ok();
        tokio::io::copy(&mut output, &mut tokio::io::sink()).await.ok();
    }
    kept
}

/// Sends each request with the token of a plugin, as it is at that time.
#[derive(Clone)]
pub(super) struct WithToken<S> {
    pub(super) inner: S,
    pub(super) plugin: Arc<Plugin>,
}

impl<S> Service<Request<Body>> for WithToken<S>
where
    S: Service<Request<Body>, Response = Response<Incoming>, Error = BoxError, Future: Send> + Clone + Send + 'static,
{
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = futures::future::BoxFuture<'static, Result<Response<Incoming>, BoxError>>;

    fn poll_ready(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // The one that is ready is taken, and a new one stays.
        let new = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, new);
        let plugin = self.plugin.clone();
        Box::pin(async move {
            let answer = plugin.answer().await?;
            if let Some(token) = answer.header() {
                request.headers_mut().insert(AUTHORIZATION, token);
            }
            let response = inner.call(request).await?;
            if response.status() == StatusCode::UNAUTHORIZED {
                plugin.reject(&answer);
            }
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(script: &str) -> Arc<Plugin> {
        let exec = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", script],
            "interactiveMode": "IfAvailable", "env": [{"name": "KEY", "value": "env-canary-7f1"}],
        });
        Arc::new(Plugin::new(serde_json::from_value(exec).unwrap(), None))
    }

    fn credential(status: &str) -> String {
        format!(
            r#"{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {{{status}}}}}"#
        )
    }

    /// Writes a line to `log` each time that it runs.
    fn counted(log: &std::path::Path, status: &str) -> Arc<Plugin> {
        plugin(&format!("echo x >> {}; cat <<'END'\n{}\nEND", log.display(), credential(status)))
    }

    fn runs(log: &std::path::Path) -> usize {
        std::fs::read_to_string(log).unwrap_or_default().lines().count()
    }

    #[tokio::test]
    async fn one_run_serves_all_who_ask_until_it_expires_or_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let lasting = counted(&log, r#""token": "abc", "expirationTimestamp": "2999-01-01T00:00:00Z""#);
        let all = futures::future::join_all((0..20).map(|_| lasting.answer())).await;
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(runs(&log), 1);
        lasting.reject(all[0].as_ref().unwrap());
        lasting.answer().await.unwrap();
        assert_eq!(runs(&log), 2);
        let expired = counted(&log, r#""token": "abc", "expirationTimestamp": "2020-01-01T00:00:00Z""#);
        expired.answer().await.unwrap();
        expired.answer().await.unwrap();
        assert_eq!(runs(&log), 4);
    }

    #[tokio::test]
    async fn failure_is_told_without_a_word_of_the_plugins() {
        let canaries = "echo out-canary-7f1; echo err-canary-7f1 >&2";
        for (script, wanted) in [
            (format!("{canaries}; exit 7"), "exit status: 7"),
            (canaries.into(), "something else than an ExecCredential"),
            (format!("printf %s '{}'", credential("")), "neither a token"),
            (format!("printf %s '{}'", credential(r#""token": "a\nb""#)), "neither a token"),
            (format!("printf %s '{}'", credential(r#""token": "a""#).replace("/v1\"", "/v2\"")), "something else"),
        ] {
            let error = plugin(&script).answer().await.map(|_| ()).unwrap_err();
            let told = format!("{error} {error:?}");
            assert!(told.contains(wanted) && !told.contains("canary"), "{told}");
        }
    }

    #[tokio::test]
    async fn plugin_that_wants_a_person_is_not_run() {
        let mut asks = Plugin::new(plugin("exit 0").exec.clone(), None);
        asks.exec.interactive_mode = Some(ExecInteractiveMode::Always);
        assert_eq!(Arc::new(asks).answer().await.map(|_| ()).unwrap_err(), Error::Interactive);
    }

    #[tokio::test]
    async fn plugin_has_no_terminal_and_is_told_so() {
        let told = plugin(
            "read line && exit 9; echo \"$KUBERNETES_EXEC_INFO\" | grep -q '\"interactive\":false' || exit 8; exit 7",
        );
        assert!(told.answer().await.map(|_| ()).unwrap_err().to_string().contains("exit status: 7"));
    }

    #[tokio::test(start_paused = true)]
    async fn plugin_that_hangs_is_ended_at_its_bound() {
        let error = plugin("sleep 600 & sleep 600").answer().await.map(|_| ()).unwrap_err();
        assert_eq!(error, Error::Late);
    }

    #[test]
    fn certificates_and_times_with_an_offset_are_read() {
        let status = r#""clientCertificateData": "CERT", "clientKeyData": "KEY", "expirationTimestamp": "2999-01-01T00:00:00+02:00""#;
        let answer = Answer::of(credential(status).as_bytes(), None).unwrap();
        let mut user = AuthInfo::default();
        answer.fill(&mut user);
        assert_eq!(user.client_certificate_data.as_deref(), Some("Q0VSVA=="));
        assert!(user.token.is_none() && answer.is_fresh());
    }
}
