//! Adapters that are not usable, not there, silent, or gone between two calls (S15, S17, cases 120 to 125).

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use switchyard_proto::v1::{AdapterProtocol, CancelledBy, Outcome, PlanRequest, TargetResult, Verdict, plan_step};
use switchyard_tests::{
    adapter::{self, Adapter},
    client::{self, Client, TraceParent},
    programs::Program,
    sandbox::{Cluster, Folder, Trace},
};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
};
use tonic::Code;

use super::{CONFIG_MAP, ThroughAdapter, config_map, deploy, failure, namespace, of, run, up_and_down, within};
use crate::{design::Design, pair::Pair};

/// S15, cases 122 and 123: many components of an adapter that is not there fail at once, and the run goes on.
#[tokio::test]
async fn components_of_an_adapter_that_is_not_there_fail_with_its_address_and_the_run_goes_on() {
    let namespace = namespace("not-there").await;
    let address = adapter::free_address().unwrap();
    let mut design = Design::new().config_map("direct", &namespace, &[]).config_map("behind", &namespace, &["m0"]);
    for number in 0..50 {
        design = design.mesh(&format!("m{number}"), CONFIG_MAP, &[], &config_map(&namespace));
    }
    let began = Instant::now();
    let request = deploy(&design, adapter::registry(address, AdapterProtocol::Auto));
    let outcome = run(request.clone()).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(outcome.verdict(), Verdict::Partial);
    assert_eq!(outcome.outcomes()["direct"], Outcome::Succeeded);
    assert_eq!(outcome.outcomes()["behind"], Outcome::Withheld);
    for number in 0..50 {
        let (reason, message) = failure(&outcome, &format!("m{number}"));
        assert_eq!(reason, "ADAPTER_UNREACHABLE");
        assert!(message.contains(&address.to_string()) && message.contains("refused"), "{message}");
    }
    up_and_down(&request).await;
}

/// S15, case 122: a name that nobody knows is an address that can be used; it does not answer.
#[tokio::test]
async fn host_that_does_not_exist_fails_its_component_alone() {
    let namespace = namespace("no-host").await;
    let design =
        Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace)).config_map("direct", &namespace, &[]);
    let registry = adapter::registry_at("does-not-exist.invalid", 10_000.0, AdapterProtocol::Auto);
    let request = deploy(&design, registry);
    let outcome = run(request.clone()).await;
    assert_eq!(outcome.outcomes()["direct"], Outcome::Succeeded);
    let (reason, message) = failure(&outcome, "routes");
    assert_eq!(reason, "ADAPTER_UNREACHABLE");
    assert!(message.contains("does-not-exist.invalid:10000"), "{message}");
    up_and_down(&request).await;
}

/// Case 124: where nothing answers a dial, the dial's bound ends the wait, once for all components.
#[tokio::test]
async fn black_holed_address_fails_at_the_bound_of_the_dial() {
    let namespace = namespace("black-hole").await;
    // A listener whose queue is full: the kernel drops what else wants to connect.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(500), TcpStream::connect(address)).await {
        queue.push(stream);
    }
    let design = Design::new().mesh("one", CONFIG_MAP, &[], &config_map(&namespace)).mesh(
        "two",
        CONFIG_MAP,
        &[],
        &config_map(&namespace),
    );
    let began = Instant::now();
    let request = deploy(&design, adapter::registry(address, AdapterProtocol::Auto));
    let outcome = run(request.clone()).await;
    let took = began.elapsed();
    assert!(took > Duration::from_secs(4) && took < Duration::from_secs(9), "{took:?}");
    for component in ["one", "two"] {
        let (reason, message) = failure(&outcome, component);
        assert_eq!(reason, "ADAPTER_UNREACHABLE");
        assert!(message.contains(&address.to_string()) && message.contains("no answer"), "{message}");
    }
    up_and_down(&request).await;
}

/// Case 125: what accepts a connection and never says a word ends with the step's time, and may have acted.
#[tokio::test]
async fn peer_that_accepts_and_stays_silent_ends_with_the_steps_time() {
    let namespace = namespace("silent").await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace));
    let began = Instant::now();
    let request = within(deploy(&design, adapter::registry(address, AdapterProtocol::Auto)), 3);
    let outcome = run(request.clone()).await;
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert_ne!(outcome.outcomes()["routes"], Outcome::Succeeded);
    let (_, message) = failure(&outcome, "routes");
    assert!(message.contains(&address.to_string()), "{message}");
    up_and_down(&request).await;
}

