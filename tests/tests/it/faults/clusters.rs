//! Group 8: clusters that are not there, go away, are slow, are the wrong ones, or no longer let us in.

use std::collections::BTreeMap;

use switchyard_proto::v1::{Change, ClusterAccess, Outcome, Verdict, execute_response::Event, target_result};
use switchyard_service::status::{Reason, reason_of};
use switchyard_tests::{
    client,
    fault::{Canned, Fault, Gate, Proxy, Rule, Seen},
    plan::Draft,
    sandbox::{ControlPlane, Credential, Kubeconfig},
};
use tonic::Status;
use tonic_types::StatusExt as _;

use super::stage::{Stage, assert_applied, config_map, failure, within};

/// What a refusal says of each cluster.
pub(super) fn unusable(status: &Status) -> BTreeMap<String, String> {
    assert_eq!(reason_of(status), Some(Reason::ClusterUnusable), "{status:?}");
    assert!(status.message().len() <= 1024);
    let violations = status.get_details_precondition_failure().unwrap().violations;
    violations.into_iter().map(|violation| (violation.subject, violation.description)).collect()
}

/// Many objects, each a component of its own that depends on nothing.
fn many(stage: &Stage, clusters: &[&str], number: usize) -> Draft {
    (0..number).fold(Draft::on(clusters), |draft, number| {
        let name = format!("map-{number}");
        draft.apply(&name, &[], &stage.config_map(&name))
    })
}

fn outcomes_on(outcome: &client::Outcome, cluster: &str) -> BTreeMap<i32, usize> {
    let mut counts = BTreeMap::new();
    for target in outcome.results.iter().flat_map(|result| &result.targets) {
        if target.target == Some(switchyard_proto::v1::target_result::Target::Cluster(cluster.to_owned())) {
            *counts.entry(target.outcome).or_default() += 1;
        }
    }
    counts
}

/// Case 86, S14: failed on one means failed, and the result says where it was applied all the same.
#[tokio::test]
async fn failed_on_one_cluster_is_failed_and_says_where() {
    let stage = Stage::set("one-denies").await;
    let denied =
        Canned::refusal(403, "Forbidden", "configmaps \"first\" is forbidden: not here", serde_json::Value::Null);
    stage.west.add(Rule::patch("/first", Fault::Answer(denied)));
    let draft = Draft::on(&["east", "west"])
        .apply("first", &[], &stage.config_map("first"))
        .apply("second", &["first"], &stage.config_map("second"))
        .apply("third", &["second"], &stage.config_map("third"))
        .apply("other", &[], &stage.config_map("other"));

    let outcome = stage.run(&draft).await;

    assert_eq!(outcome.outcomes()["first"], Outcome::Failed);
    assert_eq!(outcome.target("first", "east").unwrap().outcome(), Outcome::Succeeded);
    assert!(failure(&outcome, "first", "west").message.contains("not here"));
    for name in ["second", "third"] {
        assert_eq!(outcome.outcomes()[name], Outcome::Withheld);
        assert_eq!(stage.east.applies(name) + stage.west.applies(name), 0);
    }
    let withheld = outcome.result("third").unwrap().withheld.clone().unwrap();
    assert_eq!((withheld.component.as_str(), withheld.root_component.as_str()), ("second", "first"));
    assert_eq!(outcome.outcomes()["other"], Outcome::Succeeded);
    assert_eq!(outcome.verdict(), Verdict::Partial);
    // Case 272.
    assert_eq!(outcome.summary.rows[0].fulfilled_by, ["east"]);
}

/// Case 86: one API server under two names is refused, since it would be written twice.
#[tokio::test]
async fn one_api_server_under_two_names_is_refused() {
    let stage = Stage::set("same-server").await;
    let draft = Draft::on(&["east", "west"]).apply("map", &[], &stage.config_map("map"));
    let same = stage.east.kubeconfig().to_string();

    let access = vec![client::kubeconfig("east", same.clone()), client::kubeconfig("west", same)];
    let status = stage.try_run(&draft, access).await.unwrap_err();

    let unusable = unusable(&status);
    assert!(unusable["west"].contains("same API server as cluster east"), "{unusable:?}");
    assert_eq!(stage.east.count(Seen::is_write), 0);
}

