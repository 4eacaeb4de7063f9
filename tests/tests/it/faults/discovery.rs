//! Group 3: kinds that are there, not there yet, not there at all, or in a group that is broken.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use switchyard_proto::v1::{Change, Outcome};
use switchyard_tests::{
    client,
    fault::{Canned, Fault, Gate, Proxy, Rule, Seen},
    plan::Draft,
};

use super::stage::{Stage, assert_applied, assert_failed, eventually, failure};

/// A group that no other test uses.
fn own_group(stage: &Stage) -> String {
    format!("{}.example.com", stage.namespace)
}

fn definition(group: &str, plural: &str, kind: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn custom(stage: &Stage, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("{}/v1", own_group(stage)), "kind": kind,
        "metadata": {"name": name, "namespace": stage.namespace}, "spec": {"size": 1},
    })
}

fn cluster_role(name: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    })
}

/// Case 20, D12: a broken aggregated API costs the components of its group and nobody else.
#[tokio::test]
async fn a_dead_group_fails_its_own_components_only() {
    let stage = Stage::set("dead-group").await;
    stage.east.add(Rule::any("/apis/metrics.k8s.io", Fault::Answer(Canned::status(503).text("service unavailable"))));
    stage.east.add(Rule::get("/apis/dead.example.com", Fault::Ignore));
    let metrics = json!({
        "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
        "metadata": {"name": "usage", "namespace": stage.namespace},
    });
    let silent = json!({"apiVersion": "dead.example.com/v1", "kind": "Ghost", "metadata": {"name": "ghost"}});
    let draft = Draft::on(&["east"])
        .step_timeout(2_000)
        .apply("metrics", &[], &metrics)
        .apply("silent", &[], &silent)
        .apply("map", &[], &stage.config_map("map"));

    let outcome = stage.run(&draft).await;

    assert_applied(&outcome, "map", Change::Created);
    assert_failed(&outcome, "metrics", "API_UNAVAILABLE", &["cluster east", "metrics.k8s.io/v1beta1", "503"]);
    assert_failed(&outcome, "silent", "API_UNAVAILABLE", &["cluster east", "dead.example.com/v1"]);
    assert_eq!(stage.east.count(Seen::is_write), 1);
    assert_eq!(stage.east.count(|seen| seen.path == "/apis"), 0, "nobody asks for all groups");
}

/// Case 266: discovery that fails for some seconds costs its components those seconds, as it would in the answer to a write.
#[tokio::test]
async fn discovery_that_comes_back_within_seconds_costs_seconds() {
    let stage = Stage::set("shaky-discovery").await;
    let shaky = Fault::Answer(Canned::status(503).text("service unavailable"));
    stage.east.add(Rule::get("/apis/rbac.authorization.k8s.io/v1", shaky).times(5));
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "reader", "namespace": stage.namespace}, "rules": [],
    });

    let outcome = stage.run(&Draft::on(&["east"]).apply("reader", &[], &role)).await;

    assert_applied(&outcome, "reader", Change::Created);
}

/// Case 251: the question of a run that has time is no reason for another to wait longer than it wants to.
#[tokio::test]
async fn who_waits_for_anothers_question_waits_until_its_own_deadline() {
    let stage = Stage::set("silent-group").await;
    stage.east.add(Rule::get("/apis/silent.example.com", Fault::Ignore));
    let ghost = json!({"apiVersion": "silent.example.com/v1", "kind": "Ghost", "metadata": {"name": "ghost"}});
    let draft = |timeout| Draft::on(&["east"]).step_timeout(timeout).apply("ghost", &[], &ghost);
    let patient = draft(120_000);
    let _first = stage.client.execute(patient.seal(), stage.access_for(&patient)).await.unwrap();
    stage.east.wait_for(1, |seen| seen.path.contains("silent.example.com")).await.unwrap();

    let impatient = draft(1_000);
    let outcome = tokio::time::timeout(Duration::from_secs(8), stage.run(&impatient)).await;

    let outcome = outcome.expect("it does not wait for the other's question");
    assert_failed(&outcome, "ghost", "API_UNAVAILABLE", &["cluster east", "silent.example.com/v1"]);
}

