//! What is installed, when, and how often.

use kube::api::{Patch, PatchParams};
use serde_json::json;
use switchyard_proto::v1::{Change, Outcome, Verdict};
use switchyard_tests::adapter::{self, Adapter};

use super::*;

/// S19, D17, case 101: one install a cluster for ten components of a kind that the chart brings along, and before the first of
/// them. One model's chart lies in a registry, the other's on a host.
#[tokio::test]
async fn chart_is_installed_once_a_cluster_however_many_need_it() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_once").await;
    let (tag, group) = (unique("widgets"), format!("{}.example", unique("g")));
    let widgets = Chart::new(&tag).widgets(&group).config_map("widget-settings", "a");
    let oci = stand.registry.push(&widgets).await.unwrap();
    let host = stand.host().await;
    let other = unique("other");
    let https = host.serve(&Chart::new(&other).config_map("other-settings", "b")).await.unwrap();

    let version = format!("{group}/v1");
    let widget = format!("{{metadata: {{namespace: {namespace}}}, spec: {{size: 3}}}}");
    let mut design = Design::new().needs("other", "plain", &namespace, &[]);
    let names: Vec<_> = (0..10).map(|ix| format!("widget-{ix}")).collect();
    for name in &names {
        design = design.of_model("widgets", name, (&version, "Widget"), &[], &widget);
    }
    let request = deploy(&design, &BOTH, &[("widgets", &oci, "1.0.0"), ("other", &https, "")]);
    let outcome = stand.run(request.clone()).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    for cluster in BOTH {
        for name in &names {
            let need = need(&outcome, name, cluster);
            assert_eq!((need.outcome(), need.change()), (Outcome::Succeeded, Change::Created), "{need:#?}");
            assert_eq!((need.release.as_str(), need.note.as_str()), (&*tag, &*format!("{tag}-1.0.0 was installed")));
            let chart = need.chart.clone().unwrap();
            assert_eq!((chart.url, chart.version, chart.namespace), (oci.clone(), "1.0.0".into(), namespace.clone()));
        }
    }
    for cluster in stand.clusters() {
        let mut wanted = [one(&other, 1, "deployed"), one(&tag, 1, "deployed")];
        wanted.sort();
        assert_eq!(releases(cluster, &namespace).await, wanted);
        let settings = get(cluster, &namespace, "widget-settings").await.unwrap();
        assert_eq!(settings.data.unwrap()["value"], "a");
        let events = cluster.audit().unwrap();
        let records = events.iter().filter(|event| event.verb == "create" && event.is_about("secrets", &namespace));
        assert_eq!(records.count(), 2, "one install a chart");
        let first = |wanted: &str| events.iter().position(|event| event.is_write() && event.uri.contains(wanted));
        let definition = first(&format!("/customresourcedefinitions/widgets.{group}"));
        assert!(definition.is_some() && definition < first(&format!("/{namespace}/widgets/")), "{definition:?}");
    }
    assert_eq!(host.asked(&format!("{other}-1.0.0.tgz")), 1, "one fetch a run");

    // The second run finds what the first installed, and needs no chart for that.
    let outcome = stand.run(request).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    let again = need(&outcome, "plain", "west");
    assert_eq!((again.outcome(), again.change()), (Outcome::Succeeded, Change::Unchanged), "{again:#?}");
    assert_eq!((again.note.as_str(), again.release.as_str()), ("installed already", other.as_str()));
    assert_eq!(host.asked(&format!("{other}-1.0.0.tgz")), 1);
}

/// Two designs that are deployed together and need the same chart do not get in each other's way.
#[tokio::test]
async fn two_runs_that_need_one_chart_install_it_once() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_two_runs").await;
    let name = unique("shared");
    let url = stand.registry.push(&Chart::new(&name).config_map("settings", "a")).await.unwrap();
    let request = |component: &str| {
        let design = Design::new().needs("m", component, &namespace, &[]);
        deploy(&design, &["east"], &[("m", &url, "")])
    };
    let (first, second) = tokio::join!(stand.run(request("first")), stand.run(request("second")));
    let (first, second) = (need(&first, "first", "east"), need(&second, "second", "east"));
    assert_eq!([first.outcome(), second.outcome()], [Outcome::Succeeded; 2], "{first:#?} {second:#?}");
    let mut changes = [first.change(), second.change()];
    changes.sort();
    assert_eq!(changes, [Change::Created, Change::Unchanged]);
    assert_eq!(releases(stand.pair.world.east(), &namespace).await, [one(&name, 1, "deployed")]);
}

