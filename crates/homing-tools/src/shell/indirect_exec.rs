//! Detects commands that run other commands or write files through their arguments, which a rule such as `find *` must
//! not allow. Commands on no list are assumed to do what their name says.

use crate::shell::{
    Unclear, Word,
    indirect_exec_tables::{ALWAYS, CURL, INTERPRETERS, LONG, PREFIXES, PYTHON_MODULES, SHORT, SUBCOMMANDS},
    program_launchers::{self, ALIASES, EXECUTING, LAUNCHERS, OWN_OPTIONS, RUNNERS, lists},
};

/// Returns the command inside a simple wrapper (`timeout 5 …`); an error if the wrapper is not simple.
pub(super) fn wrapped(words: &[Word]) -> Result<Option<&[Word]>, Unclear> {
    let [program, rest @ ..] = words else { return Ok(None) };
    let texts: Vec<&str> = rest.iter().map(|word| word.text.as_str()).collect();
    let skipped = match (name(program), texts.as_slice()) {
        ("timeout", [duration, ..]) if is_duration(duration) => 1,
        ("nice", ["-n", number, ..]) if is_number(number) => 2,
        ("nice" | "nohup", [first, ..]) if !first.starts_with('-') => 0,
        ("env", [first, ..]) if !first.starts_with('-') && !first.contains('=') => 0,
        ("timeout" | "nice" | "nohup" | "env", _) => {
            return Err(format!("`{}` runs another command in a way that rules cannot check", program.text));
        }
        _ => return Ok(None),
    };
    match rest.get(skipped..) {
        Some(inner @ [_, ..]) => Ok(Some(inner)),
        Some([]) | None => Err(format!("`{}` has no command to run", program.text)),
    }
}

/// Returns an error if the command can run another one or write files through its arguments.
pub(super) fn check(words: &[Word]) -> Result<(), Unclear> {
    let [program, args @ ..] = words else { return Ok(()) };
    let name = name(program);
    let args: Vec<&str> = args.iter().map(|word| word.text.as_str()).collect();
    let runs = |by: &str| Err(format!("`{name}` can run or write anything through `{by}`"));
    let is_launcher = ALWAYS.contains(&name) || lists(LAUNCHERS, name) || lists(LAUNCHERS, without_version(name));
    if is_launcher || name.starts_with("ld-") || name.starts_with("ld.so") || name.contains("-sh") {
        return Err(format!("`{name}` runs other commands, which rules cannot check"));
    }
    if program.text.starts_with("/proc/") || program.text.contains("/../") {
        return Err("the program's path is indirect".to_owned());
    }
    let known = family(name);
    if let Some(by) = args.iter().find(|arg| is_listed(name, arg) || is_listed(known, arg)) {
        return runs(by);
    }
    let own = args.iter().take_while(|arg| **arg != "--");
    if let Some(by) = own.clone().find(|arg| !OWN_OPTIONS.contains(&name) && sounds_executing(arg)) {
        return runs(by);
    }
    let lists_subcommand = |by: &&&str| {
        let tables = [SUBCOMMANDS, program_launchers::SUBCOMMANDS];
        tables.iter().any(|table| entry(table, known).is_some_and(|subcommands| subcommands.contains(by)))
    };
    if let Some(by) = args.iter().find(|arg| !arg.starts_with('-')).filter(lists_subcommand) {
        return runs(by);
    }
    special(name, &args)
}

/// Returns the name of a program in the tables: `x86_64-linux-gnu-gcc-12` is `gcc`, `clang++-15` is `clang`.
fn family(name: &str) -> &str {
    let alias = |name: &str| entry(ALIASES, name);
    if let Some(known) = alias(name) {
        return known;
    }
    let plain = without_version(name);
    let compiler = ["gcc", "g++", "c++", "cc", "clang", "clang++", "gfortran", "cpp"].into_iter().find(|compiler| {
        plain == *compiler || plain.strip_suffix(compiler).is_some_and(|prefix| prefix.ends_with('-'))
    });
    let plain = compiler.unwrap_or(plain);
    alias(plain).unwrap_or(plain)
}

/// Returns true if the name of a long option says that its value is executed, such as `--init-hook` or `--rsh-command`.
fn sounds_executing(arg: &str) -> bool {
    let option = arg.split_once('=').map_or(arg, |(option, _)| option);
    let Some(words) = option.strip_prefix("--").filter(|words| !words.starts_with("no-")) else { return false };
    words.split(['-', '_']).any(|word| EXECUTING.contains(&word))
}

