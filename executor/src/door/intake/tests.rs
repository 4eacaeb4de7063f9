//! What the stream's protocol lets through, and what it names when it does not.

use switchyard_proto::digest;
use switchyard_service::budget::Budget;

use super::*;

fn step(id: &str, depends_on: &[&str]) -> v1::PlanStep {
    v1::PlanStep {
        id: id.into(),
        depends_on: depends_on.iter().map(|id| (*id).into()).collect(),
        route: Some(Route::Direct(v1::DirectRoute {
            clusters: vec!["east".into()],
            manifest: r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#.into(),
        })),
        ..Default::default()
    }
}

/// The messages of a whole plan; its digest is right.
fn plan(steps: Vec<v1::PlanStep>) -> Vec<Part> {
    let mut header = v1::PlanHeader {
        operation: v1::Operation::Deploy.into(),
        clusters: vec!["east".into()],
        step_count: steps.len() as u32,
        ..Default::default()
    };
    header.plan_id = digest::plan_id(&header, &steps);
    let trailer = v1::PlanTrailer { plan_id: header.plan_id.clone(), step_count: header.step_count };
    let mut parts = vec![Part::Header(header)];
    parts.extend(steps.into_iter().map(Part::Step));
    parts.push(Part::Trailer(trailer));
    parts
}

fn intake() -> Intake {
    Intake::new(Budget::new(1 << 30).share(1 << 29))
}

fn feed(parts: Vec<Part>) -> Result<Accepted, Error> {
    let mut intake = intake();
    for part in parts {
        if let Some(accepted) = intake.take(Some(part))? {
            return Ok(accepted);
        }
    }
    Err(intake.cut_short())
}

#[track_caller]
fn assert_invalid(result: Result<Accepted, Error>, wanted: &str) {
    match result {
        Err(Error::Invalid { field, .. }) => assert_eq!(field, wanted),
        other => panic!("expected {wanted} to be refused, got {other:?}"),
    }
}

#[test]
fn whole_plan_is_accepted() {
    let accepted = feed(plan(vec![step("a", &[]), step("b", &["a"])])).unwrap();
    assert_eq!(accepted.plan.steps[StepIx(1)].depends_on, [StepIx(0)]);
    assert!(matches!(accepted.access.raw[..], [Source::Name]));
    assert_eq!(accepted.plan.time_on_cluster(), Duration::from_secs(60));
}

/// A time that no clock can be moved on by would end the run in a panic.
#[test]
fn time_of_a_step_has_an_end() {
    let with = |seconds| {
        let Part::Header(mut header) = plan(vec![]).swap_remove(0) else { unreachable!() };
        let step_timeout = Some(prost_types::Duration { seconds, nanos: 0 });
        header.options = Some(v1::RunOptions { step_timeout, ..Default::default() });
        header.plan_id = digest::plan_id(&header, &[]);
        let trailer = v1::PlanTrailer { plan_id: header.plan_id.clone(), step_count: 0 };
        feed(vec![Part::Header(header), Part::Trailer(trailer)])
    };
    assert!(with(7 * 24 * 3600).is_ok());
    for seconds in [0, -1, 7 * 24 * 3600 + 1, i64::MAX] {
        assert_invalid(with(seconds), "header.options.step_timeout");
    }
}

#[test]
fn empty_plan_is_accepted() {
    assert!(feed(plan(vec![])).unwrap().plan.steps.is_empty());
}

#[test]
fn plan_cut_short_is_incomplete_wherever_it_was_cut() {
    let parts = plan(vec![step("a", &[]), step("b", &[])]);
    for length in 0..parts.len() {
        let result = feed(parts[..length].to_vec());
        assert!(matches!(result, Err(Error::Incomplete(_))), "{result:?}");
    }
}

#[test]
fn missing_step_is_incomplete() {
    let mut parts = plan(vec![step("a", &[]), step("b", &[])]);
    parts.remove(2);
    assert!(matches!(feed(parts), Err(Error::Incomplete(_))));
}

