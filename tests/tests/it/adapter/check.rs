//! What an adapter says, and what is there (D26, `meshery-facts` 5.7).

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, api::DeleteParams};
use serde_json::Value;
use switchyard_proto::v1::{Change, Outcome, PlanRequest, Readiness, RunOptions, Verdict};
use switchyard_tests::{chart, client, sandbox::Cluster};

use super::{
    CONFIG_MAP, MESH, POLICY, ThroughAdapter, adapter, by_adapter, config_map, deploy, failure, get, namespace, of,
    policy, run, seen, undeploy, up_and_down, within,
};
use crate::{design::Design, pair::Pair};

fn routes_and_front(namespace: &str) -> Design {
    Design::new()
        .mesh("routes", CONFIG_MAP, &[], &config_map(namespace))
        .config_map("front", namespace, &["routes"])
        .config_map("aside", namespace, &[])
}

/// D26, case 129: OK for nothing is no success, and what depends on it is withheld.
#[tokio::test]
async fn ok_with_nothing_done_is_indeterminate() {
    let namespace = namespace("ok-nothing").await;
    let adapter = adapter(&["--ok-nothing"]).await;
    let request = deploy(&routes_and_front(&namespace), of(&adapter));
    let outcome = run(request.clone()).await;
    let outcomes = outcome.outcomes();
    assert_eq!(
        (outcomes["routes"], outcomes["front"], outcomes["aside"]),
        (Outcome::Indeterminate, Outcome::Withheld, Outcome::Succeeded)
    );
    let (_, message) = failure(&outcome, "routes");
    let wanted = format!("the adapter at {} said OK, but cluster east does not hold it", adapter.address());
    assert!(message.starts_with(&wanted), "{message}");
    up_and_down(&request).await;
}

/// D26: UNKNOWN without a word, after half of the clusters were written.
#[tokio::test]
async fn failure_without_a_word_says_what_each_cluster_holds() {
    let namespace = namespace("fail-empty").await;
    let adapter = adapter(&["--fail-empty"]).await;
    let request = deploy(&routes_and_front(&namespace), of(&adapter));
    let outcome = run(request.clone()).await;
    assert_eq!(outcome.outcomes()["routes"], Outcome::Failed);
    assert_eq!(outcome.outcomes()["front"], Outcome::Withheld);
    let (reason, message) = failure(&outcome, "routes");
    assert_eq!(reason, "ADAPTER_FAILED");
    for part in [&adapter.address().to_string(), "no reason", "east holds it", "west does not hold it"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let seen = seen(outcome.result("routes").unwrap());
    assert_eq!((seen["east"].outcome(), seen["west"].outcome()), (Outcome::Succeeded, Outcome::Failed));
    assert_eq!(adapter.calls().len(), 1, "nothing is asked twice");
    up_and_down(&request).await;
}

/// D26, cases 125 and 128: the deadline passes, the adapter writes all the same, and nobody called it a success or a failure.
#[tokio::test]
async fn what_an_adapter_writes_after_the_deadline_is_indeterminate() {
    let pair = Pair::shared().await;
    let namespace = namespace("late").await;
    let adapter = adapter(&["--write-late=4s"]).await;
    let request = deploy(&routes_and_front(&namespace), of(&adapter));
    let outcome = run(within(request.clone(), 2)).await;
    assert_eq!(outcome.outcomes()["routes"], Outcome::Indeterminate);
    assert_eq!(outcome.outcomes()["front"], Outcome::Withheld);
    let (reason, message) = failure(&outcome, "routes");
    assert_eq!(reason, "ADAPTER_TIMEOUT");
    assert!(message.contains("may still act"), "{message}");
    let call = &adapter.calls()[0];
    assert!(call.deadline.is_some_and(|left| (1_000..2_000).contains(&left)), "{call:#?}");
    let written = adapter.wait_for(Duration::from_secs(10), |entry| entry.event == "written").await.unwrap();
    assert!(written.left);
    assert!(get(pair.world.west(), &namespace, "routes").await.is_some(), "as the message said");
    up_and_down(&request).await;
}

/// D26, case 127: an adapter that dies after its work is asked once, and the look decides.
#[tokio::test]
async fn adapter_that_dies_after_the_work_is_judged_by_what_is_there() {
    let namespace = namespace("dies-after").await;
    let adapter = adapter(&["--die-mid-call"]).await;
    let request = deploy(&routes_and_front(&namespace), of(&adapter));
    let outcome = run(request.clone()).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    let target = by_adapter(&outcome, "routes");
    assert!(target.warnings.iter().any(|warning| warning.contains("gave no answer")), "{target:#?}");
    assert_eq!(adapter.calls().len(), 1);
    up_and_down(&request).await;
}

/// D26, case 127: and one that dies without having done it.
#[tokio::test]
async fn adapter_that_dies_before_the_work_is_indeterminate_and_not_asked_again() {
    let namespace = namespace("dies-before").await;
    let adapter = adapter(&["--ok-nothing", "--die-mid-call"]).await;
    let request = deploy(&routes_and_front(&namespace), of(&adapter));
    let outcome = run(request.clone()).await;
    assert_eq!(outcome.outcomes()["routes"], Outcome::Indeterminate);
    assert_eq!(outcome.outcomes()["front"], Outcome::Withheld);
    let (_, message) = failure(&outcome, "routes");
    assert!(message.contains("may have acted") && message.contains(&adapter.address().to_string()), "{message}");
    let calls = adapter.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].run, outcome.summary.run_id, "a call says what it belongs to");
    assert_eq!(calls[0].step, outcome.result("routes").unwrap().step_id);
    up_and_down(&request).await;
}

