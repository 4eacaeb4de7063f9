//! Charts on the way down (D17, case 107).

use switchyard_proto::v1::{Change, Outcome, Verdict};

use super::*;

fn removing(request: &PlanRequest) -> PlanRequest {
    with(undeploy(request), RunOptions { remove_dependencies: true, ..RunOptions::default() })
}

/// Case 107: releases stay unless asked, and that is said.
#[tokio::test]
async fn undeploy_leaves_charts_installed_and_says_so() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_stay").await;
    let name = unique("stays");
    let url = stand.registry.push(&Chart::new(&name).config_map("settings", "a")).await.unwrap();
    let design = Design::new().needs("m", "a", &namespace, &[]).needs("m", "b", &namespace, &[]);
    let request = deploy(&design, &BOTH, &[("m", &url, "")]);
    stand.run(request.clone()).await;
    let outcome = stand.run(undeploy(&request)).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    for component in ["a", "b"] {
        for cluster in BOTH {
            let left = need(&outcome, component, cluster);
            assert_eq!((left.outcome(), left.change()), (Outcome::Succeeded, Change::Unchanged), "{left:#?}");
            assert!(left.note.starts_with(&format!("left installed: release {name}")), "{}", left.note);
            assert_eq!(left.release, name);
        }
    }
    for cluster in stand.clusters() {
        assert_eq!(releases(cluster, &namespace).await, [one(&name, 1, "deployed")]);
        assert!(get(cluster, &namespace, "settings").await.is_some());
    }
}

/// D17: removed when asked, after the last component that needs it.
#[tokio::test]
async fn undeploy_removes_a_chart_when_asked_after_the_last_that_needs_it() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_go").await;
    let name = unique("goes");
    let url = stand.registry.push(&Chart::new(&name).config_map("settings", "a")).await.unwrap();
    let design = Design::new().needs("m", "a", &namespace, &[]).needs("m", "b", &namespace, &["a"]);
    let request = deploy(&design, &["east"], &[("m", &url, "")]);
    stand.run(request.clone()).await;

    let dry = stand.run(PlanRequest { dry_run: true, ..removing(&request) }).await;
    assert_eq!(need(&dry, "a", "east").change(), Change::Removed);
    let east = stand.pair.world.east();
    assert_eq!(releases(east, &namespace).await, [one(&name, 1, "deployed")]);

    let outcome = stand.run(removing(&request)).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    // `b` depends on `a`, so it goes first.
    let needed = need(&outcome, "b", "east");
    assert_eq!(needed.change(), Change::Unchanged);
    assert!(needed.note.ends_with("still needed by a"), "{}", needed.note);
    let gone = need(&outcome, "a", "east");
    assert_eq!((gone.outcome(), gone.change(), gone.release.as_str()), (Outcome::Succeeded, Change::Removed, &*name));
    // Case 271: on the way down too.
    for row in &outcome.summary.rows {
        assert_eq!(row.prerequisites, outcome.result(&row.component).unwrap().prerequisites);
        assert_eq!(row.prerequisites.len(), 1);
    }
    assert_eq!(releases(east, &namespace).await, []);
    assert!(get(east, &namespace, "settings").await.is_none());
}

/// Case 342: definitions that are a release's own go with it, and what others have of their kinds would go with them.
#[tokio::test]
async fn release_stays_while_its_definitions_hold_objects_of_others() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_foreign").await;
    let (name, group) = (unique("operator"), format!("{}.example", unique("g")));
    let url = stand.registry.push(&Chart::new(&name).widgets_of_the_release(&group)).await.unwrap();
    let without = Chart::new(&name).version("1.1.0").config_map("settings", "a");
    stand.registry.push(&without).await.unwrap();
    let kind = format!("{group}/v1");
    let widget = format!("{{metadata: {{namespace: {namespace}}}}}");
    let design = Design::new().of_model("m", "mine", (&kind, "Widget"), &[], &widget);
    let request = deploy(&design, &["east"], &[("m", &url, "1.0.0")]);
    let outcome = stand.run(request.clone()).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    let other = Design::new().component("theirs", (&kind, "Widget"), &[], &widget);
    let outcome = stand.run(client::deploy(other.text(), &["east"])).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);

    let east = stand.pair.world.east();
    let kept = |outcome: &client::Outcome| {
        let (reason, message) = failure(outcome, "mine");
        assert_eq!(reason, "FOREIGN_CONTENTS", "{message}");
        assert!(message.contains(&format!("{namespace}/theirs")) && message.contains("delete_foreign"), "{message}");
    };
    // An upgrade that leaves the definition out would do the same.
    let upgrade = deploy(&design, &["east"], &[("m", &url, "1.1.0")]);
    let options = RunOptions { upgrade_dependencies: true, ..RunOptions::default() };
    kept(&stand.run(with(upgrade, options)).await);
    kept(&stand.run(PlanRequest { dry_run: true, ..removing(&request) }).await);
    kept(&stand.run(removing(&request)).await);
    assert_eq!(releases(east, &namespace).await, [one(&name, 1, "deployed")]);
    let outcome = stand.run(undeploy(&client::deploy(other.text(), &["east"]))).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "it is still there: {:#?}", outcome.summary);

    stand.run(client::deploy(other.text(), &["east"])).await;
    let options = RunOptions { remove_dependencies: true, delete_foreign: true, ..RunOptions::default() };
    let outcome = stand.run(undeploy(&with(request, options))).await;
    assert_eq!(need(&outcome, "mine", "east").change(), Change::Removed, "{outcome:#?}");
    assert_eq!(releases(east, &namespace).await, []);
}

/// D17: what could not be removed goes on needing its chart.
#[tokio::test]
async fn chart_stays_while_a_component_that_needs_it_is_still_there() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_needed").await;
    let name = unique("needed");
    let url = stand.registry.push(&Chart::new(&name).config_map("settings", "a")).await.unwrap();
    // Without our mark, so that undeploy refuses to delete it.
    let client = stand.pair.world.east().client().await.unwrap();
    let metadata = ObjectMeta { name: Some("foreign".into()), ..ObjectMeta::default() };
    let object = ConfigMap { metadata, ..ConfigMap::default() };
    let design = Design::new().needs("m", "a", &namespace, &[]);
    let request = deploy(&design, &["east"], &[("m", &url, "")]);
    stand.run(request.clone()).await;
    Api::<ConfigMap>::namespaced(client, &namespace).create(&PostParams::default(), &object).await.unwrap();
    let both = design.needs("m", "foreign", &namespace, &[]);
    let request = deploy(&both, &["east"], &[("m", &url, "")]);
    let outcome = stand.run(removing(&request)).await;
    assert_eq!(outcome.outcomes()["foreign"], Outcome::Failed);
    assert!(need(&outcome, "a", "east").note.ends_with("still needed by foreign"));
    assert!(outcome.result("foreign").unwrap().prerequisites.is_empty());
    assert_eq!(releases(stand.pair.world.east(), &namespace).await, [one(&name, 1, "deployed")]);
}
