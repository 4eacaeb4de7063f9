//! D25: no marked value reaches a log line, a status or a plan where it does not belong.
#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex};

use common::server::{Server, of_text};
use common::{component, configured, design, kind, of_model};
use serde_json::json;
use switchyard_proto::v1;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn marked_values_are_in_no_log_line_and_no_status() {
    const CANARY: &str = "canary-7f3a";
    let log = Log::default();
    let filter = "trace,h2=off,hyper=off,hyper_util=off,tower=off,mio=off";
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(log.clone()).finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let metadata =
        json!({"host_name": "adapter", "port": 10000, "kubeconfig": CANARY, "users": [{"client-key-data": CANARY}]});
    let registrant = json!({"kind": "meshery-istio", "name": "Istio", "status": "registered", "metadata": metadata});
    let model = json!({"schemaVersion": "models.meshery.io/v1beta1", "name": "istio", "registrant": registrant});
    std::fs::write(folder.path().join("model.json"), model.to_string()).unwrap();
    std::fs::write(folder.path().join("note.json"), json!({"password": CANARY}).to_string()).unwrap();
    let mut server = Server::start(&["--registry", folder.path().to_str().unwrap()]).await;

    // Planned: the values are in the manifest, where the user put them, and nowhere else.
    let secret = configured(kind(component("s"), "v1", "Secret"), json!({"stringData": {"password": CANARY}}));
    let mut mesh = of_model(component("mesh"), "istio");
    mesh["model"]["registrant"] = registrant.clone();
    let own = v1::Registry {
        registrants: vec![v1::Registrant { name: "k".into(), ..Default::default() }],
        models: vec![v1::Model { name: "kubernetes".into(), registrant: "k".into(), ..Default::default() }],
        ..Default::default()
    };
    let good = v1::PlanRequest { registry: Some(own.clone()), ..of_text(design([secret, mesh])) };
    let (_, steps) = server.planned(good).await;
    let Some(v1::plan_step::Route::Adapter(adapter)) = &steps.iter().find(|step| step.id == "id-mesh").unwrap().route
    else {
        panic!("an adapter")
    };
    assert_eq!((adapter.host.as_str(), adapter.port), ("adapter", 10000));
    assert!(!adapter.declaration.contains(CANARY), "{}", adapter.declaration);

    // Refused, in every way there is.
    let labelled =
        json!({"data": {"password": CANARY, "token": [CANARY]}, "metadata": {"labels": CANARY, "namespace": [CANARY]}});
    let wrong = configured(kind(component("s"), "v1", "Secret"), labelled);
    let texts = [
        design([wrong, configured(component("t"), json!(CANARY))]),
        format!("{{\"components\": [{{\"configuration\": {{\"p\": \"{CANARY}\" {CANARY}}}}}]}}"),
        format!("components:\n- configuration:\n    p: *{CANARY}\n    q: !{CANARY} x\n"),
        format!("components:\n- configuration:\n    p: \"{CANARY}\n"),
    ];
    for text in texts {
        let status =
            server.plan(v1::PlanRequest { registry: Some(own.clone()), ..of_text(text) }).await.expect_err("refused");
        assert!(!format!("{status:?}").contains(CANARY), "{status:?}");
        assert!(!String::from_utf8_lossy(status.details()).contains(CANARY));
    }
    let mut bad_host = own.clone();
    bad_host.registrants[0].host = format!("user:{CANARY}@host");
    bad_host.registrants[0].port = Some(prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(1.0)) });
    let status = server.plan(v1::PlanRequest { registry: Some(bad_host), ..of_text(design([component("a")])) }).await;
    assert!(!format!("{status:?}").contains(CANARY), "{status:?}");

    server.stop().await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("design planned") && log.contains("design refused"), "{log}");
    assert!(!log.contains(CANARY), "{log}");
}
