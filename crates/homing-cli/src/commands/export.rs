//! `homing export`: writes a run tree as a cassette, as Markdown, as an HTML page with a timeline, or as the web interface shows it.

use std::{collections::BTreeMap, fs};

use homing::environment;
use homing_core::sanitize;
use homing_models::Providers;

use crate::{
    cli::journal::{ExportArgs, ExportFormat},
    commands::which_run,
    exit::{Exit, Trouble},
    session, terminal,
};

mod html;

pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<Exit> {
    let journal = super::runs::open_to_read(&args.journal)?;
    let found = which_run::find(&journal, &args.id, args.scope.project(None))?;
    // Replies and results are recorded without keys, but one may have been pasted into a task.
    let redact = session::redactor(
        &Providers::new(BTreeMap::new(), environment::key).with_aws_profile(environment::aws_profile()),
    );
    let text = match args.format {
        ExportFormat::Json | ExportFormat::View => {
            let cassette = journal.cassette(found.tree).map_err(Trouble::from)?;
            let records = cassette.write(&redact).map_err(|error| Trouble::config(error.to_string()))?;
            let records = terminal::escaped(&records);
            match args.format {
                ExportFormat::View => homing_web::export_page("Homing: an exported run", &records),
                ExportFormat::Json | ExportFormat::Md | ExportFormat::Html => records,
            }
        }
        ExportFormat::Md | ExportFormat::Html => {
            let tree = journal.tree(found.tree).map_err(Trouble::from)?;
            let envelope = journal.envelope(found.tree).map_err(Trouble::from)?;
            let text = match args.format {
                ExportFormat::Html => html::page(&tree, &envelope),
                ExportFormat::Md | ExportFormat::Json | ExportFormat::View => markdown(&tree, &envelope),
            };
            sanitize::inert(&redact(&text))
        }
    };
    match &args.output {
        Some(path) => {
            fs::write(path, text)
                .map_err(|error| Trouble::config(format!("cannot write {}: {error}", path.display())))?;
            terminal::say(&format!("wrote {}", path.display()));
        }
        None => std::io::Write::write_all(&mut std::io::stdout().lock(), text.as_bytes())?,
    }
    Ok(Exit::Done)
}

fn markdown(tree: &homing_core::tree::RunTree, envelope: &homing_core::envelope::Envelope) -> String {
    let mut out = format!("# {} {}\n", envelope.agent, envelope.run);
    for one in envelope.all() {
        let Some(run) = tree.get(one.run) else { continue };
        let text = super::show::transcript(run, one, tree);
        let ticks = |line: &str| line.chars().take_while(|c| *c == '`').count();
        let fence = "`".repeat(text.lines().map(ticks).max().unwrap_or(0).max(2) + 1);
        out.push_str(&format!(
            "\n## {} {} ({})\n\n{fence}\n{text}\n{fence}\n",
            one.place,
            one.agent,
            one.status.name()
        ));
    }
    out
}
