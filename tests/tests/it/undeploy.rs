//! Taking designs down again (S20, S21, D18, D19), against a cluster whose controller manager removes namespaces and collects
//! garbage as it does for users.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use switchyard_proto::v1::{Change, Operation, Outcome, PlanRequest, RunOptions, Verdict};
use switchyard_tests::client;

use crate::{design::Design, world::World};

async fn config_maps(world: &World, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(world.cluster().client().await.unwrap(), namespace)
}

fn deploy(design: &Design) -> PlanRequest {
    client::deploy(design.text(), &["main"])
}

fn undeploy(design: &Design) -> PlanRequest {
    let options = Some(RunOptions {
        step_timeout: Some(prost_types::Duration { seconds: 20, nanos: 0 }),
        ..RunOptions::default()
    });
    PlanRequest { operation: Operation::Undeploy.into(), options, ..deploy(design) }
}

/// S20, D18, cases 62, 66: dependents first, to the proof that they are gone; twice is harmless; up again works.
#[tokio::test]
async fn what_was_deployed_goes_dependents_first_and_comes_again() {
    let world = World::shared().await;
    let namespace = format!("down-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let design = Design::new()
        .component(&namespace, ("v1", "Namespace"), &[], "{}")
        .config_map("db", &namespace, &[])
        .config_map("api", &namespace, &["db"])
        .config_map("web", &namespace, &["api"]);
    assert_eq!(world.run(deploy(&design)).await.verdict(), Verdict::Succeeded);

    let down = world.run(undeploy(&design)).await;
    assert_eq!(down.verdict(), Verdict::Succeeded, "{:#?}", down.summary);
    assert!(down.targets().all(|target| target.change() == Change::Removed), "{:#?}", down.results);
    let client = world.cluster().client().await.unwrap();
    assert!(Api::<Namespace>::all(client).get_opt(&namespace).await.unwrap().is_none());
    let deleted: Vec<_> = world
        .cluster()
        .audit()
        .unwrap()
        .into_iter()
        .filter(|event| event.verb == "delete" && event.user.username == "sandbox-admin")
        .filter_map(|event| event.object)
        .filter(|object| object.namespace == namespace || object.name == namespace)
        .map(|object| object.name)
        .collect();
    assert_eq!(deleted, ["web", "api", "db", namespace.as_str()]);

    let again = world.run(undeploy(&design)).await;
    assert_eq!(again.verdict(), Verdict::Succeeded);
    assert!(again.targets().all(|target| target.change() == Change::Absent), "{:#?}", again.results);

    let up = world.run(deploy(&design)).await;
    assert!(up.targets().all(|target| target.change() == Change::Created), "{:#?}", up.results);
}

/// S21, case 65: what cannot be removed leaves in place what it depends on; finalizers are named and never touched; when
/// somebody clears them the same undeploy finishes (case 73).
#[tokio::test]
async fn object_that_stays_holds_back_what_it_depends_on_and_nobody_else() {
    let world = World::shared().await;
    let namespace = world.cluster().namespace_for("stays").await.unwrap();
    let design = Design::new()
        .config_map("db", &namespace, &[])
        .config_map("api", &namespace, &["db"])
        .config_map("web", &namespace, &["api"])
        .config_map("other", &namespace, &[]);
    world.run(deploy(&design)).await;
    let api = config_maps(world, &namespace).await;
    let finalizer = serde_json::json!({"metadata": {"finalizers": ["example.com/protect"]}});
    api.patch("api", &PatchParams::default(), &Patch::Merge(&finalizer)).await.unwrap();

    let mut request = undeploy(&design);
    request.options.as_mut().unwrap().step_timeout = Some(prost_types::Duration { seconds: 3, nanos: 0 });
    let down = world.run(request.clone()).await;
    let outcomes = down.outcomes();
    assert_eq!(outcomes["web"], Outcome::Succeeded);
    assert_eq!(outcomes["other"], Outcome::Succeeded);
    assert_eq!(outcomes["api"], Outcome::Failed);
    assert_eq!(outcomes["db"], Outcome::Withheld);
    let failure = down.target("api", "main").unwrap().error.clone().unwrap();
    assert_eq!(failure.reason, "FINALIZERS_PENDING");
    assert!(failure.message.contains("example.com/protect"), "{}", failure.message);
    assert_eq!(down.result("db").unwrap().withheld.as_ref().unwrap().component, "api");
    assert!(api.get_opt("db").await.unwrap().is_some());
    assert_eq!(api.get("api").await.unwrap().metadata.finalizers.unwrap(), ["example.com/protect"]);

    let clear = serde_json::json!({"metadata": {"finalizers": null}});
    api.patch("api", &PatchParams::default(), &Patch::Merge(&clear)).await.unwrap();
    let rest = world.run(request).await;
    assert_eq!(rest.verdict(), Verdict::Succeeded, "{:#?}", rest.summary);
    assert!(api.get_opt("db").await.unwrap().is_none());
}

/// D23: a cancel ends the wait for an object that lingers; whether it goes nobody can tell then.
#[tokio::test]
async fn cancel_interrupts_the_wait_until_an_object_is_gone() {
    let world = World::shared().await;
    let namespace = world.cluster().namespace_for("lingers").await.unwrap();
    let design = Design::new().config_map("db", &namespace, &[]).config_map("api", &namespace, &["db"]);
    world.run(deploy(&design)).await;
    let api = config_maps(world, &namespace).await;
    let finalizer = |list| Patch::Merge(serde_json::json!({"metadata": {"finalizers": list}}));
    api.patch("api", &PatchParams::default(), &finalizer(Some(["example.com/protect"]))).await.unwrap();

    let mut request = undeploy(&design);
    request.options.as_mut().unwrap().step_timeout = Some(prost_types::Duration { seconds: 600, nanos: 0 });
    let client = world.client().await;
    let plan = client.plan(request).await.unwrap();
    let mut execution = client.execute(plan, world.access()).await.unwrap();
    eventually(async || api.get("api").await.unwrap().metadata.deletion_timestamp.is_some()).await;
    execution.cancel("enough").await;
    let outcome = tokio::time::timeout(Duration::from_secs(60), execution.finish()).await.expect("it ends").unwrap();
    assert_eq!(outcome.outcomes()["api"], Outcome::Indeterminate);
    assert_eq!(outcome.outcomes()["db"], Outcome::Cancelled);
    let failure = outcome.target("api", "main").unwrap().error.clone().unwrap();
    assert!(failure.message.contains("was told to go; the run was stopped"), "{}", failure.message);
    api.patch("api", &PatchParams::default(), &finalizer(None::<[&str; 1]>)).await.unwrap();
}

/// D19, case 72: the mark of this design or nothing.
#[tokio::test]
async fn what_does_not_carry_the_designs_mark_is_left_in_place() {
    let world = World::shared().await;
    let namespace = world.cluster().namespace_for("marked").await.unwrap();
    let design = Design::new().config_map("mine", &namespace, &[]).config_map("bare", &namespace, &[]);
    let other = Design::new().config_map("mine", &namespace, &[]);
    let api = config_maps(world, &namespace).await;
    let bare = ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some("bare".into()), ..Default::default() },
        ..Default::default()
    };
    api.create(&PostParams::default(), &bare).await.unwrap();
    world.run(deploy(&other)).await;

    let down = world.run(undeploy(&design)).await;
    for (name, wanted) in [("bare", "no design's mark"), ("mine", other.id().as_str())] {
        let failure = down.target(name, "main").unwrap().error.clone().unwrap();
        assert_eq!(failure.reason, "NOT_OURS");
        assert!(failure.message.contains(wanted), "{}", failure.message);
        assert!(api.get_opt(name).await.unwrap().is_some());
    }
}

