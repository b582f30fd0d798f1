//! Rules for git commands: the read-only ones, the options that can run programs, and the environment that keeps a
//! repository's configuration from doing so. A repository is untrusted data; its configuration and attributes can name
//! programs.

use crate::shell::{Unclear, Word};

/// The class of commands that rules call `git only`: read-only git commands.
pub const GIT_ONLY: &str = "git only";

/// Read-only commands, with any arguments that are not refused below.
const READ_ONLY: &[&str] = &[
    "blame",
    "cat-file",
    "check-attr",
    "check-ignore",
    "check-mailmap",
    "cherry",
    "count-objects",
    "describe",
    "diff",
    "diff-files",
    "diff-index",
    "diff-tree",
    "for-each-ref",
    "grep",
    "log",
    "ls-files",
    "ls-tree",
    "merge-base",
    "name-rev",
    "range-diff",
    "rev-list",
    "rev-parse",
    "shortlog",
    "show",
    "show-branch",
    "show-ref",
    "status",
    "version",
];

/// Commands that change only what their names say. A command on neither list may be an alias or may run programs.
const CHANGING: &[&str] = &[
    "add",
    "am",
    "apply",
    "archive",
    "branch",
    "bundle",
    "checkout",
    "cherry-pick",
    "clean",
    "clone",
    "commit",
    "fetch",
    "format-patch",
    "gc",
    "init",
    "ls-remote",
    "merge",
    "mv",
    "notes",
    "pull",
    "push",
    "rebase",
    "reflog",
    "remote",
    "reset",
    "restore",
    "revert",
    "rm",
    "sparse-checkout",
    "stash",
    "switch",
    "tag",
    "worktree",
];

/// Options before the command that do not influence which programs run.
const HARMLESS_GLOBALS: &[&str] = &[
    "--no-pager",
    "-P",
    "--no-optional-locks",
    "--literal-pathspecs",
    "--no-replace-objects",
    "--icase-pathspecs",
    "--glob-pathspecs",
    "--noglob-pathspecs",
];

/// Options (and their abbreviations) that run programs, write files, or read outside the repository.
const REFUSED: &[&str] = &[
    "--config",
    "--config-env",
    "--contents",
    "--exec",
    "--exclude-from",
    "--exec-path",
    "--ext-diff",
    "--extcmd",
    "--file",
    "--filters",
    "--git-dir",
    "--ignore-revs-file",
    "--ignore-submodules",
    "--gpg-sign",
    "--help",
    "--mailmap-file",
    "--no-index",
    "--open-files-in-pager",
    "--output",
    "--output-directory",
    "--pathspec-from-file",
    "--separate-git-dir",
    "--signature-file",
    "--receive-pack",
    "--recurse-submodules",
    "--submodule",
    "--remerge-diff",
    "--show-signature",
    "--template",
    "--textconv",
    "--to-cmd",
    "--unsafe-paths",
    "--upload-pack",
    "--work-tree",
];

/// Harmless options that are a prefix of a refused one.
const HARMLESS: &[&str] = &["--text", "--filter", "--exclude", "--ignore-rev", "--signature"];

/// Interactive options, which run a filter or an editor from the repository's configuration.
const INTERACTIVE: &[&str] = &["--patch", "--interactive", "--edit", "--edit-todo"];

/// Returns an error if git could run another program.
pub(super) fn check(args: &[&str]) -> Result<(), Unclear> {
    let Some((command, rest)) = command(args) else {
        return match args {
            ["--version" | "-v"] => Ok(()),
            _ => Err("git's options before its command can change what it runs".to_owned()),
        };
    };
    if !READ_ONLY.contains(&command) && !CHANGING.contains(&command) {
        return Err(format!("`git {command}` may be an alias, or runs other programs"));
    }
    match rest.iter().find(|arg| is_refused(command, arg)) {
        Some(arg) => Err(format!("`git {command}` can run, write or read anything through `{arg}`")),
        None => Ok(()),
    }
}

/// Returns the command and its arguments, after harmless global options.
fn command<'a>(args: &'a [&'a str]) -> Option<(&'a str, &'a [&'a str])> {
    let at = args.iter().position(|arg| !HARMLESS_GLOBALS.contains(arg))?;
    let (command, rest) = args[at..].split_first()?;
    (!command.starts_with('-')).then_some((*command, rest))
}

