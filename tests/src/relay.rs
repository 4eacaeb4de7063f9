//! A relay of bytes between a caller and one of the programs, which can be cut.

use std::net::SocketAddr;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Passes connections on until this value is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    /// How often it was cut.
    cuts: watch::Sender<u64>,
    _end: DropGuard,
}

impl Relay {
    /// Starts one before an address.
    pub async fn before(target: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let (address, cuts, end) = (listener.local_addr()?, watch::Sender::new(0), CancellationToken::new());
        let accepting = {
            let (cuts, end) = (cuts.clone(), end.clone());
            async move {
                // A listener of this machine's own does not fail.
                while let Ok((caller, _)) = listener.accept().await {
                    tokio::spawn(end.clone().run_until_cancelled_owned(pass(caller, target, cuts.subscribe())));
                }
            }
        };
        tokio::spawn(end.clone().run_until_cancelled_owned(accepting));
        Ok(Self { address, cuts, _end: end.drop_guard() })
    }

    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts all connections that are open now.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn pass(mut caller: TcpStream, target: SocketAddr, mut cuts: watch::Receiver<u64>) {
    let Ok(mut target) = TcpStream::connect(target).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut caller, &mut target) => {}
        _ = cuts.changed() => {}
    }
}
