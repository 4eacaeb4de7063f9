//! What every test here stands on: an executor, two clusters behind proxies, and a namespace of the test's own.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use switchyard_proto::v1::{self, ClusterAccess, execute_response::Event};
use switchyard_tests::{
    client::{self, Client, Outcome},
    embedded::Executor,
    fault::Proxy,
    plan::Draft,
    sandbox::{Cluster, Sandbox},
};
use tonic::Status;

/// Longer than any run here takes, so that a run which hangs is a failure and not a test that never ends.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) struct Stage {
    pub(super) world: &'static Sandbox,
    pub(super) east: Proxy,
    pub(super) west: Proxy,
    pub(super) executor: Executor,
    pub(super) client: Client,
    /// Exists on both clusters.
    pub(super) namespace: String,
}

impl Stage {
    pub(super) async fn set(test: &str) -> Self {
        // Without Leases every write that a proxy counts is one of the plan's; they have tests of their own.
        Self::set_with(test, &["--run-lock", "process"]).await
    }

    /// Sets the stage with an executor that has these flags.
    pub(super) async fn set_with(test: &str, flags: &[&str]) -> Self {
        let world = Sandbox::shared().await.unwrap();
        let executor = Executor::start(flags).await.unwrap();
        let namespace = world.east().namespace_for(test).await.unwrap();
        let stage = Self {
            world,
            east: Proxy::before(world.east()).await.unwrap(),
            west: Proxy::before(world.west()).await.unwrap(),
            client: executor.client().await.unwrap(),
            executor,
            namespace,
        };
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stage.namespace}});
        stage.create(world.west(), "/api/v1/namespaces", &object).await;
        stage
    }

    /// Ways to both clusters, through the proxies.
    pub(super) fn access(&self) -> Vec<ClusterAccess> {
        [("east", &self.east), ("west", &self.west)]
            .map(|(name, proxy)| client::kubeconfig(name, proxy.kubeconfig().to_string()))
            .into()
    }

    /// Ways to the clusters that the plan selects.
    pub(super) fn access_for(&self, draft: &Draft) -> Vec<ClusterAccess> {
        self.access().into_iter().filter(|access| draft.clusters().contains(&access.name)).collect()
    }

    /// Runs a plan to its end and checks what holds for every account of a run (case 115).
    pub(super) async fn run(&self, draft: &Draft) -> Outcome {
        let outcome = self.try_run(draft, self.access_for(draft)).await.unwrap();
        check(&outcome, draft.steps());
        outcome
    }

    /// The same, and shows after each event what has been told so far.
    pub(super) async fn run_watched(&self, draft: &Draft, mut seen: impl FnMut(&Outcome)) -> Outcome {
        let mut execution = self.client.execute(draft.seal(), self.access_for(draft)).await.unwrap();
        let mut outcome = Outcome::default();
        while let Some(event) = within(execution.next()).await.unwrap() {
            outcome.take(event);
            seen(&outcome);
        }
        check(&outcome, draft.steps());
        outcome
    }

    pub(super) async fn try_run(&self, draft: &Draft, access: Vec<ClusterAccess>) -> Result<Outcome, Status> {
        within(async { self.client.execute(draft.seal(), access).await?.finish().await }).await
    }

    pub(super) fn config_map(&self, name: &str) -> Value {
        config_map(&self.namespace, name)
    }

    /// The path of a namespaced object in the test's namespace, `kind` being `v1/configmaps` or `apps/v1/deployments`.
    pub(super) fn path(&self, kind: &str, name: &str) -> String {
        let (version, plural) = kind.rsplit_once('/').unwrap();
        let root = if version.contains('/') { "apis" } else { "api" };
        format!("/{root}/{version}/namespaces/{}/{plural}/{name}", self.namespace)
    }

    /// Reads from a cluster past the proxy; nothing if it is not there.
    pub(super) async fn read(&self, cluster: &Cluster, path: &str) -> Option<Value> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            match cluster.client().await.unwrap().request::<Value>(request).await {
                Ok(object) => return Some(object),
                Err(kube::Error::Api(status)) if status.code == StatusCode::NOT_FOUND.as_u16() => return None,
                // The storage of a kind that was just defined is not up yet.
                Err(kube::Error::Api(status))
                    if status.code == StatusCode::TOO_MANY_REQUESTS.as_u16()
                        && tokio::time::Instant::now() < deadline =>
                {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("{path} of {} cannot be read: {error}", cluster.name()),
            }
        }
    }

    /// Reads an object of the test's namespace from the cluster east.
    pub(super) async fn object(&self, kind: &str, name: &str) -> Option<Value> {
        self.read(self.world.east(), &self.path(kind, name)).await
    }

    /// Creates an object past the executor.
    pub(super) async fn create(&self, cluster: &Cluster, path: &str, object: &Value) -> Value {
        send(cluster, "POST", path, "application/json", object).await
    }

    /// Applies an object past the executor, as another field manager.
    pub(super) async fn apply_as(&self, manager: &str, path: &str, object: &Value) -> Value {
        let path = format!("{path}?fieldManager={manager}");
        send(self.world.east(), "PATCH", &path, "application/apply-patch+yaml", object).await
    }

    /// The same, and takes over what others own.
    pub(super) async fn seize_as(&self, manager: &str, path: &str, object: &Value) -> Value {
        let path = format!("{path}?fieldManager={manager}&force=true");
        send(self.world.east(), "PATCH", &path, "application/apply-patch+yaml", object).await
    }

    /// Deletes an object past the executor.
    pub(super) async fn delete(&self, cluster: &Cluster, path: &str) -> Value {
        send(cluster, "DELETE", path, "application/json", &json!({})).await
    }
}

