//! The effort levels that OpenAI's reasoning models accept, by name: a model refuses a level that it does not know.

use homing_core::model::Effort;

/// The effort levels that a reasoning model accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EffortLevels {
    /// `low`, `medium`, `high`.
    Plain,
    /// Also `minimal`.
    Gpt5,
    /// `low`, `medium`, `high`, `xhigh`.
    Codex,
    /// Also `none`.
    Newest,
    /// `high` only.
    Pro,
}

impl EffortLevels {
    /// The levels of `model`; `None` if it is not known to reason.
    pub(super) fn of(model: &str) -> Option<Self> {
        let name = model.rsplit('/').next().unwrap_or_default();
        if name.contains("-chat") {
            return None;
        }
        if ["o1", "o3", "o4", "gpt-oss", "codex-"].iter().any(|start| name.starts_with(start)) {
            return Some(Self::Plain);
        }
        let version = name.strip_prefix("gpt-")?.split('-').next()?;
        let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
        let is_codex = name.contains("-codex");
        match (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?) {
            (..=4, _) => None,
            _ if name.contains("-pro") => Some(Self::Pro),
            (5, 0) if !is_codex => Some(Self::Gpt5),
            (5, 0 | 1) => Some(Self::Plain),
            _ if is_codex => Some(Self::Codex),
            _ => Some(Self::Newest),
        }
    }

    /// The word for `effort`, or for the nearest level that the model accepts.
    pub(super) fn word(self, effort: Effort) -> &'static str {
        match (effort, self) {
            (_, Self::Pro) => "high",
            (Effort::None, Self::Newest) => "none",
            (Effort::None | Effort::Minimal, Self::Gpt5) => "minimal",
            (Effort::None | Effort::Minimal | Effort::Low, _) => "low",
            (Effort::Medium, _) => "medium",
            (Effort::Xhigh | Effort::Max, Self::Newest | Self::Codex) => "xhigh",
            (Effort::High | Effort::Xhigh | Effort::Max, _) => "high",
        }
    }
}

/// The effort to derive timeouts from. OpenAI's `pro` models reason for minutes, with any effort.
pub(crate) fn patience(model: &str, effort: Option<Effort>) -> Option<Effort> {
    let is_pro = model.contains("-pro") && EffortLevels::of(model).is_some();
    if is_pro { Some(Effort::Max) } else { effort }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effort_uses_levels_that_the_model_accepts() {
        let word = |model: &str, effort| EffortLevels::of(model).map(|levels| levels.word(effort));
        assert_eq!(word("gpt-4.1", Effort::High), None);
        assert_eq!(word("gpt-4o-mini", Effort::High), None);
        assert_eq!(word("gpt-5-chat-latest", Effort::High), None);
        assert_eq!(word("qwen3:4b", Effort::High), None);
        assert_eq!(word("o3-mini", Effort::Max), Some("high"));
        assert_eq!(word("openai/gpt-oss-120b", Effort::None), Some("low"));
        assert_eq!(word("gpt-5-mini", Effort::None), Some("minimal"));
        assert_eq!(word("gpt-5-codex", Effort::Minimal), Some("low"));
        assert_eq!(word("codex-mini-latest", Effort::Max), Some("high"));
        assert_eq!(word("gpt-5.3-codex", Effort::None), Some("low"));
        assert_eq!(word("gpt-5.3-codex", Effort::Max), Some("xhigh"));
        assert_eq!(word("gpt-5-pro", Effort::Low), Some("high"));
        assert_eq!(word("gpt-6.1-sol", Effort::Max), Some("xhigh"));
        assert_eq!(word("gpt-5.6-terra", Effort::None), Some("none"));
    }

    #[test]
    fn pro_models_get_the_longest_waits() {
        assert_eq!(patience("o3-pro", None), Some(Effort::Max));
        assert_eq!(patience("gpt-5.2-pro", Some(Effort::Low)), Some(Effort::Max));
        assert_eq!(patience("gpt-5", Some(Effort::Low)), Some(Effort::Low));
        assert_eq!(patience("deepseek-v4-pro", None), None);
    }
}