/// Case 21, S17: a cluster whose discovery is dead is no workable cluster, and that takes no minutes to find out.
#[tokio::test]
async fn a_cluster_without_discovery_is_named_before_anything_is_written() {
    let stage = Stage::set("no-discovery").await;
    stage.east.add(Rule::get("/api", Fault::Answer(Canned::status(503).retry_after(3_600))));
    let draft = Draft::on(&["east", "west"]).apply("map", &[], &stage.config_map("map"));

    let status = stage.try_run(&draft, stage.access()).await.unwrap_err();

    assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status:?}");
    assert_eq!(stage.west.count(Seen::is_write) + stage.east.count(Seen::is_write), 0);
}

/// Case 23, D16: a definition and objects of its kind in one plan, with and without a declared order, on a cluster whose
/// replicas lag: discovery knows the kind late, the path answers 404, then 429 once, then 404 every other time.
#[tokio::test]
async fn a_definition_and_its_objects_are_applied_in_one_run() {
    let stage = Stage::set("crd-and-cr").await;
    let group = own_group(&stage);
    stage.east.add(Rule::get(&format!("/apis/{group}/v1"), Fault::Answer(Canned::status(404))).times(3));
    let path = "/widgets/";
    stage.east.add(Rule::patch(path, Fault::Answer(Canned::status(404).text("404 page not found"))).times(2));
    let initialising =
        Canned::refusal(429, "TooManyRequests", "storage is (re)initializing", json!({"retryAfterSeconds": 1}));
    stage.east.add(Rule::patch(path, Fault::Answer(initialising)).times(1));
    let draft = Draft::on(&["east"])
        .apply("definition", &[], &definition(&group, "widgets", "Widget"))
        .apply("declared", &["definition"], &custom(&stage, "Widget", "declared"))
        .apply("undeclared", &[], &custom(&stage, "Widget", "undeclared"))
        .runs_after(&["definition"]);

    let outcome = stage.run(&draft).await;

    for name in ["definition", "declared", "undeclared"] {
        assert_applied(&outcome, name, Change::Created);
    }
    assert!(stage.object(&format!("{group}/v1/widgets"), "declared").await.is_some());
    assert!(stage.object(&format!("{group}/v1/widgets"), "undeclared").await.is_some());
    assert!(stage.east.applies("/widgets/declared") + stage.east.applies("/widgets/undeclared") <= 8);

    let again = stage.run(&draft).await;
    for name in ["definition", "declared", "undeclared"] {
        assert_applied(&again, name, Change::Unchanged);
    }
}

/// Case 24: a definition that is stored but will never be served has failed, says why, and withholds its objects.
#[tokio::test]
async fn a_definition_whose_names_are_taken_has_failed() {
    let stage = Stage::set("names-taken").await;
    let group = own_group(&stage);
    let draft = Draft::on(&["east"])
        .apply("first", &[], &definition(&group, "widgets", "Widget"))
        .apply("second", &["first"], &definition(&group, "gadgets", "Widget"))
        .apply("object", &["second"], &custom(&stage, "Widget", "object"));

    let outcome = stage.run(&draft).await;

    assert_applied(&outcome, "first", Change::Created);
    assert_failed(&outcome, "second", "DEFINITION_REJECTED", &["cluster east", "already in use"]);
    let withheld = outcome.result("object").unwrap().withheld.as_ref().unwrap();
    assert_eq!((withheld.component.as_str(), withheld.root_component.as_str()), ("second", "second"));
    assert_eq!(withheld.root_error.as_ref().unwrap().reason, "DEFINITION_REJECTED");
}

/// Case 24: a definition that is on its way out is not waited for until the step's end.
#[tokio::test]
async fn a_definition_that_is_being_deleted_has_failed() {
    let stage = Stage::set("crd-terminating").await;
    let group = own_group(&stage);
    let mut with_finalizer = definition(&group, "widgets", "Widget");
    with_finalizer["metadata"]["finalizers"] = json!(["example.com/kept"]);
    let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let one = format!("{all}/widgets.{group}");
    stage.create(stage.world.east(), all, &with_finalizer).await;
    stage.delete(stage.world.east(), &one).await;
    let draft =
        Draft::on(&["east"]).step_timeout(3_000).apply("definition", &[], &definition(&group, "widgets", "Widget"));

    let outcome = stage.run(&draft).await;

    assert_failed(&outcome, "definition", "BEING_DELETED", &["being deleted", "east"]);
}

