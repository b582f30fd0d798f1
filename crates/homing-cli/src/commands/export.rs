//! `homing export`: a tree as a cassette, as Markdown, or as a page with a timeline.

use std::fs;

use homing_models::Providers;

use crate::{
    cli::journal::{ExportArgs, ExportFormat},
    exit::{Exit, Trouble},
    terminal,
};

mod html;

pub(crate) fn run(args: &ExportArgs) -> anyhow::Result<Exit> {
    let journal = super::runs::open(&args.journal)?;
    let found = super::show::find(&journal, &args.id)?;
    let redact = redactor();
    let text = match args.format {
        ExportFormat::Json => {
            let cassette = journal.cassette(found.tree).map_err(Trouble::from)?;
            cassette.write(&redact).map_err(|error| Trouble::config(error.to_string()))?
        }
        ExportFormat::Md | ExportFormat::Html => {
            let tree = journal.tree(found.tree).map_err(Trouble::from)?;
            let envelope = journal.envelope(found.tree).map_err(Trouble::from)?;
            let text = match args.format {
                ExportFormat::Html => html::page(&tree, &envelope),
                ExportFormat::Md | ExportFormat::Json => markdown(&tree, &envelope),
            };
            redact(&text)
        }
    };
    match &args.output {
        Some(path) => {
            fs::write(path, text)
                .map_err(|error| Trouble::config(format!("cannot write {}: {error}", path.display())))?;
            terminal::say(&format!("written to {}", path.display()));
        }
        None => std::io::Write::write_all(&mut std::io::stdout().lock(), text.as_bytes())?,
    }
    Ok(Exit::Done)
}

/// Keys never reach the journal; should one have been pasted into a task, it leaves no further.
fn redactor() -> impl Fn(&str) -> String {
    let providers = Providers::new(std::collections::BTreeMap::new(), |_| None);
    let names: Vec<String> = providers.rows().iter().flat_map(|row| row.key_vars.clone()).collect();
    let keys: Vec<String> = names.iter().filter_map(|it| std::env::var(it).ok()).filter(|it| it.len() >= 8).collect();
    move |text| keys.iter().fold(text.to_owned(), |text, key| text.replace(key, "[redacted]"))
}

fn markdown(tree: &homing_core::tree::RunTree, envelope: &homing_core::envelope::Envelope) -> String {
    let mut out = format!("# {} {}\n", envelope.agent, envelope.run);
    for one in envelope.all() {
        let Some(run) = tree.get(one.run) else { continue };
        let words = super::show::transcript(run, one, tree);
        let fence = "`".repeat(
            words.lines().map(|it| it.chars().take_while(|it| *it == '`').count()).max().unwrap_or(0).max(2) + 1,
        );
        out.push_str(&format!(
            "\n## {} {} ({})\n\n{fence}\n{words}\n{fence}\n",
            one.place,
            one.agent,
            one.status.name()
        ));
    }
    out
}