#[test]
fn altered_plan_is_found_out() {
    let mut parts = plan(vec![step("a", &[]), step("b", &[])]);
    parts[2] = Part::Step(v1::PlanStep { wave: 7, ..step("b", &[]) });
    assert!(matches!(feed(parts), Err(Error::Digest { .. })));
    let mut swapped = plan(vec![step("a", &[]), step("b", &[])]);
    swapped.swap(1, 2);
    assert!(matches!(feed(swapped), Err(Error::Digest { .. })));
}

#[test]
fn each_breach_of_the_protocol_is_named() {
    let mut twice = plan(vec![step("a", &[])]);
    twice.insert(1, twice[0].clone());
    assert_invalid(feed(twice), "header");
    assert_invalid(feed(vec![Part::Step(step("a", &[]))]), "step");
    assert_invalid(feed(plan(vec![step("a", &[]), step("a", &[])])), "steps[1].id");
    assert_invalid(feed(plan(vec![step("a", &["b"]), step("b", &[])])), "steps[0].depends_on");
    assert_invalid(feed(plan(vec![step("a", &["a"])])), "steps[0].depends_on");
    assert_invalid(feed(plan(vec![v1::PlanStep { route: None, ..step("a", &[]) }])), "steps[0].route");
    let mut more = plan(vec![step("a", &[])]);
    more.insert(2, Part::Step(step("b", &[])));
    assert_invalid(feed(more), "step");
    assert!(matches!(intake().take(None), Err(Error::Invalid { .. })));
}

fn access(name: &str) -> Part {
    with_kubeconfig(name, 1)
}

fn with_kubeconfig(name: &str, bytes: usize) -> Part {
    let source = Some(cluster_access::Source::Kubeconfig("x".repeat(bytes)));
    Part::Cluster(v1::ClusterAccess { name: name.into(), source })
}

#[test]
fn access_is_for_selected_clusters_and_once() {
    let mut early = plan(vec![]);
    early.insert(0, access("east"));
    assert!(matches!(feed(early).unwrap().access.raw[..], [Source::Kubeconfig(_)]));
    let mut stray = plan(vec![]);
    stray.insert(1, access("west"));
    assert_invalid(feed(stray), "cluster.name");
    let mut twice = plan(vec![]);
    twice.splice(1..1, [access("east"), access("east")]);
    assert_invalid(feed(twice), "cluster.name");
}

#[test]
fn manifest_that_is_no_object_is_refused_without_its_text() {
    let mut bad = step("a", &[]);
    bad.route = Some(Route::Direct(v1::DirectRoute {
        clusters: vec!["east".into()],
        manifest: r#"{"apiVersion":"canary-7f1","kind":{"canary-7f1":1}}"#.into(),
    }));
    let error = feed(plan(vec![bad])).unwrap_err();
    assert!(!error.to_string().contains("canary"), "{error}");
    assert_invalid(Err(error), "steps[0].direct.manifest");
}

#[test]
fn cancel_before_the_trailer_starts_nothing() {
    let mut parts = plan(vec![step("a", &[])]);
    parts.insert(1, Part::Cancel(v1::Cancel::default()));
    assert!(matches!(feed(parts), Err(Error::Cancelled)));
}

/// The same parts as Plan answers them when it is asked for bytes.
fn as_bytes(parts: Vec<Part>) -> Vec<Part> {
    let encoded = |part: Part| {
        let (kind, bytes) = match part {
            Part::Header(header) => (v1::PlanPartKind::Header, header.encode_to_vec()),
            Part::Step(step) => (v1::PlanPartKind::Step, step.encode_to_vec()),
            Part::Trailer(trailer) => (v1::PlanPartKind::Trailer, trailer.encode_to_vec()),
            other => return other,
        };
        Part::Encoded(v1::EncodedPart { kind: kind.into(), bytes })
    };
    parts.into_iter().map(encoded).collect()
}

/// Field 1000, which no message of the contract has.
const UNKNOWN: [u8; 4] = [0xc2, 0x3e, 1, b'z'];

