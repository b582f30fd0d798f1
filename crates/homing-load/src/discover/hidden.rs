//! Announces agents and skills of a project that have the name of another one. The files of a project come from strangers,
//! so they replace an agent or a skill that the user knows only if they are trusted, and never silently.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use homing_core::{
    definition::{AgentDefinition, Scope},
    diagnostic::Diagnostic,
    skill::SkillCard,
};

use super::Candidate;

/// The field of the diagnostics about agents and skills of one name, so that hosts can show them prominently.
const FIELD: &str = "hides";

/// Returns true for a diagnostic about a project's agent or skill that hides another one, or would if it were trusted.
pub fn is_about_hidden_agent(diagnostic: &Diagnostic) -> bool {
    diagnostic.field.as_deref() == Some(FIELD)
}

/// Returns one diagnostic for each agent of a project with the name of an agent that is built in or belongs to the user. Only agents
/// with `repeated` names can be among them.
pub(super) fn announcements(candidates: &[Candidate], repeated: &HashSet<String>) -> Vec<Diagnostic> {
    let candidates = candidates.iter().filter(|candidate| repeated.contains(&candidate.definition.name));
    let mut known: HashMap<&str, &AgentDefinition> = HashMap::new();
    for candidate in candidates.clone().filter(|candidate| candidate.definition.source.kind < Scope::Project) {
        let of_name = known.entry(&candidate.definition.name).or_insert(&candidate.definition);
        if of_name.source.kind <= candidate.definition.source.kind {
            *of_name = &candidate.definition;
        }
    }
    let of_project = candidates.filter(|candidate| candidate.definition.source.kind == Scope::Project);
    of_project
        .filter_map(|candidate| Some(announcement(candidate, known.get(candidate.definition.name.as_str())?)))
        .collect()
}

fn announcement(candidate: &Candidate, other: &AgentDefinition) -> Diagnostic {
    let name = &candidate.definition.name;
    let of_project = match &candidate.definition.source.path {
        Some(path) => format!("this project's agent `{name}` ({})", path.display()),
        None => format!("this project's agent `{name}`"),
    };
    let other = match (other.source.kind, &other.source.path) {
        (Scope::BuiltIn, _) => "the built-in agent".to_owned(),
        (_, Some(path)) => format!("your agent in {}", path.display()),
        (_, None) => "your own agent".to_owned(),
    };
    let diagnostic = replacement(&of_project, &other, candidate.is_trusted);
    diagnostic.path(candidate.definition.source.path.clone().map(Arc::new))
}

/// Announces a skill of a project with the name of one of the user's.
pub(crate) fn skill_announcement(card: &SkillCard, other: &SkillCard, is_trusted: bool) -> Diagnostic {
    let of_project = format!("this project's skill `{}` ({})", card.name, card.path.display());
    let diagnostic = replacement(&of_project, &format!("your skill in {}", other.path.display()), is_trusted);
    diagnostic.path(Some(Arc::new(card.path.clone())))
}

fn replacement(of_project: &str, other: &str, is_trusted: bool) -> Diagnostic {
    let diagnostic = if is_trusted {
        Diagnostic::info(format!("{of_project} replaces {other} of that name"))
    } else {
        Diagnostic::warning(format!("{of_project} is not trusted, so {other} of that name is used instead"))
            .hint("review the file, then trust the project; or rename it")
    };
    diagnostic.on(FIELD)
}
