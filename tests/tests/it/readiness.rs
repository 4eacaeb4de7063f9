//! Waiting until objects are ready (D16, S13), on a cluster whose controllers work and whose pods come up.

use std::time::{Duration, Instant};

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};
use switchyard_proto::v1::{
    Change, Evidence, Outcome, PlanRequest, Readiness, RunOptions, SummaryRow, TargetResult, Verdict,
    execute_response::Event,
};
use switchyard_tests::{
    client,
    fault::{Canned, Fault, Proxy, Rule, Seen},
    sandbox::{Cluster, Credential},
};

use crate::{
    design::Design,
    world::{LIMIT, World},
};

/// Deploys and waits for each object up to so many seconds.
fn waiting(design: &Design, seconds: i64) -> PlanRequest {
    let options = RunOptions {
        wait_until_ready: true,
        step_timeout: Some(prost_types::Duration { seconds, nanos: 0 }),
        ..RunOptions::default()
    };
    PlanRequest { options: Some(options), ..client::deploy(design.text(), &["main"]) }
}

/// The spec of pods that kwok pretends to run.
const PODS: &str = "containers: [{name: app, image: app}]";

fn workload(namespace: &str, spec: &str) -> String {
    format!(
        "{{metadata: {{namespace: {namespace}}}, spec: {{selector: {{matchLabels: {{a: b}}}}, \
         template: {{metadata: {{labels: {{a: b}}}}, spec: {{{PODS}}}}}{spec}}}}}"
    )
}

fn target<'a>(outcome: &'a client::Outcome, component: &str) -> &'a TargetResult {
    outcome.target(component, "main").unwrap_or_else(|| panic!("{component} has a result: {:#?}", outcome.results))
}

fn readiness(outcome: &client::Outcome, component: &str) -> Readiness {
    target(outcome, component).readiness()
}

/// L4: what is left as it is is waited for all the same, also when it is not ready yet.
#[tokio::test]
async fn what_is_left_as_it_is_is_waited_for_until_it_is_ready() {
    let world = World::shared().await;
    let namespace = world.cluster().namespace_for("ready-again").await.unwrap();
    let design = Design::new().config_map("config", &namespace, &[]).component(
        "web",
        ("apps/v1", "Deployment"),
        &[],
        &workload(&namespace, ", replicas: 2"),
    );
    // Written without a wait, so that its pods come up meanwhile.
    let first = world.run(client::deploy(design.text(), &["main"])).await;
    assert_eq!(first.verdict(), Verdict::Succeeded, "{:#?}", first.summary);
    let again = world.run(waiting(&design, 60)).await;
    for name in ["config", "web"] {
        assert_eq!(readiness(&again, name), Readiness::Ready, "{:#?}", again.results);
    }
    // Its controllers write the status alone, which is no field of ours.
    for result in ["config", "web"].map(|name| target(&again, name)) {
        assert_eq!((result.change(), result.evidence()), (Change::Unchanged, Evidence::Listed), "{result:#?}");
    }
}

