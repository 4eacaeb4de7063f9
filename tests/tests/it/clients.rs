//! The clients of `tests/clients`, each put through all that it shows.

use std::{
    process::{Command, ExitStatus},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use switchyard_proto::v1::{self, execute_response::Event};
use switchyard_tests::{
    clients::{Client, Language},
    fault::{Fault, Gate, Proxy, Rule, Seen},
    relay::Relay,
    sandbox::{Folder, Process, say},
};
use uuid::Uuid;

use crate::{design::Design, pair::Pair};

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn client_in_go_shows_all_of_it() {
    shows_all_of_it(Language::Go).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_in_python_shows_all_of_it() {
    shows_all_of_it(Language::Python).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_in_typescript_shows_all_of_it() {
    shows_all_of_it(Language::TypeScript).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_in_rust_shows_all_of_it() {
    shows_all_of_it(Language::Rust).await;
}

async fn shows_all_of_it(language: Language) {
    let client = match language.client().await.unwrap() {
        Client::Ready(client) => client,
        Client::Missing(why) => return say(&format!("skipped: {why}")),
    };
    let stage = Stage::set(client).await;
    let design = Design::new().config_map("first", &stage.namespace, &[]);
    let design = design.config_map("last", &stage.namespace, &["first"]);
    stage.tells_every_problem_with_its_place().await;
    stage.deploys_once_whatever_happens_on_the_way(&design).await;
    stage.tells_what_would_change(&design).await;
    stage.stops_a_run_on_ctrl_c().await;
    stage.takes_a_design_down(&design).await;
}

/// A client between a real planner and executor, which reach a real API server through a proxy.
struct Stage {
    client: Command,
    pair: &'static Pair,
    east: Proxy,
    namespace: String,
    folder: Folder,
}

impl Stage {
    async fn set(client: Command) -> Self {
        let pair = Pair::shared().await;
        let east = Proxy::before(pair.world.east()).await.unwrap();
        let namespace = pair.world.east().namespace_for("client").await.unwrap();
        let folder = Folder::new("client").unwrap();
        folder.write("kubeconfig.yaml", &east.kubeconfig().to_string()).unwrap();
        Self { client, pair, east, namespace, folder }
    }

    /// Starts the client, with an executor at this address. Returns what runs.
    fn start(&self, executor: &str, command: &str, design: &Design, request_id: &str) -> Process {
        let name = Uuid::new_v4().to_string();
        let design = self.folder.write(&format!("{name}.yaml"), &design.text()).unwrap();
        let mut client = Command::new(self.client.get_program());
        client.args(self.client.get_args());
        client.envs(self.client.get_envs().filter_map(|(key, value)| Some((key, value?))));
        client.arg(command).arg(design);
        client.arg(format!("east={}", self.folder.path().join("kubeconfig.yaml").display()));
        client.env("PLANNER", self.pair.planner.address().to_string()).env("EXECUTOR", executor);
        client.env("REQUEST_ID", request_id);
        Process::start("client", &client, &self.folder.path().join(name)).unwrap()
    }

    /// Starts it, and returns how it ended and what it said.
    async fn run(&self, command: &str, design: &Design) -> (ExitStatus, String) {
        let executor = self.pair.executor.address().to_string();
        ended(self.start(&executor, command, design, &Uuid::new_v4().to_string())).await
    }

    async fn tells_every_problem_with_its_place(&self) {
        let design = Design::new().config_map("one", &self.namespace, &["nobody"]);
        let design = design.config_map("two", &self.namespace, &["nowhere"]);
        let (status, said) = self.run("deploy", &design).await;
        assert_eq!(status.code(), Some(1), "{said}");
        for missing in ["nobody", "nowhere"] {
            let text = design.text();
            let (line, column) =
                (1..).zip(text.lines()).find_map(|(at, line)| Some((at, line.find(missing)? + 1))).unwrap();
            assert!(said.contains(&format!("{line}:{column}: UNKNOWN_DEPENDENCY: ")), "{said}");
        }
    }

    /// The connection is cut, another caller takes the run up, and a third one wants to run the same design meanwhile.
    async fn deploys_once_whatever_happens_on_the_way(&self, design: &Design) {
        let gate = Gate::shut();
        self.east.add(Rule::patch(&format!("/{}/configmaps/last", self.namespace), Fault::Hold(gate.clone())).times(1));
        let executor = self.pair.executor.address();
        let relay = Relay::before(executor).await.unwrap();
        let mut first =
            self.start(&relay.address().to_string(), "deploy", design, &format!("first-{}", self.namespace));
        says(&mut first, "last waits for").await;
        let run = first.log().lines().find_map(|line| line.strip_prefix("run ").map(str::to_owned)).unwrap();

        let mut other = self.start(&executor.to_string(), "deploy", design, &format!("other-{}", self.namespace));
        says(&mut other, "again in").await;
        assert!(other.log().contains(&run), "whose turn it is: {}", other.log());
        relay.cut();
        says(&mut first, "again in").await;
        let mut second = self.start(&executor.to_string(), "deploy", design, &format!("first-{}", self.namespace));
        says(&mut second, "first on east OUTCOME_SUCCEEDED CHANGE_CREATED").await;
        assert_eq!(self.east.applies("/configmaps/first"), 1, "both follow one run");

        gate.open();
        for process in [first, second] {
            let (status, said) = ended(process).await;
            assert!(status.success(), "{said}");
            assert_eq!(said.matches(&format!("run {run}\n")).count(), 1, "{said}");
            assert_eq!(said.matches("last on east OUTCOME_SUCCEEDED CHANGE_CREATED").count(), 1, "{said}");
            assert!(said.contains("VERDICT_SUCCEEDED"), "{said}");
        }
        let (status, said) = ended(other).await;
        assert!(status.success() && said.contains("last on east OUTCOME_SUCCEEDED CHANGE_UNCHANGED"), "{said}");
        // What is proven to be as asked needs no write (L4).
        for name in ["first", "last"] {
            assert!((1..=2).contains(&self.east.applies(&format!("/configmaps/{name}"))), "at most one a run");
        }
        let request = v1::ListRunsRequest { design_id: design.id(), ..v1::ListRunsRequest::default() };
        let listed = self.pair.client().await.executor().list_runs(request).await.unwrap().into_inner();
        assert_eq!(listed.runs.len(), 2, "one for two callers, and one for the third");
    }

    async fn tells_what_would_change(&self, design: &Design) {
        let configuration = format!("{{metadata: {{namespace: {}}}, data: {{colour: red}}}}", self.namespace);
        let design = design.next_version().component("first", ("v1", "ConfigMap"), &[], &configuration);
        let (status, said) = self.run("dry-run", &design).await;
        assert!(status.success() && said.contains("  data.colour: \"blue\" -> \"red\"\n"), "{said}");
    }

    async fn stops_a_run_on_ctrl_c(&self) {
        let design = Design::new().config_map("held", &self.namespace, &[]);
        let design = design.config_map("never", &self.namespace, &["held"]);
        let gate = Gate::shut();
        self.east.add(Rule::patch(&format!("/{}/configmaps/held", self.namespace), Fault::Hold(gate.clone())));
        let executor = self.pair.executor.address().to_string();
        let mut client = self.start(&executor, "deploy", &design, &Uuid::new_v4().to_string());
        says(&mut client, "run ").await;
        let run_id = client.log().lines().find_map(|line| line.strip_prefix("run ").map(str::to_owned)).unwrap();
        self.east.wait_for(1, |seen: &Seen| seen.is_apply_of("/configmaps/held")).await.unwrap();
        client.signal(Signal::INT);
        let request = v1::WatchRunRequest { run_id, after_sequence: 0 };
        let mut events = self.pair.client().await.executor().watch_run(request).await.unwrap().into_inner();
        let cancelled = async {
            loop {
                let event = events.message().await.unwrap().unwrap().event.and_then(|event| event.event);
                if matches!(event, Some(Event::StepResult(step)) if step.outcome() == v1::Outcome::Cancelled) {
                    break;
                }
            }
        };
        tokio::time::timeout(LIMIT, cancelled).await.unwrap();
        gate.open();
        let (status, said) = ended(client).await;
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("never OUTCOME_CANCELLED") && said.contains("Ctrl-C"), "{said}");
        assert!(said.contains("VERDICT_CANCELLED"), "{said}");
        assert_eq!(self.east.applies("/configmaps/never"), 0);
    }

    async fn takes_a_design_down(&self, design: &Design) {
        let (status, said) = self.run("undeploy", design).await;
        assert!(status.success(), "{said}");
        let [first, last] =
            ["first", "last"].map(|name| said.find(&format!("{name} on east OUTCOME_SUCCEEDED CHANGE_REMOVED")));
        assert!(last.unwrap() < first.unwrap(), "dependents first: {said}");
    }
}

/// Waits until the client has said something.
async fn says(client: &mut Process, text: &str) {
    let deadline = Instant::now() + LIMIT;
    while !client.log().contains(text) {
        client.check_running().unwrap();
        assert!(Instant::now() < deadline, "it does not say `{text}`: {}", client.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for its end. What it said is the transcript that `--nocapture` shows.
async fn ended(mut client: Process) -> (ExitStatus, String) {
    let status = client.wait(LIMIT).await;
    let said = client.log();
    println!("{said}");
    (status.unwrap_or_else(|| panic!("it does not end: {said}")), said)
}
