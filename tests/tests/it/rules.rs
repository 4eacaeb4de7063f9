//! Every rule and fault case that is cited anywhere is defined in `docs/rules.md` and `docs/cases.md`.

use std::{collections::BTreeSet, fs, path::Path};

use crate::readme::{read, root};

/// A rule's or a case's number in a text, and where it stands.
type Citation = (String, String);

#[test]
fn every_rule_that_is_cited_is_defined() {
    let rules = read("docs/rules.md");
    let defined: BTreeSet<&str> =
        rules.lines().filter_map(|line| line.strip_prefix("**")?.split("**").next()).collect();
    for (letter, last) in [('S', 25), ('D', 27), ('L', 11)] {
        let first = if letter == 'L' { 0 } else { 1 };
        for number in first..=last {
            assert!(defined.contains(format!("{letter}{number}").as_str()), "{letter}{number} is not in docs/rules.md");
        }
    }
    let cited = citations(rules_in);
    assert!(cited.len() > 300, "only {} citations were found", cited.len());
    let undefined: Vec<_> = cited.into_iter().filter(|(rule, _)| !defined.contains(rule.as_str())).collect();
    assert_eq!(undefined, [], "rules that docs/rules.md does not define");
}

#[test]
fn every_case_that_is_cited_is_defined() {
    let cases = read("docs/cases.md");
    let defined: BTreeSet<&str> =
        cases.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()).collect();
    let cited = citations(cases_in);
    assert!(cited.len() > 100, "only {} citations were found", cited.len());
    let undefined: Vec<_> = cited.into_iter().filter(|(case, _)| !defined.contains(case.as_str())).collect();
    assert_eq!(undefined, [], "cases that docs/cases.md does not define");
}

/// What `find` finds in comments of all sources and in all pages.
fn citations(find: fn(&str) -> Vec<String>) -> Vec<Citation> {
    let mut found = Vec::new();
    let folders = ["proto", "planner", "executor", "service", "tests", "docs", "k8s"];
    let mut files: Vec<_> = folders.iter().flat_map(|folder| files(&root().join(folder))).collect();
    files.extend(["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(|name| root().join(name)));
    for file in files {
        let name = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (index, line) in text.lines().enumerate() {
            let said =
                if name.ends_with(".md") { Some(line) } else { line.split_once("//").map(|(_, comment)| comment) };
            let place = format!("{name}:{}", index + 1);
            found.extend(said.into_iter().flat_map(find).map(|number| (number, place.clone())));
        }
    }
    found
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                found.extend(files(&path));
            }
        } else if path.extension().is_some_and(|extension| ["rs", "md", "proto"].iter().any(|it| extension == *it)) {
            found.push(path);
        }
    }
    found
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

fn rules_in(line: &str) -> Vec<String> {
    let is_rule = |word: &&str| {
        let number = word.strip_prefix(['S', 'D', 'L']).unwrap_or_default();
        !number.is_empty() && number.len() <= 2 && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    words(line).filter(is_rule).map(str::to_owned).collect()
}

fn cases_in(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut listing = false;
    for word in words(line) {
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        match word {
            "case" | "cases" | "Case" | "Cases" => listing = true,
            "and" if listing => {}
            _ if listing && is_number => found.push(word.to_owned()),
            _ => listing = false,
        }
    }
    found
}

#[test]
fn lists_of_numbers_are_read_whole() {
    assert_eq!(cases_in("cases 39, 40 and 41 of them; Case 145, seen"), ["39", "40", "41", "145"]);
    assert_eq!(rules_in("D12, S18; L0 and S3x or SD1"), ["D12", "S18", "L0"]);
}
