//! [`Sampling`]: settings of the user that every request to a provider carries.

use serde::Deserialize;

use crate::wire::Wire;

/// Settings that every request to a provider carries. Absent ones are not sent.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Seed for providers that can repeat a reply.
    pub seed: Option<u64>,
    /// Share of the most likely tokens to choose from, from 0 to 1.
    pub top_p: Option<f64>,
    /// Class of service, such as `flex` or `priority`.
    pub service_tier: Option<String>,
}

impl Sampling {
    /// These settings, with those of `before` where they are absent.
    pub(crate) fn or(self, before: Self) -> Self {
        Self {
            seed: self.seed.or(before.seed),
            top_p: self.top_p.or(before.top_p),
            service_tier: self.service_tier.or(before.service_tier),
        }
    }

    /// The settings as JSON members, each followed by a comma. The wires of Anthropic and of the Responses
    /// API have no seed.
    pub(crate) fn members(&self, wire: Wire) -> String {
        let seed = self.seed.filter(|_| matches!(wire, Wire::Chat | Wire::Genai)).map(|seed| ("seed", seed.into()));
        let top_p = self.top_p.map(|share| ("top_p", share.into()));
        let tier = self.service_tier.as_deref().map(|tier| ("service_tier", tier.into()));
        let member = |(name, value): (&str, serde_json::Value)| format!("\"{name}\":{value},");
        [seed, top_p, tier].into_iter().flatten().map(member).collect()
    }
}