/// D16: each kind is ready when it does what it is there for; what depends on it begins then; and it is seen by watch.
#[tokio::test]
async fn objects_of_the_kinds_people_use_are_waited_for_by_watch() {
    let world = World::shared().await;
    let namespace = world.cluster().namespace_for("ready-kinds").await.unwrap();
    let within = |rest: &str| format!("{{metadata: {{namespace: {namespace}}}{rest}}}");
    let job = format!(", spec: {{completions: 2, template: {{spec: {{restartPolicy: Never, {PODS}}}}}}}");
    let design = Design::new()
        .component(&format!("{namespace}-more"), ("v1", "Namespace"), &[], "{}")
        .config_map("config", &namespace, &[])
        .component("web", ("apps/v1", "Deployment"), &["config"], &workload(&namespace, ", replicas: 3"))
        .component("db", ("apps/v1", "StatefulSet"), &[], &workload(&namespace, ", replicas: 2, serviceName: db"))
        .component("agent", ("apps/v1", "DaemonSet"), &[], &workload(&namespace, ""))
        .component("pod", ("v1", "Pod"), &[], &within(&format!(", spec: {{{PODS}}}")))
        .component("internal", ("v1", "Service"), &[], &within(", spec: {ports: [{port: 80}]}"))
        .component("behind", ("batch/v1", "Job"), &["web"], &within(&job));
    let outcome = world.run(waiting(&design, 60)).await;

    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    for result in &outcome.results {
        let name = &result.component.as_ref().unwrap().name;
        // What kwok makes of a job's pods takes its own stage; everything else is ready within the time.
        assert_eq!(readiness(&outcome, name), Readiness::Ready, "{name}: {:#?}", result.targets);
    }
    // A dependent begins when what it depends on is ready.
    let place = |wanted: &dyn Fn(&Event) -> bool| {
        outcome.events.iter().position(|event| event.event.as_ref().is_some_and(wanted)).expect("it was told")
    };
    let web = &outcome.result("web").unwrap().step_id;
    let ready = place(&|event| matches!(event, Event::TargetResult(target) if target.step_id == *web));
    let begun = place(&|event| matches!(event, Event::StepStarted(started) if started.component == "behind"));
    assert!(ready < begun);
    let requests = world.cluster().audit().unwrap();
    let about = |verb: &str, resource: &str| {
        requests
            .iter()
            .filter(|event| event.user.username == "sandbox-admin" && event.verb == verb)
            .filter(|event| event.is_about(resource, &namespace))
            .count()
    };
    assert!(about("watch", "deployments") >= 1, "it was watched");
    assert_eq!(about("get", "deployments"), 0, "it was not polled");
    assert_eq!(about("watch", "configmaps"), 0, "what has no status is ready when it is stored");
    assert_eq!(about("watch", "services"), 0, "nor is anything watched that is ready as it is stored");
}

/// S13, case 61: a wait that runs out is told beside the outcome, and withholds nothing.
#[tokio::test]
async fn wait_that_runs_out_withholds_nothing() {
    let world = World::shared().await;
    let namespace = world.cluster().namespace_for("never-ready").await.unwrap();
    let balanced =
        format!("{{metadata: {{namespace: {namespace}}}, spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}}}");
    let design =
        Design::new().component("db", ("v1", "Service"), &[], &balanced).config_map("api", &namespace, &["db"]);
    let outcome = world.run(waiting(&design, 2)).await;

    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    assert_eq!(outcome.result("db").unwrap().outcome(), Outcome::Succeeded);
    assert_eq!(readiness(&outcome, "db"), Readiness::Progressing);
    let warnings = &target(&outcome, "db").warnings;
    assert!(warnings.iter().any(|it| it.contains("no load balancer has given it an address")), "{warnings:?}");
    assert_eq!(target(&outcome, "api").change(), Change::Created);
}

/// Who waits for readiness is told meanwhile how far it is, and the summary says that it did not come.
#[tokio::test]
async fn wait_for_readiness_is_told_while_it_lasts() {
    let world = World::shared().await;
    let namespace = world.cluster().namespace_for("long-wait").await.unwrap();
    let balanced =
        format!("{{metadata: {{namespace: {namespace}}}, spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}}}");
    let design =
        Design::new().component("db", ("v1", "Service"), &[], &balanced).config_map("api", &namespace, &["db"]);
    let outcome = world.run(waiting(&design, 9)).await;

    let progress: Vec<_> = outcome
        .events
        .iter()
        .filter_map(|event| match &event.event {
            Some(Event::StepProgress(progress)) => Some(progress),
            _ => None,
        })
        .collect();
    assert_eq!(progress.len(), 1, "{progress:?}");
    assert_eq!((progress[0].readiness(), progress[0].attempts), (Readiness::Progressing, 1));
    assert!(progress[0].waiting_for.contains("no load balancer has given it an address"), "{progress:?}");
    assert_eq!(progress[0].step_id, outcome.result("db").unwrap().step_id);
    let rows = &outcome.summary.rows;
    assert_eq!(rows.iter().map(SummaryRow::readiness).collect::<Vec<_>>(), [Readiness::Progressing, Readiness::Ready]);
    assert_eq!((rows[0].warnings, rows[1].warnings, outcome.summary.not_ready), (1, 0, 1));
}

