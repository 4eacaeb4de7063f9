//! How long planning takes and what it costs in memory: a chain, a fan and a layered design.
//!
//! Goals (release): 10,000 components in under 100 ms, 100,000 in under 1 s, growth linear, peak memory under ten times the
//! document. `cargo bench -p switchyard-planner`; `-- json/chain` for a part,
//! `-- --once 'json/chain/10000$'` for one planning and nothing else, to be profiled.

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use switchyard_planner::convert::{Intake, Parts};
use switchyard_planner::document::Limits;
use switchyard_planner::plan::plan;
use switchyard_planner::registry::{Layers, Registry};
use switchyard_proto::v1;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Clone, Copy)]
enum Shape {
    Chain,
    Fan,
    Layered,
}

const SHAPES: [(&str, Shape); 3] = [("chain", Shape::Chain), ("fan", Shape::Fan), ("layered", Shape::Layered)];
const SIZES: [usize; 3] = [1_000, 10_000, 100_000];

impl Shape {
    /// What component `number` depends on. Layers are ten wide, each component on three of the layer before.
    fn depends_on(self, number: usize) -> Vec<usize> {
        match self {
            Self::Chain => number.checked_sub(1).into_iter().collect(),
            Self::Fan => (number > 0).then_some(0).into_iter().collect(),
            Self::Layered if number < 10 => Vec::new(),
            Self::Layered => (0..3).map(|k| number / 10 * 10 - 10 + (number + k * 3) % 10).collect(),
        }
    }
}

/// A design as Meshery writes it, on one line.
fn json(shape: Shape, size: usize) -> String {
    let mut text = String::from(
        r#"{"id":"7d0f2f4e-3f0e-4f3b-9a52-0b4a51f6d001","name":"Bench","schemaVersion":"designs.meshery.io/v1beta3","version":"0.0.1","components":["#,
    );
    for number in 0..size {
        let names: Vec<_> = shape.depends_on(number).iter().map(|other| format!("\"c-{other}\"")).collect();
        let comma = if number == 0 { "" } else { "," };
        let names = names.join(",");
        let _ = write!(
            text,
            r#"{comma}{{"id":"00000000-0000-4000-8000-{number:012}","schemaVersion":"components.meshery.io/v1beta2","version":"v1.0.0","displayName":"c-{number}","component":{{"kind":"ConfigMap","version":"v1","schema":""}},"model":null,"modelReference":{{"name":"kubernetes","model":{{"version":"v1.32.0"}}}},"metadata":{{"isAnnotation":false,"isNamespaced":true,"dependsOn":[{names}]}},"configuration":{{"metadata":{{"namespace":"shop","labels":{{"app":"bench"}}}},"data":{{"colour":"blue"}}}}}}"#
        );
    }
    text.push_str("]}");
    text
}

fn yaml(shape: Shape, size: usize) -> String {
    let mut text = String::from(
        "id: 7d0f2f4e-3f0e-4f3b-9a52-0b4a51f6d001\nname: Bench\nschemaVersion: designs.meshery.io/v1beta3\nversion: 0.0.1\ncomponents:\n",
    );
    for number in 0..size {
        let _ = write!(
            text,
            "- id: 00000000-0000-4000-8000-{number:012}\n  displayName: c-{number}\n  component:\n    kind: ConfigMap\n    version: v1\n  modelReference:\n    name: kubernetes\n    model:\n      version: v1.32.0\n  metadata:\n    isAnnotation: false\n    dependsOn:\n"
        );
        for other in shape.depends_on(number) {
            let _ = writeln!(text, "    - c-{other}");
        }
        text.push_str("  configuration:\n    metadata:\n      namespace: shop\n      labels:\n        app: bench\n    data:\n      colour: blue\n");
    }
    text
}

fn request(text: &str) -> v1::PlanRequest {
    let source = v1::design::Source::Document(text.to_owned());
    v1::PlanRequest {
        design: Some(v1::Design { source: Some(source) }),
        clusters: vec!["east".into()],
        ..Default::default()
    }
}

/// From a request that has arrived to the parts of the answer, digest included.
fn parts(request: v1::PlanRequest, registry: &Registry) -> Parts {
    let mut intake = Intake::new(request, Limits::for_bytes(256 << 20)).expect("a request");
    let planned = plan(intake.request(), Layers { request: None, own: registry }).expect("a plan");
    intake.parts(planned, String::new())
}

fn planning(criterion: &mut Criterion) {
    let registry = Registry::builtin();
    for (format, write) in [("json", json as fn(Shape, usize) -> String), ("yaml", yaml)] {
        let mut group = criterion.benchmark_group(format);
        group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
        for size in SIZES {
            for (name, shape) in SHAPES {
                let text = write(shape, size);
                group.throughput(Throughput::Elements(size as u64));
                group.bench_with_input(BenchmarkId::new(name, size), &text, |bencher, text| {
                    bencher.iter_batched(
                        || request(text),
                        |request| parts(request, &registry),
                        BatchSize::PerIteration,
                    );
                });
            }
        }
        group.finish();
    }
}

/// Peak memory of the process in KiB since it was last forgotten.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or_default()
}

/// The time this thread has had on a processor. Unlike time on the wall, it says the same on a busy machine.
fn processor() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default())
}

fn once(filter: &str) {
    let registry = Registry::builtin();
    for (format, write) in [("json", json as fn(Shape, usize) -> String), ("yaml", yaml)] {
        for size in SIZES {
            for (name, shape) in SHAPES {
                // As to criterion, `$` is the end: `json/chain/10000$` is not 100,000 as well.
                if !format!("{format}/{name}/{size}$").contains(filter) {
                    continue;
                }
                let text = write(shape, size);
                let request = request(&text);
                let _ = fs::write("/proc/self/clear_refs", "5");
                let (before, start) = (peak(), processor());
                let made = parts(request, &registry);
                let (used, took) = (peak().saturating_sub(before), processor().saturating_sub(start));
                let document = text.len() >> 10;
                println!(
                    "once {format}/{name}/{size}: {took:?} of a processor, {used} KiB beside a document of {document} KiB; \
                     with it {:.1} times the document",
                    1.0 + used as f64 / document as f64
                );
                drop(black_box(made));
            }
        }
    }
}

fn main() {
    // What the allocator keeps of one size is there for the next, so the sizes come in ascending order.
    let args: Vec<String> = std::env::args().skip(1).collect();
    if !args.iter().any(|arg| matches!(arg.as_str(), "--list" | "--test" | "--profile-time")) {
        once(args.iter().find(|arg| !arg.starts_with('-')).map_or("", String::as_str));
    }
    if args.iter().any(|arg| arg == "--once") {
        return;
    }
    let mut criterion = Criterion::default().configure_from_args();
    planning(&mut criterion);
    criterion.final_summary();
}
