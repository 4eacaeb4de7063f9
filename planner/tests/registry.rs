//! Registries from files: both shapes, folders, and what makes one broken.
#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::fs;
use std::path::Path;

use serde_json::json;
use switchyard_planner::registry::file::{self, Error};
use switchyard_planner::registry::watch::Watch;
use switchyard_planner::registry::{Found, Layers, Registry};

fn written(files: &[(&str, String)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn read(text: impl ToString) -> Result<Registry, Error> {
    let folder = written(&[("registry.json", text.to_string())]);
    file::read(&folder.path().join("registry.json")).map(|read| read.registry)
}

fn find<'r>(registry: &'r Registry, name: &str, version: &str) -> Found<'r> {
    Layers { request: None, own: registry }.find(name, version)
}

/// Name, kind and address of the registrant behind a model.
fn behind(registry: &Registry, name: &str) -> Option<(String, String, String)> {
    let registrant = find(registry, name, "").registrant?;
    Some((registrant.name.clone(), registrant.kind.clone(), registrant.address.to_string()))
}

fn of(name: &str, kind: &str, address: &str) -> Option<(String, String, String)> {
    Some((name.into(), kind.into(), address.into()))
}

#[test]
fn the_json_form_is_read_in_both_spellings() {
    let yaml = "registrants:\n- {name: mesh, kind: meshery-istio, host: adapter, port: 10000, protocol: ADAPTER_PROTOCOL_PROCESS_OAM}\n\
                - name: hub\nmodels:\n- {name: istio, version: 1.20, registrant: mesh, chart: {url: 'https://x/y.tgz'}}\n\
                - {name: shapes, isAnnotation: true}\n- {name: icons, is_annotation: true, registrant: hub}\ndefaultRegistrant: hub\n";
    let registry = read(yaml).unwrap();
    assert_eq!(behind(&registry, "istio"), of("mesh", "meshery-istio", "adapter:10000"));
    assert_eq!(behind(&registry, "anything"), of("hub", "", "none"));
    assert_eq!(find(&registry, "istio", "1.20").model.unwrap().chart.as_ref().unwrap().url, "https://x/y.tgz");
    assert!(find(&registry, "shapes", "").model.unwrap().is_annotation);
    assert!(find(&registry, "icons", "").model.unwrap().is_annotation);
    let snake = read(json!({"registrants": [{"name": "hub"}], "default_registrant": "hub"})).unwrap();
    assert_eq!(behind(&snake, "x"), of("hub", "", "none"));
}

