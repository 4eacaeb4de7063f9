//! A message that several hold and nobody copies.

use std::{ops::Deref, sync::Arc};

use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut},
    encoding::{DecodeContext, WireType},
};

/// A message that is kept and sent without being copied. On the wire it is the message itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept<M>(Arc<M>);

impl<M> From<M> for Kept<M> {
    fn from(message: M) -> Self {
        Self(Arc::new(message))
    }
}

impl<M> Deref for Kept<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.0
    }
}

impl<M: Clone> Kept<M> {
    /// Returns the message itself, copied if others hold it too.
    pub fn into_inner(self) -> M {
        Arc::unwrap_or_clone(self.0)
    }
}

impl<M: Message + Clone + Default> Message for Kept<M> {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        self.0.encode_raw(buffer);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        Arc::make_mut(&mut self.0).merge_field(tag, wire_type, buffer, context)
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }

    fn clear(&mut self) {
        Arc::make_mut(&mut self.0).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{ExecuteResponse, StepStarted, execute_response::Event};

    #[test]
    fn on_the_wire_it_is_the_message() {
        let event = Event::StepStarted(StepStarted { step_id: "step".into(), component: "component".into() });
        let message = ExecuteResponse { sequence: 7, time: None, event: Some(event) };
        let kept = Kept::from(message.clone());
        let bytes = kept.encode_to_vec();
        assert_eq!(bytes, message.encode_to_vec());
        let mut read = Kept::<ExecuteResponse>::decode(&*bytes).unwrap();
        assert_eq!(read, kept);
        // What others hold is theirs.
        let held = read.clone();
        read.clear();
        assert_eq!((*read).clone(), ExecuteResponse::default());
        assert_eq!(held.into_inner(), message);
    }
}
