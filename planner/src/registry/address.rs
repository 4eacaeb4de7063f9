//! Where a registrant's adapter is, if it has one (S2, D1).

use std::fmt;
use std::net::Ipv6Addr;

/// Where a registrant's adapter is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// There is no adapter: the path is direct.
    None,
    /// An adapter listens here.
    At {
        /// Name or IP address, IPv6 without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// There is a port, and nothing that could be dialled (S17).
    Unusable {
        /// What was given, without credentials.
        given: String,
        /// Host as it was given, without credentials; may be empty.
        host: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// A port as a registry gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Port {
    /// Not there, or null.
    Absent,
    /// A number, as it was written.
    Number(String),
    /// Text.
    Text(String),
    /// A value that is neither.
    Other,
}

impl Address {
    /// How many bytes its texts have.
    pub fn bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::At { host, .. } => host.len(),
            Self::Unusable { given, host, .. } => given.len() + host.len(),
        }
    }

    /// The address of a registrant, or why it is not usable.
    pub fn new(host: &str, port: &Port) -> Self {
        let number = match port {
            Port::Absent => return Self::None,
            Port::Number(text) => number(text),
            Port::Text(text) => text.bytes().all(|b| b.is_ascii_digit()).then(|| number(text)).flatten(),
            Port::Other => None,
        };
        let host_shown = without_credentials(host);
        let unusable = |why| Self::Unusable { given: shown(&host_shown, port), host: host_shown.clone(), why };
        let port = match number {
            None => return unusable("the port is no number"),
            Some(0) => return unusable("port 0 cannot be dialled"),
            Some(port) => match u16::try_from(port) {
                Ok(port) => port,
                Err(_) => return unusable("the port is above 65535"),
            },
        };
        match host_name(host) {
            Ok(host) => Self::At { host, port },
            Err(why) => unusable(why),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::At { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::At { host, port } => write!(f, "{host}:{port}"),
            Self::Unusable { given, .. } => f.write_str(given),
        }
    }
}

/// A whole number, also written like `10099.0` or `1e4`. What is beyond every port is some number beyond it.
fn number(text: &str) -> Option<u64> {
    let value: f64 = text.parse().ok().filter(|value: &f64| value.is_finite())?;
    // Negative ports are as little a number of a port as text is.
    (value.fract() == 0.0 && value >= 0.0).then_some(value.min(1e9) as u64)
}

fn host_name(host: &str) -> Result<String, &'static str> {
    if host.is_empty() {
        return Err("there is a port and no host");
    }
    if host.contains(char::is_whitespace) {
        return Err("the host has spaces in it");
    }
    if host.contains("://") {
        return Err("the host has a scheme; give the name alone");
    }
    if host.contains('@') {
        return Err("the host has credentials in it; give the name alone");
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if bare.parse::<Ipv6Addr>().is_ok() {
        return Ok(bare.to_owned());
    }
    if host.contains(':') {
        return Err("the host has a port in it; give the name alone");
    }
    if host.len() > 253 || !host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')) {
        return Err("the host is no name and no IP address");
    }
    Ok(host.to_owned())
}

fn without_credentials(host: &str) -> String {
    let host: String = host.chars().take(253).filter(|c| !c.is_control()).collect();
    match host.rsplit_once('@') {
        Some((_, host)) => format!("***@{host}"),
        None => host,
    }
}

fn shown(host: &str, port: &Port) -> String {
    let port: String = match port {
        Port::Absent => String::new(),
        Port::Number(text) | Port::Text(text) => text.chars().take(32).filter(|c| !c.is_control()).collect(),
        Port::Other => "?".into(),
    };
    format!("{host}:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_d1_says() {
        let number = |text: &str| Port::Number(text.into());
        let text = |text: &str| Port::Text(text.into());
        let table = [
            ("mesh", Port::Absent, "none"),
            ("", Port::Absent, "none"),
            ("mesh", number("10099"), "mesh:10099"),
            ("mesh", number("10099.0"), "mesh:10099"),
            ("mesh", text("10099"), "mesh:10099"),
            ("10.0.0.1", number("1"), "10.0.0.1:1"),
            ("::1", number("65535"), "[::1]:65535"),
            ("[::1]", number("65535"), "[::1]:65535"),
            ("my_adapter.svc", number("80"), "my_adapter.svc:80"),
        ];
        for (host, port, expected) in table {
            let address = Address::new(host, &port);
            assert!(!matches!(address, Address::Unusable { .. }), "{host} {port:?}");
            assert_eq!(address.to_string(), expected);
        }
        let unusable = [
            ("", number("80")),
            ("mesh", number("0")),
            ("mesh", number("65536")),
            ("mesh", number("1e99")),
            ("mesh", number("-1")),
            ("mesh", number("80.5")),
            ("mesh", text("http")),
            ("mesh", text("")),
            ("mesh", text(" 80")),
            ("mesh", text("0")),
            ("mesh", Port::Other),
            ("my mesh", number("80")),
            (" mesh", number("80")),
            ("http://mesh", number("80")),
            ("mesh:80", number("80")),
            ("mesh/path", number("80")),
        ];
        for (host, port) in unusable {
            assert!(matches!(Address::new(host, &port), Address::Unusable { .. }), "{host} {port:?}");
        }
    }

    #[test]
    fn credentials_in_a_host_are_not_shown() {
        let address = Address::new("user:canary@mesh", &Port::Number("80".into()));
        assert!(!format!("{address} {address:?}").contains("canary"));
    }
}
