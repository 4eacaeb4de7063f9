//! One run, one trace (S24), read back from a real Jaeger.

use std::{collections::BTreeSet, time::Duration};

use switchyard_proto::v1::{AdapterProtocol, RunOptions};
use switchyard_tests::{
    adapter::{self, Adapter},
    client::{self, Client, TraceParent},
    fault::{Canned, Fault, Proxy, Rule},
    programs::Program,
    sandbox::{Span, Trace},
};

use crate::{adapter::ThroughAdapter, design::Design, pair::Pair};

/// API server and etcd hand their spans on in batches of up to five seconds.
const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn one_trace_holds_plan_execute_each_step_each_patch_and_the_api_servers_own_spans() {
    let pair = Pair::shared().await;
    let design =
        Design::new().config_map("traced-one", "default", &[]).config_map("traced-two", "default", &["traced-one"]);
    let parent = TraceParent::random();
    let client = pair.client().await.traced(parent.clone());
    let outcome = client.run(client::deploy(design.text(), &["east", "west"]), vec![]).await.unwrap();
    assert_eq!(outcome.summary.trace_id, parent.trace_id());

    let complete = |trace: &Trace| {
        trace.named("switchyard.v1.ExecutorService/Execute").count() == 1
            && trace.named("switchyard.v1.PlannerService/Plan").count() == 1
            && trace.named("PATCH configmaps").filter(|patch| server_side(trace, patch).contains("etcd")).count() == 4
    };
    let trace = pair.world.jaeger().wait_for(parent.trace_id(), LIMIT, complete).await.unwrap();
    let execute = trace.named("switchyard.v1.ExecutorService/Execute").next().unwrap();
    let run = trace.named("run").next().unwrap();
    assert!(trace.is_below(run, execute));
    for name in ["step traced-one", "step traced-two"] {
        let step = trace.named(name).next().unwrap_or_else(|| panic!("no span {name}:\n{}", trace.tree()));
        assert!(trace.is_below(step, run));
        let patches: Vec<_> = trace.named("PATCH configmaps").filter(|patch| trace.is_below(patch, step)).collect();
        assert_eq!(patches.len(), 2, "{}", trace.tree());
        for patch in patches {
            for (key, wanted) in [
                ("http.request.method", "PATCH"),
                ("http.response.status_code", "201"),
                ("k8s.namespace.name", "default"),
                ("k8s.object.kind", "ConfigMap"),
                ("k8s.object.name", name.trim_start_matches("step ")),
            ] {
                assert_eq!(patch.attribute(key), Some(wanted), "{key}");
            }
            let cluster = patch.attribute("k8s.cluster.name").unwrap();
            assert!(["east", "west"].contains(&cluster));
            assert_eq!(server_side(&trace, patch), ["apiserver", "etcd"].into(), "{}", trace.tree());
            // The same request in the API server's audit log (S24: `Audit-ID`).
            let audit_id = patch.attribute("k8s.audit.id").unwrap().to_owned();
            let cluster = pair.world.control_plane().cluster(cluster).unwrap();
            cluster.audit_has(LIMIT, |event| event.audit_id == audit_id).await.unwrap();
        }
    }
    let ends_last = trace.spans.iter().filter(|span| span.service.starts_with("switchyard-executor"));
    assert!(ends_last.map(|span| span.end).max() <= Some(execute.end + 1_000_000), "Execute lasts as long as the run");
}

/// The services whose spans hang below one of ours.
fn server_side<'a>(trace: &'a Trace, span: &Span) -> BTreeSet<&'a str> {
    trace.spans.iter().filter(|below| trace.is_below(below, span)).map(|below| below.service.as_str()).collect()
}

