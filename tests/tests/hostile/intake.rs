//! Plans and credentials that are made to take more than they bring.

use switchyard_proto::v1::{
    AdapterRoute, Component, DirectRoute, PlanHeader, PlanStep, execute_request::Part, plan_step::Route,
};
use switchyard_service::status::{Reason, reason_of};
use switchyard_tests::client;

use super::victim::{Victim, plan, refusal};

const MIB: usize = 1 << 20;

fn step(id: &str, clusters: &[String]) -> PlanStep {
    let manifest = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
    let route = Route::Direct(DirectRoute { clusters: clusters.to_vec(), manifest: manifest.to_owned() });
    PlanStep { id: id.to_owned(), route: Some(route), ..PlanStep::default() }
}

fn with_manifest(manifest: String) -> PlanStep {
    let route = Route::Direct(DirectRoute { clusters: vec!["c".to_owned()], manifest });
    PlanStep { route: Some(route), ..step("a", &[]) }
}

fn access(name: usize, text: String) -> Part {
    Part::Cluster(client::kubeconfig(&name.to_string(), text))
}

/// Steps that are named, and one that names them all.
fn edges(number: usize, each: usize) -> Vec<PlanStep> {
    let clusters = ["c".to_owned()];
    let mut steps: Vec<_> = (0..number).map(|number| step(&number.to_string(), &clusters)).collect();
    let ids: Vec<_> = steps.iter().map(|step| step.id.clone()).collect();
    steps.extend((0..each).map(|number| PlanStep {
        depends_on: ids.clone(),
        runs_after: ids.clone(),
        ..step(&format!("all-{number}"), &clusters)
    }));
    steps
}

/// A list of one letter for ever.
fn deep(depth: usize) -> String {
    let open = "[".repeat(depth);
    let close = "]".repeat(depth);
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"}},"data":{open}{close}}}"#)
}

fn aliases() -> String {
    let mut text = "apiVersion: v1\nkind: Config\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    text
}

fn one(steps: Vec<PlanStep>) -> Vec<Part> {
    plan(&["c"], steps).0
}

fn adapter(declaration: String) -> PlanStep {
    let clusters = vec!["c".to_owned()];
    let route = AdapterRoute { host: "h".to_owned(), port: 1, clusters, declaration, ..AdapterRoute::default() };
    PlanStep { route: Some(Route::Adapter(route)), ..step("a", &[]) }
}

fn with_header(more: Vec<Part>) -> Vec<Part> {
    std::iter::once(Part::Header(header())).chain(more).collect()
}

fn on_thousands_of_clusters() -> Vec<Part> {
    let thousands: Vec<_> = (0..10_000).map(|number| format!("cluster-{number}")).collect();
    let names: Vec<_> = thousands.iter().map(String::as_str).collect();
    plan(&names, (0..20).map(|number| step(&number.to_string(), &thousands)).collect()).0
}

/// Makes the messages when they are wanted: together they would take much memory here.
type Make = fn() -> Vec<Part>;

const CASES: [(&str, Make, Reason); 14] = [
    (
        "100 kubeconfigs before a header",
        || (0..100).map(|it| access(it, "x".repeat(MIB - 100))).collect(),
        Reason::MessageTooLarge,
    ),
    ("a kubeconfig of 15 MiB", || with_header(vec![access(0, "x".repeat(15 * MIB))]), Reason::MessageTooLarge),
    ("access to a stranger", || with_header(vec![access(0, "x".repeat(MIB / 2))]), Reason::PlanInvalid),
    (
        "a bomb of aliases",
        || {
            let mut parts = one(Vec::new());
            parts.insert(1, Part::Cluster(client::kubeconfig("c", aliases())));
            parts
        },
        Reason::ClusterUnusable,
    ),
    ("an id of 8 MiB", || one(vec![PlanStep { id: "i".repeat(8 * MIB), ..step("a", &[]) }]), Reason::PlanInvalid),
    (
        "a name of 8 MiB",
        || {
            let named = Component { name: "n".repeat(8 * MIB), ..Component::default() };
            one(vec![PlanStep { component: Some(named), ..step("a", &[]) }])
        },
        Reason::PlanInvalid,
    ),
    (
        "a million edges to nobody",
        || {
            let nobody = (0..MIB).map(|number| number.to_string()).collect();
            one(vec![PlanStep { depends_on: nobody, ..step("a", &[]) }])
        },
        Reason::PlanInvalid,
    ),
    (
        "four million empty edges",
        || one(vec![PlanStep { depends_on: vec![String::new(); 4 * MIB], ..step("a", &[]) }]),
        Reason::PlanInvalid,
    ),
    ("four million edges", || one(edges(20_000, 100)), Reason::ClusterUnusable),
    (
        "200,000 steps",
        || one((0..200_000).map(|number: usize| step(&number.to_string(), &["c".to_owned()])).collect()),
        Reason::ClusterUnusable,
    ),
    ("10,000 clusters in 20 steps", on_thousands_of_clusters, Reason::ClusterUnusable),
    // Only its head is read; the API server refuses the rest.
    ("a manifest that is deep", || one(vec![with_manifest(deep(MIB))]), Reason::ClusterUnusable),
    ("a declaration that is deep", || one(vec![adapter(deep(MIB))]), Reason::PlanInvalid),
    ("a declaration of zeros", || one(vec![adapter(format!("[{}0]", "0,".repeat(7 * MIB)))]), Reason::ClusterUnusable),
];