#[test]
fn slips_of_the_finger_are_refused_by_name() {
    let message = |text: serde_json::Value| read(text).expect_err("refused").to_string();
    for (text, parts) in [
        (json!({"registrants": [{"name": "a", "hots": "x"}]}), vec!["registry.json", "registrants[0].hots"]),
        (json!({"registrants": [], "modles": []}), vec!["modles"]),
        (json!({"registrants": [{"name": 7}]}), vec!["registrants[0].name", "a number"]),
        (json!({"models": [{"name": "a", "registrant": "b"}]}), vec!["models[0].registrant", "\"b\""]),
        (json!({"registrants": [{"name": "a", "protocol": "SOAP"}]}), vec!["registrants[0].protocol"]),
        (
            json!({"registrants": [{"name": "a"}], "models": [{"name": "m", "registrant": "a", "chart": {"url": "file:///x"}}]}),
            vec!["chart.url"],
        ),
        (json!({"hello": "world"}), vec!["registry.json", "holds no registry"]),
        // Case 298: a key that Meshery's entries have too makes none of ours Meshery's.
        (json!({"registrants": [{"name": "a", "metadata": {}}]}), vec!["registrants[0].metadata", "no such field"]),
        (json!({"models": [{"name": "a", "status": "enabled"}]}), vec!["models[0].status", "no such field"]),
        (json!({"models": [{"id": "7", "status": "enabled"}]}), vec!["registry.json", "holds no registry"]),
        (json!({"page": 0, "registrants": [{"id": "7", "rank": 1}]}), vec!["registry.json", "holds no registry"]),
        (json!({"models": [{"name": "", "registrant": {"kind": "mesh"}}]}), vec!["registry.json", "none of them"]),
    ] {
        let message = message(text);
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
    assert!(read("{\"registrants\": [").expect_err("refused").to_string().contains("line 1, column 18"));
    assert!(read("registrants: []\nregistrants: []\n").expect_err("refused").to_string().contains("second time"));
}

#[test]
fn a_model_carries_its_registrant() {
    let model = |registrant: serde_json::Value| {
        json!({"schemaVersion": "models.meshery.io/v1beta1", "name": "istio", "model": {"version": "1.20"}, "status": "enabled",
               "metadata": {"source_uri": "https://charts/istio-1.20.tgz", "isAnnotation": false}, "registrant": registrant})
    };
    let registry = read(model(json!({"kind": "artifacthub", "name": "Artifact Hub", "metadata": {}}))).unwrap();
    assert_eq!(behind(&registry, "istio"), of("Artifact Hub", "artifacthub", "none"));
    assert_eq!(
        find(&registry, "istio", "1.20").model.unwrap().chart.as_ref().unwrap().url,
        "https://charts/istio-1.20.tgz"
    );
    let github = read(model(json!({"kind": "github", "name": ""}))).unwrap();
    assert_eq!(behind(&github, "istio"), of("github", "github", "none"));
    assert_eq!(find(&github, "istio", "").model.unwrap().chart, None);
    assert_eq!(behind(&read(model(json!({"kind": "", "name": ""}))).unwrap(), "istio"), None);
    for (metadata, address) in [
        (json!({"host_name": "a", "port": 1}), "a:1"),
        (json!({"hostname": "a", "port": 1.0}), "a:1"),
        (json!({"host": "a", "Port": "1"}), "a:1"),
        (json!({"Hostname": "a", "port": null}), "none"),
        (json!({"host_name": "a"}), "none"),
    ] {
        let registry = read(model(json!({"kind": "meshery-istio", "name": "Istio", "metadata": metadata}))).unwrap();
        assert_eq!(behind(&registry, "istio"), of("Istio", "meshery-istio", address));
    }
}

#[test]
fn lists_registrations_and_references_are_read() {
    let connection = json!({"schemaVersion": "connections.meshery.io/v1beta3", "id": "5b0c0000-0000-4000-8000-000000000001",
        "kind": "meshery-istio", "name": "Istio", "status": "registered", "metadata": {"hostname": "adapter", "port": 10000}});
    let model =
        json!({"name": "istio", "connection_id": "5b0c0000-0000-4000-8000-000000000001", "model": {"version": "1"}});
    let component = |model: serde_json::Value| json!({"component": {"kind": "X", "version": "v1"}, "model": model});
    let dapr = json!({"name": "dapr", "registrant": {"kind": "github"}});
    let page = json!({"page": 0, "total_count": 1, "components": [component(dapr)]});
    let entity = json!({"kind": "KumaMesh", "apiVersion": "core.meshmodel.dev/v1alpha1", "model": {"name": "kuma", "version": "2"}});
    let entity = base64(&entity.to_string());
    let folder = written(&[
        ("a/connection.json", connection.to_string()),
        ("a/model.json", json!([model]).to_string()),
        ("page.yaml", page.to_string()),
        ("kuma.json", json!({"host": {"Hostname": "kuma", "Port": 10007, "Metadata": "x"}, "entityType": "component", "entity": entity}).to_string()),
        ("..data/hidden.json", "{".to_owned()),
        ("readme.txt", "no registry".to_owned()),
        ("other.json", json!({"primaryColor": "#fff"}).to_string()),
        ("form.yaml", "registrants: [{name: direct}]\nmodels: [{name: kubernetes, registrant: direct}]\n".to_owned()),
    ]);
    let read = file::read(folder.path()).unwrap();
    assert_eq!(read.skipped.len(), 1);
    let registry = read.registry;
    assert_eq!(behind(&registry, "istio"), of("Istio", "meshery-istio", "adapter:10000"));
    assert_eq!(behind(&registry, "dapr"), of("github", "github", "none"));
    assert_eq!(behind(&registry, "kuma"), of("kuma", "kuma", "kuma:10007"));
    assert_eq!(behind(&registry, "kubernetes"), of("direct", "", "none"));
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[test]
fn of_two_registrations_the_newer_counts_and_a_tie_is_told() {
    let model = |host: &str, time: &str| {
        json!({"name": "istio", "model": {"version": "1"},
               "registrant": {"kind": "m", "name": host, "updated_at": time, "metadata": {"host_name": host, "port": 1}}})
    };
    let newer = json!([
        model("old", "2026-01-01T00:00:00Z"),
        model("new", "2026-02-01T00:00:00Z"),
        model("older", "2025-01-01T00:00:00Z")
    ]);
    assert_eq!(behind(&read(newer).unwrap(), "istio").unwrap().0, "new");
    let tie = read(json!([model("a", ""), model("b", "")])).expect_err("refused").to_string();
    assert!(tie.contains("a (a:1)") && tie.contains("b (b:1)"), "{tie}");
}

#[test]
fn a_registry_that_cannot_be_opened_names_the_path() {
    let error = file::read(Path::new("/nowhere/registry.yaml")).expect_err("no file");
    assert!(error.to_string().contains("/nowhere/registry.yaml"));
}

#[test]
fn a_watched_registry_follows_its_file() {
    let text = |name: &str| format!("registrants: [{{name: r}}]\nmodels: [{{name: {name}, registrant: r}}]\n");
    let folder = written(&[("r.yaml", text("one"))]);
    let file = folder.path().join("r.yaml");
    let mut watch = Watch::start(folder.path().to_owned()).unwrap();
    let shared = watch.shared();
    let knows = |name: &str| find(&shared.now(), name, "").registrant.is_some();
    assert!(knows("one"));
    fs::write(&file, "registrants: [").unwrap();
    watch.look();
    assert!(knows("one"), "a broken version does not replace a good one");
    fs::write(&file, text("two")).unwrap();
    watch.look();
    assert!(knows("two") && !knows("one"));
    fs::write(folder.path().join("s.yaml"), "models: [{name: three, registrant: r}]\n").unwrap();
    watch.look();
    assert!(knows("two") && knows("three"));
    fs::remove_dir_all(folder.path()).unwrap();
    watch.look();
    assert!(knows("two"), "a file that is gone leaves the last version");
}

#[test]
#[ignore = "needs ../shared/corpus, which is no part of the repository"]
fn the_samples_of_the_corpus_are_read() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus/registry");
    // The samples show shapes. The same model comes from several registrants among them, none of them with an adapter, so
    // whoever is first counts.
    let registry = file::read(&corpus).unwrap().registry;
    assert_eq!(
        behind(&registry, "kubernetes").map(|(.., address)| address),
        None,
        "versions differ and registrants too"
    );
    for (name, version) in [("kubernetes", "1.41.0"), ("kube-prometheus-stack", "56.12.0"), ("dapr", "1.14.4")] {
        let found = find(&registry, name, version);
        assert_eq!(found.registrant.unwrap().address.to_string(), "none", "{name}");
    }
    let debug = format!("{registry:?}");
    assert!(!debug.contains("192.0.2.10") && !debug.contains("client-key-data") && !debug.contains("UExBQ0VIT0xERVI"));
    for folder in ["meshery-server", "models-from-designs", "adapters", "meshkit-generated"] {
        let read = file::read(&corpus.join(folder)).unwrap();
        assert!(read.skipped.len() <= 1, "{folder}: {:?}", read.skipped);
    }
}
