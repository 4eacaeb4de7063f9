//! What counts as a chart that is there, and whose release may be touched (cases 341, 343, 344, 345).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use switchyard_proto::v1::{Change, Outcome, Verdict};
use switchyard_tests::chart;

use super::*;

fn upgrading(request: PlanRequest) -> PlanRequest {
    with(request, RunOptions { upgrade_dependencies: true, ..RunOptions::default() })
}

fn removing(request: &PlanRequest) -> PlanRequest {
    with(undeploy(request), RunOptions { remove_dependencies: true, ..RunOptions::default() })
}

fn widget(model: &str, group: &str, namespace: &str) -> Design {
    let body = format!("{{metadata: {{namespace: {namespace}}}}}");
    Design::new().of_model(model, "widget", (&format!("{group}/v1"), "Widget"), &[], &body)
}

async fn definitions(cluster: &Cluster) -> Api<CustomResourceDefinition> {
    Api::all(cluster.client().await.unwrap())
}

/// Puts a definition onto the cluster that differs from what charts bring.
async fn define(cluster: &Cluster, group: &str) -> CustomResourceDefinition {
    let mut definition = chart::definition(group);
    definition["spec"]["names"]["shortNames"] = json!(["mine"]);
    let name = format!("widgets.{group}");
    let (params, api) = (PatchParams::apply("somebody"), definitions(cluster).await);
    api.patch(&name, &params, &Patch::Apply(&definition)).await.unwrap()
}

/// Cases 101, 341: helm leaves definitions behind when it removes a release, and clusters bring some of their own.
#[tokio::test]
async fn definitions_are_no_proof_of_a_chart() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_again").await;
    let (name, group) = (unique("widgets"), format!("{}.example", unique("g")));
    let url = stand.registry.push(&Chart::new(&name).widgets(&group).config_map("settings", "a")).await.unwrap();
    let request = deploy(&widget("m", &group, &namespace), &["east"], &[("m", &url, "")]);
    for round in 1..=2 {
        let outcome = stand.run(request.clone()).await;
        assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
        let installed = need(&outcome, "widget", "east");
        assert_eq!(installed.change(), Change::Created, "round {round}: {installed:#?}");
        let outcome = stand.run(removing(&request)).await;
        assert_eq!(need(&outcome, "widget", "east").change(), Change::Removed);
        assert!(definitions(stand.pair.world.east()).await.get(&format!("widgets.{group}")).await.is_ok());
    }
}

/// Case 341: what is there of a chart's definitions stays as it is, what is missing is added, and an upgrade goes on from there.
#[tokio::test]
async fn definitions_that_are_there_stay_as_they_are() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_defined").await;
    let (name, group, second) =
        (unique("widgets"), format!("{}.example", unique("g")), format!("{}.example", unique("h")));
    let east = stand.pair.world.east();
    let before = define(east, &group).await;
    let chart = |version: &str, value: &str| {
        let second = chart::definition(&second).to_string();
        let chart = Chart::new(&name).version(version).widgets(&group).file("crds/second.yaml", second);
        chart.config_map("settings", value)
    };
    let url = stand.registry.push(&chart("1.0.0", "old")).await.unwrap();
    stand.registry.push(&chart("1.1.0", "new")).await.unwrap();
    let at = |version| deploy(&widget("m", &group, &namespace), &["east"], &[("m", &url, version)]);
    let outcome = stand.run(at("1.0.0")).await;
    let installed = need(&outcome, "widget", "east");
    assert_eq!((installed.outcome(), installed.change()), (Outcome::Succeeded, Change::Created), "{installed:#?}");
    let outcome = stand.run(upgrading(at("1.1.0"))).await;
    let upgraded = need(&outcome, "widget", "east");
    assert_eq!((upgraded.outcome(), upgraded.change()), (Outcome::Succeeded, Change::Configured), "{upgraded:#?}");
    assert_eq!(get(east, &namespace, "settings").await.unwrap().data.unwrap()["value"], "new");
    let api = definitions(east).await;
    let after = api.get(&format!("widgets.{group}")).await.unwrap();
    assert_eq!(after.spec, before.spec);
    assert!(api.get(&format!("widgets.{second}")).await.is_ok());
}

