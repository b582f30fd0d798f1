//! Commands that run other commands, or write files, by way of their arguments. A prefix such as `find *` says nothing
//! about them. The lists are long because the world is; what is on none of them is what its name says.

use crate::shell::{
    Unclear, Word,
    indirect_exec_tables::{ALWAYS, BEGINNINGS, CURL, INTERPRETERS, LONG, PYTHON_MODULES, SHORT, SUBCOMMANDS},
};

/// The command within a plain wrapper; an error where the wrapper is not plain.
pub(super) fn unwrap(words: &[Word]) -> Result<Option<&[Word]>, Unclear> {
    let [program, rest @ ..] = words else { return Ok(None) };
    let texts: Vec<&str> = rest.iter().map(|it| it.text.as_str()).collect();
    let skipped = match (name(program), texts.as_slice()) {
        ("timeout", [duration, ..]) if is_duration(duration) => 1,
        ("nice", ["-n", number, ..]) if is_number(number) => 2,
        ("nice" | "nohup", [first, ..]) if !first.starts_with('-') => 0,
        ("env", [first, ..]) if !first.starts_with('-') && !first.contains('=') => 0,
        ("timeout" | "nice" | "nohup" | "env", _) => {
            return Err(format!("`{}` runs another command in a way that rules cannot look into", program.text));
        }
        _ => return Ok(None),
    };
    match rest.get(skipped..) {
        Some(inner @ [_, ..]) => Ok(Some(inner)),
        Some([]) | None => Err(format!("`{}` lacks its command", program.text)),
    }
}

/// An error when the command can run another, or write, by way of its arguments.
pub(super) fn check(words: &[Word]) -> Result<(), Unclear> {
    let [program, args @ ..] = words else { return Ok(()) };
    let name = name(program);
    let args: Vec<&str> = args.iter().map(|it| it.text.as_str()).collect();
    let runs = |by: &str| Err(format!("`{name}` can run or write anything through `{by}`"));
    if ALWAYS.contains(&name) || name.starts_with("ld-") || name.starts_with("ld.so") || name.contains("-sh") {
        return Err(format!("`{name}` runs what it is given, which rules cannot look into"));
    }
    if program.text.starts_with("/proc/") || program.text.contains("/../") {
        return Err("the program is named in a roundabout way".to_owned());
    }
    if let Some(by) = args.iter().find(|it| is_listed(name, it)) {
        return runs(by);
    }
    if let Some(by) = args.iter().find(|it| !it.starts_with('-'))
        && entry(SUBCOMMANDS, name).is_some_and(|it| it.contains(by))
    {
        return runs(by);
    }
    special(name, &args)
}

fn is_listed(name: &str, arg: &str) -> bool {
    let long = arg.split_once('=').map_or(arg, |(option, _)| option);
    let long = long.starts_with("--")
        && long.len() > 2
        && entry(LONG, name).is_some_and(|it| it.iter().any(|full| full.starts_with(long)));
    let short = arg.starts_with('-')
        && !arg.starts_with("--")
        && entry(SHORT, name).is_some_and(|letters| arg.contains(|it| letters.contains(it)));
    long || short || entry(BEGINNINGS, name).is_some_and(|it| it.iter().any(|start| arg.starts_with(start)))
}

fn entry<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(program, _)| *program == name).map(|(_, entry)| *entry)
}

/// Programs that need a look of their own.
fn special(name: &str, args: &[&str]) -> Result<(), Unclear> {
    let fine = match name {
        "git" => return crate::shell::git_rules::check(args),
        "sed" | "gsed" => sed_is_plain(args),
        "awk" | "gawk" | "mawk" | "nawk" => awk_is_plain(args),
        "tar" | "bsdtar" | "gtar" => tar_is_plain(args),
        "uniq" | "xxd" => operands(args) <= 1,
        "curl" => args.iter().all(|it| !it.starts_with('-') || CURL.contains(it)),
        "test" | "[" => !args.iter().any(|it| matches!(*it, "-v" | "-R")),
        "printf" => !args.first().is_some_and(|it| it.starts_with("-v")),
        "man" => !args.iter().any(|it| it.starts_with('-')),
        "make" | "gmake" | "gradle" | "gradlew" => !args.iter().any(|it| it.contains('=')),
        _ if name.starts_with("python") || name.starts_with("pypy") => python_is_plain(args),
        _ if INTERPRETERS.contains(&without_version(name)) => args.first().is_some_and(|it| !it.starts_with('-')),
        _ => true,
    };
    if fine { Ok(()) } else { Err(format!("`{name}` can run or write anything with such arguments")) }
}

/// Printing lines by number, and nothing else.
fn sed_is_plain(args: &[&str]) -> bool {
    let (options, rest): (Vec<&str>, Vec<&str>) = args.iter().partition(|it| it.starts_with('-'));
    let script = |it: &str| {
        it.split(';').all(|one| {
            one.trim_end_matches(['p', 'd', 'q', '=']).chars().all(|c| c.is_ascii_digit() || ",$ ".contains(c))
        })
    };
    options.iter().all(|it| matches!(*it, "-n" | "-E" | "-r" | "--quiet" | "--silent"))
        && rest.first().is_some_and(|it| script(it))
}

/// A program without pipes, redirections, calls of the system or other files.
fn awk_is_plain(args: &[&str]) -> bool {
    let mut rest = args;
    loop {
        rest = match rest {
            ["-F" | "-v", _, more @ ..] => more,
            [option, more @ ..] if option.starts_with("-F") && option.len() > 2 => more,
            [program, more @ ..] if !program.starts_with('-') => {
                let unsafe_in = ["system", "getline", "|", ">", "@", "close", "fflush"];
                return !unsafe_in.iter().any(|it| program.contains(it)) && !more.iter().any(|it| it.starts_with('-'));
            }
            _ => return false,
        };
    }
}

/// Listing an archive.
fn tar_is_plain(args: &[&str]) -> bool {
    let [mode, rest @ ..] = args else { return false };
    let letters = mode.strip_prefix('-').unwrap_or(mode);
    letters.starts_with('t')
        && letters.chars().all(|it| "tvzjJf".contains(it))
        && !rest.iter().any(|it| it.starts_with('-') || it.contains(':'))
}

fn python_is_plain(args: &[&str]) -> bool {
    match args {
        ["-m", module, ..] => PYTHON_MODULES.contains(module),
        ["--version" | "-V"] => true,
        [script, ..] => !script.starts_with('-'),
        [] => false,
    }
}

/// `lua5.4` is `lua`.
fn without_version(name: &str) -> &str {
    name.trim_end_matches(|it: char| it.is_ascii_digit() || it == '.' || it == '-')
}

fn operands(args: &[&str]) -> usize {
    args.iter().filter(|it| !it.starts_with('-')).count()
}

fn is_duration(text: &str) -> bool {
    is_number(text.strip_suffix(['s', 'm', 'h', 'd']).unwrap_or(text))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit() || it == b'.')
}

/// The program's name without its folder.
fn name(program: &Word) -> &str {
    program.text.rsplit('/').next().unwrap_or(&program.text)
}
