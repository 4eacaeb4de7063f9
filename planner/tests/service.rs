//! The planner as others see it: over a socket, with a real client.
#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::server::{Server, of_text};
use common::{component, configured, dependent, design, drawing, kind, of_model};
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use serde_json::json;
use switchyard_proto::v1;
use switchyard_service::status::{Reason, reason_of};
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic_types::StatusExt;

#[tokio::test]
async fn a_plan_is_a_header_steps_and_a_trailer() {
    let mut server = Server::start(&[]).await;
    let text = design([dependent("api", &["db"]), drawing("note"), component("db")]);
    let (header, steps) = server.planned(of_text(text)).await;
    assert_eq!(header.operation(), v1::Operation::Deploy);
    assert_eq!(header.clusters, ["east", "west"]);
    assert_eq!(header.set_aside.len(), 1);
    let options = header.options.unwrap();
    assert_eq!((options.default_namespace.as_str(), options.on_disconnect()), ("default", v1::OnDisconnect::Stop));
    assert_eq!(options.existing(), v1::Existing::Refuse);
    assert_eq!(options.step_timeout, None);
    assert_eq!(steps.iter().map(|step| step.id.as_str()).collect::<Vec<_>>(), ["id-db", "id-api"]);
    assert_eq!(steps[1].depends_on, ["id-db"]);
    let Some(v1::plan_step::Route::Direct(direct)) = &steps[0].route else { panic!("direct") };
    assert_eq!(direct.clusters, ["east", "west"]);
    let expected = v1::Component {
        name: "db".into(),
        kind: "ConfigMap".into(),
        api_version: "v1".into(),
        model: "kubernetes".into(),
        model_version: "v1.32.0".into(),
        registrant: "kubernetes".into(),
        registrant_kind: "kubernetes".into(),
    };
    assert_eq!(steps[0].component, Some(expected));
    server.stop().await;
}

/// Case 353.
#[tokio::test]
async fn options_that_do_nothing_are_warned_of() {
    let mut server = Server::start(&[]).await;
    let options = v1::RunOptions { upgrade_dependencies: true, remove_dependencies: true, ..Default::default() };
    let request = v1::PlanRequest { options: Some(options), ..of_text(design([component("config")])) };
    let (header, _) = server.planned(request.clone()).await;
    let told: Vec<_> = header.warnings.iter().map(|told| (told.code.as_str(), told.field.as_str())).collect();
    let wanted = ["options.upgrade_dependencies", "options.remove_dependencies"];
    assert_eq!(told, wanted.map(|field| ("OPTION_WITHOUT_EFFECT", field)));
    let (header, _) = server.planned(v1::PlanRequest { include_dependencies: true, ..request.clone() }).await;
    assert_eq!(header.warnings, []);
    let undeploy = v1::PlanRequest { operation: v1::Operation::Undeploy.into(), ..request };
    let (header, _) = server.planned(undeploy).await;
    assert_eq!(header.warnings, []);
    server.stop().await;
}

#[tokio::test]
async fn the_same_request_gives_the_same_plan() {
    let mut server = Server::start(&[]).await;
    let text = design([dependent("api", &["db"]), component("db")]);
    let first = server.planned(of_text(text.clone())).await;
    let again = server.planned(of_text(text)).await;
    let bare = |(header, steps): (v1::PlanHeader, _)| (v1::PlanHeader { traceparent: String::new(), ..header }, steps);
    assert_eq!(bare(first), bare(again));
    server.stop().await;
}

#[tokio::test]
async fn five_mistakes_are_five_violations() {
    let mut server = Server::start(&[]).await;
    let text = design([
        dependent("web", &["Db"]),
        dependent("db", &["db"]),
        of_model(component("mesh"), "istio"),
        kind(component("app"), "apps/v1/x", "Deployment"),
        configured(component("twin"), json!({"metadata": {"namespace": ["x"]}})),
    ]);
    let status = server.refused(of_text(text), Code::InvalidArgument).await;
    assert_eq!(reason_of(&status), Some(Reason::DesignInvalid));
    let violations = status.get_details_bad_request().unwrap().field_violations;
    let told: Vec<_> = violations.iter().map(|v| format!("{} {}", v.reason, v.field)).collect();
    assert_eq!(
        told,
        [
            "UNKNOWN_DEPENDENCY components[0].metadata.dependsOn[0]",
            "DEPENDENCY_CYCLE components[1].metadata.dependsOn[0]",
            "NO_REGISTRANT components[2].model",
            "API_VERSION_INVALID components[3].component.version",
            "WRONG_TYPE components[4].configuration.metadata.namespace",
        ]
    );
    for violation in &violations {
        assert!(violation.description.contains("line 1, column ") && violation.description.contains("component \""));
    }
    assert!(violations[0].description.contains("did you mean \"db\"?"));
    server.stop().await;
}

