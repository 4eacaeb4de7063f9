//! How a request comes in: counted while it arrives, weighed before it is decoded.
//!
//! The generated server decodes first and asks afterwards. This one has the request's [`Budget`] from its first byte on, so
//! that many large requests at once, or one that grows when it is decoded, are refused before they take the memory.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body_util::{BodyStream, StreamBody};
use prost::Message as _;
use switchyard_proto::v1::planner_service_server::SERVICE_NAME;
use switchyard_proto::v1::{PlanRequest, PlanResponse};
use switchyard_service::status::{Reason, refusal};
use tokio_stream::StreamExt;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic::server::{Grpc, NamedService, ServerStreamingService};
use tonic_prost::{ProstCodec, ProstEncoder};
use tower::Service;

use super::{PlanStream, Planner, refuse, weigh::weigh};
use crate::budget::Budget;

/// How long a request may take to arrive. Who sends a part of one and nothing more holds what it takes for no longer.
const ARRIVAL: Duration = Duration::from_secs(30);

/// The planner as a gRPC service.
#[derive(Clone)]
pub struct Door {
    planner: Arc<Planner>,
    max_message_bytes: usize,
}

impl Door {
    /// Serves `planner`, and reads messages of up to so many bytes.
    pub fn new(planner: Planner, max_message_bytes: usize) -> Self {
        Self { planner: Arc::new(planner), max_message_bytes }
    }
}

impl NamedService for Door {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<Request<Body>> for Door {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.uri().path().strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE_NAME)) != Some("/Plan") {
            let status = Status::unimplemented("this service has the method Plan and no other");
            return Box::pin(std::future::ready(Ok(status.into_http())));
        }
        let Self { planner, max_message_bytes } = self.clone();
        Box::pin(async move {
            let budget = Arc::new(Budget::of_request(planner.pool()));
            let arrived = Arc::new(AtomicBool::new(false));
            let method = Plan { planner, budget: Arc::clone(&budget), arrived: Arc::clone(&arrived) };
            let mut server = Grpc::new(Raw).max_decoding_message_size(max_message_bytes);
            let late = async {
                tokio::time::sleep(ARRIVAL).await;
                if arrived.load(Relaxed) {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                response = server.server_streaming(method, request.map(|body| counted(body, budget))) => Ok(response),
                () = late => {
                    let text = format!("the request did not arrive within {} s; send it again", ARRIVAL.as_secs());
                    Ok(refusal(Reason::DeadlineExceeded, text).into_status().into_http())
                }
            }
        })
    }
}

/// A body whose bytes are drawn from the budget as they arrive.
fn counted(body: Body, budget: Arc<Budget>) -> Body {
    let frames = BodyStream::new(body).map(move |frame| {
        let frame = frame?;
        if let Some(data) = frame.data_ref() {
            budget.arrived(data.len()).map_err(|spent| refuse::spent(spent, &budget).into_status())?;
        }
        Ok::<_, Status>(frame)
    });
    Body::new(StreamBody::new(frames))
}

/// The method, for one call.
struct Plan {
    planner: Arc<Planner>,
    budget: Arc<Budget>,
    arrived: Arc<AtomicBool>,
}

impl ServerStreamingService<Bytes> for Plan {
    type Response = PlanResponse;
    type ResponseStream = PlanStream;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<PlanStream>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        self.arrived.store(true, Relaxed);
        let (planner, budget) = (Arc::clone(&self.planner), Arc::clone(&self.budget));
        Box::pin(async move {
            let (metadata, extensions, bytes) = request.into_parts();
            budget.spend(weigh(&bytes)).map_err(|spent| refuse::spent(spent, &budget))?;
            let size = bytes.len();
            let request = PlanRequest::decode(bytes).map_err(refuse::undecodable)?;
            planner.plan(tonic::Request::from_parts(metadata, extensions, request), size, budget).await
        })
    }
}

/// Leaves requests as they came.
struct Raw;

impl Codec for Raw {
    type Encode = PlanResponse;
    type Decode = Bytes;
    type Encoder = ProstEncoder<PlanResponse>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<PlanResponse, PlanRequest>::raw_encoder(BufferSettings::default())
    }

    fn decoder(&mut self) -> Self::Decoder {
        Self
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(source.copy_to_bytes(source.remaining())))
    }
}