/// Case 125: an adapter that hangs is told how long we wait, and that we left.
#[tokio::test]
async fn adapter_that_hangs_is_told_the_deadline_and_that_we_left() {
    let namespace = namespace("hangs").await;
    let adapter = super::adapter(&["--hang"]).await;
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace));
    let request = deploy(&design, of(&adapter));
    let outcome = run(within(request.clone(), 3)).await;
    assert_eq!(outcome.outcomes()["routes"], Outcome::Indeterminate);
    assert_eq!(failure(&outcome, "routes").0, "ADAPTER_TIMEOUT");
    let end = adapter.wait_for(Duration::from_secs(3), |entry| entry.event == "end").await.unwrap();
    assert!(end.left);
    assert!(adapter.calls()[0].deadline.is_some_and(|left| left < 3_000));
    up_and_down(&request).await;
}

/// Case 120: a channel whose peer was started anew serves the next call; one whose peer is gone has sent nothing.
#[tokio::test]
async fn adapter_that_restarts_between_two_calls_is_not_noticed_and_one_that_is_gone_is_unreachable() {
    let namespace = namespace("restart").await;
    let adapter = super::adapter(&[]).await;
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace));
    let request = deploy(&design, of(&adapter));
    assert_eq!(run(request.clone()).await.verdict(), Verdict::Succeeded);
    let address = adapter.kill();
    let adapter = Adapter::prepare().at(address).start().await.unwrap();
    let second = run(request.clone()).await;
    assert_eq!(second.verdict(), Verdict::Succeeded, "{:#?}", second.summary);
    assert_eq!(adapter.calls().len(), 1);
    adapter.kill();
    let third = run(request.clone()).await;
    assert_eq!(third.outcomes()["routes"], Outcome::Failed);
    let (reason, message) = failure(&third, "routes");
    assert_eq!(reason, "ADAPTER_UNREACHABLE", "{message}");
    up_and_down(&request).await;
}

/// Answers every connection with these bytes, or none, and ends it.
fn answering(bytes: &'static [u8]) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(bytes).await.ok();
            stream.shutdown().await.ok();
            // What is not read would have the kernel reset the connection, and take the answer with it.
            tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.ok();
        }
    });
    address
}

/// Case 287: what speaks something else has done nothing, and is named.
#[tokio::test]
async fn peer_that_is_no_grpc_service_fails_its_component_and_is_named() {
    let namespace = namespace("no-grpc").await;
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace));
    let peers: [(&'static [u8], &str, &str); 4] = [
        (b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", "NOT_GRPC", "HTTP/1"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "NOT_GRPC", "SSH"),
        (&[0x15, 3, 3, 0, 2, 2, 70], "NOT_GRPC", "TLS"),
        (b"", "ADAPTER_UNREACHABLE", "without a word"),
    ];
    for (bytes, reason, what) in peers {
        let address = answering(bytes);
        let request = deploy(&design, adapter::registry(address, AdapterProtocol::Auto));
        let outcome = run(request.clone()).await;
        assert_eq!(outcome.outcomes()["routes"], Outcome::Failed, "{what}: {:#?}", outcome.summary);
        let (told, message) = failure(&outcome, "routes");
        assert_eq!(told, reason, "{message}");
        assert!(message.contains(&address.to_string()) && message.contains(what), "{message}");
        assert!(!message.contains("may have acted"), "{message}");
        up_and_down(&request).await;
    }
}

/// Case 309: an address rests within a run; a new run dials it anew.
#[tokio::test]
async fn adapter_that_was_started_since_serves_the_next_run() {
    let namespace = namespace("started-since").await;
    let address = adapter::free_address().unwrap();
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace));
    let request = deploy(&design, adapter::registry(address, AdapterProtocol::Auto));
    let first = run(request.clone()).await;
    assert_eq!(failure(&first, "routes").0, "ADAPTER_UNREACHABLE");
    let _adapter = Adapter::prepare().at(address).start().await.unwrap();
    let second = run(request.clone()).await;
    assert_eq!(second.verdict(), Verdict::Succeeded, "{:#?}", second.summary);
    up_and_down(&request).await;
}

