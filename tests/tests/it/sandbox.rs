//! The world that the other tests stand on.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Namespace},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use switchyard_tests::sandbox::{ControlPlane, Folder, Sandbox, is_alive};

/// Long enough for a machine that does something else meanwhile.
const SOON: Duration = Duration::from_secs(60);

fn config_map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !done().await {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

#[tokio::test]
async fn an_object_of_one_cluster_is_not_in_the_other() {
    let world = Sandbox::shared().await.unwrap();
    let namespace = world.east().namespace_for("an_object_of_one_cluster_is_not_in_the_other").await.unwrap();
    let east: Api<ConfigMap> = Api::namespaced(world.east().client().await.unwrap(), &namespace);
    let west: Api<ConfigMap> = Api::namespaced(world.west().client().await.unwrap(), &namespace);

    east.create(&PostParams::default(), &config_map("here")).await.unwrap();

    assert!(east.get_opt("here").await.unwrap().is_some());
    assert!(west.get_opt("here").await.unwrap().is_none());
}

#[tokio::test]
async fn a_token_is_refused_unless_known_and_permitted_only_what_was_granted() {
    let world = Sandbox::shared().await.unwrap();
    let get = async |kubeconfig| {
        let client = world.west().client_as(&kubeconfig).await.unwrap();
        Api::<ConfigMap>::namespaced(client, "default").get("kube-root-ca.crt").await.map_err(|error| code(&error))
    };

    assert_eq!(get(world.west().kubeconfig_wrong_token()).await, Err(401));
    assert_eq!(get(world.west().kubeconfig_with_token(Sandbox::OPERATOR_TOKEN)).await, Err(403));
    let viewer = world.west().kubeconfig_for("viewer", &[]).unwrap();
    world.west().grant("viewer", &["get"], "", &["configmaps"]).await.unwrap();
    eventually("the grant to count", async || get(viewer.clone()).await != Err(403)).await;
    assert_eq!(get(viewer).await, Err(404));
}

#[tokio::test]
async fn another_authority_is_not_trusted() {
    let world = Sandbox::shared().await.unwrap();
    let kubeconfig = world.east().kubeconfig_wrong_authority().unwrap();

    let error = world.east().client_as(&kubeconfig).await.unwrap().apiserver_version().await.unwrap_err();

    assert!(format!("{error:?}").contains("UnknownIssuer"), "{error:?}");
}

#[tokio::test]
async fn requests_are_in_the_audit_log_the_metrics_and_the_trace() {
    let world = Sandbox::shared().await.unwrap();
    let east = world.east();
    let namespace = east.namespace_for("requests_are_in_the_audit_log").await.unwrap();
    let client = east.client().await.unwrap();
    // A kind that no other test applies: the counters are those of the whole API server.
    let before = east.metrics().await.unwrap().requests("APPLY", "limitranges");
    let (trace_id, span_id) = ("5af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");

    let request = http::Request::patch(format!("/api/v1/namespaces/{namespace}/limitranges/seen?fieldManager=test"))
        .header("content-type", "application/apply-patch+yaml")
        .header("audit-id", "seen-in-the-log")
        .header("traceparent", format!("00-{trace_id}-{span_id}-01"))
        .body(br#"{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"seen"},"spec":{"limits":[]}}"#.to_vec())
        .unwrap();
    client.request_text(request).await.unwrap();

    let event = east.audit_has(SOON, |event| event.audit_id == "seen-in-the-log").await.unwrap();
    assert_eq!((event.verb.as_str(), event.code()), ("patch", 201));
    assert_eq!(event.user.username, "sandbox-admin");
    assert!(event.is_about("limitranges", &namespace));
    assert!(event.is_write());
    assert_eq!(east.metrics().await.unwrap().requests("APPLY", "limitranges"), before + 1);
    let trace = world
        .jaeger()
        .wait_for(trace_id, SOON, |trace| trace.services().contains("apiserver") && trace.of("etcd").count() > 0)
        .await
        .unwrap();
    let patch = trace.roots().next().unwrap();
    assert_eq!(patch.parent.as_deref(), Some(span_id));
    assert!(trace.of("etcd").all(|span| trace.is_below(span, patch)), "\n{}", trace.tree());
}

#[tokio::test]
async fn an_api_server_comes_back_with_its_objects() {
    let control_plane = ControlPlane::builder().start().await.unwrap();
    let cluster = control_plane.first();
    let namespace = cluster.namespace_for("an_api_server_comes_back").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await.unwrap(), &namespace);
    maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();

    cluster.stop_api_server().await;
    maps.get("kept").await.unwrap_err();
    cluster.start_api_server().await.unwrap();

    assert!(maps.get_opt("kept").await.unwrap().is_some());
}

#[tokio::test]
async fn a_cluster_with_controllers_runs_pods_and_removes_namespaces() {
    let control_plane = ControlPlane::builder().controller_manager().scheduler().kwok().start().await.unwrap();
    let cluster = control_plane.first();
    let namespace = cluster.namespace_for("a_cluster_with_controllers").await.unwrap();
    let client = cluster.client().await.unwrap();
    let labels = json!({"app": "pretended"});
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "pretended"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "nothing"}]},
            },
        },
    }))
    .unwrap();

    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let ready = async || deployments.get("pretended").await.unwrap().status.and_then(|status| status.ready_replicas);
    eventually("the pods to be ready", async || ready().await == Some(2)).await;

    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.delete(&namespace, &DeleteParams::default()).await.unwrap();
    eventually("the namespace to go", async || namespaces.get_opt(&namespace).await.unwrap().is_none()).await;
}

