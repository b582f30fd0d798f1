//! `homing questions`: lists the questions that wait for an answer.

use homing_core::short_id::short_id;

use crate::{
    cli::journal::QuestionsArgs,
    commands::which_run::in_project,
    exit::{Exit, Trouble, print},
    print_result::question_lines,
    terminal,
};

pub(crate) fn run(args: &QuestionsArgs) -> anyhow::Result<Exit> {
    let journal = super::runs::open_to_read(&args.journal)?;
    let project = args.scope.project(None);
    let questions = journal.questions(project.as_deref()).map_err(Trouble::from)?;
    if args.json {
        print(&terminal::json(&serde_json::to_value(&questions)?))?;
        return Ok(Exit::Done);
    }
    if questions.is_empty() {
        let elsewhere = match &project {
            Some(_) => journal.questions(None).map_err(Trouble::from)?.len(),
            None => 0,
        };
        let place = in_project(project.as_deref());
        terminal::say(&match elsewhere {
            0 => format!("there are no open questions{place}"),
            many => format!("there are no open questions{place}; {many} in other projects: homing questions --all"),
        });
    }
    for question in &questions {
        let (run, place) = (short_id(question.tree), in_project(Some(&question.project)));
        print(&format!("{}\n    run {run}{place}", question_lines(&question.open)))?;
    }
    Ok(Exit::Done)
}
