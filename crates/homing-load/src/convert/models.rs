//! Writes the names of models as each program expects them.

use homing_core::definition::ModelChoice;

use super::{ModelNames, targets::ModelForm};

/// A model in the form of a target.
pub(super) enum WrittenModel {
    /// No key: the form's default is meant.
    Absent,
    /// These names, the preferred one first.
    Names(Vec<String>),
    /// The provider and the id.
    Split(String, String),
    /// It cannot be expressed, for this reason.
    Lost(String),
}

/// Writes the model of a definition.
pub(super) fn write(choice: &ModelChoice, form: ModelForm, program: &str, models: ModelNames<'_>) -> WrittenModel {
    let names = match choice {
        ModelChoice::Named(names) => names.clone(),
        ModelChoice::Exact(name) => vec![name.clone()],
        _ => return WrittenModel::Absent,
    };
    match form {
        ModelForm::AsWritten => return WrittenModel::Names(names),
        ModelForm::None => return WrittenModel::Lost(format!("{program} sets no model for an agent")),
        ModelForm::Words(words) => {
            let known: Vec<String> = names.into_iter().filter(|name| words.contains(&name.as_str())).collect();
            return match known.is_empty() {
                _ if !known.is_empty() => WrittenModel::Names(known),
                _ => WrittenModel::Lost(format!("the name of this model in {program} is not known")),
            };
        }
        _ => (),
    }
    let written: Vec<String> = names.iter().filter_map(|name| one(name, form, models)).collect();
    match (written.first(), form) {
        (None, ModelForm::Claude) => WrittenModel::Lost(format!("{program} uses models of Anthropic only")),
        (None, ModelForm::Bare([provider, ..])) => {
            WrittenModel::Lost(format!("{program} uses models of {provider} only, unless it is configured otherwise"))
        }
        (None, _) => WrittenModel::Lost("the provider of this model is not known".to_owned()),
        (Some(first), ModelForm::Split) => match first.split_once('/') {
            Some((provider, id)) => WrittenModel::Split(provider.to_owned(), id.to_owned()),
            None => WrittenModel::Lost("the provider of this model is not known".to_owned()),
        },
        (Some(_), _) => WrittenModel::Names(written),
    }
}

fn one(name: &str, form: ModelForm, models: ModelNames<'_>) -> Option<String> {
    let alias = name.trim().to_lowercase();
    if form == ModelForm::Claude && matches!(alias.as_str(), "sonnet" | "opus" | "haiku" | "fable") {
        return Some(alias);
    }
    let model = models(name)?;
    let (provider, id) = model.split_once('/')?;
    match form {
        ModelForm::Claude => (provider == "anthropic").then(|| id.to_owned()),
        ModelForm::Slash if provider == "gemini" => Some(format!("google/{id}")),
        ModelForm::Slash | ModelForm::Split => Some(model),
        ModelForm::Colon => Some(format!("{provider}:{id}")),
        ModelForm::Bare(providers) => (providers.is_empty() || providers.contains(&provider)).then(|| id.to_owned()),
        ModelForm::Dotted => Some(dotted(id)),
        ModelForm::AsWritten | ModelForm::Words(_) | ModelForm::None => None,
    }
}

/// `claude-sonnet-5-5` becomes `claude-sonnet-5.5`. A date at the end is left out.
fn dotted(id: &str) -> String {
    let is_digit = |part: &&str| part.len() == 1 && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_date = |part: &str| part.len() == 8 && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut out = String::new();
    let mut before = "";
    for part in id.split('-').filter(|part| !is_date(part)) {
        match () {
            () if out.is_empty() => (),
            () if is_digit(&before) && is_digit(&part) => out.push('.'),
            () => out.push('-'),
        }
        out.push_str(part);
        before = part;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_get_dots() {
        assert_eq!(dotted("claude-sonnet-5-5"), "claude-sonnet-5.5");
        assert_eq!(dotted("claude-sonnet-4-5-20250929"), "claude-sonnet-4.5");
        assert_eq!(dotted("gpt-5.2-codex"), "gpt-5.2-codex");
    }
}
