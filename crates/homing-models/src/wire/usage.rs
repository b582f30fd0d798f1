//! Parses the usage that providers report. Implausible numbers count as missing.

use homing_core::message::Usage;
use serde_json::Value;

use super::json_scanner::Scanner;

/// More tokens than any request can have; larger numbers are errors.
pub(crate) const MAX_TOKENS: u64 = 100_000_000;

/// A token count: `Some(0)` if it is absent, `None` if it is implausible.
fn count(object: &Value, path: &[&str]) -> Option<u64> {
    let value = path.iter().try_fold(object, |at, key| at.get(key));
    match value {
        None | Some(Value::Null) => Some(0),
        Some(value) => {
            let whole =
                value.as_f64().filter(|number| number.fract() == 0.0 && *number >= 0.0 && *number < MAX_TOKENS as f64);
            value.as_u64().or(whole.map(|number| number as u64)).filter(|number| *number < MAX_TOKENS)
        }
    }
}

fn has(object: &Value, keys: [&str; 2]) -> bool {
    keys.iter().all(|key| object.get(key).is_some_and(|value| !value.is_null()))
}

fn unknown() -> Usage {
    Usage::default().estimated(true)
}

/// The plausible counts of a chat completion.
#[derive(Default)]
struct ChatCounts {
    input: u64,
    output: u64,
    total: u64,
    reasoning: u64,
    cached: u64,
    cache_write: u64,
}

impl ChatCounts {
    /// Reads the form that most servers report; `None` if it is another one, or a count is implausible.
    fn read(scan: &mut Scanner<'_>) -> Option<Self> {
        let mut counts = Self::default();
        let (mut input, mut output) = (None, None);
        scan.members(|scan, key| match key {
            "prompt_tokens" => scan.number().map(|count| input = Some(count)),
            "completion_tokens" => scan.number().map(|count| output = Some(count)),
            "total_tokens" => scan.number_or_null().map(|count| counts.total = count),
            "prompt_cache_hit_tokens" | "cached_tokens" | "num_cached_tokens" => counts.read_cached(scan),
            "prompt_tokens_details" => scan.members_or_null(|scan, key| match key {
                "cached_tokens" => counts.read_cached(scan),
                "cache_write_tokens" => scan.number_or_null().map(|count| counts.cache_write = count),
                _ => scan.skip(0),
            }),
            "completion_tokens_details" => scan.members_or_null(|scan, key| match key {
                "reasoning_tokens" => scan.number_or_null().map(|count| counts.reasoning = count),
                _ => scan.skip(0),
            }),
            _ => scan.skip(0),
        })?;
        (counts.input, counts.output) = (input?, output?);
        let Self { input, output, total, reasoning, cached, cache_write } = counts;
        let is_plausible =
            [input, output, total, reasoning, cached, cache_write].iter().all(|count| *count < MAX_TOKENS);
        is_plausible.then_some(counts)
    }

    /// Reads one of the numbers of cached tokens. Servers that report several repeat the same.
    fn read_cached(&mut self, scan: &mut Scanner<'_>) -> Option<()> {
        scan.number_or_null().map(|count| self.cached = self.cached.max(count))
    }

    fn usage(self) -> Usage {
        let Self { input, mut output, reasoning, .. } = self;
        // Some providers do not include reasoning in the output; the total shows which do.
        if reasoning > 0 && self.total == input + output + reasoning {
            output += reasoning;
        }
        let cached = self.cached.min(input);
        let cache_write = self.cache_write.min(input - cached);
        let usage = Usage::default().input(input).cached(cached).cache_write(cache_write);
        usage.output(output).reasoning(reasoning.min(output))
    }
}

/// Reads the usage of a chat completion in the form that most servers report; `None` if it has another.
pub(super) fn scan_chat(scan: &mut Scanner<'_>) -> Option<Usage> {
    ChatCounts::read(scan).map(ChatCounts::usage)
}

