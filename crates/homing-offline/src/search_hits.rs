//! Parses the output of search tools and ranks the files: definitions before uses, sources before tests, lines with several
//! keywords before lines with one.

use std::collections::BTreeMap;

use crate::keywords::Keyword;

/// A line that a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SearchHit {
    /// Its file.
    pub(super) path: String,
    /// Its number, from 1.
    pub(super) line: u64,
    /// Its text.
    pub(super) text: String,
}

/// The kind of lines to prefer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchAspect {
    /// Everything, definitions first.
    Any,
    /// Definitions.
    Definitions,
    /// Uses.
    Usages,
    /// Tests and documentation.
    Around,
}

/// A file with its best lines.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SearchFindings {
    /// The file.
    pub(super) path: String,
    /// The lines, in the order of the file.
    pub(super) hits: Vec<SearchHit>,
    score: f64,
}

/// Returns the lines in `text` that name a file, a line number and its text: both `path:12: text` and lines below a heading.
pub(super) fn parse(text: &str) -> Vec<SearchHit> {
    let mut heading = None;
    let mut hits = Vec::new();
    for line in text.lines() {
        if let Some(hit) = parse_line(line) {
            hits.push(hit);
        } else if let Some((number, rest)) = numbered(line).filter(|_| heading.is_some()) {
            let path = heading.clone().unwrap_or_default();
            hits.push(SearchHit { path, line: number, text: rest.trim().to_owned() });
        } else if is_like_path(line.trim().trim_end_matches(':')) {
            heading = Some(line.trim().trim_end_matches(':').to_owned());
        }
    }
    hits
}

/// Returns the text inside an explorer's structured answer, because lines inside JSON cannot be parsed; other text unchanged.
pub(super) fn answer_text(text: &str) -> std::borrow::Cow<'_, str> {
    let answer = text.find("\n{").and_then(|at| serde_json::from_str::<serde_json::Value>(text[at..].trim()).ok());
    match answer.as_ref().and_then(|value| value["answer"].as_str()) {
        Some(answer) => answer.to_owned().into(),
        None => text.into(),
    }
}

fn parse_line(line: &str) -> Option<SearchHit> {
    let mut from = 0;
    // A path may contain colons; it ends at the first one that is followed by a number and a separator.
    while let Some(at) = line[from..].find(':').map(|offset| offset + from) {
        let rest = &line[at + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let tail = &rest[digits..];
        if digits > 0 && at > 0 && tail.starts_with([':', '-', ' ', '\t']) {
            let path = line[..at].trim().trim_start_matches("- ").trim_start_matches("./").to_owned();
            let text = tail.trim_start_matches([':', '-', ' ', '\t', '—', '–']).trim().to_owned();
            return is_like_path(&path).then_some(SearchHit { path, line: rest[..digits].parse().ok()?, text });
        }
        from = at + 1;
    }
    None
}

/// Parses `  12: text`, `12→text` and `12\ttext`.
pub(super) fn numbered(line: &str) -> Option<(u64, &str)> {
    let line = line.trim_start();
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = line.get(digits..)?;
    let rest = rest.strip_prefix([':', '→', '|', '\t']).or_else(|| rest.strip_prefix("  "))?;
    Some((line[..digits].parse().ok()?, rest))
}

/// Returns true if `text` looks like a path: no blanks, and an extension or a slash.
pub(super) fn is_like_path(text: &str) -> bool {
    let plain = !text.is_empty() && text.len() < 300 && !text.contains(char::is_whitespace);
    let name = text.rsplit('/').next().unwrap_or_default();
    plain
        && !text.contains("://")
        && (text.contains('/')
            || name.rsplit_once('.').is_some_and(|(stem, end)| {
                !stem.is_empty() && end.len() <= 6 && end.starts_with(|letter: char| letter.is_ascii_alphabetic())
            }))
}

/// Returns the files that match best, each with its best lines.
pub(super) fn rank(hits: &[SearchHit], keywords: &[Keyword], aspect: SearchAspect) -> Vec<SearchFindings> {
    let weights = weights(hits, keywords);
    let mut files: BTreeMap<&str, Vec<(&SearchHit, f64)>> = BTreeMap::new();
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
    // Files far below the best score would only distract from it.
    let best = found.first().map_or(0.0, |file| file.score);
    found.retain(|file| file.score >= best * 0.12);
    found
}

/// Returns the weight of each keyword. A word that occurs everywhere has little weight.
fn weights(hits: &[SearchHit], keywords: &[Keyword]) -> Vec<f64> {
    let count = |keyword: &Keyword| hits.iter().filter(|hit| keyword.fits(&hit.text) > 0).count();
    let all = hits.len() as f64;
    keywords.iter().map(|keyword| (1.0 + all / (1.0 + count(keyword) as f64)).ln()).collect()
}

fn line_score(hit: &SearchHit, keywords: &[Keyword], weights: &[f64], aspect: SearchAspect) -> f64 {
    let fits: Vec<f64> =
        keywords.iter().zip(weights).map(|(keyword, weight)| f64::from(keyword.fits(&hit.text)) * weight).collect();
    // A line with two keywords is more relevant than two lines with one each.
    let together = fits.iter().filter(|fit| **fit > 0.0).count() as f64;
    let words = fits.iter().sum::<f64>() * together.sqrt();
    let is_definition = keywords.iter().any(|keyword| defines(&hit.text, keyword));
    let factor = match (aspect, is_definition) {
        (SearchAspect::Definitions, true) => 4.0,
        (SearchAspect::Usages, true) => 0.3,
        (SearchAspect::Any, true) => 2.0,
        (SearchAspect::Definitions | SearchAspect::Usages | SearchAspect::Any | SearchAspect::Around, _) => 1.0,
    };
    let import_factor = if is_import(&hit.text) { 0.5 } else { 1.0 };
    words * factor * import_factor
}

fn file(
    path: &str,
    mut lines: Vec<(&SearchHit, f64)>,
    keywords: &[Keyword],
    weights: &[f64],
    aspect: SearchAspect,
) -> Option<SearchFindings> {
    if lines.is_empty() {
        return None;
    }
    lines.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.line.cmp(&right.0.line)));
    let best: f64 = lines.iter().take(5).zip([1.0, 0.6, 0.4, 0.3, 0.2]).map(|((_, score), share)| score * share).sum();
    let present =
        |keyword: &&Keyword| lines.iter().any(|(hit, _)| keyword.fits(&hit.text) > 0) || keyword.fits(path) > 0;
    let variety = keywords.iter().filter(present).count() as f64;
    let named: Vec<f64> =
        keywords.iter().zip(weights).map(|(keyword, weight)| f64::from(keyword.fits(path)) * weight).collect();
    let in_name = named.iter().sum::<f64>() * named.iter().filter(|fit| **fit > 0.0).count() as f64;
    let score = (best + in_name * 3.0) * variety * kind_factor(path, aspect);
    let mut hits: Vec<SearchHit> = lines.into_iter().take(3).map(|(hit, _)| hit.clone()).collect();
    hits.sort_by_key(|hit| hit.line);
    Some(SearchFindings { path: path.to_owned(), hits, score })
}

