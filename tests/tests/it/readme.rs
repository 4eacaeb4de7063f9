//! What the README says is true.

use std::{fs, path::Path, process::Command};

use switchyard_tests::{
    programs::Program,
    sandbox::{Tool, Toolbox},
};

use crate::pair::Pair;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is a folder of the repository")
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[tokio::test]
async fn grpcurl_pipe_of_the_readme_works_as_printed() {
    let pair = Pair::shared().await;
    let readme = read("README.md");
    // As the README starts it.
    let registry = "tests/examples/registry.yaml";
    assert!(readme.contains(&format!("switchyard-planner --registry {registry} &")), "{readme}");
    let planner = Program::Planner.prepare().arg("--registry").arg(root().join(registry)).start().await.unwrap();
    let pipe = readme.split("```").find(|block| block.contains("PlannerService/Plan <")).unwrap();
    let pipe = pipe.trim_start_matches("sh");
    assert_eq!((pipe.matches("localhost:7001").count(), pipe.matches("localhost:7002").count()), (1, 1));
    let pipe = pipe
        .replace("localhost:7001", &planner.address().to_string())
        .replace("localhost:7002", &pair.executor.address().to_string());
    let tools = Toolbox::get(&[Tool::Grpcurl]).await.unwrap();
    let folder = tools.path(Tool::Grpcurl).unwrap().parent().unwrap().display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();

    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &pipe]).current_dir(root()).env("PATH", format!("{folder}:{path}"));
    let output = tokio::task::spawn_blocking(move || shell.output()).await.unwrap().unwrap();

    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("VERDICT_SUCCEEDED"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn code_of_the_readme_is_the_example_that_is_compiled() {
    let example = read("tests/examples/deploy.rs");
    let (_, code) = example.split_once("\n\n").unwrap();
    assert!(read("README.md").contains(&format!("```rust\n{code}```")), "README.md shows something else than\n{code}");
}

/// Every rule stands in the table of `tests/README.md`, and every test that it or `SECURITY.md` names is there.
#[test]
fn every_test_of_the_table_is_there() {
    let table = read("tests/README.md");
    let rules = (1..=25).map(|number| format!("S{number}")).chain((1..=27).map(|number| format!("D{number}")));
    for rule in rules {
        assert!(table.contains(&format!("\n| {rule} | `")), "no test of {rule} is named");
    }
    let mut sources = Vec::new();
    for folder in
        ["tests/tests", "planner/src", "planner/tests", "executor/src", "service/src", "service/tests", "proto/src"]
    {
        gather(&root().join(folder), &mut sources);
    }
    let (_, after) = table.split_once("## Rules").unwrap();
    let (rows, _) = after.split_once("## Fault cases").unwrap();
    let security = read("SECURITY.md");
    let (of_rules, of_claims) = (named(rows), named(&security));
    assert!(of_rules.len() > 52 && of_claims.len() > 15, "{} and {}", of_rules.len(), of_claims.len());
    for test in of_rules.into_iter().chain(of_claims) {
        let test_fn = format!("fn {test}(");
        assert!(sources.iter().any(|text| text.contains(&test_fn)), "there is no test {test}");
    }
}

/// The tests that a text names.
fn named(text: &str) -> Vec<&str> {
    text.split('`').filter_map(|word| word.split_once("::")).map(|(_, test)| test).collect()
}

/// The texts of all Rust files below a folder.
pub(crate) fn gather(folder: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(fs::read_to_string(path).unwrap());
        }
    }
}
