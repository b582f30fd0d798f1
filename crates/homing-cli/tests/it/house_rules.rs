//! Checks the rules of CONTRIBUTING.md that a program can check: sizes, words, paths in the documentation, who reads the environment.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

const MAX_FILE_LINES: usize = 500;
const MAX_FUNCTION_LINES: usize = 60;
const MAX_FIELDS: usize = 15;
const MAX_METHODS: usize = 25;

/// Structs with more fields: the shapes of JSON and TOML documents, which cannot be split without changing the documents.
const MORE_FIELDS: &[&str] = &["Config", "Envelope", "Spawned"];

/// Types with more methods.
const MORE_METHODS: &[&str] = &[];

/// Files that read the environment of the process.
const ENVIRONMENT_READERS: &[&str] = &["crates/homing/src/environment.rs"];

/// Library files whose strings contain options of other programs, such as git's and bubblewrap's.
const FOREIGN_OPTIONS: &[&str] = &[
    "crates/homing-tools/src/shell",
    "crates/homing-sandbox/src",
    "crates/homing-tools/src/files/diff.rs",
    "crates/homing-tools/src/worktree.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

/// Every file of the repository with one of these endings, with its path relative to the root.
fn files(endings: &[&str]) -> Vec<(String, String)> {
    fn walk(folder: &Path, root: &Path, endings: &[&str], found: &mut Vec<(String, String)>) {
        let entries = fs::read_dir(folder).expect("a folder of the repository can be read").filter_map(Result::ok);
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if name == "target" || name == "node_modules" || (name.starts_with('.') && name != ".ci") {
                continue;
            }
            if path.is_dir() {
                walk(&path, root, endings, found);
            } else if endings.iter().any(|ending| name.ends_with(ending))
                && let Ok(text) = fs::read_to_string(&path)
            {
                let relative = path.strip_prefix(root).expect("the file is below the root");
                found.push((relative.to_string_lossy().into_owned(), text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &root(), endings, &mut found);
    found.sort();
    found
}

fn sources() -> Vec<(String, String)> {
    files(&[".rs"]).into_iter().filter(|(path, _)| path.starts_with("crates/")).collect()
}

fn is_library(path: &str) -> bool {
    path.contains("/src/") && !path.starts_with("crates/homing-cli/") && !path.starts_with("crates/homing-testing/")
}

/// The part of a source file before its unit tests.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text)
}

fn report(title: &str, found: &[String]) {
    assert!(found.is_empty(), "{title}:\n{}", found.join("\n"));
}

#[test]
fn files_and_functions_stay_small() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let lines = text.lines().count();
        if lines > MAX_FILE_LINES {
            found.push(format!("{path}: {lines} lines"));
        }
        for (name, length) in functions(&text) {
            if length > MAX_FUNCTION_LINES {
                found.push(format!("{path}: fn {name} has {length} lines"));
            }
        }
    }
    report("too long", &found);
}

/// The name and the number of lines of every function, told by the indentation that rustfmt gives it.
fn functions(text: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        if let Some(name) = function_name(line) {
            open = Some((indent, number, name));
        }
        if let Some((start_indent, start, name)) = &open
            && line.trim_end() == format!("{}}}", " ".repeat(*start_indent))
        {
            found.push((name.clone(), number - start + 1));
            open = None;
        }
    }
    found
}

fn function_name(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().skip_while(|word| {
        word.starts_with("pub")
            || matches!(*word, "const" | "async" | "in" | "unsafe")
            || word.ends_with("::")
            || word.ends_with(')')
    });
    (words.next()? == "fn").then_some(())?;
    let rest = words.next()?;
    Some(rest.split(['(', '<']).next().unwrap_or(rest).to_owned())
}

#[test]
fn types_stay_small() {
    let mut found = Vec::new();
    let mut methods: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| path.contains("/src/")) {
        let text = without_tests(&text);
        let krate = path.split('/').nth(1).unwrap_or_default().to_owned();
        for (head, body) in blocks(text) {
            if let Some(name) = named(head, "struct ") {
                let fields = body.iter().filter(|line| is_field(line)).count();
                if fields > MAX_FIELDS && !MORE_FIELDS.contains(&name.as_str()) {
                    found.push(format!("{path}: {name} has {fields} fields"));
                }
            } else if let Some(name) = inherent_impl(head) {
                let count = body.iter().filter(|line| {
                    line.starts_with("    ") && !line.starts_with("     ") && function_name(line).is_some()
                });
                *methods.entry((krate.clone(), name)).or_default() += count.count();
            }
        }
    }
    for ((krate, name), count) in methods {
        if count > MAX_METHODS && !MORE_METHODS.contains(&name.as_str()) {
            found.push(format!("{krate}: {name} has {count} methods"));
        }
    }
    report("too large", &found);
}

