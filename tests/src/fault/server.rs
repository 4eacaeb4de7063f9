//! Connections, and what becomes of each request on them.

use std::{io, sync::Arc, time::Instant};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    body::{self, Answer, End},
    log::Seen,
    proxy::{Door, Shared},
    rule::{Canned, Fault, Loss},
    upstream::Upstream,
};
use crate::sandbox::certs::Identity;

/// What terminates TLS, for the protocols that it shall offer.
pub(crate) fn acceptor(identity: &Identity, protocols: &[&str]) -> anyhow::Result<TlsAcceptor> {
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .context("failed to set the proxy's certificate")?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections for as long as the proxy is there.
pub(super) async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let mut door = shared.door.subscribe();
    let mut listener = Some(listener);
    // Their ends; dropped with this future, which ends what is still open.
    let mut connections = tokio::task::JoinSet::new();
    let mut kept = Vec::new();
    loop {
        let now = *door.borrow_and_update();
        if now == Door::Closed {
            listener = None;
        } else if listener.is_none() {
            // The port was ours; whoever took it in between makes the test fail, which is the right report.
            listener = TcpListener::bind(shared.address).await.ok();
        }
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        let stream = tokio::select! {
            _ = door.changed() => continue,
            accepted = accepted => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => continue,
            },
        };
        let cut = shared.change(|state| {
            state.dials += 1;
            state.connections.child_token()
        });
        match now {
            Door::Open => {
                let serving = serve(shared.clone(), stream, cut.clone());
                connections.spawn(cut.run_until_cancelled_owned(serving));
            }
            Door::Mute => kept.push(stream),
            Door::Slammed | Door::Closed => drop(stream),
        }
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream, cut: CancellationToken) {
    stream.set_nodelay(true).ok();
    // A caller that does not trust our certificate, or goes away, is part of what is tested.
    let Ok(stream) = shared.acceptor.accept(stream).await else { return };
    let service = service_fn(|request| answer(shared.clone(), request, cut.clone()));
    auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await.ok();
}

/// Counts a request as in flight for as long as it is worked on.
struct InFlight {
    shared: Arc<Shared>,
    rule: Option<usize>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.in_flight -= 1;
            // The rules may have been cleared meanwhile.
            if let Some(rule) = self.rule.and_then(|rule| state.rules.get_mut(rule)) {
                rule.in_flight = rule.in_flight.saturating_sub(1);
            }
        });
    }
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    cut: CancellationToken,
) -> Result<Response<Answer>, io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let seen = Seen {
        method: head.method,
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        body,
        authorization: header("authorization"),
        traceparent: header("traceparent"),
        at: Instant::now(),
    };
    let (fault, in_flight) = shared.change(|state| {
        state.seen.push(seen.clone());
        state.in_flight += 1;
        state.peak = state.peak.max(state.in_flight);
        let rule = state.rules.iter_mut().position(|rule| rule.takes(&seen));
        let fault = rule.map(|rule| {
            let rule = &mut state.rules[rule];
            rule.in_flight += 1;
            match &rule.fault {
                Fault::Crowd(room, refusal) if rule.in_flight > *room => Fault::Answer(refusal.clone()),
                fault => fault.clone(),
            }
        });
        (fault, InFlight { shared: shared.clone(), rule })
    });
    let forward = async || match shared.upstream.send(&seen, &head.headers).await {
        Ok(answer) => answer,
        Err(error) => Upstream::unavailable(&error),
    };
    let break_off = async || -> Response<Answer> {
        cut.cancel();
        std::future::pending().await
    };
    let response = match fault {
        // A watch has no end to wait for.
        None if seen.is_watch() => match shared.upstream.open(&seen, &head.headers).await {
            Ok(answer) => answer.map(body::passed_on),
            Err(error) => respond(Upstream::unavailable(&error), body::whole),
        },
        None | Some(Fault::Crowd(..)) => respond(forward().await, body::whole),
        Some(Fault::Answer(answer)) => respond(answer, body::whole),
        Some(Fault::Delay(delay)) => {
            tokio::time::sleep(delay).await;
            respond(forward().await, body::whole)
        }
        Some(Fault::Hold(gate)) => {
            gate.passed().await;
            respond(forward().await, body::whole)
        }
        Some(Fault::Alter(alter)) => {
            let mut answer = forward().await;
            answer.headers.remove(http::header::CONTENT_LENGTH);
            alter(&mut answer);
            respond(answer, body::whole)
        }
        Some(Fault::Ignore) => std::future::pending().await,
        Some(Fault::Cut) => break_off().await,
        Some(Fault::Lose(loss)) => {
            let answer = forward().await;
            match loss {
                Loss::BeforeHeaders => break_off().await,
                Loss::Reset => return Err(io::Error::other("reset on purpose")),
                Loss::AfterHeaders => respond(answer, |_| body::broken(Bytes::new(), End::Cut(cut.clone()))),
                Loss::HalfBody => respond(answer, |it| body::broken(it.slice(..it.len() / 2), End::Break)),
                Loss::GatewayTimeout => respond(Canned::status(504), body::whole),
                Loss::Silence => std::future::pending().await,
                Loss::SilenceAfterHeaders => respond(answer, |_| body::broken(Bytes::new(), End::Silence)),
                Loss::Drip => respond(answer, body::dripping),
            }
        }
    };
    drop(in_flight);
    Ok(response)
}

fn respond(answer: Canned, body: impl FnOnce(Bytes) -> Answer) -> Response<Answer> {
    let Canned { status, headers, body: bytes } = answer;
    let mut response = Response::new(body(bytes));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
