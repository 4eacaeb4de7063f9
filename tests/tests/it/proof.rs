//! L4 against a real API server: what the proof says of an object, and what applying its manifest then does.
//!
//! Objects of the kinds people use are applied, edited by a second writer up to three times in the ways people and controllers
//! do, and looked at. Where the proof says that nothing would change, the same PATCH must leave the resource version as it is.

mod draw;
mod edit;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
};

use futures::{StreamExt as _, stream};
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use switchyard_executor::proof::{DESIGN_VERSION, Stamp, Stamped, Unproven, Wanted, prove};
use switchyard_tests::sandbox::ControlPlane;

use crate::dice::Dice;

/// Objects that are tried; `SWITCHYARD_PROOF_OBJECTS` tries so many.
const OBJECTS: u64 = 300;
const AT_ONCE: usize = 16;
/// Edits of one object at most.
const MOST_EDITS: usize = 3;

/// A way into the cluster, and what the test asks of it.
struct Server {
    client: Client,
    namespace: &'static str,
}

impl Server {
    /// Asks, and answers the object; none where the server refuses.
    async fn ask(&self, method: &str, path: &str, content: &str, body: &Value) -> Option<Value> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.send(method, path, content, body).await
    }

    async fn send(&self, method: &str, path: &str, content: &str, body: Vec<u8>) -> Option<Value> {
        let request = Request::builder().method(method).uri(path).header("content-type", content).body(body).unwrap();
        match self.client.request::<Value>(request).await {
            Ok(object) => Some(object),
            Err(kube::Error::Api(_)) => None,
            Err(error) => panic!("{method} {path}: {error}"),
        }
    }

    async fn apply(&self, path: &str, manager: &str, stamped: &Stamped) -> Option<Value> {
        let path = format!("{path}?fieldManager={manager}");
        self.send("PATCH", &path, "application/apply-patch+yaml", stamped.manifest.to_vec()).await
    }

    async fn get(&self, path: &str) -> Option<Value> {
        self.ask("GET", path, "application/json", &Value::Null).await
    }
}

/// What came of the objects that were tried.
#[derive(Default)]
struct Counts {
    /// Proven, and the PATCH changed nothing.
    skips: usize,
    /// Not proven, and the PATCH changed nothing.
    not_needed: BTreeMap<Unproven, usize>,
    /// Not proven, and the PATCH changed something or was refused.
    needed: usize,
    /// Not there any more, or never taken by the API server.
    not_there: usize,
    /// Proven, and the PATCH changed something or was refused.
    unsound: Vec<String>,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { skips, not_needed, needed, not_there, unsound } = self;
        let idle: usize = not_needed.values().sum();
        write!(
            f,
            "{skips} sound skips, {idle} PATCHes not needed ({not_needed:?}), {needed} needed, {} unsound, {not_there} not there",
            unsound.len()
        )
    }
}

/// One object, from its first apply to the last.
async fn try_one(server: &Server, schemas: &Value, seed: u64, counts: &Mutex<Counts>) {
    let dice = &mut Dice(seed);
    let name = format!("object-{seed}");
    let drawn = draw::object(dice, server.namespace, &name);
    let manager = format!("switchyard/design-{}", seed % 7);
    let stamp = |object: &Value| {
        let group_version = drawn.root.trim_start_matches('/');
        let schema = schemas["paths"][group_version]["serverRelativeURL"].as_str().unwrap();
        Stamp::new(&object.to_string().into()).unwrap().put(schema)
    };
    let count = |count: &mut dyn FnMut(&mut Counts)| count(&mut counts.lock().unwrap_or_else(PoisonError::into_inner));
    if dice.percent(25) {
        // An older version of the component came first.
        let mut older = drawn.object.clone();
        edit::change(dice, &mut older);
        server.apply(&drawn.path, &manager, &stamp(&older)).await;
    }
    let stamped = stamp(&drawn.object);
    let Some(applied) = server.apply(&drawn.path, &manager, &stamped).await else {
        return count(&mut |counts| counts.not_there += 1);
    };
    let mut history = Vec::new();
    if dice.percent(15) {
        // What was applied last is another version of the component.
        let mut other = drawn.object.clone();
        history.push(format!("our own apply, {}", edit::change(dice, &mut other)));
        server.apply(&drawn.path, &manager, &stamp(&other)).await;
    }
    for _ in 0..dice.below(MOST_EDITS + 1) {
        history.push(edit::edit(dice, server, &drawn, &manager, &applied).await);
    }
    let Some(object) = server.get(&drawn.path).await else { return count(&mut |counts| counts.not_there += 1) };
    let wanted = Wanted { manager: &manager, api_version: drawn.api_version(), stamped: &stamped };
    let verdict = prove(&wanted, &object);
    let after = server.apply(&drawn.path, &manager, &stamped).await;
    let is_no_op = after.as_ref().is_some_and(|after| is_the_same(&object, after));
    count(&mut |counts| match (verdict, is_no_op) {
        (Ok(()), true) => counts.skips += 1,
        (Ok(()), false) => {
            counts.unsound.push(format!("seed {seed}: {} after {history:#?}\n{object:#}\n{after:#?}", drawn.object));
        }
        (Err(why), true) => *counts.not_needed.entry(why).or_default() += 1,
        (Err(_), false) => counts.needed += 1,
    });
}

/// Whether an apply has changed nothing, or nothing but which version of the design changed the object last, which is no reason to
/// write it (D11).
fn is_the_same(before: &Value, after: &Value) -> bool {
    let version = |object: &Value| object["metadata"]["annotations"][DESIGN_VERSION].clone();
    let bare = |object: &Value| {
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = Value::Null;
        object["metadata"]["annotations"][DESIGN_VERSION] = Value::Null;
        // Somebody may have cleared them.
        if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
            entries.iter_mut().for_each(|entry| entry["time"] = Value::Null);
            entries.sort_by_key(Value::to_string);
        }
        object
    };
    before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
        || (version(before) != version(after) && bare(before) == bare(after))
}

/// L4: proven implies that the PATCH changes nothing. `SWITCHYARD_SEED` begins with another seed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_proven_the_api_server_would_not_change() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
    };
    let (first, objects) = (number("SWITCHYARD_SEED", 1), number("SWITCHYARD_PROOF_OBJECTS", OBJECTS));
    let control_plane = ControlPlane::builder().start().await.unwrap();
    let server = Server { client: control_plane.first().client().await.unwrap(), namespace: "proof" };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": server.namespace}});
    server.ask("POST", "/api/v1/namespaces", "application/json", &namespace).await.unwrap();
    draw::define(&server).await;
    let schemas = server.get("/openapi/v3").await.unwrap();
    let counts = Mutex::default();
    let each = stream::iter(first..first + objects);
    each.for_each_concurrent(AT_ONCE, |seed| try_one(&server, &schemas, seed, &counts)).await;
    let counts = counts.into_inner().unwrap();
    println!("{counts}");
    assert!(counts.unsound.is_empty(), "{counts}\n{}", counts.unsound[0]);
    let tried = usize::try_from(objects).unwrap() - counts.not_there;
    // Else it would be a test of nothing.
    assert!(counts.not_there * 10 <= tried, "{counts}");
    assert!(counts.skips * 4 >= tried && counts.needed * 10 >= tried, "{counts}");
}
