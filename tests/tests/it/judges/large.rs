//! A large design of every kind that people use, beside what kubectl makes of the same objects on another cluster.

use std::{collections::BTreeMap, process::Command, time::Duration};

use futures::{StreamExt as _, stream};
use kube::Client;
use serde_json::{Value, json};
use switchyard_proto::v1::{Change, Operation, PlanRequest, Verdict};
use switchyard_tests::{
    client::{self, Outcome},
    sandbox::{Cluster, ControlPlane, Folder, Tool, Toolbox},
};
use tokio::time::Instant;

use super::kinds::{self, Names};
use crate::pair::Pair;

/// Some hundred objects on a machine that does something else meanwhile.
const LIMIT: Duration = Duration::from_secs(240);

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The design of these objects, as JSON.
fn design(objects: &[Value]) -> String {
    let components: Vec<_> = objects
        .iter()
        .map(|object| {
            let mut configuration = object.as_object().cloned().unwrap();
            let (version, kind) = (configuration.remove("apiVersion"), configuration.remove("kind"));
            json!({
                "id": uuid::Uuid::new_v4().to_string(), "displayName": object["metadata"]["name"],
                "component": {"version": version, "kind": kind}, "modelReference": {"name": "kubernetes"},
                "metadata": {"dependsOn": []}, "configuration": configuration,
            })
        })
        .collect();
    let id = uuid::Uuid::new_v4().to_string();
    json!({"id": id, "name": "Large", "schemaVersion": "designs.meshery.io/v1beta3", "version": "0.0.1", "components": components})
        .to_string()
}

/// Where an object is read, by what the API server says of its kind.
async fn path(client: &Client, object: &Value, known: &mut BTreeMap<(String, String), (String, bool)>) -> String {
    let key = (text(&object["apiVersion"]).to_owned(), text(&object["kind"]).to_owned());
    if !known.contains_key(&key) {
        let root = if key.0.contains('/') { "apis" } else { "api" };
        let request = http::Request::get(format!("/{root}/{}", key.0)).body(Vec::new()).unwrap();
        let list = client.request::<Value>(request).await.unwrap();
        for resource in list["resources"].as_array().unwrap() {
            let plural = text(&resource["name"]);
            if !plural.contains('/') {
                let found = (format!("/{root}/{}", key.0), resource["namespaced"] == true);
                let kind = (key.0.clone(), text(&resource["kind"]).to_owned());
                known.insert(kind, (format!("{}#{plural}", found.0), found.1));
            }
        }
    }
    let (place, namespaced) = &known[&key];
    let (root, plural) = place.split_once('#').unwrap();
    let name = text(&object["metadata"]["name"]);
    match namespaced {
        true => format!("{root}/namespaces/{}/{plural}/{name}", text(&object["metadata"]["namespace"])),
        false => format!("{root}/{plural}/{name}"),
    }
}

/// Reads everything; what is not there is null.
async fn read(cluster: &Cluster, paths: &[String]) -> BTreeMap<String, Value> {
    let client = cluster.client().await.unwrap();
    let reading = stream::iter(paths.to_vec()).map(|path| {
        let client = client.clone();
        async move {
            let request = http::Request::get(&path).body(Vec::new()).unwrap();
            match client.request::<Value>(request).await {
                Ok(object) => (path, object),
                Err(kube::Error::Api(status)) if status.code == 404 => (path, Value::Null),
                Err(error) => panic!("{path}: {error}"),
            }
        }
    });
    reading.buffer_unordered(16).collect().await
}

/// API servers write into the status of some kinds by and by.
const SETTLED: Duration = Duration::from_secs(60);

/// Takes away what differs by right between two clusters and two appliers: addresses, uids, times, managers and marks.
fn comparable(value: &mut Value) {
    const OF_THE_CLUSTER: [&str; 12] = [
        "uid",
        // Labels of a Job and of its Pods: the Job's uid.
        "controller-uid",
        "batch.kubernetes.io/controller-uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
        "lastTransitionTime",
        "lastPhaseTransitionTime",
        "clusterIP",
        "clusterIPs",
        "nodePort",
        "observedGeneration",
    ];
    const MARKS: [&str; 4] =
        ["design.meshery.io/", "component.meshery.io/", "switchyard.meshery.io/", "switchyard.dev/"];
    match value {
        Value::Object(members) => {
            members.retain(|key, _| {
                !OF_THE_CLUSTER.contains(&key.as_str()) && !MARKS.iter().any(|mark| key.starts_with(mark))
            });
            members.values_mut().for_each(comparable);
            // A map that held marks only is not there without them.
            members.retain(|key, value| !(matches!(key.as_str(), "labels" | "annotations") && *value == json!({})));
        }
        Value::Array(items) => items.iter_mut().for_each(comparable),
        _ => {}
    }
}

