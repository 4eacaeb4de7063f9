//! Opening the port: who may listen where, and how others learn the address.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use tokio::net::TcpListener;

use crate::config::{self, ServeArgs};

/// Why the port is not open.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The flags ask for what may not be.
    #[error(transparent)]
    Refused(#[from] config::Error),
    /// The kernel does not give the address.
    #[error("could not listen on {address}")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The address could not be written where `--port-file` says.
    #[error("could not write the port file {}", path.display())]
    PortFile {
        /// The file named by the flag.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
}

/// Opens the port that `args` name and writes the address in use to the port file, if there is to be one.
///
/// # Errors
///
/// When the address may not be listened on, is taken, or cannot be made known.
pub async fn bind(args: &ServeArgs) -> Result<TcpListener, Error> {
    args.check()?;
    let bind_error = |source| Error::Bind { address: args.listen, source };
    let listener = TcpListener::bind(args.listen).await.map_err(bind_error)?;
    let address = listener.local_addr().map_err(bind_error)?;
    if let Some(path) = &args.port_file {
        write_whole(path, &format!("{address}\n")).map_err(|source| Error::PortFile { path: path.clone(), source })?;
    }
    Ok(listener)
}

/// Writes a file so that a reader sees all of it or none: under another name first, then renamed.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    fs::write(&draft, text)?;
    fs::rename(&draft, path)
}
