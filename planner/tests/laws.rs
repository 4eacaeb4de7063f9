//! What holds for every plan, over random designs.
#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use switchyard_planner::convert::Intake;
use switchyard_planner::document::Limits;
use switchyard_planner::plan::{self, Operation, Plan, Refusal};
use switchyard_planner::registry::{Layers, Registry};
use switchyard_proto::v1;

/// A design: for every component its sort, the namespace it is in, and numbers of those it depends on.
#[derive(Debug, Clone)]
struct Shape(Vec<(Sort, usize, Vec<usize>)>);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Sort {
    Config,
    Namespace,
    Drawing,
}

fn shape(acyclic: bool) -> impl Strategy<Value = Shape> {
    (1usize..25).prop_flat_map(move |size| {
        let sort = prop_oneof![5 => Just(Sort::Config), 1 => Just(Sort::Namespace), 1 => Just(Sort::Drawing)];
        let one = (sort, 0..size, prop::collection::vec(0..size, 0..4));
        prop::collection::vec(one, size).prop_map(move |mut components| {
            if acyclic {
                for (number, (_, _, on)) in components.iter_mut().enumerate() {
                    // Against the document's order, which must not matter.
                    on.retain(|&other| other > number);
                }
            }
            Shape(components)
        })
    })
}

impl Shape {
    fn text(&self) -> String {
        let components = self.0.iter().enumerate().map(|(number, (sort, namespace, on))| {
            let names: Vec<_> = on.iter().map(|other| format!("c{other}")).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let mut component = dependent(&format!("c{number}"), &names);
            component["metadata"]["isAnnotation"] = json!(*sort == Sort::Drawing);
            if *sort == Sort::Namespace {
                component["component"]["kind"] = json!("Namespace");
            }
            component["configuration"]["metadata"]["namespace"] = json!(format!("c{namespace}"));
            component
        });
        design(components.collect::<Vec<Value>>())
    }

    fn semantic(&self, number: usize) -> bool {
        self.0[number].0 != Sort::Drawing
    }

    /// Edges that the declarations mean, as pairs of ids: first, then.
    fn declared(&self) -> BTreeSet<(String, String)> {
        let id = |number: usize| format!("id-c{number}");
        let pairs =
            self.0.iter().enumerate().filter(|(number, _)| self.semantic(*number)).flat_map(|(number, (_, _, on))| {
                on.iter().filter(|&&other| self.semantic(other)).map(move |&other| (id(other), id(number)))
            });
        pairs.collect()
    }
}

fn planned(text: &str, operation: Operation) -> Result<Plan, Refusal> {
    let mut request = request(text);
    request.operation = operation;
    plan::plan(request, Layers { request: None, own: &Registry::builtin() })
}

fn pairs(plan: &Plan, of: impl Fn(&plan::Step) -> &Vec<String>) -> Vec<(String, String)> {
    plan.steps.iter().flat_map(|step| of(step).iter().map(|other| (other.clone(), step.id.clone()))).collect()
}

fn depends_on(step: &plan::Step) -> &Vec<String> {
    &step.depends_on
}

fn runs_after(step: &plan::Step) -> &Vec<String> {
    &step.runs_after
}

