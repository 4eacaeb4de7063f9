//! What the executor may do by the roles in `k8s/` (case 327), and what it can do for somebody whose rights end with a namespace.

use serde_json::{Value, json};
use switchyard_proto::v1::{Operation, Outcome, PlanRequest, Verdict};
use switchyard_tests::{
    client,
    sandbox::{Cluster, ControlPlane, Credential, Kubeconfig},
};

use crate::{design::Design, manifests::apply, pair::Pair, world::LIMIT};

const ACCOUNT: &str = "switchyard-executor";

async fn post(cluster: &Cluster, path: &str, object: &Value, who: &Kubeconfig) -> Result<Value, kube::Error> {
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).unwrap();
    cluster.client_as(who).await.unwrap().request::<Value>(request).await
}

/// A token as the kubelet would hand it to the executor's pod.
async fn as_account(cluster: &Cluster, namespace: &str) -> Kubeconfig {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}/token");
    let answer = post(cluster, &path, &request, &cluster.kubeconfig_admin()).await.unwrap();
    cluster.kubeconfig(Credential::Token(answer["status"]["token"].as_str().unwrap().to_owned()))
}

/// Whether the API server says that it may.
async fn may(cluster: &Cluster, who: &Kubeconfig, attributes: &Value) -> bool {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    post(cluster, path, &review, who).await.unwrap()["status"]["allowed"] == true
}

async fn run(who: &Kubeconfig, request: PlanRequest) -> Result<client::Outcome, tonic::Status> {
    let client = Pair::shared().await.client().await;
    let access = vec![client::kubeconfig("main", who.to_string())];
    tokio::time::timeout(LIMIT, client.run(request, access)).await.expect("the run ends")
}

/// Verb, group, resource and subresource of what leads from a right to write objects to somebody else's rights.
const WAYS_OUT: [(&str, &str, &str, &str); 16] = [
    ("create", "", "serviceaccounts", "token"),
    ("create", "", "pods", "exec"),
    ("get", "", "pods", "exec"),
    ("create", "", "pods", "attach"),
    ("get", "", "pods", "attach"),
    ("create", "", "pods", "portforward"),
    ("get", "", "pods", "portforward"),
    ("patch", "", "pods", "ephemeralcontainers"),
    ("get", "", "pods", "proxy"),
    ("get", "", "services", "proxy"),
    ("get", "", "nodes", "proxy"),
    ("impersonate", "", "users", ""),
    ("impersonate", "", "serviceaccounts", ""),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles", ""),
    ("bind", "rbac.authorization.k8s.io", "clusterroles", ""),
    ("update", "certificates.k8s.io", "certificatesigningrequests", "approval"),
];

async fn assert_no_way_out(cluster: &Cluster, who: &Kubeconfig, namespace: &str) {
    for (verb, group, resource, subresource) in WAYS_OUT {
        let attributes = json!({
            "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace,
            "name": "some",
        });
        assert!(!may(cluster, who, &attributes).await, "it may {verb} {resource}/{subresource}");
    }
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}/token");
    let refused = post(cluster, &path, &request, who).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");
}

fn ordinary(namespace: &str) -> Design {
    let within = format!("metadata: {{namespace: {namespace}}}");
    let pods = "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: app, image: app}]}}";
    Design::new()
        .config_map("settings", namespace, &[])
        .component("secret", ("v1", "Secret"), &[], &format!("{{{within}, stringData: {{a: b}}}}"))
        .component("account", ("v1", "ServiceAccount"), &[], &format!("{{{within}}}"))
        .component(
            "web",
            ("apps/v1", "Deployment"),
            &["settings"],
            &format!("{{{within}, spec: {{selector: {{matchLabels: {{a: b}}}}, {pods}}}}}"),
        )
        .component("front", ("v1", "Service"), &["web"], &format!("{{{within}, spec: {{ports: [{{port: 80}}]}}}}"))
        .component(
            "role",
            ("rbac.authorization.k8s.io/v1", "Role"),
            &[],
            &format!(
                "{{{within}, rules: [{{apiGroups: [''], resources: [configmaps], verbs: [get, list]}}, \
                 {{apiGroups: [apps], resources: [deployments/status, deployments/scale], verbs: [get, update, patch]}}]}}"
            ),
        )
}