/// D17: upgraded only when asked, and only when there is something newer.
#[tokio::test]
async fn chart_that_is_there_is_upgraded_only_when_asked() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_upgrade").await;
    let name = unique("upgraded");
    let old = Chart::new(&name).config_map("settings", "old");
    let url = stand.registry.push(&old).await.unwrap();
    stand.registry.push(&Chart::new(&name).version("1.1.0").config_map("settings", "new")).await.unwrap();
    let design = Design::new().needs("m", "component", &namespace, &[]);
    let at = |version| deploy(&design, &["east"], &[("m", &url, version)]);
    let value =
        async || get(stand.pair.world.east(), &namespace, "settings").await.unwrap().data.unwrap()["value"].clone();
    stand.run(at("1.0.0")).await;

    let outcome = stand.run(at("1.1.0")).await;
    assert_eq!(need(&outcome, "component", "east").change(), Change::Unchanged);
    assert_eq!(value().await, "old");

    let upgrade = |version| with(at(version), RunOptions { upgrade_dependencies: true, ..RunOptions::default() });
    let outcome = stand.run(upgrade("1.1.0")).await;
    let upgraded = need(&outcome, "component", "east");
    assert_eq!((upgraded.outcome(), upgraded.change()), (Outcome::Succeeded, Change::Configured), "{upgraded:#?}");
    assert_eq!(upgraded.note, format!("it was upgraded to {name}-1.1.0"));
    assert_eq!(value().await, "new");

    let outcome = stand.run(upgrade("1.1.0")).await;
    assert_eq!(need(&outcome, "component", "east").change(), Change::Unchanged);
    let wanted = [one(&name, 1, "superseded"), one(&name, 2, "deployed")];
    assert_eq!(releases(stand.pair.world.east(), &namespace).await, wanted);
}

/// Case 104: what somebody else has changed since is not overwritten by an upgrade; that is told, and the component is applied.
#[tokio::test]
async fn upgrade_that_conflicts_with_somebody_else_is_told() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_conflict").await;
    let name = unique("conflict");
    let url = stand.registry.push(&Chart::new(&name).config_map("settings", "old")).await.unwrap();
    stand.registry.push(&Chart::new(&name).version("1.1.0").config_map("settings", "new")).await.unwrap();
    let design = Design::new().needs("m", "component", &namespace, &[]);
    let at = |version| deploy(&design, &["east"], &[("m", &url, version)]);
    stand.run(at("1.0.0")).await;
    let east = stand.pair.world.east();
    let by_hand =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"value": "mine"}});
    let api = Api::<ConfigMap>::namespaced(east.client().await.unwrap(), &namespace);
    api.patch("settings", &PatchParams::apply("somebody").force(), &Patch::Apply(&by_hand)).await.unwrap();

    let options = RunOptions { upgrade_dependencies: true, ..RunOptions::default() };
    let outcome = stand.run(with(at("1.1.0"), options)).await;
    let (reason, message) = failure(&outcome, "component");
    assert_eq!(reason, "CHART_FAILED");
    assert!(message.contains("was not upgraded") && message.contains("conflict with \"somebody\""), "{message}");
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    assert_eq!(get(east, &namespace, "settings").await.unwrap().data.unwrap()["value"], "mine");
    // What is there is no longer what was installed, and that is not passed over.
    let outcome = stand.run(at("1.1.0")).await;
    let (reason, message) = failure(&outcome, "component");
    assert_eq!(reason, "CHART_FAILED");
    assert!(message.contains("the last upgrade of") && message.contains("upgrade_dependencies"), "{message}");
}

/// Case 99: helm leaves definitions as they are, and that is said.
#[tokio::test]
async fn upgrade_leaves_definitions_as_they_are_and_says_so() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_definitions").await;
    let (name, group) = (unique("definitions"), format!("{}.example", unique("g")));
    let url = stand.registry.push(&Chart::new(&name).widgets(&group)).await.unwrap();
    stand.registry.push(&Chart::new(&name).version("1.1.0").widgets(&group)).await.unwrap();
    let widget = format!("{{metadata: {{namespace: {namespace}}}}}");
    let design = Design::new().of_model("m", "widget", (&format!("{group}/v1"), "Widget"), &[], &widget);
    let at = |version| deploy(&design, &["east"], &[("m", &url, version)]);
    stand.run(at("1.0.0")).await;
    let options = RunOptions { upgrade_dependencies: true, ..RunOptions::default() };
    let outcome = stand.run(with(at("1.1.0"), options)).await;
    let upgraded = need(&outcome, "widget", "east");
    assert_eq!(upgraded.change(), Change::Configured, "{upgraded:#?}");
    assert!(upgraded.note.contains("definitions in its crds, which stay as they are"), "{}", upgraded.note);
}

