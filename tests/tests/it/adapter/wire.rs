//! What goes over the wire to adapters, and how much of it at once (D25, D27, `meshery-facts` 5).

use std::time::Duration;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use switchyard_proto::{
    meshes::{ProvisionRequest, mesh_service_client::MeshServiceClient},
    v1::{AdapterProtocol, Outcome, Verdict},
};
use switchyard_tests::{
    adapter::{self, Adapter},
    client::{self, Client, TraceParent},
    programs::Program,
    sandbox::{Folder, Sandbox, Trace, certs::Authority},
};

use super::{
    CONFIG_MAP, POLICY, ThroughAdapter, config_map, deploy, failure, namespace, of, policy, run, undeploy, up_and_down,
};
use crate::{design::Design, pair::Pair};

/// The methods of the calls that reached an adapter, those it does not know included.
fn methods(adapter: &Adapter) -> Vec<String> {
    adapter.entries().into_iter().filter(|entry| entry.event == "call").map(|entry| entry.method).collect()
}

/// Facts 5.2, 5.3: AUTO finds out what an adapter speaks, and remembers it.
#[tokio::test]
async fn adapter_that_knows_only_process_oam_is_asked_for_provision_once() {
    let pair = Pair::shared().await;
    let namespace = namespace("oam").await;
    let adapter = super::adapter(&["--only-process-oam"]).await;
    let design = Design::new().mesh("first", POLICY, &[], &policy(&namespace)).mesh(
        "second",
        POLICY,
        &["first"],
        &policy(&namespace),
    );
    let request = deploy(&design, of(&adapter));
    let up = run(request.clone()).await;
    assert_eq!(up.verdict(), Verdict::Succeeded, "{:#?}", up.summary);
    let object: NetworkPolicy =
        Api::namespaced(pair.world.west().client().await.unwrap(), &namespace).get("second").await.unwrap();
    assert_eq!(object.spec.unwrap().policy_types.unwrap(), ["Egress"], "the spec is not nested in itself");
    let annotations = object.metadata.annotations.unwrap();
    for key in
        ["design.meshmodel.io.k8s.Kind", "pattern.meshery.io.k8s.k8sKind", "pattern.meshery.io.mesh.workload.k8sKind"]
    {
        assert_eq!(annotations[key], "NetworkPolicy");
    }
    let down = run(undeploy(&request)).await;
    assert_eq!(down.verdict(), Verdict::Succeeded, "{:#?}", down.summary);
    assert_eq!(methods(&adapter), ["Provision", "ProcessOAM", "ProcessOAM", "ProcessOAM", "ProcessOAM"]);
    let calls = adapter.calls();
    let told: Vec<_> = calls.iter().map(|call| (call.names.join(","), call.delete_op)).collect();
    let told: Vec<_> = told.iter().map(|(name, deletes)| (name.as_str(), *deletes)).collect();
    assert_eq!(told, [("first", false), ("second", false), ("second", true), ("first", true)]);
    up_and_down(&request).await;
}

/// A protocol that the registry names is the only one that is tried.
#[tokio::test]
async fn protocol_of_the_registry_is_the_only_one() {
    let namespace = namespace("pinned").await;
    let both = super::adapter(&[]).await;
    let old = super::adapter(&["--only-process-oam"]).await;
    let design = Design::new().mesh("routes", POLICY, &[], &policy(&namespace));
    let through = |adapter: &Adapter, protocol| deploy(&design, adapter::registry(adapter.address(), protocol));
    assert_eq!(run(through(&both, AdapterProtocol::ProcessOam)).await.verdict(), Verdict::Succeeded);
    assert_eq!(methods(&both), ["ProcessOAM"]);
    let outcome = run(through(&old, AdapterProtocol::Provision)).await;
    assert_eq!(outcome.outcomes()["routes"], Outcome::Failed);
    let (_, message) = failure(&outcome, "routes");
    assert!(message.contains("does not offer provisioning: it does not know Provision"), "{message}");
    assert_eq!(methods(&old), ["Provision"]);
    up_and_down(&through(&both, AdapterProtocol::Auto)).await;
}

