//! The way from the proxy to the real API server.

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Config,
    client::ConfigExt as _,
    config::{KubeConfigOptions, Kubeconfig as KubeKubeconfig},
};

use super::{log::Seen, rule::Canned};
use crate::sandbox::{Cluster, Credential, Kubeconfig};

/// Whose rights the API server sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// An administrator's, whatever the caller shows.
    Administrator,
    /// Those of the caller's own token.
    Caller,
}

#[derive(Debug)]
pub(super) struct Upstream {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    authority: String,
    identity: Identity,
}

impl Upstream {
    pub(super) async fn new(cluster: &Cluster, identity: Identity) -> anyhow::Result<Self> {
        let kubeconfig = match identity {
            Identity::Administrator => cluster.kubeconfig_admin(),
            Identity::Caller => cluster.kubeconfig(Credential::Nothing),
        };
        let tls = config(&kubeconfig).await?.rustls_client_config()?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http2().wrap_connector(http);
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build(https);
        Ok(Self { client, authority: format!("127.0.0.1:{}", cluster.port()), identity })
    }

    /// Passes a request on and answers with what the API server said.
    pub(super) async fn send(&self, seen: &Seen, headers: &http::HeaderMap) -> anyhow::Result<Canned> {
        let (head, body) = self.open(seen, headers).await?.into_parts();
        let body = body.collect().await.context("the API server's answer broke off")?.to_bytes();
        Ok(Canned { status: head.status, headers: head.headers, body })
    }

    /// Passes a request on and answers as soon as the API server begins to.
    pub(super) async fn open(&self, seen: &Seen, headers: &http::HeaderMap) -> anyhow::Result<Response<Incoming>> {
        let target = if seen.query.is_empty() { seen.path.clone() } else { format!("{}?{}", seen.path, seen.query) };
        let uri = Uri::builder().scheme("https").authority(self.authority.as_str()).path_and_query(target).build()?;
        let mut request = Request::builder().method(seen.method.clone()).uri(uri).body(Full::new(seen.body.clone()))?;
        for (name, value) in headers {
            let hop_by_hop = [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
            let ours = *name == header::AUTHORIZATION && self.identity == Identity::Administrator;
            if !hop_by_hop.contains(name) && !ours {
                request.headers_mut().append(name, value.clone());
            }
        }
        let mut response = self.client.request(request).await.context("the API server did not answer")?;
        response.headers_mut().remove(header::CONNECTION);
        response.headers_mut().remove(header::TRANSFER_ENCODING);
        Ok(response)
    }

    /// What a caller is told whom the API server did not answer.
    pub(super) fn unavailable(error: &anyhow::Error) -> Canned {
        Canned::status(StatusCode::BAD_GATEWAY.as_u16()).text(format!("{error:#}"))
    }
}

async fn config(kubeconfig: &Kubeconfig) -> anyhow::Result<Config> {
    let parsed = KubeKubeconfig::from_yaml(&kubeconfig.to_string())?;
    Ok(Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?)
}
