//! What an adapter says, and what is there (D26, `meshery-facts` 5.7).

use std::time::Duration;

use serde_json::{Value, json};
use switchyard_proto::v1::{Change, Outcome, Readiness, Verdict};
use switchyard_tests::sandbox::Cluster;

use super::{
    CONFIG_MAP, MESH, ThroughAdapter, adapter, by_adapter, config_map, deploy, failure, get, namespace, of, run, seen,
    undeploy, within,
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
    let outcome = run(deploy(&routes_and_front(&namespace), of(&adapter))).await;
    let outcomes = outcome.outcomes();
    assert_eq!(
        (outcomes["routes"], outcomes["front"], outcomes["aside"]),
        (Outcome::Indeterminate, Outcome::Withheld, Outcome::Succeeded)
    );
    let (_, message) = failure(&outcome, "routes");
    let wanted = format!("the adapter at {} said OK, but cluster east does not hold it", adapter.address());
    assert!(message.starts_with(&wanted), "{message}");
}

/// D26: UNKNOWN without a word, after half of the clusters were written.
#[tokio::test]
async fn failure_without_a_word_says_what_each_cluster_holds() {
    let namespace = namespace("fail-empty").await;
    let adapter = adapter(&["--fail-empty"]).await;
    let outcome = run(deploy(&routes_and_front(&namespace), of(&adapter))).await;
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
}

/// D26, cases 125 and 128: the deadline passes, the adapter writes all the same, and nobody called it a success or a failure.
#[tokio::test]
async fn what_an_adapter_writes_after_the_deadline_is_indeterminate() {
    let pair = Pair::shared().await;
    let namespace = namespace("late").await;
    let adapter = adapter(&["--write-late=4s"]).await;
    let outcome = run(within(deploy(&routes_and_front(&namespace), of(&adapter)), 2)).await;
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
}

/// D26, case 127: an adapter that dies after its work is asked once, and the look decides.
#[tokio::test]
async fn adapter_that_dies_after_the_work_is_judged_by_what_is_there() {
    let namespace = namespace("dies-after").await;
    let adapter = adapter(&["--die-mid-call"]).await;
    let outcome = run(deploy(&routes_and_front(&namespace), of(&adapter))).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    let target = by_adapter(&outcome, "routes");
    assert!(target.warnings.iter().any(|warning| warning.contains("gave no answer")), "{target:#?}");
    assert_eq!(adapter.calls().len(), 1);
}

/// D26, case 127: and one that dies without having done it.
#[tokio::test]
async fn adapter_that_dies_before_the_work_is_indeterminate_and_not_asked_again() {
    let namespace = namespace("dies-before").await;
    let adapter = adapter(&["--ok-nothing", "--die-mid-call"]).await;
    let outcome = run(deploy(&routes_and_front(&namespace), of(&adapter))).await;
    assert_eq!(outcome.outcomes()["routes"], Outcome::Indeterminate);
    assert_eq!(outcome.outcomes()["front"], Outcome::Withheld);
    let (_, message) = failure(&outcome, "routes");
    assert!(message.contains("may have acted") && message.contains(&adapter.address().to_string()), "{message}");
    let calls = adapter.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].run, outcome.summary.run_id, "a call says what it belongs to");
    assert_eq!(calls[0].step, outcome.result("routes").unwrap().step_id);
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
}

/// 5.7: a refusal that the adapter swallows is not told as a change.
#[tokio::test]
async fn swallowed_refusal_is_no_change() {
    let namespace = namespace("immutable").await;
    let adapter = adapter(&["--swallow-immutable"]).await;
    let fixed = format!("{{metadata: {{namespace: {namespace}}}, immutable: true, data: {{colour: blue}}}}");
    let design = Design::new().mesh("fixed", CONFIG_MAP, &[], &fixed);
    let request = deploy(&design, of(&adapter));
    let first = run(request.clone()).await;
    assert_eq!(by_adapter(&first, "fixed").change(), Change::Configured);
    let mut request = request;
    let text = design.text().replace("colour: blue", "colour: green");
    request.design = switchyard_tests::client::deploy(text, &["east"]).design;
    let second = run(request).await;
    assert_eq!(by_adapter(&second, "fixed").change(), Change::Unchanged);
    let colour = get(Pair::shared().await.world.east(), &namespace, "fixed").await.unwrap().data.unwrap();
    assert_eq!(colour["colour"], "blue");
}

