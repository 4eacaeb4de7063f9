//! The adapter path against a real peer: an adapter on grpc-go that writes to the clusters it is given, and misbehaves on
//! demand as adapters in the field do.

mod check;
mod foreign;
mod mixed;
mod reach;
mod wire;

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, api::PostParams};
use switchyard_proto::v1::{
    AdapterProtocol, Change, Operation, PlanRequest, Registry, Route, RunOptions, StepResult, TargetResult, Verdict,
    target_result::Target,
};
use switchyard_tests::{
    adapter::{self, Adapter},
    client::{self, Outcome},
    sandbox::Cluster,
};

use crate::{design::Design, pair::Pair};

const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
/// A kind with a spec, which is all that adapters make of an OAM component.
const POLICY: (&str, &str) = ("networking.k8s.io/v1", "NetworkPolicy");
/// A kind that no cluster serves: what it means is known to its adapter alone.
const MESH: (&str, &str) = ("mesh.example/v1", "Mesh");

/// A namespace of the same name on both clusters.
async fn namespace(test: &str) -> String {
    let world = Pair::shared().await.world;
    let name = world.east().namespace_for(test).await.expect("east takes a namespace");
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    let api = Api::<Namespace>::all(world.west().client().await.expect("west answers"));
    api.create(&PostParams::default(), &namespace).await.expect("west takes a namespace");
    name
}

fn config_map(namespace: &str) -> String {
    format!("{{metadata: {{namespace: {namespace}}}, data: {{colour: blue}}}}")
}

fn policy(namespace: &str) -> String {
    format!("{{metadata: {{namespace: {namespace}}}, spec: {{podSelector: {{}}, policyTypes: [Egress]}}}}")
}

/// A component that an adapter is asked for.
pub(crate) trait ThroughAdapter {
    fn mesh(self, name: &str, kind: (&str, &str), depends_on: &[&str], configuration: &str) -> Self;
}

impl ThroughAdapter for Design {
    fn mesh(self, name: &str, kind: (&str, &str), depends_on: &[&str], configuration: &str) -> Self {
        self.of_model("mesh", name, kind, depends_on, configuration)
    }
}

/// A request to deploy to both clusters.
fn deploy(design: &Design, registry: Registry) -> PlanRequest {
    PlanRequest { registry: Some(registry), ..client::deploy(design.text(), &["east", "west"]) }
}

fn undeploy(request: &PlanRequest) -> PlanRequest {
    PlanRequest { operation: Operation::Undeploy.into(), ..request.clone() }
}

fn within(request: PlanRequest, seconds: i64) -> PlanRequest {
    let step_timeout = Some(prost_types::Duration { seconds, nanos: 0 });
    PlanRequest { options: Some(RunOptions { step_timeout, ..RunOptions::default() }), ..request }
}

fn of(adapter: &Adapter) -> Registry {
    adapter::registry(adapter.address(), AdapterProtocol::Auto)
}

/// An adapter with these knobs turned.
async fn adapter(knobs: &[&str]) -> Adapter {
    let prepared = knobs.iter().fold(Adapter::prepare(), |prepared, knob| prepared.knob(knob));
    prepared.start().await.expect("the adapter starts")
}

async fn run(request: PlanRequest) -> Outcome {
    Pair::shared().await.client().await.run(request, vec![]).await.expect("the run is told to its end")
}

/// What was said of the adapter's own work on a component.
fn by_adapter<'a>(outcome: &'a Outcome, component: &str) -> &'a TargetResult {
    let result = outcome.result(component).expect("every component has a result");
    let own = |target: &&TargetResult| matches!(target.target, Some(Target::AdapterAddress(_)));
    result.targets.iter().find(own).unwrap_or_else(|| panic!("no target with an address: {result:#?}"))
}

/// The failure of an adapter's work: reason and message.
fn failure(outcome: &Outcome, component: &str) -> (String, String) {
    let failure = by_adapter(outcome, component).error.clone().unwrap_or_else(|| panic!("{:#?}", outcome.summary));
    (failure.reason, failure.message)
}

async fn get(cluster: &Cluster, namespace: &str, name: &str) -> Option<ConfigMap> {
    let client = cluster.client().await.expect("the cluster answers");
    Api::namespaced(client, namespace).get_opt(name).await.expect("the cluster answers")
}

/// However an adapter behaved before: through one that has the habits of the field the design goes up, up again without a
/// change, down, and down again without a call.
async fn up_and_down(request: &PlanRequest) {
    let adapter = adapter(&["--namespace-on-delete", "--fail-on-absent", "--swallow-immutable"]).await;
    let default_namespace = request.options.as_ref().map(|it| it.default_namespace.clone()).unwrap_or_default();
    let options = Some(RunOptions { default_namespace, ..RunOptions::default() });
    let request = PlanRequest { registry: Some(of(&adapter)), options, ..request.clone() };
    let of_adapter = |outcome: &Outcome| {
        let steps = outcome.results.iter().filter(|result| result.route() == Route::Adapter);
        steps.map(|result| result.component.clone().expect("a result names its component").name).collect::<Vec<_>>()
    };
    for change in [None, Some(Change::Unchanged)] {
        let up = run(request.clone()).await;
        assert_eq!(up.verdict(), Verdict::Succeeded, "{:#?}", up.summary);
        for component in of_adapter(&up) {
            let target = by_adapter(&up, &component);
            assert!(change.is_none_or(|change| target.change() == change), "{target:#?}");
        }
    }
    let down = run(undeploy(&request)).await;
    assert_eq!(down.verdict(), Verdict::Succeeded, "{:#?}", down.summary);
    let calls = adapter.calls().len();
    let again = run(undeploy(&request)).await;
    assert_eq!(again.verdict(), Verdict::Succeeded, "{:#?}", again.summary);
    for component in of_adapter(&again) {
        assert_eq!(by_adapter(&again, &component).change(), Change::Absent);
    }
    assert_eq!(adapter.calls().len(), calls, "nothing is there, so nobody is called");
}

/// What was seen on each cluster after the adapter's work.
fn seen(result: &StepResult) -> BTreeMap<&str, &TargetResult> {
    let of_cluster = result.targets.iter().filter_map(|target| match &target.target {
        Some(Target::Cluster(name)) => Some((name.as_str(), target)),
        _ => None,
    });
    of_cluster.collect()
}