/// Case 58: what its controller has given up is not waited for any longer.
#[tokio::test]
async fn lost_cause_ends_the_wait() {
    let world = World::shared().await;
    let namespace = world.cluster().namespace_for("stalled").await.unwrap();
    let nowhere = "containers: [{name: app, image: app}], nodeSelector: {on: nothing}";
    let web = format!(
        "{{metadata: {{namespace: {namespace}}}, spec: {{progressDeadlineSeconds: 1, selector: {{matchLabels: {{a: b}}}}, \
         template: {{metadata: {{labels: {{a: b}}}}, spec: {{{nowhere}}}}}}}}}"
    );
    let design = Design::new().component("web", ("apps/v1", "Deployment"), &[], &web);
    // Longer than the limit of the test: only the controller's word can end it.
    let outcome = world.run(waiting(&design, 600)).await;

    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    assert_eq!(readiness(&outcome, "web"), Readiness::Stalled);
    let warnings = &target(&outcome, "web").warnings;
    assert!(warnings.iter().any(|it| it.contains("ProgressDeadlineExceeded")), "{warnings:?}");
}

/// Case 60, D23: a cancel ends the wait; what was written counts.
#[tokio::test]
async fn cancel_interrupts_the_wait_and_not_the_write() {
    let world = World::shared().await;
    let namespace = world.cluster().namespace_for("interrupted").await.unwrap();
    let proxy = Proxy::before(world.cluster()).await.unwrap();
    let balanced =
        format!("{{metadata: {{namespace: {namespace}}}, spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}}}");
    let design =
        Design::new().component("db", ("v1", "Service"), &[], &balanced).config_map("api", &namespace, &["db"]);
    let client = world.client().await;
    let plan = client.plan(waiting(&design, 600)).await.unwrap();
    let access = vec![client::kubeconfig("main", proxy.kubeconfig().to_string())];
    let mut execution = client.execute(plan, access).await.unwrap();
    proxy.wait_for(1, Seen::is_watch).await.unwrap();
    execution.cancel("enough").await;
    let outcome = tokio::time::timeout(LIMIT, execution.finish()).await.expect("it ends").unwrap();

    assert_eq!(outcome.outcomes()["db"], Outcome::Succeeded);
    assert_eq!(readiness(&outcome, "db"), Readiness::Progressing);
    let warnings = &target(&outcome, "db").warnings;
    assert!(warnings.iter().any(|it| it.contains("the wait was cancelled")), "{warnings:?}");
    assert_eq!(outcome.outcomes()["api"], Outcome::Cancelled);
    assert_eq!(outcome.verdict(), Verdict::Cancelled);
}

/// Case 59: watches that are cut, go silent or are never answered are opened again, and not in a busy loop.
#[tokio::test]
async fn watch_that_died_is_opened_again() {
    let world = World::shared().await;
    let namespace = world.cluster().namespace_for("watch-died").await.unwrap();
    let proxy = Proxy::before(world.cluster()).await.unwrap();
    let expired = Canned::refusal(410, "Expired", "too old resource version", Value::Null);
    // Closed at once three times, refused for its age once, then never answered once.
    proxy.add(Rule::watch("/deployments", Fault::Answer(Canned::status(200))).times(3));
    proxy.add(Rule::watch("/deployments", Fault::Answer(expired)).times(1));
    proxy.add(Rule::watch("/deployments", Fault::Ignore).times(1));
    let design = Design::new().component("web", ("apps/v1", "Deployment"), &[], &workload(&namespace, ", replicas: 1"));
    let began = Instant::now();
    let access = vec![client::kubeconfig("main", proxy.kubeconfig().to_string())];
    let outcome = world.run_with(waiting(&design, 110), access).await;

    let watches: Vec<_> = proxy.seen().into_iter().filter(Seen::is_watch).map(|seen| seen.at - began).collect();
    assert_eq!(readiness(&outcome, "web"), Readiness::Ready, "{watches:?} {:#?}", outcome.results);
    let trace = &outcome.summary.trace_id;
    assert!(proxy.seen().iter().filter(|seen| seen.is_watch()).all(|seen| seen.traceparent.contains(trace)), "S24");
    let opened = proxy.count(Seen::is_watch);
    assert!(opened >= 6, "five that died and one that told: {opened}");
    assert!(opened as u64 <= began.elapsed().as_secs() + 1, "at most one a second");
    assert_eq!(proxy.count(|seen| seen.method == http::Method::GET && seen.path.ends_with("/web")), 0);
}

