//! Plain HTTP on loopback, enough to ask etcd and Jaeger something.

use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};

/// Both answer from memory.
const LIMIT: Duration = Duration::from_secs(20);

/// Gets `url` and returns the body; a status other than 2xx is an error.
pub(crate) async fn get(url: &str) -> anyhow::Result<Bytes> {
    // A client for each request: one that is kept would be tied to the runtime of the test that came first.
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let exchange = async {
        let response = client.get(url.parse()?).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            bail!("{status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    };
    tokio::time::timeout(LIMIT, exchange).await.with_context(|| format!("{url} did not answer within {LIMIT:?}"))?
}
