//! A client with the protos of an earlier version of the contract, as a generator makes it.

use bytes::{Buf as _, BufMut as _};
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MapKey, MessageDescriptor, Value};
use switchyard_service::status::{Reason, reason_of};
use tonic::{
    Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
    transport::Channel,
};

use crate::{design::Design, pair::Pair};

/// The contract as it was when a plan could first be passed on as bytes: `buf build --exclude-source-info` of that state.
const CONTRACT: &[u8] = include_bytes!("contract.binpb");

/// What becomes of fields that the client's protos lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unknown {
    /// As in Go, Java, Python and C++.
    Kept,
    /// As in what prost, ts-proto and protobufjs make.
    Dropped,
}

struct Client {
    pool: DescriptorPool,
    unknown: Unknown,
}

impl Client {
    fn descriptor(&self, name: &str) -> MessageDescriptor {
        self.pool.get_message_by_name(&format!("switchyard.v1.{name}")).unwrap()
    }

    fn decode(&self, name: &str, bytes: &[u8]) -> DynamicMessage {
        let mut message = DynamicMessage::decode(self.descriptor(name), bytes).unwrap();
        if self.unknown == Unknown::Dropped {
            forget(&mut message);
        }
        message
    }

    /// Calls a method with these messages and returns all answers.
    async fn call(&self, url: String, method: &'static str, sent: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Status> {
        let mut grpc = Grpc::new(Channel::from_shared(url).unwrap().connect().await.unwrap());
        grpc.ready().await.unwrap();
        let request = Request::new(futures::stream::iter(sent));
        let mut answers = grpc.streaming(request, PathAndQuery::from_static(method), Raw).await?.into_inner();
        let mut told = Vec::new();
        while let Some(answer) = answers.message().await? {
            told.push(answer);
        }
        Ok(told)
    }

    /// Plans a design, passes each part on as it understood it, and returns the verdict that it reads.
    async fn run(&self, pair: &Pair, document: String, encoded: bool) -> Result<i32, Status> {
        let mut design = DynamicMessage::new(self.descriptor("Design"));
        design.set_field_by_name("document", Value::String(document));
        let mut request = DynamicMessage::new(self.descriptor("PlanRequest"));
        request.set_field_by_name("design", Value::Message(design));
        request.set_field_by_name("clusters", Value::List(vec![Value::String("east".into())]));
        request.set_field_by_name("encoded", Value::Bool(encoded));
        let plan = self.call(pair.planner.url(), "/switchyard.v1.PlannerService/Plan", vec![request.encode_to_vec()]);
        let mut parts = Vec::new();
        for answer in plan.await? {
            let answer = self.decode("PlanResponse", &answer);
            let (part, value) = answer.fields().next().unwrap();
            let mut passed_on = DynamicMessage::new(self.descriptor("ExecuteRequest"));
            passed_on.set_field_by_name(part.name(), value.clone());
            parts.push(passed_on.encode_to_vec());
        }
        let events = self.call(pair.executor.url(), "/switchyard.v1.ExecutorService/Execute", parts).await?;
        let last = self.decode("ExecuteResponse", events.last().unwrap());
        let summary = last.get_field_by_name("summary").unwrap();
        let summary = summary.as_message().unwrap();
        assert_eq!(summary.get_field_by_name("complete").unwrap().as_bool(), Some(true), "{summary:?}");
        Ok(summary.get_field_by_name("verdict").unwrap().as_enum_number().unwrap())
    }
}

/// Drops what the protos lack, in all messages of a message.
fn forget(message: &mut DynamicMessage) {
    message.take_unknown_fields().for_each(drop);
    for (_, value) in message.fields_mut() {
        match value {
            Value::Message(message) => forget(message),
            Value::List(values) => values.iter_mut().filter_map(Value::as_message_mut).for_each(forget),
            Value::Map(values) => values.iter_mut().filter_map(in_map).for_each(forget),
            _ => {}
        }
    }
}

fn in_map<'a>((_, value): (&'a MapKey, &'a mut Value)) -> Option<&'a mut DynamicMessage> {
    value.as_message_mut()
}

/// Messages as bytes.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining()).to_vec()))
    }
}

/// Plans have fields by now that these protos lack. Who keeps what it does not know can pass a plan on in any form, who drops it only as
/// bytes.
#[tokio::test]
async fn plan_of_today_goes_through_a_client_of_earlier_protos() {
    const SUCCEEDED: i32 = 1;
    let pair = Pair::shared().await;
    let namespace = pair.world.east().namespace_for("earlier").await.unwrap();
    // A warning comes with its place, of which these protos know nothing.
    let configuration = format!("{{metadata: {{namespace: {namespace}, generateName: x-}}, data: {{colour: blue}}}}");
    let design = Design::new().component("settings", ("v1", "ConfigMap"), &[], &configuration);
    for (unknown, encoded) in
        [(Unknown::Kept, false), (Unknown::Kept, true), (Unknown::Dropped, true), (Unknown::Dropped, false)]
    {
        let client = Client { pool: DescriptorPool::decode(CONTRACT).unwrap(), unknown };
        let verdict = client.run(pair, design.text(), encoded).await;
        if (unknown, encoded) == (Unknown::Dropped, false) {
            assert_eq!(reason_of(&verdict.unwrap_err()), Some(Reason::PlanDigestMismatch));
        } else {
            assert_eq!(verdict.unwrap(), SUCCEEDED, "{unknown:?}, encoded: {encoded}");
        }
    }
}