fn is_refused(command: &str, arg: &str) -> bool {
    let option = arg.split_once('=').map_or(arg, |(option, _)| option);
    if option.starts_with("--") && option.len() > 2 {
        let remerges = option.starts_with("--diff-m") && arg.contains("=r");
        let is_abbreviated = |full: &&str| full.starts_with(option);
        let is_interactive = CHANGING.contains(&command) && INTERACTIVE.iter().any(is_abbreviated);
        return remerges || is_interactive || (!HARMLESS.contains(&option) && REFUSED.iter().any(is_abbreviated));
    }
    if arg.contains("ext::") || arg.contains("fd::") {
        return true;
    }
    if let Some(letters) = arg.strip_prefix('-') {
        return short_is_refused(command, letters);
    }
    // With two paths outside the repository, `git diff` compares any two files; the other commands write to any path.
    matches!(command, "diff" | "range-diff" | "clone" | "init" | "worktree" | "bundle") && leads_out(arg)
}

/// Checks short options, which may be combined: for example, `-O` opens a pager or reads an order file. The value of an
/// option may follow its letter directly.
fn short_is_refused(command: &str, letters: &str) -> bool {
    // Whether a letter takes a value depends on the command: `git grep -LOsh` is `-L` and `-O sh`.
    let takes_text = match command {
        "blame" => "L",
        "grep" => "eABCm",
        "commit" | "tag" | "merge" | "notes" | "revert" | "cherry-pick" | "stash" => "m",
        other if CHANGING.contains(&other) => "",
        _ => "SGL",
    };
    let takes_text = letters.starts_with(|letter| takes_text.contains(letter));
    let refused = match command {
        "grep" => "Of",
        "blame" => "OS",
        "ls-files" => "X",
        "clone" | "init" => "cu",
        "rebase" => "xiS",
        "commit" | "merge" | "am" | "cherry-pick" | "revert" | "notes" => "SFtTup",
        "tag" => "SFtTus",
        "archive" | "format-patch" => "o",
        "fetch" | "pull" | "push" | "ls-remote" => "",
        "clean" | "checkout" | "add" | "reset" | "restore" | "stash" => "ip",
        _ => "O",
    };
    !takes_text && letters.contains(|letter| refused.contains(letter))
}

fn leads_out(arg: &str) -> bool {
    arg.starts_with(['/', '~']) || arg == ".." || arg.starts_with("../") || arg.contains("/../") || arg.ends_with("/..")
}

/// Returns true if the command is a read-only git command.
pub(super) fn is_read_only(words: &[Word]) -> bool {
    let [program, rest @ ..] = words else { return false };
    let args: Vec<&str> = rest.iter().map(|word| word.text.as_str()).collect();
    if program.text != "git" || check(&args).is_err() {
        return false;
    }
    let Some((command, args)) = command(&args) else { return true };
    READ_ONLY.contains(&command) || only_lists(command, args)
}

/// Recognises the forms of changing commands that only list.
fn only_lists(command: &str, args: &[&str]) -> bool {
    let options = |listing: &[&str], plain: &[&str]| {
        let name = |arg: &&str| arg.split_once('=').map_or(*arg, |(name, _)| name).to_owned();
        let lists = args.iter().any(|arg| listing.contains(&name(arg).as_str()));
        args.iter().all(|arg| {
            let name = name(arg);
            listing.contains(&name.as_str()) || plain.contains(&name.as_str()) || (lists && !arg.starts_with('-'))
        })
    };
    let filters = ["--contains", "--no-contains", "--merged", "--no-merged", "--points-at", "--list", "-l"];
    match command {
        "branch" => options(
            &filters,
            &[
                "-a",
                "-r",
                "-v",
                "-vv",
                "--all",
                "--remotes",
                "--verbose",
                "--show-current",
                "--sort",
                "--format",
                "--no-color",
            ],
        ),
        "tag" => options(&filters, &["-n", "--sort", "--format", "--no-color"]),
        "remote" => matches!(args, [] | ["-v" | "--verbose"] | ["get-url", _]),
        "stash" => matches!(args, ["list", ..] | ["show", ..]),
        "reflog" => matches!(args, [] | ["show", ..]),
        "worktree" => matches!(args, ["list", ..]),
        _ => false,
    }
}

/// Settings that keep git from running programs of a repository: those whose names are known in advance and whose neutral
/// values do not disturb a benign repository.
const NEUTRAL: &[(&str, &str)] = &[
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("core.sshCommand", "false"),
    ("core.askPass", "false"),
    ("core.alternateRefsCommand", "false"),
    ("core.attributesFile", "/dev/null"),
    ("credential.helper", ""),
    ("diff.ignoreSubmodules", "all"),
    ("gpg.program", "false"),
    ("gpg.openpgp.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gpg.x509.program", "false"),
    ("log.showSignature", "false"),
    ("protocol.allow", "never"),
    ("sequence.editor", "false"),
    ("submodule.recurse", "false"),
];

