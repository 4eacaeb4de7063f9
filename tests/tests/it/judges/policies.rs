//! What an installation puts before its clusters: policies that deny (case 289), and accounts and priorities that come a moment later
//! (cases 281, 288).

use std::time::Duration;

use serde_json::{Value, json};
use switchyard_proto::v1::{Failure, Outcome, PlanRequest, RunOptions, Verdict};
use switchyard_tests::{
    client,
    sandbox::{Cluster, ControlPlane, audit},
};
use tokio::time::Instant;

use crate::{design::Design, pair::Pair, world::LIMIT};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

pub(super) async fn post(cluster: &Cluster, path: &str, object: &Value) -> Result<Value, kube::Error> {
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).unwrap();
    cluster.client().await.unwrap().request::<Value>(request).await
}

pub(super) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds().await {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn try_run(cluster: &Cluster, request: PlanRequest) -> Result<client::Outcome, tonic::Status> {
    let client = Pair::shared().await.client().await;
    let access = vec![client::kubeconfig("main", cluster.kubeconfig_admin().to_string())];
    tokio::time::timeout(LIMIT, client.run(request, access)).await.expect("the run ends")
}

async fn run(cluster: &Cluster, request: PlanRequest) -> client::Outcome {
    try_run(cluster, request).await.expect("the run starts")
}

pub(super) fn deploy(design: &Design) -> PlanRequest {
    client::deploy(design.text(), &["main"])
}

#[track_caller]
fn failure(outcome: &client::Outcome, component: &str) -> Failure {
    let target = outcome.target(component, "main").unwrap_or_else(|| panic!("{:#?}", outcome.results));
    target.error.clone().unwrap_or_else(|| panic!("{target:#?}"))
}

/// A policy that lets no ConfigMap of a namespace have this key.
async fn deny_key(cluster: &Cluster, namespace: &str, key: &str) {
    let name = format!("no-{namespace}");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]},
            ]},
            "validations": [{"expression": format!("!('{key}' in object.data)"), "message": "keep it simple"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": format!("{name}-binding")},
        "spec": {
            "policyName": name, "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
        },
    });
    post(cluster, &format!("{ADMISSION}/validatingadmissionpolicies"), &policy).await.unwrap();
    post(cluster, &format!("{ADMISSION}/validatingadmissionpolicybindings"), &binding).await.unwrap();
    let probe = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}, "data": {key: "x"}});
    let path = format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All");
    eventually("the policy to be in force", async || post(cluster, &path, &probe).await.is_err()).await;
}

/// Case 289: whose word it was, and that it is final.
#[tokio::test]
async fn policy_that_denies_is_named_with_its_binding_and_holds_back_dependents_alone() {
    let pair = Pair::shared().await;
    let cluster = pair.world.east();
    let namespace = cluster.namespace_for("denied").await.unwrap();
    deny_key(cluster, &namespace, "colour").await;
    let plain = format!("{{metadata: {{namespace: {namespace}}}, data: {{size: big}}}}");
    let design = Design::new()
        .config_map("denied", &namespace, &[])
        .component("behind", ("v1", "ConfigMap"), &["denied"], &plain)
        .component("beside", ("v1", "ConfigMap"), &[], &plain);
    for dry_run in [true, false] {
        let outcome = run(cluster, PlanRequest { dry_run, ..deploy(&design) }).await;
        let failure = failure(&outcome, "denied");
        assert_eq!(failure.reason, "POLICY_DENIED", "{}", failure.message);
        assert!(!failure.retryable);
        for text in [&format!("'no-{namespace}'"), &format!("'no-{namespace}-binding'"), "keep it simple"] {
            assert!(failure.message.contains(text), "`{text}` is missing in: {}", failure.message);
        }
        assert_eq!(outcome.outcomes()["beside"], Outcome::Succeeded);
        assert_eq!(outcome.target("denied", "main").unwrap().attempts, 1);
    }
    let outcome = run(cluster, deploy(&design)).await;
    assert_eq!(outcome.outcomes()["behind"], Outcome::Withheld);
}

/// A policy that gives the key `colour` of every ConfigMap of a namespace another value.
async fn squash_colour(cluster: &Cluster, namespace: &str) {
    let name = format!("squash-{namespace}");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]},
            ]},
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {
                "expression": "[JSONPatch{op: 'add', path: '/data/colour', value: 'grey'}]",
            }}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": format!("{name}-binding")},
        "spec": {
            "policyName": name,
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
        },
    });
    post(cluster, &format!("{ADMISSION}/mutatingadmissionpolicies"), &policy).await.unwrap();
    post(cluster, &format!("{ADMISSION}/mutatingadmissionpolicybindings"), &binding).await.unwrap();
    let probe = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}, "data": {"a": "x"}});
    let path = format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All");
    let is_in_force = async || post(cluster, &path, &probe).await.is_ok_and(|made| made["data"]["colour"] == "grey");
    eventually("the policy to be in force", is_in_force).await;
}