/// Cases 88 and 94, S17: every cluster that does not work is named in one error, each with its own reason, and none is touched.
#[tokio::test]
async fn all_unusable_clusters_are_named_in_one_error_and_none_is_touched() {
    let stage = Stage::set("all-bad").await;
    let (east, west) = (stage.world.east(), stage.world.west());
    let gone = Proxy::before(west).await.unwrap();
    gone.close();
    let web_page = Proxy::before(west).await.unwrap();
    web_page.add(Rule::any("/", Fault::Answer(Canned::status(200).text("<html>welcome</html>"))));
    let slammed = Proxy::before(west).await.unwrap();
    slammed.slam();
    let named = |proxy: &Proxy, name: &str| {
        let text = proxy.kubeconfig().to_string();
        text.replace(
            "    certificate-authority-data",
            &format!("    tls-server-name: {name}\n    certificate-authority-data"),
        )
    };
    let other_name = Proxy::before(west).await.unwrap();
    let bad = [
        ("authority", west.kubeconfig_wrong_authority().unwrap().to_string(), "certificate"),
        ("token", west.kubeconfig_wrong_token().to_string(), "does not accept the credentials"),
        ("nobody", west.kubeconfig(Credential::Nothing).to_string(), "does not accept the credentials"),
        ("gone", gone.kubeconfig().to_string(), "refused"),
        ("web-page", web_page.kubeconfig().to_string(), "not a kubernetes api server"),
        ("slammed", slammed.kubeconfig().to_string(), "cannot be reached"),
        ("name", named(&other_name, "elsewhere.example.com"), "certificate"),
    ];
    let mut names: Vec<_> = bad.iter().map(|(name, ..)| *name).collect();
    names.push("east");
    let draft = Draft::on(&names).apply("map", &[], &stage.config_map("map"));
    let mut access: Vec<_> = bad.iter().map(|(name, text, _)| client::kubeconfig(name, text.clone())).collect();
    access.push(client::kubeconfig("east", stage.east.kubeconfig().to_string()));

    let status = stage.try_run(&draft, access).await.unwrap_err();

    let unusable = unusable(&status);
    assert_eq!(unusable.len(), bad.len(), "{unusable:?}");
    for (name, _, text) in &bad {
        assert!(unusable[*name].to_lowercase().contains(text), "{name}: {}", unusable[*name]);
        assert!(status.message().contains(name));
    }
    assert_eq!(stage.east.count(Seen::is_write), 0);
    assert_eq!(stage.read(east, &stage.path("v1/configmaps", "map")).await, None);
}

/// Case 88, S17: clusters that answer nothing are waited for together, and not for long.
#[tokio::test]
async fn clusters_that_say_nothing_are_waited_for_together() {
    let stage = Stage::set("mute").await;
    stage.west.mute();
    let others = [Proxy::before(stage.world.west()).await.unwrap(), Proxy::before(stage.world.west()).await.unwrap()];
    others.iter().for_each(Proxy::mute);
    let draft = Draft::on(&["east", "west", "b", "c"]).apply("map", &[], &stage.config_map("map"));
    let mut access = stage.access();
    access.push(client::kubeconfig("b", others[0].kubeconfig().to_string()));
    access.push(client::kubeconfig("c", others[1].kubeconfig().to_string()));

    let began = tokio::time::Instant::now();
    let status = stage.try_run(&draft, access).await.unwrap_err();

    // One dial is given 10 s; one after the other would be 30.
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    let unusable = unusable(&status);
    assert_eq!(unusable.keys().collect::<Vec<_>>(), ["b", "c", "west"]);
    assert!(unusable["west"].contains("no connection within"), "{unusable:?}");
    assert_eq!(stage.east.count(Seen::is_write), 0);
}