#[test]
fn plan_in_bytes_is_the_same_plan() {
    let parts = plan(vec![step("a", &[]), step("b", &["a"])]);
    let accepted = feed(as_bytes(parts.clone())).unwrap();
    assert_eq!(accepted.plan.id, feed(parts.clone()).unwrap().plan.id);
    assert_eq!(accepted.plan.steps[StepIx(1)].depends_on, [StepIx(0)]);
    // Some parts may come as bytes and others not.
    let mixed = [&as_bytes(parts.clone())[..2], &parts[2..]].concat();
    assert_eq!(feed(mixed).unwrap().plan.steps.len(), 2);
}

#[test]
fn what_this_executor_does_not_know_is_refused_by_name() {
    for (at, wanted) in [
        (0, "header: field 1000 of switchyard.v1.PlanHeader"),
        (1, "steps[0]: field 1000 of switchyard.v1.PlanStep"),
        (2, "trailer: field 1000 of switchyard.v1.PlanTrailer"),
    ] {
        let mut parts = as_bytes(plan(vec![step("a", &[])]));
        let Part::Encoded(part) = &mut parts[at] else { panic!("another part") };
        part.bytes.extend(UNKNOWN);
        assert_eq!(feed(parts).err(), Some(Error::TooNew(vec![wanted.into()])));
    }
    let mut parts = plan(vec![step("a", &[])]);
    let Part::Header(header) = &mut parts[0] else { panic!("another part") };
    header.options = Some(v1::RunOptions { on_disconnect: 9, ..Default::default() });
    header.plan_id = digest::plan_id(header, &[step("a", &[])]);
    let id = header.plan_id.clone();
    parts[2] = Part::Trailer(v1::PlanTrailer { plan_id: id, step_count: 1 });
    assert_eq!(feed(parts).err(), Some(Error::TooNew(vec!["header.options.on_disconnect: value 9".into()])));
}

#[test]
fn altered_bytes_are_found_out() {
    let mut parts = as_bytes(plan(vec![step("a", &[])]));
    let other = as_bytes(plan(vec![step("b", &[])]));
    parts[1] = other[1].clone();
    assert!(matches!(feed(parts), Err(Error::Digest { .. })));
    let mut parts = as_bytes(plan(vec![step("a", &[])]));
    let Part::Encoded(part) = &mut parts[1] else { panic!("another part") };
    part.bytes.pop();
    assert_invalid(feed(parts.clone()), "encoded.bytes");
    parts[1] = Part::Encoded(v1::EncodedPart::default());
    assert_invalid(feed(parts), "encoded.kind");
}

/// Case 270: positions never wrap.
#[test]
fn more_adapters_than_can_be_numbered_are_refused() {
    let through = |port: usize| v1::PlanStep {
        id: format!("s{port}"),
        route: Some(Route::Adapter(v1::AdapterRoute {
            host: format!("mesh-{}", port / 60_000),
            port: (port % 60_000 + 1) as u32,
            clusters: vec!["east".into()],
            declaration: "{}".into(),
            ..Default::default()
        })),
        ..Default::default()
    };
    let most = MAX_TARGETS - 1;
    let accepted = feed(plan((0..most).map(through).collect())).unwrap();
    let Work::Adapter(last) = &accepted.plan.steps[StepIx::from(most - 1)].work else { panic!("it is an adapter's") };
    assert_eq!((last.address, accepted.plan.adapters.len()), (AdapterIx::from(most - 1), most));
    let refused = feed(plan((0..=most).map(through).collect()));
    assert!(matches!(refused, Err(Error::TooLarge(_))), "{refused:?}");
}

