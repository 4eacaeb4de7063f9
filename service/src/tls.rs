//! TLS on the listening side, with files that are read again when they change.

mod validity;

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime},
};

use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::config::ServeArgs;

/// How often the files are looked at, at most: no more than once for each connection either.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why certificates or key cannot be used. The text names the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("could not read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// The file holds nothing of the wanted kind.
    #[error("{} holds no {wanted} in PEM form", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What should have been in it.
        wanted: &'static str,
    },
    /// The file holds something that is not valid.
    #[error("{} holds a {wanted} that cannot be used: {why}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What should have been in it.
        wanted: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// No client would take it.
    #[error("the certificate in {} has expired", path.display())]
    Expired {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    fn path(&self) -> &Path {
        let (Self::Read { path, .. } | Self::Empty { path, .. } | Self::Invalid { path, .. } | Self::Expired { path }) =
            self;
        path
    }

    /// The flag that names the file.
    pub(crate) fn flag(&self, args: &ServeArgs) -> &'static str {
        let is = |flag: &Option<PathBuf>| flag.as_deref() == Some(self.path());
        if is(&args.tls_cert) {
            "--tls-cert"
        } else if is(&args.tls_key) {
            "--tls-key"
        } else {
            "--tls-client-ca"
        }
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// When the certificate in use expires, in seconds since 1970; 0 while there is none.
static EXPIRY: AtomicI64 = AtomicI64::new(0);

/// When the certificate in use expires, in seconds since 1970.
pub(crate) fn expiry() -> Option<i64> {
    Some(EXPIRY.load(Ordering::Relaxed)).filter(|at| *at != 0)
}

/// The server's side of TLS, as the flags describe it.
#[derive(Debug)]
pub(crate) struct Tls {
    files: Files,
    current: Mutex<Current>,
}

#[derive(Debug, Clone)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    client_authority: Option<PathBuf>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    stamp: Stamp,
    looked: Instant,
}

/// What tells one version of the files from the next: inode, time of change, length. Kubernetes swaps a symbolic link,
/// so that another inode stands behind the name; an editor may write in place, and the clock of a file system can be
/// coarse.
type Stamp = Vec<Option<(u64, i64, i64, u64)>>;

impl Tls {
    /// Reads the files that `args` name; None when they name none.
    pub(crate) fn from_args(args: &ServeArgs) -> Result<Option<Self>, Error> {
        let (Some(certificate), Some(key)) = (args.tls_cert.clone(), args.tls_key.clone()) else { return Ok(None) };
        let files = Files { certificate, key, client_authority: args.tls_client_ca.clone() };
        // Before reading: a change in between is then seen at the next look.
        let stamp = files.stamp();
        let config = files.load()?;
        Ok(Some(Self { files, current: Mutex::new(Current { config, stamp, looked: Instant::now() }) }))
    }

    /// Gives the configuration for the next connection. Files that have changed for the worse are reported and not
    /// used.
    fn current(&self, now: Instant) -> Arc<ServerConfig> {
        let mut current = self.current.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if now.duration_since(current.looked) >= LOOK_EVERY {
            current.looked = now;
            let stamp = self.files.stamp();
            if stamp != current.stamp {
                current.stamp = stamp;
                match self.files.load() {
                    Ok(config) => {
                        current.config = config;
                        tracing::info!("read the TLS files again");
                    }
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "keeping the TLS files as they were");
                    }
                }
            }
        }
        Arc::clone(&current.config)
    }

    /// Shakes hands for the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current(Instant::now()))
    }
}

impl Files {
    fn stamp(&self) -> Stamp {
        let Self { certificate, key, client_authority } = self;
        [Some(certificate), Some(key), client_authority.as_ref()]
            .into_iter()
            .flatten()
            .map(|path| {
                let metadata = fs::metadata(path).ok()?;
                Some((metadata.ino(), metadata.ctime(), metadata.ctime_nsec(), metadata.len()))
            })
            .collect()
    }

    fn load(&self) -> Result<Arc<ServerConfig>, Error> {
        let Self { certificate, key, client_authority } = self;
        let chain = certificates(certificate)?;
        let expiry = chain.first().and_then(|first| validity::not_after(first));
        if expiry.is_some_and(|expiry| expiry <= now()) {
            return Err(Error::Expired { path: certificate.clone() });
        }
        let private = private_key(key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(certificate, "certificate", &error))?;
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path)? {
                    roots.add(authority).map_err(|error| invalid(path, "certificate", &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| invalid(path, "certificate", &error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config =
            builder.with_single_cert(chain, private).map_err(|error| invalid(key, "private key", &error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        EXPIRY.store(expiry.unwrap_or_default(), Ordering::Relaxed);
        Ok(Arc::new(config))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let pem = read(path)?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| invalid(path, "certificate", &error))?;
    if found.is_empty() { Err(Error::Empty { path: path.to_owned(), wanted: "certificate" }) } else { Ok(found) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    use rustls::pki_types::pem::Error as Pem;
    match PrivateKeyDer::from_pem_slice(&read(path)?) {
        Ok(key) => Ok(key),
        Err(Pem::NoItemsFound) => Err(Error::Empty { path: path.to_owned(), wanted: "private key" }),
        // The error could quote what it could not read.
        Err(_) => {
            Err(Error::Invalid { path: path.to_owned(), wanted: "private key", why: "it is not valid PEM".to_owned() })
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

fn invalid(path: &Path, wanted: &'static str, why: &dyn std::fmt::Display) -> Error {
    Error::Invalid { path: path.to_owned(), wanted, why: why.to_string() }
}