/// Environment variables for read-only git commands.
const VARIABLES: &[(&str, &str)] = &[
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_PAGER", "cat"),
    ("PAGER", "cat"),
    ("GIT_EDITOR", "false"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_SSH_COMMAND", "false"),
    ("GIT_ASKPASS", "false"),
];

/// A plain diff command that replaces the repository's diff program; git has no setting for none.
const PLAIN_DIFF: &str = r#"sh -c 'diff -u -L "a/$0" -L "b/$0" "$1" "$4"; :'"#;

/// Returns the environment for listing a repository's settings: git starts no hook, file watcher, pager, editor, signature
/// check or transport that the repository configures.
///
/// Settings under names that the repository chose (`filter.x.clean`, `diff.x.textconv`) and `diff.external` are only
/// overridden by [`git_only_env_for`].
pub fn git_only_env() -> Vec<(String, String)> {
    git_only_env_for([])
}

/// Returns the environment for read-only git commands: as [`git_only_env`], and overrides every filter and diff program.
///
/// `settings` are the names of the settings of the repository and of its `.gitmodules`, as `git config --list --name-only`
/// prints them under [`git_only_env`]; that command runs nothing.
pub fn git_only_env_for<'a>(settings: impl IntoIterator<Item = &'a str>) -> Vec<(String, String)> {
    let known = NEUTRAL.iter().map(|(key, value)| ((*key).to_owned(), *value));
    let config: Vec<(String, &str)> = known.chain(settings.into_iter().filter_map(neutral)).collect();
    let mut env: Vec<(String, String)> =
        VARIABLES.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    env.push(("GIT_CONFIG_COUNT".to_owned(), config.len().to_string()));
    for (at, (key, value)) in config.into_iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{at}"), key));
        env.push((format!("GIT_CONFIG_VALUE_{at}"), value.to_owned()));
    }
    env
}

/// Settings for git commands that change something, beside those that every command gets. They keep git from starting an
/// editor or a submodule's configuration.
const CHANGING_NEUTRAL: &[(&str, &str)] = &[
    ("core.editor", "false"),
    ("sequence.editor", "false"),
    ("core.askPass", "false"),
    ("core.alternateRefsCommand", "false"),
    ("submodule.recurse", "false"),
];

/// Returns settings with which a git command that changes something starts no program that its repository configures.
///
/// `settings` are the names of the repository's own settings; the user's are trusted.
///
/// # Errors
/// Returns the setting if it names a program without which git would store, write or fetch something else: a filter that is
/// switched off could commit secrets that it encrypts.
pub(crate) fn changing_git_config<'a>(
    settings: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<(String, &'static str)>, String> {
    let mut config: Vec<(String, &str)> =
        CHANGING_NEUTRAL.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
    for setting in settings {
        let Some((section, rest)) = setting.split_once('.') else { continue };
        let name = rest.rsplit_once('.').map_or(rest, |(_, name)| name);
        let value = match (section.to_ascii_lowercase().as_str(), name.to_ascii_lowercase().as_str()) {
            ("filter", "clean" | "smudge" | "process")
            | ("remote", "vcs" | "uploadpack" | "receivepack")
            | ("tar", "command")
            | ("trailer", "command" | "cmd")
            | ("gc", "recentobjectshook")
            | ("core", "gitproxy")
            | ("gpg", "defaultkeycommand") => return Err(setting.to_owned()),
            ("core", "sshcommand") => "ssh",
            ("gpg", "program") => match rest.split_once('.') {
                Some(("ssh", _)) => "ssh-keygen",
                Some(("x509", _)) => "gpgsm",
                Some(_) | None => "gpg",
            },
            ("diff", "textconv") => "cat",
            ("diff", "command" | "external") => PLAIN_DIFF,
            ("merge", "driver") | ("pager", _) => "false",
            ("credential", "helper") => "",
            _ => continue,
        };
        config.push((setting.to_owned(), value));
    }
    Ok(config)
}

/// Returns a setting with a harmless value for a setting that names a program, or that makes git look into a submodule, which
/// has a configuration of its own.
fn neutral(setting: &str) -> Option<(String, &'static str)> {
    let (section, rest) = setting.split_once('.')?;
    let (named, name) = rest.rsplit_once('.').unwrap_or(("", rest));
    let value = match (section.to_ascii_lowercase().as_str(), name.to_ascii_lowercase().as_str()) {
        ("submodule", _) if !named.is_empty() => return Some((format!("submodule.{named}.ignore"), "all")),
        ("filter", "clean" | "smudge" | "process") => Some(""),
        ("filter", "required") => Some("false"),
        ("diff", "textconv") => Some("cat"),
        ("diff", "command" | "external") => Some(PLAIN_DIFF),
        ("merge", "driver") => Some("false"),
        ("credential", "helper") => Some(""),
        ("pager", _) => Some("false"),
        _ => None,
    };
    Some((setting.to_owned(), value?))
}
