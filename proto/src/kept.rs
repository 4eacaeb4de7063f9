//! Messages that are encoded once, and held and sent by several.

use std::marker::PhantomData;

use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut, Bytes},
    encoding::{DecodeContext, WireType},
};

use crate::v1::ExecuteResponse;

/// A message in its encoding: it takes the memory that it takes on the wire, and is sent without being copied or encoded again. On
/// the wire it is the message itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept<M> {
    encoded: Bytes,
    message: PhantomData<fn() -> M>,
}

/// `WatchRunResponse` with an event that is kept.
#[derive(Clone, PartialEq, Message)]
pub struct KeptWatchRunResponse {
    /// The event.
    #[prost(message, optional, tag = "1")]
    pub event: Option<Kept<ExecuteResponse>>,
}

impl<M> Kept<M> {
    fn of(encoded: Bytes) -> Self {
        Self { encoded, message: PhantomData }
    }
}

impl<M> Default for Kept<M> {
    fn default() -> Self {
        Self::of(Bytes::new())
    }
}

impl<M: Message> From<&M> for Kept<M> {
    fn from(message: &M) -> Self {
        Self::of(message.encode_to_vec().into())
    }
}

impl<M: Message + Default> Kept<M> {
    /// Returns the message itself.
    ///
    /// # Errors
    ///
    /// When what was kept is no such message, which only a decoded one can be.
    pub fn message(&self) -> Result<M, DecodeError> {
        M::decode(self.encoded.clone())
    }
}

impl<M: Message + Default> Message for Kept<M> {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(&self.encoded);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let mut message = self.message()?;
        message.merge_field(tag, wire_type, buffer, context)?;
        *self = Self::from(&message);
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.encoded.len()
    }

    fn clear(&mut self) {
        self.encoded.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{StepStarted, WatchRunResponse, execute_response::Event};

    #[test]
    fn on_the_wire_it_is_the_message() {
        let event = Event::StepStarted(StepStarted { step_id: "step".into(), component: "component".into() });
        let message = ExecuteResponse { sequence: 7, time: None, event: Some(event) };
        let kept = Kept::from(&message);
        let bytes = kept.encode_to_vec();
        assert_eq!(bytes, message.encode_to_vec());
        let mut read = Kept::<ExecuteResponse>::decode(&*bytes).unwrap();
        assert_eq!(read, kept);
        // What others hold is theirs.
        let held = read.clone();
        read.clear();
        assert_eq!(read.message(), Ok(ExecuteResponse::default()));
        assert_eq!(held.message(), Ok(message.clone()));
        let watched = KeptWatchRunResponse { event: Some(kept) };
        assert_eq!(watched.encode_to_vec(), WatchRunResponse { event: Some(message) }.encode_to_vec());
    }
}