/// Case 310: whom nobody could reach is in the trace and in the log.
#[tokio::test]
async fn adapter_that_cannot_be_reached_is_in_the_trace_and_in_the_log() {
    let pair = Pair::shared().await;
    let namespace = namespace("unreached").await;
    let address = adapter::free_address().unwrap();
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace));
    let parent = TraceParent::random();
    let client = pair.client().await.traced(parent.clone());
    let request = deploy(&design, adapter::registry(address, AdapterProtocol::Auto));
    let outcome = client.run(request.clone(), vec![]).await.unwrap();
    assert_eq!(outcome.outcomes()["routes"], Outcome::Failed);
    let complete = |trace: &Trace| trace.named("run").count() == 1 && trace.named("connect to adapter").count() == 1;
    let trace = pair.world.jaeger().wait_for(parent.trace_id(), Duration::from_secs(30), complete).await.unwrap();
    let span = trace.named("connect to adapter").next().unwrap();
    assert_eq!(span.attribute("server.address"), Some("127.0.0.1"));
    assert_eq!(span.attribute("server.port"), Some(address.port().to_string().as_str()));
    assert!(trace.is_below(span, trace.named("step routes").next().unwrap()), "{}", trace.tree());
    let log = pair.executor.log();
    let told = |line: &&str| line.contains("adapter cannot be reached") && line.contains(&address.to_string());
    assert_eq!(log.lines().filter(told).count(), 1);
    up_and_down(&request).await;
}

/// Case 122: IPv6 literals are addresses.
#[tokio::test]
async fn ipv6_literal_is_an_address() {
    let namespace = namespace("six").await;
    let Ok(adapter) = Adapter::prepare().at("[::1]:0".parse().unwrap()).start().await else {
        eprintln!("this machine has no IPv6 loopback");
        return;
    };
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace));
    let request = deploy(&design, of(&adapter));
    let outcome = run(request.clone()).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    let row = &outcome.summary.rows[0];
    assert_eq!(row.fulfilled_by, [adapter.address().to_string()]);
    up_and_down(&request).await;
}

/// S17, case 122, planner: an address that nobody could dial stops everything, and is named.
#[tokio::test]
async fn address_that_is_not_usable_is_refused_at_planning_and_only_a_warning_in_a_dry_run() {
    let pair = Pair::shared().await;
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map("default"));
    for (host, port) in [("", 10_000.0), ("mesh", 0.0), ("mesh", 70_000.0), ("me sh", 1.0), ("http://x", 1.0)] {
        let mut request = deploy(&design, adapter::registry_at(host, port, AdapterProtocol::Auto));
        let status = pair.client().await.plan(request.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{host}:{port}");
        let details = tonic_types::StatusExt::get_error_details(&status);
        assert_eq!(details.error_info().unwrap().reason, "REGISTRANT_ADDRESS_INVALID");
        let violation = &details.precondition_failure().unwrap().violations[0];
        assert!(violation.subject.contains("model mesh, registrant mesh"), "{violation:?}");
        request.dry_run = true;
        let plan = pair.client().await.plan(request).await.unwrap();
        assert!(!plan.header.warnings.is_empty(), "{host}:{port}");
    }
}

/// S17, executor: a plan that names such an address is refused before any cluster is touched.
#[tokio::test]
async fn plan_with_an_address_that_is_not_usable_touches_no_cluster() {
    let pair = Pair::shared().await;
    let name = format!("untouched-{}", uuid::Uuid::new_v4().simple());
    let design =
        Design::new().config_map(&name, "default", &[]).mesh("routes", CONFIG_MAP, &[], &config_map("default"));
    let client = pair.client().await;
    let plan = client.plan(deploy(&design, adapter::registry_at("mesh", 1.0, AdapterProtocol::Auto))).await.unwrap();
    for (host, port) in [("", 1), ("mesh", 0), ("mesh", 70_000), ("me sh", 1), ("http://x", 1)] {
        let mut plan = plan.clone();
        for step in &mut plan.steps {
            if let Some(plan_step::Route::Adapter(route)) = &mut step.route {
                (route.host, route.port) = (host.into(), port);
            }
        }
        let refused = match client.execute(plan.resealed(), vec![]).await {
            Ok(execution) => execution.finish().await.map(drop),
            Err(status) => Err(status),
        };
        let status = refused.unwrap_err();
        let details = tonic_types::StatusExt::get_error_details(&status);
        assert_eq!(status.code(), Code::FailedPrecondition, "{host}:{port}: {status:?}");
        assert_eq!(details.error_info().unwrap().reason, "REGISTRANT_ADDRESS_INVALID");
    }
    let events = pair.world.east().audit().unwrap();
    assert!(!events.iter().any(|event| event.uri.contains(&name)));
}

