//! Component + registrant -> direct or adapter, or why neither (S1, S2, S3, S6).

use crate::problem::quoted;
use crate::registry::{Address, NearMisses, Protocol, Registrant};

/// Who carries a component out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// The executor applies the object itself.
    Direct,
    /// An adapter provisions it.
    Adapter {
        /// The adapter's host.
        host: String,
        /// The adapter's port; 0 when the address is not usable and the run is dry.
        port: u16,
        /// How the adapter is asked.
        protocol: Protocol,
    },
}

/// A registrant whose address cannot be dialled (S17).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unusable {
    /// The registrant's name.
    pub registrant: String,
    /// What its address is, without credentials.
    pub address: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl Route {
    /// The route to a registrant. The registrant's kind plays no part (S2). An address that is not usable gives a route
    /// nobody can take beside the reason: in a dry run it is only a warning (D21).
    pub fn to(registrant: &Registrant) -> (Self, Option<Unusable>) {
        let Registrant { name, address, protocol, .. } = registrant;
        match address {
            Address::None => (Self::Direct, None),
            Address::At { host, port } => {
                (Self::Adapter { host: host.clone(), port: *port, protocol: *protocol }, None)
            }
            Address::Unusable { given, host, why } => {
                let unusable = Unusable { registrant: name.clone(), address: given.clone(), why };
                (Self::Adapter { host: host.clone(), port: 0, protocol: *protocol }, Some(unusable))
            }
        }
    }
}

/// Why a model leads to no registrant, and what to do (S6).
pub fn no_registrant(near: &mut NearMisses<'_>, model: &str, version: &str) -> String {
    if model.is_empty() {
        return "it names no model, so no registrant stands behind it; give it a `model`".into();
    }
    let model_quoted = quoted(model);
    let listed: Vec<_> = near.registries.versions(model).take(5).map(quoted).collect();
    if !listed.is_empty() {
        return format!(
            "no registrant stands behind model {model_quoted} version {}; the registry lists {} under different \
             registrants, so the version must be one of them",
            quoted(version),
            listed.join(", ")
        );
    }
    match near.find(model) {
        Some(near) => format!(
            "no registrant stands behind model {model_quoted}; did you mean {}? Otherwise add the model to the registry",
            quoted(near)
        ),
        None => format!("no registrant stands behind model {model_quoted}; add the model to the registry"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Port;

    #[test]
    fn the_port_decides_and_the_kind_does_not() {
        for kind in ["kubernetes", "artifacthub", "github", "meshery", "", "anything"] {
            let registrant = |host, port: Port| Registrant {
                kind: kind.into(),
                address: Address::new(host, &port),
                ..Registrant::named("r")
            };
            assert_eq!(Route::to(&registrant("mesh", Port::Absent)), (Route::Direct, None));
            let adapter = Route::Adapter { host: "mesh".into(), port: 80, protocol: Protocol::Auto };
            assert_eq!(Route::to(&registrant("mesh", Port::Number("80".into()))), (adapter, None));
            let (_, unusable) = Route::to(&registrant("", Port::Number("80".into())));
            let expected =
                Unusable { registrant: "r".into(), address: ":80".into(), why: "there is a port and no host" };
            assert_eq!(unusable, Some(expected));
        }
    }
}
