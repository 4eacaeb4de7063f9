//! Case 286: a webhook for everything whose backend is down.

use serde_json::json;
use switchyard_proto::v1::{Change, Operation, PlanRequest, Verdict};
use switchyard_tests::{
    client::{self, Client},
    embedded::Executor,
    sandbox::ControlPlane,
};
use tonic_types::StatusExt as _;

use super::policies::{deploy, eventually, post};
use crate::{design::Design, pair::Pair, world::LIMIT};

fn undeploy(design: &Design) -> PlanRequest {
    PlanRequest { operation: Operation::Undeploy.into(), ..deploy(design) }
}

/// A webhook that is asked about everything and that nobody answers for.
fn webhook(name: &str) -> String {
    format!(
        "{{webhooks: [{{name: {name}.example.com, sideEffects: None, admissionReviewVersions: [v1], timeoutSeconds: 2, \
         failurePolicy: Fail, clientConfig: {{url: 'https://127.0.0.1:1/'}}, rules: [{{apiGroups: ['*'], apiVersions: ['*'], \
         operations: [CREATE, UPDATE, DELETE], resources: ['*/*'], scope: '*'}}]}}]}}"
    )
}

/// Case 286: such a webhook comes with a design, as gatekeepers do. What it stops is told in the API server's words; its own design
/// can be taken down all the same.
#[tokio::test]
async fn webhook_for_everything_whose_backend_is_down_does_not_keep_its_design_from_being_taken_down() {
    let control_plane = ControlPlane::builder().start().await.unwrap();
    let cluster = control_plane.first();
    let executor = Executor::start(&[]).await.unwrap();
    let pair = Pair::shared().await;
    let client = Client::connect(&pair.planner.url(), executor.url()).await.unwrap();
    let access = || vec![client::kubeconfig("main", cluster.kubeconfig_admin().to_string())];
    let run = async |request: PlanRequest| {
        tokio::time::timeout(LIMIT, client.run(request, access())).await.expect("the run ends")
    };
    let namespace = cluster.namespace_for("gatekeeper").await.unwrap();
    let kind = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration");
    let design =
        Design::new().config_map("settings", &namespace, &[]).component("gate", kind, &["settings"], &webhook("gate"));
    let up = run(deploy(&design)).await.expect("the run starts");
    assert_eq!(up.verdict(), Verdict::Succeeded, "{:#?}", up.results);
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let probe = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}});
    let dry = format!("{maps}?dryRun=All");
    eventually("the webhook to be in force", async || post(cluster, &dry, &probe).await.is_err()).await;

    // Nothing is written without the lock, and what is in the way is named.
    let other = Design::new().config_map("other", &namespace, &[]);
    let refused = run(deploy(&other)).await.unwrap_err();
    let told: Vec<_> = refused.get_details_precondition_failure().unwrap().violations;
    assert!(told[0].description.contains("gate.example.com"), "{told:?}");
    // Its own design, again: never a conflict with the run that has ended.
    let again = run(deploy(&design)).await.unwrap_err();
    assert_ne!(again.code(), tonic::Code::Aborted, "{again:?}");

    let down = run(undeploy(&design)).await.expect("the run starts");
    assert_eq!(down.verdict(), Verdict::Succeeded, "{:#?}", down.results);
    assert!(down.targets().all(|target| target.change() == Change::Removed), "{:#?}", down.results);
    let warned = &down.started().unwrap().warnings;
    assert!(warned.iter().any(|warning| warning.contains("gate.example.com")), "{warned:?}");
}
