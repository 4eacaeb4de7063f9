//! Case 313: whoever is asked is told who asks.

use std::{collections::BTreeSet, convert::Infallible, time::Duration};

use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use switchyard_proto::v1::{AdapterProtocol, Operation, PlanRequest, RunOptions, Verdict};
use switchyard_tests::{adapter, client, sandbox::audit};
use tokio::sync::mpsc;

use crate::{design::Design, pair::Pair, world::World};

/// Writes, looks, watches, discovery and the Lease: all that the run asks carries program and run.
#[tokio::test]
async fn every_request_to_an_api_server_names_the_program_and_the_run() {
    let world = World::shared().await;
    let user = format!("asker-{}", uuid::Uuid::new_v4());
    let namespace = world.cluster().namespace_for("user-agent").await.unwrap();
    let kubeconfig = world.cluster().kubeconfig_for(&user, &["system:masters"]).unwrap();
    let workload = format!(
        "{{metadata: {{namespace: {namespace}}}, spec: {{selector: {{matchLabels: {{a: b}}}}, template: \
         {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: app, image: app}}]}}}}}}}}"
    );
    let design = Design::new().component("web", ("apps/v1", "Deployment"), &[], &workload);
    let options = Some(RunOptions { wait_until_ready: true, ..RunOptions::default() });
    let request = PlanRequest { options, ..client::deploy(design.text(), &["main"]) };
    let access = vec![client::kubeconfig("main", kubeconfig.to_string())];
    let outcome = world.run_with(request.clone(), access.clone()).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);

    let down = PlanRequest { operation: Operation::Undeploy.into(), ..request };
    let removed = world.run_with(down, access).await;
    assert_eq!(removed.verdict(), Verdict::Succeeded, "{:#?}", removed.summary);

    let is_release = |event: &audit::Event| {
        event.user.username == user && event.verb == "delete" && event.is_about("leases", "kube-system")
    };
    world.cluster().audit_has(Duration::from_secs(20), is_release).await.unwrap();
    let asked: Vec<_> = world.cluster().audit().unwrap().into_iter().filter(|it| it.user.username == user).collect();
    let runs = [outcome, removed].map(|outcome| format!(" run/{}", outcome.summary.run_id));
    for event in &asked {
        assert!(event.user_agent.starts_with("switchyard-executor/"), "{event:?}");
        assert!(runs.iter().any(|run| event.user_agent.ends_with(run)), "{event:?}");
    }
    let verbs: BTreeSet<_> = asked.iter().map(|event| event.verb.as_str()).collect();
    for verb in ["get", "list", "watch", "patch", "delete"] {
        assert!(verbs.contains(verb), "{verbs:?}");
    }
}

/// Answers every call with UNIMPLEMENTED, and tells what its callers call themselves.
async fn listener() -> (std::net::SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (told, agents) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let told = told.clone();
            let answer = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let agent = request.headers().get(http::header::USER_AGENT);
                told.send(agent.map_or_else(String::new, |agent| agent.to_str().unwrap().to_owned())).ok();
                let answer = http::Response::builder().header("content-type", "application/grpc");
                let answer = answer.header("grpc-status", "12").body(Empty::<bytes::Bytes>::new()).unwrap();
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(connection);
        }
    });
    (address, agents)
}

#[tokio::test]
async fn every_call_to_an_adapter_names_the_program() {
    let pair = Pair::shared().await;
    let (address, mut agents) = listener().await;
    let design = Design::new().of_model("mesh", "mesh", ("mesh.example/v1", "Mesh"), &[], "{}");
    let registry = Some(adapter::registry(address, AdapterProtocol::Auto));
    let request = PlanRequest { registry, ..client::deploy(design.text(), &["east"]) };
    let access = vec![client::kubeconfig("east", pair.world.east().kubeconfig_admin().to_string())];
    let outcome = pair.client().await.run(request, access).await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Failed, "nobody can be an adapter that implements nothing");
    let agent = agents.recv().await.unwrap();
    assert!(agent.starts_with("switchyard-executor/"), "{agent}");
}