/// D26: what is no object of any cluster cannot be looked at.
#[tokio::test]
async fn component_that_no_cluster_knows_is_acknowledged_with_a_warning() {
    let adapter = adapter(&["--ok-nothing"]).await;
    let design = Design::new().mesh("the-mesh", MESH, &[], "{spec: {profile: demo}}");
    let request = deploy(&design, of(&adapter));
    for request in [request.clone(), undeploy(&request)] {
        let outcome = run(request).await;
        assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
        let target = by_adapter(&outcome, "the-mesh");
        assert_eq!(target.change(), Change::Acknowledged);
        assert!(target.warnings.iter().any(|warning| warning.contains("could not be checked")), "{target:#?}");
    }
}

/// D26: a removal that left the object is a failure, whatever the adapter says.
#[tokio::test]
async fn removal_that_left_the_object_failed() {
    let namespace = namespace("kept").await;
    let adapter = adapter(&["--keep-on-delete"]).await;
    let request = deploy(&routes_and_front(&namespace), of(&adapter));
    assert_eq!(run(request.clone()).await.verdict(), Verdict::Succeeded);
    let outcome = run(undeploy(&request)).await;
    assert_eq!(outcome.outcomes()["routes"], Outcome::Failed);
    let (_, message) = failure(&outcome, "routes");
    assert!(message.contains("said that it removed") && message.contains("cluster east holds it"), "{message}");
    up_and_down(&request).await;
}

/// Cases 304, 312: a refusal that the adapter swallows is no success, and a first creation is one.
#[tokio::test]
async fn swallowed_refusal_is_indeterminate_and_names_the_field() {
    let namespace = namespace("immutable").await;
    let adapter = adapter(&["--swallow-immutable"]).await;
    let fixed = format!("{{metadata: {{namespace: {namespace}}}, immutable: true, data: {{colour: blue}}}}");
    let design = Design::new().mesh("fixed", CONFIG_MAP, &[], &fixed);
    let request = deploy(&design, of(&adapter));
    let first = run(request.clone()).await;
    assert_eq!(by_adapter(&first, "fixed").change(), Change::Created);
    let text = design.text().replace("colour: blue", "colour: green");
    let changed = PlanRequest { design: client::deploy(text, &["east"]).design, ..request.clone() };
    let second = run(changed).await;
    assert_eq!(second.outcomes()["fixed"], Outcome::Indeterminate);
    let (reason, message) = failure(&second, "fixed");
    assert_eq!(reason, "ADAPTER_FAILED");
    for cluster in ["east", "west"] {
        let told = format!(
            "cluster {cluster} holds it otherwise than declared: data.colour is \"blue\", declared as \"green\""
        );
        assert!(message.contains(&told), "{message}");
        assert_eq!(seen(second.result("fixed").unwrap())[cluster].outcome(), Outcome::Indeterminate);
    }
    up_and_down(&request).await;
}

