//! Writing in large pieces.
//!
//! h2 writes the head of a request, and learns only then that it may send the body: two system calls, two TLS records and two
//! awakenings of the API server for each request, with 64 of them at once as well as with one.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::io::BufWriter;

/// What a TLS record can hold.
const PIECE: usize = 16 * 1024;

/// A connection that holds back what is written until nothing more comes: a flush that finds something new since the last one
/// puts it off to when whoever writes has its next turn.
pub(crate) struct Corked<C> {
    buffered: TokioIo<BufWriter<TokioIo<C>>>,
    something_new: bool,
}

impl<C> Corked<C>
where
    C: Read + Write + Unpin,
{
    pub(crate) fn new(connection: C) -> Self {
        let buffered = TokioIo::new(BufWriter::with_capacity(PIECE, TokioIo::new(connection)));
        Self { buffered, something_new: false }
    }

    fn buffered(&mut self) -> Pin<&mut TokioIo<BufWriter<TokioIo<C>>>> {
        Pin::new(&mut self.buffered)
    }
}

impl<C: Read + Write + Unpin> Write for Corked<C> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.something_new = true;
        self.buffered().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.something_new = true;
        self.buffered().poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.buffered.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.something_new) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.buffered().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.buffered().poll_shutdown(context)
    }
}

impl<C: Read + Write + Unpin> Read for Corked<C> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        self.buffered().poll_read(context, into)
    }
}

impl<C: Connection + Read + Write + Unpin> Connection for Corked<C> {
    fn connected(&self) -> Connected {
        self.buffered.inner().get_ref().inner().connected()
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, task::noop_waker_ref};
    use tokio::io::{AsyncReadExt, DuplexStream};

    use super::*;

    fn corked() -> (Corked<TokioIo<DuplexStream>>, DuplexStream) {
        let (near, far) = tokio::io::duplex(1 << 20);
        (Corked::new(TokioIo::new(near)), far)
    }

    fn write(corked: &mut Corked<TokioIo<DuplexStream>>, bytes: &[u8]) {
        let written = Pin::new(corked).poll_write(&mut Context::from_waker(noop_waker_ref()), bytes);
        assert!(matches!(written, Poll::Ready(Ok(length)) if length == bytes.len()));
    }

    fn flush(corked: &mut Corked<TokioIo<DuplexStream>>) -> bool {
        match Pin::new(corked).poll_flush(&mut Context::from_waker(noop_waker_ref())) {
            Poll::Ready(flushed) => flushed.is_ok(),
            Poll::Pending => false,
        }
    }

    fn arrived(far: &mut DuplexStream) -> usize {
        far.read(&mut [0; 1 << 16]).now_or_never().map_or(0, Result::unwrap)
    }

    #[test]
    fn goes_out_once_nothing_more_comes() {
        let (mut corked, mut far) = corked();
        write(&mut corked, b"head");
        assert!(!flush(&mut corked));
        write(&mut corked, b"body");
        assert!(!flush(&mut corked));
        assert_eq!(arrived(&mut far), 0);
        assert!(flush(&mut corked));
        assert_eq!(arrived(&mut far), 8);
        assert!(flush(&mut corked), "there is nothing to hold back");
    }

    #[test]
    fn holds_back_no_more_than_a_piece() {
        let (mut corked, mut far) = corked();
        for _ in 0..20 {
            write(&mut corked, &[0; 1000]);
        }
        assert_eq!(arrived(&mut far), 16_000);
        write(&mut corked, &[0; 3 * PIECE]);
        assert_eq!(arrived(&mut far), 4000 + 3 * PIECE);
    }

    #[tokio::test]
    async fn who_flushes_is_woken_to_try_again() {
        let (mut corked, mut far) = corked();
        write(&mut corked, b"head");
        std::future::poll_fn(|context| Pin::new(&mut corked).poll_flush(context)).await.unwrap();
        assert_eq!(arrived(&mut far), 4);
    }
}