/// The top-level blocks of a source file: the line that opens each, and the lines inside.
fn blocks(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if !line.starts_with([' ', '}', '/', '#']) && line.ends_with('{') {
            found.push((line, Vec::new()));
            inside = true;
        } else if line.starts_with('}') {
            inside = false;
        } else if inside && let Some((_, body)) = found.last_mut() {
            body.push(line);
        }
    }
    found
}

fn named(head: &str, keyword: &str) -> Option<String> {
    let (_, rest) = head.split_once(keyword)?;
    Some(rest.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned())
}

fn inherent_impl(head: &str) -> Option<String> {
    let rest = head.strip_prefix("impl")?;
    if rest.contains(" for ") {
        return None;
    }
    let rest =
        rest.strip_prefix('<').map_or(rest, |generic| generic.split_once("> ").map_or(generic, |(_, rest)| rest));
    named(&format!("impl {}", rest.trim_start()), "impl ")
}

fn is_field(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("    ") else { return false };
    let rest = rest
        .strip_prefix("pub ")
        .or_else(|| rest.strip_prefix("pub(crate) "))
        .or_else(|| rest.strip_prefix("pub(super) "))
        .unwrap_or(rest);
    let name = rest.split(':').next().unwrap_or_default();
    rest.contains(": ") && !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
}

#[test]
fn text_is_written_in_plain_words() {
    let mut found = Vec::new();
    for (path, text) in files(&[".rs", ".md", ".toml"]) {
        if path.ends_with("house_rules.rs") || path == "CONTRIBUTING.md" || path.starts_with("fuzz/corpus") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            let is_no =
                lower.contains(" is no ") && !lower.contains("there is no ") && !lower.contains(" is no longer ");
            let person = ["somebody", "whoever", "everybody"].iter().any(|word| lower.contains(word))
                || (lower.contains("nobody") && !lower.contains("user"));
            if is_no || person || lower.contains("be had") || is_question(line) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    report("not in plain words (see CONTRIBUTING.md)", &found);
}

/// Returns true if a doc comment begins with a question word instead of a noun phrase or a verb.
fn is_question(line: &str) -> bool {
    let Some(text) = line.trim_start().strip_prefix("///").or_else(|| line.trim_start().strip_prefix("//!")) else {
        return false;
    };
    let first = text.trim_start().split(' ').next().unwrap_or_default();
    matches!(first, "What" | "Who" | "Whose" | "Where" | "How" | "Which" | "Why" | "Whether") && text.starts_with(' ')
}

#[test]
fn closures_and_matches_follow_the_rules() {
    let mut found = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| !path.ends_with("house_rules.rs")) {
        for (number, line) in text.lines().enumerate() {
            let trimmed = line.trim();
            if trimmed.starts_with("true =>") || trimmed.starts_with("false =>") {
                found.push(format!("{path}:{}: `match` on a bool: {trimmed}", number + 1));
            }
            if let Some((_, body)) = line.split_once("|it| ")
                && !is_one_short_call(body)
            {
                found.push(format!("{path}:{}: an unnamed closure argument: {trimmed}", number + 1));
            }
        }
    }
    report("see CONTRIBUTING.md", &found);
}

fn is_one_short_call(body: &str) -> bool {
    let body = body.trim_start_matches(['*', '&', '!']);
    let Some(rest) = body.strip_prefix("it") else { return false };
    let end = rest.find(|letter: char| !(letter.is_alphanumeric() || matches!(letter, '_' | '.' | '&' | '(')));
    end.is_none_or(|end| rest[end..].starts_with([')', ',', ';']))
}

#[test]
fn only_one_crate_reads_the_environment() {
    let mut readers = BTreeSet::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| path.contains("/src/")) {
        let text = without_tests(&text);
        let reads = ["env::var", "env::vars", "env::home_dir", "env::temp_dir", "env::current_dir"];
        if reads.iter().any(|call| text.contains(call)) {
            readers.insert(path);
        }
    }
    let expected: BTreeSet<String> = ENVIRONMENT_READERS.iter().map(|path| (*path).to_owned()).collect();
    assert_eq!(readers, expected, "the environment is read in one place");
}

