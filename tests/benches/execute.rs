//! How fast plans are carried out, beside a bare loop of the same PATCHes by the best client known: interleaved in one run, on one
//! control plane, as ratios, because the machine's own speed moves by more than what is to be seen.
//!
//! `cargo bench -p switchyard-tests --bench execute [-- OBJECTS [ROUNDS]]`
//!
//! Fails when the API server counted other than one PATCH a component; no time is asserted.

use std::{fmt::Write as _, time::Instant};

use anyhow::{Context, ensure};
use futures::{StreamExt, stream};
use http::{Method, Request, header};
use http_body_util::BodyExt;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Config,
    client::{Body, ConfigExt},
    config::{KubeConfigOptions, Kubeconfig},
};
use switchyard_proto::{
    digest,
    v1::{
        self, ClusterAccess, DirectRoute, ExecuteRequest, PlanHeader, PlanStep, PlanTrailer, cluster_access::Source,
        execute_request::Part, execute_response::Event, executor_service_client::ExecutorServiceClient,
        plan_step::Route,
    },
};
use switchyard_tests::{
    programs::Program,
    sandbox::{Cluster, ControlPlane},
};
use tower::{BoxError, ServiceBuilder};

/// Writes in flight of the bare loop: where an API server is at its best.
const IN_FLIGHT: usize = 64;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let objects = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let rounds = arguments.next().map_or(Ok(5), |text| text.parse())?;
    // One thread, as the floor has: a second one gains nothing beside an API server on two cores.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(compare(objects, rounds))
}

#[derive(Clone, Copy)]
enum Who {
    Floor,
    Switchyard,
}

async fn compare(objects: usize, rounds: usize) -> anyhow::Result<()> {
    eprintln!("starting a control plane and an executor ...");
    let control_plane = ControlPlane::builder().start().await?;
    let cluster = control_plane.first();
    let executor = Program::Executor.prepare().start().await?;
    let bare = bare_client(cluster).await?;
    let admin = cluster.client().await?;
    let mut rates: [[Vec<f64>; 2]; 2] = Default::default();
    for round in 0..rounds {
        // The order alternates, so that neither always meets the colder server.
        let order = if round % 2 == 0 { [Who::Floor, Who::Switchyard] } else { [Who::Switchyard, Who::Floor] };
        for who in order {
            let namespace = format!("bench-{round}-{}", who as usize);
            create_namespace(&admin, &namespace).await?;
            for again in [false, true] {
                let before = cluster.metrics().await?.requests("APPLY", "configmaps");
                let took = match who {
                    Who::Floor => floor(&bare, &namespace, objects).await?,
                    Who::Switchyard => switchyard(&executor.url(), cluster, &namespace, objects, again).await?,
                };
                let patches = cluster.metrics().await?.requests("APPLY", "configmaps") - before;
                ensure!(patches == objects as u64, "{patches} PATCHes for {objects} components");
                rates[who as usize][usize::from(again)].push(objects as f64 / took);
            }
        }
        eprintln!("round {} of {rounds} done", round + 1);
    }
    println!("{}", table(objects, &rates));
    executor.stop().await;
    Ok(())
}

fn table(objects: usize, rates: &[[Vec<f64>; 2]; 2]) -> String {
    let mut out = format!("{objects} ConfigMaps of 1 KiB, objects per second: minimum / median / maximum\n");
    for (again, name) in ["create", "again"].into_iter().enumerate() {
        for (who, label) in ["bare loop", "switchyard"].into_iter().enumerate() {
            let [least, middle, most] = spread(&rates[who][again]);
            writeln!(out, "{name:7} {label:11} {least:6.0} {middle:6.0} {most:6.0}").expect("a string grows as needed");
        }
        let ratios: Vec<_> = rates[1][again].iter().zip(&rates[0][again]).map(|(ours, floor)| ours / floor).collect();
        let [least, middle, most] = spread(&ratios);
        writeln!(out, "{name:7} ratio       {least:6.2} {middle:6.2} {most:6.2}").expect("a string grows as needed");
    }
    out
}

fn spread(values: &[f64]) -> [f64; 3] {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}

async fn create_namespace(client: &kube::Client, name: &str) -> anyhow::Result<()> {
    let namespace: k8s_openapi::api::core::v1::Namespace =
        serde_json::from_value(serde_json::json!({"metadata": {"name": name}}))?;
    kube::Api::all(client.clone()).create(&kube::api::PostParams::default(), &namespace).await?;
    Ok(())
}

