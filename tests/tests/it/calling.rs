//! `docs/calling.md` says what the contract says, and its examples are there.

use switchyard_service::status::Reason;

use crate::readme::{read, root};

/// The comment of each value of `ErrorReason`, by name, without UNSPECIFIED.
fn comments() -> Vec<(String, String)> {
    let codes = read("proto/switchyard/v1/codes.proto");
    let (_, values) = codes.split_once("enum ErrorReason {").unwrap();
    let (values, _) = values.split_once("\n}").unwrap();
    let (mut found, mut comment) = (Vec::new(), Vec::new());
    for line in values.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("// ") {
            comment.push(text);
        } else if let Some((name, _)) = line.strip_prefix("ERROR_REASON_").and_then(|rest| rest.split_once(' ')) {
            found.push((name.to_owned(), std::mem::take(&mut comment).join(" ")));
        }
    }
    found.split_off(1)
}

/// Each comment says the status, what it means and what to do, and the page has nothing else in its table.
#[test]
fn table_of_statuses_is_that_of_the_contract() {
    let mut wanted = Vec::new();
    for (name, comment) in comments() {
        let (status, rest) = comment.split_once(": ").unwrap();
        let reason: Reason = name.parse().unwrap();
        let code = format!("{:?}", reason.code()).to_uppercase();
        assert_eq!(status.split(',').next().unwrap().replace('_', ""), code, "{name}: {comment}");
        let advice = ["Retry", "Tell", "Give up"].into_iter().find_map(|what| {
            let (meaning, how) = rest.split_once(&format!(" {what}: "))?;
            Some((meaning, what.to_lowercase(), how))
        });
        let (meaning, what, how) = advice.unwrap_or_else(|| panic!("{name} does not say what to do: {comment}"));
        wanted.push(format!("| `{name}` | {status} | {meaning} | *{what}*: {how} |"));
    }
    assert_eq!(wanted.len(), Reason::all().count());
    let page = read("docs/calling.md");
    let (_, table) = page.split_once("| reason | status |").unwrap();
    let rows: Vec<_> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows, wanted, "docs/calling.md and the comments of ErrorReason");
}

/// Everything that the page and that of the clients lead to is there, and each client fits on a few pages.
#[test]
fn what_the_pages_lead_to_is_there() {
    for page in ["docs/calling.md", "tests/clients/README.md"] {
        let folder = root().join(page).parent().unwrap().to_owned();
        let text = read(page);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(link, _)| link));
        let links: Vec<_> = links.filter(|link| !link.starts_with("https:")).collect();
        assert!(!links.is_empty(), "{page}");
        for link in links {
            assert!(folder.join(link).exists(), "{page} leads to {link}");
        }
    }
    for client in ["go/main.go", "python/client.py", "typescript/client.ts", "rust/main.rs"] {
        let lines = read(&format!("tests/clients/{client}")).lines().count();
        assert!((100..200).contains(&lines), "{client} has {lines} lines");
        assert!(read("docs/calling.md").contains(&format!("tests/clients/{client}")), "{client} is not named");
    }
    assert!(read("README.md").contains("(docs/calling.md)"));
}
