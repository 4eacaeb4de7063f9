//! Designs at random, with faults at random, on three clusters, up and down, held against the [model](super::model) of the rules and
//! against what the clusters then hold.

use std::{collections::BTreeMap, sync::LazyLock};

use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use switchyard_proto::v1::{self, Operation, PlanRequest, Verdict, execute_response::Event};
use switchyard_tests::{
    client::{self, Client},
    embedded::Executor,
    fault::{Canned, Fault, Loss, Proxy, Rule},
    sandbox::{Cluster, ControlPlane},
};
use tokio::sync::OnceCell;

use super::model::{self, Ending, Fate};
use crate::{design::Design, dice::Dice, pair::Pair, world::LIMIT};

const CLUSTERS: [&str; 3] = ["east", "west", "north"];
/// Designs that are tried. Each is four runs.
const SEEDS: u64 = 36;
/// Designs at the same time.
const AT_ONCE: usize = 3;

/// Three clusters of this test's own.
async fn clusters() -> &'static ControlPlane {
    static CLUSTERS_OF_TEST: LazyLock<OnceCell<ControlPlane>> = LazyLock::new(OnceCell::new);
    let start = || async { CLUSTERS.iter().fold(ControlPlane::builder(), |it, name| it.cluster(name)).start().await };
    CLUSTERS_OF_TEST.get_or_init(|| async { start().await.expect("the clusters start") }).await
}

/// A kind, and where its objects lie.
const KINDS: [(&str, &str, &str); 4] = [
    ("v1", "ConfigMap", "/api/v1/namespaces/NS/configmaps"),
    ("v1", "Secret", "/api/v1/namespaces/NS/secrets"),
    ("v1", "ServiceAccount", "/api/v1/namespaces/NS/serviceaccounts"),
    ("rbac.authorization.k8s.io/v1", "Role", "/apis/rbac.authorization.k8s.io/v1/namespaces/NS/roles"),
];

struct Component {
    name: String,
    /// Path of its object.
    path: String,
    /// Whether every API server refuses it for what it says.
    is_invalid: bool,
}

/// A design at random: each component needs some of those that were drawn before it.
struct Drawn {
    design: Design,
    components: Vec<Component>,
    needs: Vec<Vec<usize>>,
}

fn draw(dice: &mut Dice, namespace: &str) -> Drawn {
    let count = 4 + dice.below(16);
    let sparse = dice.percent(50);
    let mut design = Design::new().drawing("picture");
    let (mut components, mut needs) = (Vec::<Component>::new(), Vec::<Vec<usize>>::new());
    for index in 0..count {
        let most = if sparse { 1 } else { 3 };
        let needed: Vec<usize> = match index {
            0 => Vec::new(),
            _ => (0..dice.below(most + 1)).map(|_| dice.below(index)).collect(),
        };
        let mut names: Vec<&str> = needed.iter().map(|&need| components[need].name.as_str()).collect();
        if dice.percent(10) {
            // Satisfied, whatever happens (D4).
            names.push("picture");
        }
        let (version, kind, collection) = KINDS[dice.below(KINDS.len())];
        let is_invalid = kind == "ConfigMap" && dice.percent(12);
        let data = match (kind, is_invalid) {
            (_, true) => ", data: {'no such key!': x}",
            ("ConfigMap", _) => ", data: {a: b}",
            ("Secret", _) => ", stringData: {a: b}",
            ("Role", _) => ", rules: []",
            _ => "",
        };
        let name = format!("component-{index:02}");
        let configuration = format!("{{metadata: {{namespace: {namespace}}}{data}}}");
        design = design.component(&name, (version, kind), &names, &configuration);
        let path = format!("{}/{name}", collection.replace("NS", namespace));
        components.push(Component { name, path, is_invalid });
        needs.push(needed);
    }
    Drawn { design, components, needs }
}

