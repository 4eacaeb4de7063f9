//! Deploying whole designs through both programs onto two real clusters.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api,
    api::{DynamicObject, GroupVersionKind},
    discovery::ApiResource,
};
use switchyard_proto::v1::{Change, Outcome, Verdict};
use switchyard_tests::client;

use crate::{design::Design, pair::Pair};

const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
/// A key that no ConfigMap may have: the API server refuses it.
const REFUSED: &str = "{data: {'no such key!': x}}";

/// S18, D10, D11, D12, and what changed told from the answer alone.
#[tokio::test]
async fn object_carries_the_marks_and_deploying_again_changes_nothing() {
    let pair = Pair::shared().await;
    let namespace = pair.world.east().namespace_for("marks").await.unwrap();
    pair.world.west().client().await.unwrap();
    let design = Design::new().config_map("settings", &namespace, &[]);
    let client = pair.client().await;
    let request = client::deploy(design.text(), &["east"]);

    let first = client.run(request.clone(), vec![]).await.unwrap();
    assert_eq!(first.verdict(), Verdict::Succeeded);
    assert_eq!(first.target("settings", "east").unwrap().change(), Change::Created);
    let api: Api<ConfigMap> = Api::namespaced(pair.world.east().client().await.unwrap(), &namespace);
    let object = api.get("settings").await.unwrap();
    let label = |name: &str| object.metadata.labels.as_ref().unwrap()[name].clone();
    let annotation = |name: &str| object.metadata.annotations.as_ref().unwrap()[name].clone();
    assert_eq!(label("design.meshery.io/id"), design.id());
    assert_eq!(annotation("design.meshery.io/version"), "0.0.7");
    assert_eq!(annotation("component.meshery.io/id"), first.results[0].step_id);
    let fields = object.metadata.managed_fields.clone().unwrap();
    assert_eq!(fields.len(), 1);
    assert_eq!(fields[0].manager, Some(format!("switchyard/{}", design.id())));
    assert_eq!(fields[0].operation.as_deref(), Some("Apply"));

    let second = client.run(request, vec![]).await.unwrap();
    let target = second.target("settings", "east").unwrap();
    assert_eq!(target.change(), Change::Unchanged);
    assert_eq!(target.object.as_ref().unwrap().resource_version, object.metadata.resource_version.unwrap());

    let changed = design.text().replace("colour: blue", "colour: green");
    let third = client.run(client::deploy(changed, &["east"]), vec![]).await.unwrap();
    assert_eq!(third.target("settings", "east").unwrap().change(), Change::Configured);
}