fn keeps_order(plan: &Plan) {
    let place: BTreeMap<_, _> = plan.steps.iter().enumerate().map(|(place, step)| (step.id.as_str(), place)).collect();
    for step in &plan.steps {
        let before = step.depends_on.iter().chain(&step.runs_after);
        let waves: Vec<_> = before.clone().map(|id| plan.steps[place[id.as_str()]].wave + 1).collect();
        assert_eq!(step.wave, waves.into_iter().max().unwrap_or(0));
        for id in before {
            assert!(place[id.as_str()] < place[step.id.as_str()]);
        }
        assert!(step.depends_on.iter().all(|id| !step.runs_after.contains(id)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_has_every_component_once_and_every_edge_in_order(shape in shape(true)) {
        let plan = planned(&shape.text(), Operation::Deploy).unwrap();
        let ids: BTreeSet<_> = plan.steps.iter().map(|step| step.id.clone()).collect();
        prop_assert_eq!(ids.len(), plan.steps.len());
        prop_assert_eq!(plan.steps.len() + plan.set_aside.len(), shape.0.len());
        let declared = pairs(&plan, depends_on);
        prop_assert_eq!(declared.len(), shape.declared().len(), "an edge is there twice");
        prop_assert_eq!(declared.into_iter().collect::<BTreeSet<_>>(), shape.declared());
        keeps_order(&plan);
    }

    #[test]
    fn a_component_comes_after_its_namespace_unless_declared_otherwise(shape in shape(true)) {
        let plan = planned(&shape.text(), Operation::Deploy).unwrap();
        let after: BTreeSet<_> = pairs(&plan, runs_after).into_iter().collect();
        let declared = shape.declared();
        let not_kept = plan.warnings.iter().filter(|warning| warning.code.as_str() == "ORDER_NOT_KEPT").count();
        let mut wanted = 0;
        for (number, (sort, namespace, _)) in shape.0.iter().enumerate() {
            if *sort == Sort::Config && shape.0[*namespace].0 == Sort::Namespace && number != *namespace {
                let edge = (format!("id-c{namespace}"), format!("id-c{number}"));
                wanted += usize::from(!declared.contains(&edge));
            }
        }
        prop_assert_eq!(after.len() + not_kept, wanted);
    }

    #[test]
    fn an_undeploy_is_the_same_with_every_edge_turned_round(shape in shape(true)) {
        let up = planned(&shape.text(), Operation::Deploy).unwrap();
        let down = planned(&shape.text(), Operation::Undeploy).unwrap();
        keeps_order(&down);
        for of in [depends_on as fn(&plan::Step) -> &Vec<String>, runs_after] {
            let turned: BTreeSet<_> = pairs(&up, of).into_iter().map(|(first, then)| (then, first)).collect();
            prop_assert_eq!(turned, pairs(&down, of).into_iter().collect::<BTreeSet<_>>());
        }
    }

    #[test]
    fn a_design_is_refused_exactly_when_its_declarations_have_a_cycle(shape in shape(false)) {
        let declared = shape.declared();
        // Takes away whatever waits for nothing, until nothing is left or a cycle is.
        let mut left: BTreeSet<_> = declared.iter().flat_map(|(a, b)| [a, b]).collect();
        loop {
            let free: Vec<_> = left.iter().filter(|id| !declared.iter().any(|(a, b)| b == **id && left.contains(a))).copied().collect();
            if free.is_empty() { break; }
            free.iter().for_each(|id| { left.remove(*id); });
        }
        match planned(&shape.text(), Operation::Deploy) {
            Ok(plan) => { prop_assert!(left.is_empty()); keeps_order(&plan); }
            Err(Refusal::Design { problems, .. }) => {
                prop_assert!(!left.is_empty());
                prop_assert!(problems.iter().all(|problem| problem.kind.as_str() == "DEPENDENCY_CYCLE"));
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn the_same_request_gives_the_same_bytes(shape in shape(true)) {
        use prost::Message;
        let bytes = || {
            let source = v1::design::Source::Document(shape.text());
            let request = v1::PlanRequest {
                design: Some(v1::Design { source: Some(source) }),
                clusters: vec!["east".into()],
                ..Default::default()
            };
            let mut intake = Intake::new(request, Limits::default()).unwrap();
            let plan = plan::plan(intake.request(), Layers { request: None, own: &Registry::builtin() }).unwrap();
            let parts = intake.parts(plan, String::new());
            assert_eq!(parts.header.plan_id, switchyard_proto::digest::plan_id(&parts.header, &parts.steps));
            parts.into_iter().flat_map(|part| part.encode_to_vec()).collect::<Vec<u8>>()
        };
        prop_assert_eq!(bytes(), bytes());
    }

    #[test]
    fn no_text_makes_the_planner_panic(text in "[-:{}\\[\\],&*#|>!%@`\"' a-c0-9\\n\\t~<$().]{0,200}") {
        let _ = planned(&text, Operation::Deploy);
        let _ = planned(&format!("components:\n- {text}"), Operation::Deploy);
        let _ = planned(&format!("services:\n  {text}"), Operation::Undeploy);
        let _ = planned(&format!("{{\"components\": [{text}]}}"), Operation::Deploy);
    }
}
