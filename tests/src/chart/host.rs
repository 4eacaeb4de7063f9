//! A host that serves chart archives over TLS, well or badly.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Chart;
use crate::{
    fault::{
        body::{self, Answer},
        server,
    },
    sandbox::certs::Authority,
};

/// What a request for a file comes to.
#[derive(Debug, Clone)]
pub enum Serving {
    /// The file.
    Bytes(Bytes),
    /// The file, if the caller says who it is.
    Guarded(Bytes, String),
    /// The file, after so many answers that there is no time right now.
    Busy(usize, Bytes),
    /// Nothing, ever.
    Silence,
    /// A byte a second.
    Drip,
    /// More and more.
    Endless,
    /// The way to itself.
    Loop,
    /// The way to another URL.
    To(String),
}

type Files = Mutex<BTreeMap<String, Serving>>;

/// A host that serves until this value is dropped. It lives in the runtime of the test that starts it.
#[derive(Debug)]
pub struct Host {
    address: SocketAddr,
    shared: Arc<Shared>,
    _end: DropGuard,
}

#[derive(Debug, Default)]
struct Shared {
    files: Files,
    asked: Mutex<Vec<String>>,
}

impl Host {
    /// Starts one whose certificate comes from `authority`.
    pub async fn start(authority: &Authority) -> anyhow::Result<Self> {
        let acceptor = server::acceptor(&authority.server(&["127.0.0.1", "localhost"])?, &["http/1.1"])?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::<Shared>::default();
        let end = CancellationToken::new();
        tokio::spawn(end.clone().run_until_cancelled_owned(accept(listener, acceptor, shared.clone())));
        Ok(Self { address, shared, _end: end.drop_guard() })
    }

    /// Returns host and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Has helm package the chart, serves the archive, and returns its URL.
    pub async fn serve(&self, chart: &Chart) -> anyhow::Result<String> {
        let (path, _folder) = chart.package().await?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(self.answer(&name, Serving::Bytes(Bytes::from(std::fs::read(path)?))))
    }

    /// Answers requests for a file in this way, and returns its URL.
    pub fn answer(&self, name: &str, serving: Serving) -> String {
        self.shared.files.lock().unwrap_or_else(PoisonError::into_inner).insert(format!("/{name}"), serving);
        self.url(name)
    }

    /// Returns the URL of a file, whether it is there or not.
    pub fn url(&self, name: &str) -> String {
        format!("https://{}/{name}", self.address)
    }

    /// Returns how often a file was asked for.
    pub fn asked(&self, name: &str) -> usize {
        let asked = self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter().filter(|path| path.trim_start_matches('/') == name).count()
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    // Dropped with this future, which ends what is still open.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        connections.spawn(async move {
            // A caller that goes away is part of what is tested.
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(|request| answer(shared.clone(), request));
            auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await.ok();
        });
    }
}

fn leads_to(place: &str) -> Response<Answer> {
    let mut response = Response::new(body::whole(Bytes::new()));
    *response.status_mut() = StatusCode::FOUND;
    let location = place.parse().expect("a place is a header's value");
    response.headers_mut().insert(header::LOCATION, location);
    response
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Answer>, Infallible> {
    let path = request.uri().path().to_owned();
    let asked = {
        let mut asked = shared.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(path.clone());
        asked.iter().filter(|other| **other == path).count()
    };
    let serving = shared.files.lock().unwrap_or_else(PoisonError::into_inner).get(&path).cloned();
    let plain = |status, body| {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        response
    };
    let nothing = |status| plain(status, body::whole(Bytes::new()));
    let response = match serving {
        None => nothing(StatusCode::NOT_FOUND),
        Some(Serving::Bytes(bytes)) => Response::new(body::whole(bytes)),
        Some(Serving::Guarded(bytes, login)) => {
            let wanted = format!("Basic {}", BASE64_STANDARD.encode(login));
            let said = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
            if said == Some(&wanted) { Response::new(body::whole(bytes)) } else { nothing(StatusCode::UNAUTHORIZED) }
        }
        Some(Serving::Busy(times, _)) if asked <= times => nothing(StatusCode::SERVICE_UNAVAILABLE),
        Some(Serving::Busy(_, bytes)) => Response::new(body::whole(bytes)),
        Some(Serving::Silence) => std::future::pending().await,
        Some(Serving::Drip) => Response::new(body::dripping(Bytes::from_static(&[b'x'; 1024]))),
        Some(Serving::Endless) => Response::new(body::endless()),
        Some(Serving::Loop) => leads_to(&path),
        Some(Serving::To(url)) => leads_to(&url),
    };
    Ok(response)
}
