//! The part of OTLP that is written here, as protobuf messages. Field numbers are those of opentelemetry-proto 1.x; the
//! tests decode the output with that project's own types.

use prost::Message;

use crate::{
    metrics::{Measurement, MetricLabels, MetricValue, Metrics},
    span::{Attribute, Span, SpanKind},
};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: i32 = 2;
/// `STATUS_CODE_ERROR`.
const ERROR: i32 = 2;

/// The process that sends the data.
#[derive(Clone, Debug)]
pub(crate) struct OtlpSource {
    pub(crate) resource: Vec<(String, String)>,
    /// Start of the process, in milliseconds since 1970.
    pub(crate) since_ms: u64,
}

impl OtlpSource {
    /// Encodes the body of a request to `/v1/traces`.
    pub(crate) fn traces(&self, spans: &[Span]) -> Vec<u8> {
        let inner = ScopeSpans { scope: Some(scope()), spans: spans.iter().map(pb_span).collect() };
        let outer = ResourceSpans { resource: Some(self.resource()), scope_spans: vec![inner] };
        ExportTraces { resource_spans: vec![outer] }.encode_to_vec()
    }

    /// Encodes the body of a request to `/v1/metrics`.
    pub(crate) fn metrics(&self, metrics: &Metrics, now_ms: u64) -> Vec<u8> {
        let times = (nanos(self.since_ms), nanos(now_ms));
        let metrics = metrics.by_name.iter().map(|(name, metric)| pb_metric(name, metric, times)).collect();
        let inner = ScopeMetrics { scope: Some(scope()), metrics };
        let outer = ResourceMetrics { resource: Some(self.resource()), scope_metrics: vec![inner] };
        ExportMetrics { resource_metrics: vec![outer] }.encode_to_vec()
    }

    fn resource(&self) -> PbResource {
        PbResource { attributes: self.resource.iter().map(|(key, value)| pb_text(key, value)).collect() }
    }
}

fn scope() -> PbScope {
    PbScope { name: "homing".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}

fn nanos(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

fn pb_span(span: &Span) -> PbSpan {
    PbSpan {
        trace_id: span.trace.as_bytes().to_vec(),
        span_id: span.id.0.to_vec(),
        trace_state: span.trace_state.clone().unwrap_or_default(),
        parent_span_id: span.parent.map(|it| it.0.to_vec()).unwrap_or_default(),
        name: span.name.clone(),
        kind: match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Client => 3,
        },
        start_time_unix_nano: nanos(span.from_ms),
        end_time_unix_nano: nanos(span.to_ms),
        attributes: span.attributes.iter().map(|(key, value)| pb_pair(key, value)).collect(),
        status: span.error.as_ref().map(|message| PbStatus { message: message.clone(), code: ERROR }),
    }
}

fn pb_pair(key: &str, value: &Attribute) -> KeyValue {
    let value = match value {
        Attribute::Text(text) => OneValue::Text(text.clone()),
        Attribute::Int(int) => OneValue::Int(*int),
        Attribute::Double(double) => OneValue::Double(*double),
        Attribute::List(list) => OneValue::List(ArrayValue {
            values: list.iter().map(|text| AnyValue { value: Some(OneValue::Text(text.clone())) }).collect(),
        }),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn pb_text(key: &str, value: &str) -> KeyValue {
    pb_pair(key, &Attribute::Text(value.to_owned()))
}

fn pb_metric(name: &str, metric: &Measurement, times: (u64, u64)) -> Metric {
    let mut sum = Sum { data_points: Vec::new(), temporality: CUMULATIVE, is_monotonic: true };
    let mut histogram = Histogram { data_points: Vec::new(), temporality: CUMULATIVE };
    for (labels, value) in &metric.points {
        match value {
            MetricValue::Count(count) => {
                let value = OneNumber::Int(i64::try_from(*count).unwrap_or(i64::MAX));
                sum.data_points.push(pb_number(labels, value, times));
            }
            MetricValue::Amount(amount) => sum.data_points.push(pb_number(labels, OneNumber::Double(*amount), times)),
            MetricValue::Histogram { bounds, counts, sum } => {
                histogram.data_points.push(pb_histogram(labels, bounds, counts, *sum, times));
            }
        }
    }
    let data = if histogram.data_points.is_empty() { OneData::Sum(sum) } else { OneData::Histogram(histogram) };
    Metric {
        name: name.to_owned(),
        description: metric.description.to_owned(),
        unit: metric.unit.to_owned(),
        data: Some(data),
    }
}

fn pb_number(labels: &MetricLabels, value: OneNumber, (start, now): (u64, u64)) -> NumberPoint {
    NumberPoint { start_time_unix_nano: start, time_unix_nano: now, value: Some(value), attributes: pb_labels(labels) }
}

fn pb_histogram(
    labels: &MetricLabels,
    bounds: &[f64],
    counts: &[u64],
    sum: f64,
    (start, now): (u64, u64),
) -> HistogramPoint {
    HistogramPoint {
        start_time_unix_nano: start,
        time_unix_nano: now,
        count: counts.iter().sum(),
        sum: Some(sum),
        bucket_counts: counts.to_vec(),
        explicit_bounds: bounds.to_vec(),
        attributes: pb_labels(labels),
    }
}

fn pb_labels(labels: &MetricLabels) -> Vec<KeyValue> {
    labels.iter().map(|(key, value)| pb_text(key, value)).collect()
}

#[derive(Clone, PartialEq, Message)]
struct ExportTraces {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<PbResource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct PbResource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<PbScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<PbSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct PbScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct PbSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<PbStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct PbStatus {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "OneValue", tags = "1, 3, 4, 5")]
    value: Option<OneValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum OneValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    List(ArrayValue),
}

#[derive(Clone, PartialEq, Message)]
struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ExportMetrics {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<PbResource>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    scope: Option<PbScope>,
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(string, tag = "3")]
    unit: String,
    #[prost(oneof = "OneData", tags = "7, 9")]
    data: Option<OneData>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum OneData {
    #[prost(message, tag = "7")]
    Sum(Sum),
    #[prost(message, tag = "9")]
    Histogram(Histogram),
}

#[derive(Clone, PartialEq, Message)]
struct Sum {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberPoint>,
    #[prost(int32, tag = "2")]
    temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
struct NumberPoint {
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(oneof = "OneNumber", tags = "4, 6")]
    value: Option<OneNumber>,
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum OneNumber {
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(sfixed64, tag = "6")]
    Int(i64),
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<HistogramPoint>,
    #[prost(int32, tag = "2")]
    temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
struct HistogramPoint {
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    count: u64,
    #[prost(double, optional, tag = "5")]
    sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
}
