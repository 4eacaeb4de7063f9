//! What an object says of itself: pure, in the way of kstatus, and by the rules of each kind where these say more.

use serde_json::Value;

/// How far an object has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It does what it is there for.
    Ready,
    /// It is on its way, and what it waits for.
    Progressing(String),
    /// Its controller has given up, and why.
    Stalled(String),
    /// Nobody has reported anything yet.
    Silent,
    /// What was reported may be about the object as it was before.
    Outdated,
}

/// Groups of Kubernetes itself that have a dot in their names. In all other such groups a definition stands behind a kind,
/// and a controller that may not have looked at the object yet.
const OWN: [&str; 18] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Whether a definition stands behind the kind, and a controller of whose habits nothing is known.
pub(crate) fn is_custom(object: &Value) -> bool {
    let group = object["apiVersion"].as_str().and_then(|it| it.split_once('/')).map_or("", |(group, _)| group);
    group.contains('.') && !OWN.contains(&group)
}

/// Judges an object by what it says of itself.
pub(crate) fn judge(object: &Value) -> State {
    let group = object["apiVersion"].as_str().and_then(|it| it.split_once('/')).map_or("", |(group, _)| group);
    let kind = object["kind"].as_str().unwrap_or_default();
    if object["metadata"]["deletionTimestamp"].is_string() {
        return State::Progressing("it is being deleted".into());
    }
    // What a controller says of an earlier generation says nothing of this one.
    let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
    if object["status"]["observedGeneration"].as_i64().is_some_and(|observed| observed < generation) {
        return State::Progressing(format!("its controller has not looked at generation {generation} yet"));
    }
    let told = |kind: &str, status: &str| condition(object, kind).filter(|it| it["status"] == status).map(tell);
    if let Some(why) = told("Stalled", "True") {
        return State::Stalled(why);
    }
    if let Some(why) = told("Reconciling", "True") {
        return State::Progressing(why);
    }
    match (group, kind) {
        ("apps", "Deployment") => deployment(object),
        ("apps", "StatefulSet") => stateful_set(object),
        ("apps", "DaemonSet") => daemon_set(object),
        ("apps", "ReplicaSet") | ("", "ReplicationController") => replicas(object),
        ("batch", "Job") => job(object),
        ("", "Pod") => pod(object),
        ("", "PersistentVolumeClaim") => phase(object, &["Bound"], &["Lost"]),
        ("", "PersistentVolume") => phase(object, &["Available", "Bound", "Released"], &["Failed"]),
        ("", "Namespace") => phase(object, &["Active"], &[]),
        ("", "Service") => service(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(object),
        ("apiregistration.k8s.io", "APIService") => by_condition(object, "Available").unwrap_or(State::Silent),
        _ => any(object, !is_custom(object)),
    }
}

/// A kind without rules of its own: its condition `Ready` counts, and else that it has a status at all.
fn any(object: &Value, own: bool) -> State {
    let silent = object["status"].as_object().is_none_or(serde_json::Map::is_empty);
    match by_condition(object, "Ready") {
        Some(state) => state,
        None if silent && !own => State::Silent,
        None => State::Ready,
    }
}

fn by_condition(object: &Value, kind: &str) -> Option<State> {
    let condition = condition(object, kind)?;
    let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
    let stale = condition["observedGeneration"].as_i64().is_some_and(|observed| observed < generation);
    Some(match condition["status"] == "True" && !stale {
        true => State::Ready,
        false => State::Progressing(tell(condition)),
    })
}

fn deployment(object: &Value) -> State {
    if let Some(waiting) = unobserved(object) {
        return waiting;
    }
    let of = |kind: &str| condition(object, kind);
    if let Some(given_up) = of("Progressing").filter(|it| it["reason"] == "ProgressDeadlineExceeded") {
        return State::Stalled(tell(given_up));
    }
    let wanted = count(object, "spec", "replicas", 1);
    let [updated, all, available] =
        ["updatedReplicas", "replicas", "availableReplicas"].map(|field| count(object, "status", field, 0));
    let waits = if updated < wanted {
        format!("{updated} of {wanted} replicas are updated")
    } else if all > updated {
        format!("{} replicas of the version before are still there", all - updated)
    } else if available < wanted {
        format!("{available} of {wanted} replicas are available")
    } else {
        return State::Ready;
    };
    let failing = of("ReplicaFailure").filter(|it| it["status"] == "True");
    let paused = if object["spec"]["paused"] == true { "; it is paused" } else { "" };
    State::Progressing(match failing {
        Some(why) => format!("{waits}{paused}; {}", tell(why)),
        None => format!("{waits}{paused}"),
    })
}

fn stateful_set(object: &Value) -> State {
    if let Some(waiting) = unobserved(object) {
        return waiting;
    }
    let wanted = count(object, "spec", "replicas", 1);
    let ready = count(object, "status", "readyReplicas", 0);
    if ready < wanted {
        return State::Progressing(format!("{ready} of {wanted} replicas are ready"));
    }
    let strategy = &object["spec"]["updateStrategy"];
    // Whoever deletes pods by hand decides when they are of the new version.
    if strategy["type"] == "OnDelete" {
        return State::Ready;
    }
    let kept = strategy["rollingUpdate"]["partition"].as_i64().unwrap_or_default();
    let updated = count(object, "status", "updatedReplicas", 0);
    let due = (wanted - kept).max(0);
    if object["status"]["updateRevision"] != object["status"]["currentRevision"] && updated < due {
        return State::Progressing(format!("{updated} of {due} replicas are updated"));
    }
    State::Ready
}

fn daemon_set(object: &Value) -> State {
    if let Some(waiting) = unobserved(object) {
        return waiting;
    }
    let wanted = count(object, "status", "desiredNumberScheduled", 0);
    let updated = count(object, "status", "updatedNumberScheduled", 0);
    let available = count(object, "status", "numberAvailable", 0);
    if object["spec"]["updateStrategy"]["type"] != "OnDelete" && updated < wanted {
        State::Progressing(format!("its pods are updated on {updated} of {wanted} nodes"))
    } else if available < wanted {
        State::Progressing(format!("its pods are available on {available} of {wanted} nodes"))
    } else {
        State::Ready
    }
}

fn replicas(object: &Value) -> State {
    if let Some(waiting) = unobserved(object) {
        return waiting;
    }
    let wanted = count(object, "spec", "replicas", 1);
    let available = count(object, "status", "availableReplicas", 0);
    match available < wanted {
        true => State::Progressing(format!("{available} of {wanted} replicas are available")),
        false => State::Ready,
    }
}

/// A job is ready when it has done its work, since that is what its dependents need of it.
fn job(object: &Value) -> State {
    let is = |kind: &str| condition(object, kind).filter(|it| it["status"] == "True");
    if is("Complete").is_some() || is("Suspended").is_some() {
        return State::Ready;
    }
    if let Some(why) = is("Failed").or_else(|| is("FailureTarget")) {
        return State::Stalled(tell(why));
    }
    let wanted = count(object, "spec", "completions", 1);
    let [done, failed] = ["succeeded", "failed"].map(|field| count(object, "status", field, 0));
    State::Progressing(format!("{done} of {wanted} pods have succeeded, {failed} have failed"))
}

fn pod(object: &Value) -> State {
    let status = &object["status"];
    match status["phase"].as_str().unwrap_or_default() {
        "Succeeded" => State::Ready,
        "Failed" => State::Stalled(match status["message"].as_str() {
            Some(message) => format!("the pod failed: {message}"),
            None => "the pod failed".into(),
        }),
        "Running" if condition(object, "Ready").is_some_and(|it| it["status"] == "True") => State::Ready,
        phase => {
            // An image that cannot be pulled or a crash may mend itself (case 58): shown, not final.
            let containers = ["initContainerStatuses", "containerStatuses"].map(|field| list(&status[field])).concat();
            let waiting = containers.iter().find_map(|it| {
                Some(format!(
                    "container {} waits: {}",
                    it["name"].as_str()?,
                    it["state"]["waiting"]["reason"].as_str()?
                ))
            });
            let unscheduled = condition(object, "PodScheduled").filter(|it| it["status"] == "False").map(tell);
            let phase = if phase.is_empty() { "Pending" } else { phase };
            State::Progressing(waiting.or(unscheduled).unwrap_or_else(|| format!("the pod is {phase}")))
        }
    }
}

fn service(object: &Value) -> State {
    if object["spec"]["type"] == "LoadBalancer" { balanced(object) } else { State::Ready }
}

fn balanced(object: &Value) -> State {
    match list(&object["status"]["loadBalancer"]["ingress"]).is_empty() {
        true => State::Progressing("no load balancer has given it an address".into()),
        false => State::Ready,
    }
}

fn definition(object: &Value) -> State {
    match condition(object, "NamesAccepted").filter(|it| it["status"] == "False") {
        Some(refused) => State::Stalled(tell(refused)),
        None => by_condition(object, "Established").unwrap_or_else(|| State::Progressing("not established".into())),
    }
}

fn phase(object: &Value, ready: &[&str], lost: &[&str]) -> State {
    let phase = object["status"]["phase"].as_str().unwrap_or_default();
    if ready.contains(&phase) {
        State::Ready
    } else if lost.contains(&phase) {
        State::Stalled(format!("it is {phase}"))
    } else if phase.is_empty() {
        State::Progressing("it has no phase yet".into())
    } else {
        State::Progressing(format!("it is {phase}"))
    }
}

/// The controllers of workloads always say which generation they have seen: one that says nothing has not looked yet.
fn unobserved(object: &Value) -> Option<State> {
    let observed = object["status"]["observedGeneration"].is_i64();
    (!observed).then(|| State::Progressing("its controller has not looked at it yet".into()))
}

fn count(object: &Value, part: &str, field: &str, default: i64) -> i64 {
    object[part][field].as_i64().unwrap_or(default)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(&object["status"]["conditions"]).iter().find(|condition| condition["type"] == kind)
}

/// A condition in words.
fn tell(condition: &Value) -> String {
    let text = |field: &str| condition[field].as_str().unwrap_or_default();
    match (text("reason"), text("message")) {
        ("", "") => format!("its condition {} is {}", text("type"), text("status")),
        (only, "") | ("", only) => only.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, kind: &str, spec: Value, status: Value) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"generation": 2}, "spec": spec, "status": status})
    }

    fn progressing(text: &str) -> State {
        State::Progressing(text.into())
    }

    fn stalled(text: &str) -> State {
        State::Stalled(text.into())
    }

    fn deployment(status: Value) -> State {
        judge(&object("apps/v1", "Deployment", json!({"replicas": 3}), status))
    }

    #[test]
    fn deployment_is_ready_when_every_replica_is_new_and_available() {
        let status = |updated, all, available| json!({"observedGeneration": 2, "updatedReplicas": updated, "replicas": all, "availableReplicas": available});
        assert_eq!(deployment(json!({})), progressing("its controller has not looked at it yet"));
        let old = json!({"observedGeneration": 1, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 3});
        assert_eq!(deployment(old), progressing("its controller has not looked at generation 2 yet"));
        assert_eq!(deployment(status(1, 3, 3)), progressing("1 of 3 replicas are updated"));
        assert_eq!(deployment(status(3, 4, 4)), progressing("1 replicas of the version before are still there"));
        assert_eq!(deployment(status(3, 3, 2)), progressing("2 of 3 replicas are available"));
        assert_eq!(deployment(status(3, 3, 3)), State::Ready);
    }

    /// Case 58: the controller's own word that it has given up ends the wait.
    #[test]
    fn rollout_that_its_controller_gave_up_is_stalled() {
        let given_up =
            json!({"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "late"});
        let status = json!({"observedGeneration": 2, "conditions": [given_up]});
        assert_eq!(deployment(status), stalled("ProgressDeadlineExceeded: late"));
        let failed = json!({"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]});
        assert_eq!(judge(&object("batch/v1", "Job", json!({}), failed)), stalled("BackoffLimitExceeded"));
    }

    #[test]
    fn quota_that_keeps_replicas_out_is_shown() {
        let failing = json!({"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"});
        let status = json!({"observedGeneration": 2, "conditions": [failing]});
        assert_eq!(deployment(status), progressing("0 of 3 replicas are updated; exceeded quota"));
    }

    #[test]
    fn stateful_set_respects_its_partition() {
        let judge = |spec: Value, ready: i64, updated: i64| {
            let status = json!({"observedGeneration": 2, "readyReplicas": ready, "updatedReplicas": updated,
                "currentRevision": "a", "updateRevision": "b"});
            judge(&object("apps/v1", "StatefulSet", spec, status))
        };
        let partition = json!({"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}});
        assert_eq!(judge(json!({"replicas": 3}), 2, 3), progressing("2 of 3 replicas are ready"));
        assert_eq!(judge(json!({"replicas": 3}), 3, 1), progressing("1 of 3 replicas are updated"));
        assert_eq!(judge(partition.clone(), 3, 0), progressing("0 of 1 replicas are updated"));
        assert_eq!(judge(partition, 3, 1), State::Ready);
        assert_eq!(judge(json!({"replicas": 3, "updateStrategy": {"type": "OnDelete"}}), 3, 0), State::Ready);
    }

    #[test]
    fn daemon_set_is_ready_when_it_is_on_every_node() {
        let judge = |updated: i64, available: i64| {
            let status = json!({"observedGeneration": 2, "desiredNumberScheduled": 2,
                "updatedNumberScheduled": updated, "numberAvailable": available});
            judge(&object("apps/v1", "DaemonSet", json!({}), status))
        };
        assert_eq!(judge(1, 2), progressing("its pods are updated on 1 of 2 nodes"));
        assert_eq!(judge(2, 1), progressing("its pods are available on 1 of 2 nodes"));
        assert_eq!(judge(2, 2), State::Ready);
    }

    #[test]
    fn job_is_ready_when_its_work_is_done() {
        let judge = |status: Value| judge(&object("batch/v1", "Job", json!({"completions": 2}), status));
        let running = json!({"active": 1, "succeeded": 1, "failed": 3});
        assert_eq!(judge(running), progressing("1 of 2 pods have succeeded, 3 have failed"));
        assert_eq!(judge(json!({"conditions": [{"type": "Complete", "status": "True"}]})), State::Ready);
        assert_eq!(judge(json!({"conditions": [{"type": "Suspended", "status": "True"}]})), State::Ready);
    }

    /// Case 58: what may mend itself is shown and not final.
    #[test]
    fn pod_that_cannot_pull_its_image_is_still_on_its_way() {
        let judge = |status: Value| judge(&object("v1", "Pod", json!({}), status));
        let waiting = json!({"phase": "Pending", "containerStatuses":
            [{"name": "app", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]});
        assert_eq!(judge(waiting), progressing("container app waits: ImagePullBackOff"));
        assert_eq!(judge(json!({"phase": "Running"})), progressing("the pod is Running"));
        assert_eq!(
            judge(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})),
            State::Ready
        );
        assert_eq!(judge(json!({"phase": "Succeeded"})), State::Ready);
        assert_eq!(judge(json!({"phase": "Failed", "message": "evicted"})), stalled("the pod failed: evicted"));
    }

    #[test]
    fn kinds_with_phases_and_addresses() {
        let judge = |kind: &str, spec: Value, status: Value| judge(&object("v1", kind, spec, status));
        assert_eq!(
            judge("PersistentVolumeClaim", json!({}), json!({"phase": "Pending"})),
            progressing("it is Pending")
        );
        assert_eq!(judge("PersistentVolumeClaim", json!({}), json!({"phase": "Lost"})), stalled("it is Lost"));
        assert_eq!(judge("PersistentVolumeClaim", json!({}), json!({"phase": "Bound"})), State::Ready);
        assert_eq!(judge("Namespace", json!({}), json!({"phase": "Active"})), State::Ready);
        let balanced = json!({"type": "LoadBalancer"});
        let waits = progressing("no load balancer has given it an address");
        assert_eq!(judge("Service", balanced.clone(), json!({"loadBalancer": {}})), waits);
        let given = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
        assert_eq!(judge("Service", balanced, given), State::Ready);
        assert_eq!(judge("Service", json!({"type": "ClusterIP"}), json!({"loadBalancer": {}})), State::Ready);
    }

    /// Case 299: an Ingress serves by its controller, which need not give it an address.
    #[test]
    fn ingress_without_an_address_is_ready() {
        let status = json!({"loadBalancer": {}});
        assert_eq!(judge(&object("networking.k8s.io/v1", "Ingress", json!({}), status)), State::Ready);
    }

    /// Case 56: a custom resource that nobody has looked at yet is not ready.
    #[test]
    fn custom_resource_without_status_is_not_yet_known() {
        let custom = |status: Value| judge(&object("example.com/v1", "Widget", json!({}), status));
        assert_eq!(custom(json!(null)), State::Silent);
        assert_eq!(custom(json!({})), State::Silent);
        assert_eq!(custom(json!({"seen": true})), State::Ready);
        let own = judge(&object("autoscaling/v2", "HorizontalPodAutoscaler", json!({}), json!(null)));
        assert_eq!(own, State::Ready);
    }

    #[test]
    fn conditions_of_custom_resources_count() {
        let custom = |conditions: Value| {
            judge(&object("example.com/v1", "Widget", json!({}), json!({"conditions": conditions})))
        };
        assert_eq!(custom(json!([{"type": "Ready", "status": "True"}])), State::Ready);
        assert_eq!(
            custom(json!([{"type": "Ready", "status": "Unknown"}])),
            progressing("its condition Ready is Unknown")
        );
        let stale = json!([{"type": "Ready", "status": "True", "observedGeneration": 1, "reason": "Old"}]);
        assert_eq!(custom(stale), progressing("Old"));
        assert_eq!(custom(json!([{"type": "Stalled", "status": "True", "message": "no"}])), stalled("no"));
        assert_eq!(
            custom(json!([{"type": "Reconciling", "status": "True", "reason": "R", "message": "m"}])),
            progressing("R: m")
        );
    }
}
