//! Charts as SVG, as far as they are needed here: bars with whiskers, and lines.

use std::fmt::Write as _;

/// One colour a series; told apart by people who see no red or green too.
const COLOURS: [&str; 8] = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777", "#222222"];
const FONT: &str = "font-family=\"sans-serif\" font-size=\"12\"";

/// A bar: its name, and the least, the middle and the most.
#[derive(Debug, Clone)]
pub(super) struct Bar {
    /// What stands before it.
    pub(super) label: String,
    /// Least, median, most.
    pub(super) spread: [f64; 3],
    /// Whether it stands out.
    pub(super) ours: bool,
}

/// A line: its name and its points.
#[derive(Debug, Clone)]
pub(super) struct Line {
    /// What the legend calls it.
    pub(super) label: String,
    /// The points; both above zero on logarithmic axes.
    pub(super) points: Vec<(f64, f64)>,
}

/// How axes are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// From nought.
    Linear,
    /// What grows by the same factor takes the same room.
    Logarithmic,
}

impl Scale {
    /// Where a value lies between two others, 0 to 1 between them.
    fn at(self, value: f64, (from, to): (f64, f64)) -> f64 {
        match self {
            Self::Linear => (value - from) / (to - from),
            Self::Logarithmic => (value / from).ln() / (to / from).ln(),
        }
    }

    /// What an axis spans that has to show these values.
    fn range(self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        let (least, most) =
            values.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
        match self {
            Self::Linear => (0.0, most.max(1.0)),
            Self::Logarithmic if least < most => (least, most),
            Self::Logarithmic => (least / 2.0, least * 2.0),
        }
    }

    fn ticks(self, from: f64, to: f64) -> Vec<f64> {
        let all: Vec<f64> = match self {
            Self::Linear => {
                // About five of them, apart by 1, 2 or 5 times a power of ten.
                let rough = (to - from) / 5.0;
                let power = 10f64.powf(rough.log10().floor());
                let apart = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= rough);
                let apart = apart.unwrap_or(rough);
                (0..=10).map(|number| from + f64::from(number) * apart).collect()
            }
            // 1, 2 and 5 times a power of ten, fewer where many would not fit.
            Self::Logarithmic => {
                let steps: &[f64] = if (to / from).log10() > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let powers = (from.log10().floor() as i32)..=(to.log10().ceil() as i32);
                powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power))).collect()
            }
        };
        all.into_iter().filter(|&tick| tick >= from * 0.999 && tick <= to * 1.001).collect()
    }
}

/// What is drawn in one frame.
#[derive(Debug, Clone)]
pub(super) enum Panel {
    /// Bars from left to right.
    Bars {
        /// What stands above.
        title: String,
        /// The bars.
        bars: Vec<Bar>,
    },
    /// Lines.
    Lines {
        /// What stands above.
        title: String,
        /// What stands at the horizontal axis.
        across: String,
        /// What stands at the vertical axis.
        up: String,
        /// Of both axes.
        scale: Scale,
        /// The lines.
        lines: Vec<Line>,
    },
}

const WIDTH: f64 = 460.0;
const ROW: f64 = 22.0;

impl Panel {
    fn height(&self) -> f64 {
        match self {
            Self::Bars { bars, .. } => 40.0 + ROW * bars.len() as f64,
            Self::Lines { .. } => 330.0,
        }
    }
}

/// Draws panels, two side by side.
pub(super) fn draw(panels: &[Panel]) -> String {
    let rows: Vec<&[Panel]> = panels.chunks(2).collect();
    let heights: Vec<f64> = rows.iter().map(|row| row.iter().map(Panel::height).fold(0.0, f64::max)).collect();
    let (width, height) = (2.0 * WIDTH, heights.iter().sum::<f64>() + 10.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" {FONT}>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut top = 0.0;
    for (row, height) in rows.iter().zip(heights) {
        for (column, panel) in row.iter().enumerate() {
            writeln!(out, "<g transform=\"translate({} {top})\">", column as f64 * WIDTH).expect(GROWS);
            match panel {
                Panel::Bars { title, bars } => draw_bars(&mut out, title, bars),
                Panel::Lines { title, across, up, scale, lines } => {
                    draw_lines(&mut out, title, (across, up), *scale, lines);
                }
            }
            out.push_str("</g>\n");
        }
        top += height;
    }
    out.push_str("</svg>\n");
    out
}

const GROWS: &str = "a string grows as needed";

fn text(out: &mut String, at: (f64, f64), anchor: &str, attributes: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('*', "");
    writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" {attributes}>{text}</text>", at.0, at.1)
        .expect(GROWS);
}

