//! Planner and schedule must not become slower unnoticed. Time says little on a busy machine, instructions say the same every
//! time: valgrind counts them, and they are compared with what is written down in `instructions.json`.
//!
//! They are counted as `cargo test` builds, without optimisation, so that nothing has to be built for it. What is optimised away
//! in a release counts here; who has made a release no slower writes the new numbers down, and says so.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};

/// What may be more than is written down, in percent.
const MARGIN: u64 = 5;

/// What is counted: what `instructions.json` calls it, where its test is, and the function that is counted with all that it calls.
const COUNTED: [Counted; 2] = [
    Counted {
        name: "planning of 1,000 components",
        source: "planner/tests/load.rs",
        test: "large_design_becomes_a_plan",
        function: "*counted_planning*",
    },
    Counted {
        name: "schedule of 2,000 steps on two clusters",
        source: "executor/src/lib.rs",
        test: "core::schedule::load::large_plan_runs_to_its_end",
        function: "*counted_schedule*",
    },
];

struct Counted {
    name: &'static str,
    source: &'static str,
    test: &'static str,
    function: &'static str,
}

#[test]
fn planner_and_schedule_take_no_more_instructions_than_written_down() -> anyhow::Result<()> {
    let valgrind = Command::new("valgrind").arg("--version").stdin(Stdio::null()).output();
    if !valgrind.is_ok_and(|output| output.status.success()) {
        return skipped("valgrind, which counts instructions, is not installed");
    }
    if !cfg!(debug_assertions) {
        return skipped("the numbers that are written down are of a build without optimisation");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/instructions.json");
    let known: BTreeMap<String, u64> = serde_json::from_str(&fs::read_to_string(&file)?)?;
    let mut now = BTreeMap::new();
    for counted in COUNTED {
        let program = counted.build().with_context(|| format!("{}: failed to build", counted.name))?;
        let instructions = counted.count(&program).with_context(|| format!("{}: failed to count", counted.name))?;
        eprintln!("{}: {instructions} instructions", counted.name);
        now.insert(counted.name.to_owned(), instructions);
    }
    let told = serde_json::to_string_pretty(&now)?;
    for (name, instructions) in &now {
        let known = *known.get(name).with_context(|| format!("nothing is written down for {name}; now:\n{told}"))?;
        ensure!(
            *instructions <= known + known * MARGIN / 100,
            "{name} took {instructions} instructions, more than {MARGIN} % above the {known} that are written down; if that has a \
             good reason, write into {}:\n{told}",
            file.display()
        );
    }
    Ok(())
}

/// Says why nothing is counted, past the test harness, which keeps what a test that passes has said.
fn skipped(why: &str) -> anyhow::Result<()> {
    writeln!(io::stderr(), "instructions are not counted: {why}")?;
    Ok(())
}

impl Counted {
    /// Has cargo build the test's program, as it has for the run that this test is part of.
    fn build(&self) -> anyhow::Result<PathBuf> {
        // All of the workspace, as for the run that this is part of: with a part of it, dependencies would have other features or
        // other debug information, and be built once more, beside tests that wait in time.
        let mut command = switchyard_tests::programs::cargo("test");
        command.args(["--no-run", "--message-format=json-render-diagnostics", "--workspace"]);
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("failed to run cargo")?;
        ensure!(output.status.success(), "cargo ended with {}", output.status);
        let lines = output.stdout.split(|&byte| byte == b'\n');
        let mut programs = lines.filter_map(|line| {
            let message: serde_json::Value = serde_json::from_slice(line).ok()?;
            let ours = message["target"]["src_path"].as_str()?.ends_with(self.source);
            (ours && message["profile"]["test"] == true).then(|| Some(message["executable"].as_str()?.into()))?
        });
        programs.next().context("cargo built no test program")
    }

    fn count(&self, program: &Path) -> anyhow::Result<u64> {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
            .arg(format!("--toggle-collect={}", self.function))
            .arg(program)
            .args(["--exact", self.test, "--test-threads=1"])
            .stdin(Stdio::null())
            .output()
            .context("failed to run valgrind")?;
        let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success() && said.contains("1 passed"), "the test did not pass:\n{said}{told}");
        // `==123== Collected : 12345`
        let collected = told.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
        match collected {
            Some(0) | None => bail!("valgrind counted nothing of {}:\n{told}", self.function),
            Some(instructions) => Ok(instructions),
        }
    }
}