/// Case 341: definitions that are the release's own objects are not taken over; whose they are is told.
#[tokio::test]
async fn definition_of_another_release_or_of_none_is_told_by_its_name() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_owned").await;
    let (other, nobodys, anothers) = (unique("other"), unique("nobodys"), unique("anothers"));
    let (first, second) = (format!("{}.example", unique("g")), format!("{}.example", unique("h")));
    define(stand.pair.world.east(), &first).await;
    install_as(stand, &Chart::new(&other).widgets_of_the_release(&second), &other, &namespace).await;
    let first_url = stand.registry.push(&Chart::new(&nobodys).widgets_of_the_release(&first)).await.unwrap();
    let second_url = stand.registry.push(&Chart::new(&anothers).widgets_of_the_release(&second)).await.unwrap();
    let design = Design::new().needs("first", "a", &namespace, &[]).needs("second", "b", &namespace, &[]);
    let request = deploy(&design, &["east"], &[("first", &first_url, ""), ("second", &second_url, "")]);
    for request in [PlanRequest { dry_run: true, ..request.clone() }, request] {
        let outcome = stand.run(request).await;
        assert_eq!(outcome.verdict(), Verdict::Succeeded);
        let belongs = format!("belongs to release {other}");
        for (component, group, whose) in [("a", &first, "belongs to no release"), ("b", &second, belongs.as_str())] {
            let (reason, message) = failure(&outcome, component);
            assert_eq!(reason, "CHART_CONFLICT", "{message}");
            assert!(message.contains(&format!("\"widgets.{group}\"")) && message.contains(whose), "{message}");
        }
    }
}

/// Case 343: another chart's release of the same name is neither taken for the chart nor replaced, whatever state it is in.
#[tokio::test]
async fn release_of_another_chart_under_the_name_is_told_and_left_as_it_is() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_other").await;
    let (name, other) = (unique("app"), unique("other"));
    install_as(stand, &Chart::new(&other).config_map("precious", "a"), &name, &namespace).await;
    let url = stand.registry.push(&Chart::new(&name).config_map("settings", "a")).await.unwrap();
    let request = deploy(&Design::new().needs("m", "a", &namespace, &[]), &["east"], &[("m", &url, "")]);
    let east = stand.pair.world.east();
    for request in [request.clone(), upgrading(request)] {
        let outcome = stand.run(request).await;
        let (reason, message) = failure(&outcome, "a");
        assert_eq!(reason, "CHART_CONFLICT", "{message}");
        assert!(message.contains(&format!("{other}-1.0.0")) && message.contains(&format!("{name}-1.0.0")), "{message}");
        assert_eq!(outcome.verdict(), Verdict::Succeeded);
        assert_eq!(releases(east, &namespace).await, [one(&name, 1, "deployed")]);
        assert!(get(east, &namespace, "precious").await.is_some());
    }
}

/// Case 343: a release of the very chart that somebody else installed is not upgraded, and a failed one not replaced.
#[tokio::test]
async fn release_of_somebody_else_is_neither_upgraded_nor_replaced() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_theirs").await;
    let (good, bad) = (unique("good"), unique("bad"));
    let chart = |name: &str, version: &str| Chart::new(name).version(version).config_map(name, version);
    install_as(stand, &chart(&good, "1.0.0"), &good, &namespace).await;
    let (path, _folder) = chart(&bad, "1.0.0").endless_hook().package().await.unwrap();
    let mut install = tokio::process::Command::new(real_helm().await);
    let files = Folder::new("their").unwrap();
    let kubeconfig = stand.pair.world.east().kubeconfig_admin().to_string();
    let kubeconfig = files.write("kubeconfig", &kubeconfig).unwrap();
    install.args(["install", &bad]).arg(path).args(["--namespace", &namespace, "--timeout=1s", "--kubeconfig"]);
    assert!(!install.arg(kubeconfig).env("HOME", files.path()).output().await.unwrap().status.success());

    let good_url = stand.registry.push(&chart(&good, "1.1.0")).await.unwrap();
    let bad_url = stand.registry.push(&chart(&bad, "1.1.0")).await.unwrap();
    let design = Design::new().needs("good", "a", &namespace, &[]).needs("bad", "b", &namespace, &[]);
    let request = deploy(&design, &["east"], &[("good", &good_url, ""), ("bad", &bad_url, "")]);
    let outcome = stand.run(upgrading(request)).await;
    let left = need(&outcome, "a", "east");
    assert_eq!((left.outcome(), left.change()), (Outcome::Succeeded, Change::Unchanged), "{left:#?}");
    assert!(left.note.contains("not from here") && left.note.contains("1.1.0"), "{}", left.note);
    let (reason, message) = failure(&outcome, "b");
    assert_eq!(reason, "CHART_CONFLICT", "{message}");
    assert!(message.contains("has failed, and was not installed from here"), "{message}");
    let mut wanted = [one(&good, 1, "deployed"), one(&bad, 1, "failed")];
    wanted.sort();
    assert_eq!(releases(stand.pair.world.east(), &namespace).await, wanted);
}

