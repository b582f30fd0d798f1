//! A model of the host: it streams its reply and has a price, so cost limits hold for it too. It is tested without a run, and in
//! one.

use std::sync::Arc;

use homing::{
    AgentDefinition, BoxFuture, Homing, Limits, Model, ModelCard, Rates, Reply, Task, Usage,
    models::{AskFailure, Delta, ModelError, ModelRequest, OnDelta},
    testing::last_words,
    usd,
};

/// Answers with the words of the last message in reverse order, for a dollar per thousand words.
pub struct Reverser(ModelCard);

impl Default for Reverser {
    fn default() -> Self {
        let rates = Rates::default().input(1_000_000_000).output(1_000_000_000);
        Self(ModelCard::free("demo/reverser").rates(rates).max_output(100))
    }
}

impl Model for Reverser {
    fn card(&self) -> &ModelCard {
        &self.0
    }

    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        Box::pin(async move {
            let heard = last_words(&request);
            if heard.contains("secret") {
                return Err(AskFailure::free(ModelError::Refused { reason: "I keep secrets".to_owned() }));
            }
            let words: Vec<&str> = heard.split_whitespace().rev().collect();
            words.iter().for_each(|word| on_delta(Delta::Text(word)));
            let count = words.len() as u64;
            Ok(Reply::text_only(words.join(" ")).usage(Usage::default().input(count).output(count)))
        })
    }
}

/// Runs the example and returns its result.
pub async fn example() -> Result<String, Box<dyn std::error::Error>> {
    let homing = Homing::builder()
        .agent(AgentDefinition::new("mirror", "Mirrors", "Mirror."))
        .own_model(Arc::new(Reverser::default()))
        .build()?;
    let limits = Limits::default().cost_usd("5")?;
    let result = homing.spawn(Task::new("mirror", "one two three").limits(limits))?.await;
    Ok(format!("{} for {}", result.output, usd(result.usage.cost_micros)))
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example talks")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", example().await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use homing::{
        Message,
        models::{Toolbox, TranscriptEntry},
    };

    use super::*;

    #[tokio::test]
    async fn secrets_are_refused_and_cost_nothing() {
        let (messages, tools) = ([TranscriptEntry::new(Message::user("a secret"))], Toolbox::default());
        let request = ModelRequest::new("Mirror.", &messages, &tools, "key");
        let refused = Reverser::default().reply(request, &|_| ()).await.unwrap_err();
        assert_eq!(refused.to_string(), "the provider declined: I keep secrets");
    }
}