/// D6, D16, case 23: nothing is declared, and each part still comes after what it needs.
#[tokio::test]
async fn namespace_definition_and_what_needs_them_come_in_one_design() {
    let pair = Pair::shared().await;
    let group = format!("g{}.example", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let namespace = format!("whole-{}", &group[..9]);
    let definition = format!(
        "{{spec: {{group: {group}, scope: Namespaced, names: {{plural: gadgets, singular: gadget, kind: Gadget}}, versions: \
         [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, \
         x-kubernetes-preserve-unknown-fields: true}}}}}}]}}}}"
    );
    // The parts stand in the order that would fail.
    let design = Design::new()
        .component(
            "one",
            (&format!("{group}/v1"), "Gadget"),
            &[],
            &format!("{{metadata: {{namespace: {namespace}}}, spec: {{size: 3}}}}"),
        )
        .config_map("settings", &namespace, &["one"])
        .component(
            &format!("gadgets.{group}"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            &[],
            &definition,
        )
        .component(&namespace, ("v1", "Namespace"), &[], "{}")
        .drawing("a note");
    let client = pair.client().await;
    let request = client::deploy(design.text(), &["east", "west"]);
    let plan = client.plan(request.clone()).await.unwrap();
    assert_eq!(plan.header.set_aside.len(), 1);

    let outcome = client.run(request.clone(), vec![]).await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    assert_eq!(outcome.results.len(), 4);
    for cluster in [pair.world.east(), pair.world.west()] {
        let client = cluster.client().await.unwrap();
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v1", "Gadget"), "gadgets");
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kind);
        assert_eq!(api.get("one").await.unwrap().data["spec"]["size"], 3);
        assert!(Api::<Namespace>::all(client).get_opt(&namespace).await.unwrap().is_some());
    }
    let again = client.run(request, vec![]).await.unwrap();
    assert!(again.targets().all(|target| target.change() == Change::Unchanged), "{:#?}", again.summary);
}

/// S11, S12, S14, S16: end condition 3 of the first issue.
#[tokio::test]
async fn failure_in_the_middle_holds_back_its_dependents_on_both_clusters_and_nobody_else() {
    let pair = Pair::shared().await;
    let [east, west] = [pair.world.east(), pair.world.west()];
    let namespace = east.namespace_for("middle").await.unwrap();
    // The audit logs are those of all tests, so the names must be this test's own.
    let tag = uuid::Uuid::new_v4().simple().to_string();
    let [api, web, jobs] = ["api", "web", "jobs"].map(|name| format!("{name}-{tag}"));
    let [api, web, jobs] = [api.as_str(), web.as_str(), jobs.as_str()];
    // On one cluster only the namespace is missing: there everything in it fails by itself.
    let design = Design::new()
        .config_map("cache", "default", &[])
        .component("db", CONFIG_MAP, &["cache"], &format!("{{metadata: {{namespace: {namespace}}}, data: {{a: b}}}}"))
        .config_map(api, "default", &["db"])
        .config_map(web, "default", &[api])
        .config_map(jobs, "default", &["cache"])
        .component("broken", CONFIG_MAP, &[], REFUSED);
    let client = pair.client().await;
    let outcome = client.run(client::deploy(design.text(), &["east", "west"]), vec![]).await.unwrap();
    let outcomes = outcome.outcomes();
    for (name, wanted) in [
        ("cache", Outcome::Succeeded),
        (jobs, Outcome::Succeeded),
        ("db", Outcome::Failed),
        (api, Outcome::Withheld),
        (web, Outcome::Withheld),
        ("broken", Outcome::Failed),
    ] {
        assert_eq!(outcomes[name], wanted, "{name}");
    }
    assert_eq!(outcome.target("db", "east").unwrap().outcome(), Outcome::Succeeded);
    let failure = outcome.target("db", "west").unwrap().error.clone().unwrap();
    assert_eq!(failure.reason, "NAMESPACE_NOT_FOUND");
    assert!(failure.message.contains(&namespace) && failure.message.contains("west"), "{}", failure.message);
    let withheld = outcome.result(web).unwrap().withheld.clone().unwrap();
    assert_eq!((withheld.component.as_str(), withheld.root_component.as_str()), (api, "db"));
    assert_eq!(withheld.root_error.unwrap().reason, "NAMESPACE_NOT_FOUND");
    assert_eq!(outcome.verdict(), Verdict::Partial);
    assert_eq!(outcome.summary.rows.len(), 6);
    let row = outcome.summary.rows.iter().find(|row| row.component == web).unwrap();
    // Case 272: it was fulfilled nowhere.
    assert_eq!(row.fulfilled_by, [] as [&str; 0]);
    assert!(row.because.contains(api) && row.because.contains("db"), "{}", row.because);
    for cluster in [east, west] {
        let events = cluster.audit().unwrap();
        let written = |name: &str| {
            events.iter().any(|event| {
                event.is_write()
                    && event
                        .object
                        .as_ref()
                        .is_some_and(|object| object.name == name && object.resource == "configmaps")
            })
        };
        assert!(written(jobs) && !written(api) && !written(web), "on {}", cluster.name());
    }
}

/// S17: end condition 5 of the first issue.
#[tokio::test]
async fn wrong_token_for_one_cluster_stops_the_run_before_the_other_is_touched() {
    let pair = Pair::shared().await;
    let name = format!("untouched-{}", uuid::Uuid::new_v4().simple());
    let design = Design::new().config_map(&name, "default", &[]);
    let access = vec![client::kubeconfig("west", pair.world.west().kubeconfig_wrong_token().to_string())];
    let status = pair.client().await.run(client::deploy(design.text(), &["east", "west"]), access).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    let details = tonic_types::StatusExt::get_error_details(&status);
    assert_eq!(details.error_info().unwrap().reason, "CLUSTER_UNUSABLE");
    let violations = &details.precondition_failure().unwrap().violations;
    assert_eq!(violations.len(), 1);
    assert_eq!(violations[0].subject, "west");
    assert!(violations[0].description.contains("does not accept the credentials"), "{}", violations[0].description);
    for cluster in [pair.world.east(), pair.world.west()] {
        let events = cluster.audit().unwrap();
        assert!(!events.iter().any(|event| event.uri.contains(&name)), "on {}", cluster.name());
    }
}

/// S10: end condition 4 of the first issue.
#[tokio::test]
async fn five_mistakes_are_named_at_once_and_no_cluster_hears_of_them() {
    let pair = Pair::shared().await;
    let marker = format!("mistaken-{}", uuid::Uuid::new_v4().simple());
    let design = Design::new()
        .config_map(&marker, "default", &[])
        .config_map("unknown", "default", &["nobody"])
        .config_map("left", "default", &["right"])
        .config_map("right", "default", &["left"])
        .config_map("twin", "default", &[])
        .component("twin", ("v1", "ConfigMap"), &[], "{metadata: {namespace: default}, data: {colour: red}}")
        .component("bare", ("v1", "''"), &[], "{}");
    let text = format!(
        "{}  - displayName: stringy\n    id: 0c0e9bd2-0000-4000-8000-000000000001\n    component: {{version: v1, kind: ConfigMap}}\n    modelReference: {{name: kubernetes}}\n    metadata: {{dependsOn: left}}\n",
        design.text().replace("relationships: []\n", "")
    );
    let status = pair.client().await.plan(client::deploy(text, &["east"])).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    let details = tonic_types::StatusExt::get_error_details(&status);
    assert_eq!(details.error_info().unwrap().reason, "DESIGN_INVALID");
    let violations = &details.bad_request().unwrap().field_violations;
    let told: Vec<_> =
        violations.iter().map(|violation| format!("{}: {}", violation.field, violation.description)).collect();
    let told = told.join("\n");
    for wanted in ["nobody", "left → right → left", "twin", "bare", "stringy"] {
        assert!(told.contains(wanted), "{wanted} is not named:\n{told}");
    }
    assert!(violations.iter().all(|violation| violation.field.starts_with("components[")), "{told}");
    assert!(violations.iter().all(|violation| violation.description.contains("line ")), "{told}");
    assert!(status.message().len() < 1024);
    let events = pair.world.east().audit().unwrap();
    assert!(!events.iter().any(|event| event.uri.contains(&marker)));
}
