//! Compares the analysis of shell lines with a real bash: every command that bash runs must have been found.
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use std::{collections::BTreeSet, os::unix::fs::PermissionsExt, path::Path, process::Command};

use homing_core::rule::{Subject, Subjects};
use homing_tools::shell::subjects;

/// Pieces of random lines; most of the lines will be unclear.
const PIECES: &[&str] = &[
    "p",
    "p",
    "p ",
    " p ",
    "a",
    "b c",
    " ",
    " ",
    "  ",
    "\t",
    "\n",
    ";",
    " ; ",
    "&",
    "&&",
    "|",
    "||",
    "|&",
    "(",
    ")",
    "{",
    "}",
    "'",
    "\"",
    "'x y'",
    "\"z w\"",
    "''",
    "\"\"",
    "\\",
    "\\\n",
    "$",
    "`",
    "$(p)",
    "#",
    " #",
    "#\n",
    "=",
    "x=",
    "!",
    "~",
    "*",
    "[",
    "]",
    "?",
    ">",
    "<",
    ">>",
    " >/dev/null",
    " 2>&1",
    "2>",
    "/dev/null",
    "1",
    "2",
    ",",
    "{a,b}",
    "@{1}",
    "..",
    "^",
    "%",
    "-",
    "--x",
    "-n",
    "é",
    "p;p",
    "p && p",
    "p | p",
    "'#'",
    "\"#\"",
    "a#b",
    ":",
    "+",
    "\\'",
    "\\\"",
    "\"\\\"\"",
    "\"\\n\"",
    "if",
    "then",
    "time",
    "function",
    "[[",
    "do",
    "esac",
    "<<",
    "<<<",
    ";;",
    "&>",
    "&>/dev/null",
    "$'",
    "$\"",
    "0>&2",
    "1>",
    ">& 2",
    ">&2",
    "10>",
    "0+=",
    "[p]=",
    "&&\n",
    "| #x\n",
    "p()",
    "@(p)",
    ";&",
];

/// Valid lines that are changed at random; the result is often almost valid.
const LINES: &[&str] = &[
    "p a && p b | p c",
    "p -la 2>/dev/null; p x",
    "(p src && p)",
    "p 'a b' \"c d\" e\"f\"g",
    "p a\np b\n",
    "# c\np\n",
    "p stash HEAD^ 2>&1",
    "p a &>/dev/null || p b",
    "p \"a\\\"b\" 'c' # d\np e",
    "p x=y --a=b; p 1 2 3",
    "p a >/dev/null 2>&1 | p",
    "p |& p",
];

/// Characters that are inserted into valid lines.
const MARKS: &str = " \t\n;&|()<>'\"\\#=+]!0129-}@,./p$`éa:%^";

/// A random generator with a fixed seed, so that every run tests the same lines.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn line(&mut self) -> String {
        if self.roll(2) == 0 { self.changed_line() } else { self.new_line() }
    }

    /// Inserts, removes or swaps a few characters of a valid line.
    fn changed_line(&mut self) -> String {
        let marks: Vec<char> = MARKS.chars().collect();
        let mut line: Vec<char> = LINES[self.roll(LINES.len())].chars().collect();
        for _ in 0..=self.roll(4) {
            let at = self.roll(line.len());
            match self.roll(4) {
                0 if line.len() > 1 => drop(line.remove(at)),
                1 => {
                    let other = self.roll(line.len());
                    line.swap(at, other);
                }
                _ => line.insert(at, marks[self.roll(marks.len())]),
            }
        }
        line.into_iter().collect()
    }

    fn new_line(&mut self) -> String {
        let pieces = 1 + self.roll(9);
        let start = if self.roll(4) == 0 { "" } else { "p " };
        start.to_owned() + &(0..pieces).map(|_| PIECES[self.roll(PIECES.len())]).collect::<String>()
    }
}

fn analyse(line: &str) -> Option<BTreeSet<String>> {
    let Subjects::Parts(parts) = subjects(line) else { return None };
    let text = |part| match part {
        Subject::Command { text, .. } => text,
        other => panic!("{other:?}"),
    };
    Some(parts.into_iter().map(text).collect())
}

/// Quotes a word as the analysis does.
fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "_-./:=,+%@^~#".contains(character);
    if !word.is_empty() && !word.starts_with('#') && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Runs a line with bash and returns the words of each call of `p`.
fn run(bash: &Path, line: &str, dir: &Path) -> Vec<String> {
    let log = dir.join("log");
    std::fs::write(&log, "").unwrap();
    let empty = dir.join("empty");
    let output = Command::new(bash)
        .args(["--noprofile", "--norc", "-c", line])
        .env_clear()
        .env("PATH", dir.join("bin"))
        .env("LOG", &log)
        .env("HOME", "/nowhere")
        .current_dir(empty)
        .output()
        .unwrap();
    drop(output);
    let log = std::fs::read_to_string(&log).unwrap();
    let call = |call: &str| {
        call.split('\u{1f}').filter_map(|word| word.strip_suffix('\u{1d}')).map(quoted).collect::<Vec<_>>().join(" ")
    };
    log.split('\u{1e}').filter(|text| !text.is_empty()).map(call).collect()
}

#[test]
fn b14_b15_b16_bash_runs_only_commands_that_were_found() {
    let Some(bash) = ["/bin/bash", "/usr/bin/bash"].map(Path::new).into_iter().find(|path| path.exists()) else {
        eprintln!("skipped: bash is not installed");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("bin")).unwrap();
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    let program = dir.path().join("bin/p");
    // One write per call, because the parts of a pipe write concurrently.
    let script = "#!/bin/sh\nall=$(printf '%s\\035\\037' p \"$@\"; printf '\\036')\nprintf %s \"$all\" >> \"$LOG\"\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();

    let mut dice = Dice(7);
    let (mut clear, mut ran) = (0, 0);
    for _ in 0..20_000 {
        let line = dice.line();
        let Some(found) = analyse(&line) else { continue };
        // Patterns and tildes are not expanded by the analysis, and braces and brackets are shown as written.
        if line.contains(['*', '?', '[', ']', '~', '{']) {
            continue;
        }
        clear += 1;
        for call in run(bash, &line, dir.path()) {
            ran += 1;
            assert!(found.contains(&call), "{line:?} ran {call:?}, found {found:?}");
        }
        if clear == 800 {
            break;
        }
    }
    assert!(clear >= 100 && ran >= 100, "{clear} clear lines, {ran} calls");
}