/// Case 238: who calls chooses the adapter's address, so the executor's own credentials go to none that the installation does not
/// name.
#[tokio::test]
async fn credentials_of_the_executors_own_go_to_no_adapter_that_the_installation_does_not_name() {
    let pair = Pair::shared().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let folder = Folder::new("not-allowed").unwrap();
    let own = pair.world.control_plane().kubeconfig().to_string();
    let own = folder.write("kubeconfig.yaml", &own).unwrap();
    let other = format!("--adapter-allow=localhost:*,127.0.0.1:{}", if address.port() == 1 { 2 } else { 1 });
    for flags in [vec![], vec![other]] {
        let name = format!("untouched-{}", uuid::Uuid::new_v4().simple());
        let design =
            Design::new().config_map(&name, "default", &[]).mesh("routes", CONFIG_MAP, &[], &config_map("default"));
        let request = deploy(&design, adapter::registry(address, AdapterProtocol::Auto));
        let executor = Program::Executor.prepare().arg("--kubeconfig").arg(&own);
        let executor = flags.iter().fold(executor, |executor, flag| executor.arg(flag)).start().await.unwrap();
        let client = Client::connect(&pair.planner.url(), &executor.url()).await.unwrap();
        for access in [vec![], vec![client::context("west", "east"), client::context("east", "west")]] {
            let plan = client.plan(request.clone()).await.unwrap();
            let status = client.execute(plan, access).await.unwrap().finish().await.unwrap_err();
            assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
            let details = tonic_types::StatusExt::get_error_details(&status);
            assert_eq!(details.error_info().unwrap().reason, "ADAPTER_NOT_ALLOWED");
            let violation = &details.precondition_failure().unwrap().violations[0];
            assert_eq!(violation.subject, address.to_string());
            for word in ["east", "west", &format!("--adapter-allow {address}")] {
                assert!(violation.description.contains(word), "{violation:?}");
            }
        }
        let dry_run = client.run(PlanRequest { dry_run: true, ..request.clone() }, vec![]).await.unwrap();
        let targets = &dry_run.result("routes").unwrap().targets;
        let warned = |target: &TargetResult| target.warnings.iter().any(|it| it.contains("the run would be refused"));
        assert!(targets.len() == 2 && targets.iter().all(warned), "{targets:#?}");
        assert!(listener.accept().is_err(), "nobody dialled");
        let events = pair.world.east().audit().unwrap();
        let asked = events.iter().filter(|event| event.uri.contains(&name) && event.is_write());
        assert!(asked.clone().count() > 0 && asked.clone().all(|event| event.uri.contains("dryRun=All")));
        // What the caller sends goes where the caller says.
        let sent = |cluster: &Cluster| client::kubeconfig(cluster.name(), cluster.kubeconfig_admin().to_string());
        let sent = vec![sent(pair.world.east()), sent(pair.world.west())];
        client.run(within(request.clone(), 1), sent).await.unwrap();
        assert!(listener.accept().is_ok(), "the adapter was dialled");
        while listener.accept().is_ok() {}
        up_and_down(&request).await;
    }
}

/// Case 263: an executor that goes down while an adapter works says that nobody can tell, and what was not begun.
#[tokio::test]
async fn executor_that_goes_down_during_a_call_says_so() {
    let pair = Pair::shared().await;
    let namespace = namespace("going-down").await;
    let adapter = super::adapter(&["--slow=60s"]).await;
    let files = Folder::new("going-down").unwrap();
    let kubeconfig = files.write("kubeconfig", &pair.world.control_plane().kubeconfig().to_string()).unwrap();
    let executor = Program::Executor.prepare().arg("--kubeconfig").arg(kubeconfig).arg("--grace-period").arg("4s");
    let executor = executor.arg("--adapter-allow").arg(adapter.address().to_string());
    let mut executor = executor.start().await.unwrap();
    let design = Design::new().mesh("routes", CONFIG_MAP, &[], &config_map(&namespace)).config_map(
        "behind",
        &namespace,
        &["routes"],
    );
    let client = Client::connect(&pair.planner.url(), &executor.url()).await.unwrap();
    let request = deploy(&design, of(&adapter));
    let plan = client.plan(request.clone()).await.unwrap();
    let execution = client.execute(plan, vec![]).await.unwrap();
    adapter.wait_for(Duration::from_secs(10), |entry| entry.event == "call").await.unwrap();

    executor.process().signal(rustix::process::Signal::TERM);
    let outcome = execution.finish().await.unwrap();

    assert_eq!(outcome.outcomes()["routes"], Outcome::Indeterminate, "{:#?}", outcome.summary);
    assert_eq!(outcome.outcomes()["behind"], Outcome::Cancelled);
    let (reason, message) = failure(&outcome, "routes");
    assert!(reason == "ADAPTER_TIMEOUT" && message.contains(&adapter.address().to_string()), "{message}");
    assert_eq!(outcome.summary.cancelled_by(), CancelledBy::Shutdown);
    let row = outcome.summary.rows.iter().find(|row| row.component == "routes").unwrap();
    assert!(row.fulfilled_by.is_empty(), "{row:?}");
    adapter.kill();
    up_and_down(&request).await;
}
