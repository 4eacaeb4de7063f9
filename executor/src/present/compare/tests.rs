use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Paths of the fields that are not held.
fn paths(declared: &Value, object: &Value) -> Vec<String> {
    differences(declared, object).into_iter().map(|it| it.path).collect()
}

#[track_caller]
fn assert_held(declared: &Value, object: &Value) {
    assert_eq!(paths(declared, object), Vec::<String>::new());
}

#[test]
fn what_is_added_is_no_difference_and_what_is_missing_or_other_is() {
    let declared = json!({"spec": {"replicas": 3, "paused": true, "template": {"spec": {"nodeName": "a"}}}});
    let object = json!({
        "metadata": {"uid": "u"},
        "spec": {"replicas": 2, "revisionHistoryLimit": 10, "template": {"spec": {"dnsPolicy": "ClusterFirst"}}},
        "status": {"replicas": 2},
    });
    let found = differences(&declared, &object);
    let told = tell(&found, str::to_owned);
    let told: Vec<_> =
        told.iter().map(|it| (it.path.as_str(), it.before.text.as_str(), it.after.text.as_str())).collect();
    let expected =
        [("spec.replicas", "2", "3"), ("spec.paused", "", "true"), ("spec.template.spec.nodeName", "", "\"a\"")];
    assert_eq!(told, expected);
}

#[test]
fn values_are_compared_and_not_their_spelling() {
    let declared = json!({"spec": {
        "limits": {"memory": "1024Mi", "cpu": 0.5, "storage": "1Gi"},
        "port": "80", "weight": 1.0, "at": "2026-11-30T12:00:00+01:00", "caBundle": "YWJj\nZGVm\n",
    }});
    let object = json!({"spec": {
        "limits": {"memory": "1Gi", "cpu": "500m", "storage": "1Gi"},
        "port": 80, "weight": 1, "at": "2026-11-30T11:00:00Z", "caBundle": "YWJjZGVm",
    }});
    assert_held(&declared, &object);
}

#[test]
fn text_is_text_where_it_is_no_quantity() {
    for field in ["data", "annotations", "args", "selector"] {
        let with = |text: &str| json!({"spec": {field: {"a": text}}});
        assert_eq!(paths(&with("1024Mi"), &with("1Gi")), [format!("spec.{field}.a")]);
    }
    let env = |text: &str| json!({"spec": {"env": [{"name": "a", "value": text}]}});
    assert_eq!(paths(&env("1024Mi"), &env("1Gi")), ["spec.env[0].value"]);
    assert_eq!(paths(&json!({"data": {"a": "x\n"}}), &json!({"data": {"a": "x"}})), ["data.a"]);
}

#[test]
fn zero_values_need_not_be_stored_unless_their_absence_means_something_else() {
    let declared = json!({"spec": {
        "hostNetwork": false, "hostname": "", "priority": 0, "resources": {"limits": {}}, "volumes": [], "a": null,
    }});
    assert_held(&declared, &json!({"spec": {}}));
    assert_held(&declared, &json!({}));
    let declared = json!({"spec": {"automountServiceAccountToken": false, "replicas": 0}});
    assert_eq!(paths(&declared, &json!({"spec": {}})), ["spec.automountServiceAccountToken", "spec.replicas"]);
    let declared = json!({"spec": {"hostNetwork": false, "priority": 0, "ingress": []}});
    let object = json!({"spec": {"hostNetwork": true, "priority": 7, "ingress": [{}]}});
    assert_eq!(paths(&declared, &object), ["spec.hostNetwork", "spec.priority", "spec.ingress"]);
}

