//! What was measured, and its statistics.

use serde::{Deserialize, Serialize};

use super::contestant::Contestant;

/// One contestant's work, once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Who worked.
    pub(crate) who: Contestant,
    /// Number of objects.
    pub(crate) objects: usize,
    /// Which round it was.
    pub(crate) round: usize,
    /// Whether everything was there already.
    pub(crate) again: bool,
    /// Objects per second.
    pub(crate) rate: f64,
    /// Requests for these objects that the API server answered, per object.
    pub(crate) requests: f64,
    /// Processor time of the client per object, in microseconds.
    pub(crate) client: f64,
    /// Processor time of the planner per object, in microseconds.
    pub(crate) planner: f64,
    /// Processor time of API server and etcd per object, in microseconds.
    pub(crate) server: f64,
    /// The most memory of the client at once, in bytes.
    pub(crate) peak: f64,
    /// Spans that did not arrive.
    pub(crate) spans_lost: usize,
    /// The share of all processors that went to programs which have nothing to do with this.
    pub(crate) others: f64,
    /// Processor time of the comparison itself per object, in microseconds: of Switchyard's caller.
    pub(crate) caller: f64,
    /// How far it was when; only Switchyard says.
    pub(crate) phases: Option<Phases>,
}

/// How far a run was when, in seconds from the call of Plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Phases {
    /// The whole plan was there.
    pub(crate) planned: f64,
    /// Its run had begun: the plan was taken in, the clusters proven and locked.
    pub(crate) started: f64,
    /// The first result had come.
    pub(crate) first: f64,
    /// The last result had come.
    pub(crate) last: f64,
}

impl Phases {
    /// What the four are called, in a table of milliseconds.
    pub(crate) const NAMES: [&str; 4] = ["planned after ms", "run began", "first result", "last result"];

    /// Returns the median of each of the four, in milliseconds; none when there are none.
    pub(crate) fn medians(all: &[Self]) -> Option<[f64; 4]> {
        let median = |figure: fn(&Self) -> f64| Some(Spread::of(all.iter().map(figure))?.median * 1e3);
        Some([median(|it| it.planned)?, median(|it| it.started)?, median(|it| it.first)?, median(|it| it.last)?])
    }
}

/// The least, the middle and the most of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    /// The least.
    pub(crate) least: f64,
    /// The median.
    pub(crate) median: f64,
    /// The most.
    pub(crate) most: f64,
}

impl Spread {
    /// Looks at values; none when there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Self { least, median, most })
    }
}

/// Everything that was measured. As JSON, a list of samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Samples(pub Vec<Sample>);

impl Samples {
    /// Picks one contestant's samples.
    pub(crate) fn of(&self, who: Contestant, objects: usize, again: bool) -> impl Iterator<Item = &Sample> {
        self.0.iter().filter(move |it| it.who == who && it.objects == objects && it.again == again)
    }

    /// Returns the spread of one figure.
    pub(crate) fn spread(
        &self,
        who: Contestant,
        objects: usize,
        again: bool,
        figure: impl Fn(&Sample) -> f64,
    ) -> Option<Spread> {
        Spread::of(self.of(who, objects, again).map(figure))
    }

    /// Returns a contestant's rate over another's: the median of what the rounds give, each by itself, since the machine's own speed
    /// moves more between rounds than within one.
    pub(crate) fn ratio(&self, who: Contestant, other: Contestant, objects: usize, again: bool) -> Option<f64> {
        let ratios = self.of(who, objects, again).filter_map(|sample| {
            let beside = self.of(other, objects, again).find(|beside| beside.round == sample.round)?;
            Some(sample.rate / beside.rate)
        });
        Some(Spread::of(ratios)?.median)
    }

    /// Returns how many rounds there were with so many objects.
    pub(crate) fn rounds(&self, objects: usize) -> usize {
        self.0
            .iter()
            .filter(|sample| sample.objects == objects)
            .map(|sample| sample.round + 1)
            .max()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(who: Contestant, round: usize, rate: f64) -> Sample {
        Sample {
            who,
            objects: 200,
            round,
            again: false,
            rate,
            requests: 1.0,
            client: 2.5,
            planner: 0.0,
            server: 1500.0,
            peak: 1e6,
            spans_lost: 0,
            others: 0.125,
            caller: 4.0,
            phases: None,
        }
    }

    #[test]
    fn a_ratio_is_made_within_a_round() {
        // The machine became slower, and both with it; in the last round one did not take part.
        let rates = [(0, 1000.0, 900.0), (1, 500.0, 450.0), (2, 250.0, 225.0)];
        let mut samples: Vec<_> = rates
            .into_iter()
            .flat_map(|(round, floor, ours)| {
                [sample(Contestant::Floor, round, floor), sample(Contestant::Switchyard, round, ours)]
            })
            .collect();
        samples.push(sample(Contestant::Switchyard, 3, 1.0));
        let samples = Samples(samples);
        assert_eq!(samples.ratio(Contestant::Switchyard, Contestant::Floor, 200, false), Some(0.9));
        assert_eq!(samples.ratio(Contestant::Helm, Contestant::Floor, 200, false), None);
        assert_eq!((samples.rounds(200), samples.rounds(1000)), (4, 0));
    }

    #[test]
    fn what_is_written_is_read() {
        let phases = Some(Phases { planned: 0.0125, started: 0.025, first: 0.03, last: 0.5 });
        let all = Contestant::ALL.map(|who| Sample { phases, again: true, ..sample(who, 1, 900.5) });
        let written = Samples(all.into_iter().chain([sample(Contestant::Floor, 0, 0.1)]).collect());
        let text = serde_json::to_string(&written).unwrap();
        assert_eq!(serde_json::from_str::<Samples>(&text).unwrap(), written);
        // One name for one contestant, here and on the command line.
        assert!(Contestant::ALL.iter().all(|who| text.contains(&format!("\"who\":\"{who}\""))));
    }

    #[test]
    fn median_of_an_even_number_lies_between() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { least: 1.0, median: 2.5, most: 4.0 });
        assert_eq!(Spread::of([]), None);
    }
}
