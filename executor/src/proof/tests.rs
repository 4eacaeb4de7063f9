use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const MANAGER: &str = "switchyard/design";

/// Lists with a key, with the value that an API server fills in for the last key field; everything below `selector` and `args` is
/// owned as a whole, and `finalizers` is a set.
const KEYED: [(&str, &[&str], Option<&str>); 4] = [
    ("containers", &["name"], None),
    ("env", &["name"], None),
    ("ports", &["containerPort", "protocol"], Some("TCP")),
    ("servicePorts", &["port", "protocol"], Some("TCP")),
];

/// The set of fields that an apply of this value owns, as an API server writes it.
fn owned(field: &str, value: &Value) -> Value {
    let keyed = KEYED.iter().find(|(name, ..)| *name == field);
    match value {
        Value::Object(map) if !map.is_empty() && field != "selector" => {
            map.iter().map(|(key, value)| (format!("f:{key}"), owned(key, value))).collect()
        }
        Value::Array(items) if field == "finalizers" => {
            items.iter().map(|item| (format!("v:{item}"), json!({}))).collect()
        }
        Value::Array(items) if let Some((_, names, default)) = keyed => {
            let item = |item: &Value| {
                let of = |name: &&&str| item.get(**name).cloned().or(default.map(Value::from)).unwrap();
                let key: Value = names.iter().map(|name| (name.to_string(), of(&name))).collect();
                let mut below = owned("", item);
                below[walk::ITSELF] = json!({});
                (format!("k:{key}"), below)
            };
            items.iter().map(item).collect()
        }
        _ => json!({}),
    }
}

/// An object as our last apply left it, and what is applied now.
struct Case {
    stamped: Stamped,
    object: Value,
}

impl Case {
    fn new(manifest: Value) -> Self {
        Self::under("schema", manifest)
    }

    fn under(schema: &str, manifest: Value) -> Self {
        let stamped = Stamp::new(&Bytes::from(manifest.to_string())).unwrap().put(schema);
        let mut object: Value = serde_json::from_slice(&stamped.manifest).unwrap();
        let mut fields = owned("", &object);
        let top = fields.as_object_mut().unwrap();
        top.shift_remove("f:apiVersion");
        top.shift_remove("f:kind");
        let metadata = top["f:metadata"].as_object_mut().unwrap();
        metadata.shift_remove("f:name");
        metadata.shift_remove("f:namespace");
        object["metadata"]["managedFields"] = json!([
            {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
                "subresource": "status", "fieldsV1": {"f:status": {"f:replicas": {}}}},
            {"manager": MANAGER, "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields},
        ]);
        object["metadata"]["uid"] = json!("4711");
        object["status"] = json!({"replicas": 2});
        Self { stamped, object }
    }

    fn edit(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.object);
        self
    }

    /// Our entry's fields.
    fn edit_fields(self, edit: impl FnOnce(&mut Value)) -> Self {
        self.edit(|object| edit(&mut object["metadata"]["managedFields"][1]["fieldsV1"]))
    }

    fn verdict(&self) -> Result<(), Unproven> {
        prove(&Wanted { manager: MANAGER, api_version: "apps/v1", stamped: &self.stamped }, &self.object)
    }
}

fn web() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "shop", "labels": {"design.meshery.io/id": "design"},
            "annotations": {"design.meshery.io/version": "0.0.1", "component.meshery.io/id": "web"},
            "finalizers": ["a/b", "c/d"],
        },
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"spec": {
                "containers": [
                    {
                        "name": "web", "image": "web:1", "args": ["-v", "1"],
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}],
                        "ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}, {"containerPort": 80}],
                        "resources": {"limits": {"memory": "1Gi"}},
                    },
                    {"name": "side", "image": "side:1"},
                ],
                "volumes": {"scratch": {"emptyDir": {}}},
            }},
        },
    })
}