/// D19, cases 70, 71: definitions and namespaces with foreign contents are kept and named, unless `delete_foreign` says so.
#[tokio::test]
async fn definition_and_namespace_with_foreign_contents_are_kept_and_named() {
    let world = World::shared().await;
    let tag = uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
    let (group, namespace) = (format!("g{tag}.example"), format!("kept-{tag}"));
    let definition = format!(
        "{{spec: {{group: {group}, scope: Cluster, names: {{plural: gadgets, singular: gadget, kind: Gadget}}, versions: \
         [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}]}}}}"
    );
    let definition_name = format!("gadgets.{group}");
    let design = Design::new().component(&namespace, ("v1", "Namespace"), &[], "{}").component(
        &definition_name,
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        &[],
        &definition,
    );
    let version = format!("{group}/v1");
    let foreign =
        Design::new().config_map("theirs", &namespace, &[]).component("theirs-too", (&version, "Gadget"), &[], "{}");
    world.run(deploy(&design)).await;
    assert_eq!(world.run(deploy(&foreign)).await.verdict(), Verdict::Succeeded);

    let kept = world.run(undeploy(&design)).await;
    for (name, wanted) in [(namespace.as_str(), "configmaps"), (definition_name.as_str(), "gadgets theirs-too")] {
        let failure = kept.target(name, "main").unwrap().error.clone().unwrap();
        assert_eq!(failure.reason, "FOREIGN_CONTENTS", "{}", failure.message);
        assert!(failure.message.contains(wanted), "{}", failure.message);
    }
    let api = config_maps(world, &namespace).await;
    assert!(api.get_opt("theirs").await.unwrap().is_some());

    let mut request = undeploy(&design);
    request.options.as_mut().unwrap().delete_foreign = true;
    let gone = world.run(request).await;
    assert_eq!(gone.verdict(), Verdict::Succeeded, "{:#?}", gone.summary);
    assert!(api.get_opt("theirs").await.unwrap().is_none());

    // Case 67: the kind is gone, so its objects are.
    let down = world.run(undeploy(&foreign)).await;
    assert!(down.targets().all(|target| target.change() == Change::Absent), "{:#?}", down.results);
}