/// Case 147: who may not watch looks now and then instead.
#[tokio::test]
async fn without_the_right_to_watch_objects_are_read() {
    let world = World::shared().await;
    let namespace = world.cluster().namespace_for("may-not-watch").await.unwrap();
    let (token, user) = World::DEPLOYER;
    world.cluster().grant(user, &["get", "patch", "create"], "apps", &["deployments"]).await.unwrap();
    let design = Design::new().component("web", ("apps/v1", "Deployment"), &[], &workload(&namespace, ", replicas: 1"));
    let kubeconfig = world.cluster().kubeconfig(Credential::Token(token.into()));
    let access = || vec![client::kubeconfig("main", kubeconfig.to_string())];
    let outcome = world.run_with(waiting(&design, 60), access()).await;

    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    assert_eq!(readiness(&outcome, "web"), Readiness::Ready, "{:#?}", outcome.results);
}

/// Case 56: a custom resource that nobody has looked at yet is not ready, unless nobody ever looks.
#[tokio::test]
async fn custom_resource_is_ready_when_its_controller_says_so() {
    let world = World::shared().await;
    let namespace = world.cluster().namespace_for("custom").await.unwrap();
    let group = format!("g{}.example", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let definition = |kind: &str, subresources: &str| {
        let plural = format!("{}s", kind.to_lowercase());
        let text = format!(
            "{{spec: {{group: {group}, scope: Namespaced, names: {{plural: {plural}, singular: {}, kind: {kind}}}, versions: \
             [{{name: v1, served: true, storage: true, {subresources} schema: {{openAPIV3Schema: {{type: object, \
             x-kubernetes-preserve-unknown-fields: true}}}}}}]}}}}",
            kind.to_lowercase()
        );
        (format!("{plural}.{group}"), text)
    };
    let version = format!("{group}/v1");
    let (with, without) = (definition("Engine", "subresources: {status: {}},"), definition("Plain", ""));
    let own = format!("{{metadata: {{namespace: {namespace}}}}}");
    let crd = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let design = Design::new()
        .component(&with.0, crd, &[], &with.1)
        .component(&without.0, crd, &[], &without.1)
        .component("told", (&version, "Engine"), &[], &own)
        .component("silent", (&version, "Engine"), &[], &own)
        .component("plain", (&version, "Plain"), &[], &own);
    let client = world.client().await;
    let plan = client.plan(waiting(&design, 60)).await.unwrap();
    let execution = client.execute(plan, world.access()).await.unwrap();
    let run = tokio::spawn(tokio::time::timeout(LIMIT, execution.finish()));
    let api = api(world.cluster(), &group, "Engine", &namespace).await;
    report(&api, "told", "False", "Starting").await;
    report(&api, "told", "True", "Started").await;
    let outcome = run.await.unwrap().expect("it ends").unwrap();

    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    for name in ["told", "silent", "plain"] {
        assert_eq!(readiness(&outcome, name), Readiness::Ready, "{name}: {:#?}", outcome.results);
    }
    assert_eq!(readiness(&outcome, &with.0), Readiness::Ready);
    assert!(target(&outcome, "told").warnings.is_empty());
    assert!(target(&outcome, "plain").warnings.is_empty());
    let warnings = &target(&outcome, "silent").warnings;
    assert!(warnings.iter().any(|it| it.contains("nobody reported a status")), "{warnings:?}");
}

/// Case 273: what a controller said of an object before it was changed is no word on what it is now.
#[tokio::test]
async fn ready_counts_only_for_what_was_written() {
    let world = World::shared().await;
    let namespace = world.cluster().namespace_for("said-before").await.unwrap();
    let group = format!("g{}.example", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let definition = format!(
        "{{spec: {{group: {group}, scope: Namespaced, names: {{plural: engines, singular: engine, kind: Engine}}, versions: \
         [{{name: v1, served: true, storage: true, subresources: {{status: {{}}}}, schema: {{openAPIV3Schema: {{type: object, \
         x-kubernetes-preserve-unknown-fields: true}}}}}}]}}}}"
    );
    let version = format!("{group}/v1");
    let versions = Design::new();
    let design = |size: u32| {
        let own = format!("{{metadata: {{namespace: {namespace}}}, spec: {{size: {size}}}}}");
        versions
            .next_version()
            .component(
                &format!("engines.{group}"),
                ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
                &[],
                &definition,
            )
            .component("quiet", (&version, "Engine"), &[], &own)
            .component("busy", (&version, "Engine"), &[], &own)
    };
    let api = api(world.cluster(), &group, "Engine", &namespace).await;
    let first = async {
        report(&api, "quiet", "True", "Started").await;
        report(&api, "busy", "True", "Started").await;
    };
    let (outcome, ()) = tokio::join!(world.run(waiting(&design(1), 60)), first);
    assert_eq!(readiness(&outcome, "quiet"), Readiness::Ready, "{:#?}", outcome.results);

    // One controller takes note of the change after the write, the other never says anything again.
    let changed = async {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            assert!(tokio::time::Instant::now() < deadline, "the change was not written");
            let object = api.get("busy").await.unwrap();
            if object.data["spec"]["size"] == 2 {
                return report(&api, "busy", "True", "Resized").await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (outcome, ()) = tokio::join!(world.run(waiting(&design(2), 60)), changed);
    assert_eq!(target(&outcome, "busy").change(), Change::Configured);
    assert_eq!(readiness(&outcome, "busy"), Readiness::Ready, "{:#?}", outcome.results);
    assert_eq!(readiness(&outcome, "quiet"), Readiness::Unknown, "{:#?}", outcome.results);
    let warnings = &target(&outcome, "quiet").warnings;
    assert!(warnings.iter().any(|it| it.contains("says nothing of the generation")), "{warnings:?}");
}

/// Says as a controller would how an object gets on, as soon as it is there.
async fn report(api: &Api<DynamicObject>, name: &str, status: &str, reason: &str) {
    let condition = json!({"type": "Ready", "status": status, "reason": reason, "message": "as the test says"});
    let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    let deadline = tokio::time::Instant::now() + LIMIT;
    while let Err(error) = api.patch_status(name, &PatchParams::default(), &patch).await {
        assert!(tokio::time::Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn api(cluster: &Cluster, group: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::namespaced_with(cluster.client().await.unwrap(), namespace, &resource)
}

/// Case 299: a claim that is bound when a pod uses it, and an Ingress that nobody gives an address, are not waited for.
#[tokio::test]
async fn what_waits_for_others_by_design_is_ready() {
    let world = World::shared().await;
    let namespace = world.cluster().namespace_for("by-design").await.unwrap();
    let class = format!("{namespace}-late");
    let within = |rest: &str| format!("{{metadata: {{namespace: {namespace}}}, {rest}}}");
    let claim = format!(
        "spec: {{storageClassName: {class}, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}"
    );
    let ingress = "spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}";
    let design = Design::new()
        .component(
            &class,
            ("storage.k8s.io/v1", "StorageClass"),
            &[],
            "{provisioner: example.com/none, volumeBindingMode: WaitForFirstConsumer}",
        )
        .component("claim", ("v1", "PersistentVolumeClaim"), &[&class], &within(&claim))
        .component("front", ("networking.k8s.io/v1", "Ingress"), &[], &within(ingress));
    let outcome = world.run(waiting(&design, 60)).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    assert_eq!(readiness(&outcome, "claim"), Readiness::Ready, "{:#?}", outcome.results);
    assert!(target(&outcome, "claim").warnings.iter().any(|it| it.contains("WaitForFirstConsumer")));
    assert_eq!(readiness(&outcome, "front"), Readiness::Ready, "{:#?}", outcome.results);
}
