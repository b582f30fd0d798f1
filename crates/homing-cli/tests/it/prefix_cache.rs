//! Fan-outs and forks at a provider that caches prompts, judged by the provider's own log.

use std::time::{Duration, Instant};

use homing::{AgentDefinition, Envelope, Homing, ModelOptions, RuntimeConfig, Task, usd};
use homing_core::definition::Inherit;
use homing_models::ProviderConfig;
use homing_testing::{FakeProvider, PrefixCache, PromptUsage, ReceivedRequest};

/// The figures of one run: what the provider saw, and what the run reports.
struct Figures {
    children: Vec<PromptUsage>,
    envelope: Envelope,
    took: Duration,
    requests: Vec<ReceivedRequest>,
}

impl Figures {
    /// Returns the cached tokens of the children, in percent of their input.
    fn cached_share(&self) -> usize {
        let sum = |tokens: fn(&PromptUsage) -> usize| self.children.iter().map(tokens).sum::<usize>();
        100 * sum(|usage| usage.cached) / sum(|usage| usage.input)
    }

    fn print(&self, what: &str) {
        let (share, cost) = (self.cached_share(), usd(self.envelope.subtree.cost_micros));
        eprintln!("{what}: {share} % of the children's input cached, {cost}, {:.1} s", self.took.as_secs_f64());
    }
}

/// Text of the size of usual project instructions.
fn long_text(beginning: &str) -> String {
    format!("{beginning}\n{}", "Follow the rules of this project in every step you take. ".repeat(400))
}

/// Runs a lead that delegates to `count` workers at once. Most of a request is the workers' prompt, or, if they inherit
/// messages, the lead's history.
async fn fan_out(count: usize, inherit: Inherit, cache_wait: Duration) -> Figures {
    let cache = PrefixCache::new(Duration::from_millis(700));
    let script = cache.clone();
    let provider = FakeProvider::start(move |number, seen| {
        if number > 0 {
            return script.text(seen, "done");
        }
        let args: Vec<String> = (0..count).map(|n| format!(r#"{{"agent": "worker", "task": "part-{n}"}}"#)).collect();
        let calls: Vec<(&str, &str)> = args.iter().map(|args| ("delegate", args.as_str())).collect();
        script.calls(seen, &calls)
    })
    .await;
    let prices = r#"{"*": {"input": 3.0, "cached": 0.3, "output": 15.0}}"#;
    let config = ProviderConfig {
        base_url: Some(provider.url()),
        prices: serde_json::from_str(prices).unwrap(),
        ..ProviderConfig::default()
    };
    let mut options = ModelOptions::default();
    options.providers.insert("loopback".to_owned(), config);
    let (prompt, task) = match inherit {
        Inherit::None => (long_text("You are worker."), "go".to_owned()),
        Inherit::All | Inherit::Last(_) => ("You are worker.".to_owned(), long_text("go")),
    };
    let mut worker = AgentDefinition::new("worker", "Works.", prompt);
    worker.context.inherit = inherit;
    let mut settings = RuntimeConfig::default();
    settings.cache_wait = cache_wait;
    let homing = Homing::builder()
        .agents([AgentDefinition::new("lead", "Leads.", "You are lead."), worker])
        .model_options(options)
        .model("loopback/model")
        .settings(settings)
        .build()
        .unwrap();
    let begun = Instant::now();
    let envelope = homing.spawn(Task::new("lead", task)).unwrap().wait().await;
    assert_eq!(envelope.children.len(), count, "{envelope:?}");
    let requests = provider.requests();
    let log = cache.log();
    assert_eq!(log.len(), count + 2);
    Figures { children: log[1..=count].to_vec(), envelope, took: begun.elapsed(), requests }
}

/// Returns the part of a request that the model reads, without its end.
fn prompt(seen: &ReceivedRequest) -> &str {
    let start = seen.body.find("\"tools\":[").unwrap();
    seen.body[start..].trim_end_matches(['}', ']'])
}

#[tokio::test(flavor = "multi_thread")]
async fn r52_fan_out_waits_for_the_first_reply_and_shares_its_cache() {
    let with = fan_out(8, Inherit::None, Duration::from_secs(10)).await;
    let without = fan_out(8, Inherit::None, Duration::ZERO).await;
    with.print("8 workers, waiting");
    without.print("8 workers, not waiting");
    let workers: Vec<&str> = with.requests[1..=8].iter().map(prompt).collect();
    let shared = workers[0].find("part-").unwrap();
    for worker in &workers {
        assert_eq!(worker[..shared], workers[0][..shared], "the beginnings are equal");
    }
    assert_eq!(with.children[0].cached, 0, "the first one fills the cache");
    assert!(with.children[1..].iter().all(|usage| usage.cached * 10 > usage.input * 9), "{:?}", with.children);
    assert!(with.envelope.subtree.cost_micros < without.envelope.subtree.cost_micros);
}

#[tokio::test(flavor = "multi_thread")]
async fn r52_forks_begin_with_their_parents_whole_request() {
    let figures = fan_out(3, Inherit::All, Duration::ZERO).await;
    figures.print("3 forks");
    let parent = prompt(&figures.requests[0]).to_owned();
    for fork in &figures.requests[1..=3] {
        assert!(prompt(fork).starts_with(&parent), "the fork's request begins with its parent's");
        assert!(prompt(fork)[parent.len()..].contains("you are the agent `worker`"));
    }
    let plain = fan_out(3, Inherit::Last(100), Duration::ZERO).await;
    plain.print("3 children with the same messages after their own tools and prompt");
    assert!(figures.children.iter().all(|usage| usage.cached > 0), "{:?}", figures.children);
    assert!(plain.children.iter().all(|usage| usage.cached == 0), "{:?}", plain.children);
}
