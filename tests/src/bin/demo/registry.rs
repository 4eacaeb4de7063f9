//! Who stands behind the models of the example design.

use std::net::SocketAddr;

use anyhow::Context as _;
use serde_json::Value;

/// The registry as it lies in the repository: everything is carried out by the executor itself.
pub(crate) const TEXT: &str = include_str!("../../../examples/registry.yaml");
/// The registrant that an adapter can stand for, and the model behind which it stands.
pub(crate) const MESH: &str = "mesh";

/// Returns the same registry with an adapter in it, at this address.
pub(crate) fn with_adapter(address: SocketAddr) -> anyhow::Result<String> {
    let mut registry: Value = serde_saphyr::from_str(TEXT).context("the example's registry is no YAML")?;
    let registrants = registry["registrants"].as_array_mut().into_iter().flatten();
    let mesh = registrants.into_iter().find(|registrant| registrant["name"] == MESH);
    let mesh = mesh.with_context(|| format!("the example's registry has no registrant {MESH}"))?;
    mesh["host"] = address.ip().to_string().into();
    mesh["port"] = address.port().into();
    Ok(registry.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapter_is_put_into_the_registry_and_nothing_else_is_changed() {
        let with = with_adapter("127.0.0.1:10000".parse().unwrap()).unwrap();
        let mut with: Value = serde_json::from_str(&with).unwrap();
        let mesh = with["registrants"][1].as_object_mut().unwrap();
        assert_eq!((mesh.remove("host"), mesh.remove("port")), (Some("127.0.0.1".into()), Some(10000.into())));
        assert_eq!(with, serde_saphyr::from_str::<Value>(TEXT).unwrap());
    }
}
