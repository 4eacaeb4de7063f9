//! The floor: what an API server lets anyone do. A bare loop of server-side-apply PATCHes in the best settings known (one HTTP/2
//! connection a cluster, `TCP_NODELAY`, JSON bodies), and nothing else.
//!
//! `floor OBJECTS IN_FLIGHT KUBECONFIG…` reads objects, one JSON document a line, from the file `OBJECTS`, writes each to every
//! cluster, and prints `objects=N seconds=S`, from the connection to the last answer.

use std::{sync::Arc, time::Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use http::{Method, Request, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::{
    Config,
    client::ConfigExt,
    config::{KubeConfigOptions, Kubeconfig},
};
use rustls::pki_types::ServerName;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    namespace: String,
    name: String,
}

/// A path and the body that goes there.
type Write = (String, Bytes);

fn main() -> anyhow::Result<()> {
    switchyard_service::program::install_crypto();
    let mut arguments = std::env::args().skip(1);
    let objects = arguments.next().context("name a file with objects, one a line")?;
    let in_flight = arguments.next().context("say how many writes may be in flight")?.parse()?;
    let kubeconfigs: Vec<_> = arguments.collect();
    ensure!(!kubeconfigs.is_empty(), "name at least one kubeconfig");
    let text = std::fs::read_to_string(&objects).with_context(|| format!("failed to read {objects}"))?;
    let writes: Vec<Write> = text.lines().map(write).collect::<anyhow::Result<_>>()?;
    // One thread: a second one gains nothing beside an API server on two cores.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut configs = Vec::with_capacity(kubeconfigs.len());
        for path in &kubeconfigs {
            let kubeconfig = Kubeconfig::read_from(path)?;
            configs.push(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?);
        }
        let began = Instant::now();
        try_join_all(configs.iter().map(|config| apply(config, &writes, in_flight))).await?;
        println!("objects={} seconds={}", writes.len() * configs.len(), began.elapsed().as_secs_f64());
        Ok(())
    })
}

fn write(line: &str) -> anyhow::Result<Write> {
    let Object { metadata: Metadata { namespace, name } } = serde_json::from_str(line)?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}?fieldManager=floor&fieldValidation=Strict");
    Ok((path, Bytes::copy_from_slice(line.as_bytes())))
}

async fn apply(config: &Config, writes: &[Write], in_flight: usize) -> anyhow::Result<()> {
    let connection = connect(config).await?;
    let authority = config.cluster_url.authority().context("no address")?;
    stream::iter(writes)
        .map(|(path, body)| {
            let mut connection = connection.clone();
            async move {
                let uri = Uri::builder().scheme("https").authority(authority.clone()).path_and_query(path).build()?;
                let request = Request::builder()
                    .method(Method::PATCH)
                    .uri(uri)
                    .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
                    .header(header::ACCEPT, "application/json")
                    .body(Full::new(body.clone()))?;
                let response = connection.send_request(request).await?;
                let status = response.status();
                let answer = response.into_body().collect().await?.to_bytes();
                ensure!(status.is_success(), "{path} was answered {status}: {}", String::from_utf8_lossy(&answer));
                Ok(())
            }
        })
        .buffer_unordered(in_flight)
        .try_collect()
        .await
}

async fn connect(config: &Config) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let host = config.cluster_url.host().context("no host")?;
    let tcp = TcpStream::connect((host, config.cluster_url.port_u16().unwrap_or(443))).await?;
    tcp.set_nodelay(true)?;
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let tls = TlsConnector::from(Arc::new(tls)).connect(ServerName::try_from(host.to_owned())?, tcp).await?;
    let (requests, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(1 << 24)
        .handshake(TokioIo::new(tls))
        .await?;
    tokio::spawn(connection);
    Ok(requests)
}
