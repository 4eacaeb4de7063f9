use super::*;
use crate::{
    core::target::ClusterIx,
    fulfil::{
        ObjectId,
        adapter::look::{Seen, There},
    },
    present::diff::{FieldDiff, Shown},
};

fn looks(seen: Vec<Seen>) -> Vec<Look> {
    let name = |ix: usize| ["east", "west"][ix].to_owned();
    seen.into_iter().enumerate().map(|(ix, seen)| Look { at: ClusterIx::from(ix), cluster: name(ix), seen }).collect()
}

fn there(foreign: Option<Reason>, change: Change, differs: Vec<FieldDiff>) -> Seen {
    let foreign = foreign.map(|reason| (reason, "one of others".to_owned()));
    Seen::There(Box::new(There { foreign, change, differs, lingers: None, object: ObjectId::default() }))
}

fn ours(change: Change) -> Seen {
    there(None, change, Vec::new())
}

fn other_than_declared() -> Seen {
    let shown = |text: &str| Shown { text: text.into(), is_cut: false };
    let field = |path: &str, before: &str, after: &str| FieldDiff {
        path: path.into(),
        before: shown(before),
        after: shown(after),
    };
    there(None, Change::Unchanged, vec![field("spec.a", "1", "2"), field("spec.b", "", "3")])
}

fn unknown() -> Seen {
    Seen::Unknown("no such kind".into())
}

fn on_write(said: Result<Unmasked, Error>, seen: Vec<Seen>) -> Result<v1::Change, Verdict> {
    written("mesh:1", &said, &looks(seen)).result
}

fn on_removal(said: Result<Unmasked, Error>, seen: Vec<Seen>) -> Result<v1::Change, Verdict> {
    removed("mesh:1", &said, &looks(seen)).result
}

fn failed() -> Result<Unmasked, Error> {
    Err(Error::Failed { address: "mesh:1".into(), code: tonic::Code::Unknown, why: "no reason".into() })
}

fn lost() -> Result<Unmasked, Error> {
    Err(Error::Lost { address: "mesh:1".into(), why: String::new() })
}

fn ok() -> Result<Unmasked, Error> {
    Ok(Unmasked::default())
}

#[test]
fn ok_counts_only_with_the_object_there_and_marked() {
    let new = || ours(Change::Created);
    assert_eq!(on_write(ok(), vec![new(), new()]), Ok(v1::Change::Created));
    assert_eq!(on_write(ok(), vec![new(), ours(Change::Unchanged)]), Ok(v1::Change::Configured));
    assert_eq!(on_write(ok(), vec![ours(Change::Unchanged)]), Ok(v1::Change::Unchanged));
    let nobodys = || there(Some(Reason::NotOurs), Change::Created, Vec::new());
    for seen in [Seen::Absent, nobodys(), there(Some(Reason::OwnedByDesign), Change::Configured, Vec::new())] {
        assert!(matches!(on_write(ok(), vec![new(), seen]), Err(Verdict::Unknown(_))));
    }
}

#[test]
fn ok_counts_only_with_the_object_as_it_was_declared() {
    let Err(Verdict::Unknown(failure)) = on_write(ok(), vec![ours(Change::Created), other_than_declared()]) else {
        panic!("unknown")
    };
    let text =
        "cluster west holds it otherwise than declared: spec.a is 1, declared as 2, spec.b is absent, declared as 3";
    assert!(failure.message.contains(text), "{}", failure.message);
    assert!(matches!(on_write(lost(), vec![other_than_declared()]), Err(Verdict::Unknown(_))));
    assert!(matches!(on_write(failed(), vec![other_than_declared()]), Err(Verdict::Refused(_))));
}

#[test]
fn ok_that_nobody_can_check_is_acknowledged() {
    assert_eq!(on_write(ok(), vec![unknown(), unknown()]), Ok(v1::Change::Acknowledged));
    assert_eq!(on_removal(ok(), vec![unknown()]), Ok(v1::Change::Acknowledged));
    assert!(matches!(on_write(ok(), vec![unknown(), Seen::Absent]), Err(Verdict::Unknown(_))));
    assert!(matches!(on_write(ok(), vec![unknown(), other_than_declared()]), Err(Verdict::Unknown(_))));
}

#[test]
fn failed_write_stays_a_failure_and_says_what_each_cluster_holds() {
    let Err(Verdict::Refused(failure)) = on_write(failed(), vec![ours(Change::Created), Seen::Absent]) else {
        panic!("refused")
    };
    let text = "cluster east holds it; cluster west does not hold it";
    assert!(failure.message.contains(text), "{}", failure.message);
}

#[test]
fn lost_call_is_decided_by_the_look_alone() {
    assert_eq!(on_write(lost(), vec![ours(Change::Configured)]), Ok(v1::Change::Configured));
    let nobodys = there(Some(Reason::NotOurs), Change::Created, Vec::new());
    for seen in [ours(Change::Unchanged), nobodys, Seen::Absent, unknown()] {
        assert!(matches!(on_write(lost(), vec![seen]), Err(Verdict::Unknown(_))));
    }
    assert_eq!(on_removal(lost(), vec![Seen::Absent]), Ok(v1::Change::Removed));
    assert!(matches!(on_removal(lost(), vec![ours(Change::Unchanged)]), Err(Verdict::Unknown(_))));
}

#[test]
fn removal_that_left_something_failed_whatever_was_said() {
    assert_eq!(on_removal(ok(), vec![Seen::Absent, Seen::Absent]), Ok(v1::Change::Removed));
    for said in [ok(), failed()] {
        let left = on_removal(said, vec![Seen::Absent, ours(Change::Unchanged)]);
        assert!(matches!(left, Err(Verdict::Refused(_))));
    }
    assert!(matches!(on_removal(failed(), vec![unknown()]), Err(Verdict::Refused(_))));
}

#[test]
fn failed_removal_of_what_is_proven_gone_is_removed_with_the_adapters_words() {
    let judged = removed("mesh:1", &failed(), &looks(vec![Seen::Absent, Seen::Absent]));
    assert_eq!(judged.result, Ok(v1::Change::Removed));
    assert!(judged.warnings[0].contains("no reason"), "{:?}", judged.warnings);
}