/// Case 343: an older registry does not take a newer release back, unless it names the version.
#[tokio::test]
async fn older_version_is_put_in_place_of_a_newer_one_only_when_it_is_named() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_back").await;
    let name = unique("back");
    let host = stand.host().await;
    let chart = |version: &str| Chart::new(&name).version(version).config_map("settings", version);
    let (old, new) = (host.serve(&chart("1.9.0")).await.unwrap(), host.serve(&chart("1.10.0")).await.unwrap());
    let design = Design::new().needs("m", "a", &namespace, &[]);
    let at = |url: &str, version: &str| deploy(&design, &["east"], &[("m", url, version)]);
    stand.run(at(&new, "")).await;
    let outcome = stand.run(upgrading(at(&old, ""))).await;
    let (reason, message) = failure(&outcome, "a");
    assert_eq!(reason, "CHART_CONFLICT");
    assert!(message.contains("1.10.0, newer than 1.9.0"), "{message}");
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    let east = stand.pair.world.east();
    assert_eq!(releases(east, &namespace).await, [one(&name, 1, "deployed")]);

    let outcome = stand.run(upgrading(at(&old, "1.9.0"))).await;
    let back = need(&outcome, "a", "east");
    assert_eq!((back.outcome(), back.change()), (Outcome::Succeeded, Change::Configured), "{back:#?}");
    assert_eq!(back.note, format!("it was put back to {name}-1.9.0"));
    assert_eq!(get(east, &namespace, "settings").await.unwrap().data.unwrap()["value"], "1.9.0");
}

/// Case 344: the URL holds the version, and the release is found again after an upgrade.
#[tokio::test]
async fn release_is_found_again_after_an_upgrade_and_removed() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_marked").await;
    let name = unique("marked");
    let host = stand.host().await;
    let serve = async |version: &str| {
        let chart = Chart::new(&name).version(version).config_map("settings", version);
        let (path, _folder) = chart.package().await.unwrap();
        let file = format!("download/{name}-{version}/{name}-{version}.tgz");
        host.answer(&file, chart::Serving::Bytes(std::fs::read(path).unwrap().into()))
    };
    let (old, new) = (serve("1.0.0").await, serve("1.1.0").await);
    let design = Design::new().needs("m", "a", &namespace, &[]);
    let at = |url: &str| deploy(&design, &["east"], &[("m", url, "")]);
    stand.run(at(&old)).await;
    let outcome = stand.run(upgrading(at(&new))).await;
    assert_eq!(need(&outcome, "a", "east").change(), Change::Configured, "{outcome:#?}");
    let outcome = stand.run(at(&new)).await;
    assert_eq!(need(&outcome, "a", "east").note, "installed already");
    let outcome = stand.run(removing(&at(&new))).await;
    let gone = need(&outcome, "a", "east");
    assert_eq!((gone.change(), gone.release.as_str()), (Change::Removed, name.as_str()), "{gone:#?}");
    assert_eq!(releases(stand.pair.world.east(), &namespace).await, []);
}

/// Case 345: a chart with objects for the whole cluster is installed once, in whichever namespace comes first, and stays until
/// nobody in any of them needs it. Components of another design, and other runs, see it too.
#[tokio::test]
async fn chart_for_the_whole_cluster_is_installed_in_one_namespace() {
    let stand = Stand::shared().await;
    let namespaces = [namespace("charts_here").await, namespace("charts_there").await];
    let name = unique("operator");
    let url = stand.registry.push(&Chart::new(&name).cluster_role(&name).config_map("settings", "a")).await.unwrap();
    let design = |names: [&str; 2]| {
        names
            .iter()
            .zip(&namespaces)
            .fold(Design::new(), |design, (name, namespace)| design.needs("m", name, namespace, &[]))
    };
    let requests = [["a", "b"], ["c", "d"]].map(|names| deploy(&design(names), &["east"], &[("m", &url, "")]));
    let (first, second) = tokio::join!(stand.run(requests[0].clone()), stand.run(requests[1].clone()));
    let needs =
        [need(&first, "a", "east"), need(&first, "b", "east"), need(&second, "c", "east"), need(&second, "d", "east")];
    assert!(needs.iter().all(|need| need.outcome() == Outcome::Succeeded), "{needs:#?}");
    let created: Vec<_> = needs.iter().filter(|need| need.change() == Change::Created).collect();
    assert_eq!(created.len(), 1, "{needs:#?}");
    let place = created[0].chart.clone().unwrap().namespace;
    for need in needs.iter().filter(|need| need.chart.as_ref().unwrap().namespace != place) {
        assert!(
            need.note.starts_with(&format!("installed already, as release {name} in namespace {place}")),
            "{need:#?}"
        );
        assert!(need.note.contains("components disagree on its namespace"), "{}", need.note);
    }
    let east = stand.pair.world.east();
    for namespace in &namespaces {
        let wanted = if *namespace == place { vec![one(&name, 1, "deployed")] } else { vec![] };
        assert_eq!(releases(east, namespace).await, wanted);
    }
    let outcome = stand.run(removing(&requests[0])).await;
    let mut changes = [need(&outcome, "a", "east").change(), need(&outcome, "b", "east").change()];
    changes.sort();
    assert_eq!(changes, [Change::Unchanged, Change::Removed], "{outcome:#?}");
    assert_eq!(releases(east, &place).await, []);
}

