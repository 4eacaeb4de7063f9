//! What the planner answers to designs that show every oddity of the published ones (`tests/designs`), each with a line that says
//! which. The table was filled in by hand, from the rules.
#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use switchyard_planner::plan::Operation;
use switchyard_planner::registry::{Address, Form, Layers, Protocol, Registrant, Registry, form::Model};
use switchyard_planner::route::Route;

use common::designs::{self, everything_direct, files, planned, planned_with};

const TABLE: &str = include_str!("designs.tsv");

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/designs")
}

/// S6 among others.
#[test]
fn every_oddity_gives_what_the_table_says() {
    designs::assert_answers(&folder(), TABLE);
}

#[test]
fn nothing_that_a_registrant_carries_comes_out() {
    for file in files(&folder()) {
        let planned = planned(&fs::read_to_string(&file).unwrap(), &everything_direct(), Operation::Deploy);
        let payloads = planned.iter().flat_map(|plan| &plan.steps).map(|step| step.payload.0.as_str());
        let answer = format!("{planned:?} {}", payloads.collect::<String>());
        assert!(!answer.contains("192.0.2.10") && !answer.contains("client-key-data"), "{}", file.display());
    }
}

/// S4, S1: each design, unchanged, planned with two registries. In one of them a registrant with an address stands behind the
/// model of everything, in the other one without.
#[test]
fn the_registry_decides_and_the_design_stays() {
    let at = Address::At { host: "mesh.example".into(), port: 10_000 };
    let through = Form {
        registrants: vec![Registrant { address: at, ..Registrant::named("mesh") }],
        models: vec![Model {
            name: "kubernetes".into(),
            version: String::new(),
            registrant: "mesh".into(),
            chart: None,
            is_annotation: false,
        }],
        ..Form::default()
    };
    let through = Registry::from_form(through, None).unwrap();
    let everything_else = everything_direct();
    let mut moved = 0;
    for file in files(&folder()) {
        let text = fs::read_to_string(&file).unwrap();
        let Ok(direct) = planned(&text, &everything_else, Operation::Deploy) else { continue };
        let layers = Layers { request: Some(&through), own: &everything_else };
        let Ok(adapted) = planned_with(&text, layers, Operation::Deploy) else { continue };
        for (before, after) in direct.steps.iter().zip(&adapted.steps) {
            assert_eq!((&before.id, &before.depends_on, before.wave), (&after.id, &after.depends_on, after.wave));
            assert_eq!(before.route, Route::Direct);
            let to = Route::Adapter { host: "mesh.example".into(), port: 10_000, protocol: Protocol::Auto };
            assert_eq!(after.route, if after.model == "kubernetes" { to } else { Route::Direct });
            moved += usize::from(after.route != Route::Direct);
        }
    }
    assert!(moved > 20, "{moved}");
}