/// D17 on the adapter path: what a component needs is installed on every cluster before its adapter is asked.
#[tokio::test]
async fn component_of_an_adapter_has_its_chart_on_every_cluster() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_adapter").await;
    let name = unique("adapter");
    let url = stand.registry.push(&Chart::new(&name).config_map("settings", "a")).await.unwrap();
    let adapter = Adapter::prepare().start().await.unwrap();
    let mut registry = adapter::registry(adapter.address(), v1::AdapterProtocol::Auto);
    registry.models[0].chart = Some(v1::Chart { url, ..v1::Chart::default() });
    let design = Design::new().of_model("mesh", "a", ("v1", "ConfigMap"), &[], &config_map(&namespace));
    let request = deploy(&design, &BOTH, &[]);
    let outcome = stand.run(PlanRequest { registry: Some(registry), ..request }).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    for (name_of, cluster) in BOTH.into_iter().zip(stand.clusters()) {
        assert_eq!(need(&outcome, "a", name_of).change(), Change::Created);
        assert_eq!(releases(cluster, &namespace).await, [one(&name, 1, "deployed")]);
        assert!(get(cluster, &namespace, "a").await.is_some());
    }
    assert_eq!(outcome.result("a").unwrap().prerequisites.len(), 2);
}

/// A release that somebody else installed from the same chart is as good as one of ours.
#[tokio::test]
async fn release_that_somebody_else_installed_is_left_as_it_is() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_by_hand").await;
    let name = unique("by-hand");
    let chart = Chart::new(&name).config_map("settings", "a");
    let url = stand.registry.push(&chart).await.unwrap();
    let (mut helm, _files) = install_by_hand(stand, &chart, &namespace, &[]).await;
    assert!(helm.wait().unwrap().success());
    let design = Design::new().needs("m", "component", &namespace, &[]);
    let request = deploy(&design, &["east"], &[("m", &url, "")]);
    let outcome = stand.run(request.clone()).await;
    let found = need(&outcome, "component", "east");
    assert_eq!((found.outcome(), found.change()), (Outcome::Succeeded, Change::Unchanged), "{found:#?}");
    assert_eq!(found.note, format!("installed already, from {name}-1.0.0"));

    // And nobody takes it away again.
    let options = RunOptions { remove_dependencies: true, ..RunOptions::default() };
    let outcome = stand.run(undeploy(&with(request, options))).await;
    assert_eq!(need(&outcome, "component", "east").change(), Change::Absent);
    assert_eq!(releases(stand.pair.world.east(), &namespace).await, [one(&name, 1, "deployed")]);
}

/// Plain Kubernetes models carry nothing, and what a model carries is left alone when nobody asked for it.
#[tokio::test]
async fn nothing_is_installed_that_is_not_carried_or_not_asked_for() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_none").await;
    let url = stand.registry.push(&Chart::new(&unique("none")).config_map("settings", "a")).await.unwrap();
    let design = Design::new().needs("m", "component", &namespace, &[]).config_map("plain", &namespace, &[]);
    let asked = deploy(&design, &["east"], &[("m", &url, "")]);
    let outcome = stand.run(PlanRequest { include_dependencies: false, ..asked }).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    assert!(outcome.results.iter().all(|result| result.prerequisites.is_empty()));
    assert_eq!(releases(stand.pair.world.east(), &namespace).await, []);
}

