//! Go is the judge of what the planner reads and writes (cases 211–217).
//!
//! Kubernetes and Meshery read YAML with `sigs.k8s.io/yaml`. Thousands of documents, written, generated and mutated, go through it
//! and through the planner's readers: JSON, block style, and all of YAML. What differs must be a decision of `docs/yaml.md`. What the
//! planner writes is read by Go as what was meant.

mod decided;
mod documents;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use switchyard_planner::document::{self, Limits, Node, Text, to_json};
use switchyard_planner::plan::{self, Operation, Request, Source};
use switchyard_planner::problem::{Kind, Problem};
use switchyard_planner::registry::{Layers, Registry};
use switchyard_tests::sandbox::{Tool, Toolbox};

use self::decided::{Met, ROWS};
use self::documents::Dice;

/// What Go says about a document. Numbers are maps of one key, [`NUMBER`], with the text of the number.
#[derive(Debug, Default, Deserialize)]
struct Judgement {
    yaml: Value,
    #[serde(default)]
    error: String,
    /// Whether a key is there twice.
    #[serde(default)]
    repeats: bool,
    /// What yaml.v3 reads, when there may be a merge key.
    merged: Option<Value>,
    /// Whether anything follows the first document.
    #[serde(default)]
    more: bool,
    #[serde(default)]
    is_json: bool,
    json: Value,
}

const NUMBER: &str = "$number";

/// Characters that are line breaks in YAML 1.1, and others that are in no document, which stand for them.
const SEPARATORS: [(char, &str); 3] = [('\u{85}', "\u{e085}"), ('\u{2028}', "\u{e028}"), ('\u{2029}', "\u{e029}")];

async fn judged(documents: &[String]) -> Vec<Judgement> {
    let tools = Toolbox::get(&[Tool::YamlJudge]).await.unwrap();
    let mut child = Command::new(tools.path(Tool::YamlJudge).unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let encoded: Vec<_> = documents.iter().map(|document| STANDARD.encode(document)).collect();
    let input = serde_json::to_vec(&encoded).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    for (separator, other) in SEPARATORS {
        text = text.replace(other, &separator.to_string());
    }
    let judgements: Vec<Judgement> = serde_json::from_str(&text).unwrap();
    assert_eq!(judgements.len(), documents.len());
    judgements
}

/// What the planner reads, or what it says against the document.
fn ours(document: &str) -> Result<Value, Box<Problem>> {
    let (node, problems) = document::read(Text::new(document), &Limits::default());
    match (node, problems.into_iter().next()) {
        (_, Some(problem)) => Err(Box::new(problem)),
        (Some(node), None) => Ok(tree(&node)),
        (None, None) => panic!("neither a tree nor a problem"),
    }
}

fn tree(node: &Node<'_>) -> Value {
    match &node.value {
        document::Value::Number(number) => json!({NUMBER: number}),
        document::Value::List(list) => list.iter().map(tree).collect(),
        document::Value::Map(map) => {
            let entries = map.iter().map(|entry| (entry.key.to_string(), tree(&entry.node)));
            Value::Object(entries.collect())
        }
        _ => serde_json::from_str(&to_json(node)).unwrap(),
    }
}

/// Whether a document that is this could be a design: one scalar never is, however it is read.
fn is_scalar(value: &Value) -> bool {
    !value.is_array() && value.as_object().is_none_or(|map| map.contains_key(NUMBER))
}

/// What differs and is not decided.
fn wrong(met: &mut Met, document: &str, way: &str, go: &Judgement) -> Option<String> {
    // A document that is JSON is read as that by whoever reads JSON.
    let theirs = match (go.is_json, go.error.is_empty()) {
        (true, _) => Some(&go.json),
        (false, true) => Some(&go.yaml),
        (false, false) => None,
    };
    match (ours(way), theirs.filter(|theirs| !is_scalar(theirs))) {
        (Ok(ours), Some(theirs)) => {
            let place = met.difference(&ours, theirs)?;
            (!met.otherwise(&ours, go)).then(|| format!("read differently at `{place}`"))
        }
        (Ok(ours), None) if is_scalar(&ours) => None,
        (Ok(_), None) if met.passed_over(go) || met.read(document, &go.error) => None,
        (Ok(_), None) => Some(format!("read by us alone; Go says {:?}", go.error)),
        (Err(_), None) => None,
        // The reader of JSON is asked first, and has the word when neither works. Its document comes a second time, as YAML.
        (Err(problem), Some(_)) if !go.is_json && problem.message.starts_with("not valid JSON") => None,
        (Err(problem), Some(_)) if met.refused(document, &problem, go) => None,
        (Err(problem), Some(_)) => Some(format!("refused by us alone: {} {}", problem.kind.as_str(), problem.message)),
    }
}

/// A document as it is, and such that the reader of all of YAML has to read it.
fn ways(document: &str) -> Vec<String> {
    let mut ways = vec![document.to_owned()];
    let begins = |with: &str| document.trim_start().starts_with(with);
    if !begins("%") && !begins("\u{feff}") && !begins("---") {
        ways.push(format!("---\n{document}"));
    }
    ways
}

#[tokio::test]
async fn documents_mean_to_the_planner_what_they_mean_to_go() {
    let mut met = Met::default();
    let documents = documents::all();
    let asked: Vec<_> = documents.iter().map(|document| met.lines(document)).collect();
    let mut all_wrong = Vec::new();
    for (document, go) in documents.iter().zip(judged(&asked).await) {
        for way in ways(document) {
            all_wrong.extend(wrong(&mut met, document, &way, &go).map(|what| format!("{way:?}\n  {what}")));
        }
    }
    let first = all_wrong.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(all_wrong.is_empty(), "{} of {} documents\n{first}", all_wrong.len(), documents.len());
    // A decision that no document meets is none.
    let never: Vec<_> = ROWS.iter().filter(|row| !met.0.contains(*row)).collect();
    assert!(never.is_empty(), "never met: {never:?}");
}

#[test]
fn every_decision_stands_in_the_documentation() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/yaml.md")).unwrap();
    // Of limits, which no document here comes near, there is one row more.
    assert_eq!(text.lines().filter(|line| line.starts_with("| ")).count(), ROWS.len() + 2, "a row without a decision");
    for row in ROWS {
        assert!(text.contains(&format!("| {row} |")), "{row}");
    }
}

