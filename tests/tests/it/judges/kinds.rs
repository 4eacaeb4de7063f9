//! One object of each kind that people use, several times over, with the fields that people fill in.

use serde_json::{Map, Value, json};

/// How many there are of each kind.
const COPIES: usize = 7;

/// What the objects of one test are called after.
pub(super) struct Names {
    /// Of its own, since some objects lie in no namespace.
    pub(super) tag: String,
    pub(super) namespace: String,
    /// For what limits everything else in its namespace.
    pub(super) limited: String,
}

/// Definitions, which have to be there before what they define.
pub(super) fn definitions(names: &Names) -> Vec<Value> {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer", "default": 3},
            "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "weight": {"type": "number"}},
                      "required": ["name"]}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}});
    let definition = |scope: &str, plural: &str, kind: &str| {
        let group = format!("{}.example", names.tag);
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}"), "labels": {"app": "large"}},
            "spec": {"group": group, "scope": scope,
                     "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind},
                     "versions": [
                        {"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}},
                         "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]},
                        {"name": "v1beta1", "served": true, "storage": false, "deprecated": true, "schema": schema},
                     ]},
        })
    };
    vec![definition("Namespaced", "gadgets", "Gadget"), definition("Cluster", "engines", "Engine")]
}

/// Everything else.
pub(super) fn objects(names: &Names) -> Vec<Value> {
    let group = format!("{}.example/v1", names.tag);
    let mut all = Vec::new();
    for copy in 0..COPIES {
        let mut add = |api_version: &str, kind: &str, metadata: Value, rest: Value| {
            let mut object = Map::from_iter([
                ("apiVersion".to_owned(), json!(api_version)),
                ("kind".to_owned(), json!(kind)),
                ("metadata".to_owned(), metadata),
            ]);
            object.extend(rest.as_object().cloned().unwrap_or_default());
            all.push(Value::Object(object));
        };
        let named = |kind: &str| format!("{}-{copy}", kind.to_lowercase());
        let in_namespace = |namespace: &str, kind: &str| {
            json!({"name": named(kind), "namespace": namespace, "labels": {"app.kubernetes.io/name": "large", "copy": copy.to_string()},
                   "annotations": {"example.com/note": format!("copy {copy}: \"quoted\", 100 % – and ünïcode")}})
        };
        for (api_version, kind, rest) in namespaced(copy) {
            add(api_version, kind, in_namespace(&names.namespace, kind), rest);
        }
        for (api_version, kind, rest) in limits() {
            add(api_version, kind, in_namespace(&names.limited, kind), rest);
        }
        for (api_version, kind, rest) in cluster_scoped(copy) {
            let name = format!("{}-{}", named(kind), names.tag);
            add(api_version, kind, json!({"name": name, "labels": {"copy": copy.to_string()}}), rest);
        }
        let spec = json!({"spec": {"parts": [{"name": "b", "weight": 0.5}, {"name": "a"}], "anything": {"deep": [1, {"x": null}]}}});
        add(&group, "Gadget", in_namespace(&names.namespace, "Gadget"), spec);
        let name = format!("{}-{}", named("Engine"), names.tag);
        add(&group, "Engine", json!({"name": name}), json!({"spec": {"size": copy}}));
    }
    all
}

