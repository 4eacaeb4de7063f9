//! Objects at random, of the kinds people use, as people write them: some with every default spelt out, some with the least.

use serde_json::{Map, Value, json};

use super::Server;
use crate::dice::Dice;

/// An object, and where it lies.
pub(super) struct Drawn {
    pub(super) object: Value,
    /// Of its group version, such as `/apis/apps/v1`.
    pub(super) root: String,
    pub(super) path: String,
    pub(super) has_scale: bool,
}

impl Drawn {
    pub(super) fn api_version(&self) -> &str {
        self.object["apiVersion"].as_str().unwrap()
    }
}

/// Fields of which each may be there or not.
fn some(dice: &mut Dice, fields: Value) -> Value {
    let Value::Object(fields) = fields else { panic!("fields") };
    fields.into_iter().filter(|_| dice.percent(60)).collect()
}

fn list(dice: &mut Dice, most: usize, mut item: impl FnMut(&mut Dice, usize) -> Value) -> Value {
    // Without any, a list is seldom written down.
    (0..dice.below(most) + usize::from(dice.percent(95))).map(|ix| item(dice, ix)).collect()
}

fn merged(mut base: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("fields") };
    base.as_object_mut().unwrap().extend(more);
    base
}

fn container(dice: &mut Dice, name: &str) -> Value {
    let env = list(dice, 4, |dice, ix| {
        let name = format!("VARIABLE_{ix}");
        match dice.below(9) {
            0 => json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
            1 => json!({"name": name, "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}),
            2 => json!({"name": name, "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b", "optional": true}}}),
            _ => json!({"name": name, "value": format!("value-{}", dice.below(3))}),
        }
    });
    let ports = list(dice, 3, |dice, ix| {
        let port = json!({"containerPort": 8000 + ix});
        let spelt_out = json!({"protocol": *dice.one_of(&["TCP", "UDP"]), "name": format!("port-{ix}")});
        merged(port, some(dice, spelt_out))
    });
    let mounts = list(dice, 2, |dice, ix| {
        let mount = json!({"name": format!("volume-{ix}"), "mountPath": format!("/mnt/{ix}")});
        merged(mount, some(dice, json!({"readOnly": true})))
    });
    let cpu = dice
        .one_of(&[json!("100m"), json!("250m"), json!("1"), json!("2"), json!("0.5"), json!(1), json!(0.5)])
        .clone();
    let memory = *dice.one_of(&["64Mi", "128Mi", "512Mi", "1Gi", "2Gi", "1024Mi"]);
    let probe = json!({"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 5});
    let optional = json!({
        "args": ["--verbose", "--level", "2"],
        "command": ["/bin/run"],
        "env": env,
        "envFrom": [{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}],
        "imagePullPolicy": "IfNotPresent",
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
        "livenessProbe": probe,
        "ports": ports,
        "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}},
        "securityContext": {"runAsNonRoot": true, "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "SYS_TIME"]}},
        "volumeMounts": mounts,
    });
    merged(json!({"name": name, "image": format!("example/{name}:1")}), some(dice, optional))
}

fn pod(dice: &mut Dice, restart: Option<&str>) -> Value {
    let count = 1 + dice.below(3);
    let containers: Value = (0..count).map(|ix| container(dice, &format!("container-{ix}"))).collect();
    let init = list(dice, 2, |dice, ix| {
        let mut init = container(dice, &format!("init-{ix}"));
        // Of those that come to an end an API server takes neither.
        for field in ["lifecycle", "livenessProbe"] {
            fields(&mut init).shift_remove(field);
        }
        init
    });
    let mut volumes =
        vec![json!({"name": "volume-0", "emptyDir": {}}), json!({"name": "volume-1", "configMap": {"name": "a"}})];
    if dice.percent(40) {
        volumes.push(json!({"name": "volume-2", "projected": {"sources": [
            {"configMap": {"name": "a", "items": [{"key": "b", "path": "c"}]}}, {"secret": {"name": "d"}}]}}));
    }
    let optional = json!({
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}}]}},
        "dnsConfig": {"nameservers": ["10.0.0.10"], "options": [{"name": "ndots", "value": "2"}]},
        "hostAliases": [{"ip": "10.1.1.1", "hostnames": ["a", "b"]}],
        "imagePullSecrets": [{"name": "one"}, {"name": "two"}],
        "initContainers": init,
        "nodeSelector": {"disk": "ssd"},
        "securityContext": {"fsGroup": 1000, "sysctls": [{"name": "a.b", "value": "1"}]},
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Equal", "value": "c"}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "a"}}}],
    });
    let spec = merged(json!({"containers": containers, "volumes": volumes}), some(dice, optional));
    let spec = match restart {
        Some(restart) => merged(spec, json!({"restartPolicy": restart})),
        None => spec,
    };
    json!({"metadata": {"labels": {"app": "a"}, "annotations": {"checksum/config": "4711"}}, "spec": spec})
}