/// A plan that is piped from Plan to Execute carries the trace along (S24, S25).
#[tokio::test]
async fn without_a_caller_that_traces_the_plan_carries_the_trace() {
    let pair = Pair::shared().await;
    let design = Design::new().config_map("carried", "default", &[]);
    let client = pair.client().await;
    let plan = client.plan(client::deploy(design.text(), &["east"])).await.unwrap();
    let trace_id = plan.header.traceparent.split('-').nth(1).unwrap().to_owned();
    let outcome = client.execute(plan, vec![]).await.unwrap().finish().await.unwrap();
    assert_eq!(outcome.summary.trace_id, trace_id);
    let complete = |trace: &Trace| {
        trace.named("switchyard.v1.PlannerService/Plan").count() == 1
            && trace.named("switchyard.v1.ExecutorService/Execute").count() == 1
    };
    let trace = pair.world.jaeger().wait_for(&trace_id, LIMIT, complete).await.unwrap();
    let plan = trace.named("switchyard.v1.PlannerService/Plan").next().unwrap();
    let execute = trace.named("switchyard.v1.ExecutorService/Execute").next().unwrap();
    assert!(trace.is_below(execute, plan), "{}", trace.tree());
}

/// An API server makes spans of its own for what is marked as sampled, so that is marked which somebody records: the executor, or
/// its caller. A planner that exports nothing leaves it to the executor.
#[tokio::test]
async fn api_servers_are_told_to_sample_what_somebody_records() {
    let pair = Pair::shared().await;
    let proxy = Proxy::before(pair.world.east()).await.unwrap();
    let planner = Program::Planner.prepare().start().await.unwrap();
    let executor = Program::Executor.prepare().start().await.unwrap();
    let nobody = Client::connect(&planner.url(), &executor.url()).await.unwrap();
    let caller = nobody.clone().traced(TraceParent::random());
    let exporting = Client::connect(&planner.url(), &pair.executor.url()).await.unwrap();
    for (who, client, flags) in [("nobody", nobody, "-00"), ("caller", caller, "-01"), ("executor", exporting, "-01")] {
        let name = format!("recorded-by-{who}");
        let design = Design::new().config_map(&name, "default", &[]);
        let access = vec![client::kubeconfig("east", proxy.kubeconfig().to_string())];
        let outcome = client.run(client::deploy(design.text(), &["east"]), access).await.unwrap();
        let end = format!("/configmaps/{name}");
        let seen = proxy.seen().into_iter().find(|seen| seen.is_apply_of(&end)).expect("it was applied");
        assert!(
            seen.traceparent.contains(&outcome.summary.trace_id) && seen.traceparent.ends_with(flags),
            "recorded by {who}: {}",
            seen.traceparent
        );
    }
    planner.stop().await;
    executor.stop().await;
}

/// Case 132: two runs without a caller that traces never share a trace.
#[tokio::test]
async fn runs_that_know_nothing_of_each_other_have_traces_of_their_own() {
    let pair = Pair::shared().await;
    let client = pair.client().await;
    let run = |name: &'static str| {
        let request = client::deploy(Design::new().config_map(name, "default", &[]).text(), &["west"]);
        client.run(request, vec![])
    };
    let (one, two) = tokio::join!(run("apart-one"), run("apart-two"));
    assert_ne!(one.unwrap().summary.trace_id, two.unwrap().summary.trace_id);
}

/// What a person needs who asks whose share of the server a request took: the UIDs of its flow schema and priority level.
#[tokio::test]
async fn a_refused_write_shows_the_priority_level_that_the_server_put_it_into() {
    let pair = Pair::shared().await;
    let configuration = r#"{"metadata": {"namespace": "default"}, "data": {"no key!": "x"}}"#;
    let design = Design::new().component("traced-refused", ("v1", "ConfigMap"), &[], configuration);
    let parent = TraceParent::random();
    let client = pair.client().await.traced(parent.clone());
    client.run(client::deploy(design.text(), &["east"]), vec![]).await.unwrap();
    let complete = |trace: &Trace| trace.named("PATCH configmaps").count() == 1;
    let trace = pair.world.jaeger().wait_for(parent.trace_id(), LIMIT, complete).await.unwrap();
    let patch = trace.named("PATCH configmaps").next().unwrap();
    assert_eq!(patch.attribute("http.response.status_code"), Some("422"));
    for key in ["k8s.apf.flow_schema.uid", "k8s.apf.priority_level.uid"] {
        let uid = patch.attribute(key).unwrap_or_else(|| panic!("no {key}:\n{}", trace.tree()));
        assert_eq!(uid.len(), 36, "{key} is {uid}");
    }
}

