//! What log and trace tell of a run to whoever looks after the executor (cases 324, 325, 328).

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;
use switchyard_proto::v1::{AdapterProtocol, Verdict};
use switchyard_tests::{
    adapter,
    client::{self, TraceParent},
    fault::Proxy,
    sandbox::Trace,
};

use crate::{adapter::ThroughAdapter, design::Design, pair::Pair};

const LIMIT: Duration = Duration::from_secs(30);

/// The lines of the executor's log that belong to a trace.
fn lines(pair: &Pair, trace_id: &str) -> Vec<Value> {
    let log = pair.executor.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["trace_id"] == trace_id).collect()
}

fn named<'a>(lines: &'a [Value], message: &'a str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["message"] == message).collect()
}

/// Cases 324, 325, 328: one line at the start, one at the end, one a target that did not succeed, none for the rest.
#[tokio::test]
async fn log_and_trace_tell_what_failed_where_and_why() {
    let pair = Pair::shared().await;
    let namespace = pair.world.east().namespace_for("story").await.unwrap();
    let address = adapter::free_address().unwrap();
    let broken = format!("{{metadata: {{namespace: {namespace}}}, data: {{'no such key!': hunter2}}}}");
    let mut design = Design::new()
        .config_map("well", &namespace, &[])
        .component("broken", ("v1", "ConfigMap"), &[], &broken)
        .mesh("routes", ("v1", "ConfigMap"), &[], &format!("{{metadata: {{namespace: {namespace}}}}}"));
    // More than a span may have events.
    let behind: Vec<_> = (0..150).map(|number| format!("behind-{number}")).collect();
    for name in &behind {
        design = design.config_map(name, &namespace, &["broken"]);
    }
    let parent = TraceParent::random();
    let client = pair.client().await.traced(parent.clone());
    let mut request = client::deploy(design.text(), &["east"]);
    request.registry = Some(adapter::registry(address, AdapterProtocol::Auto));
    let outcome = client.run(request, vec![]).await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Partial);

    let run_id = outcome.summary.run_id.as_str();
    let lines = lines(pair, parent.trace_id());
    let started = named(&lines, "run started");
    assert_eq!(started.len(), 1, "{started:?}");
    let ended = named(&lines, "run ended");
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert_eq!(ended[0]["level"], "WARN");
    for line in [started[0], ended[0]] {
        assert_eq!(line["switchyard.run.id"], run_id);
        assert_eq!(line["switchyard.plan.id"], outcome.started().unwrap().plan_id);
        assert_eq!(line["clusters"], "east");
        assert!(line["span_id"].is_string(), "{line}");
    }
    for (key, wanted) in [("succeeded", 1), ("failed", 2), ("withheld", 150), ("indeterminate", 0), ("cancelled", 0)] {
        assert_eq!(ended[0][key], wanted, "{key}: {}", ended[0]);
    }
    assert_eq!(ended[0]["verdict"], "VERDICT_PARTIAL");
    assert!(ended[0]["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{}", ended[0]);
    let failures = named(&lines, "component did not succeed");
    assert_eq!(failures.len(), 2, "{failures:?}");
    let of = |name: &str| *failures.iter().find(|line| line["switchyard.component.name"] == name).unwrap();
    let (broken, routes) = (of("broken"), of("routes"));
    assert_eq!((&broken["level"], &broken["reason"]), (&"WARN".into(), &"INVALID".into()), "{broken}");
    assert_eq!(broken["k8s.cluster.name"], "east");
    assert!(broken["why"].as_str().unwrap().contains("no such key!"), "{broken}");
    assert_eq!((&routes["adapter"], &routes["reason"]), (&address.to_string().into(), &"ADAPTER_UNREACHABLE".into()));
    for line in &failures {
        assert_eq!(line["switchyard.run.id"], run_id);
    }
    let told: Vec<_> = lines.iter().filter(|line| line["level"] != "DEBUG" && line["level"] != "TRACE").collect();
    assert!(told.len() < 12, "nothing is said of each component: {told:?}");

    let withheld =
        |trace: &Trace| behind.iter().filter(|name| trace.named(&format!("step {name}")).count() == 1).count();
    let complete = |trace: &Trace| trace.named("run").count() == 1 && withheld(trace) == behind.len();
    let trace = pair.world.jaeger().wait_for(parent.trace_id(), LIMIT, complete).await.unwrap();
    let run = trace.named("run").next().unwrap();
    let broken = trace.named("step broken").next().unwrap();
    assert_eq!(broken.attribute("error.type"), Some("INVALID"));
    assert_eq!(broken.attribute("k8s.cluster.name"), Some("east"));
    assert!(broken.error.as_ref().unwrap().contains("no such key!"), "{broken:?}");
    let routes = trace.named("step routes").next().unwrap();
    assert_eq!(routes.attribute("error.type"), Some("ADAPTER_UNREACHABLE"));
    assert_eq!(routes.attribute("server.port"), Some(address.port().to_string().as_str()));
    for name in &behind {
        let name = format!("step {name}");
        let span = trace.named(&name).next().unwrap();
        assert!(trace.is_below(span, run) && span.duration() < Duration::from_millis(50), "{span:?}");
        let links: BTreeSet<_> = span.links.iter().map(|link| link.span_id.as_str()).collect();
        assert_eq!(links, [broken.id.as_str()].into(), "{span:?}");
        assert!(span.error.as_ref().unwrap().contains("withheld: it depends on broken"), "{span:?}");
    }
    assert!(run.events.len() < 20, "{:?}", run.events);
}

/// Case 328: a run in which all went well is two lines, and both say so quietly.
#[tokio::test]
async fn run_that_went_well_is_two_lines() {
    let pair = Pair::shared().await;
    let namespace = pair.world.east().namespace_for("quiet-story").await.unwrap();
    let design =
        (0..20).fold(Design::new(), |design, number| design.config_map(&format!("c{number}"), &namespace, &[]));
    let parent = TraceParent::random();
    let client = pair.client().await.traced(parent.clone());
    let outcome = client.run(client::deploy(design.text(), &["east"]), vec![]).await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    let lines = lines(pair, parent.trace_id());
    let told: Vec<_> = lines.iter().filter(|line| line["level"] != "DEBUG" && line["level"] != "TRACE").collect();
    let told: Vec<_> =
        told.iter().map(|line| (line["level"].as_str().unwrap(), line["message"].as_str().unwrap())).collect();
    assert_eq!(told, [("INFO", "run started"), ("INFO", "run ended")]);
}

/// Case 328: what the caller is told of a cluster that is refused is in the log as well.
#[tokio::test]
async fn log_says_why_a_cluster_is_refused() {
    let pair = Pair::shared().await;
    let proxy = Proxy::before(pair.world.east()).await.unwrap();
    proxy.close();
    let parent = TraceParent::random();
    let client = pair.client().await.traced(parent.clone());
    let request = client::deploy(Design::new().config_map("never", "default", &[]).text(), &["gone"]);
    let access = vec![client::kubeconfig("gone", proxy.kubeconfig().to_string())];
    client.run(request, access).await.unwrap_err();
    let lines = lines(pair, parent.trace_id());
    let refused = named(&lines, "run refused");
    assert_eq!(refused.len(), 1, "{lines:?}");
    assert_eq!((&refused[0]["level"], &refused[0]["reason"]), (&"WARN".into(), &"CLUSTER_UNUSABLE".into()));
    let why = refused[0]["why"].as_str().unwrap();
    assert!(why.contains("cluster gone: it cannot be reached"), "{why}");
}