/// D27: two runs at once, and never two calls; what comes along is what adapters can bear.
#[tokio::test]
async fn calls_to_one_address_never_overlap() {
    let namespace = namespace("overlap").await;
    let adapter = super::adapter(&["--crash-on-two", "--slow=50ms"]).await;
    let design = |run: &str| {
        let names = (0..5).map(|number| format!("{run}-{number}"));
        names.fold(Design::new(), |design, name| design.mesh(&name, CONFIG_MAP, &[], &config_map(&namespace)))
    };
    let (one, two) = (design("one"), design("two"));
    let requests = [deploy(&one, of(&adapter)), deploy(&two, of(&adapter))];
    let (one, two) = tokio::join!(run(requests[0].clone()), run(requests[1].clone()));
    for outcome in [one, two] {
        assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    }
    let calls = adapter.calls();
    assert_eq!(calls.len(), 10);
    for call in calls {
        assert_eq!((call.running, call.kubeconfigs, call.username.as_str()), (1, 2, "switchyard"), "{call:#?}");
        assert_eq!(call.compression, "");
        // A little less than the ten minutes that a mesh may take.
        assert!(call.deadline.is_some_and(|left| (500_000..600_000).contains(&left)), "{call:#?}");
        assert!(call.servers.iter().all(|servers| servers.len() == 1), "one cluster a kubeconfig, nothing else");
    }
    let connections = adapter.entries().iter().filter(|entry| entry.event == "connection").count();
    assert_eq!(connections, 1, "one channel an address");
    tokio::join!(up_and_down(&requests[0]), up_and_down(&requests[1]));
}

/// Case 268: after a call that had no answer in its time the adapter is given time, and the next call says what was before it. It
/// is made all the same.
#[tokio::test]
async fn call_after_one_that_timed_out_comes_later_and_says_so() {
    let namespace = namespace("rests").await;
    let adapter = super::adapter(&["--slow=5s"]).await;
    let requests = ["first", "second", "third"]
        .map(|name| deploy(&Design::new().mesh(name, CONFIG_MAP, &[], &config_map(&namespace)), of(&adapter)));
    let [first, second, third] = requests.clone();
    let first = run(super::within(first, 2)).await;
    assert_eq!(first.outcomes()["first"], Outcome::Indeterminate, "{:#?}", first.summary);

    // Its own time is enough for three calls, a third of which the address rests.
    let second = run(super::within(second, 18)).await;
    assert_eq!(second.outcomes()["second"], Outcome::Succeeded, "{:#?}", second.summary);
    let warnings = &super::by_adapter(&second, "second").warnings;
    let text = format!("the call to the adapter at {} before this one had no answer in its time", adapter.address());
    assert!(warnings.iter().any(|warning| warning.contains(&text)), "{warnings:?}");
    assert_eq!(adapter.calls()[1].running, 1, "the first has come to its end");

    let third = run(super::within(third, 18)).await;
    assert!(super::by_adapter(&third, "third").warnings.is_empty(), "{:#?}", third.results);
    for request in &requests {
        up_and_down(request).await;
    }
}

/// D27: what an adapter could not take is not sent.
#[tokio::test]
async fn request_that_is_too_large_fails_and_is_not_sent() {
    let namespace = namespace("large").await;
    let adapter = super::adapter(&[]).await;
    let large = "x".repeat(4 * 1024 * 1024);
    let design = Design::new().mesh(
        "large",
        CONFIG_MAP,
        &[],
        &format!("{{metadata: {{namespace: {namespace}}}, data: {{text: {large}}}}}"),
    );
    let outcome = run(deploy(&design, of(&adapter))).await;
    assert_eq!(outcome.outcomes()["large"], Outcome::Failed);
    let (reason, message) = failure(&outcome, "large");
    assert_eq!(reason, "TOO_LARGE", "{message}");
    assert!(message.contains(&adapter.address().to_string()), "{message}");
    assert_eq!(methods(&adapter), Vec::<String>::new());
}

/// Case 130: an adapter that has no room is asked again, and the direct path does not wait for it.
#[tokio::test]
async fn adapter_without_room_is_asked_again() {
    let namespace = namespace("busy").await;
    let adapter = super::adapter(&["--busy=1", "--slow=1500ms"]).await;
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", adapter.address())).unwrap();
    let mut other = MeshServiceClient::new(channel.connect().await.unwrap());
    let occupied = tokio::spawn(async move { other.provision(ProvisionRequest::default()).await });
    adapter.wait_for(Duration::from_secs(5), |entry| entry.event == "call").await.unwrap();
    let design =
        Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace)).config_map("direct", &namespace, &[]);
    let request = deploy(&design, of(&adapter));
    let outcome = run(request.clone()).await;
    occupied.await.unwrap().unwrap();
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    assert_eq!(outcome.results[0].component.as_ref().unwrap().name, "direct");
    let refused = adapter.entries().iter().filter(|entry| entry.code == "ResourceExhausted").count();
    assert!(refused >= 1);
    up_and_down(&request).await;
}