/// The template of pods, with what people write into it.
fn pods(copy: usize) -> Value {
    json!({
        "metadata": {"labels": {"app": format!("app-{copy}")}, "annotations": {"prometheus.io/scrape": "true"}},
        "spec": {
            "serviceAccountName": format!("serviceaccount-{copy}"), "terminationGracePeriodSeconds": 10,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "initContainers": [{"name": "init", "image": "busybox:1", "command": ["sh", "-c", "echo $HOME && true"]}],
            "containers": [{
                "name": "app", "image": format!("app:1.{copy}"), "args": ["--level", "debug"],
                "ports": [{"name": "http", "containerPort": 8080}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}],
                "env": [
                    {"name": "PLAIN", "value": "yes"}, {"name": "EMPTY", "value": ""},
                    {"name": "FROM_SECRET", "valueFrom": {"secretKeyRef": {"name": format!("secret-{copy}"), "key": "password"}}},
                    {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
                "envFrom": [{"configMapRef": {"name": format!("configmap-{copy}"), "optional": true}}],
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "0.5", "memory": "128Mi"}},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
                "livenessProbe": {"tcpSocket": {"port": 8080}, "initialDelaySeconds": 3},
                "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
                "volumeMounts": [{"name": "settings", "mountPath": "/etc/app", "readOnly": true}, {"name": "tmp", "mountPath": "/tmp"}],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }, {"name": "sidecar", "image": "sidecar"}],
            "volumes": [
                {"name": "settings", "projected": {"sources": [{"configMap": {"name": format!("configmap-{copy}")}}]}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "10Mi"}},
            ],
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": format!("app-{copy}")}}}}]}},
            "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "large", "effect": "NoSchedule"}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
                                           "labelSelector": {"matchLabels": {"app": format!("app-{copy}")}}}],
        },
    })
}

fn job(copy: usize) -> Value {
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "job", "image": format!("job:{copy}"), "command": ["true"]}]});
    json!({"backoffLimit": 2, "ttlSecondsAfterFinished": 600, "template": {"metadata": {"labels": {"job": "large"}}, "spec": spec}})
}

type Kinds = Vec<(&'static str, &'static str, Value)>;

fn namespaced(copy: usize) -> Kinds {
    let selector = json!({"matchLabels": {"app": format!("app-{copy}")}});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "slow", "resources": {"requests": {"storage": "1Gi"}}});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": format!("deployment-{copy}")});
    let utilization = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}});
    let subject = json!([{"kind": "ServiceAccount", "name": format!("serviceaccount-{copy}"), "namespace": "default"}]);
    let backend = json!({"service": {"name": format!("service-{copy}"), "port": {"name": "http"}}});
    vec![
        (
            "v1",
            "ConfigMap",
            json!({"data": {"app.yaml": "a: 1\nb:\n  - two\n", "empty": "", "number": "0123", "long": "x".repeat(4000)},
                                   "binaryData": {"blob": "AAECAwQ="}}),
        ),
        ("v1", "Secret", json!({"type": "Opaque", "data": {"password": "aHVudGVyMg=="}, "stringData": {"user": "me"}})),
        (
            "v1",
            "ServiceAccount",
            json!({"automountServiceAccountToken": false, "imagePullSecrets": [{"name": "pull"}]}),
        ),
        (
            "v1",
            "Service",
            json!({"spec": {"type": "NodePort", "selector": {"app": format!("app-{copy}")},
                                          "ports": [{"name": "http", "port": 80, "targetPort": "http"},
                                                    {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53}]}}),
        ),
        ("v1", "Endpoints", json!({"subsets": [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]})),
        ("v1", "PersistentVolumeClaim", json!({"spec": claim})),
        ("v1", "Pod", json!({"spec": pods(copy)["spec"]})),
        ("v1", "PodTemplate", json!({"template": pods(copy)})),
        (
            "v1",
            "ReplicationController",
            json!({"spec": {"replicas": 1, "selector": {"app": format!("app-{copy}")}, "template": pods(copy)}}),
        ),
        (
            "apps/v1",
            "Deployment",
            json!({"spec": {"replicas": 3, "selector": selector, "template": pods(copy), "revisionHistoryLimit": 3,
                                                  "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}}}),
        ),
        (
            "apps/v1",
            "StatefulSet",
            json!({"spec": {"replicas": 2, "serviceName": "stateful", "selector": selector, "template": pods(copy),
                                                   "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}]}}),
        ),
        ("apps/v1", "DaemonSet", json!({"spec": {"selector": selector, "template": pods(copy)}})),
        ("apps/v1", "ReplicaSet", json!({"spec": {"replicas": 1, "selector": selector, "template": pods(copy)}})),
        ("batch/v1", "Job", json!({"spec": job(copy)})),
        (
            "batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "*/5 * * * *", "suspend": true, "concurrencyPolicy": "Forbid",
                                                "jobTemplate": {"spec": job(copy)}}}),
        ),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5,
                                                                      "metrics": [utilization]}}),
        ),
        ("policy/v1", "PodDisruptionBudget", json!({"spec": {"minAvailable": "50%", "selector": selector}})),
        (
            "networking.k8s.io/v1",
            "NetworkPolicy",
            json!({"spec": {"podSelector": selector, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"namespaceSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}],
                         "ports": [{"port": 80, "protocol": "TCP"}]}], "egress": [{}]}}),
        ),
        (
            "networking.k8s.io/v1",
            "Ingress",
            json!({"spec": {"ingressClassName": "nginx", "tls": [{"hosts": ["a.example"], "secretName": "tls"}],
            "rules": [{"host": "a.example", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]}}),
        ),
        (
            "discovery.k8s.io/v1",
            "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.4"],
            "conditions": {"ready": true}}], "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}),
        ),
        (
            "coordination.k8s.io/v1",
            "Lease",
            json!({"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 15}}),
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "Role",
            json!({"rules": [{"apiGroups": ["", "apps"], "resources": ["pods", "deployments/scale"],
                                                                   "verbs": ["get", "list"], "resourceNames": ["some"]}]}),
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
                                                                           "name": format!("role-{copy}")}, "subjects": subject}),
        ),
    ]
}

