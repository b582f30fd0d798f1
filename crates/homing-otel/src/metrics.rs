//! Figures: sums and histograms over what is over. They grow for as long as the process lives, as collectors expect.

use std::collections::BTreeMap;

use crate::{
    activity::{Activity, Ask, Run},
    fold::Finished,
    names,
    span::{error_type, status},
};

/// Upper bounds of histograms over seconds, as the conventions for generative AI give them.
const SECONDS: &[f64] = &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Upper bounds of histograms over tokens, from the same source.
const TOKENS: &[f64] = &[
    1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0,
    67108864.0,
];

/// What a figure is about: its labels, in order.
pub type Labels = Vec<(&'static str, String)>;

/// A figure's name, unit and what it has become, by labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// What it measures, for people.
    pub description: &'static str,
    /// In UCUM's notation.
    pub unit: &'static str,
    /// The values.
    pub points: BTreeMap<Labels, MetricShape>,
}

/// What a figure has become.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricShape {
    /// A growing count.
    Count(u64),
    /// A growing amount.
    Amount(f64),
    /// How values spread over ranges.
    Spread {
        /// Upper bounds of the ranges; one more range has none.
        bounds: &'static [f64],
        /// How many values fell into each.
        counts: Vec<u64>,
        /// All values together.
        sum: f64,
    },
}

/// All figures, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// By name.
    pub by_name: BTreeMap<&'static str, Measurement>,
}

impl Metrics {
    /// Counts something that is over.
    pub fn count(&mut self, finished: &Finished) {
        match finished {
            Finished::Run(run) => self.run(run),
            Finished::Ask(ask) => self.ask(ask),
            Finished::Call(_) => (),
        }
    }

    /// Counts what never reached the collector.
    pub fn count_dropped(&mut self, dropped: u64) {
        let figure = self.figure(names::DROPPED, "Facts and spans that were dropped", "{item}");
        figure.points.insert(Vec::new(), MetricShape::Count(dropped));
    }

    fn run(&mut self, run: &Activity<Run>) {
        let agent = (names::AGENT, run.spawned.agent.name.clone());
        let labels = vec![agent.clone(), (names::STATUS, status(run).to_owned())];
        self.add(names::RUNS, "Runs that ended, by how", "{run}", labels, 1);
        self.spread(names::RUN_TIME, "How long runs took", "s", SECONDS, vec![agent.clone()], run.seconds());
        if let Some(queued) = run.what.queued_ms {
            let what = "From being sent out to the first step";
            self.spread(names::QUEUE, what, "s", SECONDS, vec![agent], queued as f64 / 1e3);
        }
    }

    fn ask(&mut self, ask: &Activity<Ask>) {
        let Ask { asked, answer, used } = &ask.what;
        if names::is_program(&asked.model) {
            return;
        }
        let (provider, model) = names::split(&asked.model);
        let labels = vec![
            (names::OPERATION, names::CHAT.to_owned()),
            (names::PROVIDER, provider.to_owned()),
            (names::MODEL, model.to_owned()),
        ];
        for (kind, tokens) in [("input", used.input), ("output", used.output)] {
            let labels = with(&labels, names::TOKEN_TYPE, kind);
            self.spread(names::TOKEN_USAGE, "Tokens used", "{token}", TOKENS, labels, tokens as f64);
        }
        let cost = self.figure(names::COST_SUM, "What models were paid", "{USD}");
        match cost.points.entry(labels.clone()).or_insert(MetricShape::Amount(0.0)) {
            MetricShape::Amount(sum) => *sum += used.cost_micros as f64 / 1e6,
            MetricShape::Count(_) | MetricShape::Spread { .. } => (),
        }
        let labels = match answer {
            Ok(_) => labels,
            Err(failure) => with(&labels, names::ERROR, error_type(&failure.error)),
        };
        self.spread(names::DURATION, "How long models took", "s", SECONDS, labels, ask.seconds());
    }

    fn add(&mut self, name: &'static str, what: &'static str, unit: &'static str, labels: Labels, more: u64) {
        match self.figure(name, what, unit).points.entry(labels).or_insert(MetricShape::Count(0)) {
            MetricShape::Count(count) => *count += more,
            MetricShape::Amount(_) | MetricShape::Spread { .. } => (),
        }
    }

    fn spread(
        &mut self,
        name: &'static str,
        what: &'static str,
        unit: &'static str,
        bounds: &'static [f64],
        labels: Labels,
        value: f64,
    ) {
        let empty = || MetricShape::Spread { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 };
        match self.figure(name, what, unit).points.entry(labels).or_insert_with(empty) {
            MetricShape::Spread { bounds, counts, sum } => {
                counts[bounds.partition_point(|bound| *bound < value)] += 1;
                *sum += value;
            }
            MetricShape::Count(_) | MetricShape::Amount(_) => (),
        }
    }

    fn figure(&mut self, name: &'static str, description: &'static str, unit: &'static str) -> &mut Measurement {
        self.by_name.entry(name).or_insert_with(|| Measurement { description, unit, points: BTreeMap::new() })
    }
}

fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
    labels.iter().cloned().chain([(name, value.to_owned())]).collect()
}