/// Case 247: whatever is held is counted, and given back when the stream ends or the run does.
#[test]
fn all_that_is_kept_is_counted() {
    let budget = Budget::new(1 << 30);
    let held_for = |parts: Vec<Part>| {
        let mut intake = Intake::new(budget.share(1 << 29));
        for part in parts {
            intake.take(Some(part)).unwrap();
        }
        let held = budget.held();
        drop(intake);
        assert_eq!(budget.held(), 0);
        held
    };
    let without_trailer = |steps: Vec<v1::PlanStep>| {
        let mut parts = plan(steps);
        parts.pop();
        parts
    };
    let small = held_for(without_trailer(vec![step("a", &[]), step("b", &[])]));
    let mut named = step("b", &[]);
    named.component = Some(v1::Component { kind: "x".repeat(1000), ..Default::default() });
    assert!(held_for(without_trailer(vec![step("a", &[]), named])) > small + 1000);
    let ids: Vec<_> = (0..1000).map(|number| number.to_string()).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let many = || ids.iter().map(|id| step(id, &[])).collect::<Vec<_>>();
    let edges = step("last", &ids);
    let bare = held_for(without_trailer([many(), vec![step("last", &[])]].concat()));
    assert!(held_for(without_trailer([many(), vec![edges]].concat())) > bare + 15_000);
    assert!(held_for(vec![with_kubeconfig("east", 500_000)]) > 500_000);
    let accepted = feed(plan(vec![step("a", &[])])).unwrap();
    assert!(accepted.share.held() > 100);
}

/// Case 247: 100 kubeconfigs before a header were 852 MiB.
#[test]
fn access_is_bounded_before_the_header_and_named_by_it_afterwards() {
    let early = (0..100).map(|number| with_kubeconfig(&number.to_string(), 1_000_000)).collect();
    assert!(matches!(feed(early), Err(Error::TooLarge(what)) if what.contains("send the header first")));
    assert!(matches!(feed(vec![with_kubeconfig("east", 1 << 20)]), Err(Error::TooLarge(_))));
    let many = (0..=10_000).map(|number| access(&number.to_string())).collect();
    assert!(matches!(feed(many), Err(Error::TooLarge(_))));
    // A stranger is refused as soon as it is known to be one, and not at the end.
    let header = plan(vec![]).swap_remove(0);
    assert_invalid(feed(vec![header.clone(), access("west")]), "cluster.name");
    assert_invalid(feed(vec![access("west"), header]), "cluster.name");
}

#[test]
fn plan_that_finds_no_room_is_told_from_one_that_is_too_large() {
    let budget = Budget::new(1 << 20);
    let held = |most: usize| {
        let mut intake = Intake::new(budget.share(most));
        (0..2_000).find_map(|_| intake.take(Some(with_kubeconfig("east", 100_000))).err())
    };
    let _others = {
        let mut share = budget.share(1 << 20);
        assert!(matches!(held(1000), Some(Error::TooLarge(what)) if what.contains("--max-plan-bytes")));
        share.take_anyway(1_000_000);
        share
    };
    assert!(matches!(held(1 << 20), Some(Error::NoRoom(what)) if what.contains("--max-held-bytes")));
}

#[test]
fn texts_that_results_repeat_are_bounded() {
    let long = "x".repeat(2000);
    assert_invalid(feed(plan(vec![step(&long, &[])])), "steps[0].id");
    let mut named = step("a", &[]);
    named.component = Some(v1::Component { name: long.clone(), ..Default::default() });
    assert_invalid(feed(plan(vec![named])), "steps[0].component");
    let header = |change: &dyn Fn(&mut v1::PlanHeader)| {
        let Part::Header(mut header) = plan(vec![]).swap_remove(0) else { panic!() };
        change(&mut header);
        feed(vec![Part::Header(header)])
    };
    assert_invalid(header(&|header| header.clusters.push(long.clone())), "header.clusters");
    let design = v1::DesignRef { name: long.clone(), ..Default::default() };
    assert_invalid(header(&|header| header.design = Some(design.clone())), "header.design.name");
    assert!(matches!(
        header(&|header| header.clusters = (0..10_001).map(|number| number.to_string()).collect()),
        Err(Error::TooLarge(_))
    ));
}

#[test]
fn what_is_declared_is_not_kept_as_undeclared_order_too() {
    let mut last = step("c", &["a"]);
    last.runs_after = vec!["a".into(), "b".into()];
    let accepted = feed(plan(vec![step("a", &[]), step("b", &[]), last])).unwrap();
    let last = &accepted.plan.steps[StepIx(2)];
    assert_eq!((&last.depends_on[..], &last.runs_after[..]), (&[StepIx(0)][..], &[StepIx(1)][..]));
}
