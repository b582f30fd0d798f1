//! Commands that run other commands, or write files, by way of their arguments. A prefix such as `find *` says nothing
//! about them. The lists are long because the world is; what is on none of them is what its name says.

use super::{Unclear, Word};

/// Programs whose purpose is to run what they are given, shell words that change what later words mean, and programs
/// with a command language of their own.
const ALWAYS: &[&str] = &[
    // The shell's own.
    "!",
    "(",
    "((",
    ".",
    "[[",
    "]]",
    "alias",
    "bind",
    "builtin",
    "case",
    "command",
    "compgen",
    "complete",
    "coproc",
    "declare",
    "do",
    "done",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "export",
    "fc",
    "fi",
    "for",
    "function",
    "getopts",
    "hash",
    "history",
    "if",
    "in",
    "jobs",
    "let",
    "local",
    "mapfile",
    "read",
    "readarray",
    "readonly",
    "select",
    "set",
    "shopt",
    "source",
    "then",
    "time",
    "trap",
    "typeset",
    "unalias",
    "unset",
    "until",
    "wait",
    "while",
    "{",
    "}",
    // Shells and multi-call programs.
    "ash",
    "bash",
    "busybox",
    "csh",
    "dash",
    "fish",
    "ksh",
    "mksh",
    "pwsh",
    "rbash",
    "sh",
    "tcsh",
    "toybox",
    "xonsh",
    "zsh",
    // Wrappers.
    "bwrap",
    "caffeinate",
    "capsh",
    "chroot",
    "chronic",
    "chrt",
    "concurrently",
    "cpulimit",
    "doas",
    "dotenv",
    "entr",
    "fakeroot",
    "faketime",
    "firejail",
    "flock",
    "gosu",
    "hyperfine",
    "ionice",
    "linux32",
    "linux64",
    "nodemon",
    "nsenter",
    "numactl",
    "parallel",
    "perf",
    "pkexec",
    "prlimit",
    "proot",
    "proxychains",
    "rlwrap",
    "run-parts",
    "runcon",
    "runuser",
    "screen",
    "script",
    "setarch",
    "setpriv",
    "setsid",
    "setuidgid",
    "start-stop-daemon",
    "stdbuf",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "tmux",
    "torsocks",
    "unbuffer",
    "unshare",
    "watch",
    "watchexec",
    "xargs",
    "at",
    "batch",
    "crontab",
    "npx",
    "bunx",
    "pnpx",
    "uvx",
    "pipx",
    // Debuggers, editors, pagers and clients that have a way to a shell.
    "ed",
    "emacs",
    "emacsclient",
    "ex",
    "expect",
    "ftp",
    "gdb",
    "helix",
    "hx",
    "irb",
    "less",
    "lldb",
    "ltrace",
    "mail",
    "mailx",
    "more",
    "most",
    "mutt",
    "mysql",
    "nano",
    "nc",
    "ncat",
    "netcat",
    "nmap",
    "nvim",
    "openssl",
    "pico",
    "psql",
    "rsync",
    "rvim",
    "scp",
    "sftp",
    "socat",
    "sqlite3",
    "ssh",
    "strace",
    "tcpdump",
    "telnet",
    "tshark",
    "valgrind",
    "vi",
    "view",
    "vim",
    "vimdiff",
];

/// Programs whose first word may be a wrapper.
const SUBCOMMANDS: &[(&str, &[&str])] = &[
    ("asdf", &["exec"]),
    ("bun", &["x", "exec"]),
    ("bundle", &["exec"]),
    ("bundler", &["exec"]),
    ("cargo", &["watch", "script"]),
    ("conda", &["run"]),
    ("deno", &["eval", "repl"]),
    ("direnv", &["exec"]),
    ("docker", &["exec", "run"]),
    ("go", &["env", "tool"]),
    ("hatch", &["run"]),
    ("kubectl", &["exec", "run"]),
    ("mise", &["exec", "x"]),
    ("nix", &["develop", "run", "shell"]),
    ("npm", &["exec", "x", "explore", "edit", "config", "set"]),
    ("pipenv", &["run"]),
    ("pnpm", &["exec", "dlx", "config"]),
    ("podman", &["exec", "run"]),
    ("poetry", &["run"]),
    ("rustup", &["run"]),
    ("uv", &["run"]),
    ("yarn", &["exec", "dlx", "config"]),
];