/// Case 219: what admission makes of an object is said, not passed over.
#[tokio::test]
async fn fields_that_a_policy_rewrites_are_reported() {
    let pair = Pair::shared().await;
    let cluster = pair.world.east();
    let namespace = cluster.namespace_for("rewritten").await.unwrap();
    squash_colour(cluster, &namespace).await;
    let plain = format!("{{metadata: {{namespace: {namespace}}}, data: {{size: big}}}}");
    let design =
        Design::new().config_map("painted", &namespace, &[]).component("plain", ("v1", "ConfigMap"), &[], &plain);
    let reports = |report_altered| {
        let options = Some(RunOptions { report_altered, ..RunOptions::default() });
        PlanRequest { options, ..deploy(&design) }
    };
    for request in [PlanRequest { dry_run: true, ..deploy(&design) }, reports(true)] {
        let outcome = run(cluster, request).await;
        assert_eq!(outcome.verdict(), Verdict::Succeeded);
        let painted = outcome.target("painted", "main").unwrap();
        let told: Vec<_> = painted.altered.iter().map(|it| (&*it.path, &*it.before, &*it.after)).collect();
        assert_eq!(told, [("data.colour", "\"blue\"", "\"grey\"")]);
        assert!(painted.warnings.iter().any(|it| it.contains("data.colour")), "{:?}", painted.warnings);
        // What is only added contradicts nobody.
        assert!(outcome.target("plain", "main").unwrap().altered.is_empty());
    }
    assert!(run(cluster, reports(false)).await.targets().all(|target| target.altered.is_empty()));
}

/// A pod that uses an account.
fn pod(namespace: &str, account: &str, more: &str) -> String {
    format!(
        "{{metadata: {{namespace: {namespace}}}, spec: {{serviceAccountName: {account}, containers: [{{name: app, image: app}}]{more}}}}}"
    )
}

/// Case 288: in a new namespace the account `default` comes a moment after the first pod.
#[tokio::test]
async fn pod_waits_for_the_account_that_a_controller_is_about_to_make() {
    let control_plane = ControlPlane::builder().service_accounts().audit().start().await.unwrap();
    let cluster = control_plane.first();
    let namespace = cluster.namespace_for("account").await.unwrap();
    let design = Design::new().component("pod", ("v1", "Pod"), &[], &pod(&namespace, "default", ""));
    let comes_late = async {
        // What a controller manager does, when it comes to it.
        let refused = |event: &audit::Event| event.is_about("pods", &namespace) && event.code() == 403;
        cluster.audit_has(LIMIT, refused).await.unwrap();
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        post(cluster, &format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(run(cluster, deploy(&design)), comes_late);
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.results);
    assert!(outcome.target("pod", "main").unwrap().attempts > 1);

    // One that never comes is the reason in the end.
    let never = Design::new().component("lost", ("v1", "Pod"), &[], &pod(&namespace, "nobody", ""));
    let outcome = run(cluster, deploy(&never)).await;
    let failure = failure(&outcome, "lost");
    assert_eq!(failure.reason, "NOT_FOUND", "{}", failure.message);
    assert!(failure.message.contains(r#"serviceaccount "nobody" not found"#), "{}", failure.message);
}

/// Case 281: what a pod names comes with the design, undeclared; whichever is written first.
#[tokio::test]
async fn pod_waits_for_the_account_and_the_priority_that_its_design_brings() {
    let control_plane = ControlPlane::builder().service_accounts().start().await.unwrap();
    let cluster = control_plane.first();
    let namespace = cluster.namespace_for("beside").await.unwrap();
    let design = Design::new()
        .component("by-account", ("v1", "Pod"), &[], &pod(&namespace, "mine", ""))
        .component("by-priority", ("v1", "Pod"), &[], &pod(&namespace, "mine", ", priorityClassName: high"))
        .config_map("first", &namespace, &[])
        .config_map("second", &namespace, &["first"])
        .component("mine", ("v1", "ServiceAccount"), &["second"], &format!("{{metadata: {{namespace: {namespace}}}}}"))
        .component("high", ("scheduling.k8s.io/v1", "PriorityClass"), &["second"], "{value: 1000}");
    let dry = run(cluster, PlanRequest { dry_run: true, ..deploy(&design) }).await;
    for name in ["by-account", "by-priority"] {
        assert_eq!(dry.outcomes()[name], Outcome::Indeterminate, "{:#?}", dry.result(name));
        let message = failure(&dry, name).message;
        assert!(message.contains("is created by component"), "{message}");
    }
    let outcome = run(cluster, deploy(&design)).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.results);
}
