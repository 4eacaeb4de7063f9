//! How a request comes in: weighed before it is decoded.
//!
//! The generated server decodes first and asks afterwards. This one is given the request as bytes, which the server has counted
//! while they came in ([`Received`]), and draws what the message will take from its [`Budget`]: many large requests at once, or
//! one that grows when it is decoded, are refused before they take the memory.

use std::convert::Infallible;
use std::future::{Future, Ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::{Request, Response};
use prost::Message as _;
use switchyard_proto::v1::planner_service_server::SERVICE_NAME;
use switchyard_proto::v1::{
    PlanRequest, PlanResponse, PlannerServiceGetCapabilitiesRequest, PlannerServiceGetCapabilitiesResponse,
};
use switchyard_service::received::Received;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, CompressionEncoding, DecodeBuf, Decoder};
use tonic::server::{Grpc, NamedService, ServerStreamingService, UnaryService};
use tonic_prost::{ProstCodec, ProstEncoder};
use tower::Service;

use super::{PlanStream, Planner, refuse, weigh::weigh};
use crate::budget::Budget;

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
        let Self { planner, max_message_bytes } = self.clone();
        let method = request.uri().path().strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE_NAME));
        match method {
            Some("/Plan") => {}
            Some("/GetCapabilities") => {
                return Box::pin(async move {
                    let mut server = Grpc::new(ProstCodec::default());
                    Ok(server.unary(Capabilities { planner, max_message_bytes }, request).await)
                });
            }
            // As the generated server answers; the guard around all services says the rest.
            _ => return Box::pin(std::future::ready(Ok(Status::unimplemented("").into_http()))),
        }
        Box::pin(async move {
            let mut server = Grpc::new(Raw)
                .accept_compressed(CompressionEncoding::Gzip)
                .max_decoding_message_size(max_message_bytes);
            Ok(server.server_streaming(Plan { planner }, request).await)
        })
    }
}

/// The method, for one call.
struct Plan {
    planner: Arc<Planner>,
}

impl ServerStreamingService<Bytes> for Plan {
    type Response = PlanResponse;
    type ResponseStream = PlanStream;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<PlanStream>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let planner = Arc::clone(&self.planner);
        Box::pin(async move {
            let (metadata, extensions, bytes) = request.into_parts();
            if let Some(received) = extensions.get::<Received>() {
                received.taken_out();
            }
            let budget = Arc::new(Budget::of_request(bytes.len(), planner.all_requests()));
            budget.spend(weigh(&bytes)).map_err(|spent| refuse::spent(spent, &budget))?;
            let size = bytes.len();
            let request = PlanRequest::decode(bytes).map_err(refuse::undecodable)?;
            planner.plan(tonic::Request::from_parts(metadata, extensions, request), size, budget).await
        })
    }
}

/// The method that tells what this planner is, for one call.
struct Capabilities {
    planner: Arc<Planner>,
    max_message_bytes: usize,
}

impl UnaryService<PlannerServiceGetCapabilitiesRequest> for Capabilities {
    type Response = PlannerServiceGetCapabilitiesResponse;
    type Future = Ready<Result<tonic::Response<Self::Response>, Status>>;

    fn call(&mut self, _: tonic::Request<PlannerServiceGetCapabilitiesRequest>) -> Self::Future {
        std::future::ready(Ok(tonic::Response::new(self.planner.capabilities(self.max_message_bytes))))
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
