//! Whether what answers at an adapter's address speaks HTTP/2 at all (case 287).
//!
//! A server's first frame is SETTINGS (RFC 9113 section 3.4). Whatever begins otherwise has understood nothing of the request, so
//! it cannot have acted on it; hyper's error would only say that a frame was broken.

use std::{
    io,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, Join, ReadBuf, ReadHalf, WriteHalf, join, split};

/// Bytes of a frame's header up to and with its type (RFC 9113 section 4.1).
const TO_TYPE: usize = 4;
/// Type of the first frame.
const SETTINGS: u8 = 4;

/// What answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Http2,
    /// It ended the connection before the first frame, which a server sends before it looks at a request.
    Silent,
    /// It speaks something else: what, in words.
    Stranger(&'static str),
}

/// What the peer of a channel's first connection is. Later connections of the channel say nothing of what became of a request
/// on the first one.
#[derive(Clone, Default)]
pub(super) struct Greeting(Arc<OnceLock<Peer>>);

impl Greeting {
    /// None if it has not been seen yet.
    pub(super) fn peer(&self) -> Option<Peer> {
        self.0.get().copied()
    }

    /// One that nobody asks, for a connection that is not to be watched.
    pub(super) fn watch_not<T: AsyncRead + AsyncWrite>(io: T) -> Watched<T> {
        Self::default().watch_behind(vec![0; TO_TYPE], io)
    }

    /// The connection, watched until its peer has said who it is.
    pub(super) fn watch<T: AsyncRead + AsyncWrite>(self, io: T) -> Watched<T> {
        self.watch_behind(Vec::with_capacity(TO_TYPE), io)
    }

    fn watch_behind<T: AsyncRead + AsyncWrite>(self, begun: Vec<u8>, io: T) -> Watched<T> {
        let (reader, writer) = split(io);
        join(Reader { io: reader, begun, greeting: self }, writer)
    }
}

/// Who begins so.
fn peer(begun: &[u8]) -> Peer {
    match begun {
        [] => Peer::Silent,
        [_, _, _, SETTINGS, ..] => Peer::Http2,
        [b'H', b'T', b'T', b'P', ..] => Peer::Stranger("it speaks HTTP/1"),
        [b'S', b'S', b'H', b'-', ..] => Peer::Stranger("it speaks SSH"),
        // An alert or a handshake (RFC 8446 section 5.1).
        [0x15 | 0x16, 3, ..] => Peer::Stranger("it speaks TLS, which takes --adapter-ca"),
        _ => Peer::Stranger("it does not speak HTTP/2"),
    }
}

/// A connection whose first bytes are looked at.
pub(super) type Watched<T> = Join<Reader<ReadHalf<T>>, WriteHalf<T>>;

/// The half of it that is read.
pub(super) struct Reader<T> {
    io: T,
    begun: Vec<u8>,
    greeting: Greeting,
}

impl<T: AsyncRead + Unpin> AsyncRead for Reader<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.io).poll_read(cx, buf));
        let missing = TO_TYPE - self.begun.len();
        if missing == 0 {
            return Poll::Ready(read);
        }
        let new = &buf.filled()[before..];
        let ended = read.is_err() || new.is_empty();
        self.begun.extend(new.iter().take(missing));
        if self.begun.len() < TO_TYPE && !ended {
            return Poll::Ready(Ok(()));
        }
        let peer = peer(&self.begun);
        self.greeting.0.set(peer).ok();
        match peer {
            Peer::Http2 | Peer::Silent => Poll::Ready(read),
            Peer::Stranger(what) => Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, what))),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// What is made of a peer that sends these pieces and ends.
    async fn talk(pieces: &[&[u8]]) -> (Result<Vec<u8>, io::ErrorKind>, Option<Peer>) {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let greeting = Greeting::default();
        let mut watched = greeting.clone().watch(ours);
        let mut read = Vec::new();
        for piece in pieces {
            theirs.write_all(piece).await.unwrap();
            let mut buffer = [0; 64];
            match watched.read(&mut buffer).await {
                Ok(count) => read.extend(&buffer[..count]),
                Err(error) => return (Err(error.kind()), greeting.peer()),
            }
        }
        drop(theirs);
        let end = watched.read_to_end(&mut read).await.map_err(|error| error.kind());
        (end.map(|_| read), greeting.peer())
    }

    #[tokio::test]
    async fn http_2_passes_however_it_arrives() {
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0, 1, 2, 3];
        let pieces: Vec<_> = settings.chunks(1).collect();
        for pieces in [vec![&settings[..]], pieces] {
            assert_eq!(talk(&pieces).await, (Ok(settings.to_vec()), Some(Peer::Http2)));
        }
        assert_eq!(talk(&[]).await, (Ok(Vec::new()), Some(Peer::Silent)));
    }

    #[tokio::test]
    async fn whatever_begins_otherwise_is_named() {
        let peers: [(&[u8], &str); 5] = [
            (b"HTTP/1.1 400 Bad Request", "HTTP/1"),
            (b"SSH-2.0-OpenSSH_9.9", "SSH"),
            (&[0x15, 3, 3, 0, 2, 2, 70], "TLS"),
            (b"-ERR unknown command", "HTTP/2"),
            (b"no", "HTTP/2"),
        ];
        for (begun, what) in peers {
            let (read, seen) = talk(&[begun]).await;
            assert_eq!(read, Err(io::ErrorKind::InvalidData));
            assert!(matches!(seen, Some(Peer::Stranger(stranger)) if stranger.contains(what)), "{seen:?}");
        }
    }
}
