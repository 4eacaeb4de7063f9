//! What is not the design's own is neither written nor removed through an adapter (D19, L1, case 301).

use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use switchyard_proto::v1::{Change, Outcome, PlanRequest, RunOptions, Verdict};
use switchyard_tests::{client, sandbox::Cluster};

use super::{
    CONFIG_MAP, ThroughAdapter, adapter, by_adapter, config_map, deploy, failure, get, namespace, of, run, seen,
    undeploy, up_and_down, within,
};
use crate::{design::Design, pair::Pair};

fn routes_and_front(namespace: &str) -> Design {
    Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(namespace)).config_map("front", namespace, &["routes"])
}

/// Makes a ConfigMap as somebody with kubectl would.
pub(super) async fn create(cluster: &Cluster, namespace: &str, name: &str) {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    let object = ConfigMap { metadata, data: Some([("colour".into(), "red".into())].into()), ..ConfigMap::default() };
    let api = Api::namespaced(cluster.client().await.unwrap(), namespace);
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn delete(cluster: &Cluster, namespace: &str, name: &str) {
    let api = Api::<ConfigMap>::namespaced(cluster.client().await.unwrap(), namespace);
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn object_of_another_design_on_one_cluster_keeps_the_adapter_from_being_called() {
    let world = Pair::shared().await.world;
    let namespace = namespace("foreign-write").await;
    let other = Design::new().config_map("routes", &namespace, &[]);
    let of_other = client::deploy(other.text(), &["west"]);
    assert_eq!(run(of_other.clone()).await.verdict(), Verdict::Succeeded);
    let before = get(world.west(), &namespace, "routes").await.unwrap();

    let adapter = adapter(&[]).await;
    let request = deploy(&routes_and_front(&namespace), of(&adapter));
    let outcome = run(request.clone()).await;
    let outcomes = outcome.outcomes();
    assert_eq!((outcomes["routes"], outcomes["front"]), (Outcome::Failed, Outcome::Withheld));
    let (reason, message) = failure(&outcome, "routes");
    assert_eq!(reason, "OWNED_BY_DESIGN");
    for part in ["was not called", "on cluster west", &other.id()] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let seen = seen(outcome.result("routes").unwrap());
    assert_eq!(["east", "west"].map(|it| seen[it].outcome()), [Outcome::Cancelled, Outcome::Failed]);
    assert_eq!(adapter.calls(), []);
    assert_eq!(get(world.west(), &namespace, "routes").await.unwrap(), before);
    assert!(get(world.east(), &namespace, "routes").await.is_none());

    let down = run(undeploy(&request)).await;
    assert_eq!(failure(&down, "routes").0, "NOT_OURS");
    assert_eq!(adapter.calls(), []);
    assert_eq!(get(world.west(), &namespace, "routes").await.unwrap(), before);

    assert_eq!(run(undeploy(&of_other)).await.verdict(), Verdict::Succeeded);
    up_and_down(&request).await;
}

#[tokio::test]
async fn object_without_a_mark_is_not_removed_and_the_adapter_not_called() {
    let world = Pair::shared().await.world;
    let namespace = namespace("foreign-removal").await;
    create(world.west(), &namespace, "routes").await;
    let adapter = adapter(&[]).await;
    let request = deploy(&routes_and_front(&namespace), of(&adapter));
    let mut down = undeploy(&request);
    for delete_foreign in [false, true] {
        down.options = Some(RunOptions { delete_foreign, ..RunOptions::default() });
        let outcome = run(down.clone()).await;
        assert_eq!(outcome.outcomes()["routes"], Outcome::Failed);
        let (reason, message) = failure(&outcome, "routes");
        assert_eq!(reason, "NOT_OURS");
        assert!(message.contains("no design's mark") && message.contains("cluster west"), "{message}");
        let seen = seen(outcome.result("routes").unwrap());
        assert_eq!((seen["east"].change(), seen["west"].outcome()), (Change::Absent, Outcome::Failed));
    }
    assert_eq!(adapter.calls(), []);
    assert!(get(world.west(), &namespace, "routes").await.is_some());
    delete(world.west(), &namespace, "routes").await;
    up_and_down(&request).await;
}

#[tokio::test]
async fn object_without_a_mark_is_adopted_with_a_warning() {
    let world = Pair::shared().await.world;
    let namespace = namespace("adopted").await;
    create(world.west(), &namespace, "routes").await;
    let adapter = adapter(&[]).await;
    let request = deploy(&routes_and_front(&namespace), of(&adapter));
    let outcome = run(request.clone()).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    let target = by_adapter(&outcome, "routes");
    assert_eq!(target.change(), Change::Configured);
    let warning = "cluster west held it before without any design's mark";
    assert!(target.warnings.iter().any(|it| it.contains(warning)), "{target:#?}");
    let seen = seen(outcome.result("routes").unwrap());
    assert_eq!(["east", "west"].map(|it| seen[it].change()), [Change::Created, Change::Configured]);
    up_and_down(&request).await;
}

/// Case 42: what is written to an object on its way out goes with it.
#[tokio::test]
async fn object_that_is_being_deleted_keeps_the_adapter_from_being_called() {
    let world = Pair::shared().await.world;
    let namespace = namespace("on-its-way-out").await;
    let held =
        format!("{{metadata: {{namespace: {namespace}, finalizers: [example.com/held]}}, data: {{colour: blue}}}}");
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &held);
    let adapter = adapter(&[]).await;
    let request = deploy(&design, of(&adapter));
    assert_eq!(run(request.clone()).await.verdict(), Verdict::Succeeded);
    delete(world.west(), &namespace, "routes").await;
    let outcome = run(within(request.clone(), 3)).await;
    assert_eq!(outcome.outcomes()["routes"], Outcome::Failed, "{:#?}", outcome.results);
    assert_eq!(failure(&outcome, "routes").0, "BEING_DELETED");
    assert_eq!(adapter.calls().len(), 1, "the deployment's");

    for cluster in [world.east(), world.west()] {
        let api = Api::<ConfigMap>::namespaced(cluster.client().await.unwrap(), &namespace);
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        api.patch("routes", &PatchParams::default(), &free).await.unwrap();
    }
    let text = design.text().replace("finalizers: [example.com/held]", "labels: {}");
    up_and_down(&PlanRequest { design: client::deploy(text, &["east"]).design, ..request }).await;
}

#[tokio::test]
async fn namespace_that_holds_what_is_not_the_designs_is_not_removed_by_an_adapter() {
    let world = Pair::shared().await.world;
    let name = format!("held-{}", uuid::Uuid::new_v4().simple());
    let adapter = adapter(&[]).await;
    let request = deploy(&Design::new().mesh(&name, ("v1", "Namespace"), &[], "{}"), of(&adapter));
    assert_eq!(run(request.clone()).await.verdict(), Verdict::Succeeded);
    create(world.east(), &name, "of-somebody").await;
    let outcome = run(undeploy(&request)).await;
    let (reason, message) = failure(&outcome, &name);
    assert_eq!(reason, "FOREIGN_CONTENTS");
    assert!(message.contains("of-somebody") && message.contains("was not called"), "{message}");
    assert_eq!(adapter.calls().len(), 1, "the deployment's");
    let namespace = Api::<Namespace>::all(world.east().client().await.unwrap()).get(&name).await.unwrap();
    assert!(namespace.metadata.deletion_timestamp.is_none());
}
