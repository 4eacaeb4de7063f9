//! What Prometheus reads (`--metrics-listen`), and that nothing in it grows with names (case 139).

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use switchyard_proto::v1::Verdict;
use switchyard_tests::{
    client::{self, Client},
    programs::{Program, Running},
    sandbox::Sandbox,
};

use crate::design::Design;

async fn start(program: Program) -> Running {
    program.prepare().arg("--metrics-listen").arg("127.0.0.1:0").start().await.unwrap()
}

/// Where it says that its metrics are.
fn address(program: &Running) -> String {
    let log = program.log();
    let line = log.lines().find(|line| line.contains("metrics are served")).unwrap_or_else(|| panic!("{log}"));
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    line["address"].as_str().unwrap().to_owned()
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The series, without their values.
fn series(text: &str) -> BTreeSet<String> {
    let lines = text
        .lines()
        .filter(|line| line.starts_with("switchyard_") || line.starts_with("rpc_") || line.starts_with("http_"));
    lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
}

/// What one series counts.
fn value(text: &str, name: &str, labels: &[&str]) -> f64 {
    let line = text.lines().find(|line| line.starts_with(name) && labels.iter().all(|label| line.contains(label)));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("no {name} {labels:?} in {text}"))
}

#[tokio::test]
async fn calls_components_and_requests_are_counted_and_no_label_grows_with_names() {
    let world = Sandbox::shared().await.unwrap();
    let namespace = world.east().namespace_for("metrics").await.unwrap();
    let (planner, executor) = (start(Program::Planner).await, start(Program::Executor).await);
    let client = Client::connect(&planner.url(), &executor.url()).await.unwrap();
    let deploy = async |number: usize, bad: bool| {
        let names = (0..number).map(|_| format!("n-{}", uuid::Uuid::new_v4()));
        let design = names.fold(Design::new(), |design, name| design.config_map(&name, &namespace, &[]));
        let broken = format!("{{metadata: {{namespace: {namespace}}}, data: {{'no such key!': x}}}}");
        let design = if bad { design.component("broken", ("v1", "ConfigMap"), &[], &broken) } else { design };
        let access = vec![client::kubeconfig("east", world.east().kubeconfig_admin().to_string())];
        client.run(client::deploy(design.text(), &["east"]), access).await.unwrap().verdict()
    };
    assert_eq!(deploy(3, true).await, Verdict::Partial);

    let (of_planner, of_executor) = (address(&planner), address(&executor));
    let text = get(&of_executor, "/metrics");
    assert_eq!(value(&text, "switchyard_steps_total", &["outcome=\"succeeded\"", "path=\"direct\""]), 3.0);
    assert_eq!(value(&text, "switchyard_steps_total", &["outcome=\"failed\""]), 1.0);
    assert_eq!(value(&text, "switchyard_runs_active", &[]), 0.0);
    let patches = ["http_request_method=\"PATCH\"", "http_response_status_code=\"201\""];
    // Three components and the Lease.
    assert_eq!(value(&text, "http_client_request_duration_seconds_count", &patches), 4.0);
    assert_eq!(value(&text, "rpc_server_call_duration_seconds_count", &["rpc_method=\"Execute\""]), 1.0);
    let text_of_planner = get(&of_planner, "/metrics");
    assert_eq!(value(&text_of_planner, "rpc_server_call_duration_seconds_count", &["rpc_method=\"Plan\""]), 1.0);

    assert_eq!(deploy(40, true).await, Verdict::Partial);
    let later = get(&of_executor, "/metrics");
    assert_eq!(series(&later), series(&text), "more names make no more series");
    assert!(!later.contains(&namespace), "{later}");
    assert!(get(&of_executor, "/").contains("404"));
}
