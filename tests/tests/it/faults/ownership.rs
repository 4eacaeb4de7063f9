//! Whose an object is (L1, case 208): one field manager a design, and the API server as the judge.

use http::Method;
use serde_json::{Value, json};
use switchyard_proto::v1::{Change, Existing, Outcome};
use switchyard_tests::plan::Draft;

use super::stage::{Stage, assert_applied, assert_failed};

/// Two designs of one test.
struct Two {
    stage: Stage,
    a: String,
    b: String,
}

impl Two {
    async fn designs(test: &str) -> Self {
        let stage = Stage::set(test).await;
        let (a, b) = (format!("{}-a", stage.namespace), format!("{}-b", stage.namespace));
        Self { stage, a, b }
    }

    /// A plan of one component called `it`, which is this object with the marks of the design.
    fn plan(&self, design: &str, object: &Value) -> Draft {
        let mut object = object.clone();
        object["metadata"]["labels"]["design.meshery.io/id"] = json!(design);
        object["metadata"]["annotations"] = json!({
            "design.meshery.io/version": "0.0.1", "component.meshery.io/id": format!("component of {design}"),
        });
        Draft::on(&["east"]).design(design).apply("it", &[], &object)
    }

    fn map(&self, value: &str) -> Value {
        let mut object = self.stage.config_map("map");
        object["data"]["key"] = json!(value);
        object
    }

    async fn map_is_of(&self) -> (String, String) {
        let object = self.stage.object("v1/configmaps", "map").await.unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&object["metadata"]["labels"]["design.meshery.io/id"]), text(&object["data"]["key"]))
    }

    fn patches(&self) -> usize {
        self.stage.east.count(|seen| seen.method == Method::PATCH && !seen.query.contains("dryRun"))
    }
}

fn with(draft: Draft, existing: Existing) -> Draft {
    draft.options(|options| options.set_existing(existing))
}

fn force(draft: Draft) -> Draft {
    draft.options(|options| options.force_conflicts = true)
}

#[track_caller]
fn assert_shared(outcome: &switchyard_tests::client::Outcome, with: &str) {
    assert_applied(outcome, "it", Change::Unchanged);
    assert_eq!(outcome.target("it", "east").unwrap().shared_with, with);
}

/// Case 208: the second design is refused and changes nothing; the first goes on as if it had not been there.
#[tokio::test]
async fn an_object_of_another_design_is_refused_and_left_as_it_is() {
    let two = Two::designs("owned").await;
    let Two { stage, a, b } = &two;
    let (first, second) = (two.plan(a, &two.map("first")), two.plan(b, &two.map("second")));
    assert_applied(&stage.run(&first).await, "it", Change::Created);
    assert_eq!(two.patches(), 1);
    for second in [second.clone(), force(second.clone()), second.clone().dry_run(), with(second, Existing::Share)] {
        let refused = stage.run(&second).await;
        assert_failed(&refused, "it", "OWNED_BY_DESIGN", &[a.as_str(), "EXISTING_TAKE_OVER"]);
        assert_eq!(two.map_is_of().await, (a.clone(), "first".to_owned()));
    }
    assert_applied(&stage.run(&first).await, "it", Change::Unchanged);
    let kept = stage.run(&two.plan(b, &two.map("second")).undeploy()).await;
    assert_failed(&kept, "it", "NOT_OURS", &[a.as_str()]);
    assert_applied(&stage.run(&first.undeploy()).await, "it", Change::Removed);
}

/// L1: the mark decides, whoever wrote it: an adapter writes with a field manager of its own.
#[tokio::test]
async fn an_object_that_an_adapter_made_for_another_design_is_not_forced() {
    let two = Two::designs("of-adapter").await;
    let Two { stage, a, b } = &two;
    let mut object = two.map("first");
    object["metadata"]["labels"] = json!({"design.meshery.io/id": a});
    stage.apply_as("adapter", &stage.path("v1/configmaps", "map"), &object).await;
    let refused = stage.run(&force(two.plan(b, &two.map("second")))).await;
    assert_failed(&refused, "it", "OWNED_BY_DESIGN", &[a.as_str()]);
    assert_eq!(two.map_is_of().await, (a.clone(), "first".to_owned()));
}