/// S22: what would be installed, and what stands on it cannot be told; nothing changes anywhere.
#[tokio::test]
async fn dry_run_asks_what_would_be_installed_and_installs_nothing() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_dry").await;
    let (name, group) = (unique("widgets"), format!("{}.example", unique("g")));
    let chart = Chart::new(&name).widgets(&group).config_map("settings", "a");
    let url = stand.registry.push(&chart).await.unwrap();
    let broken = Chart::new(&unique("broken")).file("templates/x.yaml", "a: {{ fail `no` }}");
    let broken = stand.registry.push(&broken).await.unwrap();
    let widget = format!("{{metadata: {{namespace: {namespace}}}}}");
    let design = Design::new().of_model("m", "widget", (&format!("{group}/v1"), "Widget"), &[], &widget).needs(
        "broken",
        "plain",
        &namespace,
        &[],
    );
    let request = deploy(&design, &["east"], &[("m", &url, ""), ("broken", &broken, "")]);
    let outcome = stand.run(PlanRequest { dry_run: true, ..request }).await;
    let would = need(&outcome, "widget", "east");
    assert_eq!((would.outcome(), would.change()), (Outcome::Succeeded, Change::Created), "{would:#?}");
    assert_eq!(
        would.note,
        format!("{name}-1.0.0 would be installed; it was rendered, and its objects and hooks were not tried")
    );
    let told = outcome.target("widget", "east").unwrap();
    assert_eq!(told.outcome(), Outcome::Indeterminate);
    let message = &told.error.as_ref().unwrap().message;
    assert!(message.contains("the chart that it needs would be installed first"), "{message}");
    let (reason, message) = failure(&outcome, "plain");
    assert_eq!(reason, "CHART_FAILED");
    assert!(message.contains("would not be installed") && message.contains("no"), "{message}");
    assert_eq!(outcome.outcomes()["plain"], Outcome::Succeeded);

    let east = stand.pair.world.east();
    assert_eq!(releases(east, &namespace).await, []);
    assert!(get(east, &namespace, "settings").await.is_none());
    let writes = east.audit().unwrap().into_iter().filter(|event| {
        event.is_write()
            && !event.uri.contains("dryRun=All")
            && (event.uri.contains(&namespace) || event.uri.contains(&group))
    });
    let writes: Vec<_> = writes.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert_eq!(writes, Vec::<String>::new());
}

/// S24: each call of helm is a span below the step's.
#[tokio::test]
async fn what_helm_does_is_in_the_trace() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_trace").await;
    let name = unique("traced");
    let url = stand.registry.push(&Chart::new(&name).config_map("settings", "a")).await.unwrap();
    let design = Design::new().needs("m", "component", &namespace, &[]);
    let parent = TraceParent::random();
    stand.traced(deploy(&design, &["east"], &[("m", &url, "")]), &parent).await;
    let jaeger = stand.pair.world.jaeger();
    let complete = |trace: &switchyard_tests::sandbox::Trace| trace.named("step component").count() == 1;
    let trace = jaeger.wait_for(parent.trace_id(), Duration::from_secs(30), complete).await.unwrap();
    let step = trace.named("step component").next().unwrap();
    let install = trace.named("helm install").next().unwrap();
    assert!(trace.is_below(install, step), "{}", trace.tree());
    for (key, value) in [
        ("switchyard.chart", url.as_str()),
        ("switchyard.helm.release", &name),
        ("k8s.namespace.name", &namespace),
        ("k8s.cluster.name", "east"),
    ] {
        assert_eq!(install.attribute(key), Some(value));
    }
    assert_eq!(trace.named("helm pull").count(), 1);
    // Case 351: what was done is told, and asking is no failure.
    let span = format!("chart {name}");
    let chart = trace.named(&span).next().unwrap();
    assert!(trace.is_below(install, chart) && trace.is_below(chart, step), "{}", trace.tree());
    assert_eq!(chart.attribute("switchyard.chart.note"), Some(&*format!("{name}-1.0.0 was installed")));
    let calls = ["helm list", "helm pull", "helm install"].into_iter().flat_map(|call| trace.named(call));
    assert_eq!(calls.filter(|call| call.attribute("error.type").is_some()).count(), 0, "{}", trace.tree());

    let parent = TraceParent::random();
    stand.traced(deploy(&design, &["east"], &[("m", &url, "")]), &parent).await;
    let trace = jaeger.wait_for(parent.trace_id(), Duration::from_secs(30), complete).await.unwrap();
    let chart = trace.named(&span).next().unwrap();
    assert_eq!(chart.attribute("switchyard.chart.note"), Some("installed already"));
}

/// Runs helm as a person would. It reads the files that come with it as long as it runs.
pub(super) async fn install_by_hand(
    stand: &Stand,
    chart: &Chart,
    namespace: &str,
    flags: &[&str],
) -> (std::process::Child, Folder) {
    let (path, folder) = chart.package().await.unwrap();
    let kubeconfig = folder.write("kubeconfig", &stand.pair.world.east().kubeconfig_admin().to_string()).unwrap();
    let name = path.file_stem().unwrap().to_string_lossy().replace("-1.0.0", "");
    let mut command = std::process::Command::new(real_helm().await);
    command.arg("install").arg(name).arg(&path).args(["--namespace", namespace, "--kubeconfig"]).arg(kubeconfig);
    command.args(flags).env("HOME", folder.path()).stdout(std::process::Stdio::null());
    let child = command.spawn().unwrap();
    wait_for_any_release(stand.pair.world.east(), namespace).await;
    (child, folder)
}

async fn wait_for_any_release(cluster: &Cluster, namespace: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while releases(cluster, namespace).await.is_empty() {
        assert!(Instant::now() < deadline, "helm has not begun");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
