//! Include Dependencies (S19, D17) with the real helm program, an OCI registry and a host of charts that speaks TLS.

mod fail;
mod fetch;
mod install;
mod killed;
mod present;
mod secret;
mod turn;
mod undeploy;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::LazyLock,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use switchyard_proto::v1::{
    self, Model, Operation, PlanRequest, PrerequisiteResult, Registrant, Registry as Models, RunOptions,
    execute_response::Event,
};
use switchyard_tests::{
    chart::{Chart, Host, Registry},
    client::{self, Client, Execution, Outcome, TraceParent},
    programs::{Program, Running},
    sandbox::{Cluster, Folder, Tool, Toolbox, certs::Authority},
};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::{design::Design, pair::Pair};

const BOTH: [&str; 2] = ["east", "west"];

/// An executor with helm that trusts one authority, and a registry with a certificate of it. Dies with the process.
struct Stand {
    pair: &'static Pair,
    executor: Running,
    authority: Authority,
    registry: Registry,
    /// Where the executor and helm put what they only need for a while.
    folder: Folder,
}

static STAND: LazyLock<OnceCell<Stand>> = LazyLock::new(OnceCell::new);

impl Stand {
    async fn shared() -> &'static Self {
        STAND.get_or_init(|| async { Self::start(None).await.expect("the stand is set up") }).await
    }

    /// Starts one of the test's own, with this for helm.
    async fn with_helm(helm: &str) -> Self {
        Self::start(Some(helm)).await.expect("the stand is set up")
    }

    async fn start(helm: Option<&str>) -> anyhow::Result<Self> {
        let pair = Pair::shared().await;
        let folder = Folder::new("charts")?;
        let authority = Authority::new("charts-ca")?;
        let helm = match helm {
            Some(helm) => PathBuf::from(helm),
            None => real_helm().await,
        };
        let executor = Self::executor(pair, &folder, &authority).await?.arg("--helm").arg(helm).start().await?;
        let registry = Registry::start(&authority, None).await?;
        Ok(Self { pair, executor, authority, registry, folder })
    }

    /// An executor that puts what it needs for a while into a folder of the test's.
    async fn executor(
        pair: &Pair,
        folder: &Folder,
        authority: &Authority,
    ) -> anyhow::Result<switchyard_tests::programs::Preparation> {
        let trusted = folder.write("authority.pem", authority.certificate())?;
        let kubeconfig = folder.write("kubeconfig.yaml", &pair.world.control_plane().kubeconfig().to_string())?;
        let scratch = folder.path().join("scratch");
        std::fs::create_dir_all(&scratch)?;
        let prepared = Program::Executor.prepare().arg("--kubeconfig").arg(kubeconfig).arg("--log").arg("trace");
        let prepared = prepared.arg("--adapter-allow=127.0.0.1:*");
        Ok(prepared.env("SSL_CERT_FILE", trusted).env("TMPDIR", scratch).traced(&pair.world.jaeger().otlp_url()))
    }

    async fn client(&self) -> Client {
        Client::connect(&self.pair.planner.url(), &self.executor.url()).await.expect("both listen")
    }

    async fn run(&self, request: PlanRequest) -> Outcome {
        self.client().await.run(request, vec![]).await.expect("the run is told to its end")
    }

    async fn traced(&self, request: PlanRequest, parent: &TraceParent) -> Outcome {
        let client = self.client().await.traced(parent.clone());
        client.run(request, vec![]).await.expect("the run is told to its end")
    }

    async fn host(&self) -> Host {
        Host::start(&self.authority).await.expect("the host starts")
    }

    fn clusters(&self) -> [&Cluster; 2] {
        [self.pair.world.east(), self.pair.world.west()]
    }

    /// What is left in the folder for what is needed for a while only.
    fn scratch(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join("scratch")).expect("the folder is there");
        entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned()).collect()
    }
}

async fn real_helm() -> PathBuf {
    let tools = Toolbox::get(&[Tool::Helm]).await.expect("helm is found or built");
    tools.path(Tool::Helm).expect("it was asked for").to_owned()
}

/// A name that no other test has.
fn unique(name: &str) -> String {
    format!("{name}-{}", &Uuid::new_v4().simple().to_string()[..8])
}

/// A namespace of the same name on both clusters.
async fn namespace(test: &str) -> String {
    let world = Pair::shared().await.world;
    let name = world.east().namespace_for(test).await.expect("east takes a namespace");
    let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
    let api = Api::<Namespace>::all(world.west().client().await.expect("west answers"));
    let namespace = Namespace { metadata, ..Namespace::default() };
    api.create(&PostParams::default(), &namespace).await.expect("west takes a namespace");
    name
}

fn config_map(namespace: &str) -> String {
    format!("{{metadata: {{namespace: {namespace}}}, data: {{colour: blue}}}}")
}

/// Adds a ConfigMap of a model that brings a chart.
trait OfModel {
    fn needs(self, model: &str, name: &str, namespace: &str, depends_on: &[&str]) -> Self;
}

impl OfModel for Design {
    fn needs(self, model: &str, name: &str, namespace: &str, depends_on: &[&str]) -> Self {
        self.of_model(model, name, ("v1", "ConfigMap"), depends_on, &config_map(namespace))
    }
}