/// What a proxy does to one object's requests while a design goes up, and what comes of it there.
fn trouble_up(dice: &mut Dice, path: &str) -> (Vec<Rule>, Fate) {
    let answer = |code, reason: &str| Fault::Answer(Canned::refusal(code, reason, "not today", json!({})));
    let patch = |fault| Rule::patch(path, fault).whole();
    match dice.below(100) {
        0..5 => (vec![patch(answer(403, "Forbidden"))], Fate::Refused),
        5..9 => (vec![patch(answer(422, "Invalid"))], Fate::Refused),
        // A connection that is cut again and again would take from its neighbours what the model promises them.
        9..12 => (vec![Rule::any(path, Fault::Lose(Loss::Reset)).whole()], Fate::Unknown),
        12..17 => (vec![patch(answer(503, "ServiceUnavailable")).times(1)], Fate::Done),
        17..22 => (vec![patch(Fault::Lose(Loss::HalfBody)).times(1)], Fate::Done),
        22..25 => (vec![patch(answer(500, "InternalError")).times(1)], Fate::Done),
        _ => (Vec::new(), Fate::Done),
    }
}

/// The same while it goes down, for an object that is there.
fn trouble_down(dice: &mut Dice, path: &str) -> (Vec<Rule>, Fate) {
    let answer = |code, reason: &str| Fault::Answer(Canned::refusal(code, reason, "not today", json!({})));
    match dice.below(100) {
        0..6 => (vec![Rule::delete(path, answer(403, "Forbidden")).whole()], Fate::Refused),
        6..10 => (vec![Rule::get(path, answer(403, "Forbidden")).whole()], Fate::Refused),
        10..15 => (vec![Rule::delete(path, answer(503, "ServiceUnavailable")).whole().times(1)], Fate::Done),
        15..20 => (vec![Rule::delete(path, Fault::Lose(Loss::BeforeHeaders)).whole().times(1)], Fate::Done),
        _ => (Vec::new(), Fate::Done),
    }
}

/// One design and the way to its clusters.
struct Trial {
    seed: u64,
    drawn: Drawn,
    proxies: Vec<Proxy>,
    client: Client,
    /// By component and cluster: whether the object is there. None where nobody can know.
    there: Vec<[Option<bool>; 3]>,
    _executor: Executor,
}

