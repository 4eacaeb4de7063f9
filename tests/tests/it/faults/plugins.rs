//! Exec plugins of the executor's own kubeconfig: bounded, kept, never quoted, and never in anybody's way (cases 231, 241).

use std::{path::Path, time::Duration};

use switchyard_proto::v1::{Change, Verdict};
use switchyard_tests::{
    client::Client,
    fault::{Canned, Fault, Rule},
    plan::Draft,
    programs::{Program, Running},
    sandbox::Folder,
};
use tonic::Status;

use super::{
    clusters::unusable,
    stage::{Stage, assert_applied, eventually, within},
};

/// An executor whose contexts all lead to the cluster east, through the stage's proxy, each with a plugin of its own. What a plugin
/// runs is a line of shell.
async fn executor(stage: &Stage, folder: &Folder, contexts: &[(&str, &str)]) -> Running {
    let of_proxy = stage.east.kubeconfig().to_string();
    let line =
        |name: &str| of_proxy.lines().find(|line| line.trim_start().starts_with(name)).unwrap().trim().to_owned();
    let (server, authority) = (line("server:"), line("certificate-authority-data:"));
    let mut text =
        format!("apiVersion: v1\nkind: Config\nclusters:\n- {{name: east, cluster: {{{server}, {authority}}}}}\n");
    let each = |list: &str, entry: &dyn Fn(&str, &str) -> String| {
        let entries: String = contexts.iter().map(|(name, shell)| format!("- {}\n", entry(name, shell))).collect();
        format!("{list}:\n{entries}")
    };
    text += &each("contexts", &|name, _| format!("{{name: {name}, context: {{cluster: east, user: {name}}}}}"));
    text += &each("users", &|name, shell| {
        let exec = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh",
            "args": ["-c", shell, "arg-canary-7f1"], "interactiveMode": "IfAvailable",
            "env": [{"name": "PLUGIN_KEY", "value": "env-canary-7f1"}],
        });
        format!("{{name: {name}, user: {{exec: {exec}}}}}")
    });
    let own = folder.write("own-kubeconfig", &text).unwrap();
    let program = Program::Executor.prepare().arg("--kubeconfig").arg(own).arg("--log").arg("trace");
    program.arg("--run-lock").arg("process").start().await.unwrap()
}

/// A line of shell that makes a new token each time, and takes note of it.
fn makes_tokens(log: &Path, expires: &str) -> String {
    let log = log.display();
    let credential = format!(
        r#"{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {{"token": "made-canary-%s", "expirationTimestamp": "{expires}"}}}}"#
    );
    format!("echo x >> {log}; printf '{credential}' $(wc -l < {log})")
}

async fn run(client: &Client, draft: &Draft) -> Result<switchyard_tests::client::Outcome, Status> {
    within(async { client.execute(draft.seal(), vec![]).await?.finish().await }).await
}

/// Case 231, D25: of a plugin that fails neither its environment, nor its arguments, nor its output is told or logged.
#[tokio::test]
async fn plugin_that_fails_is_not_quoted() {
    let stage = Stage::set("plugin-fails").await;
    let folder = Folder::new("plugin-fails").unwrap();
    let fails = "echo out-canary-7f1; echo err-canary-7f1 $PLUGIN_KEY >&2; exit 3";
    let missing = "echo '{\"kind\": \"out-canary-7f1\"}'";
    let executor = executor(&stage, &folder, &[("fails", fails), ("odd", missing)]).await;
    let client = Client::connect(&executor.url(), &executor.url()).await.unwrap();

    for (context, wanted) in
        [("fails", "its exec plugin failed (exit status: 3)"), ("odd", "something else than an ExecCredential")]
    {
        let draft = Draft::on(&[context]).apply("map", &[], &stage.config_map("map"));
        let status = run(&client, &draft).await.unwrap_err();
        let told = unusable(&status).remove(context).unwrap();
        assert!(told.contains(wanted), "{told}");
        assert!(!format!("{status:?}").contains("canary"), "{status:?}");
    }
    let (_, log) = executor.stop().await;
    assert!(!log.contains("canary"), "{log}");
    assert_eq!(stage.east.dials(), 0);
}