fn draw_bars(out: &mut String, title: &str, bars: &[Bar]) {
    const LEFT: f64 = 215.0;
    const RIGHT: f64 = WIDTH - 50.0;
    text(out, (LEFT, 24.0), "start", "font-weight=\"bold\"", title);
    let most = bars.iter().map(|bar| bar.spread[2]).fold(1.0, f64::max);
    let x = |value: f64| LEFT + value / most * (RIGHT - LEFT);
    for (index, bar) in bars.iter().enumerate() {
        let y = 36.0 + ROW * index as f64;
        let [least, median, most] = bar.spread;
        let weight = if bar.ours { "font-weight=\"bold\"" } else { "" };
        text(out, (LEFT - 6.0, y + 12.0), "end", weight, &bar.label);
        let colour = if bar.ours { COLOURS[1] } else { COLOURS[0] };
        writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"14\" fill=\"{colour}\"/>\n\
             <path d=\"M{:.1} {mid:.1}H{:.1}M{0:.1} {low:.1}V{high:.1}M{1:.1} {low:.1}V{high:.1}\" stroke=\"black\" fill=\"none\"/>",
            x(median) - LEFT,
            x(least),
            x(most),
            mid = y + 7.0,
            low = y + 3.0,
            high = y + 11.0,
        )
        .expect(GROWS);
        text(out, (x(most) + 4.0, y + 12.0), "start", weight, &format!("{median:.0}"));
    }
}

fn draw_lines(out: &mut String, title: &str, (across, up): (&str, &str), scale: Scale, lines: &[Line]) {
    /// More points than this would only hide the line.
    const DOTTED: usize = 20;
    const LEFT: f64 = 60.0;
    const RIGHT: f64 = WIDTH - 110.0;
    const TOP: f64 = 36.0;
    const BOTTOM: f64 = 280.0;
    text(out, (LEFT, 24.0), "start", "font-weight=\"bold\"", title);
    let points = || lines.iter().flat_map(|line| &line.points);
    let across_range = scale.range(points().map(|point| point.0));
    let (y0, y1) = scale.range(points().map(|point| point.1));
    let up_range = (y0 * 0.8, y1 * 1.25);
    let x = |value: f64| LEFT + scale.at(value, across_range) * (RIGHT - LEFT);
    let y = |value: f64| BOTTOM - scale.at(value, up_range) * (BOTTOM - TOP);
    writeln!(out, "<path d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\" stroke=\"black\" fill=\"none\"/>").expect(GROWS);
    for tick in scale.ticks(across_range.0, across_range.1) {
        writeln!(out, "<path d=\"M{0:.1} {TOP}V{BOTTOM}\" stroke=\"#dddddd\"/>", x(tick)).expect(GROWS);
        text(out, (x(tick), BOTTOM + 16.0), "middle", "", &number(tick));
    }
    for tick in scale.ticks(up_range.0, up_range.1) {
        writeln!(out, "<path d=\"M{LEFT} {0:.1}H{RIGHT}\" stroke=\"#dddddd\"/>", y(tick)).expect(GROWS);
        text(out, (LEFT - 5.0, y(tick) + 4.0), "end", "", &number(tick));
    }
    text(out, ((LEFT + RIGHT) / 2.0, BOTTOM + 34.0), "middle", "", across);
    text(out, (14.0, (TOP + BOTTOM) / 2.0), "middle", "transform=\"rotate(-90 14 158)\"", up);
    for (index, line) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let path: Vec<String> = line.points.iter().map(|p| format!("{:.1} {:.1}", x(p.0), y(p.1))).collect();
        writeln!(out, "<path d=\"M{}\" stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\"/>", path.join("L"))
            .expect(GROWS);
        for p in line.points.iter().filter(|_| line.points.len() <= DOTTED) {
            writeln!(out, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>", x(p.0), y(p.1))
                .expect(GROWS);
        }
        let at = TOP + 10.0 + 18.0 * index as f64;
        writeln!(out, "<path d=\"M{} {}h14\" stroke=\"{colour}\" stroke-width=\"2\"/>", RIGHT + 6.0, at - 4.0)
            .expect(GROWS);
        text(out, (RIGHT + 24.0, at), "start", "", &line.label);
    }
}

fn number(value: f64) -> String {
    if value >= 1000.0 { format!("{}k", value / 1000.0) } else { format!("{}", (value * 1000.0).round() / 1000.0) }
}
