//! The registry of a request.

use prost_types::value::Kind;
use switchyard_proto::v1;

use super::Mistakes;
use crate::registry::form::{Form, Model};
use crate::registry::{Address, Chart, Port, Protocol, Registrant};

pub(super) fn form(registry: v1::Registry, mistakes: &mut Mistakes) -> Form {
    let v1::Registry { registrants, models, default_registrant } = registry;
    let registrants = registrants.into_iter().enumerate().map(|(index, registrant)| {
        let v1::Registrant { name, kind, host, port, protocol } = registrant;
        let protocol = match v1::AdapterProtocol::try_from(protocol) {
            Ok(v1::AdapterProtocol::Unspecified | v1::AdapterProtocol::Auto) => Protocol::Auto,
            Ok(v1::AdapterProtocol::Provision) => Protocol::Provision,
            Ok(v1::AdapterProtocol::ProcessOam) => Protocol::ProcessOam,
            Err(_) => {
                let field = format!("registry.registrants[{index}].protocol");
                mistakes.add(field, format!("there is no protocol {protocol}"));
                Protocol::Auto
            }
        };
        Registrant { name, kind, address: Address::new(&host, &self::port(port)), protocol }
    });
    let registrants = registrants.collect();
    let models = models.into_iter().map(|model| {
        let v1::Model { name, version, registrant, chart, is_annotation } = model;
        let chart = chart.map(|v1::Chart { url, version, namespace }| Chart { url, version, namespace });
        Model { name, version, registrant, chart, is_annotation }
    });
    Form { registrants, models: models.collect(), default_registrant }
}

fn port(port: Option<prost_types::Value>) -> Port {
    match port.and_then(|value| value.kind) {
        None | Some(Kind::NullValue(_)) => Port::Absent,
        Some(Kind::NumberValue(number)) => Port::Number(number.to_string()),
        Some(Kind::StringValue(text)) => Port::Text(text),
        Some(_) => Port::Other,
    }
}