/// Designs from the field. They hold secrets: nothing of them is printed but file names and paths of fields.
#[tokio::test]
#[ignore = "needs ../shared/corpus, which is no part of the repository"]
async fn designs_from_the_field_mean_the_same_to_go() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus/designs");
    let entries = fs::read_dir(folder).unwrap();
    let paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    let (paths, documents): (Vec<_>, Vec<_>) =
        paths.into_iter().filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?))).unzip();
    let mut met = Met::default();
    let asked: Vec<_> = documents.iter().map(|document| met.lines(document)).collect();
    let mut all_wrong = Vec::new();
    for ((path, document), go) in paths.iter().zip(&documents).zip(judged(&asked).await) {
        for way in ways(document) {
            all_wrong.extend(wrong(&mut met, document, &way, &go).map(|what| format!("{}: {what}", path.display())));
        }
    }
    assert!(all_wrong.is_empty(), "{}", all_wrong.join("\n"));
}

#[tokio::test]
async fn json_is_the_same_to_every_reader() {
    let mut dice = Dice(0x00c0_ffee_0000_0001);
    let documents: Vec<String> = (0..500).map(|_| json!({"a": value(&mut dice, 4)}).to_string()).collect();
    let mut met = Met::default();
    for (document, go) in documents.iter().zip(judged(&documents).await) {
        assert!(go.is_json, "{document}");
        for way in ways(document) {
            let read = ours(&way).unwrap();
            assert_eq!(met.difference(&read, &go.json), None, "{way}");
            assert_eq!(met.difference(&read, &go.yaml), None, "{way}");
        }
    }
}

const TEXTS: &[&str] = &[
    "", "a", "yes", "1", "null", "a b", "a\nb", "\t", "\"", "\\", "é", "😀", "{", "# a", "a: b", "- a", "1e3", "~",
    "\u{a0}", "\r\n",
];

