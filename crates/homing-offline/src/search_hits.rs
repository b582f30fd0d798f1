//! Reads what search tools print and ranks it: definitions over uses, sources over tests, many words over one.

use std::collections::BTreeMap;

use crate::keywords::Keyword;

/// A line that a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    /// Its file.
    pub(super) path: String,
    /// Its number, from 1.
    pub(super) line: u64,
    /// Its text.
    pub(super) text: String,
}

/// What kind of places are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aspect {
    /// Everything, definitions first.
    Any,
    /// Where it is defined.
    Definitions,
    /// Where it is used.
    Usages,
    /// Tests and documentation.
    Around,
}

/// A file with the lines that speak for it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SearchFindings {
    /// The file.
    pub(super) path: String,
    /// Its best lines, in the order of the file.
    pub(super) hits: Vec<Hit>,
    score: f64,
}

/// The lines in `text` that name a file, a line and what stands there; both `path:12: text` and lines under a heading.
pub(super) fn parse(text: &str) -> Vec<Hit> {
    let mut heading = None;
    let mut hits = Vec::new();
    for line in text.lines() {
        if let Some(hit) = parse_line(line) {
            hits.push(hit);
        } else if let Some((number, rest)) = numbered(line).filter(|_| heading.is_some()) {
            let path = heading.clone().unwrap_or_default();
            hits.push(Hit { path, line: number, text: rest.trim().to_owned() });
        } else if looks_like_a_path(line.trim().trim_end_matches(':')) {
            heading = Some(line.trim().trim_end_matches(':').to_owned());
        }
    }
    hits
}

/// An explorer's structured answer as the words in it: a line that stands in JSON is no line yet.
pub(super) fn plain(text: &str) -> std::borrow::Cow<'_, str> {
    let answer = text.find("\n{").and_then(|at| serde_json::from_str::<serde_json::Value>(text[at..].trim()).ok());
    match answer.as_ref().and_then(|it| it["answer"].as_str()) {
        Some(words) => words.to_owned().into(),
        None => text.into(),
    }
}

fn parse_line(line: &str) -> Option<Hit> {
    let mut from = 0;
    // A path may contain colons; the first that is followed by a number and a separator ends it.
    while let Some(at) = line[from..].find(':').map(|it| it + from) {
        let rest = &line[at + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let tail = &rest[digits..];
        if digits > 0 && at > 0 && tail.starts_with([':', '-', ' ', '\t']) {
            let path = line[..at].trim().trim_start_matches("- ").trim_start_matches("./").to_owned();
            let text = tail.trim_start_matches([':', '-', ' ', '\t', '—', '–']).trim().to_owned();
            return looks_like_a_path(&path).then_some(Hit { path, line: rest[..digits].parse().ok()?, text });
        }
        from = at + 1;
    }
    None
}

/// `  12: text`, `12→text`, `12\ttext`.
pub(super) fn numbered(line: &str) -> Option<(u64, &str)> {
    let line = line.trim_start();
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = line.get(digits..)?;
    let rest = rest.strip_prefix([':', '→', '|', '\t']).or_else(|| rest.strip_prefix("  "))?;
    Some((line[..digits].parse().ok()?, rest))
}

/// Paths have no blanks and an ending or a slash.
pub(super) fn looks_like_a_path(text: &str) -> bool {
    let plain = !text.is_empty() && text.len() < 300 && !text.contains(char::is_whitespace);
    let name = text.rsplit('/').next().unwrap_or_default();
    plain
        && !text.contains("://")
        && (text.contains('/')
            || name.rsplit_once('.').is_some_and(|(stem, end)| {
                !stem.is_empty() && end.len() <= 6 && end.starts_with(|it: char| it.is_ascii_alphabetic())
            }))
}

/// The files that fit best, each with its best lines.
pub(super) fn rank(hits: &[Hit], keywords: &[Keyword], aspect: Aspect) -> Vec<SearchFindings> {
    let weights = weights(hits, keywords);
    let mut files: BTreeMap<&str, Vec<(&Hit, f64)>> = BTreeMap::new();
    for hit in hits {
        let score = line_score(hit, keywords, &weights, aspect);
        let lines = files.entry(&hit.path).or_default();
        if score > 0.0 && !lines.iter().any(|(known, _)| known.line == hit.line) {
            lines.push((hit, score));
        }
    }
    let mut found: Vec<SearchFindings> =
        files.into_iter().filter_map(|(path, lines)| file(path, lines, keywords, &weights, aspect)).collect();
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.path.cmp(&b.path)));
    // What is far behind the best only buries it.
    let best = found.first().map_or(0.0, |it| it.score);
    found.retain(|it| it.score >= best * 0.12);
    found
}

