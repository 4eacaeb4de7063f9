//! Asking what would happen (S22, D20, D21): every component answered, nothing changed anywhere.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::ListParams};
use switchyard_proto::v1::{Change, Operation, Outcome, PlanRequest};
use switchyard_tests::{client, sandbox::Cluster};

use crate::{design::Design, pair::Pair};

fn dry(design: &Design, clusters: &[&str]) -> PlanRequest {
    PlanRequest { dry_run: true, ..client::deploy(design.text(), clusters) }
}

fn definition(group: &str) -> String {
    format!(
        "{{spec: {{group: {group}, scope: Namespaced, names: {{plural: gadgets, singular: gadget, kind: Gadget}}, versions: \
         [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, \
         x-kubernetes-preserve-unknown-fields: true}}}}}}]}}}}"
    )
}

/// D20, cases 77, 80, 82, 84: three answers, and no write without `dryRun`.
#[tokio::test]
async fn every_component_is_answered_and_nothing_changes() {
    let pair = Pair::shared().await;
    let tag = uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
    let (group, namespace) = (format!("d{tag}.example"), format!("dry-{tag}"));
    let existing = pair.world.east().namespace_for("dry").await.unwrap();
    let client = pair.client().await;
    let before = Design::new().config_map(&format!("kept-{tag}"), &existing, &[]);
    client.run(client::deploy(before.text(), &["east"]), vec![]).await.unwrap();

    let taken = format!("taken-{tag}");
    client
        .run(client::deploy(Design::new().config_map(&taken, "default", &[]).text(), &["east"]), vec![])
        .await
        .unwrap();
    let version = format!("{group}/v1");
    let design = before
        .next_version()
        .component(&namespace, ("v1", "Namespace"), &[], "{}")
        .config_map("inside", &namespace, &[])
        .component(
            &format!("gadgets.{group}"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            &[],
            &definition(&group),
        )
        .component("gadget", (&version, "Gadget"), &[], &format!("{{metadata: {{namespace: {existing}}}}}"))
        .component(
            &format!("kept-{tag}"),
            ("v1", "ConfigMap"),
            &[],
            &format!("{{metadata: {{namespace: {existing}}}, data: {{colour: green}}}}"),
        )
        .component(
            "broken",
            ("v1", "ConfigMap"),
            &[],
            &format!("{{metadata: {{namespace: {existing}}}, data: {{'no such key!': x}}}}"),
        )
        .config_map("behind", &existing, &["broken"])
        .config_map("further", &existing, &["behind"])
        .config_map("nowhere", &format!("typo-{tag}"), &[])
        .component(
            "wrong",
            ("v1", "ConfigMap"),
            &[],
            &format!("{{metadata: {{namespace: {namespace}}}, data: {{'no such key!': x}}}}"),
        )
        .config_map(&taken, &namespace, &[]);
    let versions = stored(pair.world.east(), &existing).await;
    let outcome = client.run(dry(&design, &["east"]), vec![]).await.unwrap();
    assert_eq!(stored(pair.world.east(), &existing).await, versions, "every resource version is as before");
    let outcomes = outcome.outcomes();
    for (name, wanted) in [
        (namespace.as_str(), Outcome::Succeeded),
        ("inside", Outcome::Succeeded),
        ("wrong", Outcome::Failed),
        (taken.as_str(), Outcome::Indeterminate),
        ("gadget", Outcome::Succeeded),
        ("broken", Outcome::Failed),
        ("behind", Outcome::Succeeded),
        ("further", Outcome::Succeeded),
        ("nowhere", Outcome::Failed),
    ] {
        assert_eq!(outcomes[name], wanted, "{name}: {:#?}", outcome.result(name));
    }
    assert_eq!(outcome.results.len(), 11);
    let told = |name: &str| outcome.target(name, "east").unwrap().error.clone().unwrap().message;
    // L11: what comes with its namespace is tried in one that is there, unless another object has its name there.
    let inside = outcome.target("inside", "east").unwrap();
    assert_eq!((inside.change(), &*inside.object.as_ref().unwrap().namespace), (Change::Created, &*namespace));
    assert!(inside.warnings.iter().any(|it| it.contains("tried in namespace default")), "{:?}", inside.warnings);
    assert!(told("wrong").contains("no such key!") && told("wrong").contains("tried in"), "{}", told("wrong"));
    assert!(told(&taken).contains(&format!("created by component {namespace}")), "{}", told(&taken));
    let gadget = outcome.target("gadget", "east").unwrap();
    let checked = format!("as checked against the schema of component gadgets.{group}");
    assert!(gadget.warnings.iter().any(|it| it.starts_with(&checked)), "{:?}", gadget.warnings);
    let held = outcome.result("further").unwrap().would_be_withheld.clone().unwrap();
    assert_eq!((held.component.as_str(), held.root_component.as_str()), ("behind", "broken"));
    assert!(outcome.result("gadget").unwrap().would_be_withheld.is_none());

    let changed = outcome.target(&format!("kept-{tag}"), "east").unwrap();
    assert_eq!(changed.change(), Change::Configured);
    assert!(
        changed
            .diff
            .iter()
            .any(|field| field.path == "data.colour" && field.before == "\"blue\"" && field.after == "\"green\""),
        "{:?}",
        changed.diff
    );
    assert_eq!(outcome.target("behind", "east").unwrap().change(), Change::Created);

    let writes: Vec<_> = pair
        .world
        .east()
        .audit()
        .unwrap()
        .into_iter()
        .filter(|event| event.is_write() && (event.uri.contains(&tag) || event.uri.contains(&existing)))
        .collect();
    assert!(writes.len() >= 4);
    let real: Vec<_> = writes.iter().filter(|event| !event.uri.contains("dryRun=All")).collect();
    // Only what the test itself deployed.
    assert_eq!(real.len(), 2, "{real:#?}");
}

/// L11: objects whose definition comes with the design are told what an API server would say of them, without one; then the API
/// server says the same.
#[tokio::test]
async fn objects_of_a_definition_of_the_design_are_checked_against_its_schema() {
    let pair = Pair::shared().await;
    let tag = uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
    let (group, namespace) = (format!("s{tag}.example"), format!("schema-{tag}"));
    let schema = "{type: object, properties: {spec: {type: object, required: [size], properties: {size: {type: integer, maximum: 9}, \
                  level: {type: integer, default: 3}, tags: {type: array, items: {type: string}, x-kubernetes-list-type: set}}}}}";
    let definition = format!(
        "{{spec: {{group: {group}, scope: Namespaced, names: {{plural: gadgets, singular: gadget, kind: Gadget}}, versions: \
         [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {schema}}}}}]}}}}"
    );
    let defines = format!("gadgets.{group}");
    let mut design = Design::new().component(&namespace, ("v1", "Namespace"), &[], "{}").component(
        &defines,
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        &[],
        &definition,
    );
    let cases = [
        ("fine", "v1", namespace.clone(), "{size: 9, tags: [a, b]}", None),
        ("large", "v1", namespace.clone(), "{size: 10}", Some(("INVALID", "spec.size"))),
        ("missing", "v1", namespace.clone(), "{level: 1}", Some(("INVALID", "size"))),
        ("unknown", "v1", namespace.clone(), "{size: 1, weight: 2}", Some(("INVALID", "weight"))),
        ("typed", "v1", namespace.clone(), "{size: 'canary-9'}", Some(("INVALID", "spec.size"))),
        ("twice", "v1", namespace.clone(), "{size: 1, tags: [a, a]}", Some(("INVALID", "spec.tags"))),
        ("Wrong_Name", "v1", namespace.clone(), "{size: 1}", Some(("INVALID", "metadata.name"))),
        ("elsewhere", "v1", format!("typo-{tag}"), "{size: 1}", Some(("NAMESPACE_NOT_FOUND", "typo"))),
        ("older", "v2", namespace.clone(), "{size: 1}", Some(("KIND_UNKNOWN", "v2"))),
    ];
    for (name, version, namespace, spec, _) in &cases {
        let version = format!("{group}/{version}");
        let configuration = format!("{{metadata: {{namespace: {namespace}}}, spec: {spec}}}");
        design = design.component(name, (&version, "Gadget"), &[&defines], &configuration);
    }
    let client = pair.client().await;

    let asked = client.run(dry(&design, &["east"]), vec![]).await.unwrap();
    let request = client::deploy(design.text(), &["east"]);
    let done = client.run(request, vec![]).await.unwrap();

    for (outcome, is_dry) in [(&asked, true), (&done, false)] {
        for (name, _, _, _, wrong) in &cases {
            let target = outcome.target(name, "east").unwrap();
            let Some((reason, text)) = wrong else {
                assert_eq!((target.outcome(), target.change()), (Outcome::Succeeded, Change::Created), "{target:?}");
                continue;
            };
            let failure = target.error.as_ref().unwrap_or_else(|| panic!("{name} in dry run {is_dry}: {target:?}"));
            assert_eq!((target.outcome(), failure.reason.as_str()), (Outcome::Failed, *reason), "{failure:?}");
            assert!(failure.message.contains(text), "{name}: {}", failure.message);
            assert!(!is_dry || !failure.message.contains("canary"), "{}", failure.message);
        }
    }
    let fine = asked.target("fine", "east").unwrap();
    assert!(fine.warnings[0].starts_with(&format!("as checked against the schema of component {defines}")));
    assert_eq!(fine.object.as_ref().unwrap().namespace, namespace);
}

/// Resource versions of what a namespace holds, by name.
async fn stored(cluster: &Cluster, namespace: &str) -> BTreeMap<String, Option<String>> {
    let client = cluster.client().await.unwrap();
    let api = Api::<ConfigMap>::namespaced(client, namespace);
    let objects = api.list(&ListParams::default()).await.unwrap().items.into_iter();
    objects.map(|object| (object.metadata.name.unwrap(), object.metadata.resource_version)).collect()
}

/// D20, case 79.
#[tokio::test]
async fn undeploy_is_asked_too() {
    let pair = Pair::shared().await;
    let namespace = pair.world.east().namespace_for("dry_undeploy").await.unwrap();
    let design = Design::new().config_map("there", &namespace, &[]);
    let client = pair.client().await;
    client.run(client::deploy(design.text(), &["east"]), vec![]).await.unwrap();
    let request = PlanRequest { operation: Operation::Undeploy.into(), ..dry(&design, &["east"]) };
    let asked = client.run(request.clone(), vec![]).await.unwrap();
    assert_eq!(asked.target("there", "east").unwrap().change(), Change::Removed);
    let again = client.run(request, vec![]).await.unwrap();
    assert_eq!(again.target("there", "east").unwrap().change(), Change::Removed, "it was not removed");
    let absent = Design::new().config_map("not-there", &namespace, &[]);
    let request = PlanRequest { operation: Operation::Undeploy.into(), ..dry(&absent, &["east"]) };
    let absent = client.run(request, vec![]).await.unwrap();
    assert_eq!(absent.target("not-there", "east").unwrap().change(), Change::Absent);
}

/// D25 in a field diff.
#[tokio::test]
async fn secret_values_are_masked_in_what_would_change() {
    let pair = Pair::shared().await;
    let namespace = pair.world.east().namespace_for("dry_secret").await.unwrap();
    let secret = |value: &str| format!("{{metadata: {{namespace: {namespace}}}, stringData: {{key: {value}}}}}");
    let design = Design::new().component("secret", ("v1", "Secret"), &[], &secret("canary-before-1"));
    let client = pair.client().await;
    client.run(client::deploy(design.text(), &["east"]), vec![]).await.unwrap();
    let changed = design.text().replace("canary-before-1", "canary-after-22");
    let request = PlanRequest { dry_run: true, ..client::deploy(changed, &["east"]) };
    let outcome = client.run(request, vec![]).await.unwrap();
    let target = outcome.target("secret", "east").unwrap();
    assert_eq!(target.change(), Change::Configured);
    assert_eq!(target.diff.len(), 1);
    let text = format!("{:?}", outcome.events);
    for value in ["canary", "Y2FuYXJ5"] {
        assert!(!text.contains(value));
    }
}