/// With what an API server fills in.
fn deployed() -> Case {
    Case::new(web()).edit(|object| {
        object["spec"]["progressDeadlineSeconds"] = json!(600);
        let spec = &mut object["spec"]["template"]["spec"];
        spec["restartPolicy"] = json!("Always");
        let container = &mut spec["containers"][0];
        container["imagePullPolicy"] = json!("IfNotPresent");
        for port in container["ports"].as_array_mut().unwrap() {
            port.as_object_mut().unwrap().entry("protocol").or_insert(json!("TCP"));
        }
    })
}

fn containers(object: &mut Value) -> &mut Value {
    &mut object["spec"]["template"]["spec"]["containers"]
}

const CONTAINERS: &str = "/f:spec/f:template/f:spec/f:containers";

fn fields_of<'a>(fields: &'a mut Value, path: &str) -> &'a mut Map<String, Value> {
    let pointer = format!("{CONTAINERS}{path}");
    fields.pointer_mut(&pointer).unwrap_or_else(|| panic!("no {pointer}")).as_object_mut().unwrap()
}

#[test]
fn what_is_as_it_was_applied_is_proven_whatever_the_api_server_filled_in() {
    assert_eq!(deployed().verdict(), Ok(()));
    // An entry's time can be absent, and is not looked at.
    let later = deployed().edit(|it| it["metadata"]["managedFields"][1]["time"] = json!("2030-01-01T00:00:00Z"));
    assert_eq!(later.verdict(), Ok(()));
}

#[test]
fn another_version_of_the_design_alone_is_no_reason_to_write() {
    let mut case = deployed();
    let mut next = web();
    next["metadata"]["annotations"]["design.meshery.io/version"] = json!("0.0.2");
    case.stamped = Stamp::new(&Bytes::from(next.to_string())).unwrap().put("schema");
    assert_eq!(case.verdict(), Ok(()));
    next["spec"]["replicas"] = json!(3);
    case.stamped = Stamp::new(&Bytes::from(next.to_string())).unwrap().put("schema");
    assert_eq!(case.verdict(), Err(Unproven::OtherManifest));
}

#[test]
fn items_that_another_reordered_are_not_proven_though_no_managed_field_tells() {
    let env = deployed().edit(|object| containers(object)[0]["env"].as_array_mut().unwrap().reverse());
    assert_eq!(env.verdict(), Err(Unproven::Order));
    let set = deployed().edit(|object| object["metadata"]["finalizers"].as_array_mut().unwrap().reverse());
    assert_eq!(set.verdict(), Err(Unproven::Order));
    // Those of others in between are theirs.
    let more = deployed().edit(|object| {
        containers(object)[0]["env"].as_array_mut().unwrap().insert(1, json!({"name": "C"}));
        object["metadata"]["finalizers"].as_array_mut().unwrap().insert(0, json!("e/f"));
    });
    assert_eq!(more.verdict(), Ok(()));
}

#[test]
fn a_field_that_was_edited_and_restored_is_not_proven_since_it_is_ours_no_more() {
    let edited = deployed().edit_fields(|it| _ = fields_of(it, "/k:{\"name\":\"web\"}").shift_remove("f:image"));
    assert_eq!(edited.verdict(), Err(Unproven::Ownership));
    let item = deployed().edit_fields(|it| _ = fields_of(it, "").shift_remove("k:{\"name\":\"side\"}"));
    assert_eq!(item.verdict(), Err(Unproven::Ownership));
    // Made anew by another who left the image to us.
    let anew = deployed().edit_fields(|it| _ = fields_of(it, "/k:{\"name\":\"side\"}").shift_remove(walk::ITSELF));
    assert_eq!(anew.verdict(), Err(Unproven::Ownership));
    let set = deployed().edit_fields(|it| {
        it["f:metadata"]["f:finalizers"].as_object_mut().unwrap().shift_remove("v:\"a/b\"");
    });
    assert_eq!(set.verdict(), Err(Unproven::Ownership));
}

