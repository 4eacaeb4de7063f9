//! What helm refuses, cannot end or finds in its way: told, and nothing is withheld for it.

use std::collections::HashMap;

use switchyard_proto::v1::{Outcome, Verdict};

use super::{install::install_by_hand, *};

/// Case 105: a failed install withholds nothing; and where the component fails for it, both are told.
#[tokio::test]
async fn failure_of_what_is_needed_withholds_nothing() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_fail").await;
    let host = stand.host().await;
    let missing = host.url("missing-1.0.0.tgz");
    let kind = format!("{}.example/v1", unique("g"));
    let widget = format!("{{metadata: {{namespace: {namespace}}}}}");
    let design = Design::new()
        .needs("m", "a", &namespace, &[])
        .config_map("b", &namespace, &["a"])
        .of_model("m", "widget", (&kind, "Widget"), &[], &widget)
        .config_map("follower", &namespace, &["widget"]);
    let outcome = stand.run(deploy(&design, &["east"], &[("m", &missing, "")])).await;
    let (reason, message) = failure(&outcome, "a");
    assert_eq!(reason, "CHART_UNFETCHABLE");
    assert!(message.contains(&missing) && message.contains("404"), "{message}");
    let outcomes = outcome.outcomes();
    let wanted = HashMap::from([
        ("a", Outcome::Succeeded),
        ("b", Outcome::Succeeded),
        ("widget", Outcome::Failed),
        ("follower", Outcome::Withheld),
    ]);
    assert_eq!(outcomes.into_iter().collect::<HashMap<_, _>>(), wanted);
    let target = outcome.target("widget", "east").unwrap();
    assert_eq!(target.error.as_ref().unwrap().reason, "KIND_UNKNOWN");
    assert_eq!(failure(&outcome, "widget").0, "CHART_UNFETCHABLE");
    let row = outcome.summary.rows.iter().find(|row| row.component == "widget").unwrap();
    assert!(row.because.contains("does not serve kind Widget") && row.because.contains("404"), "{}", row.because);
    assert_eq!(outcome.result("follower").unwrap().withheld.as_ref().unwrap().component, "widget");
}

/// S19: where helm is absent, that is the reason.
#[tokio::test]
async fn helm_that_is_not_there_is_the_reason() {
    // It is there when the executor starts, which refuses to start otherwise, and not any more when it is needed.
    let folder = Folder::new("no-helm").unwrap();
    let helm = folder.path().join("helm");
    std::fs::copy(real_helm().await, &helm).unwrap();
    let stand = Stand::with_helm(helm.to_str().unwrap()).await;
    std::fs::remove_file(&helm).unwrap();
    let namespace = namespace("charts_no_helm").await;
    let design = Design::new().needs("m", "component", &namespace, &[]);
    let request = deploy(&design, &["east"], &[("m", "oci://127.0.0.1:1/x", "1.0.0")]);
    let outcome = stand.run(request.clone()).await;
    let (reason, message) = failure(&outcome, "component");
    assert_eq!(reason, "HELM_MISSING");
    assert!(message.contains(helm.to_str().unwrap()), "{message}");
    assert_eq!(outcome.verdict(), Verdict::Succeeded);

    let pair = Pair::shared().await;
    let without = Stand::executor(pair, &stand.folder, &stand.authority).await.unwrap();
    let without = without.env("PATH", "/nowhere").start().await.unwrap();
    let client = Client::connect(&pair.planner.url(), &without.url()).await.unwrap();
    let outcome = client.run(request, vec![]).await.unwrap();
    let (reason, message) = failure(&outcome, "component");
    assert_eq!(reason, "HELM_MISSING");
    assert!(message.contains("no program `helm` on PATH"), "{message}");
}

/// Case 103: a hook that never ends ends with the time, the component is applied, and the next try is not in its own way.
#[tokio::test]
async fn hook_that_never_ends_is_bounded_and_does_not_block_the_next_try() {
    // One of its own, so that nobody else's charts take its time.
    let stand = Stand::with_helm(real_helm().await.to_str().unwrap()).await;
    let namespace = namespace("charts_hook").await;
    let (name, group) = (unique("hook"), format!("{}.example", unique("g")));
    // The kind is there after the first try, which does not make up for the rest of the chart.
    let url = stand.registry.push(&Chart::new(&name).endless_hook().widgets(&group)).await.unwrap();
    let widget = format!("{{metadata: {{namespace: {namespace}}}}}");
    let design = Design::new().of_model("m", "a", (&format!("{group}/v1"), "Widget"), &[], &widget);
    let design = design.config_map("b", &namespace, &["a"]);
    let request = within(deploy(&design, &["east"], &[("m", &url, "")]), 10);
    let east = stand.pair.world.east();
    for revision in 1..=2 {
        let outcome = stand.run(request.clone()).await;
        assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
        let (reason, message) = failure(&outcome, "a");
        assert_eq!(reason, "CHART_FAILED");
        // Helm's own word for it is "failed pre-install"; on a busy machine the bound may come first.
        assert!(message.contains(&format!("{name}-1.0.0 was not installed")), "{message}");
        assert_eq!(need(&outcome, "a", "east").release, name);
        assert_eq!(releases(east, &namespace).await.last(), Some(&one(&name, revision, "failed")));
    }
}

