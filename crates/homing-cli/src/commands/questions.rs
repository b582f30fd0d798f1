//! `homing questions`: lists the questions that wait for an answer.

use crate::{
    cli::journal::QuestionsArgs,
    exit::{Exit, Trouble, print},
    print_result::question_lines,
    terminal,
};

pub(crate) fn run(args: &QuestionsArgs) -> anyhow::Result<Exit> {
    let journal = super::runs::open(&args.journal)?;
    let questions = journal.questions().map_err(Trouble::from)?;
    if args.json {
        print(&terminal::json(&serde_json::to_value(&questions)?))?;
        return Ok(Exit::Done);
    }
    if questions.is_empty() {
        terminal::say("there are no open questions");
    }
    for question in &questions {
        let run: String = question.tree.to_string().chars().take(13).collect();
        print(&format!("{}\n    run {run} in {}", question_lines(&question.open), question.folder.display()))?;
    }
    Ok(Exit::Done)
}
