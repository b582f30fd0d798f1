//! A short, seeded version of the fuzz target: no input makes the parser panic, hang, or widen a restriction.
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use std::path::Path;

use homing_core::{authority::Allow, definition::Scope};
use homing_load::{ParseOptions, ParsedFile, parse};

/// A small seeded generator, so that failures can be reproduced.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).expect("small")
    }
}

const PIECES: &[&str] = &[
    "---\n",
    "name: a\n",
    "description: d\n",
    "tools: Read\n",
    "tools:",
    " [Read, ",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "|\n",
    ">-\n",
    "  - ",
    ": ",
    "#",
    "&a ",
    "*a",
    "<<: *a\n",
    "!!str ",
    "%YAML 1.2\n",
    "\t",
    "\r\n",
    "\u{feff}",
    "\u{2028}",
    "\0",
    "\u{e0041}",
    "maxTurns: ",
    "5",
    "-1",
    ".inf",
    "limits: {",
    "cost: 1",
    "mcpServers:\n",
    "permission:\n  bash:\n    \"*\": deny\n",
    "ü",
    "日本",
    "\\n",
    "```markdown\n",
    "...\n",
    "customModes:\n",
    "agent:",
    "tools: {a: true, b: no}\n",
    "Bash(git:*)",
    "(",
    ")",
    ",",
    "\n",
    "\n\n",
];

const NAMES: &[&str] = &[
    ".claude/agents/x.md",
    "x.json",
    "x.yaml",
    "x.toml",
    ".roomodes",
    "x.agent.md",
    ".opencode/agent/x.md",
    "opencode.json",
];

fn text(dice: &mut Dice) -> Vec<u8> {
    let mut text = String::from(if dice.roll(2) == 0 { "---\nname: a\ndescription: d\n" } else { "" });
    for _ in 0..dice.roll(40) {
        text.push_str(PIECES[dice.roll(PIECES.len())]);
    }
    let mut bytes = text.into_bytes();
    if !bytes.is_empty() && dice.roll(4) == 0 {
        let at = dice.roll(bytes.len());
        bytes[at] = u8::try_from(dice.roll(256)).expect("a byte");
    }
    bytes
}

#[test]
fn inv45_random_files_neither_panic_nor_hang() {
    let mut dice = Dice(0x5eed_1234_5678_9abc);
    for _ in 0..20_000 {
        let (path, bytes) = (Path::new(NAMES[dice.roll(NAMES.len())]), text(&mut dice));
        for strict in [false, true] {
            let options = ParseOptions { strict, ..ParseOptions::default() };
            let parsed = parse(path, bytes.clone(), ParsedFile::Named, Scope::Project, &options);
            assert!(parsed.definitions.iter().all(|agent| !agent.name.is_empty() && !agent.prompt.is_empty()));
        }
    }
}

#[test]
fn later_keys_never_lift_a_restriction() {
    let mut dice = Dice(0xfeed_beef_dead_f00d);
    for _ in 0..20_000 {
        let mut bytes = b"---\nname: a\ndescription: d\ntools: Read\n".to_vec();
        bytes.extend(text(&mut dice));
        let path = Path::new(".claude/agents/x.md");
        let parsed = parse(path, bytes.clone(), ParsedFile::Named, Scope::Project, &ParseOptions::default());
        for agent in parsed.definitions {
            assert_ne!(agent.tools.allowed, Allow::All, "{}", String::from_utf8_lossy(&bytes));
        }
    }
}

/// Damages real files. Skipped without the corpus.
#[test]
fn inv45_damaged_real_files_neither_panic_nor_hang() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/agents");
    let mut files = Vec::new();
    gather(&corpus, &mut files);
    if files.is_empty() {
        return eprintln!("skipped: there is no corpus at {}", corpus.display());
    }
    files.sort();
    let mut dice = Dice(0x00c0_ffee_0bad_cafe);
    for path in files.iter().step_by(7) {
        let whole = std::fs::read(path).unwrap();
        let head = &whole[..whole.len().min(1_500)];
        for _ in 0..20 {
            let bytes = damaged(head, &mut dice);
            parse(path, bytes, ParsedFile::Named, Scope::Project, &ParseOptions::default());
        }
    }
}

fn damaged(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len().max(1));
        match dice.roll(4) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..(at + dice.roll(30)).min(bytes.len()))),
            2 => drop(bytes.splice(at.min(bytes.len())..at.min(bytes.len()), PIECES[dice.roll(PIECES.len())].bytes())),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << dice.roll(8)),
        }
    }
    bytes
}

fn gather(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        if entry.path().is_dir() {
            gather(&entry.path(), files);
        } else {
            files.push(entry.path());
        }
    }
}