fn workload(dice: &mut Dice, own: Value, optional: Value) -> Value {
    let optional = some(dice, optional);
    let spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": pod(dice, None)});
    json!({"spec": merged(merged(spec, own), optional)})
}

fn texts(dice: &mut Dice, most: usize) -> Value {
    let count = dice.below(most + 1);
    (0..count).map(|ix| (format!("key-{ix}.txt"), json!(format!("line {}\nline 2\n", dice.below(3))))).collect()
}

/// A kind's name, where it is served, and its plural.
type Kind = (&'static str, &'static str, &'static str);

const GADGET: Kind = ("Gadget", "/apis/proof.example/v1", "gadgets");

fn drawn_kind(dice: &mut Dice) -> (Kind, Value) {
    match dice.below(20) {
        0..3 => {
            let strategy = match dice.below(2) {
                0 => json!({"type": "Recreate"}),
                _ => json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}),
            };
            let optional = json!({"replicas": dice.below(3), "strategy": strategy, "revisionHistoryLimit": 3});
            (("Deployment", "/apis/apps/v1", "deployments"), workload(dice, json!({}), optional))
        }
        3 => {
            let claim = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": *dice.one_of(&["1Gi", "1024Mi"])}}}}]);
            let optional = json!({"replicas": 2, "volumeClaimTemplates": claim, "podManagementPolicy": "Parallel"});
            (("StatefulSet", "/apis/apps/v1", "statefulsets"), workload(dice, json!({"serviceName": "a"}), optional))
        }
        4 => (("DaemonSet", "/apis/apps/v1", "daemonsets"), workload(dice, json!({}), json!({"minReadySeconds": 1}))),
        5 | 6 => {
            let count = 1 + dice.below(3);
            let port = |dice: &mut Dice, ix| {
                let port = json!({"port": 80 + ix, "name": format!("port-{ix}")});
                let target = dice.one_of(&[json!(8080), json!("http")]).clone();
                let protocol = *dice.one_of(&["TCP", "UDP"]);
                merged(port, some(dice, json!({"protocol": protocol, "targetPort": target})))
            };
            let ports: Value = (0..count).map(|ix| port(dice, ix)).collect();
            let optional = json!({"type": *dice.one_of(&["ClusterIP", "NodePort"]), "sessionAffinity": "None",
                "externalIPs": ["192.0.2.1"], "selector": {"app": "a", "tier": "b"}});
            (("Service", "/api/v1", "services"), json!({"spec": merged(json!({"ports": ports}), some(dice, optional))}))
        }
        7 | 8 => {
            let optional = json!({"data": texts(dice, 4), "binaryData": {"a": "AAEC"}, "immutable": false});
            (("ConfigMap", "/api/v1", "configmaps"), some(dice, optional))
        }
        9 => {
            let raw = if dice.percent(30) { json!({"stringData": texts(dice, 2)}) } else { json!({}) };
            let optional = some(dice, json!({"data": {"user": "YQ==", "password": "Yg=="}, "type": "Opaque"}));
            (("Secret", "/api/v1", "secrets"), merged(optional, raw))
        }
        10 => {
            let path = |dice: &mut Dice, ix: usize| {
                json!({"path": format!("/{ix}"), "pathType": *dice.one_of(&["Prefix", "Exact"]),
                    "backend": {"service": {"name": "a", "port": {"number": 80}}}})
            };
            let paths: Value = (0..1 + dice.below(3)).map(|ix| path(dice, ix)).collect();
            let optional = json!({"ingressClassName": "nginx", "tls": [{"hosts": ["a.example"], "secretName": "b"}]});
            let spec = json!({"rules": [{"host": "a.example", "http": {"paths": paths}}]});
            let spec = merged(spec, some(dice, optional));
            (("Ingress", "/apis/networking.k8s.io/v1", "ingresses"), json!({"spec": spec}))
        }
        11 => {
            let rule = |dice: &mut Dice, _| {
                let verbs = *dice.one_of(&[&["get"][..], &["get", "list", "watch"]]);
                json!({"apiGroups": ["", "apps"], "resources": ["pods", "deployments"], "verbs": verbs})
            };
            (("Role", "/apis/rbac.authorization.k8s.io/v1", "roles"), json!({"rules": list(dice, 3, rule)}))
        }
        12 => {
            let subject = |_: &mut Dice, ix| json!({"kind": "User", "name": format!("user-{ix}"), "apiGroup": "rbac.authorization.k8s.io"});
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"});
            let binding = json!({"roleRef": role, "subjects": list(dice, 3, subject)});
            (("RoleBinding", "/apis/rbac.authorization.k8s.io/v1", "rolebindings"), binding)
        }
        13 => {
            let optional = json!({
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "b"}}}], "ports": [{"port": 80}]}],
                "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}, {}],
            });
            let spec = merged(json!({"podSelector": {"matchLabels": {"app": "a"}}}), some(dice, optional));
            (("NetworkPolicy", "/apis/networking.k8s.io/v1", "networkpolicies"), json!({"spec": spec}))
        }
        14 => {
            let metric = json!({"type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}});
            let optional = json!({"minReplicas": 1, "metrics": [metric],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}});
            let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
            let spec = merged(json!({"maxReplicas": 3, "scaleTargetRef": target}), some(dice, optional));
            let kind = ("HorizontalPodAutoscaler", "/apis/autoscaling/v2", "horizontalpodautoscalers");
            (kind, json!({"spec": spec}))
        }
        15 => {
            let least = dice.one_of(&[json!(1), json!("50%")]).clone();
            let optional = some(dice, json!({"minAvailable": least, "unhealthyPodEvictionPolicy": "AlwaysAllow"}));
            let spec = merged(json!({"selector": {"matchLabels": {"app": "a"}}}), optional);
            (("PodDisruptionBudget", "/apis/policy/v1", "poddisruptionbudgets"), json!({"spec": spec}))
        }
        16 => {
            let optional = json!({"backoffLimit": 3, "suspend": true, "completions": 1, "ttlSecondsAfterFinished": 60});
            let spec = merged(json!({"template": pod(dice, Some("Never"))}), some(dice, optional));
            (("Job", "/apis/batch/v1", "jobs"), json!({"spec": spec}))
        }
        17 => {
            let optional = json!({"concurrencyPolicy": "Forbid", "suspend": false, "successfulJobsHistoryLimit": 1});
            let job = json!({"spec": {"template": pod(dice, Some("OnFailure"))}});
            let spec = merged(json!({"schedule": "*/5 * * * *", "jobTemplate": job}), some(dice, optional));
            (("CronJob", "/apis/batch/v1", "cronjobs"), json!({"spec": spec}))
        }
        _ => (GADGET, json!({"spec": gadget(dice)})),
    }
}

