//! A whole program: what it exits with, what it says, and that its last spans arrive.
//!
//! Each case is a process of its own: this test binary again, running the test `child`, which is a program made of
//! `program::main`. Its flags come from the environment, as they may for any program of ours.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::{
    process::{Child, Command, ExitCode, Output},
    time::{Duration, Instant},
};

use support::{Collector, PROGRAM, ask, command, is_child};
use switchyard_proto::v1::planner_service_client::PlannerServiceClient;
use switchyard_service::{
    config::ServeArgs,
    program::{self, Error},
};
use tempfile::TempDir;
use tonic::transport::Channel;

/// The program's own flags, and those that the test harness puts on the command line.
#[derive(clap::Parser)]
struct ChildArgs {
    #[command(flatten)]
    serve: ServeArgs,
    #[arg(long, env = "CHILD_DOES", default_value = "serve")]
    does: String,
    #[arg(long)]
    exact: bool,
    #[arg(long)]
    nocapture: bool,
    test: String,
}

impl AsRef<ServeArgs> for ChildArgs {
    fn as_ref(&self) -> &ServeArgs {
        &self.serve
    }
}

#[test]
fn child() {
    if !is_child() {
        return;
    }
    let code = program::main(&PROGRAM, async |args: ChildArgs, listener, shutdown| {
        assert!(args.exact && args.nocapture && args.test == "child");
        tracing::info_span!("start").in_scope(|| ());
        match args.does.as_str() {
            "serve" => Ok(support::serve(&args.serve, listener, shutdown).await?),
            "read a file" => Err(Error::usage("could not read /etc/registry.yaml: it is not there")),
            "fail" => Err(Error::failed("the world is not as it should be")),
            "panic" => panic!("as asked for"),
            "hang" => std::future::pending().await,
            other => panic!("cannot do {other}"),
        }
    });
    let number = (0..=255).find(|number| ExitCode::from(*number) == code).unwrap();
    std::process::exit(number.into());
}

struct Running {
    process: Child,
    address: String,
    _folder: TempDir,
}

fn environment(does: &str) -> Vec<(&'static str, String)> {
    vec![("CHILD_DOES", does.to_owned()), ("SWITCHYARD_LISTEN", "127.0.0.1:0".to_owned())]
}

