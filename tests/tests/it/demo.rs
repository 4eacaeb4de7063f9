//! `cargo demo` as people run it.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use rustix::process::{Pid, Signal, kill_process};
use switchyard_tests::{
    programs::Program,
    sandbox::{ControlPlane, Folder},
};
use tokio::sync::OnceCell;
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

/// Asserts that these stand in the text, one after the other.
#[track_caller]
fn assert_in_order(text: &str, wanted: &[&str]) {
    let mut rest = text;
    for wanted in wanted {
        let Some(at) = rest.find(wanted) else { panic!("no `{wanted}`, or not where it belongs, in\n{text}") };
        rest = &rest[at + wanted.len()..];
    }
}

/// Returns the first line of a chapter that holds all of these, its words parted by single spaces.
#[track_caller]
fn line(text: &str, chapter: &str, wanted: &[&str]) -> String {
    let (_, from) = text.split_once(&format!("\n{chapter}")).unwrap_or_else(|| panic!("no `{chapter}` in\n{text}"));
    let found = from.lines().find(|line| wanted.iter().all(|wanted| line.contains(wanted)));
    let found = found.unwrap_or_else(|| panic!("no line with {wanted:?} from `{chapter}` on in\n{text}"));
    found.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What `cargo demo --once` comes to; it is run once for all who look at it.
async fn once() -> &'static (Demo, Output, String) {
    static ONCE: OnceCell<(Demo, Output, String)> = OnceCell::const_new();
    ONCE.get_or_init(|| Demo::new(&["--once"]).run()).await
}

#[tokio::test]
async fn demo_shows_plan_run_summary_and_trace_and_leaves_nothing() {
    let (demo, output, text) = once().await;

    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_holds(text, &["2     db  ", "18/21  created", "verdict succeeded: 10 succeeded", "once more: 19 unchanged"]);
    assert_eq!(line(text, "The plan", &["Ask Kim first"]), "- Ask Kim first TextBox set aside");
    assert_holds(text, &["Plan (switchyard-planner)", "Execute (switchyard-executor)", "├ step db: succeeded"]);
    assert_holds(text, &["PATCH secrets on east → 201", "PATCH secrets on west → 201", "txn (etcd)"]);
    assert!(!text.contains("not all of it has arrived"), "{text}");
    assert!(!text.contains('\x1b'), "this is no terminal:\n{text}");
    demo.nothing_is_left().await;
}

/// S3, S7, S20, S22, S24: both paths in one design, a dry run first, and the way back at the end.
#[tokio::test]
async fn demo_asks_first_shows_both_paths_and_takes_the_design_down_at_the_end() {
    let (_, output, text) = once().await;

    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let (_, address) = text.split_once("an adapter listens on ").unwrap();
    let (address, _) = address.split_once(';').unwrap();
    let chapters = ["\nThe plan", "\nThe dry run", "\nThe run", "\nThe summary", "\nThe trace", "\nThe undeploy"];
    assert_in_order(text, &chapters);

    let planned = line(text, "The plan", &["db-access"]);
    assert_eq!(planned, format!("3 db-access NetworkPolicy adapter {address} db (shop)"));
    assert!(line(text, "The plan", &[" web "]).contains("db-access"), "a direct component depends on the adapter's");

    assert_eq!(line(text, "The dry run", &["shop"]), "shop would create east, west");
    // L11: the namespace comes with the design.
    let told = line(text, "The dry run", &["db-access"]);
    assert!(told.starts_with("db-access would create east, west tried in namespace default"), "{told}");
    let told = line(text, "The dry run", &["summer-sale"]);
    let checked = "summer-sale would create east, west as checked against the schema of component offers.shop.example";
    assert!(told.starts_with(checked), "{told}");
    assert!(
        !text.split_once("\nThe run").unwrap().0.contains("cannot tell"),
        "the clusters are empty, and all is told"
    );
    let proof = line(text, "The dry run", &["by the clusters' own logs"]);
    assert_eq!(
        proof,
        "by the clusters' own logs 32 writes were tried out and none was made; the adapter was not called"
    );

    assert_holds(&line(text, "The run", &["db-access", address]), &["created db-access"]);
    for cluster in ["east", "west"] {
        assert_holds(&line(text, "The run", &[" db-access ", cluster]), &["seen db-access", "ready"]);
        assert_holds(&line(text, "The run", &[" db ", cluster]), &["created db", "ready"]);
        assert_holds(&line(text, "The undeploy", &["db-access", cluster]), &["seen gone"]);
    }
    let row = line(text, "The summary", &["db-access"]);
    assert_eq!(row, format!("db-access mesh adapter {address} succeeded created, seen on 2"));

    let (_, trace) = text.split_once("\nThe trace").unwrap();
    let ours = trace.lines().position(|line| line.ends_with("Provision (switchyard-executor)")).expect(trace);
    let theirs = trace.lines().nth(ours + 1).unwrap();
    assert!(theirs.ends_with("│ └ meshes.MeshService/Provision (adapter)"), "not right below ours: {theirs}\n{trace}");

    let (_, undeploy) = text.split_once("\nThe undeploy").unwrap();
    let gone = ["removed        web ", "removed        db-access ", "removed        db ", "removed        shop "];
    assert_in_order(undeploy, &gone);
    assert_in_order(
        undeploy,
        &["\nWhat the undeploy came to", "verdict succeeded: 10 succeeded", "nothing of the design"],
    );
}

