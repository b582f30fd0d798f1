//! Asks the user at the terminal. Without a terminal there is no answer, and the runtime denies the call.

use std::{
    io::{BufRead, BufReader, IsTerminal, stdin},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use homing_core::{
    BoxFuture,
    rule::Rule,
    sanitize,
    tool::{Answer, Question},
};
use homing_runtime::PermissionHandler;

use crate::{
    config::{self, RuleTable},
    notify::Notifier,
    terminal,
};

/// Time between two looks at the terminal while a question is open.
const POLL: Duration = Duration::from_millis(200);

/// Asks the user at the terminal, one question at a time.
pub(crate) struct TerminalPrompt {
    yes: bool,
    /// The user's configuration, and the project whose rules it may contain.
    store: Option<RuleStore>,
    one_at_a_time: tokio::sync::Mutex<()>,
    always: Mutex<Vec<Remembered>>,
    open: AtomicUsize,
    notifier: Notifier,
}

/// The file to which rules are added, and the folder of the project.
pub(crate) struct RuleStore {
    pub(crate) config: PathBuf,
    pub(crate) project: PathBuf,
}

/// Calls that need no further approval in this process.
#[derive(Debug, PartialEq, Eq)]
enum Remembered {
    /// Calls that these rules allow.
    Exact(Vec<Rule>),
    /// All calls for which this rule asks.
    AskedBy(String),
}

/// The next step of a question about a permission.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Answer(Answer),
    /// Shows what would be written, and asks whether to write it.
    Confirm(NewRules),
    /// Asks again: the answer was not understood.
    Repeat,
}

/// Rules that the user may add to the configuration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewRules {
    table: RuleTable,
    rules: Vec<Rule>,
}

impl TerminalPrompt {
    pub(crate) fn new(yes: bool, store: Option<RuleStore>) -> Self {
        Self {
            yes,
            store,
            one_at_a_time: tokio::sync::Mutex::default(),
            always: Mutex::default(),
            open: AtomicUsize::new(0),
            notifier: Notifier::default(),
        }
    }