/// Long options, also in the shortened forms that many programs accept.
const LONG: &[(&str, &[&str])] = &[
    ("ack", &["--pager", "--env"]),
    ("ag", &["--pager"]),
    ("cargo", &["--config", "--manifest-path", "--artifact-dir"]),
    ("diff3", &["--diff-program"]),
    ("fd", &["--exec", "--exec-batch"]),
    ("fdfind", &["--exec", "--exec-batch"]),
    ("gcc", &["--specs"]),
    ("gradle", &["--init-script", "--build-file", "--settings-file", "--project-dir", "--include-build"]),
    ("gradlew", &["--init-script", "--build-file", "--settings-file", "--project-dir", "--include-build"]),
    ("install", &["--strip-program"]),
    ("make", &["--eval", "--file", "--makefile", "--directory", "--include-dir", "--environment-overrides"]),
    ("gmake", &["--eval", "--file", "--makefile", "--directory", "--include-dir", "--environment-overrides"]),
    ("mvn", &["--file", "--settings", "--global-settings"]),
    ("npm", &["--call", "--script-shell", "--prefix", "--userconfig", "--globalconfig", "--node-options", "--shell"]),
    ("pnpm", &["--dir", "--script-shell", "--shell-mode", "--node-options"]),
    ("rg", &["--pre", "--hostname-bin", "--search-zip"]),
    ("rpm", &["--eval", "--pipe", "--define"]),
    ("sdiff", &["--diff-program", "--output"]),
    ("shuf", &["--output", "--random-source"]),
    ("sort", &["--output", "--compress-program", "--files0-from", "--temporary-directory"]),
    ("split", &["--filter"]),
    ("tree", &["--output"]),
    (
        "wget",
        &[
            "--execute",
            "--use-askpass",
            "--config",
            "--output-document",
            "--output-file",
            "--append-output",
            "--directory-prefix",
            "--input-file",
            "--post-file",
            "--body-file",
        ],
    ),
    ("yarn", &["--cwd", "--script-shell", "--node-options", "--use-yarnrc"]),
    ("yq", &["--inplace", "--split-exp"]),
    ("zip", &["--unzip-command", "--test-command"]),
];

/// Letters of short options, which may stand together (`-no`).
const SHORT: &[(&str, &str)] = &[
    ("apt", "oc"),
    ("apt-get", "oc"),
    ("cargo", "ZC"),
    ("fd", "xX"),
    ("fdfind", "xX"),
    ("file", "C"),
    ("gradle", "IbcpgDP"),
    ("gradlew", "IbcpgDP"),
    ("make", "fCIeE"),
    ("gmake", "fCIeE"),
    ("mvn", "fs"),
    ("npm", "cC"),
    ("pnpm", "cC"),
    ("rg", "z"),
    ("sdiff", "o"),
    ("shuf", "o"),
    ("sort", "oT"),
    ("tree", "o"),
    ("wget", "eOoaPi"),
    ("yq", "is"),
    ("zip", "T"),
];

/// Words that begin so, for programs with options of their own style.
const BEGINNINGS: &[(&str, &[&str])] = &[
    ("cargo", &["+"]),
    ("cc", &["-wrapper", "-fplugin", "-B", "-specs", "@"]),
    ("clang", &["-fplugin", "-B", "@", "-Xclang"]),
    ("find", &["-exec", "-ok", "-delete", "-fprint", "-fls", "-files0-from"]),
    ("g++", &["-wrapper", "-fplugin", "-B", "-specs", "@"]),
    ("gcc", &["-wrapper", "-fplugin", "-B", "-specs", "@"]),
    ("gfind", &["-exec", "-ok", "-delete", "-fprint", "-fls", "-files0-from"]),
    (
        "go",
        &[
            "-exec",
            "--exec",
            "-toolexec",
            "--toolexec",
            "-vettool",
            "--vettool",
            "-ldflags",
            "--ldflags",
            "-overlay",
            "--overlay",
            "-C",
            "-modfile",
            "--modfile",
            "-gcflags",
            "--gcflags",
        ],
    ),
];

/// Interpreters whose options carry code; a script by name is what a rule can speak of.
const INTERPRETERS: &[&str] = &[
    "bun",
    "clojure",
    "deno",
    "elixir",
    "erl",
    "ghci",
    "groovy",
    "guile",
    "jshell",
    "julia",
    "lua",
    "luajit",
    "node",
    "nodejs",
    "ocaml",
    "osascript",
    "perl",
    "php",
    "R",
    "Rscript",
    "raku",
    "ruby",
    "scala",
    "tclsh",
];

/// Python's modules that only do what their names say.
const PYTHON_MODULES: &[&str] =
    &["black", "flake8", "isort", "json.tool", "mypy", "pylint", "pytest", "ruff", "unittest"];

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
        "git" => return super::git::check(args),
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
        _ if INTERPRETERS.contains(&name) => args.first().is_some_and(|it| !it.starts_with('-')),
        _ => true,
    };
    if fine { Ok(()) } else { Err(format!("`{name}` can run or write anything with such arguments")) }
}

/// Options that only say how to fetch and what to print.
const CURL: &[&str] = &[
    "-s",
    "-S",
    "-sS",
    "-f",
    "-fsS",
    "-fsSL",
    "-sSL",
    "-sL",
    "-L",
    "-I",
    "-i",
    "-v",
    "--fail",
    "--silent",
    "--show-error",
    "--location",
    "--head",
    "--include",
    "--compressed",
    "-4",
    "-6",
];

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