#[test]
fn items_with_a_key_are_found_among_those_of_others_and_keep_their_order() {
    let declared = json!({"spec": {"containers": [
        {"name": "web", "image": "b", "ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}]},
        {"name": "log"},
    ]}});
    let object = |first: &str, second: &str| {
        let of = |name: &str| {
            json!({"name": name, "image": "a", "ports": [
            {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}]})
        };
        json!({"spec": {"containers": [{"name": "proxy"}, of(first), of(second)]}})
    };
    assert_eq!(paths(&declared, &object("web", "log")), ["spec.containers[0].image"]);
    let expected = ["spec.containers[0].image", "spec.containers"];
    assert_eq!(paths(&declared, &object("log", "web")), expected, "another order");
    assert_eq!(paths(&declared, &object("web", "old")), ["spec.containers[0].image", "spec.containers[1]"]);
}

#[test]
fn items_without_a_key_of_their_own_are_compared_by_position() {
    let rules = |hosts: &[&str]| json!({"spec": {"rules": hosts, "env": hosts.iter().map(|_| json!({"name": "a"})).collect::<Vec<_>>()}});
    assert_held(&rules(&["a", "b"]), &rules(&["a", "b"]));
    assert_eq!(paths(&rules(&["a", "b"]), &rules(&["b", "a"])), ["spec.rules[0]", "spec.rules[1]"]);
    assert_eq!(paths(&rules(&["a"]), &rules(&["a", "b"])), ["spec.rules", "spec.env"]);
}

#[test]
fn lists_that_others_add_to_hold_what_is_declared() {
    let object = json!({
        "metadata": {"finalizers": ["a", "b"]},
        "spec": {"tolerations": [{"key": "x", "operator": "Exists"}, {"key": "y"}], "policyTypes": ["Ingress"]},
    });
    let declared =
        json!({"metadata": {"finalizers": ["b"]}, "spec": {"tolerations": [{"key": "x"}], "policyTypes": []}});
    assert_held(&declared, &object);
    let declared = json!({"metadata": {"finalizers": ["b", "c"]}, "spec": {"policyTypes": ["Egress"]}});
    assert_eq!(paths(&declared, &object), ["metadata.finalizers[1]", "spec.policyTypes[0]"]);
}

#[test]
fn secrets_are_compared_as_they_are_stored_and_string_data_wins() {
    let object = json!({"kind": "Secret", "data": {"a": "eA==", "b": "eQ=="}});
    let secret = |data: Value, string_data: Value| json!({"kind": "Secret", "data": data, "stringData": string_data});
    assert_held(&secret(json!({"a": "bm8=", "b": "eQ=="}), json!({"a": "x"})), &object);
    assert_eq!(
        paths(&secret(json!({"b": "eg=="}), json!({"a": "z", "c": "z"})), &object),
        ["data.b", "stringData.a", "stringData.c"]
    );
}

#[test]
fn what_the_server_and_the_engine_keep_is_not_compared() {
    let declared = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "status": {"a": 1},
        "metadata": {
            "name": "a", "uid": "old", "resourceVersion": "1", "labels": {"app": "a"},
            "annotations": {"design.meshery.io/version": "1", "deployment.kubernetes.io/revision": "3", "own": "x"},
        },
    });
    let object =
        json!({"metadata": {"uid": "new", "labels": {"app": "b"}, "annotations": {"design.meshery.io/version": "2"}}});
    assert_eq!(paths(&declared, &object), ["metadata.labels.app", "metadata.annotations.own"]);
}

#[test]
fn values_are_masked_where_they_are_told() {
    let (declared, object) = (json!({"spec": {"pin": "canary"}}), json!({"spec": {"pin": "other"}}));
    let told = tell(&differences(&declared, &object), |text| text.replace("canary", "[redacted]"));
    assert_eq!((told[0].before.text.as_str(), told[0].after.text.as_str()), ("\"other\"", "\"[redacted]\""));
}

/// Values that are no zero values, so that each leaf counts.
fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(true)),
        (1_i64..1000).prop_map(Value::from),
        "[a-z]{1,8}".prop_map(Value::from),
        Just(json!("1024Mi")),
    ]
}

fn tree() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}|data|env|ports|containers", inner, 1..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn object(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec})
}

/// What an API server and a controller may add anywhere: fields, never values.
fn with_additions(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut map: Map<_, _> = map.iter().map(|(key, value)| (key.clone(), with_additions(value))).collect();
            map.insert("zzAdded".into(), json!({"by": "others"}));
            map.into()
        }
        Value::Array(items) => items.iter().map(with_additions).collect(),
        leaf => leaf.clone(),
    }
}

/// Changes the leaf number `at`, counted in order. False if there are not so many.
fn change(value: &mut Value, at: &mut usize) -> bool {
    match value {
        Value::Object(map) => map.values_mut().any(|value| change(value, at)),
        Value::Array(items) => items.iter_mut().any(|value| change(value, at)),
        leaf if *at == 0 => {
            *leaf = json!("Changed");
            true
        }
        _ => {
            *at -= 1;
            false
        }
    }
}

proptest! {
    #[test]
    fn an_object_holds_itself_whatever_is_added(spec in tree()) {
        let declared = object(spec);
        let mut stored = with_additions(&declared);
        prop_assert_eq!(paths(&declared, &declared), Vec::<String>::new());
        prop_assert_eq!(paths(&declared, &stored), Vec::<String>::new());
        stored["status"] = json!({"ready": true});
        prop_assert_eq!(paths(&declared, &stored), Vec::<String>::new());
    }

    #[test]
    fn a_leaf_that_changed_is_told(spec in tree(), at in 0_usize..40) {
        let declared = object(spec);
        let mut stored = with_additions(&declared);
        let mut at = at;
        if change(&mut stored["spec"], &mut at) && stored != with_additions(&declared) {
            let changed_what_is_declared = {
                let mut own = declared.clone();
                let before = own.clone();
                prune_to(&mut own["spec"], &stored["spec"]);
                own != before
            };
            prop_assert_eq!(!paths(&declared, &stored).is_empty(), changed_what_is_declared);
        }
    }

    #[test]
    fn any_two_values_are_compared(a in tree(), b in tree()) {
        let (a, b) = (object(a), object(b));
        let found = differences(&a, &b);
        prop_assert!(found.len() <= MOST);
        if a == b {
            prop_assert!(found.is_empty());
        }
    }
}

/// Takes over the leaves of `from` that stand where `value` has some.
fn prune_to(value: &mut Value, from: &Value) {
    match (value, from) {
        (Value::Object(map), Value::Object(from)) => {
            map.iter_mut().for_each(|(key, value)| prune_to(value, &from[key]))
        }
        (Value::Array(items), Value::Array(from)) => {
            items.iter_mut().zip(from).for_each(|(value, from)| prune_to(value, from))
        }
        (value, from) => *value = from.clone(),
    }
}