#[tokio::test]
async fn a_control_plane_that_cannot_start_says_why() {
    let error = ControlPlane::builder().flag("--no-such-flag").start().await.unwrap_err();

    let text = error.to_string();
    assert!(text.starts_with("kube-apiserver of main ended (exit code 1)"), "{text}");
    assert!(text.contains("unknown flag: --no-such-flag"), "{text}");
}

#[tokio::test]
async fn nothing_is_left_of_a_control_plane_that_was_dropped() {
    let control_plane = ControlPlane::builder().start().await.unwrap();
    let pids = control_plane.pids();
    let folder = control_plane.first().folder().path().to_owned();
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|&pid| is_alive(pid)));

    drop(control_plane);

    assert!(!pids.iter().any(|&pid| is_alive(pid)));
    assert!(!folder.exists());
}

#[tokio::test]
async fn nothing_is_left_of_a_process_that_was_killed() {
    let mut victim = Command::new(env!("CARGO_BIN_EXE_sandbox-up"))
        .arg("doomed")
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let (mut pids, mut kubeconfig) = (Vec::new(), PathBuf::new());
    for line in BufReader::new(victim.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.split_once('=') {
            Some(("pid", pid)) => pids.push(pid.parse().unwrap()),
            Some((_, path)) => kubeconfig = Path::new(path).to_owned(),
            None => break,
        }
    }
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|&pid| is_alive(pid)));
    assert!(kubeconfig.exists());

    victim.kill().unwrap();
    victim.wait().unwrap();

    eventually("its processes to end", async || !pids.iter().any(|&pid| is_alive(pid))).await;
    eventually("its folders to go", async || !kubeconfig.exists()).await;
}

#[tokio::test]
async fn without_go_and_programs_one_sentence_says_what_to_install() {
    let empty = Folder::new("empty").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sandbox-tools"))
        .args(["etcd", "kube-apiserver"])
        .env_remove("KUBEBUILDER_ASSETS")
        .env("PATH", empty.path())
        .env("CARGO_TARGET_DIR", empty.path())
        .output()
        .unwrap();

    let expected = "sandbox-tools: the sandbox needs etcd, kube-apiserver, found neither in KUBEBUILDER_ASSETS nor on \
                    PATH in a version that will do: install Go 1.26 or newer and it builds them, or set \
                    KUBEBUILDER_ASSETS to a folder that has them\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    assert!(output.stdout.is_empty());
    assert!(!output.status.success());
}