/// Case 304: what cannot be told does not tell a secret.
#[tokio::test]
async fn fields_that_differ_are_told_without_secret_values() {
    let namespace = namespace("immutable-secret").await;
    let adapter = adapter(&["--swallow-immutable"]).await;
    let secret =
        format!("{{metadata: {{namespace: {namespace}}}, immutable: true, stringData: {{key: canary-old-7f1}}}}");
    let design = Design::new().mesh("fixed", ("v1", "Secret"), &[], &secret);
    let request = deploy(&design, of(&adapter));
    let first = run(request.clone()).await;
    assert_eq!(first.verdict(), Verdict::Succeeded, "stringData is stored as data: {:#?}", first.summary);
    let text = design.text().replace("canary-old-7f1", "canary-new-7f1");
    let second = run(PlanRequest { design: client::deploy(text, &["east"]).design, ..request.clone() }).await;
    let (_, message) = failure(&second, "fixed");
    assert!(message.contains("stringData.key is \"[redacted]\", declared as \"[redacted]\""), "{message}");
    let told = format!("{:?}", second.events);
    for value in ["canary-old-7f1", "canary-new-7f1", "Y2FuYXJ5"] {
        assert!(!told.contains(value), "{value}");
    }
    up_and_down(&request).await;
}

/// Case 304: an adapter skips what it cannot read, and says OK.
#[tokio::test]
async fn skipped_object_is_indeterminate_though_an_older_one_is_there() {
    let namespace = namespace("skipped").await;
    let adapter = adapter(&["--only-process-oam"]).await;
    let design = Design::new().mesh("routes", POLICY, &[], &policy(&namespace));
    let request = deploy(&design, of(&adapter));
    assert_eq!(run(request.clone()).await.verdict(), Verdict::Succeeded);
    let text = design.text().replace("spec: {podSelector: {}, policyTypes: [Egress]}", "spec: 'podSelector: {}'");
    assert_ne!(text, design.text());
    let second = run(PlanRequest { design: client::deploy(text, &["east"]).design, ..request.clone() }).await;
    assert_eq!(second.outcomes()["routes"], Outcome::Indeterminate);
    let (_, message) = failure(&second, "routes");
    assert!(message.contains("otherwise than declared: spec is "), "{message}");
    up_and_down(&request).await;
}

/// Cases 304, 305: adapters of ProcessOAM make objects of a spec alone.
#[tokio::test]
async fn configuration_that_did_not_travel_is_indeterminate() {
    let namespace = namespace("beside-spec").await;
    let adapter = adapter(&["--only-process-oam"]).await;
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace));
    let request = deploy(&design, of(&adapter));
    let outcome = run(request.clone()).await;
    assert_eq!(outcome.outcomes()["routes"], Outcome::Indeterminate);
    let (_, message) = failure(&outcome, "routes");
    assert!(message.contains("data is absent, declared as {\"colour\":\"blue\"}"), "{message}");
    up_and_down(&request).await;
}