fn kubectl(cluster: &Cluster, tools: &Toolbox, folder: &Folder, arguments: &[&str]) {
    let kubeconfig = folder.write("admin.yaml", &cluster.kubeconfig_admin().to_string()).unwrap();
    let mut command = Command::new(tools.path(Tool::Kubectl).unwrap());
    let output = command.arg("--kubeconfig").arg(kubeconfig).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[track_caller]
fn assert_all(outcome: &Outcome, count: usize, change: Change) {
    let others: Vec<_> =
        outcome.targets().filter(|target| target.change() != change || target.error.is_some()).collect();
    assert!(others.is_empty(), "{} of {count} are not {change:?}: {:#?}", others.len(), &others[..others.len().min(5)]);
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    assert_eq!(outcome.targets().count(), count);
}

/// Item by item the same as server-side apply by kubectl; again nothing changes; and down again nothing is left.
#[tokio::test]
async fn every_kind_comes_out_as_kubectl_makes_it_stays_when_deployed_again_and_goes() {
    // Nobody is there to let claims and volumes go.
    let control_plane = ControlPlane::builder().cluster("pair").cluster("peer");
    let control_plane = control_plane.flag("--disable-admission-plugins=StorageObjectInUseProtection");
    let control_plane = control_plane.start().await.unwrap();
    let [pair, peer] = control_plane.clusters() else { panic!("two were asked for") };
    let tag = format!("t{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let names = Names { namespace: format!("large-{tag}"), limited: format!("limited-{tag}"), tag };
    for cluster in [pair, peer] {
        for name in [&names.namespace, &names.limited] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let request = http::Request::post("/api/v1/namespaces").header("content-type", "application/json");
            let request = request.body(object.to_string().into_bytes()).unwrap();
            cluster.client().await.unwrap().request::<Value>(request).await.unwrap();
        }
    }
    let definitions = kinds::definitions(&names);
    let mut all = definitions.clone();
    all.extend(kinds::objects(&names));
    assert!(all.len() > 250, "{} objects are no large design", all.len());

    let client = Pair::shared().await.client().await;
    let run = async |request: PlanRequest| {
        let access = vec![client::kubeconfig("pair", pair.kubeconfig_admin().to_string())];
        tokio::time::timeout(LIMIT, client.run(request, access)).await.expect("the run ends").expect("the run starts")
    };
    let mut up = client::deploy(design(&all), &["pair"]);
    up.options.get_or_insert_default().report_altered = true;
    let created = run(up.clone()).await;
    assert_all(&created, all.len(), Change::Created);
    // Whatever spelling the API server stores a value in (L5).
    let altered: Vec<_> = created.targets().filter(|target| !target.altered.is_empty()).collect();
    assert!(altered.is_empty(), "{altered:#?}");

    let tools = Toolbox::get(&[Tool::Kubectl]).await.unwrap();
    let folder = Folder::new("large").unwrap();
    let list = |items: &[Value]| json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let first = folder.write("definitions.json", &list(&definitions)).unwrap();
    let rest = folder.write("objects.json", &list(&all[definitions.len()..])).unwrap();
    kubectl(peer, &tools, &folder, &["apply", "--server-side", "-f", first.to_str().unwrap()]);
    kubectl(peer, &tools, &folder, &["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]);
    kubectl(peer, &tools, &folder, &["apply", "--server-side", "-f", rest.to_str().unwrap()]);

    let (mut known, mut paths) = (BTreeMap::new(), Vec::new());
    let looker = pair.client().await.unwrap();
    for object in &all {
        paths.push(path(&looker, object, &mut known).await);
    }
    let deadline = Instant::now() + SETTLED;
    loop {
        let (mut ours, mut theirs) = (read(pair, &paths).await, read(peer, &paths).await);
        ours.values_mut().chain(theirs.values_mut()).for_each(comparable);
        let differs = |path: &&String| ours[*path] != theirs[*path] || ours[*path].is_null();
        let different: Vec<_> = paths.iter().filter(differs).collect();
        let [path, ..] = different[..] else { break };
        assert!(Instant::now() < deadline, "{different:#?}: ours {:#}\ntheirs {:#}", ours[path], theirs[path]);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    assert_all(&run(up.clone()).await, all.len(), Change::Unchanged);
    let down = PlanRequest { operation: Operation::Undeploy.into(), ..up };
    assert_all(&run(down).await, all.len(), Change::Removed);
    let left: Vec<_> = read(pair, &paths).await.into_iter().filter(|(_, object)| !object.is_null()).collect();
    assert!(left.is_empty(), "{left:#?}");
}