/// Case 25: a kind that something else brings two seconds after the component it waits for is found, by asking for its group
/// alone and a bounded number of times.
#[tokio::test]
async fn a_kind_that_appears_during_the_run_is_found() {
    let stage = Stage::set("kind-late").await;
    let group = own_group(&stage);
    let draft = Draft::on(&["east"]).apply("template", &[], &stage.config_map("template")).apply(
        "constraint",
        &["template"],
        &custom(&stage, "Constraint", "constraint"),
    );

    let (outcome, ()) = tokio::join!(stage.run(&draft), async {
        stage.east.wait_for(1, |seen| seen.is_discovery() && seen.path.contains(&group)).await.unwrap();
        // The controller that makes the definition takes its time.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        stage.create(stage.world.east(), all, &definition(&group, "constraints", "Constraint")).await;
    });

    assert_applied(&outcome, "constraint", Change::Created);
    assert!(stage.east.count(|seen| seen.is_discovery() && seen.path.contains(&group)) <= 10);
    assert_eq!(stage.east.count(|seen| seen.path == "/apis"), 0, "only the group is asked for");
}

/// Case 26: a spelling mistake costs seconds, names the nearest kind, and holds nobody up.
#[tokio::test]
async fn a_kind_that_is_truly_unknown_fails_within_seconds_and_names_a_near_miss() {
    let stage = Stage::set("kind-unknown").await;
    let mut plural = stage.config_map("plural");
    plural["kind"] = json!("ConfigMaps");
    let nowhere = json!({"apiVersion": "nowhere.example.com/v1", "kind": "Thing", "metadata": {"name": "thing"}});
    let draft = Draft::on(&["east"]).apply("plural", &[], &plural).apply("nowhere", &[], &nowhere).apply(
        "map",
        &[],
        &stage.config_map("map"),
    );

    let outcome = stage.run(&draft).await;

    assert_failed(&outcome, "plural", "KIND_UNKNOWN", &["east", "ConfigMaps", "v1", "did you mean ConfigMap?"]);
    assert_failed(&outcome, "nowhere", "KIND_UNKNOWN", &["east", "Thing", "nowhere.example.com/v1"]);
    for name in ["plural", "nowhere"] {
        let target = outcome.target(name, "east").unwrap();
        assert_eq!(target.attempts, 0, "no write was sent");
        assert!(target.elapsed.unwrap().seconds < 5, "{target:?}");
    }
    assert_applied(&outcome, "map", Change::Created);
    assert!(stage.east.count(Seen::is_discovery) <= 20);
}

/// Case 28, D10: whether a kind lies in namespaces is for discovery to say.
#[tokio::test]
async fn scope_comes_from_discovery_and_never_from_the_document() {
    let stage = Stage::set("scope").await;
    let role = format!("{}-role", stage.namespace);
    let mut placed = cluster_role(&role);
    placed["metadata"]["namespace"] = json!("x");
    let mut homeless = stage.config_map("homeless");
    homeless["metadata"].as_object_mut().unwrap().remove("namespace");
    let draft = Draft::on(&["east"])
        .options(|options| options.default_namespace.clone_from(&stage.namespace))
        .apply("role", &[], &placed)
        .apply("homeless", &[], &homeless);

    let outcome = stage.run(&draft).await;

    assert_applied(&outcome, "role", Change::Created);
    let target = outcome.target("role", "east").unwrap();
    assert_eq!(target.object.as_ref().unwrap().namespace, "");
    assert!(target.warnings[0].contains("ClusterRole is cluster-scoped"), "{:?}", target.warnings);
    assert_applied(&outcome, "homeless", Change::Created);
    assert_eq!(outcome.target("homeless", "east").unwrap().object.as_ref().unwrap().namespace, stage.namespace);
    assert!(stage.object("v1/configmaps", "homeless").await.is_some());
}