#[test]
fn a_field_of_ours_that_admission_rewrote_on_anothers_write_is_not_proven() {
    let rewritten = deployed().edit(|object| containers(object)[1]["image"] = json!("mirror/side:1"));
    assert_eq!(rewritten.verdict(), Err(Unproven::Value));
    let gone = deployed().edit(|object| _ = object["spec"].as_object_mut().unwrap().shift_remove("replicas"));
    assert_eq!(gone.verdict(), Err(Unproven::Value));
    let whole = deployed().edit(|object| object["spec"]["selector"]["matchLabels"]["more"] = json!("1"));
    assert_eq!(whole.verdict(), Err(Unproven::Value), "what is owned as a whole is compared as a whole");
}

#[test]
fn raw_string_data_is_not_proven_whatever_data_holds() {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"key": "value"}});
    for stored in ["dmFsdWU=", "ZWRpdGVk"] {
        let case = Case::new(secret.clone()).edit(|object| {
            let object = object.as_object_mut().unwrap();
            object.shift_remove("stringData");
            object.insert("data".into(), json!({"key": stored}));
            object["metadata"]["managedFields"][1]["apiVersion"] = json!("apps/v1");
        });
        assert_eq!(case.verdict(), Err(Unproven::Value));
    }
}

#[test]
fn a_definition_that_has_changed_makes_all_of_its_objects_unproven() {
    // A map may be owned as a whole since, or a field be dropped: the object and its managed fields do not show it.
    let mut case = deployed();
    case.stamped = Stamp::new(&Bytes::from(web().to_string())).unwrap().put("schema with an atomic map");
    assert_eq!(case.verdict(), Err(Unproven::OtherManifest));
}