/// What would change other objects of its namespace, or refuse them.
fn limits() -> Kinds {
    vec![
        (
            "v1",
            "LimitRange",
            json!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "1", "memory": "1Gi"},
                                                         "defaultRequest": {"cpu": "0.1"}}]}}),
        ),
        ("v1", "ResourceQuota", json!({"spec": {"hard": {"requests.cpu": "10", "count/configmaps": "100"}}})),
    ]
}

fn cluster_scoped(copy: usize) -> Kinds {
    let nothing = json!([{"apiGroups": ["nothing.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}]);
    let webhook = json!([{"name": "hook.nothing.example", "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": nothing,
                          "clientConfig": {"service": {"name": "hook", "namespace": "default", "path": "/check"}}}]);
    let account = json!([{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]);
    let volume = json!({"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "slow",
                        "persistentVolumeReclaimPolicy": "Retain", "nfs": {"server": "nfs.example", "path": "/data"}});
    vec![
        ("v1", "PersistentVolume", json!({"spec": volume})),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["watch"]},
                                                                         {"nonResourceURLs": ["/healthz"], "verbs": ["get"]}]}),
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            json!({"subjects": account, "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "some"}}),
        ),
        (
            "storage.k8s.io/v1",
            "StorageClass",
            json!({"provisioner": "example.com/nobody", "volumeBindingMode": "WaitForFirstConsumer",
                                                     "parameters": {"type": "slow"}, "allowVolumeExpansion": true}),
        ),
        (
            "storage.k8s.io/v1",
            "CSIDriver",
            json!({"spec": {"attachRequired": false, "volumeLifecycleModes": ["Ephemeral"]}}),
        ),
        ("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 1000 + copy, "description": "for some"})),
        ("node.k8s.io/v1", "RuntimeClass", json!({"handler": "sandboxed"})),
        ("networking.k8s.io/v1", "IngressClass", json!({"spec": {"controller": "example.com/ingress"}})),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", json!({"webhooks": webhook})),
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", json!({"webhooks": webhook})),
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicy",
            json!({"spec": {
            "matchConstraints": {"resourceRules": nothing}, "validations": [{"expression": "true"}]}}),
        ),
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicyBinding",
            json!({"spec": {
            "policyName": "some", "validationActions": ["Warn"]}}),
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1",
            "PriorityLevelConfiguration",
            json!({"spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}}}),
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1",
            "FlowSchema",
            json!({"spec": {"matchingPrecedence": 9000 + copy,
            "priorityLevelConfiguration": {"name": "catch-all"}, "rules": [{"subjects": [{"kind": "User", "user": {"name": "nobody"}}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/nothing"]}]}]}}),
        ),
    ]
}