    /// Sets who tells the user of a question.
    pub(crate) fn notified_by(self, notifier: Notifier) -> Self {
        Self { notifier, ..self }
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Returns whether there is a terminal to ask at. A process in the background has one, too: its questions wait.
    pub(crate) fn is_possible() -> bool {
        stdin().is_terminal() && terminal::is_watched()
    }

    /// Returns whether a question is on the screen, which must not be drawn over.
    pub(crate) fn is_asking(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_always_allowed(&self, question: &Question) -> bool {
        let always = self.always.lock().unwrap_or_else(PoisonError::into_inner);
        always.iter().any(|remembered| match remembered {
            Remembered::Exact(rules) => !question.exact.is_empty() && *rules == question.exact,
            Remembered::AskedBy(rule) => question.rule.as_ref() == Some(rule),
        })
    }

    async fn ask_user(&self, question: Question) -> Answer {
        let is_permission = question.options.is_empty() && question.rule.is_some();
        if self.yes && (is_permission || question.options.is_empty()) {
            return Answer::Yes;
        }
        if !stdin().is_terminal() || !terminal::is_watched() {
            return Answer::Unavailable;
        }
        let _turn = self.one_at_a_time.lock().await;
        if self.is_always_allowed(&question) {
            return Answer::Yes;
        }
        let _open = OpenPrompt::new(&self.open);
        terminal::clear_live();
        terminal::say(&format!("\n? {}", sanitize::inert(&question.text)));
        self.notifier.question(&question.text);
        if is_permission { self.ask_permission(&question).await } else { ask_text(&question).await }
    }

    async fn ask_permission(&self, question: &Question) -> Answer {
        terminal::say(&format!("  asked by: {}", sanitize::inert_line(question.rule.as_deref().unwrap_or_default())));
        loop {
            let Some(line) = answer_to("  [y]es, [n]o, [a]lways this call in this project, [w]ider: ").await else {
                return Answer::Unavailable;
            };
            match self.first_step(&line, question) {
                Step::Answer(answer) => return answer,
                Step::Repeat => terminal::say(HELP),
                Step::Confirm(new) => {
                    terminal::say(&self.preview(&new));
                    let line = answer_to("  write it? [y]es, [n]o (allow only this call): ").await;
                    if line.is_some_and(|line| is_yes(&line)) {
                        self.remember(question, &new);
                    }
                    return Answer::Yes;
                }
            }
        }
    }

    /// Interprets the first answer. A lasting approval is shown before it is given.
    pub(crate) fn first_step(&self, line: &str, question: &Question) -> Step {
        let line = line.trim();
        match line.to_lowercase().as_str() {
            yes if is_yes(yes) => Step::Answer(Answer::Yes),
            "a" | "always" => match &self.store {
                Some(store) if !question.exact.is_empty() => {
                    let table = RuleTable::Project(store.project.clone());
                    Step::Confirm(NewRules { table, rules: question.exact.clone() })
                }
                Some(_) | None => {
                    terminal::say("  this call cannot be remembered, because no rule describes it; it is allowed once");
                    Step::Answer(Answer::Yes)
                }
            },
            "w" | "wider" => match asking_rule(question) {
                Some(rule) => Step::Confirm(NewRules { table: RuleTable::Everywhere, rules: vec![rule] }),
                None => {
                    terminal::say("  the question comes from no rule; the call is allowed once");
                    Step::Answer(Answer::Yes)
                }
            },
            _ => question.read_answer(line).map_or(Step::Repeat, Step::Answer),
        }
    }

    /// Describes what would be added to the configuration, and for which calls it holds.
    pub(crate) fn preview(&self, new: &NewRules) -> String {
        let list: Vec<String> = new.rules.iter().map(|rule| format!("\"{rule}\"")).collect();
        let scope = match &new.table {
            RuleTable::Everywhere => "all calls that match, in all projects, from now on",
            RuleTable::Project(_) => "only this call, only in this project",
        };
        let file = self.store.as_ref().map(|store| store.config.display().to_string()).unwrap_or_default();
        format!("  {scope}; added to {file}:\n    {}\n    allow = [{}]", new.table, list.join(", "))
    }

    /// Adds the rules to the user's configuration, and allows their calls in this process from now on.
    pub(crate) fn remember(&self, question: &Question, new: &NewRules) {
        let remembered = match &new.table {
            RuleTable::Everywhere => Remembered::AskedBy(question.rule.clone().unwrap_or_default()),
            RuleTable::Project(_) => Remembered::Exact(new.rules.clone()),
        };
        self.always.lock().unwrap_or_else(PoisonError::into_inner).push(remembered);
        let Some(store) = &self.store else { return };
        let path = store.config.display();
        match config::add_allow_rules(&store.config, &new.table, &new.rules) {
            Ok(()) => terminal::say(&format!("  allowed from now on; remove it from {path} to be asked again")),
            Err(error) => terminal::say(&format!("  allowed for this session; cannot write {path}: {error}")),
        }
    }
}

/// Explains the answers to a question about a permission.
pub(crate) const HELP: &str = "  answer y, n, a or w; to tell the agent why not, write: no, because …";

/// Returns the rule that asks, without the name of its layer, which follows in parentheses.
fn asking_rule(question: &Question) -> Option<Rule> {
    let asked_by = question.rule.as_deref()?;
    asked_by.rsplit_once(" (").map_or(asked_by, |(rule, _)| rule).parse().ok()
}

async fn ask_text(question: &Question) -> Answer {
    for (at, option) in question.options.iter().enumerate() {
        terminal::say(&format!("  {}. {option}", at + 1));
    }
    match answer_to("  > ").await {
        None => Answer::Unavailable,
        Some(line) => text_answer(line.trim(), question),
    }
}

fn text_answer(line: &str, question: &Question) -> Answer {
    let chosen = line.parse::<usize>().ok().and_then(|number| question.options.get(number.checked_sub(1)?));
    match (line, chosen) {
        ("", _) => Answer::Unavailable,
        (_, Some(option)) => Answer::Text(option.clone()),
        (line, None) => Answer::Text(line.to_owned()),
    }
}

pub(crate) fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}

async fn answer_to(prompt: &str) -> Option<String> {
    let _reading = Reading::new();
    let flag = _reading.0.clone();
    let prompt = prompt.to_owned();
    tokio::task::spawn_blocking(move || read_line(&prompt, &flag)).await.ok().flatten()
}

/// Ends the reading of an answer when it is dropped, because the question was given up: the next line belongs to another one.
struct Reading(Arc<AtomicBool>);

impl Reading {
    fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl PermissionHandler for TerminalPrompt {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(self.ask_user(question))
    }
}

/// Counts a question as open until it is dropped.
struct OpenPrompt<'a>(&'a AtomicUsize);