/// Case 94: what kubectl takes, we take: a server name to check, and authority data that is wrapped.
#[tokio::test]
async fn a_server_name_and_wrapped_authority_data_are_honoured() {
    let stage = Stage::set("tls-details").await;
    let text = stage.east.kubeconfig().to_string();
    let wrapped: String = text
        .lines()
        .map(|line| match line.split_once("certificate-authority-data: ") {
            None => format!("{line}\n"),
            Some((_, data)) => {
                let lines: Vec<_> = data.as_bytes().chunks(64).map(|part| std::str::from_utf8(part).unwrap()).collect();
                let lines = lines.join("\n      ");
                format!("    tls-server-name: localhost\n    certificate-authority-data: |\n      {lines}\n")
            }
        })
        .collect();
    let draft = Draft::on(&["east"]).apply("map", &[], &stage.config_map("map"));

    let outcome = stage.try_run(&draft, vec![client::kubeconfig("east", wrapped)]).await.unwrap();

    assert_eq!(outcome.outcomes()["map"], Outcome::Succeeded);
}

/// Case 89: a cluster that goes away in the middle costs what was to be done on it; the run goes on to its summary.
#[tokio::test]
async fn a_cluster_that_goes_away_costs_its_own_part_only() {
    let stage = Stage::set("goes-away").await;
    let gate = Gate::shut();
    stage.west.add(Rule::patch("/configmaps/", Fault::Hold(gate)).after(3));
    let names: Vec<_> = (0..10).map(|number| format!("map-{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let draft = many(&stage, &["east", "west"], 10)
        .step_timeout(2_000)
        .options(|options| options.max_in_flight = 1)
        .apply("dependent", &names, &stage.config_map("dependent"))
        .apply("alone", &[], &stage.config_map("alone"));

    let (outcome, ()) = tokio::join!(stage.run(&draft), async {
        stage.west.wait_for(4, Seen::is_write).await.unwrap();
        stage.west.close();
        stage.west.cut();
    });

    let east = outcomes_on(&outcome, "east");
    assert_eq!(east, BTreeMap::from([(Outcome::Succeeded.into(), 11)]));
    let west = outcomes_on(&outcome, "west");
    assert_eq!(west[&Outcome::Succeeded.into()], 3, "{west:?}");
    // The one that was in flight may have been written; of the others it is known that they were not.
    assert_eq!(west[&Outcome::Indeterminate.into()], 1, "{west:?}");
    assert_eq!(west[&Outcome::Failed.into()], 7, "{west:?}");
    assert_eq!(outcome.outcomes()["dependent"], Outcome::Withheld);
    let unreachable = outcome.targets().filter(|target| target.outcome() == Outcome::Failed);
    for target in unreachable {
        let failure = target.error.as_ref().unwrap();
        assert_eq!(failure.reason, "UNREACHABLE", "{failure:?}");
        assert!(failure.message.contains("cluster west cannot be reached"), "{failure:?}");
    }
    assert_eq!(outcome.verdict(), Verdict::Partial);
}

/// Case 90: a slow cluster holds nobody else up.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_cluster_does_not_hold_up_the_others() {
    let stage = Stage::set("slow").await;
    let gate = Gate::shut();
    stage.west.add(Rule::patch("/configmaps/", Fault::Hold(gate.clone())));
    let draft = many(&stage, &["east", "west"], 100);

    let of = |cluster: &str, outcome: &client::Outcome| {
        let target = Some(target_result::Target::Cluster(cluster.to_owned()));
        outcome.targets().filter(|it| it.target == target).count()
    };
    let east_first = |told: &client::Outcome| {
        // Everything for east is done, and told, while west has not answered once.
        if of("east", told) == 100 {
            gate.open();
        } else {
            assert_eq!(of("west", told), 0);
        }
    };
    let outcome = stage.run_watched(&draft, east_first).await;

    assert_eq!((of("east", &outcome), of("west", &outcome)), (100, 100));
}

/// Case 90: a dead cluster is dialled a few times and not once for each component, and what was never sent has failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_cluster_is_dialled_a_few_times_only() {
    let stage = Stage::set("dead").await;
    let gate = Gate::shut();
    stage.west.add(Rule::patch("/configmaps/", Fault::Hold(gate)));
    let draft = many(&stage, &["east", "west"], 100).step_timeout(4_000).options(|options| options.max_in_flight = 10);

    let (outcome, sent) = tokio::join!(stage.run(&draft), async {
        stage.west.wait_for(10, Seen::is_write).await.unwrap();
        stage.west.slam();
        let sent = stage.west.count(Seen::is_write);
        stage.west.forget();
        stage.west.cut();
        sent
    });

    assert_eq!(outcomes_on(&outcome, "east"), BTreeMap::from([(Outcome::Succeeded.into(), 100)]));
    let west = outcomes_on(&outcome, "west");
    assert_eq!(west[&Outcome::Indeterminate.into()], sent, "{west:?}");
    assert_eq!(west[&Outcome::Failed.into()], 100 - sent, "{west:?}");
    let unreachable = outcome.targets().filter(|target| target.outcome() == Outcome::Failed);
    assert!(unreachable.map(|target| target.error.as_ref().unwrap()).all(|failure| failure.reason == "UNREACHABLE"));
    assert!(stage.west.dials() <= 8, "{} dials", stage.west.dials());
}