/// Case 29, D12: one PATCH an object and one question a group version, however many objects there are.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_objects_of_five_kinds_take_five_questions_and_two_hundred_writes() {
    let stage = Stage::set("counted").await;
    let namespace = &stage.namespace;
    let kinds = [
        ("v1", "ConfigMap", json!({})),
        ("v1", "Secret", json!({})),
        ("networking.k8s.io/v1", "NetworkPolicy", json!({"spec": {"podSelector": {}}})),
        ("rbac.authorization.k8s.io/v1", "Role", json!({"rules": []})),
        ("policy/v1", "PodDisruptionBudget", json!({"spec": {"maxUnavailable": 1}})),
    ];
    let mut draft = Draft::on(&["east"]);
    for number in 0..200 {
        let (api_version, kind, rest) = &kinds[number % kinds.len()];
        let name = format!("object-{number}");
        let mut object = rest.clone();
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": name, "namespace": namespace});
        draft = draft.apply(&name, &[], &object);
    }

    let outcome = stage.run(&draft).await;

    assert_eq!(outcome.summary.counts["succeeded"], 200, "{:?}", outcome.summary.counts);
    assert_eq!(stage.east.count(Seen::is_write), 200);
    let others: Vec<_> = stage.east.seen().into_iter().filter(|seen| !seen.is_write()).map(|seen| seen.path).collect();
    let expected = [
        "/version",
        "/api",
        "/api/v1/namespaces",
        "/api/v1",
        "/apis/networking.k8s.io/v1",
        "/apis/policy/v1",
        "/apis/rbac.authorization.k8s.io/v1",
        // Which schema each kind has, once a run (L4).
        "/openapi/v3",
    ];
    assert_eq!(others.len(), expected.len(), "{others:?}");
    assert!(expected.iter().all(|path| others.iter().any(|other| other == path)), "{others:?}");
    // Two before the run, the baseline, and never more than the bound of the run.
    assert!(stage.east.peak_in_flight() <= 96, "{}", stage.east.peak_in_flight());
}

/// Case 31: a definition whose conversion webhook is gone breaks its own kind only, and the message says what is broken.
#[tokio::test]
async fn a_broken_conversion_webhook_is_told_apart() {
    let stage = Stage::set("conversion").await;
    let group = own_group(&stage);
    let mut broken = definition(&group, "widgets", "Widget");
    let mut second = broken["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    broken["spec"]["versions"].as_array_mut().unwrap().push(second);
    broken["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"}},
    });
    let mut object = custom(&stage, "Widget", "object");
    object["apiVersion"] = json!(format!("{group}/v2"));
    let draft = Draft::on(&["east"])
        .step_timeout(5_000)
        .apply("definition", &[], &broken)
        .apply("object", &["definition"], &object)
        .apply("map", &[], &stage.config_map("map"));

    let outcome = stage.run(&draft).await;

    assert_applied(&outcome, "definition", Change::Created);
    assert_failed(&outcome, "object", "CONVERSION_UNAVAILABLE", &["Widget", "conversion webhook"]);
    assert_applied(&outcome, "map", Change::Created);
}

/// D16 and the lanes: a definition that is not served yet holds no place among the writes in flight.
#[tokio::test]
async fn a_definition_that_is_waited_for_holds_up_nobody_else() {
    let stage = Stage::set("crd-waits").await;
    let group = own_group(&stage);
    let gate = Gate::shut();
    stage.east.add(Rule::get("/customresourcedefinitions/", Fault::Hold(gate.clone())));
    let mut draft = Draft::on(&["east"]).options(|options| options.max_in_flight = 1).apply(
        "definition",
        &[],
        &definition(&group, "widgets", "Widget"),
    );
    for name in ["one", "two", "three"] {
        draft = draft.apply(name, &[], &stage.config_map(name));
    }

    // Told, and not only sent: what is in flight when the gate opens may be answered after the definition.
    let all_told = |told: &client::Outcome| {
        if told.results.len() == 3 {
            gate.open();
        }
    };
    let outcome = stage.run_watched(&draft, all_told).await;

    assert_eq!(outcome.summary.counts["succeeded"], 4);
    assert_eq!(outcome.results.last().unwrap().step_id, "definition");
}