impl<'a> OpenPrompt<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for OpenPrompt<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads a line while `wanted`. A process in the background does not read, because that would stop it: it waits until the user
/// brings it to the foreground.
fn read_line(prompt: &str, wanted: &AtomicBool) -> Option<String> {
    let mut was_in_foreground = None;
    while wanted.load(Ordering::Relaxed) {
        let is_in_foreground = terminal::is_in_foreground();
        if was_in_foreground.replace(is_in_foreground) != Some(is_in_foreground) {
            if is_in_foreground {
                terminal::prompt(prompt);
            } else {
                terminal::say("\n  the question waits: bring this process to the foreground with `fg`");
            }
        }
        if !is_in_foreground {
            std::thread::sleep(POLL);
        } else if terminal::has_input(POLL) {
            let mut line = String::new();
            let read = BufReader::new(stdin().lock()).read_line(&mut line).ok()?;
            return (read > 0).then_some(line);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(rule: Option<&str>, exact: &[&str], options: &[&str]) -> Question {
        let key = homing_core::tool::CallKey { run: uuid::Uuid::nil(), turn: 1, index: 0 };
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let exact = exact.iter().map(|rule| rule.parse().unwrap()).collect();
        Question::new("?", key).options(options).rule(rule.map(str::to_owned)).exact(exact)
    }

    fn confirm(prompt: &TerminalPrompt, line: &str, question: &Question) -> NewRules {
        match prompt.first_step(line, question) {
            Step::Confirm(new) => new,
            other @ (Step::Answer(_) | Step::Repeat) => panic!("nothing to confirm: {other:?}"),
        }
    }

    #[test]
    fn always_is_for_this_call_in_this_project_and_shown_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("homing/config.toml");
        let prompt = TerminalPrompt::new(false, Some(RuleStore { config: path.clone(), project: "/home/u/p".into() }));
        let asked =
            question(Some("bash(git push *) (permission mode of agent x)"), &["bash(git push origin main)"], &[]);
        let other = question(asked.rule.as_deref(), &["bash(git push --force)"], &[]);
        let new = confirm(&prompt, "A", &asked);
        let shown = prompt.preview(&new);
        let entry = "[projects.\"/home/u/p\"]\n    allow = [\"bash(git push origin main)\"]";
        assert!(shown.contains("only this call, only in this project") && shown.contains(entry), "{shown}");
        assert!(!path.exists() && !prompt.is_always_allowed(&asked), "nothing is written before it is confirmed");
        prompt.remember(&asked, &new);
        assert!(prompt.is_always_allowed(&asked) && !prompt.is_always_allowed(&other));
        let config = config::Config::read(&path).unwrap();
        assert!(config.rules.allow.is_empty());
        assert_eq!(
            config.projects[std::path::Path::new("/home/u/p")].allow[0].to_string(),
            "bash(git push origin main)"
        );
    }

    #[test]
    fn refusal_may_give_a_reason_and_other_answers_are_asked_again() {
        let prompt = TerminalPrompt::new(false, None);
        let asked = question(Some("write (x)"), &[], &[]);
        let step = |line| prompt.first_step(line, &asked);
        assert_eq!((step("y"), step("YES\n")), (Step::Answer(Answer::Yes), Step::Answer(Answer::Yes)));
        assert_eq!((step("n"), step("No.")), (Step::Answer(Answer::No), Step::Answer(Answer::No)));
        for line in ["no, because it is Friday", "n because it is Friday", "No: because it is Friday\n"] {
            assert_eq!(step(line), Step::Answer(Answer::Text("because it is Friday".into())), "{line}");
        }
        for unclear in ["", "maybe", "yess", "not now", "nope", "ja"] {
            assert_eq!(step(unclear), Step::Repeat, "{unclear}");
        }
    }

    #[test]
    fn wider_approval_is_given_on_request_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("homing/config.toml");
        let prompt = TerminalPrompt::new(false, Some(RuleStore { config: path.clone(), project: "/p".into() }));
        let asked = question(Some("bash(git push *) (your configuration)"), &[], &[]);
        assert_eq!(prompt.first_step("a", &asked), Step::Answer(Answer::Yes), "no rule describes this call");
        let new = confirm(&prompt, "w", &asked);
        assert!(prompt.preview(&new).contains("in all projects"), "{}", prompt.preview(&new));
        prompt.remember(&asked, &new);
        assert!(prompt.is_always_allowed(&question(asked.rule.as_deref(), &["bash(git push x)"], &[])));
        assert_eq!(config::Config::read(&path).unwrap().rules.allow[0].to_string(), "bash(git push *)");
    }

    #[test]
    fn option_is_chosen_by_number_or_text() {
        let asked = question(None, &[], &["SQLite", "Postgres"]);
        assert_eq!(text_answer("2", &asked), Answer::Text("Postgres".into()));
        assert_eq!(text_answer("neither", &asked), Answer::Text("neither".into()));
    }

    #[tokio::test]
    async fn yes_flag_approves_and_no_terminal_means_no_answer() {
        assert_eq!(TerminalPrompt::new(true, None).ask(question(Some("write (x)"), &[], &[])).await, Answer::Yes);
        if !stdin().is_terminal() {
            assert_eq!(
                TerminalPrompt::new(false, None).ask(question(Some("write (x)"), &[], &[])).await,
                Answer::Unavailable
            );
        }
    }
}