/// Case 304: how an API server spells what it stores is no difference.
#[tokio::test]
async fn object_that_the_api_server_filled_in_and_spelt_otherwise_is_as_declared() {
    let namespace = namespace("spelt").await;
    let adapter = adapter(&[]).await;
    let in_namespace =
        |rest: &str| format!("{{metadata: {{namespace: {namespace}, labels: {{}}, annotations: null}}, {rest}}}");
    let pod = "{hostNetwork: false, volumes: [{name: cache, emptyDir: {}}], nodeSelector: {}, initContainers: [], containers: \
        [{name: web, image: web, args: [], env: [{name: EMPTY, value: ''}, {name: SIZE, value: 1024Mi}], ports: \
        [{containerPort: 8080}, {containerPort: 8080, protocol: UDP}], resources: {requests: {cpu: 0.5, memory: 1024Mi}, \
        limits: {cpu: 1, memory: 1.5Gi}}, securityContext: {privileged: false, capabilities: {}}, \
        readinessProbe: {httpGet: {port: 8080}, initialDelaySeconds: 0}}]}";
    let template = format!("template: {{metadata: {{labels: {{app: web}}, creationTimestamp: null}}, spec: {pod}}}");
    let design = Design::new()
        .mesh("web", ("apps/v1", "Deployment"), &[], &in_namespace(&format!(
            "spec: {{replicas: 0, paused: false, strategy: {{}}, selector: {{matchLabels: {{app: web}}}}, {template}}}, status: {{}}"
        )))
        .mesh("night", ("batch/v1", "CronJob"), &[], &in_namespace(&format!(
            "spec: {{schedule: '@daily', suspend: true, jobTemplate: {{spec: {{{}}}}}}}",
            template.replace("{hostNetwork", "{restartPolicy: Never, hostNetwork")
        )))
        .mesh("front", ("v1", "Service"), &[], &in_namespace(
            "spec: {type: ClusterIP, selector: {app: web}, ports: [{name: web, port: 80, targetPort: 8080}, {name: x, port: 81}]}"
        ))
        .mesh("disk", ("v1", "PersistentVolumeClaim"), &[], &in_namespace(
            "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1024Mi}}}"
        ))
        .mesh("scaler", ("autoscaling/v2", "HorizontalPodAutoscaler"), &[], &in_namespace(
            "spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, metrics: \
             [{type: External, external: {metric: {name: q}, target: {type: Value, value: 1000m}}}]}"
        ))
        .mesh("routes", ("networking.k8s.io/v1", "Ingress"), &[], &in_namespace(
            "spec: {rules: [{host: a.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, \
             port: {number: 80}}}}]}}]}"
        ))
        .mesh("wall", POLICY, &[], &in_namespace("spec: {podSelector: {}, ingress: [{}], policyTypes: []}"))
        .mesh("quota", ("v1", "ResourceQuota"), &[], &in_namespace("spec: {hard: {requests.cpu: 1000m, pods: 4}}"))
        .mesh("budget", ("policy/v1", "PodDisruptionBudget"), &[], &in_namespace("spec: {minAvailable: 0}"))
        .mesh("reader", ("rbac.authorization.k8s.io/v1", "Role"), &[], &in_namespace("rules: []"))
        .mesh("secret", ("v1", "Secret"), &[], &in_namespace("data: {a: eA==, b: \"eHl6\\n\"}, stringData: {a: y}"));
    let request = deploy(&design, of(&adapter));
    let outcome = run(request.clone()).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    for result in &outcome.results {
        let name = &result.component.as_ref().unwrap().name;
        assert_eq!(by_adapter(&outcome, name).change(), Change::Created, "{name}");
    }
    up_and_down(&request).await;
}

/// Case 307: the namespace that holds where none is named is in what the adapter gets.
#[tokio::test]
async fn component_without_a_namespace_gets_the_default_one() {
    let namespace = namespace("unnamed").await;
    let adapter = adapter(&["--need-namespace"]).await;
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], "{data: {colour: blue}}");
    let mut request = deploy(&design, of(&adapter));
    request.options = Some(RunOptions { default_namespace: namespace.clone(), ..RunOptions::default() });
    for (request, change) in [(request.clone(), Change::Created), (undeploy(&request), Change::Removed)] {
        let outcome = run(request).await;
        assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
        assert_eq!(by_adapter(&outcome, "routes").change(), change);
    }
    assert_eq!(adapter.calls()[0].component["configuration"]["metadata"]["namespace"], *namespace);
    up_and_down(&request).await;
}

