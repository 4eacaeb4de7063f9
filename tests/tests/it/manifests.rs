//! The kustomize base and the example of an overlay: an API server takes every object of them strictly, the rights are enough, and
//! the registry reaches the planner. And what the images are made from goes with the rest of the repository.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap, rbac::v1::ClusterRole};
use kube::Api;
use switchyard_proto::v1::{Operation, PlanRequest, Verdict, plan_step::Route};
use switchyard_tests::{
    client::{self, Client},
    programs::Program,
    sandbox::{Cluster, ControlPlane, Folder, Tool, Toolbox},
};

use crate::{design::Design, pair::Pair};

/// The account that the base gives the executor, and a token that makes us be it.
const EXECUTOR: &str = "system:serviceaccount:switchyard:switchyard-executor";
const IN_CLUSTER: &str = "in-cluster";

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is a folder of the repository");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Applies a folder of `k8s/` as people do, with no mistake forgiven, and returns what kubectl said.
pub(crate) async fn apply(cluster: &Cluster, folder: &str) -> String {
    let access = Folder::new("manifests").unwrap();
    let kubeconfig = access.write("admin.yaml", &cluster.kubeconfig_admin().to_string()).unwrap();
    let toolbox = Toolbox::get(&[Tool::Kubectl]).await.unwrap();
    let apply = || {
        let mut kubectl = Command::new(toolbox.path(Tool::Kubectl).unwrap());
        kubectl.arg("--kubeconfig").arg(&kubeconfig).args(["apply", "--server-side", "--validate=strict", "-k"]);
        kubectl.arg(format!("{}/../k8s/{folder}", env!("CARGO_MANIFEST_DIR"))).output().unwrap()
    };
    // Twice: the namespace must be there before an API server takes what lies in it.
    for _ in 0..2 {
        apply();
    }
    let applied = apply();
    let text = said(&applied);
    assert!(applied.status.success(), "{text}");
    assert!(!text.contains("would violate PodSecurity"), "{text}");
    text
}

#[tokio::test]
async fn base_is_taken_strictly_and_its_rights_are_enough_to_deploy_try_and_undeploy() {
    let pair = Pair::shared().await;
    let control_plane = ControlPlane::builder().token_user(IN_CLUSTER, EXECUTOR, &[]).start().await.unwrap();
    let cluster = control_plane.first();
    let text = apply(cluster, "base").await;
    for wanted in
        ["deployment.apps/switchyard-planner", "deployment.apps/switchyard-executor", "service/switchyard-executor"]
    {
        assert!(text.contains(wanted), "{text}");
    }
    let roles: Api<ClusterRole> = Api::all(cluster.client().await.unwrap());
    for rule in roles.get("switchyard-executor").await.unwrap().rules.unwrap() {
        for forbidden in ["*", "escalate", "bind", "impersonate"] {
            assert!(!rule.verbs.iter().any(|verb| verb == forbidden), "{rule:?}");
        }
    }

    // The very rights that the base gives, through a deploy, a dry run and an undeploy.
    let access = || vec![client::kubeconfig("main", cluster.kubeconfig_with_token(IN_CLUSTER).to_string())];
    let design =
        Design::new().component("inside", ("v1", "Namespace"), &[], "{}").config_map("settings", "inside", &[]);
    let deploy = client::deploy(design.text(), &["main"]);
    let dry = PlanRequest { dry_run: true, ..deploy.clone() };
    let client = pair.client().await;
    assert_eq!(client.run(deploy.clone(), access()).await.unwrap().verdict(), Verdict::Succeeded);
    assert_eq!(client.run(dry, access()).await.unwrap().verdict(), Verdict::Succeeded);
    let only = Design::new().config_map("other", "default", &[]);
    let up = client::deploy(only.text(), &["main"]);
    assert_eq!(client.run(up.clone(), access()).await.unwrap().verdict(), Verdict::Succeeded);
    let down = PlanRequest { operation: Operation::Undeploy.into(), ..up };
    assert_eq!(client.run(down, access()).await.unwrap().verdict(), Verdict::Succeeded);
}

