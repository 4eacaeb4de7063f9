//! What tests of whole designs share: the registries they are planned with, and an answer as a row of a table.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use switchyard_planner::{
    document::Limits,
    plan::{Operation, Plan, Refusal, Request, Source, plan},
    registry::{Form, Layers, Registrant, Registry},
};

/// The files of a folder, by name.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    files
}

/// A registry in which one registrant without an adapter stands behind everything.
pub(crate) fn everything_direct() -> Registry {
    let form =
        Form { registrants: vec![Registrant::named("all")], default_registrant: "all".into(), ..Form::default() };
    Registry::from_form(form, None).unwrap()
}

pub(crate) fn planned(text: &str, registry: &Registry, operation: Operation) -> Result<Plan, Refusal> {
    planned_with(text, Layers { request: None, own: registry }, operation)
}

pub(crate) fn planned_with(text: &str, registries: Layers<'_>, operation: Operation) -> Result<Plan, Refusal> {
    let request = Request {
        source: Source::Text(text),
        operation,
        dry_run: false,
        clusters: vec!["east".into(), "west".into()],
        charts: false,
        default_namespace: "default".into(),
        limits: Limits::default(),
    };
    plan(request, registries)
}

pub(crate) fn kinds(refusal: &Refusal) -> String {
    let Refusal::Design { problems, .. } = refusal else { panic!("no address in the corpus: {refusal}") };
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for problem in problems {
        *kinds.entry(problem.kind.as_str()).or_default() += 1;
    }
    kinds.iter().map(|(kind, count)| format!("{kind}*{count}")).collect::<Vec<_>>().join(" ")
}

/// What the table says about a file: steps, set aside, declared edges, undeclared edges, problems with a registry that
/// routes everything directly; then problems with the planner's built-in registry.
pub(crate) fn row(text: &str) -> String {
    let mut row = match planned(text, &everything_direct(), Operation::Deploy) {
        Ok(plan) => {
            let declared: usize = plan.steps.iter().map(|step| step.depends_on.len()).sum();
            let undeclared: usize = plan.steps.iter().map(|step| step.runs_after.len()).sum();
            format!("{}\t{}\t{declared}\t{undeclared}\t-", plan.steps.len(), plan.set_aside.len())
        }
        Err(refusal) => format!("-\t-\t-\t-\t{}", kinds(&refusal)),
    };
    match planned(text, &Registry::builtin(), Operation::Deploy) {
        Ok(_) => row.push_str("\t-"),
        Err(refusal) => write!(row, "\t{}", kinds(&refusal)).unwrap(),
    }
    row
}

pub(crate) fn name(file: &Path) -> String {
    file.file_name().unwrap().to_string_lossy().into_owned()
}

/// The rows of a table, by file.
pub(crate) fn table(table: &str) -> BTreeMap<&str, (&str, String)> {
    let rows = table.lines().filter(|line| !line.starts_with('#') && !line.starts_with("file\t"));
    rows.map(|line| {
        let mut cells = line.split('\t');
        let (file, checked) = (cells.next().unwrap(), cells.next().unwrap());
        (file, (checked, cells.take(6).collect::<Vec<_>>().join("\t")))
    })
    .collect()
}

/// Compares what the planner answers to the designs of a folder with a table. `SWITCHYARD_CORPUS_WRITE=<file>` writes what it
/// answers now, in the table's form, to compare.
pub(crate) fn assert_answers(folder: &Path, expected: &str) {
    let table = table(expected);
    let (mut wrong, mut written) = (String::new(), String::new());
    let files = files(folder);
    for file in &files {
        let (name, found) = (name(file), row(&fs::read_to_string(file).unwrap()));
        writeln!(written, "{name}\t{found}").unwrap();
        match table.get(name.as_str()) {
            Some((_, expected)) if *expected == found => {}
            expected => writeln!(wrong, "{name}: expected {expected:?}, found {found:?}").unwrap(),
        }
    }
    if let Ok(path) = std::env::var("SWITCHYARD_CORPUS_WRITE") {
        fs::write(path, written).unwrap();
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(table.len(), files.len(), "the table has rows of files that are not there");
}
