//! Asks the user at the terminal. Without a terminal there is no answer, and the runtime denies the call.

use std::{
    collections::HashSet,
    io::{BufRead, BufReader, IsTerminal, stdin},
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use homing_core::{
    BoxFuture,
    rule::Rule,
    sanitize,
    tool::{Answer, Question},
};
use homing_runtime::PermissionHandler;

use crate::{config, terminal};

/// Asks the user at the terminal, one question at a time.
pub(crate) struct TerminalPrompt {
    yes: bool,
    user_config: Option<PathBuf>,
    one_at_a_time: tokio::sync::Mutex<()>,
    always: Mutex<HashSet<String>>,
    open: AtomicUsize,
}

impl TerminalPrompt {
    pub(crate) fn new(yes: bool, user_config: Option<PathBuf>) -> Self {
        Self {
            yes,
            user_config,
            one_at_a_time: tokio::sync::Mutex::default(),
            always: Mutex::default(),
            open: AtomicUsize::new(0),
        }
    }

    /// Returns whether a question is on the screen, which must not be drawn over.
    pub(crate) fn is_asking(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    fn is_always_allowed(&self, rule: Option<&String>) -> bool {
        let always = self.always.lock().unwrap_or_else(PoisonError::into_inner);
        rule.is_some_and(|rule| always.contains(rule))
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
        if self.is_always_allowed(question.rule.as_ref()) {
            return Answer::Yes;
        }
        let open = OpenPrompt::new(&self.open);
        terminal::clear_live();
        terminal::say(&format!("\n? {}", sanitize::inert(&question.text)));
        for (at, option) in question.options.iter().enumerate() {
            terminal::say(&format!("  {}. {option}", at + 1));
        }
        terminal::prompt(if is_permission { "  [y]es, [n]o, [a]lways: " } else { "  > " });
        let line = tokio::task::spawn_blocking(read_line).await.ok().flatten();
        drop(open);
        match line {
            None => Answer::Unavailable,
            Some(line) => self.parse_answer(line.trim(), &question, is_permission),
        }
    }

    fn parse_answer(&self, line: &str, question: &Question, is_permission: bool) -> Answer {
        if !is_permission {
            let chosen = line.parse::<usize>().ok().and_then(|number| question.options.get(number.checked_sub(1)?));
            return match (line, chosen) {
                ("", _) => Answer::Unavailable,
                (_, Some(option)) => Answer::Text(option.clone()),
                (line, None) => Answer::Text(line.to_owned()),
            };
        }
        match line.to_lowercase().as_str() {
            "y" | "yes" => Answer::Yes,
            "a" | "always" => {
                self.remember(question.rule.as_deref().unwrap_or_default());
                Answer::Yes
            }
            _ => Answer::No,
        }
    }

    /// Adds the rule to the user's configuration and allows its calls in this process from now on.
    fn remember(&self, asked_by: &str) {
        self.always.lock().unwrap_or_else(PoisonError::into_inner).insert(asked_by.to_owned());
        // The name of the layer that asks follows the rule, in parentheses.
        let rule = asked_by.rsplit_once(" (").map_or(asked_by, |(rule, _)| rule);
        let (Some(path), Ok(rule)) = (&self.user_config, rule.parse::<Rule>()) else { return };
        match config::add_allow_rule(path, &rule.to_string()) {
            Ok(()) => terminal::say(&format!("  `{rule}` is allowed from now on ({})", path.display())),
            Err(error) => {
                terminal::say(&format!("  allowed for this session; cannot write {}: {error}", path.display()))
            }
        }
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

fn read_line() -> Option<String> {
    let mut line = String::new();
    let read = BufReader::new(stdin().lock()).read_line(&mut line).ok()?;
    (read > 0).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(rule: Option<&str>, options: &[&str]) -> Question {
        let key = homing_core::tool::CallKey { run: uuid::Uuid::nil(), turn: 1, index: 0 };
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Question { text: "?".to_owned(), options, key, rule: rule.map(str::to_owned) }
    }

    #[test]
    fn always_adds_the_rule_to_the_users_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("homing/config.toml");
        let prompt = TerminalPrompt::new(false, Some(path.clone()));
        let asked = question(Some("bash(git push *) (permission mode of agent x)"), &[]);
        assert_eq!(prompt.parse_answer("A", &asked, true), Answer::Yes);
        assert!(prompt.is_always_allowed(asked.rule.as_ref()));
        let config = config::Config::read(&path).unwrap();
        assert_eq!(config.rules.allow[0].to_string(), "bash(git push *)");
        assert_eq!(prompt.parse_answer("", &asked, true), Answer::No);
    }

    #[test]
    fn option_is_chosen_by_number_or_text() {
        let prompt = TerminalPrompt::new(false, None);
        let asked = question(None, &["SQLite", "Postgres"]);
        assert_eq!(prompt.parse_answer("2", &asked, false), Answer::Text("Postgres".into()));
        assert_eq!(prompt.parse_answer("neither", &asked, false), Answer::Text("neither".into()));
    }

    #[tokio::test]
    async fn yes_flag_approves_and_no_terminal_means_no_answer() {
        assert_eq!(TerminalPrompt::new(true, None).ask(question(Some("write (x)"), &[])).await, Answer::Yes);
        if !stdin().is_terminal() {
            assert_eq!(
                TerminalPrompt::new(false, None).ask(question(Some("write (x)"), &[])).await,
                Answer::Unavailable
            );
        }
    }
}
