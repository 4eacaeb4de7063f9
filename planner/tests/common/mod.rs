//! What the planner's tests share: designs from small builders, plans in short form.
#![allow(dead_code, reason = "every test binary uses a part of it")]

pub(crate) mod designs;
pub(crate) mod server;

use serde_json::{Value, json};
use switchyard_planner::document::Limits;
use switchyard_planner::plan::{self, Operation, Plan, Refusal, Request, Source};
use switchyard_planner::problem::Problem;
use switchyard_planner::registry::{Address, Form, Layers, Registrant, Registry, form::Model};

/// A component of model `kubernetes`: ConfigMap `name` with id `id-name`.
pub(crate) fn component(name: &str) -> Value {
    json!({
        "id": format!("id-{name}"), "displayName": name,
        "component": {"kind": "ConfigMap", "version": "v1"},
        "model": {"name": "kubernetes", "model": {"version": "v1.32.0"}},
        "metadata": {"isAnnotation": false},
        "configuration": {},
    })
}

/// A component that depends on others.
pub(crate) fn dependent(name: &str, on: &[&str]) -> Value {
    let mut component = component(name);
    component["metadata"]["dependsOn"] = json!(on);
    component
}

/// A drawing.
pub(crate) fn drawing(name: &str) -> Value {
    let mut component = component(name);
    component["metadata"]["isAnnotation"] = json!(true);
    component
}

/// A component of another kind.
pub(crate) fn kind(mut component: Value, api_version: &str, kind: &str) -> Value {
    component["component"] = json!({"kind": kind, "version": api_version});
    component
}

/// A component with settings.
pub(crate) fn configured(mut component: Value, configuration: Value) -> Value {
    component["configuration"] = configuration;
    component
}

/// A component of a model.
pub(crate) fn of_model(mut component: Value, model: &str) -> Value {
    component["model"]["name"] = json!(model);
    component
}

/// A design as JSON text.
pub(crate) fn design(components: impl Into<Vec<Value>>) -> String {
    json!({
        "id": "7d0f2f4e-3f0e-4f3b-9a52-0b4a51f6d001", "name": "Shop", "version": "0.0.3",
        "schemaVersion": "designs.meshery.io/v1beta3", "components": components.into(),
    })
    .to_string()
}

pub(crate) fn request(text: &str) -> Request<'_> {
    Request {
        source: Source::Text(text),
        operation: Operation::Deploy,
        dry_run: false,
        clusters: vec!["east".into()],
        charts: false,
        default_namespace: "default".into(),
        limits: Limits::default(),
    }
}

/// A registry of models and where their adapters are; none is direct.
pub(crate) fn registry(models: &[(&str, Option<(&str, u16)>)]) -> Registry {
    let address = |place: &Option<(&str, u16)>| match place {
        None => Address::None,
        Some((host, port)) => Address::At { host: (*host).into(), port: *port },
    };
    let form = Form {
        registrants: models
            .iter()
            .map(|(name, place)| Registrant { address: address(place), ..Registrant::named(format!("of-{name}")) })
            .collect(),
        models: models
            .iter()
            .map(|(name, _)| Model { name: (*name).into(), registrant: format!("of-{name}"), ..Model::default() })
            .collect(),
        default_registrant: String::new(),
    };
    Registry::from_form(form, None).unwrap()
}

pub(crate) fn try_plan(text: &str) -> Result<Plan, Refusal> {
    plan::plan(request(text), Layers { request: None, own: &Registry::builtin() })
}

pub(crate) fn plan(text: &str) -> Plan {
    try_plan(text).unwrap_or_else(|refusal| panic!("{refusal:#?}"))
}

pub(crate) fn problems(text: &str) -> Vec<Problem> {
    match try_plan(text) {
        Err(Refusal::Design { problems, .. }) => problems,
        other => panic!("a refusal of the design, not {other:?}"),
    }
}

/// Problems as `KIND field`.
pub(crate) fn told(text: &str) -> Vec<String> {
    problems(text).iter().map(|problem| format!("{} {}", problem.kind, problem.field)).collect()
}

/// Steps as `name < what it depends on ~ what it runs after`, by name.
pub(crate) fn edges(plan: &Plan) -> Vec<String> {
    let name = |id: &String| plan.steps.iter().find(|step| step.id == *id).unwrap().name.clone();
    let names = |ids: &[String]| ids.iter().map(name).collect::<Vec<_>>().join(",");
    let line = |step: &plan::Step| {
        let mut line = step.name.clone();
        if !step.depends_on.is_empty() {
            line += &format!(" < {}", names(&step.depends_on));
        }
        if !step.runs_after.is_empty() {
            line += &format!(" ~ {}", names(&step.runs_after));
        }
        line
    };
    plan.steps.iter().map(line).collect()
}

/// The object of the only step.
pub(crate) fn manifest(plan: &Plan) -> Value {
    assert_eq!(plan.steps.len(), 1);
    serde_json::from_str(&plan.steps[0].payload.0).unwrap()
}

/// Warnings as `CODE field`.
pub(crate) fn warned(plan: &Plan) -> Vec<String> {
    plan.warnings.iter().map(|warning| format!("{} {}", warning.code.as_str(), warning.field)).collect()
}
