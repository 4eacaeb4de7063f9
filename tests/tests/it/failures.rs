//! Every reason why a component fails has a test that drives a real part into it (`docs/failures.md`).

use crate::readme::{gather, read, root};

#[test]
fn every_reason_has_a_test_that_meets_it() {
    let page = read("docs/failures.md");
    let mut files = Vec::new();
    for folder in ["tests/tests", "executor/src"] {
        gather(&root().join(folder), &mut files);
    }
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(rows.len() >= 44, "{}", rows.len());
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [reason, .., tests] = cells[..] else { panic!("{row}") };
        let reason = format!("\"{}\"", reason.trim_matches('`'));
        let tests: Vec<_> = tests.split('`').filter_map(|word| word.split_once("::")).collect();
        assert!(!tests.is_empty(), "no test of {reason} is named");
        for (module, test) in tests {
            let holds = |text: &&String| text.contains(&format!("fn {test}("));
            let text = files.iter().find(holds).unwrap_or_else(|| panic!("there is no test {module}::{test}"));
            assert!(text.contains(&reason) || module == "refusals", "{module}::{test} does not meet {reason}");
        }
    }
}