/// D25: what an adapter quotes of the credentials it was given reaches nobody.
#[tokio::test]
async fn credentials_that_an_adapter_quotes_are_in_no_result_span_or_log_line() {
    let pair = Pair::shared().await;
    let namespace = namespace("quoted").await;
    let adapter = super::adapter(&["--quote-kubeconfig"]).await;
    let value = "canary-value-8d7f1";
    let design = Design::new().mesh(
        "routes",
        ("v1", "Secret"),
        &[],
        &format!("{{metadata: {{namespace: {namespace}}}, stringData: {{a: {value}}}}}"),
    );
    // Enough to be looked at before the adapter is called (case 301).
    pair.world.west().grant_in(&namespace, "operator", &["get"], "", &["secrets"]).await.unwrap();
    let west = pair.world.west().kubeconfig_with_token(Sandbox::OPERATOR_TOKEN).to_string();
    let east = pair.world.east().kubeconfig_admin().to_string();
    let key = east
        .lines()
        .find_map(|line| line.trim().strip_prefix("client-key-data:"))
        .unwrap()
        .trim()
        .trim_matches('"')
        .to_owned();
    let access = vec![client::kubeconfig("east", east), client::kubeconfig("west", west)];
    let parent = TraceParent::random();
    let client = pair.client().await.traced(parent.clone());
    let request = deploy(&design, of(&adapter));
    let outcome = client.run(request.clone(), access).await.unwrap();
    assert_eq!(outcome.outcomes()["routes"], Outcome::Failed);
    assert!(failure(&outcome, "routes").1.contains("cannot use"), "{:#?}", outcome.summary);
    let complete = |trace: &Trace| trace.named("run").count() == 1;
    pair.world.jaeger().wait_for(parent.trace_id(), Duration::from_secs(30), complete).await.unwrap();
    let spans = pair.world.jaeger().trace_text(parent.trace_id()).await.unwrap();
    let events = format!("{:?}", outcome.events);
    let log = pair.executor.log();
    for (where_to, text) in [("result", &events), ("trace", &spans), ("log", &log), ("call log", &adapter.call_log())] {
        for secret in [Sandbox::OPERATOR_TOKEN, &key[..40]] {
            assert!(!text.contains(secret), "{secret} is in the {where_to}");
        }
        // The adapter's own log holds the component as it was sent.
        assert!(where_to == "call log" || !text.contains(value), "{value} is in the {where_to}");
    }
    up_and_down(&request).await;
}

/// `--adapter-ca`, `--adapter-cert`, `--adapter-key`: TLS in which both sides show who they are.
#[tokio::test]
async fn adapter_is_spoken_to_over_mutual_tls_when_the_executor_is_told_so() {
    let pair = Pair::shared().await;
    let namespace = namespace("tls").await;
    let files = Folder::new("adapter-tls").unwrap();
    let authority = Authority::new("adapters").unwrap();
    let (server, own) = (authority.server(&["127.0.0.1"]).unwrap(), authority.client("executor", &[]).unwrap());
    let write = |name: &str, text: &str| files.write(name, text).unwrap().display().to_string();
    let (ca, cert, key) =
        (write("ca", authority.certificate()), write("cert", &server.certificate), write("key", &server.key));
    let adapter =
        super::adapter(&[&format!("--tls-cert={cert}"), &format!("--tls-key={key}"), &format!("--tls-client-ca={ca}")])
            .await;
    let kubeconfig = write("kubeconfig", &pair.world.control_plane().kubeconfig().to_string());
    let executor = Program::Executor.prepare().arg("--kubeconfig").arg(kubeconfig);
    let executor = executor.arg("--adapter-allow=127.0.0.1:*").arg("--adapter-ca").arg(ca);
    let anonymous = executor.clone().start().await.unwrap();
    let executor = executor.arg("--adapter-cert").arg(write("own-cert", &own.certificate));
    let executor = executor.arg("--adapter-key").arg(write("own-key", &own.key)).start().await.unwrap();
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace));
    let request = deploy(&design, of(&adapter));
    for refused in [&anonymous, &pair.executor] {
        let client = Client::connect(&pair.planner.url(), &refused.url()).await.unwrap();
        let outcome = client.run(request.clone(), vec![]).await.unwrap();
        assert_ne!(outcome.outcomes()["routes"], Outcome::Succeeded);
        assert!(failure(&outcome, "routes").1.contains(&adapter.address().to_string()), "{:#?}", outcome.summary);
    }
    assert_eq!(methods(&adapter), Vec::<String>::new());
    let client = Client::connect(&pair.planner.url(), &executor.url()).await.unwrap();
    let outcome = client.run(request.clone(), vec![]).await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    up_and_down(&request).await;
}