#[tokio::test]
async fn many_problems_reach_a_client_with_default_limits() {
    let mut server = Server::start(&[]).await;
    // A real mixture: a chart imported without its registry, and a few mistakes behind it.
    let mut components: Vec<_> = (0..400).map(|n| of_model(component(&format!("c{n}")), "kubedb")).collect();
    components.extend((0..10).map(|n| dependent(&format!("d{n}"), &["Db"])));
    let status = server.refused(of_text(design(components)), Code::InvalidArgument).await;
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.metadata["problems"], "410");
    let violations = status.get_details_bad_request().unwrap().field_violations;
    // What says the same shares a violation, so nothing had to be left out.
    assert_eq!(violations.len(), 2, "{violations:?}");
    assert!(violations[0].description.contains("the same holds for 399 more"));
    assert!(violations[1].description.contains("the same holds for 9 more"));
    assert_eq!(info.metadata.get("left_out"), None);
    let different: Vec<_> =
        (0..400).map(|n| dependent(&format!("c{n}"), &[&format!("there-is-no-component-{n}")])).collect();
    let status = server.refused(of_text(design(different)), Code::InvalidArgument).await;
    let violations = status.get_details_bad_request().unwrap().field_violations;
    assert!(violations.len() >= 20, "{}", violations.len());
    assert!(violations.last().unwrap().description.contains("more"));
    server.stop().await;
}

/// Case 363.
#[tokio::test]
async fn every_problem_comes_as_a_part_if_that_is_asked_for() {
    let mut server = Server::start(&[]).await;
    let mut components: Vec<_> =
        (0..400).map(|n| dependent(&format!("c{n}"), &[&format!("there-is-no-component-{n}")])).collect();
    components.push(component("c7"));
    let text = serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(&design(components)).unwrap());
    let request = of_text(text.unwrap());
    let (told, status) = problems(&mut server, v1::PlanRequest { problems_as_parts: true, ..request.clone() }).await;
    // The two that share a name are one id and one object twice.
    assert_eq!(told.len(), 402);
    assert_eq!(told[0].code, "UNKNOWN_DEPENDENCY");
    assert_eq!((told[0].component_id.as_str(), told[0].component.as_str()), ("id-c0", "c0"));
    assert_eq!(told[0].field, "components[0].metadata.dependsOn[0]");
    assert!(told[0].message.contains("there-is-no-component-0") && told[0].hint.contains("displayName"), "{told:?}");
    assert!(told[0].at.len() == 1 && told[0].at[0].line > 10 && told[0].at[0].column > 4, "{:?}", told[0].at);
    let twice = told.iter().find(|problem| problem.code == "DUPLICATE_ID").unwrap();
    // Where it stands, and where that stands which it repeats.
    assert!(twice.at.len() == 2 && twice.at[0].line > twice.at[1].line, "{twice:?}");
    let without = server.refused(request, Code::InvalidArgument).await;
    assert_eq!(status.message(), without.message());
    let details = |status: &tonic::Status| {
        let info = status.get_details_error_info().unwrap();
        (format!("{:?}", status.get_details_bad_request()), info.reason, info.metadata)
    };
    assert_eq!(details(&status), details(&without));

    let text = design([of_model(kind(component("mesh"), "", "IstioMesh"), "istio")]);
    let registry = Some(registry("ad apter", Some(Kind::NumberValue(1.0))));
    let request = v1::PlanRequest { registry, problems_as_parts: true, ..of_text(text) };
    let (told, status) = problems(&mut server, request).await;
    assert_eq!(reason_of(&status), Some(Reason::RegistrantAddressInvalid));
    assert_eq!(
        told.iter().map(|it| (it.code.as_str(), it.field.as_str())).collect::<Vec<_>>(),
        [("REGISTRANT_ADDRESS_INVALID", "istio")]
    );
    // A design that is right is planned as it is without.
    let request = v1::PlanRequest { problems_as_parts: true, ..of_text(design([component("config")])) };
    assert_eq!(server.planned(request).await.1.len(), 1);
    server.stop().await;
}