fn gadget(dice: &mut Dice) -> Value {
    let parts = list(dice, 4, |dice, ix| {
        merged(json!({"name": format!("part-{ix}")}), some(dice, json!({"size": ix, "on": true})))
    });
    let doors = list(dice, 3, |dice, ix| {
        let key = json!({"port": ix + 1});
        let protocol = *dice.one_of(&["TCP", "UDP"]);
        merged(key, some(dice, json!({"protocol": protocol, "note": "x"})))
    });
    let tags: Value = ["red", "green", "blue"].into_iter().filter(|_| dice.percent(60)).collect();
    let groups = json!({"a": {"members": ["x", "y"], "level": 1}, "b": {}});
    let optional = json!({
        "parts": parts, "doors": doors, "tags": tags, "steps": ["one", "two", "one"], "whole": {"a": "b", "c": "d"},
        "groups": groups, "free": {"any": [{"x": 1}, {"y": [true]}], "text": "z"}, "weight": 0.5, "count": 3, "either": *dice.one_of(&[1, 2]),
    });
    some(dice, optional)
}

pub(super) fn object(dice: &mut Dice, namespace: &str, name: &str) -> Drawn {
    let ((kind, root, plural), rest) = drawn_kind(dice);
    let group_version = root.trim_start_matches("/apis/").trim_start_matches("/api/");
    let mut annotations = json!({"design.meshery.io/version": "0.0.1", "component.meshery.io/id": name});
    if dice.percent(30) {
        annotations["example.com/note"] = json!("text");
    }
    let labels = merged(json!({"design.meshery.io/id": "design"}), some(dice, json!({"app": "a", "tier": "b"})));
    let mut metadata = json!({"name": name, "namespace": namespace, "labels": labels, "annotations": annotations});
    if dice.percent(10) {
        metadata["finalizers"] = json!(["example.com/one", "example.com/two"]);
    }
    let object = merged(json!({"apiVersion": group_version, "kind": kind, "metadata": metadata}), rest);
    Drawn {
        object,
        path: format!("{root}/namespaces/{namespace}/{plural}/{name}"),
        root: root.into(),
        has_scale: matches!(kind, "Deployment" | "StatefulSet"),
    }
}

