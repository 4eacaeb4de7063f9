//! `cargo demo` as people run it.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use switchyard_tests::{
    programs::Program,
    sandbox::{Folder, Sandbox},
};
use uuid::Uuid;

/// Long enough for a machine that does something else meanwhile.
const SOON: Duration = Duration::from_secs(60);

/// A demo that can be recognised in the environment of everything it starts.
struct Demo {
    command: Command,
    mark: String,
}

impl Demo {
    fn new(arguments: &[&str]) -> Self {
        let mark = format!("DEMO_OF_A_TEST={}", Uuid::new_v4());
        let (key, value) = mark.split_once('=').expect("it was just put together");
        let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
        command.args(arguments).env(key, value).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { command, mark }
    }

    /// Runs it to its end.
    async fn run(mut self) -> (Self, Output, String) {
        let child = self.command.spawn().expect("the demo starts");
        let waiting = tokio::task::spawn_blocking(|| child.wait_with_output());
        let output = waiting.await.expect("no panic").expect("the demo can be waited for");
        let text = String::from_utf8(output.stdout.clone()).expect("the demo writes text");
        (self, output, text)
    }

    /// Waits until nothing of it is left. What is killed is gone a moment after whoever killed it.
    async fn nothing_is_left(&self) {
        let deadline = Instant::now() + SOON;
        loop {
            let left = processes_with(&self.mark);
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "still there: {left:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The command lines of all processes whose environment holds `mark`.
fn processes_with(mark: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("this is Linux").flatten().map(|entry| entry.path());
    let marked = processes.filter(|path| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
    });
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace('\0', " ");
    marked.filter_map(|path| fs::read(path.join("cmdline")).ok()).map(text).collect()
}

#[track_caller]
fn assert_holds(text: &str, wanted: &[&str]) {
    for wanted in wanted {
        assert!(text.contains(wanted), "no `{wanted}` in\n{text}");
    }
}

#[tokio::test]
async fn demo_shows_plan_run_summary_and_trace_and_leaves_nothing() {
    let (demo, output, text) = Demo::new(&["--once"]).run().await;

    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_holds(&text, &["Ask Kim first        TextBox                   set aside", "2     db  "]);
    assert_holds(&text, &["18/18  created", "verdict succeeded: 9 succeeded", "once more: 18 unchanged"]);
    assert_holds(&text, &["Plan (switchyard-planner)", "Execute (switchyard-executor)", "├ step db: succeeded"]);
    assert_holds(&text, &["PATCH secrets on east → 201", "PATCH secrets on west → 201", "txn (etcd)"]);
    assert!(!text.contains('\x1b'), "this is no terminal:\n{text}");
    demo.nothing_is_left().await;
}

#[tokio::test]
async fn demo_shows_what_a_failure_withholds() {
    let (demo, output, text) = Demo::new(&["--once", "--fail", "db"]).run().await;

    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_holds(&text, &["failed      db", "the demo wants db to fail here"]);
    assert_holds(&text, &["withheld    web  ", "withheld    web-service  ", "withheld    summer-sale  "]);
    assert_holds(&text, &["web did not succeed, because of db", "verdict partial: 1 failed, 5 succeeded, 3 withheld"]);
    demo.nothing_is_left().await;
}

#[tokio::test]
async fn demo_says_what_could_fail_when_it_is_told_of_something_unknown() {
    let (_, output, text) = Demo::new(&["--fail", "dv"]).run().await;

    assert_eq!((output.status.code(), text.as_str()), (Some(1), ""));
    assert_holds(
        &String::from_utf8(output.stderr).unwrap(),
        &["no component `dv`", "config, db-login, db, db-service"],
    );
}

#[tokio::test]
async fn demo_names_clusters_of_others_before_it_writes_to_them_and_ends_with_ctrl_c() {
    let world = Sandbox::shared().await.unwrap();
    // Built now, so that the time limit is not about cargo.
    Program::Planner.path().await.unwrap();
    let folder = Folder::new("kubeconfig").unwrap();
    let kubeconfig = folder.write("config", &world.control_plane().kubeconfig().to_string()).unwrap();
    let kubeconfig = kubeconfig.to_str().unwrap().to_owned();
    let server = world.west().url();
    let mut demo = Demo::new(&["--kubeconfig", &kubeconfig, "--context", "west"]);
    let mut child = demo.command.spawn().unwrap();

    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reading = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        for line in lines {
            text += &(line.unwrap() + "\n");
            // The last line before it waits.
            if text.contains("undeploy.json") && text.ends_with("ExecutorService/Execute\n") {
                kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            }
        }
        (text, child.wait().unwrap())
    });
    let (text, status) = tokio::time::timeout(SOON * 3, reading).await.unwrap().unwrap();

    assert_eq!(status.code(), Some(0), "{text}");
    let told = text.find(&format!("will be written to: west at {server}")).expect(&text);
    assert!(told < text.find("The run").unwrap(), "{text}");
    assert_holds(&text, &["verdict succeeded: 9 succeeded", "switchyard.v1.ExecutorService/Execute", "cleaned away"]);
    demo.nothing_is_left().await;
}