/// L1: taking over is said and is complete; fields of others than designs are not taken along unasked.
#[tokio::test]
async fn an_object_is_taken_over_only_when_that_is_asked_for() {
    let two = Two::designs("taken").await;
    let Two { stage, a, b } = &two;
    let first = two.plan(a, &two.map("first"));
    stage.run(&first).await;
    let mut of_person = two.map("first");
    of_person["data"] = json!({"extra": "by hand"});
    stage.apply_as("kubectl", &stage.path("v1/configmaps", "map"), &of_person).await;
    let mut wanted = two.map("second");
    wanted["data"]["extra"] = json!("by design");
    let second = with(two.plan(b, &wanted), Existing::TakeOver);
    assert_failed(&stage.run(&second).await, "it", "CONFLICT", &["kubectl", "force_conflicts"]);
    assert_eq!(two.map_is_of().await.0, *a);

    let taken = stage.run(&force(second)).await;
    assert_applied(&taken, "it", Change::Configured);
    let target = taken.target("it", "east").unwrap();
    assert_eq!(target.attempts, 2);
    assert!(target.warnings.iter().any(|it| it.contains(&format!("design {a} and was taken over"))), "{target:?}");
    assert_eq!(two.map_is_of().await, (b.clone(), "second".to_owned()));
    assert_failed(&stage.run(&first).await, "it", "OWNED_BY_DESIGN", &[b.as_str()]);
    assert_failed(&stage.run(&first.undeploy()).await, "it", "NOT_OURS", &[b.as_str()]);
}

/// L1: many designs bring the namespace that they live in, or a definition that they need.
#[tokio::test]
async fn namespaces_and_definitions_that_are_as_asked_are_shared() {
    let two = Two::designs("shared").await;
    let Two { stage, a, b } = &two;
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": format!("{}-both", stage.namespace), "labels": {"team": "shop"}},
    });
    let group = format!("{}.example.com", stage.namespace);
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}"), "labels": {"team": "shop"}},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    for object in [namespace, definition] {
        assert_applied(&stage.run(&two.plan(a, &object)).await, "it", Change::Created);
        let second = two.plan(b, &object);
        assert_shared(&stage.run(&second).await, a);
        assert_shared(&stage.run(&second.clone().dry_run()).await, a);
        let mut other = object.clone();
        other["metadata"]["labels"]["team"] = json!("another");
        let refused = stage.run(&two.plan(b, &other)).await;
        assert_failed(&refused, "it", "OWNED_BY_DESIGN", &[a.as_str(), "metadata.labels.team"]);
        assert_shared(&stage.run(&second.undeploy()).await, a);
        // Nothing of it was touched.
        let first = stage.run(&two.plan(a, &object)).await;
        assert_applied(&first, "it", Change::Unchanged);
        assert_eq!(first.target("it", "east").unwrap().shared_with, "");
    }
}

/// L1: with EXISTING_SHARE the same holds for every kind.
#[tokio::test]
async fn objects_of_other_designs_can_be_shared() {
    let two = Two::designs("share-all").await;
    let Two { stage, a, b } = &two;
    stage.run(&two.plan(a, &two.map("same"))).await;
    let same = with(two.plan(b, &two.map("same")), Existing::Share);
    assert_shared(&stage.run(&same).await, a);
    let other = with(two.plan(b, &two.map("other")), Existing::Share);
    assert_failed(&stage.run(&other).await, "it", "OWNED_BY_DESIGN", &[a.as_str(), "data.key"]);
    assert_shared(&stage.run(&same.undeploy()).await, a);
    assert_eq!(two.map_is_of().await, (a.clone(), "same".to_owned()));
}

/// L1: what was there before and is nobody's is adopted, which is said once; or refused, if that is wanted.
#[tokio::test]
async fn an_unmarked_object_is_adopted_with_a_warning_or_refused() {
    let two = Two::designs("unmarked").await;
    let Two { stage, a, .. } = &two;
    let path = stage.path("v1/configmaps", "");
    stage.create(stage.world.east(), path.trim_end_matches('/'), &stage.config_map("map")).await;
    let plan = |value: &str| two.plan(a, &two.map(value)).options(|options| options.force_conflicts = true);
    for refusing in [plan("new"), plan("new").dry_run()] {
        let refused = stage.run(&with(refusing, Existing::RefuseUnmarked)).await;
        assert_failed(&refused, "it", "NOT_OURS", &["was there before", "EXISTING_REFUSE"]);
    }
    assert_eq!(stage.east.count(|seen| seen.method == Method::PATCH), 0);

    let warned = |outcome: &switchyard_tests::client::Outcome| {
        let target = outcome.target("it", "east").unwrap();
        assert_eq!(target.outcome(), Outcome::Succeeded, "{target:?}");
        target.warnings.iter().any(|warning| warning.contains("was there before and carried no design's mark"))
    };
    assert!(warned(&stage.run(&plan("new").dry_run()).await));
    let adopted = stage.run(&plan("new")).await;
    assert_applied(&adopted, "it", Change::Configured);
    assert!(warned(&adopted), "{:?}", adopted.results);
    assert!(!warned(&stage.run(&with(plan("newer"), Existing::RefuseUnmarked)).await));
    assert_applied(&stage.run(&plan("newer").undeploy()).await, "it", Change::Removed);
}
