//! The kustomize base: it builds, the API server takes every object of it strictly, and its rights are enough.

use std::process::{Command, Output};

use k8s_openapi::api::rbac::v1::ClusterRole;
use switchyard_proto::v1::{Operation, PlanRequest, Verdict};
use switchyard_tests::{
    client,
    sandbox::{ControlPlane, Folder, Tool, Toolbox},
};

use crate::{design::Design, pair::Pair};

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test]
async fn base_is_taken_strictly_and_its_rights_are_enough_to_deploy_try_and_undeploy() {
    let pair = Pair::shared().await;
    let control_plane = ControlPlane::builder()
        .token_user("in-cluster", "system:serviceaccount:switchyard:switchyard-executor", &[])
        .start()
        .await
        .unwrap();
    let cluster = control_plane.first();
    let folder = Folder::new("manifests").unwrap();
    let kubeconfig = folder.write("admin.yaml", &cluster.kubeconfig_admin().to_string()).unwrap();
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/../k8s/base");
    let toolbox = Toolbox::get(&[Tool::Kubectl]).await.unwrap();
    let kubectl = |arguments: &[&str]| {
        Command::new(toolbox.path(Tool::Kubectl).unwrap())
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(arguments)
            .output()
            .unwrap()
    };
    // Twice: the namespace must be there before an API server takes what lies in it.
    for _ in 0..2 {
        kubectl(&["apply", "--server-side", "--validate=strict", "-k", base]);
    }
    let applied = kubectl(&["apply", "--server-side", "--validate=strict", "-k", base]);
    assert!(applied.status.success(), "{}", said(&applied));
    let text = said(&applied);
    for wanted in
        ["deployment.apps/switchyard-planner", "deployment.apps/switchyard-executor", "service/switchyard-executor"]
    {
        assert!(text.contains(wanted), "{text}");
    }
    assert!(!text.contains("would violate PodSecurity"), "{text}");
    let roles: kube::Api<ClusterRole> = kube::Api::all(cluster.client().await.unwrap());
    let verbs = roles.get("switchyard-executor").await.unwrap().rules.unwrap()[0].verbs.clone();
    for forbidden in ["*", "escalate", "bind", "impersonate"] {
        assert!(!verbs.iter().any(|verb| verb == forbidden));
    }

    // The very rights that the base gives, through a deploy, a dry run and an undeploy.
    let access = || vec![client::kubeconfig("main", cluster.kubeconfig_with_token("in-cluster").to_string())];
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