/// D17, case 345: a chart that keeps to its namespace is installed in each that wants it; one that somebody else installed for
/// the whole cluster is not installed again.
#[tokio::test]
async fn what_a_release_has_for_the_whole_cluster_decides_whether_one_is_enough() {
    let stand = Stand::shared().await;
    let namespaces = [namespace("charts_one").await, namespace("charts_two").await];
    let (narrow, wide) = (unique("narrow"), unique("wide"));
    let chart = |name: &str| Chart::new(name).config_map(name, "a");
    let wide_chart = chart(&wide).cluster_role(&wide);
    install_as(stand, &wide_chart, "by-somebody", &namespaces[1]).await;
    let narrow_url = stand.registry.push(&chart(&narrow)).await.unwrap();
    let wide_url = stand.registry.push(&wide_chart).await.unwrap();
    let design = Design::new()
        .needs("narrow", "a", &namespaces[0], &[])
        .needs("narrow", "b", &namespaces[1], &[])
        .needs("wide", "c", &namespaces[0], &[]);
    let request = deploy(&design, &["east"], &[("narrow", &narrow_url, ""), ("wide", &wide_url, "")]);
    let outcome = stand.run(request).await;
    for component in ["a", "b"] {
        let need = need(&outcome, component, "east");
        assert_eq!((need.outcome(), need.change()), (Outcome::Succeeded, Change::Created), "{need:#?}");
    }
    let there = need(&outcome, "c", "east");
    assert_eq!((there.outcome(), there.change()), (Outcome::Succeeded, Change::Unchanged), "{there:#?}");
    assert!(there.note.contains(&format!("as release by-somebody in namespace {}", namespaces[1])), "{}", there.note);
}

/// Cases 345, 350: two executors that need one chart install it once, in the same namespace and in two.
#[tokio::test]
async fn executors_install_a_chart_once_between_them() {
    let stand = Stand::with_helm(real_helm().await.to_str().unwrap()).await;
    let other = Stand::executor(stand.pair, &stand.folder, &stand.authority).await.unwrap();
    let other = other.arg("--helm").arg(real_helm().await).start().await.unwrap();
    let other = Client::connect(&stand.pair.planner.url(), &other.url()).await.unwrap();
    let namespaces = [namespace("charts_pair_a").await, namespace("charts_pair_b").await];
    let (narrow, wide) = (unique("narrow"), unique("wide"));
    let narrow_url = stand.registry.push(&Chart::new(&narrow).config_map("narrow", "a")).await.unwrap();
    let wide_chart = Chart::new(&wide).cluster_role(&wide).config_map("wide", "a");
    let wide_url = stand.registry.push(&wide_chart).await.unwrap();
    let request = |names: [&str; 2], namespace: &str| {
        let design =
            Design::new().needs("narrow", names[0], &namespaces[0], &[]).needs("wide", names[1], namespace, &[]);
        deploy(&design, &["east"], &[("narrow", &narrow_url, ""), ("wide", &wide_url, "")])
    };
    let (first, second) = tokio::join!(
        stand.run(request(["a", "b"], &namespaces[0])),
        other.run(request(["c", "d"], &namespaces[1]), vec![])
    );
    let second = second.unwrap();
    for (ours, theirs) in [("a", "c"), ("b", "d")] {
        let needs = [need(&first, ours, "east"), need(&second, theirs, "east")];
        assert!(needs.iter().all(|need| need.outcome() == Outcome::Succeeded), "{needs:#?}");
        let mut changes = needs.map(PrerequisiteResult::change);
        changes.sort();
        assert_eq!(changes, [Change::Created, Change::Unchanged], "{needs:#?}");
    }
}
