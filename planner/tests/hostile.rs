//! Documents made to hurt are refused in bounded time and memory, naming the limit (case 144).
//!
//! One test, so that nothing else runs in the process while peak memory is read.
#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::try_plan;
use switchyard_planner::plan::Refusal;

/// Peak memory in bytes since the last call to [`forget_peak`].
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn forget_peak() -> u64 {
    let _ = fs::write("/proc/self/clear_refs", "5");
    peak()
}

struct Case {
    name: &'static str,
    text: Box<dyn Fn() -> String>,
    /// What the message must hold; empty for what is only to be survived.
    told: &'static str,
    /// What the answer may cost in memory, for every byte of the document, when that is more than 64 MiB.
    memory: u64,
}

fn case(name: &'static str, told: &'static str, text: impl Fn() -> String + 'static) -> Case {
    Case { name, text: Box::new(text), told, memory: 10 }
}

fn cases() -> Vec<Case> {
    let nested = |levels: usize| format!("{{\"components\": {}{}}}", "[".repeat(levels), "]".repeat(levels));
    let long = || "k".repeat(10 << 20);
    vec![
        case("a nine-level alias bomb", "aliases", laughs),
        case("a string aliased 20,000 times", "aliases", || {
            format!("s: &s {}\nl: [{}]\n", "x".repeat(100_000), "*s,".repeat(20_000))
        }),
        case("a tower of aliases", "levels deep", || {
            let level = |level: usize| format!("t{level}: &t{level} [*t{}]\n", level - 1);
            format!("t0: &t0 [1]\n{}", (1..400).map(level).collect::<String>())
        }),
        case("an alias in its own anchor", "inside", || "a: &a [*a]\n".into()),
        case("merge keys 1,000 deep", "aliases", || {
            let level = |level: usize| format!("m{level}: &m{level} {{<<: *m{}, k{level}: 0}}\n", level - 1);
            format!("m0: &m0 {{k0: 0}}\n{}", (1..1000).map(level).collect::<String>())
        }),
        case("200 levels of JSON", "100 levels deep", move || nested(200)),
        case("200 levels of YAML", "100 levels deep", || format!("a: {}{}", "[".repeat(200), "]".repeat(200))),
        case("100,000 levels of JSON", "100 levels deep", move || nested(100_000)),
        case("100,000 open brackets", "100 levels deep", || "[".repeat(100_000)),
        case("100,000 open brackets of YAML", "levels deep", || format!("a: {}", "[".repeat(100_000))),
        case("3,000 levels of block maps", "levels deep", || {
            (0..3000).map(|level| format!("{}a:\n", " ".repeat(level))).collect()
        }),
        case("20,000 dashes", "levels deep", || "- ".repeat(20_000)),
        case("a 10 MiB key of JSON", "limit for a key is 1022", move || format!("{{\"{}\": 1}}", long())),
        case("a 10 MiB key of YAML", "", move || format!("\"{}\": 1\n", long())),
        case("a 10 MiB key of YAML, explicit", "limit for a key is 1022", move || format!("? {}\n: 1\n", long())),
        case("a map of 1,000,000 keys", "200000 keys", || {
            format!("{{{}}}", (0..1_000_000).map(|key| format!("\"k{key}\":1")).collect::<Vec<_>>().join(","))
        }),
        case("a YAML map of 300,000 keys", "200000 keys", || (0..300_000).map(|key| format!("k{key}: 1\n")).collect()),
        case("a list of 8,000,000 numbers", "values", || format!("[{}1]", "1,".repeat(8_000_000))),
        case("a scalar of 50 MiB", "limit is 16777216", || format!("{{\"a\": \"{}\"}}", "x".repeat(50 << 20))),
        case("a scalar of 15 MiB", "", || format!("{{\"components\": [], \"a\": \"{}\"}}", "x".repeat(15 << 20))),
        case("50,000 duplicate keys", "second time", || format!("{{\"a\":{}1}}", "1,\"a\":".repeat(50_000))),
        Case { memory: 40, ..case("30,000 unknown names", "no component of this design", || unknown_names(30_000)) },
        Case { memory: 40, ..case("40,000 twins", "same Kubernetes object", || twins(40_000)) },
        Case { memory: 200, ..case("a knot of everybody with everybody", "cycle", || knot(600)) },
    ]
}

fn laughs() -> String {
    let mut laughs = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        laughs += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    laughs
}

fn unknown_names(count: usize) -> String {
    let component = |number: usize| {
        format!(
            "{{\"displayName\":\"name-{number:06}\",\"component\":{{\"kind\":\"Pod\",\"version\":\"v1\"}},\"model\":{{\"name\":\"kubernetes\"}},\
             \"metadata\":{{\"dependsOn\":[\"wrong-{number:06}\"]}}}}"
        )
    };
    format!("{{\"name\":\"x\",\"components\":[{}]}}", (0..count).map(component).collect::<Vec<_>>().join(","))
}

fn twins(count: usize) -> String {
    let component = |number: usize| {
        format!(
            "{{\"displayName\":\"a\",\"component\":{{\"kind\":\"Pod\",\"version\":\"v1\"}},\"model\":{{\"name\":\"kubernetes\"}},\
             \"configuration\":{{\"n\":{number}}}}}"
        )
    };
    format!("{{\"name\":\"x\",\"components\":[{}]}}", (0..count).map(component).collect::<Vec<_>>().join(","))
}

fn knot(count: usize) -> String {
    let names: Vec<_> = (0..count).map(|number| format!("\"node-{number}\"")).collect();
    let names = names.join(",");
    let component = |number: usize| {
        format!(
            "{{\"displayName\":\"node-{number}\",\"component\":{{\"kind\":\"Pod\",\"version\":\"v1\"}},\"model\":{{\"name\":\"kubernetes\"}},\
             \"metadata\":{{\"dependsOn\":[{names}]}}}}"
        )
    };
    format!("{{\"name\":\"x\",\"components\":[{}]}}", (0..count).map(component).collect::<Vec<_>>().join(","))
}

#[test]
fn hostile_documents_are_refused_cheaply() {
    // The bounds are for a release build; unoptimised code on a busy machine gets more time.
    let patience = if cfg!(debug_assertions) { Duration::from_secs(60) } else { Duration::from_secs(1) };
    let base = forget_peak();
    for Case { name, text, told, memory } in cases() {
        let text = text();
        forget_peak();
        let start = Instant::now();
        let answer = try_plan(&text);
        let (took, used) = (start.elapsed(), peak().saturating_sub(base + text.len() as u64));
        eprintln!("{name}: {took:?}, {} KiB for {} KiB", used >> 10, text.len() >> 10);
        match answer {
            Ok(_) => assert!(told.is_empty(), "{name}: planned"),
            Err(Refusal::Design { problems, .. }) => {
                assert!(problems.iter().any(|problem| problem.message.contains(told)), "{name}: {}", problems[0]);
                assert!(problems.iter().all(|problem| problem.to_string().len() < 2_000), "{name}");
            }
            Err(other) => panic!("{name}: {other}"),
        }
        assert!(took < patience, "{name}: {took:?}");
        // What the allocator kept of the case before is in it, so this errs on the strict side.
        let allowed = (64 << 20).max(memory * text.len() as u64);
        assert!(used < allowed, "{name}: {} KiB", used >> 10);
    }
}