/// Case 97: whoever cancels in the middle of an install leaves a release behind that is failed, and not one that is pending.
#[tokio::test]
async fn cancelled_install_leaves_a_failed_release() {
    let stand = Stand::shared().await;
    let Hanging { mut execution, namespace, release } = Hanging::begin(stand, "charts_cancel").await;
    let east = stand.pair.world.east();
    execution.cancel("enough").await;
    let outcome = execution.finish().await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Cancelled);
    let (reason, message) = failure(&outcome, "a");
    assert_eq!(reason, "CANCELLED", "{message}");
    assert_eq!(outcome.outcomes().into_values().collect::<Vec<_>>(), [Outcome::Cancelled; 2]);
    assert_eq!(releases(east, &namespace).await, [one(&release, 1, "failed")]);
    assert!(get(east, &namespace, "a").await.is_none(), "it was not applied");
}

/// Cases 97, 118: so does an executor that goes down in the middle of an install.
#[tokio::test]
async fn executor_that_drains_leaves_a_failed_release() {
    let stand = Stand::with_helm(real_helm().await.to_str().unwrap()).await;
    let Hanging { execution, namespace, release } = Hanging::begin(&stand, "charts_drain").await;
    let (outcome, (status, log)) = tokio::join!(execution.finish(), stand.executor.stop());
    assert!(status.success(), "{log}");
    assert_eq!(outcome.unwrap().verdict(), Verdict::Cancelled);
    assert_eq!(releases(stand.pair.world.east(), &namespace).await, [one(&release, 1, "failed")]);
}

/// Case 97: a release that is pending is told, with what to do about it.
#[tokio::test]
async fn pending_release_is_told_and_left_alone() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_pending").await;
    let name = unique("pending");
    let chart = Chart::new(&name).endless_hook();
    let url = stand.registry.push(&chart).await.unwrap();
    let (mut child, _files) = install_by_hand(stand, &chart, &namespace, &[]).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let design = Design::new().needs("m", "a", &namespace, &[]);
    let outcome = stand.run(deploy(&design, &["east"], &[("m", &url, "")])).await;
    let (reason, message) = failure(&outcome, "a");
    assert_eq!(reason, "CHART_PENDING");
    let advice = format!("helm uninstall {name} --namespace {namespace}");
    assert!(message.contains("is pending-install") && message.contains(&advice), "{message}");
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    assert_eq!(releases(stand.pair.world.east(), &namespace).await, [one(&name, 1, "pending-install")]);
}

/// Case 100: objects that are not helm's are not taken over.
#[tokio::test]
async fn objects_that_are_there_without_helms_marks_are_not_taken_over() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_there").await;
    let first = Design::new().config_map("settings", &namespace, &[]);
    stand.run(client::deploy(first.text(), &["east"])).await;
    let url = stand.registry.push(&Chart::new(&unique("there")).config_map("settings", "a")).await.unwrap();
    let design = Design::new().needs("m", "a", &namespace, &[]);
    let outcome = stand.run(deploy(&design, &["east"], &[("m", &url, "")])).await;
    let (reason, message) = failure(&outcome, "a");
    assert_eq!(reason, "CHART_CONFLICT");
    assert!(message.contains("ConfigMap \"settings\"") && message.contains("belongs to no release"), "{message}");
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    let settings = get(stand.pair.world.east(), &namespace, "settings").await.unwrap();
    assert_eq!(settings.data.unwrap()["colour"], "blue");
    assert!(settings.metadata.annotations.unwrap().keys().all(|key| !key.starts_with("meta.helm.sh/")));
}

/// Case 98: a chart whose record has no room in an object.
#[tokio::test]
async fn record_that_is_too_large_is_told() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_record").await;
    // What does not compress: the record is compressed too.
    let noise: Vec<u8> = (0..90_000).flat_map(|_| Uuid::new_v4().into_bytes()).collect();
    let chart = Chart::new(&unique("large")).file("noise", noise).config_map("settings", "a");
    let url = stand.registry.push(&chart).await.unwrap();
    let design = Design::new().needs("m", "a", &namespace, &[]);
    let outcome = stand.run(deploy(&design, &["east"], &[("m", &url, "")])).await;
    let (reason, message) = failure(&outcome, "a");
    assert_eq!(reason, "CHART_FAILED");
    assert!(message.contains("Too long"), "{message}");
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
}