/// The problems that a design is refused for, and the status behind them.
async fn problems(server: &mut Server, request: v1::PlanRequest) -> (Vec<v1::Problem>, tonic::Status) {
    let mut stream = server.client.plan(request).await.unwrap().into_inner();
    let mut told = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(v1::PlanResponse { part: Some(v1::plan_response::Part::Problem(problem)) })) => told.push(problem),
            Ok(other) => panic!("a problem, not {other:?}"),
            Err(status) => return (told, status),
        }
    }
}

#[tokio::test]
async fn warnings_say_where() {
    let mut server = Server::start(&[]).await;
    let twin = configured(component("twin"), json!({"status": {"phase": "x"}}));
    let text = design([component("config"), twin.clone()]);
    let (header, _) = server.planned(of_text(text.clone())).await;
    let warning = header.warnings.iter().find(|warning| warning.code == "SERVER_FIELD_DROPPED").unwrap();
    let column = text.find(&twin.to_string()).unwrap() as u32 + 1;
    assert_eq!(warning.at, [v1::Position { line: 1, column }], "{warning:?}");
    // What the design as a whole is warned of stands nowhere.
    let (header, _) = server.planned(of_text(text.replace("7d0f2f4e-3f0e-4f3b-9a52-0b4a51f6d001", ""))).await;
    let of_design: Vec<_> = header.warnings.iter().filter(|warning| warning.component_id.is_empty()).collect();
    assert!(!of_design.is_empty() && of_design.iter().all(|warning| warning.at.is_empty()), "{of_design:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_planner_says_what_it_is() {
    let mut server = Server::start(&["--max-message-bytes", "1MiB"]).await;
    let request = v1::PlannerServiceGetCapabilitiesRequest {};
    let told = server.client.get_capabilities(request).await.unwrap().into_inner();
    assert_eq!(told.version, env!("CARGO_PKG_VERSION"));
    assert!(told.features.iter().any(|feature| feature == "problems_as_parts"), "{told:?}");
    assert_eq!((told.max_message_bytes, told.max_clusters), (1 << 20, 10_000));
    assert_eq!(told.max_planning_time, Some(prost_types::Duration { seconds: 120, nanos: 0 }));
    server.stop().await;
}

#[tokio::test]
async fn mistakes_of_the_request_are_told_at_once() {
    let mut server = Server::start(&[]).await;
    let request = v1::PlanRequest {
        design: None,
        operation: 9,
        clusters: vec!["a".into(), "a".into(), " ".into()],
        options: Some(v1::RunOptions {
            default_namespace: "Not One".into(),
            on_disconnect: 9,
            existing: 9,
            step_timeout: Some(prost_types::Duration { seconds: -1, nanos: 0 }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let status = server.refused(request, Code::InvalidArgument).await;
    assert_eq!(reason_of(&status), Some(Reason::RequestInvalid));
    let fields: Vec<_> =
        status.get_details_bad_request().unwrap().field_violations.into_iter().map(|v| v.field).collect();
    assert_eq!(
        fields,
        [
            "operation",
            "clusters[1]",
            "clusters[2]",
            "options.default_namespace",
            "options.on_disconnect",
            "options.existing",
            "options.step_timeout",
            "design"
        ]
    );
    for seconds in [0, 7 * 24 * 3600 + 1, i64::MAX] {
        let step_timeout = Some(prost_types::Duration { seconds, nanos: 0 });
        let options = Some(v1::RunOptions { step_timeout, ..Default::default() });
        let status = server.refused(v1::PlanRequest { options, ..of_text(design([])) }, Code::InvalidArgument).await;
        assert!(status.message().contains("at most 7 days"), "{}", status.message());
    }
    let none = v1::PlanRequest { clusters: vec![], ..of_text(design([])) };
    let status = server.refused(none, Code::InvalidArgument).await;
    assert!(status.message().contains("select at least one"), "{}", status.message());
    server.stop().await;
}

fn registry(host: &str, port: Option<Kind>) -> v1::Registry {
    v1::Registry {
        registrants: vec![v1::Registrant {
            name: "mesh".into(),
            host: host.into(),
            port: port.map(|kind| Value { kind: Some(kind) }),
            protocol: v1::AdapterProtocol::ProcessOam.into(),
            ..Default::default()
        }],
        models: vec![v1::Model { name: "istio".into(), registrant: "mesh".into(), ..Default::default() }],
        default_registrant: String::new(),
    }
}

#[tokio::test]
async fn the_registry_of_a_request_routes_beside_the_planners_own() {
    let mut server = Server::start(&[]).await;
    let text = design([of_model(kind(component("mesh"), "", "IstioMesh"), "istio"), component("config")]);
    let with = |registry| v1::PlanRequest { registry: Some(registry), ..of_text(text.clone()) };
    for port in [Kind::NumberValue(10000.0), Kind::StringValue("10000".into())] {
        let (_, steps) = server.planned(with(registry("adapter", Some(port)))).await;
        let Some(v1::plan_step::Route::Adapter(adapter)) = &steps[0].route else { panic!("an adapter") };
        assert_eq!((adapter.host.as_str(), adapter.port, adapter.clusters.len()), ("adapter", 10000, 2));
        assert_eq!(adapter.protocol(), v1::AdapterProtocol::ProcessOam);
        assert!(matches!(steps[1].route, Some(v1::plan_step::Route::Direct(_))));
    }
    let status =
        server.refused(with(registry("ad apter", Some(Kind::NumberValue(1.0)))), Code::FailedPrecondition).await;
    assert_eq!(reason_of(&status), Some(Reason::RegistrantAddressInvalid));
    let violations = status.get_details_precondition_failure().unwrap().violations;
    assert_eq!(violations.len(), 1);
    for part in ["istio", "mesh", "ad apter:1", "spaces"] {
        assert!(violations[0].description.contains(part), "{}", violations[0].description);
    }
    let dry = v1::PlanRequest { dry_run: true, ..with(registry("", Some(Kind::NumberValue(1.0)))) };
    let (header, _) = server.planned(dry).await;
    assert_eq!(header.warnings[0].code, "ADDRESS_UNUSABLE");
    let nobody = v1::Registry { registrants: vec![], ..registry("", None) };
    let status = server.refused(with(nobody), Code::InvalidArgument).await;
    assert_eq!(reason_of(&status), Some(Reason::RequestInvalid));
    assert_eq!(status.get_details_bad_request().unwrap().field_violations[0].field, "registry.models[0].registrant");
    server.stop().await;
}

fn structured(value: &serde_json::Value) -> Value {
    let kind = match value {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(value) => Kind::BoolValue(*value),
        serde_json::Value::Number(value) => Kind::NumberValue(value.as_f64().unwrap()),
        serde_json::Value::String(text) => Kind::StringValue(text.clone()),
        serde_json::Value::Array(list) => Kind::ListValue(ListValue { values: list.iter().map(structured).collect() }),
        serde_json::Value::Object(map) => {
            let fields: BTreeMap<_, _> = map.iter().map(|(key, value)| (key.clone(), structured(value))).collect();
            Kind::StructValue(Struct { fields })
        }
    };
    Value { kind: Some(kind) }
}

fn of_structure(text: &str) -> v1::PlanRequest {
    let Some(Kind::StructValue(structure)) = structured(&serde_json::from_str(text).unwrap()).kind else {
        panic!("a map")
    };
    let source = Some(v1::design::Source::Structured(structure));
    v1::PlanRequest { design: Some(v1::Design { source }), ..of_text("") }
}

#[tokio::test]
async fn a_structured_design_is_planned_like_text() {
    let mut server = Server::start(&[]).await;
    let replicas =
        configured(kind(component("web"), "apps/v1", "Deployment"), json!({"spec": {"replicas": 3, "x": 0.5}}));
    let (_, steps) = server.planned(of_structure(&design([replicas]))).await;
    let Some(v1::plan_step::Route::Direct(direct)) = &steps[0].route else { panic!("direct") };
    assert!(direct.manifest.ends_with(r#""spec":{"replicas":3,"x":0.5}}"#), "{}", direct.manifest);
    let status = server.refused(of_structure(&design([dependent("a", &["b"])])), Code::InvalidArgument).await;
    let violation = &status.get_details_bad_request().unwrap().field_violations[0];
    assert_eq!(violation.field, "components[0].metadata.dependsOn[0]");
    assert!(!violation.description.contains("line"));
    server.stop().await;
}

#[tokio::test]
async fn an_undeploy_and_its_charts_are_planned() {
    let mut server = Server::start(&[]).await;
    let mut with_chart = registry("", None);
    with_chart.models[0].chart = Some(v1::Chart { url: "https://charts/x-1.tgz".into(), ..Default::default() });
    let options = v1::RunOptions { remove_dependencies: true, ..Default::default() };
    let request = v1::PlanRequest {
        operation: v1::Operation::Undeploy.into(),
        registry: Some(with_chart),
        options: Some(options),
        ..of_text(design([of_model(dependent("api", &["db"]), "istio"), component("db")]))
    };
    let (header, steps) = server.planned(request.clone()).await;
    assert_eq!(header.operation(), v1::Operation::Undeploy);
    assert_eq!(steps.iter().map(|step| step.id.as_str()).collect::<Vec<_>>(), ["id-api", "id-db"]);
    assert_eq!(steps[1].depends_on, ["id-api"]);
    assert!(steps[0].chart.is_some());
    let kept = v1::PlanRequest { options: None, ..request };
    assert!(server.planned(kept).await.1[0].chart.is_none());
    server.stop().await;
}

#[tokio::test]
async fn a_design_that_is_too_large_is_refused_and_the_connection_survives() {
    let mut server = Server::start(&["--max-message-bytes", "100KiB"]).await;
    let text = design([configured(component("a"), json!({"data": {"x": "y".repeat(200_000)}}))]);
    let status = server.refused(of_text(text), Code::ResourceExhausted).await;
    assert_eq!(reason_of(&status), Some(Reason::MessageTooLarge));
    assert_eq!(server.planned(of_text(design([component("a")]))).await.1.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_registry_is_read_again_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("registry.yaml");
    let registrants = "registrants: [{name: mesh, host: adapter, port: '10000'}]\n";
    std::fs::write(&file, format!("{registrants}models: [{{name: istio, registrant: mesh}}]\n")).unwrap();
    let mut server = Server::start(&["--registry", file.to_str().unwrap()]).await;
    let istio = of_text(design([of_model(component("mesh"), "istio")]));
    let linkerd = of_text(design([of_model(component("mesh"), "linkerd")]));
    assert_eq!(server.planned(istio.clone()).await.1.len(), 1);
    server.refused(linkerd.clone(), Code::InvalidArgument).await;

    std::fs::write(&file, format!("{registrants}models: [{{name: linkerd, registrant: mesh}}]\n")).unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while server.plan(linkerd.clone()).await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "the new version never came");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.refused(istio, Code::InvalidArgument).await;
    server.stop().await;
}

#[tokio::test]
async fn a_plan_of_many_steps_and_one_of_two_mebibytes_pass() {
    let mut server = Server::start(&[]).await;
    let many: Vec<_> = (0..5_000)
        .map(|n| configured(component(&format!("c{n}")), json!({"data": {"x": "y".repeat(1_000)}})))
        .collect();
    assert_eq!(server.planned(of_text(design(many))).await.1.len(), 5_000);
    let large = configured(component("large"), json!({"data": {"x": "y".repeat(2 << 20)}}));
    assert_eq!(server.planned(of_text(design([large]))).await.1.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn the_planner_says_that_it_is_healthy() {
    let server = Server::start(&[]).await;
    let channel = tonic::transport::Channel::from_shared(server.address.clone()).unwrap().connect().await.unwrap();
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel);
    let request = tonic_health::pb::HealthCheckRequest { service: "switchyard.v1.PlannerService".into() };
    let answer = health.check(request).await.unwrap().into_inner();
    assert_eq!(answer.status(), tonic_health::pb::health_check_response::ServingStatus::Serving);
    server.stop().await;
}

/// Case 334.
#[tokio::test]
async fn a_compressed_request_is_planned() {
    let mut server = Server::start(&[]).await;
    let design = design([component("web")]);
    let plain = server.planned(of_text(design.clone())).await;
    server.client = server.client.send_compressed(CompressionEncoding::Gzip);
    assert_eq!(server.planned(of_text(design)).await.0.plan_id, plain.0.plan_id);
    server.stop().await;
}
