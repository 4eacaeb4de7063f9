//! Both paths in one design, up and down.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use switchyard_proto::v1::{AdapterProtocol, Change, Outcome, PlanRequest, Route, Verdict};
use switchyard_tests::{
    adapter::{self, Adapter},
    client::{self, TraceParent},
    sandbox::{Cluster, Trace},
};

use super::{
    CONFIG_MAP, MESH, ThroughAdapter, by_adapter, config_map, deploy, failure, foreign, get, namespace, of, run,
    undeploy, up_and_down,
};
use crate::{design::Design, pair::Pair};

const ADAPTER: &str = "reference-adapter";

/// Names of the ConfigMaps that were written in a namespace, in order, and by whom; only what was accepted.
fn writes(cluster: &Cluster, namespace: &str, verbs: &[&str]) -> Vec<(String, bool)> {
    let events = cluster.audit().expect("the audit log can be read").into_iter();
    let written = events.filter(|event| {
        event.is_about("configmaps", namespace) && verbs.contains(&event.verb.as_str()) && event.code() < 300
    });
    written
        .filter_map(|event| Some((event.object?.name, event.user_agent.starts_with(ADAPTER))))
        .filter(|(name, _)| name != "kube-root-ca.crt")
        .collect()
}

/// S3, S7, S20, case 131: each component goes back to whoever made it, in the inverse order, with the same clusters.
#[tokio::test]
async fn mixed_design_goes_up_on_both_clusters_and_down_again_in_the_inverse_order() {
    let pair = Pair::shared().await;
    let namespace = namespace("mixed").await;
    let adapter = super::adapter(&["--slow=200ms"]).await;
    let design = Design::new()
        .config_map("front", &namespace, &["routes"])
        .mesh("routes", CONFIG_MAP, &["base"], &config_map(&namespace))
        .config_map("base", &namespace, &[]);
    let request = deploy(&design, of(&adapter));

    let up = run(request.clone()).await;
    assert_eq!(up.verdict(), Verdict::Succeeded, "{:#?}", up.summary);
    let routes = up.result("routes").unwrap();
    assert_eq!((routes.route(), by_adapter(&up, "routes").change()), (Route::Adapter, Change::Created));
    let row = up.summary.rows.iter().find(|row| row.component == "routes").unwrap();
    assert_eq!(row.fulfilled_by, [adapter.address().to_string()]);
    let by = |name: &str, adapter: bool| (name.to_owned(), adapter);
    for cluster in [pair.world.east(), pair.world.west()] {
        let object = get(cluster, &namespace, "routes").await.unwrap();
        assert_eq!(object.metadata.labels.unwrap()["design.meshery.io/id"], design.id());
        assert_eq!(
            writes(cluster, &namespace, &["create", "patch", "update"]),
            [by("base", false), by("routes", true), by("front", false)],
            "on {}",
            cluster.name()
        );
    }

    let down = run(undeploy(&request)).await;
    assert_eq!(down.verdict(), Verdict::Succeeded, "{:#?}", down.summary);
    assert_eq!(by_adapter(&down, "routes").change(), Change::Removed);
    for cluster in [pair.world.east(), pair.world.west()] {
        assert_eq!(
            writes(cluster, &namespace, &["delete"]),
            [by("front", false), by("routes", true), by("base", false)],
            "on {}",
            cluster.name()
        );
    }
    let calls = adapter.calls();
    let told: Vec<_> = calls.iter().map(|call| (call.names.clone(), call.delete_op)).collect();
    assert_eq!(told, [(vec!["routes".to_owned()], false), (vec!["routes".to_owned()], true)]);
    let servers = [pair.world.east(), pair.world.west()].map(|cluster| vec![cluster.url().to_owned()]);
    assert!(calls.iter().all(|call| call.servers == servers), "{calls:#?}");
    up_and_down(&request).await;
}

