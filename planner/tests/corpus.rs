//! Every design of the corpus gives a plan or its full list of problems, and exactly the one that `corpus.tsv` says.
//!
//! The corpus lies beside the repository (`../shared/corpus`) and is no part of it. When it is not there these tests say so
//! and pass. `SWITCHYARD_CORPUS_WRITE=<file>` writes what the planner answers now, in the table's form, to compare.
#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use switchyard_planner::document::Limits;
use switchyard_planner::plan::{Operation, Plan, Refusal, Request, Source, plan};
use switchyard_planner::registry::{Form, Layers, Protocol, Registrant, Registry, file};
use switchyard_planner::route::Route;

const TABLE: &str = include_str!("corpus.tsv");

fn corpus() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus/designs");
    if path.is_dir() {
        return Some(path);
    }
    eprintln!("skipped: the corpus of designs is not at ../shared/corpus beside the repository");
    None
}

fn files(corpus: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    files
}

/// A registry in which one registrant without an adapter stands behind everything.
fn everything_direct() -> Registry {
    let form =
        Form { registrants: vec![Registrant::named("all")], default_registrant: "all".into(), ..Form::default() };
    Registry::from_form(form, None).unwrap()
}

fn planned(text: &str, registry: &Registry, operation: Operation) -> Result<Plan, Refusal> {
    planned_with(text, Layers { request: None, own: registry }, operation)
}

fn planned_with(text: &str, registries: Layers<'_>, operation: Operation) -> Result<Plan, Refusal> {
    let request = Request {
        source: Source::Text(text),
        operation,
        dry_run: false,
        clusters: vec!["east".into(), "west".into()],
        charts: false,
        default_namespace: "default".into(),
        limits: Limits::default(),
    };
    plan(request, registries)
}

fn kinds(refusal: &Refusal) -> String {
    let Refusal::Design { problems, .. } = refusal else { panic!("no address in the corpus: {refusal}") };
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for problem in problems {
        *kinds.entry(problem.kind.as_str()).or_default() += 1;
    }
    kinds.iter().map(|(kind, count)| format!("{kind}*{count}")).collect::<Vec<_>>().join(" ")
}

/// What the table says about a file: steps, set aside, declared edges, undeclared edges, problems with a registry that
/// routes everything directly; then problems with the planner's built-in registry.
fn row(text: &str) -> String {
    let mut row = match planned(text, &everything_direct(), Operation::Deploy) {
        Ok(plan) => {
            let declared: usize = plan.steps.iter().map(|step| step.depends_on.len()).sum();
            let undeclared: usize = plan.steps.iter().map(|step| step.runs_after.len()).sum();
            format!("{}\t{}\t{declared}\t{undeclared}\t-", plan.steps.len(), plan.set_aside.len())
        }
        Err(refusal) => format!("-\t-\t-\t-\t{}", kinds(&refusal)),
    };
    match planned(text, &Registry::builtin(), Operation::Deploy) {
        Ok(_) => row.push_str("\t-"),
        Err(refusal) => write!(row, "\t{}", kinds(&refusal)).unwrap(),
    }
    row
}

fn name(file: &Path) -> String {
    file.file_name().unwrap().to_string_lossy().into_owned()
}

fn table() -> BTreeMap<&'static str, (&'static str, String)> {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#') && !line.starts_with("file\t"));
    rows.map(|line| {
        let mut cells = line.split('\t');
        let (file, checked) = (cells.next().unwrap(), cells.next().unwrap());
        (file, (checked, cells.take(6).collect::<Vec<_>>().join("\t")))
    })
    .collect()
}

