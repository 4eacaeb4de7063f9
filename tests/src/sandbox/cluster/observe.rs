//! What the API server can tell about itself: its log, its counters, and what it was asked.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{Cluster, lock};
use crate::sandbox::{
    audit,
    metrics::Metrics,
    process::{POLL, Process},
};

impl Cluster {
    /// Returns the log of the API server so far.
    pub fn log(&self) -> String {
        lock(&self.process).as_ref().map(Process::log).unwrap_or_default()
    }

    /// Reads the API server's own metrics.
    pub async fn metrics(&self) -> anyhow::Result<Metrics> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        Ok(Metrics::parse(&self.client().await?.request_text(request).await?))
    }

    /// Has the API server collect its garbage now, so that what is measured next does not pay for what was before.
    pub async fn collect_garbage(&self) -> anyhow::Result<()> {
        let request = http::Request::get("/debug/pprof/heap?gc=1&debug=1").body(Vec::new())?;
        self.client().await?.request_text(request).await.context("the API server did not collect its garbage")?;
        Ok(())
    }

    /// Reads the audit log: every request that has been answered so far, oldest first.
    pub fn audit(&self) -> anyhow::Result<Vec<audit::Event>> {
        let path = self.audit_log.as_ref().context("this control plane was started without an audit log")?;
        // The file comes with the first event.
        audit::parse(&fs::read_to_string(path).unwrap_or_default())
    }

    /// Waits until the audit log holds an event that is looked for; the API server writes it just after it has answered.
    pub async fn audit_has(
        &self,
        limit: Duration,
        wanted: impl Fn(&audit::Event) -> bool,
    ) -> anyhow::Result<audit::Event> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(event) = self.audit()?.into_iter().find(&wanted) {
                return Ok(event);
            }
            if Instant::now() >= deadline {
                bail!("the audit log of {} has no such event after {limit:?}", self.name);
            }
            tokio::time::sleep(POLL).await;
        }
    }
}