/// D16: a definition that is not served in time has failed, with what it lacked.
#[tokio::test]
async fn a_definition_that_is_not_served_in_time_has_failed() {
    let stage = Stage::set("crd-never").await;
    let group = own_group(&stage);
    let not_established = Arc::new(|answer: &mut Canned| {
        let mut object: Value = serde_json::from_slice(answer.body()).unwrap();
        object["status"] = json!({});
        *answer = Canned::status(200).json(&object);
    });
    stage.east.add(Rule::get("/customresourcedefinitions/", Fault::Alter(not_established)));
    let draft = Draft::on(&["east"])
        .step_timeout(2_000)
        .apply("definition", &[], &definition(&group, "widgets", "Widget"))
        .apply("object", &["definition"], &custom(&stage, "Widget", "object"));

    let outcome = stage.run(&draft).await;

    assert_failed(&outcome, "definition", "DEFINITION_NOT_SERVED", &["east", "not established"]);
    assert!(failure(&outcome, "definition", "east").retryable);
    assert_eq!(outcome.outcomes()["object"], Outcome::Withheld);
    let stored = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}");
    eventually("the definition to be stored", async || stage.read(stage.world.east(), &stored).await.is_some()).await;
}

/// S14: clusters of different versions. What one of them does not serve fails there alone, says so, and withholds on both.
#[tokio::test]
async fn clusters_that_serve_different_kinds_are_told_apart() {
    let stage = Stage::set("versions").await;
    let definition =
        Draft::on(&["east"]).apply("definition", &[], &definition(&own_group(&stage), "engines", "Engine"));
    stage.run(&definition).await;
    let draft = Draft::on(&["east", "west"])
        .apply("engine", &[], &custom(&stage, "Engine", "engine"))
        .apply("behind", &["engine"], &stage.config_map("behind"))
        .apply("aside", &[], &stage.config_map("aside"));
    let outcome = stage.run(&draft).await;
    assert_eq!(outcome.target("engine", "east").unwrap().change(), Change::Created);
    assert_eq!(failure(&outcome, "engine", "west").reason, "KIND_UNKNOWN");
    assert!(failure(&outcome, "engine", "west").message.contains("cluster west does not serve kind Engine"));
    let outcomes = outcome.outcomes();
    assert_eq!((outcomes["engine"], outcomes["behind"]), (Outcome::Failed, Outcome::Withheld));
    assert_eq!(outcomes["aside"], Outcome::Succeeded);
}