#[test]
fn every_design_gives_what_the_table_says() {
    let Some(corpus) = corpus() else { return };
    let table = table();
    let mut wrong = String::new();
    let mut written = String::new();
    let files = files(&corpus);
    for file in &files {
        let (name, found) = (name(file), row(&fs::read_to_string(file).unwrap()));
        writeln!(written, "{name}\t{found}").unwrap();
        match table.get(name.as_str()) {
            Some((_, expected)) if *expected == found => {}
            expected => writeln!(wrong, "{name}: expected {expected:?}, found {found:?}").unwrap(),
        }
    }
    if let Ok(path) = std::env::var("SWITCHYARD_CORPUS_WRITE") {
        fs::write(path, written).unwrap();
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(table.len(), files.len(), "the table has rows of files that are not in the corpus");
}

#[test]
fn the_same_design_gives_the_same_answer_again() {
    let Some(corpus) = corpus() else { return };
    for file in files(&corpus) {
        let text = fs::read_to_string(&file).unwrap();
        let answer = || planned(&text, &everything_direct(), Operation::Deploy);
        assert_eq!(answer(), answer(), "{}", name(&file));
    }
}

#[test]
fn an_undeploy_has_the_same_steps_and_the_edges_turned_round() {
    let Some(corpus) = corpus() else { return };
    for file in files(&corpus) {
        let text = fs::read_to_string(&file).unwrap();
        let up = planned(&text, &everything_direct(), Operation::Deploy);
        let down = planned(&text, &everything_direct(), Operation::Undeploy);
        let (Ok(up), Ok(down)) = (up, down) else { continue };
        let edges = |plan: &Plan, turned: bool| {
            let mut edges = Vec::new();
            for step in &plan.steps {
                for (sort, before) in [("depends", &step.depends_on), ("after", &step.runs_after)] {
                    let pair = |other: &String| match turned {
                        true => (sort, step.id.clone(), other.clone()),
                        false => (sort, other.clone(), step.id.clone()),
                    };
                    edges.extend(before.iter().map(pair));
                }
            }
            edges.sort_unstable();
            edges
        };
        assert_eq!(edges(&up, true), edges(&down, false), "{}", name(&file));
    }
}

#[test]
fn no_plan_and_no_problem_holds_what_registrants_carry() {
    let Some(corpus) = corpus() else { return };
    let mut with_kubeconfigs = 0;
    for file in files(&corpus) {
        let text = fs::read_to_string(&file).unwrap();
        // The scrubbed corpus has this address in every kubeconfig it holds.
        with_kubeconfigs += usize::from(text.contains("192.0.2.10"));
        let form = Form {
            registrants: vec![Registrant {
                address: switchyard_planner::registry::Address::At { host: "adapter".into(), port: 1 },
                ..Registrant::named("all")
            }],
            default_registrant: "all".into(),
            ..Form::default()
        };
        let adapters = Registry::from_form(form, None).unwrap();
        for registry in [&everything_direct(), &adapters] {
            let planned = planned(&text, registry, Operation::Deploy);
            let payloads = planned.iter().flat_map(|plan| &plan.steps).map(|step| step.payload.0.as_str());
            let answer = format!("{planned:?} {}", payloads.collect::<String>());
            assert!(!answer.contains("192.0.2.10"), "{}", name(&file));
            assert!(!answer.contains("client-key-data"), "{}", name(&file));
        }
    }
    assert!(with_kubeconfigs >= 8, "found only {with_kubeconfigs} designs with kubeconfigs");
}

/// S4, S1: one design of the corpus, unchanged, planned against two installations. Both have the corpus's own registry
/// documents; in one of them the registrant of a model advertises a host and a port, and that model's components alone take
/// the other path.
#[test]
fn the_installations_registry_decides_and_the_design_stays() {
    let Some(designs) = corpus() else { return };
    let documents = designs.parent().unwrap().join("registry/models-from-designs");
    let text = fs::read_to_string(designs.join("katib-2-4-2-1c9730-v1b1.yaml")).unwrap();
    let everything_else = everything_direct();
    let plan_with = |address: Option<(&str, u16)>| {
        let folder = tempfile::tempdir().unwrap();
        for file in files(&documents) {
            let of_model = name(&file).starts_with("cert-manager--");
            let mut document: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            if let (true, Some((host, port))) = (of_model, address) {
                document["registrant"]["metadata"] = serde_json::json!({"host_name": host, "port": port});
            }
            fs::write(folder.path().join(name(&file)), document.to_string()).unwrap();
        }
        let own = file::read(folder.path()).unwrap().registry;
        let registries = Layers { request: Some(&everything_else), own: &own };
        planned_with(&text, registries, Operation::Deploy).unwrap().steps
    };

    let (direct, adapted) = (plan_with(None), plan_with(Some(("mesh.example", 10_000))));

    assert!(direct.iter().all(|step| step.route == Route::Direct));
    let moved: Vec<_> = adapted.iter().filter(|step| step.route != Route::Direct).collect();
    assert_eq!(moved.len(), 2, "the components of cert-manager");
    for step in moved {
        assert_eq!(step.model, "cert-manager");
        let to = Route::Adapter { host: "mesh.example".into(), port: 10_000, protocol: Protocol::Auto };
        assert_eq!(step.route, to);
    }
    for (before, after) in direct.iter().zip(&adapted) {
        assert_eq!((&before.id, &before.depends_on, before.wave), (&after.id, &after.depends_on, after.wave));
        assert!(after.route != Route::Direct || before == after, "{}", after.name);
    }
}
