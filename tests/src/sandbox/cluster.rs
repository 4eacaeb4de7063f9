//! One cluster: an API server with its authority, its users and its logs.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::bail;

use super::{
    audit,
    certs::{Authority, Identity, SigningKey},
    folder::Folder,
    ports::{self, ATTEMPTS, is_clash},
    process::{POLL, Process},
};

mod access;
mod observe;

/// Three seconds are usual; the limit is for a machine that compiles meanwhile.
const START: Duration = Duration::from_secs(120);
/// An API server ends within a second or two once its requests are answered.
const STOP: Duration = Duration::from_secs(20);

/// Somebody known to the API servers by a token.
#[derive(Debug, Clone)]
pub(crate) struct TokenUser {
    pub(crate) token: String,
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
}

/// What makes one API server different from the plainest one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) otlp: Option<String>,
    pub(crate) audit: bool,
    pub(crate) service_accounts: bool,
    pub(crate) token_users: Vec<TokenUser>,
    pub(crate) flags: Vec<String>,
}

/// A cluster: an API server on loopback, reachable over TLS.
#[derive(Debug)]
pub struct Cluster {
    name: String,
    folder: Folder,
    authority: Authority,
    admin: Identity,
    // Taken out while the API server is down. Never held across an await.
    process: Mutex<Option<Process>>,
    companions: Mutex<Vec<Process>>,
    command: Vec<String>,
    program: PathBuf,
    port: u16,
    audit_log: Option<PathBuf>,
}

impl Cluster {
    /// Starts an API server on `etcd` and waits until it is ready.
    pub(crate) async fn start(program: PathBuf, etcd: &str, name: &str, settings: &Settings) -> anyhow::Result<Self> {
        for _ in 1..ATTEMPTS {
            match Self::try_start(&program, etcd, name, settings).await {
                Err(error) if is_clash(&error) => {}
                result => return result,
            }
        }
        Self::try_start(&program, etcd, name, settings).await
    }

    async fn try_start(program: &Path, etcd: &str, name: &str, settings: &Settings) -> anyhow::Result<Self> {
        let folder = Folder::new(&format!("cluster-{name}"))?;
        let [port] = ports::free()?;
        let authority = Authority::new(&format!("{name}-ca"))?;
        let admin = authority.client("sandbox-admin", &["system:masters"])?;
        let mut cluster = Self {
            name: name.to_owned(),
            authority,
            admin,
            process: Mutex::new(None),
            companions: Mutex::new(Vec::new()),
            command: Vec::new(),
            program: program.to_owned(),
            port,
            audit_log: settings.audit.then(|| folder.path().join("audit.log")),
            folder,
        };
        cluster.command = cluster.arguments(etcd, settings)?;
        cluster.start_api_server().await?;
        Ok(cluster)
    }

    fn arguments(&self, etcd: &str, settings: &Settings) -> anyhow::Result<Vec<String>> {
        let Settings { otlp, audit: _, service_accounts, token_users, flags } = settings;
        let file =
            |name: &str, text: &str| Ok::<_, anyhow::Error>(self.folder.write(name, text)?.display().to_string());
        let server =
            self.authority.server(&["127.0.0.1", "localhost", "kubernetes.default.svc", "kubernetes.default"])?;
        let signing = SigningKey::new()?;
        let mut arguments = vec![
            format!("--etcd-servers={etcd}"),
            format!("--etcd-prefix=/{}", self.name),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.port),
            // Any other reconciler refuses to run on loopback.
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--tls-cert-file={}", file("server.crt", &server.certificate)?),
            format!("--tls-private-key-file={}", file("server.key", &server.key)?),
            format!("--client-ca-file={}", file("ca.crt", self.authority.certificate())?),
            format!("--service-account-key-file={}", file("service-accounts.pub", &signing.public)?),
            format!("--service-account-signing-key-file={}", file("service-accounts.key", &signing.private)?),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            // Connections of clients that are gone would hold up every stop.
            "--shutdown-delay-duration=0s".to_owned(),
        ];
        if !service_accounts {
            // Nobody creates the accounts without a controller manager, and pods without one are refused.
            arguments.push("--disable-admission-plugins=ServiceAccount".to_owned());
        }
        if !token_users.is_empty() {
            let lines: String = token_users
                .iter()
                .map(|TokenUser { token, user, groups }| format!("{token},{user},{user},\"{}\"\n", groups.join(",")))
                .collect();
            arguments.push(format!("--token-auth-file={}", file("tokens.csv", &lines)?));
        }
        if let Some(otlp) = otlp {
            let tracing = format!(
                "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: {otlp}\n\
                 samplingRatePerMillion: 1000000\n"
            );
            arguments.push(format!("--tracing-config-file={}", file("tracing.yaml", &tracing)?));
        }
        if let Some(log) = &self.audit_log {
            arguments.push(format!("--audit-policy-file={}", file("audit.yaml", audit::POLICY)?));
            arguments.push(format!("--audit-log-path={}", log.display()));
        }
        arguments.extend(flags.iter().cloned());
        Ok(arguments)
    }

    /// Starts the API server again after [`stop_api_server`](Self::stop_api_server), on the same port.
    pub async fn start_api_server(&self) -> anyhow::Result<()> {
        let mut command = Command::new(&self.program);
        command.args(&self.command);
        let log = self.folder.path().join("kube-apiserver.log");
        let process = Process::start(&format!("kube-apiserver of {}", self.name), &command, &log)?;
        *lock(&self.process) = Some(process);
        let result = self.ready().await;
        if result.is_err() {
            lock(&self.process).take();
        }
        result
    }

    async fn ready(&self) -> anyhow::Result<()> {
        let client = self.client().await?;
        let deadline = Instant::now() + START;
        loop {
            if let Some(process) = lock(&self.process).as_mut() {
                process.check_running()?;
            }
            let request = http::Request::get("/readyz").body(Vec::new())?;
            let answer = tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await;
            if matches!(answer, Ok(Ok(_))) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let tail = lock(&self.process).as_ref().map(Process::log_tail).unwrap_or_default();
                bail!("the API server of {} was not ready within {START:?}:\n{tail}", self.name);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Ends the API server as an administrator would, with SIGTERM.
    pub async fn stop_api_server(&self) {
        let process = lock(&self.process).take();
        if let Some(mut process) = process {
            process.stop(STOP).await;
        }
    }

    /// Kills the API server where it stands.
    pub fn kill_api_server(&self) {
        if let Some(mut process) = lock(&self.process).take() {
            process.kill();
        }
    }

    /// Ends the API server, starts it again on the same port, and waits until it is ready.
    pub async fn restart_api_server(&self) -> anyhow::Result<()> {
        self.stop_api_server().await;
        self.start_api_server().await
    }

    /// Returns the cluster's name, which is also the name of its context in kubeconfigs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address of the API server.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Returns the port of the API server on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the certificate of the cluster's authority, as PEM.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the ids of this cluster's processes.
    pub fn pids(&self) -> Vec<u32> {
        let companions = lock(&self.companions);
        lock(&self.process).iter().chain(companions.iter()).map(Process::id).collect()
    }

    /// Returns the folder with the cluster's certificates and logs.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Keeps a process running for as long as the cluster.
    pub(crate) fn keep(&self, process: Process) {
        lock(&self.companions).push(process);
    }

    /// Tells whether a companion has died, and of what.
    pub(crate) fn check_companions(&self) -> anyhow::Result<()> {
        lock(&self.companions).iter_mut().try_for_each(Process::check_running)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The other way round they would spend their last moments complaining into their logs.
        lock(&self.companions).clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
