//! Metrics: sums and histograms over finished activities. They are cumulative over the life of the process, as collectors
//! expect.

use std::collections::BTreeMap;

use crate::{
    activity::{Activity, AskActivity, RunActivity},
    fold::FinishedActivity,
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

/// The labels of a value, in order.
pub type MetricLabels = Vec<(&'static str, String)>;

/// A metric's description, unit and values.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Measurement {
    /// Description for people.
    pub description: &'static str,
    /// Unit in UCUM notation.
    pub unit: &'static str,
    /// The values, by labels.
    pub points: BTreeMap<MetricLabels, MetricValue>,
}

/// A value of a metric.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetricValue {
    /// A growing count.
    Count(u64),
    /// A growing amount.
    Amount(f64),
    /// A histogram.
    Histogram {
        /// Upper bounds of the buckets; the last bucket has none.
        bounds: &'static [f64],
        /// Number of values in each bucket.
        counts: Vec<u64>,
        /// Sum of all values.
        sum: f64,
    },
}

/// All metrics, by name.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// The metrics, by name.
    pub by_name: BTreeMap<&'static str, Measurement>,
}

impl Metrics {
    /// Counts a finished activity.
    pub fn count(&mut self, finished: &FinishedActivity) {
        match finished {
            FinishedActivity::Run(run) => self.run(run),
            FinishedActivity::Ask(ask) => self.ask(ask),
            FinishedActivity::Call(_) => (),
        }
    }

    /// Sets the number of facts and spans that did not reach the collector.
    pub fn count_dropped(&mut self, dropped: u64) {
        let metric = self.metric(names::DROPPED, "Facts and spans that were dropped", "{item}");
        metric.points.insert(Vec::new(), MetricValue::Count(dropped));
    }

    fn run(&mut self, run: &Activity<RunActivity>) {
        let agent = (names::AGENT, run.spawned.agent.name.clone());
        let labels = vec![agent.clone(), (names::STATUS, status(run).to_owned())];
        self.add(names::RUNS, "Runs that ended, by status", "{run}", labels, 1);
        self.observe(names::RUN_TIME, "Duration of runs", "s", SECONDS, vec![agent.clone()], run.seconds());
        if let Some(queued) = run.detail.queued_ms {
            let description = "Time from the start of a run to its first step";
            self.observe(names::QUEUE, description, "s", SECONDS, vec![agent], queued as f64 / 1e3);
        }
    }

    fn ask(&mut self, ask: &Activity<AskActivity>) {
        let AskActivity { asked, answer, used, first_token_ms, .. } = &ask.detail;
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
            self.observe(names::TOKEN_USAGE, "Tokens used", "{token}", TOKENS, labels, tokens as f64);
        }
        let cost = self.metric(names::COST_SUM, "Cost of model calls", "{USD}");
        match cost.points.entry(labels.clone()).or_insert(MetricValue::Amount(0.0)) {
            MetricValue::Amount(sum) => *sum += used.cost_micros as f64 / 1e6,
            MetricValue::Count(_) | MetricValue::Histogram { .. } => (),
        }
        if let Some(first) = first_token_ms {
            let description = "Time to the first piece of a streamed reply";
            self.observe(names::FIRST_CHUNK_TIME, description, "s", SECONDS, labels.clone(), *first as f64 / 1e3);
        }
        let labels = match answer {
            Ok(_) => labels,
            Err(failure) => with(&labels, names::ERROR, error_type(&failure.error)),
        };
        self.observe(names::DURATION, "Duration of model calls", "s", SECONDS, labels, ask.seconds());
    }

    fn add(
        &mut self,
        name: &'static str,
        description: &'static str,
        unit: &'static str,
        labels: MetricLabels,
        more: u64,
    ) {
        match self.metric(name, description, unit).points.entry(labels).or_insert(MetricValue::Count(0)) {
            MetricValue::Count(count) => *count += more,
            MetricValue::Amount(_) | MetricValue::Histogram { .. } => (),
        }
    }

    fn observe(
        &mut self,
        name: &'static str,
        description: &'static str,
        unit: &'static str,
        bounds: &'static [f64],
        labels: MetricLabels,
        value: f64,
    ) {
        let empty = || MetricValue::Histogram { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 };
        match self.metric(name, description, unit).points.entry(labels).or_insert_with(empty) {
            MetricValue::Histogram { bounds, counts, sum } => {
                counts[bounds.partition_point(|bound| *bound < value)] += 1;
                *sum += value;
            }
            MetricValue::Count(_) | MetricValue::Amount(_) => (),
        }
    }

    fn metric(&mut self, name: &'static str, description: &'static str, unit: &'static str) -> &mut Measurement {
        self.by_name.entry(name).or_insert_with(|| Measurement { description, unit, points: BTreeMap::new() })
    }
}

fn with(labels: &MetricLabels, name: &'static str, value: &str) -> MetricLabels {
    labels.iter().cloned().chain([(name, value.to_owned())]).collect()
}
