//! L6: what a design no longer has is told, or removed when that is asked for.

use http::Method;
use serde_json::{Value, json};
use switchyard_proto::v1::{Change, LeftOver, Outcome, Prune, Verdict, execute_response::Event, plan_step::Route};
use switchyard_tests::{
    client,
    fault::{Canned, Fault, Rule},
    plan::Draft,
};

use super::stage::Stage;

/// A design whose components can be dropped.
struct Design {
    stage: Stage,
    id: String,
}

impl Design {
    async fn new(test: &str) -> Self {
        let stage = Stage::set_with(test, &[]).await;
        let id = format!("{}-design", stage.namespace);
        Self { stage, id }
    }

    /// A plan with these ConfigMaps, each of which depends on the one before.
    fn chain(&self, names: &[&str]) -> Draft {
        self.add(Draft::on(&["east"]).design(&self.id), names)
    }

    fn add(&self, draft: Draft, names: &[&str]) -> Draft {
        let mut before: Option<&str> = None;
        names.iter().fold(draft, |draft, name| {
            let object = self.marked(self.stage.config_map(name), name);
            draft.apply(name, before.replace(name).as_slice(), &object)
        })
    }

    fn marked(&self, mut object: Value, component: &str) -> Value {
        object["metadata"]["labels"]["design.meshery.io/id"] = json!(self.id);
        object["metadata"]["annotations"]["component.meshery.io/id"] = json!(component);
        object
    }

    async fn run(&self, draft: Draft) -> client::Outcome {
        self.stage.east.forget();
        self.stage.run(&draft).await
    }

    async fn has(&self, name: &str) -> bool {
        self.stage.object("v1/configmaps", name).await.is_some()
    }

    /// Names of objects in the order in which their DELETEs came.
    fn deleted(&self) -> Vec<String> {
        let seen = self.stage.east.seen().into_iter().filter(|seen| seen.method == Method::DELETE);
        seen.map(|seen| seen.path.rsplit('/').next().unwrap().to_owned()).collect()
    }
}

fn pruned(draft: Draft) -> Draft {
    draft.options(|options| options.set_prune(Prune::Delete))
}

fn left_overs(outcome: &client::Outcome) -> Vec<LeftOver> {
    let left_over = |event: &switchyard_proto::v1::ExecuteResponse| match &event.event {
        Some(Event::LeftOver(left_over)) => Some(left_over.clone()),
        _ => None,
    };
    outcome.events.iter().filter_map(left_over).collect()
}

/// Names, outcomes and changes.
fn told(outcome: &client::Outcome) -> Vec<(String, Outcome, Change)> {
    let left_overs = left_overs(outcome);
    assert_eq!(outcome.summary.left_overs as usize, left_overs.len());
    assert!(left_overs.iter().all(|it| it.cluster == "east" && !it.object.as_ref().unwrap().uid.is_empty()));
    left_overs.iter().map(|it| (it.object.as_ref().unwrap().name.clone(), it.outcome(), it.change())).collect()
}

#[tokio::test]
async fn what_the_plan_no_longer_has_is_told_and_stays() {
    let design = Design::new("left-over").await;
    assert_eq!(told(&design.run(design.chain(&["a", "b"])).await), []);
    // An object of the same name in another kind is another object, and one of others is none of ours.
    let other = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": design.stage.namespace},
    });
    design
        .stage
        .create(design.stage.world.east(), &design.stage.path("v1/configmaps", "x").replace("/x", ""), &other)
        .await;
    let outcome = design.run(design.chain(&["a"])).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    assert_eq!(told(&outcome), [("b".to_owned(), Outcome::Unspecified, Change::Unspecified)]);
    assert_eq!(left_overs(&outcome)[0].component_id, "b");
    assert!(design.has("b").await && design.deleted().is_empty());
    // It is told again, for as long as it is there, and not at all when that is not wanted.
    assert_eq!(told(&design.run(design.chain(&["a"])).await).len(), 1);
    let never = design.chain(&["a"]).options(|options| options.set_prune(Prune::Never));
    assert_eq!(told(&design.run(never).await), []);
}

#[tokio::test]
async fn what_the_plan_no_longer_has_is_removed_dependents_first_when_that_is_asked_for() {
    let design = Design::new("pruned").await;
    design.run(design.chain(&["a", "b", "c", "d"])).await;
    let annotations = design.stage.object("v1/configmaps", "c").await.unwrap()["metadata"]["annotations"].clone();
    assert_eq!(annotations["switchyard.dev/depends-on"], "b");
    let outcome = design.run(pruned(design.chain(&["a"]))).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", left_overs(&outcome));
    let wanted = ["d", "c", "b"].map(|name| (name.to_owned(), Outcome::Succeeded, Change::Removed));
    assert_eq!(told(&outcome), wanted);
    assert_eq!(design.deleted(), ["d", "c", "b"]);
    assert!(design.has("a").await && !design.has("b").await);
    assert_eq!(told(&design.run(pruned(design.chain(&["a"]))).await), []);
}

/// A kind that the plan has no more is known from the Lease.
#[tokio::test]
async fn objects_of_kinds_that_the_plan_has_no_more_are_found() {
    let design = Design::new("kinds").await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret", "namespace": design.stage.namespace},
        "stringData": {"key": "canary"},
    });
    let both = design.chain(&["a"]).apply("secret", &[], &design.marked(secret, "secret"));
    design.run(both).await;
    let outcome = design.run(pruned(design.chain(&["a"]))).await;
    assert_eq!(told(&outcome), [("secret".to_owned(), Outcome::Succeeded, Change::Removed)]);
    assert!(design.stage.object("v1/secrets", "secret").await.is_none());
}

