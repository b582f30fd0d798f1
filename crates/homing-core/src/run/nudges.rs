//! Instructions of the runtime to the model.

use crate::limits::Limit;

/// The run continues after a limit had ended it.
pub(super) const MORE_BUDGET: &str =
    "Your budget has been increased. Continue with the task; tools are available again.";

/// The wording of [`MORE_BUDGET`] in transcripts of earlier versions.
const EARLIER_MORE_BUDGET: &str = "You have been given more room. Go on with the task; tools are available again.";

/// Returns whether `text` is the notice that the run continues with a larger budget.
pub(super) fn is_more_budget(text: &str) -> bool {
    text == MORE_BUDGET || text == EARLIER_MORE_BUDGET
}

/// The run needs a structured answer, but the model replied with text.
pub(super) const USE_ANSWER: &str =
    "Give your answer by calling the tool `answer`; its parameters define the expected format.";

/// The run needs a structured answer, and the JSON that the model replied with has these problems.
pub(super) fn answer_problems(problems: &str) -> String {
    format!("The JSON in your reply does not match the expected format: {problems}. {USE_ANSWER}")
}

/// The model replied without text or calls.
pub(super) const EMPTY: &str = "Your last message was empty. Report what you found or did.";

/// The model repeats a call.
pub(super) const REPEATED: &str = "You have made the same call three times in a row with the same result. Repeating it will not help: \
     try something else, or answer with what you have.";

/// Announces the last turn before `limit` ends the run.
pub(super) fn landing(limit: Limit) -> String {
    format!("{} Report what you have: results first, then what is missing.", tools_off(limit))
}

/// Announces the last turn to a model whose text was cut.
pub(super) fn landing_continues(limit: Limit) -> String {
    format!("{} Continue exactly where your text stopped, and bring it to an end.", tools_off(limit))
}

/// Announces that the `until` command did not succeed.
pub(super) fn check_failed(command: &str, output: &str) -> String {
    format!("The check `{command}` has not succeeded yet:\n{output}")
}

fn tools_off(limit: Limit) -> String {
    let reason = match limit {
        Limit::Turns => "This is your last turn.",
        Limit::Tokens => "Your token budget is nearly used up.",
        Limit::Cost => "Your cost budget is nearly used up.",
        Limit::ToolCalls => "You have used all of your tool calls.",
        Limit::Wall | Limit::Work => "Your time is nearly up.",
        Limit::Repeats => "You are repeating yourself.",
        Limit::Depth | Limit::Children | Limit::Compactions | Limit::Output => "You have reached a limit.",
    };
    format!("{reason} Tools are no longer available.")
}