/// Case 303: gone is gone, whatever the adapter says of it.
#[tokio::test]
async fn failed_removal_of_what_is_gone_is_removed_with_the_adapters_words() {
    let namespace = namespace("fails-after").await;
    let good = adapter(&[]).await;
    let request = deploy(&routes_and_front(&namespace), of(&good));
    assert_eq!(run(request.clone()).await.verdict(), Verdict::Succeeded);
    let adapter = adapter(&["--fail-after=the release is stuck"]).await;
    let down = run(undeploy(&PlanRequest { registry: Some(of(&adapter)), ..request.clone() })).await;
    assert_eq!(down.verdict(), Verdict::Succeeded, "{:#?}", down.summary);
    let target = by_adapter(&down, "routes");
    assert_eq!(target.change(), Change::Removed);
    assert!(target.warnings.iter().any(|warning| warning.contains("the release is stuck")), "{target:#?}");
    up_and_down(&request).await;
}

/// Case 302: where nothing is there nobody is called, and so no namespace is made.
#[tokio::test]
async fn second_undeploy_calls_nobody_and_leaves_no_namespace() {
    let world = Pair::shared().await.world;
    let namespace = format!("made-{}", uuid::Uuid::new_v4().simple());
    let adapter = adapter(&["--namespace-on-delete", "--fail-on-absent"]).await;
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace));
    let outcome = run(undeploy(&deploy(&design, of(&adapter)))).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    assert_eq!(by_adapter(&outcome, "routes").change(), Change::Absent);
    let seen = seen(outcome.result("routes").unwrap());
    assert_eq!(["east", "west"].map(|cluster| seen[cluster].change()), [Change::Absent; 2]);
    assert_eq!(adapter.calls(), []);
    for cluster in [world.east(), world.west()] {
        let api = Api::<Namespace>::all(cluster.client().await.unwrap());
        assert!(api.get_opt(&namespace).await.unwrap().is_none());
    }
}

/// Case 302: the adapter is called for the clusters that hold something, and for no other.
#[tokio::test]
async fn removal_is_asked_for_on_the_clusters_that_hold_the_object() {
    let pair = Pair::shared().await;
    let namespace = namespace("half").await;
    let adapter = adapter(&["--fail-on-absent"]).await;
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace));
    let request = deploy(&design, of(&adapter));
    assert_eq!(run(request.clone()).await.verdict(), Verdict::Succeeded);
    let west = pair.world.west();
    let api = Api::<ConfigMap>::namespaced(west.client().await.unwrap(), &namespace);
    api.delete("routes", &DeleteParams::default()).await.unwrap();
    let down = run(undeploy(&request)).await;
    assert_eq!(down.verdict(), Verdict::Succeeded, "{:#?}", down.summary);
    let seen = seen(down.result("routes").unwrap());
    assert_eq!(["east", "west"].map(|cluster| seen[cluster].change()), [Change::Removed, Change::Absent]);
    let calls = adapter.calls();
    assert_eq!(calls.last().unwrap().servers, [vec![pair.world.east().url().to_owned()]], "{calls:#?}");
    up_and_down(&request).await;
}

/// D16, S13: what an adapter made is waited for too, and what comes of that is told beside the outcome.
#[tokio::test]
async fn what_an_adapter_made_is_waited_for_until_it_is_ready() {
    let namespace = namespace("adapted-ready").await;
    let adapter = adapter(&[]).await;
    let balanced =
        format!("{{metadata: {{namespace: {namespace}}}, spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}}}");
    let design = Design::new()
        .mesh("routes", CONFIG_MAP, &[], &config_map(&namespace))
        .mesh("front", ("v1", "Service"), &[], &balanced)
        .config_map("behind", &namespace, &["front"]);
    let plain = deploy(&design, of(&adapter));
    let mut request = within(plain.clone(), 5);
    request.options.as_mut().unwrap().wait_until_ready = true;
    let outcome = run(request).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.results);
    for (component, readiness) in [("routes", Readiness::Ready), ("front", Readiness::Progressing)] {
        let seen = seen(outcome.result(component).unwrap());
        let found = ["east", "west"].map(|cluster| seen[cluster].readiness());
        assert_eq!(found, [readiness; 2], "{component}: {seen:#?}");
    }
    up_and_down(&plain).await;
}