/// A request to deploy with what is needed. Each model has a chart: name, URL, version.
fn deploy(design: &Design, clusters: &[&str], models: &[(&str, &str, &str)]) -> PlanRequest {
    let registrant = Registrant { name: "hub".into(), kind: "artifacthub".into(), ..Registrant::default() };
    let models = models.iter().map(|(name, url, version)| Model {
        name: (*name).into(),
        registrant: "hub".into(),
        chart: Some(v1::Chart { url: (*url).into(), version: (*version).into(), namespace: String::new() }),
        ..Model::default()
    });
    let registry = Models { registrants: vec![registrant], models: models.collect(), ..Models::default() };
    PlanRequest { include_dependencies: true, registry: Some(registry), ..client::deploy(design.text(), clusters) }
}

fn with(request: PlanRequest, options: RunOptions) -> PlanRequest {
    PlanRequest { options: Some(options), ..request }
}

/// The time that a step, and what it needs, may take.
fn within(request: PlanRequest, seconds: i64) -> PlanRequest {
    let step_timeout = Some(prost_types::Duration { seconds, nanos: 0 });
    with(request, RunOptions { step_timeout, ..RunOptions::default() })
}

fn undeploy(request: &PlanRequest) -> PlanRequest {
    PlanRequest { operation: Operation::Undeploy.into(), ..request.clone() }
}

/// What was done about what a component needs, on a cluster.
fn need<'a>(outcome: &'a Outcome, component: &str, cluster: &str) -> &'a PrerequisiteResult {
    let result = outcome.result(component).expect("every component has a result");
    let need = result.prerequisites.iter().find(|need| need.cluster == cluster);
    need.unwrap_or_else(|| panic!("nothing is said of cluster {cluster}: {result:#?}"))
}

/// The failure of what a component needs on the cluster east: reason and message.
fn failure(outcome: &Outcome, component: &str) -> (String, String) {
    let need = need(outcome, component, "east");
    assert_eq!(need.outcome(), v1::Outcome::Failed, "{need:#?}");
    let error = need.error.clone().unwrap_or_else(|| panic!("{need:#?}"));
    (error.reason, error.message)
}

/// Helm's records in a namespace: release, revision and status, in order.
async fn releases(cluster: &Cluster, namespace: &str) -> Vec<(String, String, String)> {
    let api = Api::<Secret>::namespaced(cluster.client().await.expect("the cluster answers"), namespace);
    let records = api.list(&ListParams::default().labels("owner=helm")).await.expect("secrets can be listed");
    let of = |labels: &BTreeMap<String, String>, key: &str| labels.get(key).cloned().unwrap_or_default();
    let each = records.into_iter().map(|record| {
        let labels = record.metadata.labels.unwrap_or_default();
        (of(&labels, "name"), of(&labels, "version"), of(&labels, "status"))
    });
    let mut each: Vec<_> = each.collect();
    each.sort();
    each
}

fn one(release: &str, revision: u32, status: &str) -> (String, String, String) {
    (release.into(), revision.to_string(), status.into())
}

/// Waits until helm's records in a namespace are as wanted.
async fn wait_for_releases(cluster: &Cluster, namespace: &str, wanted: &[(String, String, String)]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let there = releases(cluster, namespace).await;
        if there == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{there:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A run in which helm waits for a hook that never ends. `b` depends on `a`, which needs the chart.
struct Hanging {
    execution: Execution,
    namespace: String,
    release: String,
}

impl Hanging {
    async fn begin(stand: &Stand, test: &str) -> Self {
        let (namespace, release) = (namespace(test).await, unique("hangs"));
        let chart = Chart::new(&release).endless_hook();
        let url = stand.registry.push(&chart).await.expect("the registry takes a chart");
        let design = Design::new().needs("m", "a", &namespace, &[]).config_map("b", &namespace, &["a"]);
        let client = stand.client().await;
        let plan = client.plan(deploy(&design, &["east"], &[("m", &url, "")])).await.expect("it can be planned");
        let mut execution = client.execute(plan, vec![]).await.expect("the executor takes the plan");
        let begun = execution.next().await.expect("the stream goes on").expect("there is an event");
        assert!(matches!(begun.event, Some(Event::RunStarted(_))));
        let hanging = Self { execution, namespace, release };
        hanging.wait_for(stand, "pending-install").await;
        hanging
    }

    /// Waits until the release, which has one revision, has this status.
    async fn wait_for(&self, stand: &Stand, status: &str) {
        wait_for_releases(stand.pair.world.east(), &self.namespace, &[one(&self.release, 1, status)]).await;
    }
}

/// Runs helm on the cluster east as a person would, to its end.
async fn by_hand(stand: &Stand, namespace: &str, arguments: &[&str]) {
    let folder = Folder::new("by-hand").expect("a folder is made");
    let kubeconfig = stand.pair.world.east().kubeconfig_admin().to_string();
    let kubeconfig = folder.write("kubeconfig", &kubeconfig).expect("a file is written");
    let mut command = std::process::Command::new(real_helm().await);
    command.args(arguments).args(["--namespace", namespace, "--kubeconfig"]).arg(kubeconfig).env("HOME", folder.path());
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("it runs").expect("helm is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Installs a chart as a person would.
async fn install_as(stand: &Stand, chart: &Chart, release: &str, namespace: &str) {
    let (path, _folder) = chart.package().await.expect("helm packages it");
    by_hand(stand, namespace, &["install", release, &path.to_string_lossy(), "--create-namespace"]).await;
}

async fn get(cluster: &Cluster, namespace: &str, name: &str) -> Option<ConfigMap> {
    let client = cluster.client().await.expect("the cluster answers");
    Api::namespaced(client, namespace).get_opt(name).await.expect("the cluster answers")
}
