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
    sandbox::{Folder, Sandbox},
};

use crate::design::Design;

async fn start(program: Program) -> Running {
    program.prepare().arg("--metrics-listen").arg("127.0.0.1:0").start().await.unwrap()
}

/// Where it says that its metrics are.
fn address(program: &Running) -> String {
    // The log comes a moment later.
    let began = std::time::Instant::now();
    let log = loop {
        let log = program.log();
        if log.contains("metrics are served") || began.elapsed() > Duration::from_secs(5) {
            break log;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
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
    assert_eq!(
        value(&text, "switchyard_run_duration_seconds_count", &["verdict=\"partial\"", "operation=\"deploy\""]),
        1.0
    );
    assert_eq!(value(&text, "http_client_active_requests", &["http_request_method=\"PATCH\""]), 0.0);
    for name in ["process_cpu_time_seconds_total", "process_memory_usage_bytes", "process_unix_file_descriptor_count"] {
        assert!(value(&text, name, &[]) > 0.0, "{name}");
    }
    assert!(text.contains("le=\"600\""), "a run may take minutes");
    let patches = ["http_request_method=\"PATCH\"", "http_response_status_code=\"201\""];
    assert_eq!(value(&text, "http_client_request_duration_seconds_count", &patches), 3.0, "one a component");
    assert_eq!(value(&text, "rpc_server_call_duration_seconds_count", &["rpc_method=\"Execute\""]), 1.0);
    let text_of_planner = get(&of_planner, "/metrics");
    assert_eq!(value(&text_of_planner, "rpc_server_call_duration_seconds_count", &["rpc_method=\"Plan\""]), 1.0);

    assert_eq!(deploy(40, true).await, Verdict::Partial);
    let later = get(&of_executor, "/metrics");
    assert_eq!(series(&later), series(&text), "more names make no more series");
    assert!(!later.contains(&namespace), "{later}");
    assert!(get(&of_executor, "/").contains("404"));
}

/// Case 329: which cluster it was, as far as the names are the installation's own.
#[tokio::test]
async fn clusters_of_the_executors_own_are_told_apart() {
    let world = Sandbox::shared().await.unwrap();
    let folder = Folder::new("metrics").unwrap();
    let kubeconfig = folder.write("kubeconfig.yaml", &world.control_plane().kubeconfig().to_string()).unwrap();
    let executor =
        Program::Executor.prepare().arg("--metrics-listen").arg("127.0.0.1:0").arg("--kubeconfig").arg(&kubeconfig);
    let (planner, executor) = (Program::Planner.prepare().start().await.unwrap(), executor.start().await.unwrap());
    let client = Client::connect(&planner.url(), &executor.url()).await.unwrap();
    let name = format!("n-{}", uuid::Uuid::new_v4());
    let request = client::deploy(Design::new().config_map(&name, "default", &[]).text(), &["east", "a-secret-name"]);
    let access = vec![client::kubeconfig("a-secret-name", world.west().kubeconfig_admin().to_string())];
    client.run(request, access).await.unwrap();
    let text = get(&address(&executor), "/metrics");
    let labels =
        |cluster: &'static str| [cluster, "http_request_method=\"PATCH\"", "http_response_status_code=\"201\""];
    for cluster in ["k8s_cluster_name=\"east\"", "k8s_cluster_name=\"(of a request)\""] {
        assert_eq!(value(&text, "http_client_request_duration_seconds_count", &labels(cluster)), 1.0, "{cluster}");
    }
    assert!(!text.contains("a-secret-name"), "{text}");
}

/// Case 326: a collector that is not there costs spans, which is told and counted though metrics are on.
#[tokio::test]
async fn lost_spans_are_told_and_counted() {
    let planner = Program::Planner.prepare().arg("--metrics-listen").arg("127.0.0.1:0").traced("http://127.0.0.1:9");
    let planner = planner.start().await.unwrap();
    let client = Client::connect(&planner.url(), &planner.url()).await.unwrap();
    client.plan(client::deploy(Design::new().config_map("a", "default", &[]).text(), &["east"])).await.unwrap();
    let address = address(&planner);
    let began = std::time::Instant::now();
    let lost = |text: &str| value(text, "switchyard_telemetry_spans_lost_total", &["reason=\"export_failed\""]);
    while lost(&get(&address, "/metrics")) == 0.0 || !planner.log().contains("BatchSpanProcessor.ExportError") {
        assert!(began.elapsed() < Duration::from_secs(30), "{}", planner.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
