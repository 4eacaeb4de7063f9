//! A trace as a tree, short enough to read.
//!
//! Our own calls, steps and writes are shown one by one. Reads beside each other become one line. What an API server and
//! etcd did is counted, and for one write, as an example, shown whole.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    screen::{Paint, Screen},
    wait::spoken,
};
use switchyard_tests::sandbox::{Span, Trace};

const CLUSTER: &str = "k8s.cluster.name";
const STATUS: &str = "http.response.status_code";

/// Tells whether a span is a request of ours to an API server.
fn is_request(span: &Span) -> bool {
    // A step that failed names the cluster too.
    is_ours(span) && span.attribute(CLUSTER).is_some() && !span.name.starts_with("step ")
}

/// Tells whether a span is a write that the executor sent.
pub(crate) fn is_write(span: &Span) -> bool {
    is_request(span) && !is_read(span)
}

/// Tells whether a span is a call of the executor to an adapter.
pub(crate) fn is_adapter_call(span: &Span) -> bool {
    is_ours(span) && span.name.starts_with("meshes.")
}

/// Tells whether the API server stored what a write brought.
pub(crate) fn was_let_through(write: &Span) -> bool {
    write.attribute(STATUS) == Some("201")
}

fn is_read(span: &Span) -> bool {
    is_ours(span) && matches!(verb(span), "GET" | "WATCH")
}

fn verb(span: &Span) -> &str {
    span.name.split_once(' ').map_or(&span.name, |(verb, _)| verb)
}

fn is_ours(span: &Span) -> bool {
    span.service.starts_with("switchyard-")
}

/// Draws it.
pub(crate) fn draw(trace: &Trace, screen: &Screen) -> String {
    let mut below: BTreeMap<&str, Vec<&Span>> = BTreeMap::new();
    for span in &trace.spans {
        below.entry(span.parent.as_deref().unwrap_or_default()).or_default().push(span);
    }
    // Creating an object takes the API server down to etcd, so the first write that one let through is the one to show.
    // Of what lies below a step: the run's own writes keep other runs away and are of no component.
    let of_step = |span: &&Span| {
        let parent = trace.spans.iter().find(|other| Some(&other.id) == span.parent.as_ref());
        parent.is_some_and(|parent| parent.name.starts_with("step "))
    };
    let examples = trace.spans.iter().filter(|span| is_write(span) && was_let_through(span)).filter(of_step);
    let example = examples.min_by_key(|span| span.start);
    let mut tree = Tree { below, example: example.map(|span| span.id.as_str()), screen, lines: Vec::new() };
    let roots: Vec<&Span> = trace.roots().collect();
    for root in roots {
        tree.span(root, "", "", false);
    }
    tree.lines.concat()
}

struct Tree<'a> {
    below: BTreeMap<&'a str, Vec<&'a Span>>,
    example: Option<&'a str>,
    screen: &'a Screen,
    lines: Vec<String>,
}