/// A word that stands everywhere says little.
fn weights(hits: &[Hit], keywords: &[Keyword]) -> Vec<f64> {
    let count = |keyword: &Keyword| hits.iter().filter(|hit| keyword.fits(&hit.text) > 0).count();
    let all = hits.len() as f64;
    keywords.iter().map(|keyword| (1.0 + all / (1.0 + count(keyword) as f64)).ln()).collect()
}

fn line_score(hit: &Hit, keywords: &[Keyword], weights: &[f64], aspect: Aspect) -> f64 {
    let fits: Vec<f64> =
        keywords.iter().zip(weights).map(|(keyword, weight)| f64::from(keyword.fits(&hit.text)) * weight).collect();
    // A line with two of the words says more than two lines with one each.
    let together = fits.iter().filter(|it| **it > 0.0).count() as f64;
    let words = fits.iter().sum::<f64>() * together.sqrt();
    let defines = keywords.iter().any(|keyword| defines(&hit.text, keyword));
    let factor = match (aspect, defines) {
        (Aspect::Definitions, true) => 4.0,
        (Aspect::Usages, true) => 0.3,
        (Aspect::Any, true) => 2.0,
        (Aspect::Definitions | Aspect::Usages | Aspect::Any | Aspect::Around, _) => 1.0,
    };
    let comment = if is_import(&hit.text) { 0.5 } else { 1.0 };
    words * factor * comment
}

fn file(
    path: &str,
    mut lines: Vec<(&Hit, f64)>,
    keywords: &[Keyword],
    weights: &[f64],
    aspect: Aspect,
) -> Option<SearchFindings> {
    if lines.is_empty() {
        return None;
    }
    lines.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.line.cmp(&b.0.line)));
    let best: f64 = lines.iter().take(5).zip([1.0, 0.6, 0.4, 0.3, 0.2]).map(|((_, score), share)| score * share).sum();
    let present =
        |keyword: &&Keyword| lines.iter().any(|(hit, _)| keyword.fits(&hit.text) > 0) || keyword.fits(path) > 0;
    let variety = keywords.iter().filter(present).count() as f64;
    let named: Vec<f64> = keywords.iter().zip(weights).map(|(it, weight)| f64::from(it.fits(path)) * weight).collect();
    let in_name = named.iter().sum::<f64>() * named.iter().filter(|it| **it > 0.0).count() as f64;
    let score = (best + in_name * 3.0) * variety * kind_factor(path, aspect);
    let mut hits: Vec<Hit> = lines.into_iter().take(3).map(|(hit, _)| hit.clone()).collect();
    hits.sort_by_key(|hit| hit.line);
    Some(SearchFindings { path: path.to_owned(), hits, score })
}