#[tokio::test]
async fn more_than_may_go_stay_all_of_them() {
    let design = Design::new("at-most").await;
    design.run(design.chain(&["a", "b", "c", "d"])).await;
    let at_most = |most: u32| pruned(design.chain(&["a"])).options(|options| options.prune_at_most = most);
    let outcome = design.run(at_most(2)).await;
    assert_eq!(outcome.verdict(), Verdict::Partial);
    let wanted = ["b", "c", "d"].map(|name| (name.to_owned(), Outcome::Cancelled, Change::Unspecified));
    assert_eq!(told(&outcome), wanted);
    let error = left_overs(&outcome)[0].error.clone().unwrap();
    assert!(error.message.contains("3 objects would be removed, and `prune_at_most` is 2"), "{error:?}");
    assert!(design.deleted().is_empty());
    assert_eq!(design.run(at_most(3)).await.verdict(), Verdict::Succeeded);
}

#[tokio::test]
async fn nothing_is_removed_unless_every_component_succeeded() {
    let design = Design::new("failed").await;
    design.run(design.chain(&["a", "b"])).await;
    let mut wrong = design.stage.config_map("wrong");
    wrong["data"] = json!({"no such key!": "x"});
    let draft = pruned(design.chain(&["a"])).apply("wrong", &[], &design.marked(wrong, "wrong"));
    let outcome = design.run(draft).await;
    assert_eq!(told(&outcome), [("b".to_owned(), Outcome::Cancelled, Change::Unspecified)]);
    assert_eq!(outcome.verdict(), Verdict::Partial);
    assert!(design.has("b").await);
}

/// What something that could not be removed may need stays too.
#[tokio::test]
async fn what_cannot_be_removed_is_told_and_holds_back_what_it_depends_on() {
    let design = Design::new("stuck").await;
    design.run(design.chain(&["a", "b", "c"])).await;
    let forbidden = Canned::refusal(403, "Forbidden", "configmaps is forbidden", Value::Null);
    design.stage.east.add(Rule::delete("/c", Fault::Answer(forbidden)));
    let outcome = design.run(pruned(design.chain(&["a"]))).await;
    let unspecified = Change::Unspecified;
    let wanted = [("c".to_owned(), Outcome::Failed, unspecified), ("b".to_owned(), Outcome::Cancelled, unspecified)];
    assert_eq!(told(&outcome), wanted);
    assert_eq!(outcome.verdict(), Verdict::Partial);
    assert_eq!(left_overs(&outcome)[0].error.as_ref().unwrap().reason, "FORBIDDEN");
    assert!(design.has("b").await);
}

/// What carries the mark and was not applied from here is told and left, and so is what another design has taken.
#[tokio::test]
async fn what_others_have_applied_or_taken_is_left() {
    let design = Design::new("of-others").await;
    design.run(design.chain(&["a", "taken"])).await;
    let made = design.marked(design.stage.config_map("made"), "made");
    let path = design.stage.path("v1/configmaps", "made");
    design.stage.apply_as("adapter", &path, &made).await;
    let mut taken = design.stage.config_map("taken");
    taken["metadata"]["labels"] = json!({"design.meshery.io/id": "another"});
    design.stage.seize_as("switchyard/another", &design.stage.path("v1/configmaps", "taken"), &taken).await;
    let outcome = design.run(pruned(design.chain(&["a"]))).await;
    assert_eq!(told(&outcome), [("made".to_owned(), Outcome::Unspecified, Change::Unspecified)]);
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    assert!(design.has("made").await && design.has("taken").await);
}

/// An undeploy removes what earlier versions had as well when that is asked for; else the Lease stays and knows of it.
#[tokio::test]
async fn undeploy_tells_what_earlier_versions_left_and_removes_it_when_asked() {
    let design = Design::new("down").await;
    design.run(design.chain(&["a", "b"])).await;
    let down = design.chain(&["a"]).undeploy();
    let outcome = design.run(down.clone()).await;
    assert_eq!(told(&outcome), [("b".to_owned(), Outcome::Unspecified, Change::Unspecified)]);
    assert!(design.has("b").await);
    let outcome = design.run(pruned(down)).await;
    assert_eq!(told(&outcome), [("b".to_owned(), Outcome::Succeeded, Change::Removed)]);
    assert!(!design.has("b").await);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let leases = design.stage.read(design.stage.world.east(), leases).await.unwrap();
    let is_its = |lease: &Value| {
        let purpose = lease["metadata"]["annotations"]["switchyard.meshery.io/purpose"].as_str().unwrap_or_default();
        purpose.contains(&design.id)
    };
    assert!(!leases["items"].as_array().unwrap().iter().any(is_its), "with the last object goes the Lease");
}

/// A component that was renamed is left over under its old name; one that moved between the paths is not.
#[tokio::test]
async fn renamed_component_is_left_over_under_its_old_name() {
    let design = Design::new("renamed").await;
    design.run(design.chain(&["old"])).await;
    let mut renamed = design.chain(&["new"]).seal();
    for step in &mut renamed.steps {
        step.id = "old".into();
        assert!(matches!(step.route, Some(Route::Direct(_))));
    }
    let access = design.stage.access().into_iter().filter(|access| access.name == "east").collect();
    let outcome = design.stage.client.execute(renamed.resealed(), access).await.unwrap().finish().await.unwrap();
    assert_eq!(told(&outcome), [("old".to_owned(), Outcome::Unspecified, Change::Unspecified)]);
}
