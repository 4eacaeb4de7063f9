//! The program itself: what it says about a registry it cannot use.
#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::process::Command;

fn planner(flags: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_switchyard-planner")).args(flags).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_registry_that_cannot_be_used_ends_the_program_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("registry.json");
    std::fs::write(&file, "{\"registrants\": [{\"name\": \"a\", \"hots\": \"b\"}]}").unwrap();
    for (path, part) in
        [("/nowhere/at/all.yaml", "/nowhere/at/all.yaml"), (file.to_str().unwrap(), "registrants[0].hots")]
    {
        let (code, text) = planner(&["--listen", "127.0.0.1:0", "--log", "off", "--registry", path]);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(path) && text.contains(part), "{text}");
        assert_eq!(text.trim().lines().count(), 1, "{text}");
    }
}
