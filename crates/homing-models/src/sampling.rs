//! [`SamplingConfig`]: settings of the user that requests to a provider carry, and the wires that know them.

use std::collections::BTreeMap;

use homing_core::model::Sampling;
use serde::Deserialize;
use serde_json::Value;

use crate::wire::{
    Wire, anthropic, bedrock,
    chat::{self, Quirks},
    responses,
};

/// Settings that every request to a provider carries. Absent ones are not sent, and those of an agent win.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingConfig {
    /// Seed for providers that can repeat a reply.
    pub seed: Option<u64>,
    /// Share of the most likely tokens to choose from, from 0 to 1.
    pub top_p: Option<f64>,
    /// Class of service, such as `flex` or `priority`.
    pub service_tier: Option<String>,
    /// Settings of single models, which win.
    pub models: BTreeMap<String, SamplingConfig>,
}

impl SamplingConfig {
    /// These settings, with those of `before` where they are absent.
    pub(crate) fn or(self, before: Self) -> Self {
        let mut models = before.models;
        models.extend(self.models);
        Self {
            seed: self.seed.or(before.seed),
            top_p: self.top_p.or(before.top_p),
            service_tier: self.service_tier.or(before.service_tier),
            models,
        }
    }

    /// The settings for `model`.
    pub(crate) fn of(&self, model: &str) -> Sampling {
        let own = Sampling {
            seed: self.seed,
            // No provider distinguishes less than a thousandth.
            top_p_milli: self.top_p.map(|share| (share.clamp(0.0, 1.0) * 1_000.0).round() as u32),
            service_tier: self.service_tier.clone(),
        };
        self.models.get(model).map_or_else(Sampling::default, |config| config.of("")).or(&own)
    }
}

/// The settings that requests of this wire to `model` can carry.
pub(crate) fn supported(sampling: Sampling, wire: Wire, model: &str, quirks: Quirks) -> Sampling {
    let takes_top_p = match wire {
        Wire::Chat => !chat::has_fixed_sampling(model, quirks),
        Wire::Responses => !responses::takes_effort(model),
        Wire::Anthropic => !anthropic::refuses_sampling(model),
        Wire::Bedrock => !bedrock::refuses_sampling(model),
        Wire::Genai => true,
    };
    Sampling {
        seed: sampling.seed.filter(|_| matches!(wire, Wire::Chat | Wire::Genai)),
        top_p_milli: sampling.top_p_milli.filter(|_| takes_top_p),
        service_tier: sampling.service_tier,
    }
}

/// The settings as JSON members, each followed by a comma.
pub(crate) fn members(sampling: &Sampling) -> String {
    let seed = sampling.seed.map(|seed| ("seed", seed.into()));
    let top_p = sampling.top_p_milli.map(|milli| ("top_p", (f64::from(milli) / 1_000.0).into()));
    let tier = sampling.service_tier.as_deref().map(|tier| ("service_tier", tier.into()));
    let member = |(name, value): (&str, Value)| format!("\"{name}\":{value},");
    [seed, top_p, tier].into_iter().flatten().map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_model_win_over_those_of_its_provider() {
        let config =
            serde_json::json!({"seed": 7, "top_p": 0.5, "models": {"m": {"top_p": 0.25, "service_tier": "flex"}}});
        let config: SamplingConfig = serde_json::from_value(config).unwrap();
        assert_eq!(config.of("other"), Sampling { seed: Some(7), top_p_milli: Some(500), service_tier: None });
        let own = Sampling { seed: Some(7), top_p_milli: Some(250), service_tier: Some("flex".into()) };
        assert_eq!(config.of("m"), own);
    }

    #[test]
    fn wires_keep_only_the_settings_that_they_know() {
        let all = Sampling { seed: Some(7), top_p_milli: Some(250), service_tier: Some("flex".into()) };
        let names = |wire, model: &str| {
            let quirks = Quirks { max_completion_tokens: true, ..Quirks::default() };
            supported(all.clone(), wire, model, quirks).names()
        };
        assert_eq!(names(Wire::Chat, "gpt-4.1"), ["seed", "top_p", "service_tier"]);
        assert_eq!(names(Wire::Chat, "o3"), ["seed", "service_tier"]);
        assert_eq!(names(Wire::Responses, "gpt-4.1"), ["top_p", "service_tier"]);
        assert_eq!(names(Wire::Responses, "gpt-5"), ["service_tier"]);
        assert_eq!(names(Wire::Anthropic, "claude-sonnet-4-5"), ["top_p", "service_tier"]);
        assert_eq!(names(Wire::Anthropic, "claude-opus-4-7"), ["service_tier"]);
        assert_eq!(names(Wire::Bedrock, "anthropic.claude-sonnet-4-5-20250929-v1:0"), ["top_p", "service_tier"]);
    }
}
