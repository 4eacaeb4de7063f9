//! Every design of the corpus gives a plan or its full list of problems, and exactly the one that `corpus.tsv` says.
//!
//! The corpus lies beside the repository (`../shared/corpus`) and is no part of it, so these tests are ignored unless asked
//! for (`cargo test --test corpus -- --ignored`), as the gate does where it is there. What they show is shown by the designs
//! of `tests/designs` too (`designs.rs`).
#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use switchyard_planner::plan::{Operation, Plan};
use switchyard_planner::registry::{Form, Layers, Protocol, Registrant, Registry, file};
use switchyard_planner::route::Route;

use common::designs::{self, everything_direct, files, name, planned, planned_with};

const TABLE: &str = include_str!("corpus.tsv");

/// Where the corpus is.
fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus/designs")
}

#[test]
#[ignore = "needs ../shared/corpus, which is no part of the repository"]
fn every_design_gives_what_the_table_says() {
    designs::assert_answers(&corpus(), TABLE);
}

#[test]
#[ignore = "needs ../shared/corpus, which is no part of the repository"]
fn the_same_design_gives_the_same_answer_again() {
    let corpus = corpus();
    for file in files(&corpus) {
        let text = fs::read_to_string(&file).unwrap();
        let answer = || planned(&text, &everything_direct(), Operation::Deploy);
        assert_eq!(answer(), answer(), "{}", name(&file));
    }
}

#[test]
#[ignore = "needs ../shared/corpus, which is no part of the repository"]
fn an_undeploy_has_the_same_steps_and_the_edges_turned_round() {
    let corpus = corpus();
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
#[ignore = "needs ../shared/corpus, which is no part of the repository"]
fn no_plan_and_no_problem_holds_what_registrants_carry() {
    let corpus = corpus();
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
#[ignore = "needs ../shared/corpus, which is no part of the repository"]
fn the_installations_registry_decides_and_the_design_stays() {
    let designs = corpus();
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
