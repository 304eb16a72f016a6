//! From messages to octets and back, as tonic wants it.

use prost::Message;
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// First room for a message. Most are small, and a controller has thousands of streams.
const BUFFER: usize = 1 << 10;
/// Octets that are sent at once if more messages wait.
const YIELD: usize = 32 << 10;

/// Sends `E`, receives `D`.
#[derive(Debug)]
pub struct Prost<E, D>(PhantomData<(E, D)>);

impl<E, D> Default for Prost<E, D> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<E: Message + 'static, D: Message + Default + 'static> Codec for Prost<E, D> {
    type Encode = E;
    type Decode = D;
    type Encoder = Half<E>;
    type Decoder = Half<D>;

    fn encoder(&mut self) -> Half<E> {
        Half(PhantomData)
    }

    fn decoder(&mut self) -> Half<D> {
        Half(PhantomData)
    }
}

/// One direction.
#[derive(Debug)]
pub struct Half<M>(PhantomData<M>);

impl<M: Message + 'static> Encoder for Half<M> {
    type Item = M;
    type Error = Status;

    fn encode(&mut self, item: M, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(to).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, YIELD)
    }
}

impl<M: Message + Default + 'static> Decoder for Half<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        let read = M::decode(from).map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(Some(read))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, YIELD)
    }
}