fn is_listed(name: &str, arg: &str) -> bool {
    let long = arg.split_once('=').map_or(arg, |(option, _)| option);
    let long = long.starts_with("--")
        && long.len() > 2
        && entry(LONG, name).is_some_and(|options| options.iter().any(|full| full.starts_with(long)));
    let short = arg.starts_with('-')
        && !arg.starts_with("--")
        && entry(SHORT, name).is_some_and(|letters| arg.contains(|letter| letters.contains(letter)));
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| arg.starts_with(prefix));
    let tables = [PREFIXES, program_launchers::PREFIXES];
    long || short || tables.iter().any(|table| entry(table, name).is_some_and(starts))
}

fn entry<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(program, _)| *program == name).map(|(_, entry)| *entry)
}

/// Checks programs that the tables cannot describe.
fn special(name: &str, args: &[&str]) -> Result<(), Unclear> {
    let is_plain = match name {
        "git" => return crate::shell::git_rules::check(args),
        "sed" | "gsed" => sed_is_plain(args),
        "awk" | "gawk" | "mawk" | "nawk" => awk_is_plain(args),
        "tar" | "bsdtar" | "gtar" => tar_is_plain(args),
        "uniq" | "xxd" => operands(args) <= 1,
        "curl" => args.iter().all(|arg| !arg.starts_with('-') || CURL.contains(arg)),
        "test" | "[" => !args.iter().any(|arg| matches!(*arg, "-v" | "-R")),
        "printf" => !args.first().is_some_and(|arg| arg.starts_with("-v")),
        "man" => !args.iter().any(|arg| arg.starts_with('-')),
        "make" | "gmake" | "gradle" | "gradlew" => !args.iter().any(|arg| arg.contains('=')),
        _ if name.starts_with("python") || name.starts_with("pypy") => python_is_plain(args),
        _ if INTERPRETERS.contains(&without_version(name)) || lists(RUNNERS, without_version(name)) => {
            args.first().is_some_and(|arg| !arg.starts_with('-'))
        }
        _ => true,
    };
    if is_plain { Ok(()) } else { Err(format!("`{name}` can run or write anything with these arguments")) }
}

/// Allows only printing, deleting and quitting at line numbers.
fn sed_is_plain(args: &[&str]) -> bool {
    let (options, rest): (Vec<&str>, Vec<&str>) = args.iter().partition(|arg| arg.starts_with('-'));
    let is_line_address =
        |text: &str| text.chars().all(|character| character.is_ascii_digit() || ",$ ".contains(character));
    let is_plain_script =
        |script: &str| script.split(';').all(|part| is_line_address(part.trim_end_matches(['p', 'd', 'q', '='])));
    options.iter().all(|option| matches!(*option, "-n" | "-E" | "-r" | "--quiet" | "--silent"))
        && rest.first().is_some_and(|script| is_plain_script(script))
}

/// Allows only programs without pipes, redirections, system calls and further program files.
fn awk_is_plain(args: &[&str]) -> bool {
    let mut rest = args;
    loop {
        rest = match rest {
            ["-F" | "-v", _, more @ ..] => more,
            [option, more @ ..] if option.starts_with("-F") && option.len() > 2 => more,
            [program, more @ ..] if !program.starts_with('-') => {
                let keywords = ["system", "getline", "|", ">", "@", "close", "fflush"];
                let is_unsafe = keywords.iter().any(|keyword| program.contains(keyword));
                return !is_unsafe && !more.iter().any(|arg| arg.starts_with('-'));
            }
            _ => return false,
        };
    }
}

/// Allows only listing an archive.
fn tar_is_plain(args: &[&str]) -> bool {
    let [mode, rest @ ..] = args else { return false };
    let letters = mode.strip_prefix('-').unwrap_or(mode);
    letters.starts_with('t')
        && letters.chars().all(|letter| "tvzjJf".contains(letter))
        && !rest.iter().any(|arg| arg.starts_with('-') || arg.contains(':'))
}

fn python_is_plain(args: &[&str]) -> bool {
    match args {
        ["-m", module, rest @ ..] => {
            PYTHON_MODULES.contains(module) && !rest.iter().any(|arg| is_listed(module, arg) || sounds_executing(arg))
        }
        ["--version" | "-V"] => true,
        [script, ..] => !script.starts_with('-'),
        [] => false,
    }
}

/// Strips a version: `lua5.4` is `lua`.
fn without_version(name: &str) -> &str {
    name.trim_end_matches(|it: char| it.is_ascii_digit() || it == '.' || it == '-')
}

fn operands(args: &[&str]) -> usize {
    args.iter().filter(|arg| !arg.starts_with('-')).count()
}

fn is_duration(text: &str) -> bool {
    is_number(text.strip_suffix(['s', 'm', 'h', 'd']).unwrap_or(text))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Returns the program's name without its folder.
fn name(program: &Word) -> &str {
    program.text.rsplit('/').next().unwrap_or(&program.text)
}