/// Case 327: the base gives what designs need, and no way to the rights of others.
#[tokio::test]
async fn rights_of_the_base_deploy_ordinary_things_and_give_no_token_shell_or_proxy() {
    let control_plane = ControlPlane::builder().start().await.unwrap();
    let cluster = control_plane.first();
    apply(cluster, "base").await;
    let who = as_account(cluster, "switchyard").await;
    assert_no_way_out(cluster, &who, "switchyard").await;

    let namespace = cluster.namespace_for("ordinary").await.unwrap();
    let up = client::deploy(ordinary(&namespace).text(), &["main"]);
    let down = PlanRequest { operation: Operation::Undeploy.into(), ..up.clone() };
    let outcome = run(&who, up).await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.results);
    let outcome = run(&who, down).await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.results);

    // What a design grants, the executor holds, or the API server refuses it.
    let grants = format!(
        "{{metadata: {{namespace: {namespace}}}, rules: [{{apiGroups: [''], resources: [pods/exec], verbs: [create]}}]}}"
    );
    let design = Design::new().component("too-much", ("rbac.authorization.k8s.io/v1", "Role"), &[], &grants);
    let outcome = run(&who, client::deploy(design.text(), &["main"])).await.unwrap();
    let failure = outcome.target("too-much", "main").unwrap().error.clone().unwrap();
    assert_eq!(failure.reason, "FORBIDDEN");
    assert!(failure.message.contains("pods/exec"), "{}", failure.message);
}

/// Case 327: the overlay for one namespace, with the Lease in that namespace too.
#[tokio::test]
async fn rights_of_the_overlay_for_one_namespace_end_with_it() {
    let control_plane = ControlPlane::builder().start().await.unwrap();
    let cluster = control_plane.first();
    apply(cluster, "overlays/namespaced").await;
    let who = as_account(cluster, "switchyard").await;
    assert_no_way_out(cluster, &who, "apps").await;
    let elsewhere = json!({"verb": "patch", "resource": "configmaps", "namespace": "default", "name": "some"});
    assert!(!may(cluster, &who, &elsewhere).await);
    let leases = json!({"verb": "patch", "group": "coordination.k8s.io", "resource": "leases", "namespace": "apps"});
    assert!(may(cluster, &who, &leases).await);

    deploys_into_its_namespace_alone(&who, "apps").await;
}

/// Somebody whose rights end with a namespace: no discovery is forbidden, but the Lease in `kube-system` and every list of the
/// whole cluster are.
#[tokio::test]
async fn user_of_one_namespace_deploys_into_it_and_nowhere_else() {
    let control_plane = ControlPlane::builder().start().await.unwrap();
    let cluster = control_plane.first();
    let namespace = cluster.namespace_for("tenant").await.unwrap();
    cluster.grant_in(&namespace, "tenant", &["*"], "*", &["*"]).await.unwrap();
    let who = cluster.kubeconfig_for("tenant", &[]).unwrap();
    deploys_into_its_namespace_alone(&who, &namespace).await;
}

async fn deploys_into_its_namespace_alone(who: &Kubeconfig, namespace: &str) {
    let design = ordinary(namespace).config_map("elsewhere", "default", &[]);
    let up = client::deploy(design.text(), &["main"]);
    let down = PlanRequest { operation: Operation::Undeploy.into(), ..up.clone() };
    let outcome = run(who, up.clone()).await.unwrap();
    for (name, came) in outcome.outcomes() {
        let wanted = if name == "elsewhere" { Outcome::Failed } else { Outcome::Succeeded };
        assert_eq!(came, wanted, "{name}: {:#?}", outcome.results);
    }
    let failure = outcome.target("elsewhere", "main").unwrap().error.clone().unwrap();
    assert_eq!(failure.reason, "FORBIDDEN");
    let again = run(who, up).await.unwrap();
    for result in again.results.iter().filter(|result| result.step_id != step_of(&again, "elsewhere")) {
        let name = &result.component.as_ref().unwrap().name;
        // Whoever may not ask the cluster for its revision is told from times alone, which within seconds say *configured*.
        let of =
            |outcome: &client::Outcome| outcome.target(name, "main").unwrap().object.clone().unwrap().resource_version;
        assert_eq!(of(&again), of(&outcome), "{name} was written again");
    }
    let gone = run(who, down).await.unwrap();
    for (name, came) in gone.outcomes() {
        // What may not be looked at is not called gone.
        let wanted = if name == "elsewhere" { Outcome::Failed } else { Outcome::Succeeded };
        assert_eq!(came, wanted, "{name}: {:#?}", gone.results);
    }
}

fn step_of(outcome: &client::Outcome, component: &str) -> String {
    outcome.result(component).unwrap().step_id.clone()
}
