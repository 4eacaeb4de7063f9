//! The comparison as tables and as a chart.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    contestant::Contestant,
    samples::{Phases, Sample, Samples, Spread},
    svg::{self, Bar, Panel},
    table::Table,
};

/// Writes one table for each number of objects, and what has to be known to read them.
pub(super) fn text(samples: &Samples, objects: &[usize], missing: &BTreeMap<Contestant, String>) -> String {
    let mut out = String::new();
    for &objects in objects {
        writeln!(out, "### {objects} objects, {} rounds\n", samples.rounds(objects)).expect(GROWS);
        out.push_str(&table(samples, objects).markdown());
        out.push('\n');
        out.push_str(&phases(samples, objects));
    }
    for (who, why) in missing {
        let why = why.lines().next().unwrap_or_default();
        writeln!(out, "- {} is missing: its program cannot be had ({why}).", who.label()).expect(GROWS);
    }
    let lost: usize = samples.0.iter().map(|sample| sample.spans_lost).sum();
    writeln!(out, "- Spans that did not reach Jaeger: {lost}.").expect(GROWS);
    if let Some(Spread { median, most, .. }) = Spread::of(samples.0.iter().map(|sample| sample.others * 100.0)) {
        let line = "Share of the machine that other programs took meanwhile";
        writeln!(out, "- {line}: median {median:.0} %, at most {most:.0} %.").expect(GROWS);
    }
    out
}

const GROWS: &str = "a string grows as needed";

fn table(samples: &Samples, objects: usize) -> Table {
    let mut table = Table::new(&[
        "who",
        "create/s min·med·max",
        "of floor",
        "again/s min·med·max",
        "of floor",
        "requests/object",
        "client CPU µs/object",
        "server CPU µs/object",
        "peak MB",
    ]);
    for who in Contestant::ALL {
        let spread = |again, figure: fn(&Sample) -> f64| samples.spread(who, objects, again, figure);
        let rate = |again| spread(again, |sample| sample.rate);
        let (Some(create), Some(re_apply)) = (rate(false), rate(true)) else { continue };
        let three = |Spread { least, median, most }| format!("{least:.0} · {median:.0} · {most:.0}");
        let of_floor = |again| match samples.ratio(who, Contestant::Floor, objects, again) {
            Some(ratio) => format!("{ratio:.2}"),
            None => "–".to_owned(),
        };
        let both = |figure: fn(&Sample) -> f64, digits: usize| {
            let [create, again] = [false, true].map(|again| spread(again, figure).map_or(0.0, |spread| spread.median));
            format!("{create:.digits$} / {again:.digits$}")
        };
        let planner = both(|sample| sample.planner, 0);
        let client = match planner.as_str() {
            "0 / 0" => both(|sample| sample.client, 0),
            _ => format!("{} + planner {planner}", both(|sample| sample.client, 0)),
        };
        let peak = [false, true].iter().filter_map(|&again| spread(again, |sample| sample.peak)).map(|it| it.most);
        table.row([
            who.label().to_owned(),
            three(create),
            of_floor(false),
            three(re_apply),
            of_floor(true),
            both(|sample| sample.requests, 2),
            client,
            both(|sample| sample.server, 0),
            format!("{:.0}", peak.fold(0.0, f64::max) / 1e6),
        ]);
    }
    table
}

/// How far Switchyard was when, and what its caller took; nothing if it did not take part.
fn phases(samples: &Samples, objects: usize) -> String {
    let [planned, began, first, last] = Phases::NAMES;
    let mut table = Table::new(&["Switchyard", planned, began, first, last, "summary", "caller's CPU µs/object"]);
    let mut took_part = false;
    for (again, what) in [(false, "create"), (true, "again")] {
        let of = || samples.of(Contestant::Switchyard, objects, again);
        let median = |figure: fn(&Sample) -> f64| Spread::of(of().map(figure)).map_or(0.0, |spread| spread.median);
        let phases: Vec<Phases> = of().filter_map(|it| it.phases).collect();
        let Some(phases) = Phases::medians(&phases) else { continue };
        let summary = objects as f64 / median(|it| it.rate) * 1e3;
        let figures = phases.into_iter().chain([summary, median(|it| it.caller)]).map(|figure| format!("{figure:.0}"));
        table.row(std::iter::once(what.to_owned()).chain(figures));
        took_part = true;
    }
    if took_part { format!("{}\n", table.markdown()) } else { String::new() }
}

/// Draws objects per second.
pub(super) fn chart(samples: &Samples, objects: &[usize]) -> String {
    let mut panels = Vec::new();
    for &objects in objects {
        for (again, what) in [(false, "first apply"), (true, "re-apply")] {
            let bars = Contestant::ALL.into_iter().filter_map(|who| {
                let Spread { least, median, most } = samples.spread(who, objects, again, |sample| sample.rate)?;
                let ours = matches!(who, Contestant::Switchyard | Contestant::SwitchyardTraced);
                Some(Bar { label: who.label().to_owned(), spread: [least, median, most], ours })
            });
            let title = format!("{objects} objects, {what}: objects per second");
            panels.push(Panel::Bars { title, bars: bars.collect() });
        }
    }
    svg::draw(&panels)
}
