//! What a shell line would do, as far as rules need to know it: the simple commands it is made of, each with its words.
//! Nothing is run here, and whatever is not understood for certain is said to be unclear.

pub mod bash;
pub mod commands;
mod git_rules;
mod indirect_exec;
mod indirect_exec_tables;
mod lexer;
pub mod sandboxed_git;
mod syntax;

use homing_core::rule::{Subject, Subjects};

pub use git_rules::{GIT_ONLY, git_only_env, git_only_env_for};

/// Longer lines are not looked at.
const MOST_BYTES: usize = 64 * 1024;
/// Lines of more commands are not looked at.
const MOST_COMMANDS: usize = 50;

/// A word of a command, quotes taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// What the command will see, unless the shell finds files for it.
    pub(crate) text: String,
    /// It has `*`, `?` or `[` outside quotes: the shell puts file names in its place.
    pub(crate) is_pattern: bool,
    /// Some of it stood in quotes.
    pub(crate) is_quoted: bool,
}

/// Why a line is unclear.
pub(crate) type Unclear = String;

/// What rules on `bash` are held against.
///
/// Every simple command of a compound line is a part, so that each must be vouched for. A line is unclear when it uses
/// anything beyond plain words, pipes and sequences, when two independent readings of it differ, or when one of its
/// commands can be made to run another by its arguments (`find -exec`, `xargs`, `sed e`): then no pattern vouches for it.
pub fn subjects(command: &str) -> Subjects {
    match parts(command) {
        Ok(parts) => Subjects::Parts(parts),
        Err(why) => Subjects::Unclear(why),
    }
}

/// Whether a line is git, looking, and nothing else.
pub(crate) fn only_looks_with_git(command: &str) -> bool {
    let looks =
        |part: &Subject| matches!(part, Subject::Command { classes, .. } if classes.iter().any(|it| it == GIT_ONLY));
    parts(command).is_ok_and(|parts| parts.iter().all(looks))
}

fn parts(command: &str) -> Result<Vec<Subject>, Unclear> {
    if command.len() > MOST_BYTES {
        return Err(format!("the command is longer than {MOST_BYTES} bytes"));
    }
    if let Some(odd) = command.chars().find(|&it| is_odd(it)) {
        return Err(format!("the command contains the character U+{:04X}", odd as u32));
    }
    let commands = syntax::commands(command)?;
    if lexer::commands(command)? != commands {
        return Err("the command can be read in two ways".to_owned());
    }
    let mut parts = Vec::new();
    for words in &commands {
        add(&mut parts, words)?;
    }
    match parts.len() {
        0 => Err("there is no command".to_owned()),
        1..=MOST_COMMANDS => Ok(parts),
        _ => Err(format!("the line has more than {MOST_COMMANDS} commands")),
    }
}

/// Characters that one parser may take for a separator and another not, or that a person would not see.
fn is_odd(character: char) -> bool {
    match character {
        '\n' | '\t' | ' ' => false,
        it => it.is_control() || it.is_whitespace() || homing_core::sanitize::is_invisible(it),
    }
}

/// Adds a command, and the command within it where it is a plain wrapper.
fn add(parts: &mut Vec<Subject>, words: &[Word]) -> Result<(), Unclear> {
    let Some(program) = words.first() else { return Err("there is no command".to_owned()) };
    if program.is_pattern || program.text.is_empty() {
        return Err("the program's name is a pattern".to_owned());
    }
    // A file may be named `--output=x`: what a pattern at the start of a word brings may be an option.
    if let Some(word) = words.iter().find(|it| it.is_pattern && it.text.starts_with(['*', '?', '['])) {
        return Err(format!("`{}` may stand for options; write `./{0}`", word.text));
    }
    let inner = indirect_exec::unwrap(words)?;
    if inner.is_none() {
        indirect_exec::check(words)?;
    }
    let classes = if git_rules::is_read_only(words) { vec![GIT_ONLY.to_owned()] } else { Vec::new() };
    parts.push(Subject::Command { text: canonical(words), classes });
    match inner {
        Some(inner) if parts.len() < MOST_COMMANDS => add(parts, inner),
        Some(_) => Err(format!("the line has more than {MOST_COMMANDS} commands")),
        None => Ok(()),
    }
}

/// The words joined by one space, each quoted where it has anything but plain characters.
fn canonical(words: &[Word]) -> String {
    words.iter().map(shown).collect::<Vec<_>>().join(" ")
}

fn shown(word: &Word) -> String {
    let plain = |it: char| it.is_alphanumeric() || "_-./:=,+%@^~#".contains(it);
    let bare = |it: char| plain(it) || (!word.is_quoted && "*?[]{}".contains(it));
    let is_comment = word.text.starts_with('#');
    if !word.text.is_empty() && !is_comment && word.text.chars().all(bare) {
        return word.text.clone();
    }
    format!("'{}'", word.text.replace('\'', r"'\''"))
}