/// D6, D16 across the paths: kinds that one path defines and the other uses, with nothing declared.
#[tokio::test]
async fn kind_that_one_path_brings_is_there_for_the_other() {
    let pair = Pair::shared().await;
    let namespace = namespace("kinds").await;
    let adapter = super::adapter(&[]).await;
    let id = &uuid::Uuid::new_v4().simple().to_string()[..8];
    let definition = |group: &str| {
        format!(
            "{{spec: {{group: {group}, scope: Namespaced, names: {{plural: gadgets, singular: gadget, kind: Gadget}}, \
             versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, \
             x-kubernetes-preserve-unknown-fields: true}}}}}}]}}}}"
        )
    };
    let (ours, theirs) = (format!("ours{id}.example"), format!("theirs{id}.example"));
    let crd = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let gadget = format!("{{metadata: {{namespace: {namespace}}}, spec: {{size: 3}}}}");
    let design = Design::new()
        .mesh("one", (&format!("{ours}/v1"), "Gadget"), &[], &gadget)
        .component("two", (&format!("{theirs}/v1"), "Gadget"), &[], &gadget)
        .component(&format!("gadgets.{ours}"), crd, &[], &definition(&ours))
        .mesh(&format!("gadgets.{theirs}"), crd, &[], &definition(&theirs));
    let request = deploy(&design, of(&adapter));
    let up = run(request.clone()).await;
    assert_eq!(up.verdict(), Verdict::Succeeded, "{:#?}", up.summary);
    let down = run(undeploy(&request)).await;
    assert_eq!(down.verdict(), Verdict::Succeeded, "{:#?}", down.summary);
    for cluster in [pair.world.east(), pair.world.west()] {
        let api: Api<CustomResourceDefinition> = Api::all(cluster.client().await.unwrap());
        for group in [&ours, &theirs] {
            assert!(api.get_opt(&format!("gadgets.{group}")).await.unwrap().is_none(), "{group}");
        }
    }
    up_and_down(&request).await;
}

/// S20, S21, case 131: an adapter that is down leaves what its component depends on in place.
#[tokio::test]
async fn adapter_that_is_down_at_undeploy_holds_back_what_its_component_needs() {
    let pair = Pair::shared().await;
    let namespace = namespace("down").await;
    let adapter = super::adapter(&[]).await;
    let design = Design::new()
        .config_map("base", &namespace, &[])
        .mesh("routes", CONFIG_MAP, &["base"], &config_map(&namespace))
        .config_map("aside", &namespace, &[]);
    let request = deploy(&design, of(&adapter));
    assert_eq!(run(request.clone()).await.verdict(), Verdict::Succeeded);
    let address = adapter.kill();

    let down = run(undeploy(&request)).await;
    let outcomes = down.outcomes();
    assert_eq!(
        (outcomes["routes"], outcomes["base"], outcomes["aside"]),
        (Outcome::Failed, Outcome::Withheld, Outcome::Succeeded)
    );
    let (reason, message) = failure(&down, "routes");
    assert_eq!(reason, "ADAPTER_UNREACHABLE", "{message}");
    assert!(message.contains(&address.to_string()), "{message}");
    assert!(get(pair.world.east(), &namespace, "base").await.is_some());
    up_and_down(&request).await;
}

/// S22, D21: a dry run asks the clusters, and nobody dials the adapter, whose address need not even be usable.
#[tokio::test]
async fn dry_run_asks_the_clusters_and_never_the_adapter() {
    let pair = Pair::shared().await;
    let namespace = namespace("dry").await;
    let adapter = super::adapter(&[]).await;
    let design = Design::new()
        .config_map("base", &namespace, &[])
        .mesh("routes", CONFIG_MAP, &["base"], &config_map(&namespace))
        .mesh(
            "wrong",
            CONFIG_MAP,
            &[],
            &format!("{{metadata: {{namespace: {namespace}}}, data: {{'no such key!': x}}}}"),
        )
        .mesh("the-mesh", MESH, &[], "{spec: {profile: demo}}");
    for registry in [of(&adapter), adapter::registry_at("127.0.0.1", 0.0, AdapterProtocol::Auto)] {
        let mut request = deploy(&design, registry);
        request.dry_run = true;
        let outcome = run(request).await;
        for cluster in ["east", "west"] {
            assert_eq!(outcome.target("routes", cluster).unwrap().outcome(), Outcome::Succeeded);
            assert_eq!(outcome.target("wrong", cluster).unwrap().error.as_ref().unwrap().reason, "INVALID");
            assert_ne!(outcome.target("the-mesh", cluster).unwrap().outcome(), Outcome::Succeeded);
        }
    }
    for cluster in [pair.world.east(), pair.world.west()] {
        assert!(get(cluster, &namespace, "routes").await.is_none());
        assert!(writes(cluster, &namespace, &["patch", "create"]).iter().all(|(_, by_adapter)| !by_adapter));
    }
    assert_eq!(adapter.entries(), [], "not so much as a connection");
}