/// S19: what helm writes about a release takes more than what the executor itself writes.
#[tokio::test]
async fn rights_of_the_base_are_enough_for_helm_to_bring_a_release_to_its_end_and_grant_nothing_beyond() {
    let control_plane = ControlPlane::builder().token_user(IN_CLUSTER, EXECUTOR, &[]).start().await.unwrap();
    let cluster = control_plane.first();
    apply(cluster, "base").await;
    let toolbox = Toolbox::get(&[Tool::Helm]).await.unwrap();
    let folder = Folder::new("chart").unwrap();
    let kubeconfig = folder.write("kubeconfig", &cluster.kubeconfig_with_token(IN_CLUSTER).to_string()).unwrap();
    let helm = |arguments: &[&str]| {
        let mut helm = Command::new(toolbox.path(Tool::Helm).unwrap());
        for home in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            helm.env(home, folder.path());
        }
        helm.arg("--kubeconfig").arg(&kubeconfig).args(arguments).output().unwrap()
    };
    fs::create_dir(folder.path().join("templates")).unwrap();
    folder.write("Chart.yaml", "{apiVersion: v2, name: small, version: 0.1.0}").unwrap();
    let role = |verbs: &str| {
        let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: small}\n";
        let rules = format!("rules: [{{apiGroups: [''], resources: [pods], verbs: [{verbs}]}}]\n");
        folder.write("templates/role.yaml", &(role.to_owned() + &rules)).unwrap();
    };
    let chart = folder.path().to_str().unwrap();

    role("get, list");
    let installed = helm(&["install", "small", chart]);
    assert!(installed.status.success(), "{}", said(&installed));
    let listed = said(&helm(&["list", "--all-namespaces", "--output", "json"]));
    assert!(listed.contains(r#""status":"deployed""#), "{listed}");
    role("get, deletecollection");
    let upgraded = helm(&["upgrade", "small", chart]);
    let told = said(&upgraded);
    assert!(!upgraded.status.success() && told.contains("permissions not currently held"), "{told}");
    let gone = helm(&["uninstall", "small"]);
    assert!(gone.status.success(), "{}", said(&gone));
}

/// S1, S4: who stands behind a model is the installation's business, and the ConfigMap is where it says so.
#[tokio::test]
async fn example_overlay_is_taken_strictly_and_its_registry_routes_for_the_planner() {
    let control_plane = ControlPlane::builder().start().await.unwrap();
    let cluster = control_plane.first();
    apply(cluster, "overlays/example").await;

    let client = cluster.client().await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "switchyard");
    let pods = deployments.get("switchyard-planner").await.unwrap().spec.template.spec.unwrap();
    let container = &pods.containers[0];
    assert_eq!(container.image.as_deref(), Some("registry.example/switchyard-planner:0.1.0"));
    let env = &container.env.as_ref().unwrap()[0];
    let mount = &container.volume_mounts.as_ref().unwrap()[0];
    assert_eq!((env.name.as_str(), env.value.as_deref()), ("SWITCHYARD_REGISTRY", Some(mount.mount_path.as_str())));
    let volumes = pods.volumes.unwrap();
    let volume = volumes.iter().find(|volume| volume.name == mount.name).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, "switchyard");
    let map = maps.get(&volume.config_map.as_ref().unwrap().name).await.unwrap();

    let folder = Folder::new("registry").unwrap();
    for (name, text) in map.data.unwrap() {
        folder.write(&name, &text).unwrap();
    }
    let planner = Program::Planner.prepare().env(&env.name, folder.path()).start().await.unwrap();
    let client = Client::connect(&planner.url(), &Pair::shared().await.executor.url()).await.unwrap();
    let design = Design::new()
        .of_model("istio", "mesh", ("mesh.example/v1", "Mesh"), &[], "{spec: {profile: demo}}")
        .config_map("settings", "default", &[]);
    let plan = client.plan(client::deploy(design.text(), &["main"])).await.unwrap();
    let Some(Route::Adapter(adapter)) = &plan.step("mesh").unwrap().route else { panic!("{plan:#?}") };
    assert_eq!((adapter.host.as_str(), adapter.port), ("meshery-istio.meshery.svc", 10_000));
    assert!(matches!(plan.step("settings").unwrap().route, Some(Route::Direct(_))));
}

#[test]
fn images_are_built_with_the_pinned_toolchain_and_named_as_the_base_names_them() {
    let dockerfile = file("k8s/Dockerfile");
    let toolchain = file("rust-toolchain.toml");
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap().trim_matches('"');
    assert!(dockerfile.contains(&format!("FROM rust:{channel}-")), "{channel} is what rust-toolchain.toml says");
    for name in ["planner", "executor"] {
        assert!(
            dockerfile.contains(&format!(" AS {name}\n")) && dockerfile.contains(&format!("-t switchyard-{name}:dev"))
        );
        assert!(file(&format!("k8s/base/{name}.yaml")).contains(&format!("image: switchyard-{name}:dev\n")));
    }
    // Everything that is copied in from here is let in.
    let ignored = file(".dockerignore");
    for member in
        ["proto", "service", "planner", "executor", "tests", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml"]
    {
        assert!(ignored.lines().any(|line| line == format!("!{member}")), "{member}");
    }
}
