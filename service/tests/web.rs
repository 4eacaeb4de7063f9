//! Calls from pages, in gRPC-Web.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use support::{Running, ask, start};
use tokio::net::TcpStream;

const PAGE: &str = "https://deploy.example.com";

/// Asks over HTTP/2 as a browser does.
async fn asked(running: &Running, method: Method, origin: Option<&str>, what: &str) -> (Response<()>, Bytes) {
    let stream = TcpStream::connect(running.address).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let message = ask(what).encode_to_vec();
    let mut body = BytesMut::new();
    body.put_u8(0);
    body.put_u32(message.len() as u32);
    body.put_slice(&message);
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://{}/switchyard.v1.PlannerService/Plan", running.address))
        .header(header::CONTENT_TYPE, "application/grpc-web+proto")
        .header("x-grpc-web", "1");
    if let Some(origin) = origin {
        request = request.header(header::ORIGIN, origin);
    }
    let response = sender.send_request(request.body(Full::new(body.freeze())).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    (Response::from_parts(parts, ()), body.collect().await.unwrap().to_bytes())
}

fn allowed(response: &Response<()>) -> Option<&str> {
    response.headers().get(header::ACCESS_CONTROL_ALLOW_ORIGIN).map(|origin| origin.to_str().unwrap())
}

#[tokio::test]
async fn pages_of_named_origins_may_call() {
    let running = start(&["--grpc-web-origins", "https://other.example.com,https://deploy.example.com"]).await;

    let (answer, _) = asked(&running, Method::OPTIONS, Some(PAGE), "").await;
    assert_eq!((answer.status(), allowed(&answer)), (StatusCode::NO_CONTENT, Some(PAGE)));
    assert!(answer.headers()[header::ACCESS_CONTROL_ALLOW_HEADERS].to_str().unwrap().contains("x-grpc-web"));

    let (answer, body) = asked(&running, Method::POST, Some(PAGE), "one part").await;
    assert_eq!((answer.status(), allowed(&answer)), (StatusCode::OK, Some(PAGE)));
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/grpc-web+proto");
    assert_eq!(body[0], 0, "a message");
    let end = 5 + u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
    assert_eq!(body[end], 0x80, "trailers in the body");
    assert!(String::from_utf8_lossy(&body[end + 5..]).contains("grpc-status:0"), "{body:?}");

    // A refusal with its details, which a page may read.
    let (answer, _) = asked(&running, Method::POST, Some(PAGE), "the fullest refusal").await;
    assert_eq!(answer.headers()["grpc-status"], "3");
    assert!(answer.headers().contains_key("grpc-status-details-bin"));
    assert!(running.client().await.plan(ask("one part")).await.is_ok(), "gRPC is spoken as before");
}

#[tokio::test]
async fn pages_of_other_origins_are_refused() {
    let running = start(&["--grpc-web-origins", PAGE]).await;
    for origin in [Some("https://evil.example.com"), Some("null"), None] {
        for method in [Method::OPTIONS, Method::POST] {
            // Whatever it would do is not done.
            let (answer, body) = asked(&running, method, origin, "panic").await;
            assert_eq!((answer.status(), allowed(&answer)), (StatusCode::FORBIDDEN, None));
            assert!(body.starts_with(b"pages of this origin"), "{body:?}");
        }
    }
}

#[tokio::test]
async fn nothing_but_grpc_is_spoken_unless_origins_are_named() {
    let running = start(&[]).await;
    for method in [Method::OPTIONS, Method::POST] {
        let (answer, _) = asked(&running, method, Some(PAGE), "one part").await;
        assert_eq!(allowed(&answer), None);
        assert_ne!(answer.headers().get(header::CONTENT_TYPE).unwrap(), "application/grpc-web+proto");
    }
}