async fn send(cluster: &Cluster, method: &str, path: &str, content_type: &str, body: &Value) -> Value {
    let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
    let request = request.body(body.to_string().into_bytes()).unwrap();
    let answer = cluster.client().await.unwrap().request::<Value>(request).await;
    answer.unwrap_or_else(|error| panic!("{method} {path} on {} failed: {error}", cluster.name()))
}

/// Fails instead of waiting for ever.
pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it ends in time")
}

/// Waits for something that cannot be waited for otherwise.
pub(super) async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + LIMIT;
    while !done().await {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What holds for every account of a run (S16, S23, case 115); that sequence numbers have no gaps, the client checks.
pub(super) fn check(outcome: &Outcome, steps: usize) {
    assert!(
        matches!(outcome.events.first().unwrap().event, Some(Event::RunStarted(_))),
        "it begins with the beginning"
    );
    assert!(matches!(outcome.events.last().unwrap().event, Some(Event::Summary(_))), "the summary comes last");
    assert_eq!(outcome.results.len(), steps, "every step has one result");
    assert_eq!(outcome.summary.rows.len(), steps, "every step has a row");
    assert_eq!(outcome.summary.run_id, outcome.started().unwrap().run_id);
    for row in &outcome.summary.rows {
        let result = outcome.results.iter().find(|result| result.step_id == row.step_id).unwrap();
        assert_eq!(row.outcome(), result.outcome(), "result and row agree on {}", row.step_id);
        assert_eq!(row.because.is_empty(), row.outcome() == v1::Outcome::Succeeded, "{row:?}");
        let targets = outcome.targets().filter(|target| target.step_id == row.step_id).count();
        assert_eq!(targets, result.targets.len(), "targets are told as they end and again with the step");
    }
    let mut counts: Vec<_> = outcome.summary.counts.values().copied().collect();
    counts.sort_unstable();
    assert_eq!(counts.iter().sum::<u32>() as usize, steps, "the counts count everything");
}

pub(super) fn config_map(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"key": "value"},
    })
}

/// The failure of a component on a cluster.
#[track_caller]
pub(super) fn failure<'a>(outcome: &'a Outcome, component: &str, cluster: &str) -> &'a v1::Failure {
    let target = outcome.target(component, cluster);
    let target = target.unwrap_or_else(|| panic!("no result of {component} on {cluster}: {:?}", outcome.results));
    target.error.as_ref().unwrap_or_else(|| panic!("{component} did not fail on {cluster}: {target:?}"))
}

/// Checks how a component failed on the cluster east.
#[track_caller]
pub(super) fn assert_failed(outcome: &Outcome, component: &str, reason: &str, texts: &[&str]) {
    let failure = failure(outcome, component, "east");
    assert_eq!(outcome.outcomes()[component], v1::Outcome::Failed, "{failure:?}");
    assert_eq!(failure.reason, reason, "{failure:?}");
    for text in texts {
        assert!(failure.message.contains(text), "`{text}` is missing in: {}", failure.message);
    }
}

/// Checks that a component was applied on the cluster east, with this change.
#[track_caller]
pub(super) fn assert_applied(outcome: &Outcome, component: &str, change: v1::Change) {
    let target = outcome.target(component, "east").unwrap_or_else(|| panic!("no result of {component}"));
    assert_eq!(target.outcome(), v1::Outcome::Succeeded, "{target:?}");
    assert_eq!(target.change(), change, "{target:?}");
}