/// Starts the program and waits for its port file.
async fn start(mut environment: Vec<(&'static str, String)>) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let port_file = folder.path().join("port");
    environment.push(("SWITCHYARD_PORT_FILE", port_file.display().to_string()));
    let process = command("child", environment).spawn().unwrap();
    let start = Instant::now();
    let address = loop {
        if let Ok(text) = std::fs::read_to_string(&port_file) {
            break text.trim_end().to_owned();
        }
        assert!(start.elapsed() < Duration::from_secs(10), "no port file");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    Running { process, address, _folder: folder }
}

impl Running {
    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    async fn channel(&self) -> Channel {
        let endpoint = Channel::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.connect().await.unwrap()
    }

    async fn end_within(mut self, limit: Duration) -> Output {
        let start = Instant::now();
        while self.process.try_wait().unwrap().is_none() {
            if start.elapsed() > limit {
                self.process.kill().unwrap();
                panic!("still there: {:?}", self.process.wait_with_output().unwrap());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.process.wait_with_output().unwrap()
    }
}

async fn run(environment: Vec<(&'static str, String)>) -> Output {
    let process = command("child", environment).spawn().unwrap();
    let running = Running { process, address: String::new(), _folder: tempfile::tempdir().unwrap() };
    // A program that serves instead of ending is a failure, and not a test that never ends.
    running.end_within(Duration::from_secs(60)).await
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn a_program_that_is_told_to_end_exits_with_0_and_its_spans_arrive() {
    for _ in 0..10 {
        let collector = Collector::default();
        let mut environment = environment("serve");
        environment.push(("OTEL_EXPORTER_OTLP_ENDPOINT", collector.start().await));
        let running = start(environment).await;
        let mut client = PlannerServiceClient::new(running.channel().await);
        let mut stream = client.plan(ask("one part")).await.unwrap().into_inner();
        while stream.message().await.unwrap().is_some() {}

        running.signal("-TERM");

        let output = running.end_within(Duration::from_secs(5)).await;
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let mut names = collector.span_names();
        names.sort();
        assert_eq!(names, ["start", "switchyard.v1.PlannerService/Plan"], "{}", said(&output));
    }
}

#[tokio::test]
async fn a_second_signal_ends_the_program_at_once() {
    let mut environment = environment("serve");
    environment.push(("SWITCHYARD_GRACE_PERIOD", "1h".to_owned()));
    let running = start(environment).await;
    let mut client = PlannerServiceClient::new(running.channel().await);
    let _stream = client.plan(ask("a part, then nothing")).await.unwrap();
    running.signal("-TERM");
    tokio::time::sleep(Duration::from_millis(200)).await;

    running.signal("-INT");

    let output = running.end_within(Duration::from_secs(2)).await;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[tokio::test]
async fn a_drain_that_takes_too_long_ends_at_the_grace_period_and_not_with_0() {
    let mut environment = environment("serve");
    environment.push(("SWITCHYARD_GRACE_PERIOD", "500ms".to_owned()));
    let running = start(environment).await;
    let mut client = PlannerServiceClient::new(running.channel().await);
    let _stream = client.plan(ask("a part, then nothing")).await.unwrap();

    running.signal("-TERM");

    let output = running.end_within(Duration::from_millis(2_500)).await;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[tokio::test]
async fn two_signals_end_a_program_that_does_not_even_serve() {
    let running = start(environment("hang")).await;
    // The port file is written before the program runs, and after it waits for signals.
    running.signal("-TERM");
    tokio::time::sleep(Duration::from_millis(200)).await;
    running.signal("-TERM");
    let output = running.end_within(Duration::from_secs(4)).await;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[tokio::test]
async fn spans_arrive_from_a_program_that_fails_or_panics() {
    for (does, code) in [("fail", 1), ("panic", 101), ("read a file", 2)] {
        let collector = Collector::default();
        let mut environment = environment(does);
        environment.push(("OTEL_EXPORTER_OTLP_ENDPOINT", collector.start().await));
        let output = run(environment).await;
        assert_eq!(output.status.code(), Some(code), "{does}: {}", said(&output));
        assert_eq!(collector.span_names(), ["start"], "{does}: {}", said(&output));
    }
}

#[tokio::test]
async fn what_is_wrong_is_said_in_one_sentence_that_names_the_file() {
    let mut environment = environment("read a file");
    environment.push(("SWITCHYARD_LOG", "off".to_owned()));
    let output = run(environment).await;
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(said(&output), "switchyard-test: could not read /etc/registry.yaml: it is not there\n");

    let mut environment = self::environment("serve");
    environment.extend([
        ("SWITCHYARD_LOG", "off".to_owned()),
        ("SWITCHYARD_TLS_CERT", "/no/such/cert.pem".to_owned()),
        ("SWITCHYARD_TLS_KEY", "/no/such/key.pem".to_owned()),
    ]);
    let output = run(environment).await;
    assert_eq!(output.status.code(), Some(2));
    let wanted =
        "switchyard-test: --tls-cert: could not read /no/such/cert.pem: No such file or directory (os error 2)\n";
    assert_eq!(said(&output), wanted);
}

#[tokio::test]
async fn a_wrong_setting_in_the_environment_is_a_wrong_command_line() {
    for (variable, value) in [("SWITCHYARD_LISTEN", "0.0.0.0:0"), ("SWITCHYARD_METRICS_LISTEN", "9000")] {
        let mut environment = environment("serve");
        environment.push((variable, value.to_owned()));
        let output = run(environment).await;
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    }
}

#[tokio::test]
async fn log_lines_are_json_where_there_is_no_terminal() {
    let running = start(environment("serve")).await;
    running.signal("-TERM");
    let output = running.end_within(Duration::from_secs(5)).await;
    let said = said(&output);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.iter().any(|line| line.contains("\"message\":\"listening\"")), "{said}");
    assert!(lines.iter().all(|line| line.starts_with('{') && line.ends_with('}')), "{said}");
}

/// Case 333.
#[tokio::test]
async fn wrong_flags_are_one_line() {
    for (name, value, flag) in [
        ("SWITCHYARD_LISTEN", "localhost:7001", "--listen"),
        ("SWITCHYARD_GRACE_PERIOD", "soon", "--grace-period"),
        ("SWITCHYARD_METRICS_LISTEN", "0.0.0.0:1", "--metrics-listen"),
    ] {
        let output = run(vec![(name, value.to_owned())]).await;
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.lines().count() == 1 && said.contains(flag) && said.contains(value), "{said}");
    }
}

/// Case 331: a pipe that is full blocks whoever writes to it.
#[tokio::test]
async fn log_that_nobody_reads_holds_up_nobody() {
    let mut environment = environment("serve");
    environment.push(("SWITCHYARD_LOG", "trace".to_owned()));
    let running = start(environment).await;
    let mut client = PlannerServiceClient::new(running.channel().await);
    // Each call is several lines of tens of bytes, and a pipe holds 64 KiB.
    let calls = async {
        for _ in 0..500 {
            let mut stream = client.plan(ask("one part")).await.unwrap().into_inner();
            while stream.message().await.unwrap().is_some() {}
        }
    };
    tokio::time::timeout(Duration::from_secs(60), calls).await.expect("nobody waits for the log");
    running.signal("-TERM");
    let output = running.end_within(Duration::from_secs(10)).await;
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.len() > 60_000, "the pipe was full: {}", output.stderr.len());
}
