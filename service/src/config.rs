//! The flags that both programs have, and the types of their values.
//!
//! Every flag has an environment variable `SWITCHYARD_<FLAG>`; a flag on the command line wins. A flag that is not
//! carried out yet is refused with a sentence, never ignored.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use clap::ValueEnum;
use http::HeaderValue;
use tracing_subscriber::EnvFilter;

/// What tells one program from the other.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// The name of the binary, which is also its `service.name`.
    pub name: &'static str,
    /// The version, as in `env!("CARGO_PKG_VERSION")`.
    pub version: &'static str,
    /// The default of `--listen`.
    pub listen: &'static str,
}

/// The flags common to the planner and the executor. Flatten it into the program's own `Args`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Serving")]
pub struct ServeArgs {
    /// Address and port to listen on. Port 0 lets the kernel choose.
    // The default differs between the programs: `program::parse_from` fills it in.
    #[arg(long, env = "SWITCHYARD_LISTEN", value_name = "ADDR:PORT", value_parser = address)]
    pub listen: SocketAddr,

    /// File to write the address in use to, once the port is open. Default: none.
    #[arg(long, env = "SWITCHYARD_PORT_FILE", value_name = "PATH")]
    pub port_file: Option<PathBuf>,

    /// PEM file with the server's certificate chain, read again when it changes. Default: none, which means plaintext.
    #[arg(long, env = "SWITCHYARD_TLS_CERT", value_name = "PATH", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file with the private key of --tls-cert, read again when it changes. Default: none.
    #[arg(long, env = "SWITCHYARD_TLS_KEY", value_name = "PATH", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// PEM file with the authorities that clients' certificates must come from; with it, clients must show one (mutual
    /// TLS). Read again when it changes. Default: none, which lets every client in.
    #[arg(long, env = "SWITCHYARD_TLS_CLIENT_CA", value_name = "PATH", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,

    /// Permits a --listen address that is not loopback without TLS: whoever reaches it can deploy, and can read what is
    /// sent. Permits a --metrics-listen address that is not loopback, too.
    #[arg(long, env = "SWITCHYARD_INSECURE_LISTEN")]
    pub insecure_listen: bool,

    /// How long a drain may take after the first signal, such as 30s or 2m.
    #[arg(long, env = "SWITCHYARD_GRACE_PERIOD", value_name = "DURATION", default_value_t)]
    pub grace_period: GracePeriod,

    /// Form of log lines. Default: text on a terminal, json otherwise.
    #[arg(long, env = "SWITCHYARD_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// Which log lines to write: a level, or directives such as `info,switchyard_executor=debug`.
    #[arg(long, env = "SWITCHYARD_LOG", value_name = "FILTER", default_value_t)]
    pub log: LogFilter,

    /// Address and port for Prometheus to read /metrics from, in plaintext; port 0 lets the kernel choose. An
    /// address that is not loopback needs --insecure-listen. Default: off.
    #[arg(long, env = "SWITCHYARD_METRICS_LISTEN", value_name = "ADDR:PORT", value_parser = address)]
    pub metrics_listen: Option<SocketAddr>,

    /// Largest message that is read, in bytes or with a unit such as 16MiB.
    #[arg(long, env = "SWITCHYARD_MAX_MESSAGE_BYTES", value_name = "BYTES", default_value_t)]
    pub max_message_bytes: ByteSize,

    /// Bytes that all requests together may hold, in what they sent and what came of it, or with a unit such as 512MiB; a request
    /// that finds no room is refused and may come again. One request is given at most as much as it leaves to others, so never
    /// more than half. The process takes up to twice as much.
    #[arg(long, env = "SWITCHYARD_MAX_HELD_BYTES", value_name = "BYTES", default_value = "1GiB")]
    pub max_held_bytes: ByteSize,

    /// Origins of pages that may call with gRPC-Web, such as `https://deploy.example.com`, comma-separated. Pages speak HTTP/2 over TLS
    /// only. Default: none, and gRPC-Web is refused.
    #[arg(long, env = "SWITCHYARD_GRPC_WEB_ORIGINS", value_name = "ORIGIN", value_delimiter = ',', value_parser = origin)]
    pub grpc_web_origins: Vec<HeaderValue>,

    /// Connections at once. Default: half of the files that the process may open, at most 4096.
    #[arg(long, env = "SWITCHYARD_MAX_CONNECTIONS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_connections: Option<u16>,

    /// Connections at once from one address (one /64 of IPv6). Default: half of --max-connections.
    #[arg(long, env = "SWITCHYARD_MAX_CONNECTIONS_PER_PEER", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_connections_per_peer: Option<u16>,

    /// How long a connection may have no call open before it is told to go; 0s: for ever.
    #[arg(long, env = "SWITCHYARD_MAX_CONNECTION_IDLE", value_name = "DURATION", default_value = "30m", value_parser = duration)]
    pub max_connection_idle: Duration,

    /// How old a connection may get before it is told to go; calls that are open go on to their end. 0s: as old as it likes.
    #[arg(long, env = "SWITCHYARD_MAX_CONNECTION_AGE", value_name = "DURATION", default_value = "2h", value_parser = duration)]
    pub max_connection_age: Duration,
}

impl ServeArgs {
    /// Says how many bytes a message may have, in the form tonic's generated servers want it.
    pub fn max_message_bytes(&self) -> usize {
        self.max_message_bytes.bytes()
    }