fn value(dice: &mut Dice, depth: usize) -> Value {
    match dice.roll(if depth == 0 { 5 } else { 7 }) {
        0 => Value::Null,
        1 => json!(dice.roll(2) == 0),
        2 => json!(dice.roll(1_000_000)),
        3 => json!(dice.roll(1_000) as f64 / 8.0),
        4 => json!(dice.one(TEXTS)),
        5 => (0..dice.roll(4)).map(|_| value(dice, depth - 1)).collect(),
        _ => {
            let entries =
                (0..dice.roll(4)).map(|number| (format!("k{number}{}", dice.one(TEXTS)), value(dice, depth - 1)));
            Value::Object(entries.collect::<Vec<_>>().into_iter().collect())
        }
    }
}

/// Characters that JSON and YAML see differently, and some beside them.
const SPECIAL: &[char] = &[
    '\u{0}',
    '\u{1}',
    '\t',
    '\n',
    '\r',
    '\u{1f}',
    ' ',
    '"',
    '\\',
    '/',
    '\u{7e}',
    '\u{7f}',
    '\u{80}',
    '\u{85}',
    '\u{9b}',
    '\u{9f}',
    '\u{a0}',
    '\u{2028}',
    '\u{2029}',
    '\u{feff}',
    '\u{fffd}',
    '\u{fffe}',
    '\u{ffff}',
    '\u{1f600}',
    '\u{1fffe}',
];

/// The longest key that an API server takes, and the longest of characters that are escaped.
fn longest() -> [String; 3] {
    ["k".repeat(1_022), format!("{}kk", "\u{85}".repeat(170)), "\"".repeat(511)]
}

#[tokio::test]
async fn what_the_planner_writes_is_read_by_go_as_what_was_meant() {
    let mut dice = Dice(0x0bad_cafe_0000_0001);
    let text = |dice: &mut Dice| -> String {
        (0..dice.roll(12)).map(|_| if dice.roll(2) == 0 { *dice.one(SPECIAL) } else { 'x' }).collect()
    };
    let mut meant = Vec::new();
    for number in 0..500 {
        let mut data = json!({"long": "k".repeat(5_000)});
        for key in longest() {
            data[key] = json!("long");
        }
        for _ in 0..4 {
            let key = text(&mut dice);
            data[key] = json!(text(&mut dice));
        }
        meant.push((format!("c{number}"), data));
    }
    let plan = plan::plan(request(&design(&meant)), Layers { request: None, own: &Registry::builtin() }).unwrap();
    let manifests: Vec<String> = plan.steps.into_iter().map(|step| step.payload.0).collect();
    assert_eq!(manifests.len(), meant.len());
    for ((manifest, go), (name, data)) in manifests.iter().zip(judged(&manifests).await).zip(&meant) {
        assert_eq!(go.error, "", "{manifest}");
        assert_eq!((&go.yaml["metadata"]["name"], &go.yaml["data"]), (&json!(name), data), "{manifest}");
    }
}

#[tokio::test]
async fn keys_that_no_api_server_takes_are_refused() {
    for key in longest() {
        let longer = format!("{key}x");
        let meant = vec![("a".to_owned(), json!({&longer: "long"}))];
        let refused = plan::plan(request(&design(&meant)), Layers { request: None, own: &Registry::builtin() });
        let Err(plan::Refusal::Design { problems, .. }) = refused else { panic!("{} bytes are read", longer.len()) };
        assert_eq!(problems.iter().map(|problem| problem.kind).collect::<Vec<_>>(), [Kind::LimitExceeded]);
        // As the planner would have written it.
        let written = serde_json::to_string(&longer).unwrap().replace('\u{85}', "\\u0085");
        let [go] = &judged(&[format!("{{{written}:1}}")]).await[..] else { panic!("one judgement") };
        assert!(!go.error.is_empty(), "Go reads {} bytes", written.len());
    }
}

fn design(data: &[(String, Value)]) -> String {
    let components: Vec<_> = data
        .iter()
        .map(|(name, data)| {
            json!({"displayName": name, "component": {"kind": "ConfigMap", "version": "v1"}, "model": {"name": "kubernetes"},
                "configuration": {"data": data}})
        })
        .collect();
    json!({"name": "x", "components": components}).to_string()
}

fn request(document: &str) -> Request<'_> {
    Request {
        source: Source::Text(document),
        operation: Operation::Deploy,
        dry_run: false,
        clusters: vec!["east".into()],
        charts: false,
        default_namespace: "default".into(),
        limits: Limits::default(),
    }
}