/// Cases 247 and 244, and their like: each is refused, takes little, and keeps nobody waiting.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_to_grow_is_refused_before_it_has_grown() {
    for (what, make, reason) in CASES {
        let parts = make();
        let sent = parts.iter().map(Part::encoded_len).sum();
        let mut victim = Victim::start(&["--max-held-bytes", "2GiB", "--max-plan-bytes", "1GiB"]).await;
        let (status, ()) = tokio::join!(refusal(&victim.client, parts), victim.serves_others());
        assert_eq!(reason_of(&status), Some(reason), "{what}: {status:?}");
        victim.took_little(sent, what);
    }
}

/// Case 323: plans that never end hold no more than the budget, and an ordinary plan finds room beside them.
#[tokio::test(flavor = "multi_thread")]
async fn plans_that_never_end_leave_room_for_others() {
    let mut victim = Victim::start(&["--max-held-bytes", "64MiB"]).await;
    let mut open = Vec::new();
    let (mut sent, mut refused) = (0, 0);
    for _ in 0..12 {
        let header = PlanHeader { step_count: 100_000, ..header() };
        let steps = (0..20).map(|number| PlanStep {
            component: None,
            ..with_manifest(format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{number}"}},"data":{{"a":"{}"}}}}"#,
                "x".repeat(MIB)
            ))
        });
        let steps = steps.enumerate().map(|(number, step)| Part::Step(PlanStep { id: number.to_string(), ..step }));
        let parts: Vec<_> = std::iter::once(Part::Header(header)).chain(steps).collect();
        sent += parts.iter().map(Part::encoded_len).sum::<usize>();
        let mut execution = victim.client.open(parts).await.unwrap();
        // Refused, or taken in and waiting for more.
        match tokio::time::timeout(std::time::Duration::from_secs(5), execution.next()).await {
            Ok(Err(status)) => {
                assert_eq!(reason_of(&status), Some(Reason::TooBusy), "{status:?}");
                refused += 1;
            }
            Ok(Ok(event)) => panic!("nothing has begun: {event:?}"),
            Err(_) => open.push(execution),
        }
        victim.serves_others().await;
    }
    assert!(refused >= 8 && !open.is_empty(), "{refused} refused, {} open", open.len());
    // All that they sent was 240 MB; what is held is bounded by the flag.
    victim.took_little(2 * 64 * MIB / 30, "plans that never end, with a budget of 64 MiB");
    assert!(sent > 200 * MIB);
}

fn header() -> PlanHeader {
    let Part::Header(header) = plan(&["c"], Vec::new()).0.swap_remove(0) else { unreachable!() };
    header
}

/// Case 323: a plan has a time to come.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_does_not_come_in_time_is_refused() {
    let victim = Victim::start(&["--plan-timeout", "1s"]).await;
    let status = refusal(&victim.client, vec![Part::Header(header())]).await;
    assert_eq!(reason_of(&status), Some(Reason::PlanIncomplete));
    assert!(status.message().contains("--plan-timeout"), "{status:?}");
}

/// A thousand streams whose plans are wrong, one after the other, and a few hundred that only begin.
#[tokio::test(flavor = "multi_thread")]
async fn streams_by_the_hundred_leave_nothing_behind() {
    let mut victim = Victim::start(&[]).await;
    for _ in 0..1000 {
        let (mut parts, _) = plan(&["c"], Vec::new());
        let Some(Part::Header(header)) = parts.first_mut() else { unreachable!() };
        header.dry_run = true;
        let status = refusal(&victim.client, parts).await;
        assert_eq!(reason_of(&status), Some(Reason::PlanDigestMismatch));
    }
    let mut open = Vec::new();
    for _ in 0..200 {
        open.push(victim.client.open(vec![Part::Header(header())]).await.unwrap());
    }
    victim.serves_others().await;
    victim.took_little(0, "streams by the hundred");
}