/// Usage of a chat completion, as JSON.
pub(super) fn of_chat_text(json: &str) -> Usage {
    of_chat(&serde_json::from_str(json).unwrap_or_default())
}

/// Usage of a chat completion. Some servers use the newer names, or report the total instead of the output.
pub(super) fn of_chat(object: &Value) -> Usage {
    let names =
        [["prompt_tokens", "completion_tokens"], ["input_tokens", "output_tokens"], ["prompt_tokens", "total_tokens"]];
    let Some([of_input, of_output]) = names.into_iter().find(|keys| has(object, *keys)) else { return unknown() };
    let read = || {
        let (input, mut output) = (count(object, &[of_input])?, count(object, &[of_output])?);
        if of_output == "total_tokens" {
            output = output.checked_sub(input)?;
        }
        let reasoning = count(object, &["completion_tokens_details", "reasoning_tokens"])?;
        let total = if reasoning > 0 { count(object, &["total_tokens"])? } else { 0 };
        let mut cached = count(object, &["prompt_tokens_details", "cached_tokens"])?;
        for key in ["prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens"] {
            cached = cached.max(count(object, &[key])?);
        }
        let cache_write = count(object, &["prompt_tokens_details", "cache_write_tokens"])?;
        Some(ChatCounts { input, output, total, reasoning, cached, cache_write }.usage())
    };
    read().unwrap_or_else(unknown)
}

/// Usage of a response.
pub(super) fn of_responses(object: &Value) -> Usage {
    if !has(object, ["input_tokens", "output_tokens"]) {
        return unknown();
    }
    let read = || {
        let (input, output) = (count(object, &["input_tokens"])?, count(object, &["output_tokens"])?);
        let cached = count(object, &["input_tokens_details", "cached_tokens"])?.min(input);
        let cache_write = count(object, &["input_tokens_details", "cache_write_tokens"])?.min(input - cached);
        let reasoning = count(object, &["output_tokens_details", "reasoning_tokens"])?.min(output);
        Some(Usage::default().input(input).cached(cached).cache_write(cache_write).output(output).reasoning(reasoning))
    };
    read().unwrap_or_else(unknown)
}

/// Usage of a Converse reply, whose input does not include the cached tokens.
pub(super) fn of_bedrock(object: &Value) -> Usage {
    if !has(object, ["inputTokens", "outputTokens"]) {
        return unknown();
    }
    let keys = ["inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens", "outputTokens"];
    let read = || {
        let [fresh, cached, cache_write, output] = keys.map(|key| count(object, &[key]));
        let (fresh, cached, cache_write, output) = (fresh?, cached?, cache_write?, output?);
        Some(
            Usage::default().input(fresh + cached + cache_write).cached(cached).cache_write(cache_write).output(output),
        )
    };
    read().unwrap_or_else(unknown)
}