/// Returns the weight of a file by its kind: source, test, documentation, or generated.
fn kind_factor(path: &str, aspect: SearchAspect) -> f64 {
    let lower = format!("/{}", path.to_lowercase());
    let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
    let is_test = has(&["/tests/", "/test/", "_test.", ".test.", "/test_", ".spec.", "_tests.", "/benches/"]);
    let is_doc = has(&["/docs/", ".md", ".rst", ".txt", "/examples/", "changelog"]);
    let is_noise =
        has(&[".lock", "-lock.", ".min.", "/vendor/", "/node_modules/", "/target/", ".svg", ".snap", ".map"]);
    match aspect {
        _ if is_noise => 0.05,
        SearchAspect::Around if is_test || is_doc => 2.0,
        SearchAspect::Around => 0.2,
        SearchAspect::Any | SearchAspect::Definitions | SearchAspect::Usages if is_test => 0.4,
        SearchAspect::Any | SearchAspect::Definitions | SearchAspect::Usages if is_doc => 0.3,
        SearchAspect::Any | SearchAspect::Definitions | SearchAspect::Usages => 1.0,
    }
}

/// Words that begin a definition in common languages.
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

/// Returns true if the line defines something whose name contains the keyword.
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
    // Documentation comments describe code in the words of a question, so they count fully.
    if line.starts_with("///") || line.starts_with("//!") {
        return false;
    }
    let is_module = line.ends_with(';') && line.trim_start_matches("pub ").starts_with("mod ");
    let starts = ["use ", "import ", "from ", "#include", "require(", "//", "#", "*", "pub use "];
    is_module || starts.iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keywords::keywords;

    #[test]
    fn every_layout_of_hits_is_parsed() {
        let hit = |path: &str, line, text: &str| SearchHit { path: path.into(), line, text: text.into() };
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
        let found = rank(&hits, &keywords("where are letters stamped?"), SearchAspect::Any);
        assert_eq!(found[0].path, "src/stamp.rs");
        assert!(found.iter().all(|file| file.path != "Cargo.lock"), "{found:?}");
        let around = rank(&hits, &keywords("where are letters stamped?"), SearchAspect::Around);
        assert!(["tests/stamp.rs", "README.md"].contains(&around[0].path.as_str()), "{around:?}");
    }
}
