//! Git: which of its commands only look, and how its configuration is kept from running things. A repository is
//! somebody's data; its configuration and attributes can name programs.

use crate::shell::{Unclear, Word};

/// The class of commands that rules call `git only`: `git` itself, looking.
pub const GIT_ONLY: &str = "git only";

/// Commands that only look, with any arguments that are not refused below.
const LOOKING: &[&str] = &[
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

/// Commands that change things as their names say. Anything on neither list may be an alias, or runs programs.
const ACTING: &[&str] = &[
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

/// Options before the command that change nothing of what is run.
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

/// Options, also shortened, that run programs, write files, or read outside the repository.
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

/// Harmless options that look like the beginning of a refused one.
const FINE: &[&str] = &["--text", "--filter", "--exclude", "--ignore-rev", "--signature"];

/// What choosing by hand runs: a filter that the repository's configuration names.
const BY_HAND: &[&str] = &["--patch", "--interactive", "--edit", "--edit-todo"];

/// An error where git could be made to run something else.
pub(super) fn check(args: &[&str]) -> Result<(), Unclear> {
    let Some((command, rest)) = command(args) else {
        return match args {
            ["--version" | "-v"] => Ok(()),
            _ => Err("git's options before its command can change what it runs".to_owned()),
        };
    };
    if !LOOKING.contains(&command) && !ACTING.contains(&command) {
        return Err(format!("`git {command}` may be an alias, or runs other programs"));
    }
    match rest.iter().find(|it| is_refused(command, it)) {
        Some(by) => Err(format!("`git {command}` can run, write or read anything through `{by}`")),
        None => Ok(()),
    }
}

/// The command and its arguments, behind harmless options.
fn command<'a>(args: &'a [&'a str]) -> Option<(&'a str, &'a [&'a str])> {
    let at = args.iter().position(|it| !HARMLESS_GLOBALS.contains(it))?;
    let (command, rest) = args[at..].split_first()?;
    (!command.starts_with('-')).then_some((*command, rest))
}

fn is_refused(command: &str, arg: &str) -> bool {
    let option = arg.split_once('=').map_or(arg, |(option, _)| option);
    if option.starts_with("--") && option.len() > 2 {
        let remerges = option.starts_with("--diff-m") && arg.contains("=r");
        let by_hand = ACTING.contains(&command) && BY_HAND.iter().any(|it| it.starts_with(option));
        return remerges || by_hand || (!FINE.contains(&option) && REFUSED.iter().any(|it| it.starts_with(option)));
    }
    if arg.contains("ext::") || arg.contains("fd::") {
        return true;
    }
    if let Some(letters) = arg.strip_prefix('-') {
        return short_is_refused(command, letters);
    }
    // Two paths outside the repository make `git diff` compare any two files; these others write where they are told.
    matches!(command, "diff" | "range-diff" | "clone" | "init" | "worktree" | "bundle") && leads_out(arg)
}

/// `-O` opens a pager or reads a file of orders; letters may stand together. Some options take the rest as their value.
fn short_is_refused(command: &str, letters: &str) -> bool {
    // The same letter takes a value here and stands for itself there: `git grep -LOsh` is `-L` and `-O sh`.
    let takes_text = match command {
        "blame" => "L",
        "grep" => "eABCm",
        "commit" | "tag" | "merge" | "notes" | "revert" | "cherry-pick" | "stash" => "m",
        it if ACTING.contains(&it) => "",
        _ => "SGL",
    };
    let takes_text = letters.starts_with(|it| takes_text.contains(it));
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
    !takes_text && letters.contains(|it| refused.contains(it))
}

fn leads_out(arg: &str) -> bool {
    arg.starts_with(['/', '~']) || arg == ".." || arg.starts_with("../") || arg.contains("/../") || arg.ends_with("/..")
}

/// Whether the command is git itself, only looking.
pub(super) fn is_read_only(words: &[Word]) -> bool {
    let [program, rest @ ..] = words else { return false };
    let args: Vec<&str> = rest.iter().map(|it| it.text.as_str()).collect();
    if program.text != "git" || check(&args).is_err() {
        return false;
    }
    let Some((command, args)) = command(&args) else { return true };
    LOOKING.contains(&command) || only_lists(command, args)
}

/// The forms of acting commands that only list.
fn only_lists(command: &str, args: &[&str]) -> bool {
    let options = |listing: &[&str], plain: &[&str]| {
        let name = |it: &&str| it.split_once('=').map_or(*it, |(name, _)| name).to_owned();
        let lists = args.iter().any(|it| listing.contains(&name(it).as_str()));
        args.iter().all(|it| {
            let name = name(it);
            listing.contains(&name.as_str()) || plain.contains(&name.as_str()) || (lists && !it.starts_with('-'))
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

/// Settings under which git runs nothing of a repository's choosing, as far as their names are known beforehand and
/// their neutral values do no harm to an honest repository.
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

/// Variables for every git that only looks.
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

/// A diff that git can be told to use instead of a program that the repository names; there is no way to name none.
const PLAIN_DIFF: &str = r#"sh -c 'diff -u -L "a/$0" -L "b/$0" "$1" "$4"; :'"#;

/// The environment under which a `git only` command runs inside a sandbox: git starts no hook, file watcher, pager,
/// editor, signature check or transport of the repository's choosing.
///
/// Programs under names that the repository chose (`filter.x.clean`, `diff.x.textconv`) and `diff.external`, which
/// honest repositories must not find set, are only reached by [`git_only_env_for`]; here the sandbox has to hold them.
pub fn git_only_env() -> Vec<(String, String)> {
    git_only_env_for([])
}

/// As [`git_only_env`], and for use without a sandbox: every filter and diff program is neutralised, too.
///
/// `settings` are the names of the repository's settings, as `git config --list --name-only` prints them under
/// [`git_only_env`]; that command runs nothing.
pub fn git_only_env_for<'a>(settings: impl IntoIterator<Item = &'a str>) -> Vec<(String, String)> {
    let drivers = settings.into_iter().filter_map(|it| Some((it, neutral_driver(it)?)));
    let config: Vec<(&str, &str)> = NEUTRAL.iter().copied().chain(drivers).collect();
    let mut env: Vec<(String, String)> =
        VARIABLES.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    env.push(("GIT_CONFIG_COUNT".to_owned(), config.len().to_string()));
    for (at, (key, value)) in config.into_iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{at}"), key.to_owned()));
        env.push((format!("GIT_CONFIG_VALUE_{at}"), value.to_owned()));
    }
    env
}

/// What takes the place of a setting that names a program.
fn neutral_driver(setting: &str) -> Option<&'static str> {
    let (section, rest) = setting.split_once('.')?;
    let name = rest.rsplit_once('.').map_or(rest, |(_, name)| name);
    match (section.to_ascii_lowercase().as_str(), name.to_ascii_lowercase().as_str()) {
        ("filter", "clean" | "smudge" | "process") => Some(""),
        ("filter", "required") => Some("false"),
        ("diff", "textconv") => Some("cat"),
        ("diff", "command" | "external") => Some(PLAIN_DIFF),
        ("merge", "driver") => Some("false"),
        ("credential", "helper") => Some(""),
        ("pager", _) => Some("false"),
        _ => None,
    }
}