/// D26: an object of that name that is not this design's proves nothing.
#[tokio::test]
async fn object_without_the_designs_mark_proves_nothing() {
    let namespace = namespace("foreign").await;
    let other = Design::new().config_map("routes", &namespace, &[]);
    let direct = switchyard_tests::client::deploy(other.text(), &["east", "west"]);
    assert_eq!(run(direct).await.verdict(), Verdict::Succeeded);
    let adapter = adapter(&["--ok-nothing"]).await;
    let outcome = run(deploy(&routes_and_front(&namespace), of(&adapter))).await;
    assert_eq!(outcome.outcomes()["routes"], Outcome::Indeterminate);
    let (_, message) = failure(&outcome, "routes");
    assert!(message.contains("without the design's mark"), "{message}");
}

/// 5.7: the namespace that an adapter makes on a delete is the adapter's doing; the component is gone all the same.
#[tokio::test]
async fn removal_from_a_namespace_that_the_adapter_makes_first_succeeds() {
    let world = Pair::shared().await.world;
    let namespace = format!("made-{}", uuid::Uuid::new_v4().simple());
    let adapter = adapter(&["--namespace-on-delete"]).await;
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace));
    let outcome = run(undeploy(&deploy(&design, of(&adapter)))).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    let events = world.east().audit().unwrap();
    let made = events.iter().filter(|event| event.is_write() && event.uri.starts_with("/api/v1/namespaces?"));
    assert!(made.count() > 0, "made by the adapter");
    let ours = events.iter().filter(|event| event.uri.contains(&namespace) && event.is_write());
    assert!(ours.into_iter().all(|event| event.user_agent.starts_with("reference-adapter")));
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
    let mut request = within(deploy(&design, of(&adapter)), 5);
    request.options.as_mut().unwrap().wait_until_ready = true;
    let outcome = run(request).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.results);
    for (component, readiness) in [("routes", Readiness::Ready), ("front", Readiness::Progressing)] {
        let seen = seen(outcome.result(component).unwrap());
        let found = ["east", "west"].map(|cluster| seen[cluster].readiness());
        assert_eq!(found, [readiness; 2], "{component}: {seen:#?}");
    }
}

/// Case 308: a kind that is served no longer is forgotten by the look too.
#[tokio::test]
async fn kind_that_has_gone_is_not_looked_for_under_its_old_path() {
    let pair = Pair::shared().await;
    let namespace = namespace("gone-kind").await;
    let group = format!("{namespace}.example.com");
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let widgets = format!("/apis/{group}/v1/namespaces/{namespace}/widgets");
    for cluster in [pair.world.east(), pair.world.west()] {
        assert!(ask(cluster, "POST", definitions, &definition).await);
        until_answered(cluster, &widgets, true).await;
    }
    let version = format!("{group}/v1");
    let design =
        Design::new().mesh("w", (&version, "Widget"), &[], &format!("{{metadata: {{namespace: {namespace}}}}}"));
    let adapter = adapter(&["--ok-nothing"]).await;
    let absent = run(deploy(&design, of(&adapter))).await;
    assert_eq!(absent.outcomes()["w"], Outcome::Indeterminate, "{:#?}", absent.summary);

    for cluster in [pair.world.east(), pair.world.west()] {
        assert!(ask(cluster, "DELETE", &format!("{definitions}/widgets.{group}"), &Value::Null).await);
        until_answered(cluster, &widgets, false).await;
    }
    let gone = run(deploy(&design, of(&adapter))).await;
    let told = format!("{:?}", gone.results);
    assert!(told.contains(&format!("kind Widget of {version} is not served")), "{told}");
    assert!(!told.contains("does not serve this path"), "{told}");
}

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
