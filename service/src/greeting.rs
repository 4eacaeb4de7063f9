//! The first bytes of a connection: whoever speaks HTTP/2 begins with the preface (RFC 9113, section 3.4), whoever does not is told.

use std::io::{self, Cursor};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Chain, Join, ReadHalf, WriteHalf, join, split};

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What a client is told that speaks HTTP/1.1 (case 334).
const WRONG_PROTOCOL: &[u8] = b"HTTP/1.1 426 Upgrade Required\r\nupgrade: h2c\r\nconnection: upgrade, close\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 58\r\n\r\nthis is a gRPC service: it speaks HTTP/2 with gRPC only.\r\n";

/// How much of a wrong request is read, in bytes.
const REST: u64 = 64 * 1024;

/// A connection whose first bytes have been looked at, and are read again before the rest.
pub(crate) type Greeted<IO> = Join<Chain<Cursor<Vec<u8>>, ReadHalf<IO>>, WriteHalf<IO>>;

/// Waits until the peer has begun to speak HTTP/2. Answers none if it speaks anything else, or leaves.
pub(crate) async fn greet<IO: AsyncRead + AsyncWrite + Unpin>(mut io: IO) -> io::Result<Option<Greeted<IO>>> {
    let mut first = Vec::with_capacity(PREFACE.len());
    while first.len() < PREFACE.len() {
        let mut rest = (&mut io).take((PREFACE.len() - first.len()) as u64);
        if rest.read_buf(&mut first).await? == 0 {
            return Ok(None);
        }
        if !PREFACE.starts_with(&first) {
            if speaks_http(&first) {
                io.write_all(WRONG_PROTOCOL).await?;
                io.shutdown().await?;
                // To be closed with something unread would take the answer away from the peer.
                tokio::io::copy(&mut (&mut io).take(REST), &mut tokio::io::sink()).await?;
            }
            return Ok(None);
        }
    }
    let (rest, writer) = split(io);
    Ok(Some(join(Cursor::new(first).chain(rest), writer)))
}

/// Whether that may be the beginning of a request line.
fn speaks_http(first: &[u8]) -> bool {
    first.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}