/// Case 308: a kind that is served no longer is forgotten by the look too.
#[tokio::test]
async fn kind_that_has_gone_is_not_looked_for_under_its_old_path() {
    let pair = Pair::shared().await;
    let namespace = namespace("gone-kind").await;
    let group = format!("{namespace}.example.com");
    let widgets = format!("/apis/{group}/v1/namespaces/{namespace}/widgets");
    for cluster in [pair.world.east(), pair.world.west()] {
        assert!(ask(cluster, "POST", DEFINITIONS, &chart::definition(&group)).await);
        until_answered(cluster, &widgets, true).await;
    }
    let version = format!("{group}/v1");
    let design =
        Design::new().mesh("w", (&version, "Widget"), &[], &format!("{{metadata: {{namespace: {namespace}}}}}"));
    let adapter = adapter(&["--ok-nothing"]).await;
    let absent = run(deploy(&design, of(&adapter))).await;
    assert_eq!(absent.outcomes()["w"], Outcome::Indeterminate, "{:#?}", absent.summary);

    for cluster in [pair.world.east(), pair.world.west()] {
        assert!(ask(cluster, "DELETE", &format!("{DEFINITIONS}/widgets.{group}"), &Value::Null).await);
        until_answered(cluster, &widgets, false).await;
    }
    let gone = run(deploy(&design, of(&adapter))).await;
    let told = format!("{:?}", gone.results);
    assert!(told.contains(&format!("kind Widget of {version} is not served")), "{told}");
    assert!(!told.contains("does not serve this path"), "{told}");
}

/// D9, D18: an object is the same in every version of its kind, so one that is there in another version is there.
#[tokio::test]
async fn removal_that_left_an_object_of_another_version_failed() {
    let pair = Pair::shared().await;
    let namespace = namespace("other-version").await;
    let group = format!("{namespace}.example.com");
    let widgets = format!("/apis/{group}/v1/namespaces/{namespace}/widgets");
    for cluster in [pair.world.east(), pair.world.west()] {
        assert!(ask(cluster, "POST", DEFINITIONS, &chart::definition(&group)).await);
        until_answered(cluster, &widgets, true).await;
    }
    let body = format!("{{metadata: {{namespace: {namespace}}}}}");
    let design = Design::new().mesh("w", (&format!("{group}/v1"), "Widget"), &[], &body);
    let adapter = adapter(&["--keep-on-delete"]).await;
    let request = deploy(&design, of(&adapter));
    assert_eq!(run(request.clone()).await.verdict(), Verdict::Succeeded);
    let text = design.text().replace(&format!("{group}/v1"), &format!("{group}/v2"));
    let of_v2 = PlanRequest { design: client::deploy(text, &["east"]).design, ..request.clone() };
    let down = run(undeploy(&of_v2)).await;
    assert_eq!(down.outcomes()["w"], Outcome::Failed, "{:#?}", down.results);
    let (_, message) = failure(&down, "w");
    assert!(message.contains("said that it removed") && message.contains("cluster east holds it"), "{message}");
    assert_eq!(adapter.calls().last().map(|call| call.delete_op), Some(true));
    up_and_down(&request).await;
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Whether the API server does what it is asked.
async fn ask(cluster: &Cluster, method: &str, path: &str, body: &Value) -> bool {
    let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let client = cluster.client().await.unwrap();
    client.request::<Value>(request.body(body).unwrap()).await.is_ok()
}

async fn until_answered(cluster: &Cluster, path: &str, answered: bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while ask(cluster, "GET", path, &Value::Null).await != answered {
        assert!(tokio::time::Instant::now() < deadline, "{path} did not come or go");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