/// Sources, tests, documentation, or what nobody wants to read.
fn kind_factor(path: &str, aspect: Aspect) -> f64 {
    let lower = format!("/{}", path.to_lowercase());
    let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
    let is_test = has(&["/tests/", "/test/", "_test.", ".test.", "/test_", ".spec.", "_tests.", "/benches/"]);
    let is_doc = has(&["/docs/", ".md", ".rst", ".txt", "/examples/", "changelog"]);
    let is_noise =
        has(&[".lock", "-lock.", ".min.", "/vendor/", "/node_modules/", "/target/", ".svg", ".snap", ".map"]);
    match aspect {
        _ if is_noise => 0.05,
        Aspect::Around if is_test || is_doc => 2.0,
        Aspect::Around => 0.2,
        Aspect::Any | Aspect::Definitions | Aspect::Usages if is_test => 0.4,
        Aspect::Any | Aspect::Definitions | Aspect::Usages if is_doc => 0.3,
        Aspect::Any | Aspect::Definitions | Aspect::Usages => 1.0,
    }
}

/// Words that begin a definition in the common languages.
pub(super) const DEFINERS: &[&str] = &[
    "fn",
    "def",
    "class",
    "struct",
    "enum",
    "trait",
    "interface",
    "func",
    "function",
    "type",
    "impl",
    "module",
    "mod",
    "const",
    "static",
    "macro_rules!",
    "sub",
    "proc",
    "object",
    "record",
    "protocol",
    "union",
];

/// Whether the line defines something whose name has the word.
fn defines(line: &str, keyword: &Keyword) -> bool {
    let mut words = line.split_whitespace().take(8);
    while let Some(word) = words.next() {
        if DEFINERS.contains(&word) {
            return words.next().is_some_and(|name| keyword.fits(name.split('(').next().unwrap_or_default()) == 2);
        }
    }
    false
}

fn is_import(line: &str) -> bool {
    // What documents the code says in words what the question asks in words.
    if line.starts_with("///") || line.starts_with("//!") {
        return false;
    }
    let names_a_file = line.ends_with(';') && line.trim_start_matches("pub ").starts_with("mod ");
    let starts = ["use ", "import ", "from ", "#include", "require(", "//", "#", "*", "pub use "];
    names_a_file || starts.iter().any(|it| line.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keywords::keywords;

    #[test]
    fn every_layout_of_hits_is_read() {
        let hit = |path: &str, line, text: &str| Hit { path: path.into(), line, text: text.into() };
        assert_eq!(parse("src/a.rs:12: fn stamp()"), [hit("src/a.rs", 12, "fn stamp()")]);
        assert_eq!(parse("./src/a.rs:12:    fn stamp()"), [hit("src/a.rs", 12, "fn stamp()")]);
        assert_eq!(parse("- src/a.rs:12 — fn stamp()"), [hit("src/a.rs", 12, "fn stamp()")]);
        assert_eq!(
            parse("src/a.rs\n  12: fn stamp()\n  14: x\n"),
            [hit("src/a.rs", 12, "fn stamp()"), hit("src/a.rs", 14, "x")]
        );
        assert_eq!(parse("src/a.rs:\n12\tfn stamp()"), [hit("src/a.rs", 12, "fn stamp()")]);
        assert!(parse("Nothing at 12:30 today\nhttp://x.y:80/ z").is_empty());
    }

    #[test]
    fn definitions_in_sources_come_first() {
        let hits = parse(
            "tests/stamp.rs:3: fn stamps_are_counted()\n\
             src/client.rs:90: // we stamp here\n\
             src/stamp.rs:10: pub fn stamp_letter(letter: &Letter)\n\
             Cargo.lock:5: name = \"stamp\"\n\
             README.md:7: Letters are stamped.\n",
        );
        let found = rank(&hits, &keywords("where are letters stamped?"), Aspect::Any);
        assert_eq!(found[0].path, "src/stamp.rs");
        assert!(found.iter().all(|it| it.path != "Cargo.lock"), "{found:?}");
        let around = rank(&hits, &keywords("where are letters stamped?"), Aspect::Around);
        assert!(["tests/stamp.rs", "README.md"].contains(&around[0].path.as_str()), "{around:?}");
    }
}
