//! Case 253: watches, where there are many.

use serde_json::{Value, json};
use switchyard_tests::{
    fault::{Canned, Fault, Rule, Seen},
    plan::Draft,
};

use super::stage::Stage;

/// More than are watched one by one.
const NAMESPACES: usize = 14;

fn deployment(namespace: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "app", "image": "app"}]}},
        },
    })
}

/// Deploys to many namespaces, waits for all, and answers how many watches there were of one namespace and of all.
async fn watches(stage: &Stage) -> (usize, usize) {
    let mut draft = Draft::on(&["east"]).step_timeout(4_000).options(|options| options.wait_until_ready = true);
    for number in 0..NAMESPACES {
        let namespace = format!("{}-{number}", stage.namespace);
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        stage.create(stage.world.east(), "/api/v1/namespaces", &object).await;
        draft = draft.apply(&namespace, &[], &deployment(&namespace));
    }
    stage.east.forget();
    let outcome = stage.run(&draft).await;
    assert_eq!(outcome.summary.counts["succeeded"] as usize, NAMESPACES, "{:?}", outcome.summary);
    let paths: std::collections::BTreeSet<_> =
        stage.east.seen().into_iter().filter(Seen::is_watch).map(|seen| seen.path).collect();
    let of_all = paths.iter().filter(|path| *path == "/apis/apps/v1/deployments").count();
    (paths.len() - of_all, of_all)
}

#[tokio::test]
async fn objects_in_many_namespaces_are_watched_together_and_beside_the_writes() {
    let stage = Stage::set("many-namespaces").await;
    let before = stage.east.dials();
    assert_eq!(watches(&stage).await, (10, 1));
    assert_eq!(stage.east.dials() - before, 2, "one connection for writes and one for watches");
}

#[tokio::test]
async fn who_may_not_watch_all_namespaces_watches_each() {
    let stage = Stage::set("own-namespaces").await;
    let refusal = Canned::refusal(403, "Forbidden", "not all of them", json!(null));
    stage.east.add(Rule::watch("/apis/apps/v1/deployments", Fault::Answer(refusal)).whole());
    assert_eq!(watches(&stage).await, (NAMESPACES, 1));
}