/// Case 306: an adapter writes the whole object whoever has fields of it, and may bring along what the cluster does not have.
#[tokio::test]
async fn dry_run_for_an_adapter_does_not_predict_what_only_a_patch_comes_to() {
    let world = Pair::shared().await.world;
    let namespace = namespace("rehearsed").await;
    foreign::create(world.east(), &namespace, "routes").await;
    let adapter = super::adapter(&[]).await;
    let design = Design::new()
        .mesh("routes", CONFIG_MAP, &[], &config_map(&namespace))
        .mesh("elsewhere", CONFIG_MAP, &[], &config_map(&format!("{namespace}-missing")))
        .mesh("the-mesh", MESH, &[], "{spec: {profile: demo}}");
    let request = PlanRequest { dry_run: true, ..deploy(&design, of(&adapter)) };
    let up = run(request.clone()).await;
    let routes = up.target("routes", "east").unwrap();
    assert_eq!((routes.outcome(), routes.change()), (Outcome::Succeeded, Change::Configured), "{routes:#?}");
    assert_eq!(get(world.east(), &namespace, "routes").await.unwrap().data.unwrap()["colour"], "red");
    let cannot_tell = |outcome: &client::Outcome, component: &str, reason: &str| {
        let target = outcome.target(component, "east").unwrap();
        let error = target.error.as_ref().unwrap_or_else(|| panic!("{target:#?}"));
        assert_eq!((target.outcome(), error.reason.as_str()), (Outcome::Indeterminate, reason), "{error:?}");
        assert!(error.message.contains("its adapter may see to that"), "{error:?}");
    };
    cannot_tell(&up, "elsewhere", "NAMESPACE_NOT_FOUND");
    cannot_tell(&up, "the-mesh", "KIND_UNKNOWN");
    cannot_tell(&run(undeploy(&request)).await, "the-mesh", "KIND_UNKNOWN");
    assert_eq!(adapter.entries(), []);

    // What belongs to another design is as little an adapter's as it is ours.
    let other = Design::new().config_map("theirs", &namespace, &[]);
    assert_eq!(run(client::deploy(other.text(), &["east"])).await.verdict(), Verdict::Succeeded);
    let design = Design::new().mesh("theirs", CONFIG_MAP, &[], &config_map(&namespace).replace("blue", "green"));
    let refused = run(PlanRequest { dry_run: true, ..deploy(&design, of(&adapter)) }).await;
    assert_eq!(refused.target("theirs", "east").unwrap().error.as_ref().unwrap().reason, "OWNED_BY_DESIGN");
}

/// S24: the adapter's own span hangs below ours.
#[tokio::test]
async fn adapters_own_span_hangs_below_the_call_in_the_trace() {
    let pair = Pair::shared().await;
    let namespace = namespace("traced").await;
    let adapter = Adapter::prepare().traced(&pair.world.jaeger().otlp_url()).start().await.unwrap();
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace));
    let parent = TraceParent::random();
    let client = pair.client().await.traced(parent.clone());
    let request = deploy(&design, of(&adapter));
    let outcome = client.run(request.clone(), vec![]).await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    let name = "meshes.MeshService/Provision";
    let complete = |trace: &Trace| trace.named(name).count() == 2 && trace.named("run").count() == 1;
    let trace = pair.world.jaeger().wait_for(parent.trace_id(), Duration::from_secs(30), complete).await.unwrap();
    let ours = trace.named(name).find(|span| span.service != "adapter").unwrap();
    let theirs = trace.named(name).find(|span| span.service == "adapter").unwrap();
    assert_eq!(theirs.parent.as_ref(), Some(&ours.id), "{}", trace.tree());
    assert!(trace.is_below(ours, trace.named("step routes").next().unwrap()), "{}", trace.tree());
    assert_eq!(ours.attribute("server.address"), Some("127.0.0.1"));
    assert_eq!(ours.attribute("server.port"), Some(adapter.address().port().to_string().as_str()));
    assert!(adapter.calls()[0].traceparent.contains(parent.trace_id()));
    up_and_down(&request).await;
}

/// S4: the registry decides, the design stays.
#[tokio::test]
async fn same_design_takes_the_path_that_the_registry_gives_it() {
    let pair = Pair::shared().await;
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map("default"));
    let client = pair.client().await;
    let mut registry = adapter::registry_at("127.0.0.1", 10_000.0, AdapterProtocol::Auto);
    let with_port = client.plan(deploy(&design, registry.clone())).await.unwrap();
    registry.registrants[0].port = None;
    let without = client.plan(deploy(&design, registry)).await.unwrap();
    use switchyard_proto::v1::plan_step::Route::{Adapter, Direct};
    assert!(matches!(with_port.steps[0].route, Some(Adapter(_))));
    assert!(matches!(without.steps[0].route, Some(Direct(_))));
}

/// D15: one object, two paths.
#[tokio::test]
async fn one_object_on_both_paths_is_refused() {
    let pair = Pair::shared().await;
    let design = Design::new().config_map("twin", "default", &[]).mesh("twin", CONFIG_MAP, &[], &config_map("default"));
    let request = deploy(&design, adapter::registry_at("127.0.0.1", 10_000.0, AdapterProtocol::Auto));
    let status = pair.client().await.plan(request).await.unwrap_err();
    let details = tonic_types::StatusExt::get_error_details(&status);
    let violations = &details.bad_request().unwrap().field_violations;
    assert!(violations.iter().any(|violation| violation.description.contains("twin")), "{violations:#?}");
}
