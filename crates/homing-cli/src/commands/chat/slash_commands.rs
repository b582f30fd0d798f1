//! The commands of a conversation that begin with a slash.

use std::collections::BTreeMap;

use homing_core::{limits::usd, sanitize};
use uuid::Uuid;

use super::conversation::{Conversation, run_at};
use crate::{
    chat::{cells::Entry, dropped_path, slash, slash::Slash, unknown_place},
    commands::diff::tree_diffs,
    exit::Trouble,
    progress::{figures, first_line},
};

impl Conversation {
    /// Carries out a command.
    pub(super) fn slash(&mut self, command: Slash) {
        match command {
            Slash::Help => self.chat.cells.push(Entry::Agent(slash::help())),
            Slash::Agents => {
                let text = self.agents();
                self.chat.cells.push(Entry::Agent(text));
            }
            Slash::Agent(name) => match self.session.agent(&name) {
                Ok(found) => {
                    self.chat.about.agent.clone_from(&found.definition.name);
                    self.show_model();
                    self.chat.note(format!("{} continues the conversation", self.chat.about.agent));
                }
                Err(trouble) => self.chat.problem(trouble.message),
            },
            Slash::Model(None) => self.chat.note(format!("the model is {}", self.chat.about.model)),
            Slash::Model(Some(name)) => self.choose(&name),
            Slash::Attach(path) => self.attach(&path),
            Slash::Cost => {
                let text = self.cost();
                self.chat.cells.push(Entry::Agent(text));
            }
            Slash::Diff => self.diff(),
            Slash::Tell(place, message) => match &self.active {
                None => self.chat.note("nothing is running"),
                Some(active) => match run_at(&active.run, &place) {
                    None => self.chat.problem(unknown_place(&place)),
                    Some(run) if run.tell_if_open(&message) => {
                        self.chat.note(format!("message delivered to run {place}"))
                    }
                    Some(_) => self.chat.problem(format!("run {place} has ended")),
                },
            },
            Slash::Cancel(place) => self.stop(place.as_ref()),
            Slash::Runs => self.chat.hides_runs = !self.chat.hides_runs,
            Slash::New if self.active.is_some() => self.chat.problem("stop the current turn first, with Ctrl-C"),
            Slash::New => {
                self.previous = None;
                self.chat.cells.clear();
                self.chat.spent = Default::default();
                self.chat.welcome();
            }
            // The loop leaves before it comes here.
            Slash::Quit => (),
        }
    }

    fn agents(&self) -> String {
        let mut text = String::from("| agent | |\n|---|---|\n");
        for definition in self.session.homing.registry().definitions() {
            let about = first_line(&definition.description).replace('|', "/");
            text.push_str(&format!("| {} | {about} |\n", sanitize::inert_line(&definition.name)));
        }
        text
    }

    fn choose(&mut self, name: &str) {
        match self.session.named_model(&self.with, name) {
            Ok(model) => {
                self.model = Some(model.clone());
                self.show_model();
                self.chat.note(format!("the model is {model} from the next message on"));
            }
            Err(trouble) => {
                self.chat.problem(trouble.message);
                self.chat.note(trouble.hint.map(|hint| format!("hint: {hint}")).unwrap_or_default());
            }
        }
    }

    fn attach(&mut self, path: &str) {
        let path = self.folder().join(dropped_path(path));
        if path.is_file() {
            self.chat.note(format!("{} goes with the next message", path.display()));
            self.chat.attached.push(path);
        } else {
            self.chat.problem(format!("there is no file {}", path.display()));
        }
    }

    /// Returns what the conversation has cost, and what the turn that is under way holds.
    fn cost(&self) -> String {
        let spent = &self.chat.spent;
        let mut text = format!(
            "{} · {} in, {} out ({} cached) · {}",
            figures::cost(spent),
            figures::tokens(spent.input),
            figures::tokens(spent.output),
            figures::tokens(spent.cached),
            figures::count(spent.turns, "reply"),
        )
        .replace("replys", "replies");
        if let Some(active) = &self.active {
            let tree = active.run.tree();
            if let Some(root) = tree.root() {
                let limit = root.limits.cost_micros.value().map_or_else(|| "none".to_owned(), usd);
                text.push_str(&format!(
                    "\n\nthis turn: spent {}, held {}, limit {limit}",
                    usd(root.subtree.usage.cost_micros),
                    usd(root.held.cost_micros)
                ));
            }
        }
        let mut models: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for run in self.results.iter().flat_map(homing::Envelope::all) {
            let sum = models.entry(&run.model).or_default();
            sum.0 += run.usage.input + run.usage.output;
            sum.1 += run.usage.cost_micros;
        }
        if !models.is_empty() {
            text.push_str("\n\n| model | tokens | cost |\n|---|---|---|\n");
        }
        for (model, (tokens, cost)) in models {
            text.push_str(&format!("| {model} | {} | {} |\n", figures::tokens(tokens), usd(cost)));
        }
        text
    }

    /// Shows what the turns of this session, or the last turn before it, have changed in files.
    fn diff(&mut self) {
        let mut trees: Vec<Uuid> = self.results.iter().map(|envelope| envelope.run).collect();
        trees.extend(self.active.iter().map(|active| active.run.tree_id()));
        if trees.is_empty() {
            trees.extend(self.previous.iter().map(|run| run.tree_id()));
        }
        let Some(journal) = self.session.homing.journal() else { return };
        let changes: Result<Vec<Vec<String>>, Trouble> = trees.iter().map(|tree| tree_diffs(journal, *tree)).collect();
        match changes.map(|turns| turns.concat()) {
            Ok(files) if files.is_empty() => self.chat.note("the file tools have changed no file in this session"),
            Ok(files) => files.into_iter().for_each(|file| self.chat.cells.push(Entry::Plain(file))),
            Err(trouble) => self.chat.problem(trouble.message),
        }
    }
}