/// Case 207: what controllers put into a namespace is nobody's loss, whether they do so everywhere or for an object of the
/// design that is gone.
#[tokio::test]
async fn namespace_goes_with_what_controllers_put_into_it() {
    let world = World::shared().await;
    let namespace = format!("crowded-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let template = "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}";
    let spec = format!("spec: {{replicas: 3, selector: {{matchLabels: {{a: b}}}}, {template}}}");
    let design = Design::new()
        .component(&namespace, ("v1", "Namespace"), &[], "{}")
        .component(
            "web",
            ("apps/v1", "Deployment"),
            &[&namespace],
            &format!("{{metadata: {{namespace: {namespace}}}, {spec}}}"),
        )
        .component(
            "front",
            ("v1", "Service"),
            &[&namespace],
            &format!("{{metadata: {{namespace: {namespace}}}, spec: {{selector: {{a: b}}, ports: [{{port: 80}}]}}}}"),
        );
    let mut request = deploy(&design);
    request.options = Some(RunOptions { wait_until_ready: true, ..RunOptions::default() });
    assert_eq!(world.run(request).await.verdict(), Verdict::Succeeded);
    let api = config_maps(world, &namespace).await;
    let certificate = ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some("istio-ca-root-cert".into()), ..Default::default() },
        ..Default::default()
    };
    api.create(&PostParams::default(), &certificate).await.unwrap();

    let mut request = undeploy(&design);
    request.options.as_mut().unwrap().step_timeout = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let down = world.run(request).await;
    assert_eq!(down.verdict(), Verdict::Succeeded, "{:#?}", down.summary);
    let client = world.cluster().client().await.unwrap();
    assert!(Api::<Namespace>::all(client).get_opt(&namespace).await.unwrap().is_none());
}

/// Case 71: a namespace that hangs fails at the bound, and the controller's own words say what it hangs on.
#[tokio::test]
async fn namespace_that_hangs_says_what_it_waits_for() {
    let world = World::shared().await;
    let namespace = format!("hangs-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let design = Design::new().component(&namespace, ("v1", "Namespace"), &[], "{}");
    world.run(deploy(&design)).await;
    let api = config_maps(world, &namespace).await;
    let stays = ConfigMap {
        metadata: kube::api::ObjectMeta {
            name: Some("stays".into()),
            finalizers: Some(vec!["example.com/protect".into()]),
            ..Default::default()
        },
        ..Default::default()
    };
    api.create(&PostParams::default(), &stays).await.unwrap();
    let mut request = undeploy(&design);
    let options = request.options.as_mut().unwrap();
    (options.delete_foreign, options.step_timeout) = (true, Some(prost_types::Duration { seconds: 12, nanos: 0 }));
    let down = world.run(request).await;
    let failure = down.target(&namespace, "main").unwrap().error.clone().unwrap();
    assert_eq!(failure.reason, "FINALIZERS_PENDING", "{failure:?}");
    assert!(failure.message.contains("example.com/protect"), "{}", failure.message);
    let clear = serde_json::json!({"metadata": {"finalizers": null}});
    api.patch("stays", &PatchParams::default(), &Patch::Merge(&clear)).await.unwrap();
}

/// D19: what every cluster needs is never deleted, whatever mark it carries.
#[tokio::test]
async fn namespaces_that_every_cluster_needs_are_never_deleted() {
    let world = World::shared().await;
    let design = Design::new().component("default", ("v1", "Namespace"), &[], "{}");
    world.run(deploy(&design)).await;
    let mut request = undeploy(&design);
    request.options.as_mut().unwrap().delete_foreign = true;
    let down = world.run(request).await;
    assert_eq!(down.target("default", "main").unwrap().error.clone().unwrap().reason, "PROTECTED");
}

/// D18, case 69: garbage goes too.
#[tokio::test]
async fn what_an_object_owns_goes_with_it() {
    let world = World::shared().await;
    let namespace = world.cluster().namespace_for("owned").await.unwrap();
    let template = "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}";
    let design = Design::new().component(
        "web",
        ("apps/v1", "Deployment"),
        &[],
        &format!("{{metadata: {{namespace: {namespace}}}, spec: {{replicas: 1, selector: {{matchLabels: {{a: b}}}}, {template}}}}}"),
    );
    assert_eq!(world.run(deploy(&design)).await.verdict(), Verdict::Succeeded);
    let client = world.cluster().client().await.unwrap();
    let sets: Api<k8s_openapi::api::apps::v1::ReplicaSet> = Api::namespaced(client, &namespace);
    eventually(async || !sets.list(&Default::default()).await.unwrap().items.is_empty()).await;
    assert_eq!(world.run(undeploy(&design)).await.verdict(), Verdict::Succeeded);
    eventually(async || sets.list(&Default::default()).await.unwrap().items.is_empty()).await;
}

async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "it did not come true");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
