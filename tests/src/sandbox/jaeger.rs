//! Jaeger v2 with its memory as the store.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::json;

use super::{
    folder::Folder,
    http,
    ports::{self, ATTEMPTS, is_clash},
    process::{POLL, Process},
    tools::{Tool, Toolbox},
    trace::Trace,
};

/// One to two seconds are usual.
const START: Duration = Duration::from_secs(60);

/// A running Jaeger.
#[derive(Debug)]
pub struct Jaeger {
    process: Process,
    grpc: u16,
    http: u16,
    query: u16,
    _folder: Folder,
}

impl Jaeger {
    /// Starts Jaeger on ports of its own and waits until it answers.
    pub async fn start() -> anyhow::Result<Self> {
        let tools = Toolbox::get(&[Tool::Jaeger]).await?;
        for _ in 1..ATTEMPTS {
            match Self::try_start(&tools).await {
                Err(error) if is_clash(&error) => {}
                result => return result,
            }
        }
        Self::try_start(&tools).await
    }

    async fn try_start(tools: &Toolbox) -> anyhow::Result<Self> {
        let [grpc, http, query, query_grpc] = ports::free()?;
        let at = |port: u16| format!("127.0.0.1:{port}");
        let config = json!({
            "service": {
                "extensions": ["jaeger_storage", "jaeger_query"],
                "pipelines": {
                    "traces": { "receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"] },
                },
                // It would listen on a fixed port, and trace itself into the store.
                "telemetry": {
                    "metrics": { "level": "none" },
                    "traces": { "level": "none" },
                    "logs": { "level": "warn" },
                },
            },
            "extensions": {
                "jaeger_storage": { "backends": { "memory": { "memory": { "max_traces": 100_000 } } } },
                "jaeger_query": {
                    "storage": { "traces": "memory" },
                    "http": { "endpoint": at(query) },
                    "grpc": { "endpoint": at(query_grpc) },
                },
            },
            "receivers": {
                "otlp": { "protocols": { "grpc": { "endpoint": at(grpc) }, "http": { "endpoint": at(http) } } },
            },
            "exporters": { "jaeger_storage_exporter": { "trace_storage": "memory" } },
        });
        let folder = Folder::new("jaeger")?;
        // JSON is YAML.
        let config = folder.write("config.yaml", &config.to_string())?;
        let mut command = Command::new(tools.path(Tool::Jaeger)?);
        command.arg("--config").arg(config);
        let process = Process::start("jaeger", &command, &folder.path().join("jaeger.log"))?;
        let mut jaeger = Self { process, grpc, http, query, _folder: folder };
        jaeger.ready().await?;
        Ok(jaeger)
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START;
        let services = format!("{}/api/services", self.query_url());
        loop {
            self.process.check_running()?;
            if http::get(&services).await.is_ok() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("Jaeger did not answer within {START:?}:\n{}", self.process.log_tail());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns where OTLP over gRPC is listened for, as `host:port`, the form that Kubernetes and etcd want.
    pub fn otlp_endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.grpc)
    }

    /// Returns the same as a URL, the form of `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn otlp_url(&self) -> String {
        format!("http://{}", self.otlp_endpoint())
    }

    /// Returns where OTLP over HTTP is listened for, as a URL.
    pub fn otlp_http_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.http)
    }

    /// Returns the address of the query API.
    pub fn query_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.query)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns what Jaeger itself says about a trace: everything it knows, as JSON text.
    pub async fn trace_text(&self, trace_id: &str) -> anyhow::Result<String> {
        let url = format!("{}/api/v3/traces/{trace_id}", self.query_url());
        let body = http::get(&url).await.with_context(|| format!("failed to read trace {trace_id}"))?;
        Ok(String::from_utf8(body.into())?)
    }

    /// Returns a trace as far as it has arrived.
    pub async fn trace(&self, trace_id: &str) -> anyhow::Result<Trace> {
        Trace::parse(&self.trace_text(trace_id).await?)
    }

    /// Waits until a trace has what is looked for. API server and etcd send their spans every five seconds, so allow
    /// for more than that. On failure the error shows what had arrived.
    pub async fn wait_for(
        &self,
        trace_id: &str,
        limit: Duration,
        complete: impl Fn(&Trace) -> bool,
    ) -> anyhow::Result<Trace> {
        let deadline = Instant::now() + limit;
        loop {
            // Before the first span arrives, the trace is not found.
            let answer = self.trace(trace_id).await;
            if let Ok(trace) = &answer
                && complete(trace)
            {
                return answer;
            }
            if Instant::now() >= deadline {
                let trace = answer?;
                bail!("after {limit:?} trace {trace_id} still lacks something; it has\n{}", trace.tree());
            }
            tokio::time::sleep(POLL * 10).await;
        }
    }
}