/// Defines a kind whose lists and maps are owned in every way there is.
pub(super) async fn define(server: &Server) {
    let (kind, _, plural) = GADGET;
    let map = |properties: Value| json!({"type": "object", "properties": properties});
    let text = || json!({"type": "string"});
    let number = || json!({"type": "integer"});
    let list_map = |keys: &[&str], mut item: Value| {
        item["required"] = json!([keys[0]]);
        json!({"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys})
    };
    let door = map(json!({"port": number(), "protocol": {"type": "string", "default": "TCP"}, "note": text()}));
    let member =
        map(json!({"members": {"type": "array", "items": text(), "x-kubernetes-list-type": "set"}, "level": number()}));
    let spec = map(json!({
        "parts": list_map(&["name"], map(json!({"name": text(), "size": number(), "on": {"type": "boolean", "default": false}}))),
        "doors": list_map(&["port", "protocol"], door),
        "tags": {"type": "array", "items": text(), "x-kubernetes-list-type": "set"},
        "steps": {"type": "array", "items": text()},
        "whole": {"type": "object", "additionalProperties": text(), "x-kubernetes-map-type": "atomic"},
        "groups": {"type": "object", "additionalProperties": member},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "weight": {"type": "number"},
        "count": {"type": "integer", "default": 1},
        "either": {"x-kubernetes-int-or-string": true},
        "filled": {"type": "object", "default": {}, "properties": {"in": {"type": "string", "default": "here"}}},
    }));
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.proof.example"},
        "spec": {
            "group": "proof.example", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": "gadget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": map(json!({"spec": spec}))}}],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    server.ask("POST", path, "application/json", &definition).await.expect("the definition is taken");
    let deadline = tokio::time::Instant::now() + crate::world::LIMIT;
    loop {
        let schemas = server.get("/openapi/v3").await;
        let is_known = schemas.is_some_and(|it| it["paths"]["apis/proof.example/v1"].is_object());
        let collection = format!("/apis/proof.example/v1/namespaces/{}/{plural}", server.namespace);
        if is_known && server.get(&collection).await.is_some() {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "the definition is not served");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Fields of a map.
pub(super) fn fields(value: &mut Value) -> &mut Map<String, Value> {
    value.as_object_mut().expect("a map")
}