/// Case 330: every span of a run, among them refused, repeated and unsent requests and an adapter that does not answer, has its
/// attributes as the semantic conventions say.
#[tokio::test]
async fn whole_trace_is_as_the_conventions_say() {
    let pair = Pair::shared().await;
    let proxy = Proxy::before(pair.world.east()).await.unwrap();
    proxy.add(Rule::patch("/configmaps/again", Fault::Answer(Canned::status(503))).times(1));
    let slow = Adapter::prepare().knob("-hang").start().await.unwrap();
    let configuration = r#"{"metadata": {"namespace": "default"}, "data": {"no key!": "x"}}"#;
    let design = Design::new()
        .config_map("again", "default", &[])
        .component("refused", ("v1", "ConfigMap"), &[], configuration)
        .component("spaces", ("v1", "Namespace"), &[], "{}")
        .mesh("late", ("v1", "ConfigMap"), &[], r#"{"metadata": {"namespace": "default"}}"#);
    let parent = TraceParent::random();
    let client = pair.client().await.traced(parent.clone());
    let mut request = client::deploy(design.text(), &["east"]);
    request.registry = Some(adapter::registry(slow.address(), AdapterProtocol::Provision));
    request.options =
        Some(RunOptions { step_timeout: Some(Duration::from_secs(6).try_into().unwrap()), ..RunOptions::default() });
    let access = vec![client::kubeconfig("east", proxy.kubeconfig().to_string())];
    client.run(request, access).await.unwrap();
    let complete = |trace: &Trace| {
        trace.named("run").count() == 1 && trace.named("switchyard.v1.ExecutorService/Execute").count() == 1
    };
    let trace = pair.world.jaeger().wait_for(parent.trace_id(), LIMIT, complete).await.unwrap();
    let ours = || trace.spans.iter().filter(|span| span.service.starts_with("switchyard-"));
    let has = |key: &'static str, value: &'static str| ours().any(|span| span.attribute(key) == Some(value));
    assert!(has("http.response.status_code", "503") && has("http.request.resend_count", "1"), "{}", trace.tree());
    assert!(has("rpc.grpc.status_code", "4"), "the adapter did not answer in time:\n{}", trace.tree());
    for span in ours() {
        for (key, value) in &span.attributes {
            assert!(!value.is_empty(), "{key} is empty: {span:?}");
            let is_number =
                ["http.response.status_code", "http.request.resend_count", "server.port", "rpc.grpc.status_code"]
                    .contains(&key.as_str());
            let wanted = if is_number { "intValue" } else { "stringValue" };
            if is_number || key.starts_with("k8s.") || key.starts_with("switchyard.") {
                assert_eq!(span.kinds[key], wanted, "{key}: {span:?}");
            }
        }
        if let Some(method) = span.attribute("http.request.method") {
            assert!(["GET", "PATCH", "POST", "PUT", "DELETE"].contains(&method), "{span:?}");
            for key in ["server.address", "server.port", "url.full"] {
                assert!(span.attribute(key).is_some(), "no {key}: {span:?}");
            }
            assert_ne!(span.attribute("http.request.resend_count"), Some("0"));
            let was_sent = span.attribute("error.type").is_none_or(|kind| kind != "not_sent");
            assert_eq!(
                span.attribute("k8s.audit.id").is_some(),
                was_sent && !span.name.starts_with("WATCH"),
                "{span:?}"
            );
        }
        if let Some(address) = span.attribute("server.address") {
            assert!(!address.contains(':') && span.attribute("server.port").is_some(), "{span:?}");
        }
        let is_call = span.attributes.contains_key("rpc.system") && span.name.starts_with("switchyard.");
        if span.error.is_some() && span.name != "run" && !is_call {
            assert!(span.attribute("error.type").is_some(), "{span:?}");
        }
    }
}