    /// Says how long a drain may take.
    pub fn grace_period(&self) -> Duration {
        self.grace_period.0
    }

    /// Refuses what the flags ask for and the program cannot or may not do.
    ///
    /// # Errors
    ///
    /// When the listen address is open to others and nothing permits that.
    pub fn check(&self) -> Result<(), Error> {
        self.check_address(self.listen)?;
        match self.metrics_listen {
            Some(address) if !self.insecure_listen && !is_loopback(address) => Err(Error::MetricsOpenToAll { address }),
            _ => Ok(()),
        }
    }

    /// Refuses to listen on `address` if that would let anyone in.
    pub(crate) fn check_address(&self, address: SocketAddr) -> Result<(), Error> {
        let guarded = self.tls_cert.is_some() || self.insecure_listen;
        if guarded || is_loopback(address) { Ok(()) } else { Err(Error::OpenToAll { address }) }
    }
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Why a command line is refused although every flag of it could be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Anyone on the network could deploy.
    #[error("--listen {address} is not loopback: give --tls-cert and --tls-key, or --insecure-listen for plaintext")]
    OpenToAll {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// Metrics are served in plaintext, whatever the calls are.
    #[error("--metrics-listen {address} is not loopback: give --insecure-listen, as metrics are served in plaintext")]
    MetricsOpenToAll {
        /// The address that was asked for.
        address: SocketAddr,
    },
}

/// How long a drain may take. Default 30 s: what Kubernetes gives a pod between SIGTERM and SIGKILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GracePeriod(pub Duration);

impl Default for GracePeriod {
    fn default() -> Self {
        Self(Duration::from_secs(30))
    }
}

impl FromStr for GracePeriod {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        duration(text).map(Self)
    }
}

impl fmt::Display for GracePeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Which log lines are written, in the syntax of `tracing_subscriber::EnvFilter`. Default `info`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(String);

impl LogFilter {
    pub(crate) fn to_env_filter(&self) -> EnvFilter {
        // It was parsed before it was stored; `new` would skip what it cannot read instead of failing.
        EnvFilter::new(&self.0)
    }
}

impl Default for LogFilter {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        EnvFilter::try_new(text).map_err(|error| error.to_string())?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A number of bytes. Default 16 MiB: larger than any design seen, small enough that a few at once fit in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Says how many bytes these are.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

const UNITS: [(&str, u64); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

impl Default for ByteSize {
    fn default() -> Self {
        Self(16 << 20)
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, unit) = UNITS
            .iter()
            .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?.trim_end(), *unit)))
            .unwrap_or((text, 1));
        let number: u64 =
            number.parse().map_err(|_| "want a whole number of bytes, or one with a unit such as 16MiB")?;
        match number.checked_mul(unit) {
            None => Err("more bytes than there can be".to_owned()),
            Some(0) => Err("want at least one byte".to_owned()),
            Some(bytes) => Ok(Self(bytes)),
        }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = UNITS[..3].iter().rev().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        match binary {
            Some((suffix, unit)) => write!(f, "{}{suffix}", self.0 / unit),
            None => self.0.fmt(f),
        }
    }
}

/// Reads an address and a port. Names are not looked up: which of their addresses is meant would be a guess.
fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "want an IP address and a port, such as 127.0.0.1:7001 or [::1]:7001")
}

/// Reads the origin of a page as browsers write it. `*` is none: whoever can call can deploy.
fn origin(text: &str) -> Result<HeaderValue, &'static str> {
    let wrong = "want the origin of a page, such as https://deploy.example.com, without a path";
    let uri: http::Uri = text.parse().map_err(|_| wrong)?;
    let written = match (uri.scheme_str(), uri.authority()) {
        (Some(scheme @ ("https" | "http")), Some(authority)) => format!("{scheme}://{authority}"),
        _ => return Err(wrong),
    };
    if written == text { HeaderValue::from_str(text).map_err(|_| wrong) } else { Err(wrong) }
}

/// Reads a duration such as `30s`, `1m 30s` or `500ms`; use it as clap's `value_parser`.
///
/// # Errors
///
/// When the text is no duration, or lacks its unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

/// Reads a number of bytes such as `16MiB` or `4096`; use it as clap's `value_parser`.
///
/// # Errors
///
/// When the text is no whole number of bytes, or zero.
pub fn byte_size(text: &str) -> Result<ByteSize, String> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_unit() {
        let read = |text: &str| text.parse::<ByteSize>().map(|size| size.0);
        assert_eq!(read("4096"), Ok(4096));
        assert_eq!(read("16MiB"), Ok(16 << 20));
        assert_eq!(read("2 kB"), Ok(2_000));
        assert!(read("0").is_err());
        assert!(read("many").is_err());
        assert!(read("99999999999999999999").is_err());
        assert!(read("18446744073709551615GiB").is_err());
    }

    #[test]
    fn origins_are_those_that_browsers_send() {
        for text in ["https://deploy.example.com", "http://localhost:3000", "https://[::1]:8443"] {
            assert_eq!(origin(text).unwrap(), text);
        }
        for text in
            ["*", "", "null", "deploy.example.com", "https://a.example/", "https://a.example/b", "ftp://a.example"]
        {
            assert!(origin(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_print_as_they_are_read() {
        for text in ["16MiB", "3KiB", "1025", "7GiB"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
        }
    }
}