/// Case 90: an API server that restarts is waited for, and what it had in its hands is looked into.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_restarts_costs_nothing() {
    let stage = Stage::set("restarts").await;
    let control_plane = ControlPlane::builder().cluster("main").start().await.unwrap();
    let cluster = control_plane.first();
    let draft = (0..60).fold(Draft::on(&["main"]).options(|options| options.max_in_flight = 1), |draft, number| {
        let name = format!("map-{number}");
        draft.apply(&name, &[], &config_map("default", &name))
    });
    let access = vec![client::kubeconfig("main", cluster.kubeconfig_admin().to_string())];
    let mut execution = stage.client.execute(draft.seal(), access).await.unwrap();
    let mut outcome = client::Outcome::default();
    while outcome.results.is_empty() {
        outcome.take(execution.next().await.unwrap().unwrap());
    }

    cluster.kill_api_server();
    cluster.start_api_server().await.unwrap();
    while let Some(event) = within(execution.next()).await.unwrap() {
        outcome.take(event);
    }

    assert_eq!(outcome.summary.counts["succeeded"], 60, "{:?}", outcome.summary.rows);
}

/// Case 90: an API server that sends its clients elsewhere now and then (`--goaway-chance`), as many do, costs nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_sends_clients_elsewhere_costs_nothing() {
    let stage = Stage::set("goaway").await;
    let control_plane = ControlPlane::builder().flag("--goaway-chance=0.02").audit().start().await.unwrap();
    let cluster = control_plane.first();
    let draft = (0..400).fold(Draft::on(&["main"]), |draft, number| {
        let name = format!("map-{number}");
        draft.apply(&name, &[], &config_map("default", &name))
    });
    let access = vec![client::kubeconfig("main", cluster.kubeconfig_admin().to_string())];

    let outcome = stage.try_run(&draft, access).await.unwrap();

    assert_eq!(outcome.summary.counts["succeeded"], 400, "{:?}", outcome.summary.counts);
    let changes: std::collections::BTreeSet<_> = outcome.targets().map(|target| target.change()).collect();
    assert_eq!(changes.into_iter().collect::<Vec<_>>(), [Change::Created]);
}

