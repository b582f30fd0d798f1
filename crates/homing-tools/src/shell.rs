//! Splits a shell line into its simple commands, for permission rules. Nothing is executed here, and a line that is not
//! understood with certainty is reported as unclear.

pub mod bash;
pub mod command_changes;
pub mod commands;
mod git_rules;
mod indirect_exec;
mod indirect_exec_tables;
mod program_launchers;
pub mod sandboxed_git;
mod syntax;

use homing_core::rule::{Subject, Subjects};

pub(crate) use git_rules::changing_git_config;
pub use git_rules::{GIT_ONLY, git_only_env, git_only_env_for};

/// Maximum length of a line that is analysed.
const MAX_BYTES: usize = 64 * 1024;
/// Maximum number of commands in a line.
const MAX_COMMANDS: usize = 50;

/// A word of a command, without quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// The argument as the command receives it, unless it is a pattern.
    pub(crate) text: String,
    /// True if it has `*`, `?` or `[` outside quotes: the shell replaces it by file names.
    pub(crate) is_pattern: bool,
    /// True if a part of it was quoted.
    pub(crate) is_quoted: bool,
}

/// The reason why a line is unclear.
pub(crate) type Unclear = String;

/// Returns the parts of a shell line that permission rules on `bash` apply to.
///
/// Every simple command of a compound line is a part, and each must be allowed. A line is unclear if it uses anything
/// beyond plain words, pipes and sequences, or if one of its commands can run another through its arguments (`find -exec`,
/// `xargs`, `sed e`): then no pattern allows it.
pub fn subjects(command: &str) -> Subjects {
    match parts(command) {
        Ok(parts) => Subjects::Parts(parts),
        Err(why) => Subjects::Unclear(why),
    }
}

/// The git commands in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GitCommands {
    /// None, or the line is unclear.
    None,
    /// Some are read-only and none changes anything. Other programs may change the folder.
    ReadOnlyAmongOthers,
    /// All commands of the line are read-only ones of git.
    OnlyReadOnly,
    /// All are git's, and some may change something.
    Changing,
    /// Some are git's and may change something. Other programs may change the folder.
    ChangingAmongOthers,
}

/// Finds git commands in a line.
pub(crate) fn git_commands(command: &str) -> GitCommands {
    let is_read_only = |part: &Subject| match part {
        Subject::Command { classes, .. } => classes.iter().any(|class| class == GIT_ONLY),
        Subject::Path(_) | Subject::Host(_) | Subject::Name(_) | Subject::Names(_) => false,
    };
    let is_git = |part: &Subject| match part {
        Subject::Command { text, .. } => text.split(' ').next() == Some("git"),
        Subject::Path(_) | Subject::Host(_) | Subject::Name(_) | Subject::Names(_) => false,
    };
    match parts(command) {
        Ok(parts) if parts.iter().any(|part| is_git(part) && !is_read_only(part)) => {
            if parts.iter().all(is_git) {
                GitCommands::Changing
            } else {
                GitCommands::ChangingAmongOthers
            }
        }
        Ok(parts) if parts.iter().all(is_read_only) => GitCommands::OnlyReadOnly,
        Ok(parts) if parts.iter().any(is_read_only) => GitCommands::ReadOnlyAmongOthers,
        Ok(_) | Err(_) => GitCommands::None,
    }
}

fn parts(command: &str) -> Result<Vec<Subject>, Unclear> {
    if command.len() > MAX_BYTES {
        return Err(format!("the command is longer than {MAX_BYTES} bytes"));
    }
    if let Some(character) = command.chars().find(|&it| is_ambiguous(it)) {
        return Err(format!("the command contains the character U+{:04X}", character as u32));
    }
    let commands = syntax::commands(command)?;
    let mut parts = Vec::new();
    for words in &commands {
        add(&mut parts, words)?;
    }
    match parts.len() {
        0 => Err("the command is empty".to_owned()),
        1..=MAX_COMMANDS => Ok(parts),
        _ => Err(format!("the line has more than {MAX_COMMANDS} commands")),
    }
}

/// Returns true for characters that parsers may treat differently as separators, or that a human reader cannot see.
fn is_ambiguous(character: char) -> bool {
    match character {
        '\n' | '\t' | ' ' => false,
        other => other.is_control() || other.is_whitespace() || homing_core::sanitize::is_invisible(other),
    }
}

/// Adds a command and, if it is a simple wrapper such as `timeout 5`, the wrapped command.
fn add(parts: &mut Vec<Subject>, words: &[Word]) -> Result<(), Unclear> {
    let Some(program) = words.first() else { return Err("the command is empty".to_owned()) };
    if program.is_pattern || program.text.is_empty() {
        return Err("the program's name is a pattern".to_owned());
    }
    // Bash and the grammar disagree on which words before a command are assignments (`0+=x`, `a[0]=1`).
    if program.text.contains('=') {
        return Err("it may set a variable".to_owned());
    }
    // A file may be named `--output=x`, so a word that starts with a pattern may expand to an option.
    let starts_with_pattern = |word: &&Word| word.is_pattern && word.text.starts_with(['*', '?', '[']);
    if let Some(word) = words.iter().find(starts_with_pattern) {
        return Err(format!("`{}` may expand to options; write `./{0}`", word.text));
    }
    let inner = indirect_exec::wrapped(words)?;
    if inner.is_none() {
        indirect_exec::check(words)?;
    }
    let classes = if git_rules::is_read_only(words) { vec![GIT_ONLY.to_owned()] } else { Vec::new() };
    parts.push(Subject::Command { text: canonical(words), classes });
    match inner {
        Some(inner) if parts.len() < MAX_COMMANDS => add(parts, inner),
        Some(_) => Err(format!("the line has more than {MAX_COMMANDS} commands")),
        None => Ok(()),
    }
}

/// Joins the words with one space, each quoted if it has special characters.
fn canonical(words: &[Word]) -> String {
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &Word) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "_-./:=,+%@^~#".contains(character);
    let is_bare = |character: char| is_plain(character) || (!word.is_quoted && "*?[]{}".contains(character));
    let is_comment = word.text.starts_with('#');
    if !word.text.is_empty() && !is_comment && word.text.chars().all(is_bare) {
        return word.text.clone();
    }
    format!("'{}'", word.text.replace('\'', r"'\''"))
}