#[test]
fn libraries_name_no_command_line_flags() {
    let mut found = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| is_library(path)) {
        // The web interface shows the command that does the same as each action.
        let shows_commands = path.starts_with("crates/homing-web/");
        if shows_commands || FOREIGN_OPTIONS.iter().any(|allowed| path.starts_with(allowed)) {
            continue;
        }
        for (number, line) in without_tests(&text).lines().enumerate() {
            let in_text = line.contains('"') && !line.trim_start().starts_with("//");
            if in_text && (names_a_flag(line) || line.contains("`homing ")) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    report("library messages that name a flag or a command", &found);
}

/// Returns true if a line contains `--` followed by a letter, at the beginning of a word.
fn names_a_flag(line: &str) -> bool {
    let starts = line.match_indices("--").filter(|(at, _)| line[..*at].ends_with([' ', '`', '(', '"']));
    starts.into_iter().any(|(at, _)| line[at + 2..].starts_with(|letter: char| letter.is_ascii_lowercase()))
}

#[test]
fn paths_named_in_documents_exist() {
    let mut missing = Vec::new();
    for (path, text) in files(&[".md"]) {
        let folder = root().join(&path).parent().expect("a file has a folder").to_owned();
        for named in named_paths(&text) {
            let exists = root().join(&named).exists() || folder.join(&named).exists();
            if !exists {
                missing.push(format!("{path}: {named}"));
            }
        }
    }
    report("documents name paths that do not exist", &missing);
}

/// Paths in backticks that begin with a folder of this repository, and the targets of relative links.
fn named_paths(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for word in text.split('`').skip(1).step_by(2) {
        let ours = ["crates/", "docs/", "benches/", "dist/", "fuzz/", "tests/", "schemas/"]
            .iter()
            .any(|top| word.starts_with(top));
        if ours && !word.contains(['*', ' ', '{', '<', '…', '\n']) {
            found.insert(word.split(':').next().unwrap_or(word).to_owned());
        }
    }
    for link in text.split("](").skip(1) {
        let target = link.split(')').next().unwrap_or_default();
        if !target.contains("://") && !target.starts_with(['#', '/']) && !target.is_empty() && !target.contains(' ') {
            found.insert(target.split('#').next().unwrap_or(target).to_owned());
        }
    }
    found
}

/// The ids of the lists in docs/REQUIREMENTS.md and docs/PROMISES.md, and the tests they name.
fn rows(document: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let text = fs::read_to_string(root().join("docs").join(document)).expect("the list exists");
    let mut ids = BTreeSet::new();
    let mut tests = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| id ")) {
        let id = line.trim_start_matches("| ").split(' ').next().unwrap_or_default();
        ids.insert(id.to_lowercase());
        let proof = line.rsplit(" | ").next().unwrap_or_default();
        tests.extend(proof.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    (ids, tests)
}

#[test]
fn requirement_lists_and_tests_name_each_other() {
    let (mut ids, mut named) = rows("REQUIREMENTS.md");
    let (more_ids, more_named) = rows("PROMISES.md");
    ids.extend(more_ids);
    named.extend(more_named);
    named.extend(rows("SECURITY.md").1);
    let existing: BTreeSet<String> =
        sources().iter().flat_map(|(_, text)| text.lines().filter_map(function_name).collect::<Vec<_>>()).collect();
    let missing: Vec<String> = named.iter().filter(|name| !existing.contains(*name)).cloned().collect();
    report("tests that the lists name and that do not exist", &missing);
    let unlisted: Vec<String> =
        existing.iter().filter(|name| id_of(name).is_some_and(|id| !ids.contains(&id))).cloned().collect();
    report("tests whose id is on no list", &unlisted);
}

/// The id that a test's name begins with, such as `r12` or `inv21`.
fn id_of(name: &str) -> Option<String> {
    let (id, _) = name.split_once('_')?;
    let letters: String = id.chars().take_while(char::is_ascii_lowercase).collect();
    let digits = &id[letters.len()..];
    let known = ["r", "inv", "fault", "f", "y", "l", "s", "t", "b", "p", "h", "m"].contains(&letters.as_str());
    (known && !digits.is_empty() && digits.chars().all(|digit| digit.is_ascii_digit())).then(|| id.to_owned())
}