#[test]
fn a_field_that_another_set_through_scale_is_not_proven() {
    let scaled = |replicas: u32| {
        let entry = json!({"manager": MANAGER, "operation": "Update", "apiVersion": "apps/v1", "subresource": "scale",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        deployed().edit_fields(|fields| _ = fields["f:spec"].as_object_mut().unwrap().shift_remove("f:replicas")).edit(
            |object| {
                object["spec"]["replicas"] = json!(replicas);
                object["metadata"]["managedFields"].as_array_mut().unwrap().push(entry);
            },
        )
    };
    assert_eq!(scaled(5).verdict(), Err(Unproven::Ownership));
    assert_eq!(scaled(2).verdict(), Err(Unproven::Ownership), "and back again");
}

#[test]
fn cleared_and_forged_managed_fields_prove_nothing() {
    for cleared in [json!([]), json!([{}]), json!(null)] {
        let case = deployed().edit(|object| object["metadata"]["managedFields"] = cleared);
        assert_eq!(case.verdict(), Err(Unproven::NoEntry));
    }
    let second = deployed().edit(|object| {
        let entries = object["metadata"]["managedFields"].as_array_mut().unwrap();
        let mut forged = entries[1].clone();
        forged["fieldsV1"]["f:spec"]["f:replicas"] = json!({});
        entries.push(forged);
    });
    assert_eq!(second.verdict(), Err(Unproven::NoEntry));
    let set = |key: &'static str, value: &'static str| {
        deployed().edit(move |object| object["metadata"]["managedFields"][1][key] = json!(value)).verdict()
    };
    assert_eq!(set("operation", "Update"), Err(Unproven::NoEntry));
    assert_eq!(set("subresource", "status"), Err(Unproven::NoEntry));
    assert_eq!(set("manager", "switchyard/other"), Err(Unproven::NoEntry));
    assert_eq!(set("fieldsType", "FieldsV2"), Err(Unproven::NoEntry));
    // More than the manifest has: applying would give it up, and remove it if nobody else wants it.
    let more = deployed().edit_fields(|fields| fields["f:spec"]["f:paused"] = json!({}));
    assert_eq!(more.verdict(), Err(Unproven::Ownership));
    for odd in ["i:0", "k:0", "k:{\"name\":null}", "v:\"web\"", "f:web", "x"] {
        let odd = deployed().edit_fields(|fields| {
            let items = fields_of(fields, "");
            let side = items.shift_remove("k:{\"name\":\"side\"}").unwrap();
            items.insert(odd.into(), side);
        });
        assert!(odd.verdict().is_err());
    }
    let annotation = deployed().edit(|object| object["metadata"]["annotations"][APPLIED] = json!("forged"));
    assert_eq!(annotation.verdict(), Err(Unproven::OtherManifest));
    let copied = deployed().edit_fields(|fields| {
        fields["f:metadata"]["f:annotations"].as_object_mut().unwrap().shift_remove("f:switchyard.dev/applied");
    });
    assert_eq!(copied.verdict(), Err(Unproven::Ownership), "the annotation has to be ours");
}

#[test]
fn a_second_writer_with_equal_values_does_no_harm() {
    let shared = deployed().edit(|object| {
        let entries = object["metadata"]["managedFields"].as_array_mut().unwrap();
        let mut entry = entries[1].clone();
        entry["manager"] = json!("kubectl");
        entries.push(entry);
    });
    assert_eq!(shared.verdict(), Ok(()));
}

#[test]
fn quantities_in_another_spelling_are_not_proven() {
    let memory = |object: &mut Value| containers(object)[0]["resources"]["limits"]["memory"] = json!("1024Mi");
    assert_eq!(deployed().edit(memory).verdict(), Err(Unproven::Value));
}

#[test]
fn an_object_that_was_applied_in_another_version_is_not_proven() {
    let case = deployed().edit(|it| it["metadata"]["managedFields"][1]["apiVersion"] = json!("apps/v1beta2"));
    assert_eq!(case.verdict(), Err(Unproven::OtherVersion));
}

#[test]
fn nulls_and_floats_are_not_proven() {
    for (value, held) in [(json!(0.5), json!("500m")), (json!(0.5), json!(0.5)), (json!(null), json!(null))] {
        let mut manifest = web();
        containers(&mut manifest)[0]["resources"]["limits"]["cpu"] = value.clone();
        let case = Case::new(manifest).edit(|object| containers(object)[0]["resources"]["limits"]["cpu"] = held).edit(
            |object| {
                for port in containers(object)[0]["ports"].as_array_mut().unwrap() {
                    port.as_object_mut().unwrap().entry("protocol").or_insert(json!("TCP"));
                }
            },
        );
        assert_eq!(case.verdict(), Err(Unproven::Incomparable), "{value}");
    }
}

#[test]
fn what_is_being_deleted_is_not_proven() {
    let case = deployed().edit(|it| it["metadata"]["deletionTimestamp"] = json!("2026-12-01T00:00:00Z"));
    assert_eq!(case.verdict(), Err(Unproven::BeingDeleted));
    let case = deployed().edit(|it| it["metadata"]["deletionTimestamp"] = json!(null));
    assert_eq!(case.verdict(), Ok(()));
}

#[test]
fn a_key_field_that_is_left_out_fits_one_item_that_it_was_filled_in_for() {
    // The manifest means 53/TCP, and another has listed the protocol of the only candidate as ours.
    let listed = deployed().edit_fields(|fields| {
        let path = "/k:{\"name\":\"web\"}/f:ports/k:{\"containerPort\":53,\"protocol\":\"TCP\"}";
        fields_of(fields, path).insert("f:protocol".into(), json!({}));
    });
    assert_eq!(listed.verdict(), Err(Unproven::Ownership));
    // Two candidates.
    let two = deployed().edit_fields(|fields| {
        let path = "/k:{\"name\":\"web\"}/f:ports/k:{\"containerPort\":53,\"protocol\":\"UDP\"}";
        fields_of(fields, path).shift_remove("f:protocol");
    });
    assert_eq!(two.verdict(), Err(Unproven::Ownership));
    // The item is there twice, or not at all.
    let twice = deployed().edit(|object| {
        let ports = containers(object)[0]["ports"].as_array_mut().unwrap();
        ports.push(json!({"containerPort": 80, "protocol": "TCP"}));
    });
    assert_eq!(twice.verdict(), Err(Unproven::Order));
    let gone = deployed().edit(|object| _ = containers(object)[0]["ports"].as_array_mut().unwrap().pop());
    assert_eq!(gone.verdict(), Err(Unproven::Order));
}

#[test]
fn items_without_order_or_key_are_compared_as_a_whole() {
    let args = deployed().edit(|object| containers(object)[0]["args"].as_array_mut().unwrap().reverse());
    assert_eq!(args.verdict(), Err(Unproven::Value));
    let more = deployed().edit(|object| containers(object)[0]["args"].as_array_mut().unwrap().push(json!("x")));
    assert_eq!(more.verdict(), Err(Unproven::Value));
    let filled = deployed().edit(|object| {
        object["spec"]["template"]["spec"]["volumes"]["scratch"]["emptyDir"]["medium"] = json!("Memory")
    });
    assert_eq!(filled.verdict(), Err(Unproven::Value), "an empty map is ours as it is");
}

/// Long lists cost no more than their length.
#[test]
fn ten_thousand_items_are_matched_by_key() {
    let items: Vec<_> = (0..10_000).map(|ix| json!({"port": ix})).collect();
    let mut manifest = web();
    manifest["spec"]["servicePorts"] = json!(items);
    let case = Case::new(manifest).edit(|object| {
        for port in object["spec"]["servicePorts"].as_array_mut().unwrap() {
            port["protocol"] = json!("TCP");
        }
        for port in containers(object)[0]["ports"].as_array_mut().unwrap() {
            port.as_object_mut().unwrap().entry("protocol").or_insert(json!("TCP"));
        }
    });
    assert_eq!(case.verdict(), Ok(()));
}

/// Every place in a value, as JSON pointers.
fn places(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![(String::new(), value)];
    while let Some((path, value)) = pending.pop() {
        let below = |key: &str| format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
        match value {
            Value::Object(map) => pending.extend(map.iter().map(|(key, value)| (below(key), value))),
            Value::Array(items) => {
                pending.extend(items.iter().enumerate().map(|(ix, value)| (below(&ix.to_string()), value)));
            }
            _ => {}
        }
        found.push(path);
    }
    found.sort_unstable();
    found
}

proptest! {
    /// Whatever one thing is changed of manifest or entry, the object is not proven any more.
    #[test]
    fn one_change_to_what_we_own_is_always_seen(pick in any::<prop::sample::Index>(), in_fields in any::<bool>()) {
        let case = deployed();
        let manifest = places(&serde_json::from_slice(&case.stamped.manifest).unwrap());
        let fields = places(&case.object["metadata"]["managedFields"][1]["fieldsV1"]);
        let case = if in_fields {
            let place = pick.get(&fields[1..]);
            case.edit_fields(|fields| {
                // A map without members is none.
                let mut rest = place.as_str();
                while let Some((parent, key)) = rest.rsplit_once('/') {
                    let below = fields.pointer_mut(parent).unwrap().as_object_mut().unwrap();
                    below.shift_remove(&key.replace("~1", "/").replace("~0", "~"));
                    if !below.is_empty() {
                        break;
                    }
                    rest = parent;
                }
            })
        } else {
            let is_ours = |place: &&String| {
                let of_no_entry = ["", "/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];
                !of_no_entry.contains(&place.as_str()) && !place.ends_with("meshery.io~1version")
            };
            let ours: Vec<_> = manifest.iter().filter(is_ours).collect();
            let place = pick.get(&ours);
            case.edit(|object| *object.pointer_mut(place).unwrap() = json!("another"))
        };
        prop_assert!(case.verdict().is_err());
    }
}