#[tokio::test]
async fn demo_shows_what_a_failure_withholds() {
    let (demo, output, text) = Demo::new(&["--once", "--fail", "db"]).run().await;

    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_holds(&text, &["failed         db", "the demo wants db to fail here"]);
    for withheld in ["db-access", "web", "web-service", "summer-sale"] {
        assert_holds(&text, &[&format!("withheld       {withheld}  ")]);
    }
    assert_holds(&text, &["web did not succeed, because of db", "verdict partial: 1 failed, 5 succeeded, 4 withheld"]);
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

/// Runs a demo and interrupts it each time that its text has come to the next of these places.
async fn interrupted(mut demo: Demo, places: &'static [&'static str]) -> (Demo, ExitStatus, String) {
    let mut child = demo.command.stderr(Stdio::inherit()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reading = tokio::task::spawn_blocking(move || {
        let (mut text, mut places) = (String::new(), places.iter().peekable());
        for line in lines {
            let line = line.unwrap();
            if places.next_if(|place| line.contains(**place)).is_some() {
                kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            }
            text += &(line + "\n");
        }
        (text, child.wait().unwrap())
    });
    let (text, status) = tokio::time::timeout(SOON * 3, reading).await.unwrap().unwrap();
    (demo, status, text)
}

#[tokio::test]
async fn demo_ends_at_once_and_leaves_nothing_when_it_is_interrupted_for_the_second_time() {
    // Built now, so that the time limit is not about cargo.
    Program::Planner.path().await.unwrap();
    let places = &["All of it stays up", "The undeploy: dependents first"];
    let (demo, status, text) = interrupted(Demo::new(&[]), places).await;

    assert_eq!(status.code(), Some(130), "{text}");
    assert!(!text.contains("What the undeploy came to") && !text.contains("cleaned away"), "{text}");
    demo.nothing_is_left().await;
}

#[tokio::test]
async fn demo_names_clusters_of_others_before_it_writes_and_takes_nothing_down_unless_told_to() {
    Program::Planner.path().await.unwrap();
    let control_plane = ControlPlane::builder().cluster("theirs").controller_manager().start().await.unwrap();
    let cluster = control_plane.first();
    let folder = Folder::new("kubeconfig").unwrap();
    let kubeconfig = folder.write("config", &control_plane.kubeconfig().to_string()).unwrap();
    let own = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--context", "theirs"];
    let has_namespace = async || {
        let namespaces: Api<Namespace> = Api::all(cluster.client().await.unwrap());
        namespaces.get_opt("shop").await.unwrap().is_some()
    };

    let (demo, status, text) = interrupted(Demo::new(&own), &["All of it stays up"]).await;
    assert_eq!(status.code(), Some(0), "{text}");
    let will = format!("will be written to: theirs at {}", cluster.url());
    assert_in_order(
        &text,
        &["no adapter is started", "\nThe plan", "\nThe dry run", "told the API servers to change nothing", &will],
    );
    assert_in_order(&text, &[&will, "\nThe run", "verdict succeeded: 10 succeeded", "your clusters keep the design"]);
    assert_eq!(line(&text, "The plan", &["db-access"]), "3 db-access NetworkPolicy direct theirs db (shop)");
    assert_holds(&text, &["switchyard.v1.ExecutorService/Execute", "undeploy.json", "cleaned away"]);
    assert!(!text.contains("The undeploy"), "{text}");
    assert!(has_namespace().await, "it was to be kept");
    demo.nothing_is_left().await;

    let (demo, output, text) = Demo::new(&[&own[..], &["--once", "--undeploy"]].concat()).run().await;
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(line(&text, "The dry run", &["db-access"]), "db-access would leave as it is theirs");
    assert_in_order(&text, &["\nThe undeploy", "removed        db-access ", "nothing of the design is left on theirs"]);
    assert!(!has_namespace().await, "it was to go");
    demo.nothing_is_left().await;
}