/// Case 91: credentials that expire in the middle are named as what they are, with one request for each component.
#[tokio::test]
async fn credentials_that_expire_are_named_and_not_tried_again() {
    let stage = Stage::set("expires").await;
    let unauthorised = Canned::refusal(401, "Unauthorized", "Unauthorized", serde_json::Value::Null);
    stage.west.add(Rule::any("/configmaps/", Fault::Answer(unauthorised)).after(2));
    let draft = many(&stage, &["east", "west"], 6).options(|options| options.max_in_flight = 1);

    let outcome = stage.run(&draft).await;

    let west = outcomes_on(&outcome, "west");
    assert_eq!(west, BTreeMap::from([(Outcome::Succeeded.into(), 2), (Outcome::Failed.into(), 4)]));
    for target in outcome.targets().filter(|target| target.outcome() == Outcome::Failed) {
        let failure = target.error.as_ref().unwrap();
        assert_eq!(failure.reason, "CREDENTIALS_REJECTED");
        assert!(failure.message.contains("no longer accepted by cluster west"), "{failure:?}");
    }
    assert_eq!(stage.west.count(Seen::is_write), 6);
    assert_eq!(outcomes_on(&outcome, "east"), BTreeMap::from([(Outcome::Succeeded.into(), 6)]));
}

/// The contract, Execute: without credentials in the request a name is a context of the executor's own kubeconfig, and
/// nothing else is guessed (case 96).
#[tokio::test]
async fn names_are_contexts_of_the_executors_own_kubeconfig_and_nothing_is_guessed() {
    let folder = switchyard_tests::sandbox::Folder::new("own-kubeconfig").unwrap();
    let world = switchyard_tests::sandbox::Sandbox::shared().await.unwrap();
    let own = world.east().kubeconfig_admin().merge(Kubeconfig::new().context(
        "elsewhere",
        &world.west().url(),
        world.west().authority().certificate(),
        Credential::Nothing,
    ));
    let path = folder.write("kubeconfig", &own.to_string()).unwrap();
    let path = path.to_str().unwrap();
    let stage = Stage::set_with("own-contexts", &["--kubeconfig", path, "--deny-request-kubeconfigs"]).await;
    let map = stage.config_map("map");
    let run = async |name: &str, access: Vec<ClusterAccess>| {
        stage.try_run(&Draft::on(&[name]).apply("map", &[], &map), access).await
    };

    assert_eq!(run("east", vec![]).await.unwrap().verdict(), Verdict::Succeeded);
    let renamed = vec![client::context("prod", "east")];
    assert_eq!(run("prod", renamed).await.unwrap().verdict(), Verdict::Succeeded);

    let refused = async |name: &str, access| unusable(&run(name, access).await.unwrap_err()).remove(name).unwrap();
    let text = refused("north", vec![]).await;
    assert!(text.contains("no access to `north`") && text.contains("east, elsewhere"), "{text}");
    let text = refused("north", vec![client::context("north", "nowhere")]).await;
    assert!(text.contains("context `nowhere` was asked for"), "{text}");
    assert!(refused("in-cluster", vec![]).await.contains("does not run in a cluster"));
    assert!(refused("elsewhere", vec![]).await.contains("does not accept the credentials"));
    let sent = vec![client::kubeconfig("east", stage.east.kubeconfig().to_string())];
    assert!(refused("east", sent).await.contains("refused by this executor"));
    assert_eq!(stage.east.dials(), 0);
}

/// S16: a run that is told nothing of its clusters but their names says what it found there.
#[tokio::test]
async fn a_run_says_which_clusters_it_found() {
    let stage = Stage::set("found").await;
    let draft = Draft::on(&["east", "west"]).apply("map", &[], &stage.config_map("map"));

    let outcome = stage.run(&draft).await;

    let Some(Event::RunStarted(started)) = &outcome.events[0].event else { panic!("{:?}", outcome.events[0]) };
    let found: Vec<_> = started.clusters.iter().map(|it| (it.name.as_str(), it.server.clone())).collect();
    assert_eq!(found, [("east", stage.east.url()), ("west", stage.west.url())]);
    assert!(started.clusters.iter().all(|cluster| cluster.version.starts_with("v1.")), "{started:?}");
    assert_applied(&outcome, "map", Change::Created);
}