/// Objects of seven group versions, one after the other.
fn many_groups(stage: &Stage) -> Draft {
    let own = |api_version: &str, kind: &str, name: &str, rest: Value| {
        let mut object = rest;
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": name, "namespace": stage.namespace});
        object
    };
    let objects = [
        own("v1", "ConfigMap", "map", json!({})),
        own("networking.k8s.io/v1", "NetworkPolicy", "policy", json!({"spec": {"podSelector": {}}})),
        own("rbac.authorization.k8s.io/v1", "Role", "role", json!({"rules": []})),
        own("policy/v1", "PodDisruptionBudget", "budget", json!({"spec": {"maxUnavailable": 1}})),
        own("coordination.k8s.io/v1", "Lease", "lease", json!({"spec": {}})),
        own("discovery.k8s.io/v1", "EndpointSlice", "slice", json!({"addressType": "IPv4", "endpoints": []})),
        own(
            "batch/v1",
            "CronJob",
            "cron",
            json!({"spec": {"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": {
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}),
        ),
    ];
    objects.iter().fold(Draft::on(&["east"]).options(|options| options.max_in_flight = 1), |draft, object| {
        draft.apply(object["metadata"]["name"].as_str().unwrap(), &[], object)
    })
}

/// D12: a plan of many groups is answered by one question for all of them, and the runs that follow ask nothing.
#[tokio::test]
async fn many_groups_take_one_question_and_the_next_run_none() {
    let stage = Stage::set("many-groups").await;
    let draft = many_groups(&stage);
    let questions =
        || stage.east.seen().into_iter().filter(Seen::is_discovery).map(|seen| seen.path).collect::<Vec<_>>();

    let outcome = stage.run(&draft).await;
    assert_eq!(outcome.summary.counts["succeeded"] as usize, draft.steps(), "{:?}", outcome.summary);
    let asked = questions();
    assert_eq!(asked.iter().filter(|path| *path == "/apis").count(), 1, "{asked:?}");
    assert!(asked.iter().filter(|path| path.matches('/').count() > 1).count() <= 4, "{asked:?}");

    stage.east.forget();
    stage.run(&draft).await;
    assert_eq!(questions(), ["/api"], "the proof that the cluster is workable and nothing else");
}

/// D12: what the runs before learned is not believed for ever: a kind that went and came back is found.
#[tokio::test]
async fn kind_that_went_and_came_back_is_found_by_the_next_run() {
    let stage = Stage::set("came-back").await;
    let group = own_group(&stage);
    let definition = definition(&group, "engines", "Engine");
    let draft = Draft::on(&["east"]).apply("definition", &[], &definition).apply(
        "engine",
        &["definition"],
        &custom(&stage, "Engine", "engine"),
    );
    let alone = Draft::on(&["east"]).apply("engine", &[], &custom(&stage, "Engine", "engine"));
    assert_eq!(stage.run(&draft).await.summary.counts["succeeded"], 2);
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/engines.{group}");
    stage.delete(stage.world.east(), &path).await;
    eventually("the definition to be gone", async || stage.read(stage.world.east(), &path).await.is_none()).await;

    assert_failed(&stage.run(&alone).await, "engine", "KIND_UNKNOWN", &[]);
    assert_eq!(stage.run(&draft).await.summary.counts["succeeded"], 2);
}

/// Case 20, D12: what the one answer for all groups does not vouch for, or an answer that never comes, is made up for by asking
/// for the single groups.
#[tokio::test]
async fn groups_that_one_answer_for_all_does_not_tell_are_asked_for_one_by_one() {
    let stage = Stage::set("stale-groups").await;
    let draft = many_groups(&stage);
    let stale = Arc::new(|answer: &mut Canned| {
        let mut groups: Value = serde_json::from_slice(answer.body()).unwrap();
        assert_eq!(groups["kind"], "APIGroupDiscoveryList");
        for group in groups["items"].as_array_mut().unwrap() {
            // As the API server tells of a group whose own server does not answer.
            for version in group["versions"].as_array_mut().unwrap() {
                version["freshness"] = json!("Stale");
                version["resources"] = json!([]);
            }
        }
        *answer = Canned::status(200).json(&groups);
    });
    for fault in [Fault::Alter(stale), Fault::Answer(Canned::status(503)), Fault::Ignore] {
        // A way in of its own, so that nothing is known of the cluster yet.
        let proxy = Proxy::before(stage.world.east()).await.unwrap();
        proxy.add(Rule::get("/apis", fault).whole());
        let access = vec![client::kubeconfig("east", proxy.kubeconfig().to_string())];
        let outcome = stage.try_run(&draft, access).await.unwrap();
        assert_eq!(outcome.summary.counts["succeeded"] as usize, draft.steps(), "{:?}", outcome.summary);
        assert_eq!(proxy.count(|seen| seen.path == "/apis"), 1);
        assert_eq!(proxy.count(|seen| seen.path == "/apis/batch/v1"), 1);
    }
}

/// Case 294: a kind that another version of its group serves is told with that version.
#[tokio::test]
async fn a_kind_in_another_version_is_told_with_the_version_that_is_served() {
    let stage = Stage::set("served-version").await;
    let group = own_group(&stage);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    stage.create(stage.world.east(), definitions, &definition(&group, "widgets", "Widget")).await;
    let path = format!("/apis/{group}/v1/namespaces/{}/widgets", stage.namespace);
    eventually("the kind to be served", async || stage.read(stage.world.east(), &path).await.is_some()).await;
    let mut object = custom(&stage, "Widget", "w");
    object["apiVersion"] = json!(format!("{group}/v2"));
    let outcome = stage.run(&Draft::on(&["east"]).apply("w", &[], &object)).await;
    assert_failed(&outcome, "w", "KIND_UNKNOWN", &[&format!("it serves it as {group}/v1")]);
}