/// Usage of a message; `before` is the usage from the beginning of the stream.
pub(super) fn of_anthropic(object: &Value, before: Option<&Value>) -> Usage {
    let merged = |key: &str| {
        let latest = object.get(key).filter(|it| !it.is_null());
        latest.or_else(|| before.and_then(|before| before.get(key))).cloned().unwrap_or(Value::Null)
    };
    let keys = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"];
    let all = Value::Object(keys.iter().map(|key| ((*key).to_owned(), merged(key))).collect());
    if !has(&all, ["input_tokens", "output_tokens"]) {
        return unknown();
    }
    let read = || {
        let [fresh, cached, cache_write, output] = keys.map(|key| count(&all, &[key]));
        let reasoning = count(object, &["output_tokens_details", "thinking_tokens"])?;
        let (fresh, cached, cache_write, output) = (fresh?, cached?, cache_write?, output?);
        let input = fresh + cached + cache_write;
        Some(
            Usage::default()
                .input(input)
                .cached(cached)
                .cache_write(cache_write)
                .output(output)
                .reasoning(reasoning.min(output)),
        )
    };
    read().unwrap_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fault29_l17_implausible_counts_are_flagged() {
        for bad in [
            json!({}),
            json!({"prompt_tokens": 5}),
            json!({"prompt_tokens": -5, "completion_tokens": 1}),
            json!({"prompt_tokens": 1.5, "completion_tokens": 1}),
            json!({"prompt_tokens": 9_223_372_036_854_775_808_u64, "completion_tokens": 1}),
            json!({"prompt_tokens": "7", "completion_tokens": 1}),
        ] {
            assert_eq!(of_chat(&bad), unknown(), "{bad}");
        }
        assert_eq!(of_anthropic(&json!({"input_tokens": -1, "output_tokens": 2}), None), unknown());
        assert_eq!(of_chat(&json!({"prompt_tokens": 5.0, "completion_tokens": 1})).input, 5);
    }

    #[test]
    fn common_form_and_values_are_read_alike() {
        let forms = [
            json!({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
                "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 0}, "completion_tokens_details": null}),
            json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 18, "num_cached_tokens": 90,
                "completion_tokens_details": {"reasoning_tokens": 3}}),
            json!({"prompt_tokens": 5.0, "completion_tokens": 1}),
            json!({"prompt_tokens": 5, "completion_tokens": -1}),
            json!({"prompt_tokens": 5, "completion_tokens": 1, "cached_tokens": MAX_TOKENS}),
            json!({"prompt_tokens": 5}),
            json!(null),
        ];
        for (at, usage) in forms.iter().enumerate() {
            let common = scan_chat(&mut Scanner::new(&usage.to_string()));
            assert_eq!(common, (at < 2).then(|| of_chat(usage)), "{usage}");
        }
    }

    #[test]
    fn counts_under_other_names_are_found() {
        let newer = of_chat(&json!({"input_tokens": 7, "output_tokens": 2}));
        assert_eq!((newer.input, newer.output), (7, 2));
        let total = of_chat(&json!({"prompt_tokens": 7, "total_tokens": 9}));
        assert_eq!((total.input, total.output), (7, 2));
        assert_eq!(of_chat(&json!({"prompt_tokens": 7, "total_tokens": 5})), unknown());
        let beside = of_chat(&json!({"prompt_tokens": 7, "completion_tokens": 1, "cached_tokens": 4}));
        assert_eq!(beside.cached, 4);
    }

    #[test]
    fn reasoning_outside_the_output_is_added_once() {
        let beside = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 18,
            "completion_tokens_details": {"reasoning_tokens": 3}});
        assert_eq!(of_chat(&beside).output, 8);
        let within = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
            "completion_tokens_details": {"reasoning_tokens": 3}});
        assert_eq!(of_chat(&within).output, 5);
    }

    #[test]
    fn responses_report_cached_and_reasoning_tokens_within_the_totals() {
        let usage = of_responses(
            &json!({"input_tokens": 50, "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 4},
            "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 6}, "total_tokens": 59}),
        );
        assert_eq!((usage.input, usage.cached, usage.cache_write), (50, 40, 4));
        assert_eq!((usage.output, usage.reasoning, usage.estimated), (9, 6, false));
        assert_eq!(of_responses(&json!({"input_tokens": 50})), unknown());
        assert_eq!(of_responses(&json!({"input_tokens": 5, "output_tokens": -1})), unknown());
        let absurd = json!({"input_tokens": 5, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 900},
            "output_tokens_details": {"reasoning_tokens": 900}});
        assert_eq!((of_responses(&absurd).cached, of_responses(&absurd).reasoning), (5, 1));
    }

    #[test]
    fn input_includes_cache_reads_and_writes() {
        let start = json!({"input_tokens": 3, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20});
        let usage = of_anthropic(&json!({"output_tokens": 7}), Some(&start));
        assert_eq!((usage.input, usage.cached, usage.cache_write, usage.output), (123, 100, 20, 7));
    }
}
