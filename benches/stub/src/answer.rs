//! The stub's answers: pure, from the bytes of a request to the bytes of an answer. It scans and does not parse, so that
//! it uses little CPU on the machine that it shares with the drivers.

use bench_job::{ANSWER, TOOL};
use memchr::memmem;

/// The features of a request that decide the answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) delay: u64,
    pub(crate) is_streamed: bool,
    steps: u64,
    children: u64,
    /// Tool results that the request carries.
    results: u64,
}

impl Asked {
    pub(crate) fn read(body: &[u8]) -> Self {
        let prompt = memmem::find(body, b"bench delay=").map_or(&[][..], |at| &body[at..body.len().min(at + 80)]);
        let spelled = [&b"\"role\":\"tool\""[..], b"\"role\": \"tool\""];
        Self {
            delay: number(prompt, b"delay="),
            steps: number(prompt, b"steps="),
            children: number(prompt, b"children="),
            is_streamed: memmem::find(body, b"\"stream\":true").is_some(),
            results: spelled.iter().map(|name| memmem::find_iter(body, name).count() as u64).sum(),
        }
    }

    pub(crate) fn answer(&self) -> String {
        let calls = self.calls();
        match (self.is_streamed, calls.is_empty()) {
            (true, true) => streamed(words().map(|word| format!("{{\"content\":{word:?}}}")).collect(), "stop"),
            (true, false) => streamed(calls.iter().enumerate().map(|(at, it)| delta(at, it)).collect(), "tool_calls"),
            (false, true) => whole(&format!("\"content\":{ANSWER:?}"), "stop"),
            (false, false) => whole(&format!("\"content\":null,\"tool_calls\":[{}]", calls.join(",")), "tool_calls"),
        }
    }

    /// The answer in the format of Anthropic's messages. It has no calls.
    pub(crate) fn message(&self) -> String {
        let usage = "\"usage\":{\"input_tokens\":100,\"output_tokens\":10}";
        let message = |content: &str, end: &str| {
            format!(
                "{{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"bench\",\"content\":[{content}],\
                 \"stop_reason\":{end},\"stop_sequence\":null,{usage}}}"
            )
        };
        if !self.is_streamed {
            return message(&format!("{{\"type\":\"text\",\"text\":{ANSWER:?}}}"), "\"end_turn\"");
        }
        let event = |kind: &str, fields: &str| format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{fields}}}\n\n");
        let delta = |word| format!(",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":{word:?}}}");
        let begin = ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}";
        let end = ",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":10}";
        let mut text = event("message_start", &format!(",\"message\":{}", message("", "null")));
        text += &event("content_block_start", begin);
        text.extend(words().map(|word| event("content_block_delta", &delta(word))));
        text += &event("content_block_stop", ",\"index\":0");
        text + &event("message_delta", end) + &event("message_stop", "")
    }

    /// The calls of this answer, each as the fields of an object.
    fn calls(&self) -> Vec<String> {
        let call = |id: u64, name: &str, args: &str| {
            format!(
                "{{\"id\":\"call_{id}\",\"type\":\"function\",\"function\":{{\"name\":\"{name}\",\"arguments\":{args:?}}}}}"
            )
        };
        if self.children > 0 && self.results == 0 {
            let args = |child| format!("{{\"agent\":\"worker\",\"task\":\"Make your steps, then report. ({child})\"}}");
            return (0..self.children).map(|child| call(child, "delegate", &args(child))).collect();
        }
        if self.children == 0 && self.results < self.steps {
            return vec![call(self.results, TOOL, &format!("{{\"n\":{}}}", self.results))];
        }
        Vec::new()
    }
}

fn number(prompt: &[u8], name: &[u8]) -> u64 {
    let Some(at) = memmem::find(prompt, name) else { return 0 };
    let digits = prompt[at + name.len()..].iter().take_while(|it| it.is_ascii_digit());
    digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))
}

fn words() -> impl Iterator<Item = &'static str> {
    ANSWER.split_inclusive(' ')
}

fn delta(at: usize, call: &str) -> String {
    format!("{{\"tool_calls\":[{{\"index\":{at},{}]}}", &call[1..])
}

fn streamed(deltas: Vec<String>, reason: &str) -> String {
    let event = |choices: &str| {
        format!(
            "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"bench\",{choices}}}\n\n"
        )
    };
    let delta =
        |delta: &String| event(&format!("\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":null}}]"));
    let mut text: String = deltas.iter().map(delta).collect();
    text += &event(&format!("\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]"));
    text += &event(&format!("\"choices\":[],{USAGE}"));
    text + "data: [DONE]\n\n"
}

fn whole(message: &str, reason: &str) -> String {
    format!(
        "{{\"id\":\"c\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"bench\",\"choices\":[{{\"index\":0,\
         \"message\":{{\"role\":\"assistant\",{message}}},\"finish_reason\":\"{reason}\"}}],{USAGE}}}"
    )
}

const USAGE: &str = "\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":10,\"total_tokens\":110}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompt_says_how_to_answer() {
        let asked = Asked::read(br#"{"stream":true,"m":["bench delay=100 steps=3 children=0."],{"role":"tool"}}"#);
        assert_eq!(asked, Asked { delay: 100, steps: 3, children: 0, results: 1, is_streamed: true });
        assert!(asked.answer().contains(r#"\"n\":1"#), "{}", asked.answer());
        let done = Asked { results: 3, ..asked };
        assert!(done.answer().contains("\"content\":\"report.\""), "{}", done.answer());
        assert!(done.message().contains(r#"{"type":"text_delta","text":"report."}"#), "{}", done.message());
        let lead = Asked { children: 2, ..Asked::default() };
        assert_eq!(lead.answer().matches("delegate").count(), 2);
    }
}