impl Trial {
    async fn new(seed: u64, dice: &mut Dice) -> Self {
        let clusters = clusters().await;
        let namespace = format!("random-{seed}-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let mut proxies = Vec::new();
        for cluster in clusters.clusters() {
            ask(cluster, "POST", "/api/v1/namespaces", "application/json", &object).await.unwrap();
            proxies.push(Proxy::before(cluster).await.unwrap());
        }
        // Leases have tests of their own; here they would be three more writes.
        let executor = Executor::start(&["--run-lock", "process"]).await.unwrap();
        let client = Client::connect(&Pair::shared().await.planner.url(), executor.url()).await.unwrap();
        let drawn = draw(dice, &namespace);
        let there = vec![[Some(false); 3]; drawn.components.len()];
        Self { seed, drawn, proxies, client, there, _executor: executor }
    }

    async fn run(&self, operation: Operation) -> client::Outcome {
        let request = client::deploy(self.drawn.design.text(), &CLUSTERS);
        let request = PlanRequest { operation: operation.into(), ..request };
        let named = CLUSTERS.iter().zip(&self.proxies);
        let access = named.map(|(name, proxy)| client::kubeconfig(name, proxy.kubeconfig().to_string())).collect();
        let run = tokio::time::timeout(LIMIT, self.client.run(request, access)).await;
        run.expect("the run ends").expect("the run starts")
    }

    /// Deploys with what befalls each object, and checks everything.
    async fn up(&mut self, mut trouble: impl FnMut(&str) -> (Vec<Rule>, Fate)) {
        self.forget();
        let mut fates = Vec::new();
        for Component { path, is_invalid, .. } in &self.drawn.components {
            let each = self.proxies.iter().map(|proxy| {
                let (rules, fate) = trouble(path);
                if *is_invalid {
                    return Fate::Refused;
                }
                rules.into_iter().for_each(|rule| proxy.add(rule));
                fate
            });
            fates.push(each.collect::<Vec<_>>());
        }
        let endings = model::endings(&self.drawn.needs, &fates);
        let outcome = self.run(Operation::Deploy).await;
        self.compare(&outcome, &endings, &self.drawn.needs, "PATCH");
        for (index, ending) in endings.iter().enumerate() {
            for (cluster, fate) in fates[index].iter().enumerate() {
                let there = &mut self.there[index][cluster];
                *there = match (ending, fate) {
                    // Not sent, or refused: as it was.
                    (Ending::Withheld { .. }, _) | (_, Fate::Refused) => *there,
                    (_, Fate::Done) => Some(true),
                    (_, Fate::Unknown) => None,
                };
            }
        }
        self.look().await;
    }

    /// Takes down with what befalls each object, and checks everything. `strangers` are objects that others have made theirs.
    async fn down(&mut self, strangers: &[(usize, usize)], mut trouble: impl FnMut(&str) -> (Vec<Rule>, Fate)) {
        self.forget();
        let mut fates = Vec::new();
        for (index, Component { path, .. }) in self.drawn.components.iter().enumerate() {
            let each = self.proxies.iter().enumerate().map(|(cluster, proxy)| {
                let (rules, fate) = trouble(path);
                match self.there[index][cluster] {
                    Some(true) if strangers.contains(&(index, cluster)) => Fate::Refused,
                    Some(true) => {
                        rules.into_iter().for_each(|rule| proxy.add(rule));
                        fate
                    }
                    _ => Fate::Done,
                }
            });
            fates.push(each.collect::<Vec<_>>());
        }
        let needed_by = model::turned_round(&self.drawn.needs);
        let endings = model::endings(&needed_by, &fates);
        let outcome = self.run(Operation::Undeploy).await;
        self.compare(&outcome, &endings, &needed_by, "DELETE");
        for (index, ending) in endings.iter().enumerate() {
            for (cluster, fate) in fates[index].iter().enumerate() {
                if !matches!(ending, Ending::Withheld { .. }) && *fate == Fate::Done {
                    self.there[index][cluster] = Some(false);
                }
            }
        }
        self.look().await;
    }

    /// Compares the account of a run with what the model says.
    fn compare(&self, outcome: &client::Outcome, endings: &[Ending], needs: &[Vec<usize>], method: &str) {
        let components = &self.drawn.components;
        let index = |name: &str| components.iter().position(|it| it.name == name).unwrap();
        assert_eq!(outcome.results.len(), components.len(), "seed {}: every component has one result", self.seed);
        assert_eq!(outcome.summary.rows.len(), components.len(), "seed {}: and one row", self.seed);
        for (component, ending) in components.iter().zip(endings) {
            let result = outcome.result(&component.name).unwrap();
            let about = format!("seed {}, {method} of {}: {result:#?}", self.seed, component.name);
            let wanted = match ending {
                Ending::Succeeded => v1::Outcome::Succeeded,
                Ending::Failed => v1::Outcome::Failed,
                Ending::Indeterminate => v1::Outcome::Indeterminate,
                Ending::Withheld { .. } => v1::Outcome::Withheld,
            };
            assert_eq!(result.outcome(), wanted, "{about}");
            let row = outcome.summary.rows.iter().find(|row| row.step_id == result.step_id).unwrap();
            assert_eq!(row.outcome(), wanted, "{about}");
            if let Ending::Withheld { by, roots } = ending {
                let withheld = result.withheld.as_ref().unwrap_or_else(|| panic!("{about}"));
                let direct = index(&withheld.component);
                assert!(by.contains(&direct), "{about}");
                let of_direct = match &endings[direct] {
                    Ending::Withheld { roots, .. } => roots.clone(),
                    _ => [direct].into(),
                };
                let root = index(&withheld.root_component);
                assert!(of_direct.contains(&root) && roots.contains(&root), "{about}");
                let sent = self
                    .proxies
                    .iter()
                    .map(|proxy| proxy.count(|seen| seen.method.as_str() == method && seen.path == component.path));
                assert_eq!(sent.sum::<usize>(), 0, "what is withheld is not sent: {about}");
            } else {
                assert_eq!(result.targets.len(), CLUSTERS.len(), "{about}");
            }
        }
        self.assert_order(outcome, needs);
        let verdict = outcome.verdict();
        let all = endings.iter().all(|ending| *ending == Ending::Succeeded);
        let none = endings.iter().all(|ending| *ending != Ending::Succeeded);
        let wanted = match (all, none) {
            (true, _) => Verdict::Succeeded,
            (_, true) => Verdict::Failed,
            _ => Verdict::Partial,
        };
        assert_eq!(verdict, wanted, "seed {}: {:#?}", self.seed, outcome.summary);
    }

    /// What starts, starts after the end of what it needs (S7, S20).
    fn assert_order(&self, outcome: &client::Outcome, needs: &[Vec<usize>]) {
        let (mut started, mut ended) = (BTreeMap::new(), BTreeMap::new());
        for event in &outcome.events {
            match &event.event {
                Some(Event::StepStarted(it)) => {
                    started.insert(it.component.clone(), event.sequence);
                }
                Some(Event::StepResult(it)) => {
                    ended.insert(it.component.clone().unwrap_or_default().name, event.sequence);
                }
                _ => {}
            }
        }
        for (component, needed) in self.drawn.components.iter().zip(needs) {
            let Some(start) = started.get(&component.name) else { continue };
            for &need in needed {
                let end = ended[&self.drawn.components[need].name];
                assert!(end < *start, "seed {}: {} started too early", self.seed, component.name);
            }
        }
    }

    /// Sees that the clusters hold what they have to.
    async fn look(&mut self) {
        for (index, component) in self.drawn.components.iter().enumerate() {
            for (place, cluster) in clusters().await.clusters().iter().enumerate() {
                let found = ask(cluster, "GET", &component.path, "application/json", &Value::Null).await.is_some();
                let wanted = self.there[index][place].get_or_insert(found);
                assert_eq!(*wanted, found, "seed {}: {} on {}", self.seed, component.name, cluster.name());
            }
        }
    }

    fn forget(&self) {
        for proxy in &self.proxies {
            proxy.clear();
            proxy.forget();
        }
    }

    /// Gives some objects the mark of another design, and answers which.
    async fn make_strangers(&self, dice: &mut Dice) -> Vec<(usize, usize)> {
        let mut strangers = Vec::new();
        for (index, component) in self.drawn.components.iter().enumerate() {
            for (place, cluster) in clusters().await.clusters().iter().enumerate() {
                if self.there[index][place] == Some(true) && dice.percent(2) {
                    let label = json!({"metadata": {"labels": {"design.meshery.io/id": "another"}}});
                    let answer = ask(cluster, "PATCH", &component.path, "application/merge-patch+json", &label).await;
                    answer.expect("it is there");
                    strangers.push((index, place));
                }
            }
        }
        strangers
    }
}

/// Asks past the proxy; nothing if it is not there.
async fn ask(cluster: &Cluster, method: &str, path: &str, content_type: &str, body: &Value) -> Option<Value> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", content_type).body(body);
    match cluster.client().await.unwrap().request::<Value>(request.unwrap()).await {
        Ok(object) => Some(object),
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        Err(error) => panic!("{method} {path}: {error}"),
    }
}

async fn try_one(seed: u64) {
    let mut dice = Dice(seed);
    let mut trial = Trial::new(seed, &mut dice).await;
    trial.up(|path| trouble_up(&mut dice, path)).await;
    // Again, with nothing in the way: what was held back comes, and what was there stays.
    trial.up(|_| (Vec::new(), Fate::Done)).await;
    let strangers = trial.make_strangers(&mut dice).await;
    trial.down(&strangers, |path| trouble_down(&mut dice, path)).await;
    trial.down(&strangers, |_| (Vec::new(), Fate::Done)).await;
}

/// S7, S11, S12, S14, S16, S20, S21, D4, D8, D19. A seed that fails is named; `SWITCHYARD_SEED` tries that one alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn designs_and_faults_at_random_come_out_as_the_rules_say() {
    let seeds = match std::env::var("SWITCHYARD_SEED") {
        Ok(seed) => vec![seed.parse().expect("SWITCHYARD_SEED is a number")],
        Err(_) => (1..=SEEDS).collect::<Vec<_>>(),
    };
    stream::iter(seeds).for_each_concurrent(AT_ONCE, try_one).await;
}