/// Spans that are drawn as one line.
enum Entry<'a> {
    One(&'a Span),
    Reads(Vec<&'a Span>),
}

impl<'a> Tree<'a> {
    fn span(&mut self, span: &'a Span, indent: &str, branch: &str, whole: bool) {
        let whole = whole || Some(span.id.as_str()) == self.example;
        let hidden = if is_request(span) && !whole { self.hidden(&[span]) } else { String::new() };
        let text = self.text(span) + &self.screen.paint(Paint::Faint, &hidden);
        self.line(&spoken(span.duration()), indent, branch, &text);
        if !hidden.is_empty() {
            return;
        }
        let indent = match branch {
            "" => indent.to_owned(),
            "└ " => format!("{indent}  "),
            _ => format!("{indent}│ "),
        };
        let entries = entries(self.below.get(span.id.as_str()).map_or(&[], Vec::as_slice));
        let last = entries.len().saturating_sub(1);
        for (index, entry) in entries.into_iter().enumerate() {
            let branch = if index == last { "└ " } else { "├ " };
            match entry {
                Entry::One(span) => self.span(span, &indent, branch, whole),
                Entry::Reads(reads) => self.reads(&reads, &indent, branch),
            }
        }
    }

    fn reads(&mut self, reads: &[&'a Span], indent: &str, branch: &str) {
        let verb = reads.first().map_or("", |span| verb(span));
        let names: BTreeSet<&str> = reads.iter().map(|span| span.name[verb.len()..].trim_start()).collect();
        let clusters: BTreeSet<&str> = reads.iter().filter_map(|span| span.attribute(CLUSTER)).collect();
        let (names, clusters) = (Vec::from_iter(names).join(", "), Vec::from_iter(clusters).join(", "));
        let start = reads.iter().map(|span| span.start).min().unwrap_or_default();
        let end = reads.iter().map(|span| span.end).max().unwrap_or_default();
        let took = spoken(std::time::Duration::from_nanos(end.saturating_sub(start)));
        let text = format!("{} × {verb} {names} on {clusters}{}", reads.len(), self.hidden(reads));
        let text = self.screen.paint(Paint::Faint, text);
        self.line(&took, indent, branch, &text);
    }

    fn line(&mut self, took: &str, indent: &str, branch: &str, text: &str) {
        let took = self.screen.paint(Paint::Faint, format!("{took:>7}"));
        self.lines.push(format!("{took}  {indent}{branch}{text}\n"));
    }

    fn text(&self, span: &Span) -> String {
        let name = match span.name.rsplit_once('/') {
            // A method with its package and service.
            Some((service, method)) if service.starts_with("switchyard.") => method,
            _ => &span.name,
        };
        let paint = if is_ours(span) { Paint::Strong } else { Paint::Plain };
        let mut text = self.screen.paint(paint, name);
        let is_call = span.attribute("rpc.method").is_some();
        if !is_ours(span) || is_call {
            text += &self.screen.paint(Paint::Faint, format!(" ({})", span.service));
        }
        if let Some(cluster) = span.attribute(CLUSTER) {
            text += &format!(" on {cluster}");
        }
        if let Some(status) = span.attribute(STATUS).filter(|_| is_ours(span)) {
            text += &format!(" → {status}");
        }
        if let Some(outcome) = span.attribute("switchyard.outcome") {
            text += &format!(": {}", outcome.trim_start_matches("VERDICT_").to_lowercase());
        }
        match &span.error {
            Some(error) if error.is_empty() => text + &self.screen.paint(Paint::Bad, " !"),
            Some(error) => text + &self.screen.paint(Paint::Bad, format!(" ! {error}")),
            None => text,
        }
    }

    /// Says how many spans lie below these, and whose they are; nothing, if there are none.
    fn hidden(&self, spans: &[&'a Span]) -> String {
        let mut todo: Vec<&str> = spans.iter().map(|span| span.id.as_str()).collect();
        let (mut count, mut services) = (0, BTreeSet::new());
        while let Some(id) = todo.pop() {
            for span in self.below.get(id).into_iter().flatten() {
                count += 1;
                services.insert(span.service.as_str());
                todo.push(&span.id);
            }
        }
        match count {
            0 => String::new(),
            _ => format!("  + {count} of {}", Vec::from_iter(services).join(" and ")),
        }
    }
}

/// Puts reads of one kind that came one after another, and went well, together.
fn entries<'a>(spans: &[&'a Span]) -> Vec<Entry<'a>> {
    let mut entries: Vec<Entry<'a>> = Vec::new();
    for &span in spans {
        match entries.last_mut() {
            Some(Entry::Reads(reads))
                if is_read(span) && span.error.is_none() && reads.iter().all(|read| verb(read) == verb(span)) =>
            {
                reads.push(span);
            }
            _ if is_read(span) && span.error.is_none() => entries.push(Entry::Reads(vec![span])),
            _ => entries.push(Entry::One(span)),
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: &str, parent: &str, service: &str, name: &str, attributes: &[(&str, &str)]) -> Span {
        Span {
            trace_id: "t".into(),
            id: id.into(),
            parent: Some(parent.into()),
            service: service.into(),
            name: name.into(),
            start: 0,
            end: 2_000_000,
            kinds: BTreeMap::new(),
            attributes: attributes.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            error: None,
            links: Vec::new(),
            events: Vec::new(),
        }
    }

    #[test]
    fn what_servers_did_is_counted_except_for_one_example() {
        let ours = "switchyard-executor";
        let (east, west) = (("k8s.cluster.name", "east"), ("k8s.cluster.name", "west"));
        let spans = vec![
            span("x", "away", ours, "switchyard.v1.ExecutorService/Execute", &[("rpc.method", "Execute")]),
            span("l", "x", ours, "PATCH leases", &[west, (STATUS, "201")]),
            span("al", "l", "apiserver", "PATCH", &[]),
            span("r1", "x", ours, "GET /version", &[east]),
            span("r2", "x", ours, "GET /api", &[west]),
            span("a0", "r1", "apiserver", "GET", &[]),
            span("s", "x", ours, "step db", &[]),
            span("w1", "s", ours, "WATCH secrets", &[east]),
            span("p1", "s", ours, "PATCH secrets", &[east, (STATUS, "201")]),
            span("a1", "p1", "apiserver", "PATCH", &[]),
            span("e1", "a1", "etcd", "txn", &[]),
            span("p2", "s", ours, "PATCH secrets", &[west, (STATUS, "201")]),
            span("a2", "p2", "apiserver", "PATCH", &[]),
            span("e2", "a2", "etcd", "txn", &[]),
        ];
        let expected = " 2.0 ms  Execute (switchyard-executor)\n \
                      2.0 ms  ├ PATCH leases on west → 201  + 1 of apiserver\n \
                      2.0 ms  ├ 2 × GET /api, /version on east, west  + 1 of apiserver\n \
                      2.0 ms  └ step db\n \
                      2.0 ms    ├ 1 × WATCH secrets on east\n \
                      2.0 ms    ├ PATCH secrets on east → 201\n \
                      2.0 ms    │ └ PATCH (apiserver)\n \
                      2.0 ms    │   └ txn (etcd)\n \
                      2.0 ms    └ PATCH secrets on west → 201  + 2 of apiserver and etcd\n";
        assert_eq!(draw(&Trace { spans }, &Screen::plain()), expected);
    }
}
