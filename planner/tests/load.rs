//! A request of some size, always the same, whose instructions are counted (`tests/tests/it/instructions.rs`).

use serde_json::json;
use switchyard_planner::{
    convert::{Intake, Parts},
    document::Limits,
    plan::plan,
    registry::{Layers, Registry},
};
use switchyard_proto::v1;

const COMPONENTS: usize = 1_000;

/// Layers of ten, each component on three of the layer before.
fn layered() -> v1::PlanRequest {
    let before = |number: usize| match number {
        0..10 => Vec::new(),
        _ => (0..3).map(|k| format!("c-{}", number / 10 * 10 - 10 + (number + k * 3) % 10)).collect(),
    };
    let components: Vec<_> = (0..COMPONENTS)
        .map(|number| {
            json!({
                "id": format!("00000000-0000-4000-8000-{number:012}"),
                "displayName": format!("c-{number}"),
                "component": {"kind": "ConfigMap", "version": "v1"},
                "model": {"name": "kubernetes"},
                "metadata": {"isAnnotation": false, "dependsOn": before(number)},
                "configuration": {"metadata": {"namespace": "shop"}, "data": {"colour": "blue"}},
            })
        })
        .collect();
    let document = json!({
        "id": "7d0f2f4e-3f0e-4f3b-9a52-0b4a51f6d001", "name": "Load", "version": "0.0.1",
        "schemaVersion": "designs.meshery.io/v1beta3", "components": components,
    });
    v1::PlanRequest {
        design: Some(v1::Design { source: Some(v1::design::Source::Document(document.to_string())) }),
        clusters: vec!["east".into(), "west".into()],
        ..v1::PlanRequest::default()
    }
}

/// From a request that has arrived to the parts of the answer, digest included. Its name is what the counting looks for.
#[inline(never)]
fn counted_planning(request: v1::PlanRequest, registry: &Registry) -> Parts {
    let mut intake = Intake::new(request, Limits::for_bytes(16 << 20)).expect("a request");
    let planned = plan(intake.request(), Layers { request: None, own: registry }).expect("a plan");
    intake.parts(planned, String::new())
}

#[test]
fn large_design_becomes_a_plan() {
    let parts = counted_planning(layered(), &Registry::builtin());
    assert_eq!(parts.steps.len(), COMPONENTS);
}