/// Case 241: while plugins hang, others are served; and one plugin runs, however many ask.
#[tokio::test]
async fn plugin_that_hangs_is_in_nobodys_way() {
    let stage = Stage::set("plugin-hangs").await;
    let folder = Folder::new("plugin-hangs").unwrap();
    let (hung, made) = (folder.path().join("hung"), folder.path().join("made"));
    let hangs = format!("echo x >> {}; exec sleep 25", hung.display());
    let contexts = [("hangs", hangs.as_str()), ("good", &makes_tokens(&made, "2999-01-01T00:00:00Z"))];
    let executor = executor(&stage, &folder, &contexts).await;
    let client = Client::connect(&executor.url(), &executor.url()).await.unwrap();
    let stuck = Draft::on(&["hangs"]).apply("map", &[], &stage.config_map("map"));
    let mut waiting = Vec::new();
    for _ in 0..16 {
        waiting.push(client.execute(stuck.seal(), vec![]).await.unwrap());
    }
    eventually("the plugin to run", async || hung.exists()).await;

    let began = std::time::Instant::now();
    for number in 0..3 {
        let draft =
            Draft::on(&["good"]).apply(&format!("map-{number}"), &[], &stage.config_map(&format!("map-{number}")));
        assert_eq!(run(&client, &draft).await.unwrap().verdict(), Verdict::Succeeded);
    }

    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let lines = |path: &Path| std::fs::read_to_string(path).unwrap().lines().count();
    assert_eq!((lines(&hung), lines(&made)), (1, 1));
    drop(waiting);
}

/// Case 241: what a plugin made is used until it expires, and made anew when an API server does not accept it any more.
#[tokio::test]
async fn credential_of_a_plugin_is_kept_until_it_expires_or_is_rejected() {
    let stage = Stage::set("plugin-kept").await;
    let folder = Folder::new("plugin-kept").unwrap();
    let (lasting, expired) = (folder.path().join("lasting"), folder.path().join("expired"));
    let contexts = [
        ("lasting", makes_tokens(&lasting, "2999-01-01T00:00:00+02:00")),
        ("expired", makes_tokens(&expired, "2020-01-01T00:00:00Z")),
    ];
    let contexts = contexts.each_ref().map(|(name, shell)| (*name, shell.as_str()));
    let executor = executor(&stage, &folder, &contexts).await;
    let client = Client::connect(&executor.url(), &executor.url()).await.unwrap();
    let draft = |context: &str| Draft::on(&[context]).apply("map", &[], &stage.config_map("map"));
    let writes_with =
        |token: &str| stage.east.count(|seen| seen.is_write() && seen.authorization == format!("Bearer {token}"));

    // The name of the cluster is the context: what the API server is shown is what counts here.
    let outcome = run(&client, &draft("lasting")).await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    run(&client, &draft("lasting")).await.unwrap();
    assert_eq!(writes_with("made-canary-1"), 2);

    stage.east.add(Rule::get("/version", Fault::Answer(Canned::status(401))).times(1));
    run(&client, &draft("lasting")).await.unwrap();
    assert_eq!(writes_with("made-canary-2"), 1);

    run(&client, &draft("expired")).await.unwrap();
    let runs = std::fs::read_to_string(&expired).unwrap().lines().count();
    assert!(runs > 1, "an expired token is not used again: {runs}");
    let (_, log) = executor.stop().await;
    assert!(!log.contains("canary"), "{log}");
}

/// A certificate is a credential like a token.
#[tokio::test]
async fn plugin_may_make_a_certificate() {
    let stage = Stage::set("plugin-certificate").await;
    let folder = Folder::new("plugin-certificate").unwrap();
    let east = stage.world.east();
    let identity = east.authority().client("certified", &["system:masters"]).unwrap();
    let credential = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"clientCertificateData": identity.certificate, "clientKeyData": identity.key},
    });
    let credential = folder.write("credential", &credential.to_string()).unwrap();
    let text = east.kubeconfig(switchyard_tests::sandbox::Credential::Nothing).to_string();
    let exec = format!(
        "user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: cat, args: ['{}'], interactiveMode: Never}}}}",
        credential.display()
    );
    let own = folder.write("own-kubeconfig", &text.replace("user: {}", &exec)).unwrap();
    let executor = Program::Executor.prepare().arg("--kubeconfig").arg(own).start().await.unwrap();
    let client = Client::connect(&executor.url(), &executor.url()).await.unwrap();
    let outcome = run(&client, &Draft::on(&["east"]).apply("map", &[], &stage.config_map("map"))).await.unwrap();
    assert_applied(&outcome, "map", Change::Created);
}