fn manifest(namespace: &str, number: usize) -> String {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": format!("object-{number}"),
            "namespace": namespace,
            "labels": {"design.meshery.io/id": "7d0f2f4e-3f0e-4f3b-9a52-0b4a51f6d0ff"},
            "annotations": {"design.meshery.io/version": "0.0.1", "component.meshery.io/id": format!("component-{number}")},
        },
        "data": {"text": "x".repeat(1024)},
    })
    .to_string()
}

async fn bare_client(cluster: &Cluster) -> anyhow::Result<kube::Client> {
    let kubeconfig: Kubeconfig =
        serde_json::from_value(serde_json::to_value(Kubeconfig::from_yaml(&cluster.kubeconfig_admin().to_string())?)?)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http()
        .enable_http2()
        .wrap_connector(http);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from)
        .service(Client::builder(TokioExecutor::new()).http2_only(true).build::<_, Body>(https));
    Ok(kube::Client::new(service, "default"))
}

/// A bare loop: one PATCH an object, as many in flight as are good for the server.
async fn floor(client: &kube::Client, namespace: &str, objects: usize) -> anyhow::Result<f64> {
    let began = Instant::now();
    let results: Vec<_> = stream::iter(0..objects)
        .map(|number| async move {
            let path = format!(
                "/api/v1/namespaces/{namespace}/configmaps/object-{number}?fieldManager=floor&fieldValidation=Strict"
            );
            let request = Request::builder()
                .method(Method::PATCH)
                .uri(path)
                .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
                .body(Body::from(manifest(namespace, number).into_bytes()))?;
            let response = client.send(request).await?;
            ensure!(response.status().is_success(), "the bare loop was answered {}", response.status());
            response.into_body().collect().await.map_err(|error| anyhow::anyhow!("{error}"))?;
            anyhow::Ok(())
        })
        .buffer_unordered(IN_FLIGHT)
        .collect()
        .await;
    results.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    Ok(began.elapsed().as_secs_f64())
}

/// The same objects as a plan, from the first message to the summary.
async fn switchyard(url: &str, cluster: &Cluster, namespace: &str, objects: usize, again: bool) -> anyhow::Result<f64> {
    let mut client = ExecutorServiceClient::connect(url.to_owned()).await?;
    let steps: Vec<_> = (0..objects)
        .map(|number| PlanStep {
            id: format!("component-{number}"),
            component: Some(v1::Component { name: format!("object-{number}"), ..Default::default() }),
            route: Some(Route::Direct(DirectRoute {
                clusters: vec!["main".into()],
                manifest: manifest(namespace, number),
            })),
            ..Default::default()
        })
        .collect();
    let mut header = PlanHeader {
        operation: v1::Operation::Deploy.into(),
        clusters: vec!["main".into()],
        step_count: objects as u32,
        ..Default::default()
    };
    header.plan_id = digest::plan_id(&header, &steps);
    let trailer = PlanTrailer { plan_id: header.plan_id.clone(), step_count: header.step_count };
    let access =
        ClusterAccess { name: "main".into(), source: Some(Source::Kubeconfig(cluster.kubeconfig_admin().to_string())) };
    let mut parts = vec![Part::Header(header), Part::Cluster(access)];
    parts.extend(steps.into_iter().map(Part::Step));
    parts.push(Part::Trailer(trailer));
    let requests = parts.into_iter().map(|part| ExecuteRequest { part: Some(part) });

    let began = Instant::now();
    let mut events = client.execute(stream::iter(requests)).await?.into_inner();
    let mut unchanged = 0;
    let mut summary = None;
    while let Some(event) = events.message().await? {
        match event.event {
            Some(Event::TargetResult(target)) if target.change() == v1::Change::Unchanged => unchanged += 1,
            Some(Event::Summary(it)) if it.complete => summary = Some(it),
            _ => {}
        }
    }
    let took = began.elapsed().as_secs_f64();
    let summary = summary.context("no summary came")?;
    ensure!(summary.verdict() == v1::Verdict::Succeeded, "the run did not succeed: {:?}", summary.counts);
    ensure!(unchanged == if again { objects } else { 0 }, "{unchanged} of {objects} unchanged");
    Ok(took)
}
