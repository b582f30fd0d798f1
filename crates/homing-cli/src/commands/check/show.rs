//! Prints diagnostics for people and for pull requests.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs,
    io::{self, Write},
    path::Path,
};

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use homing::environment;
use homing_core::{
    diagnostic::{Diagnostic, Severity},
    sanitize,
};
use homing_load::{CheckReport, MAX_FILE};

use crate::{columns, terminal};

/// Maximum number of further places of a diagnostic that are named.
const MAX_PLACES: usize = 5;
/// Maximum length of a name at such a place.
const MAX_NAME: usize = 30;

/// Prints each diagnostic with its source line, then a summary. Unless every one is asked for, those of one kind are printed once,
/// with the places of the others below.
pub(super) fn human(report: &CheckReport, teams: usize, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    let renderer = Renderer::styled().term_width(terminal::width().unwrap_or(120));
    let mut source = Source::default();
    let all = || report.diagnostics.iter().map(|diagnostic| (diagnostic, Vec::new())).collect();
    for (diagnostic, others) in if verbose { all() } else { grouped(&report.diagnostics) } {
        writeln!(out, "{}\n", renderer.render(&groups(diagnostic, &others, source.line(diagnostic))))?;
    }
    let count = |severity| report.of(severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let CheckReport { files, agents, skills, ignored, not_searched, .. } = report;
    let elsewhere =
        if *not_searched == 0 { String::new() } else { format!(" ({not_searched} not in a searched folder)") };
    let teams = if teams == 0 { String::new() } else { counted(teams, "team file") + ", " };
    let fixable = match report.diagnostics.iter().filter(|diagnostic| diagnostic.fix.is_some()).count() {
        0 => String::new(),
        fixable => format!(" ({fixable} fixable with --fix)"),
    };
    writeln!(
        out,
        "{}, {}{fixable}: {}{elsewhere}, {}, {teams}{ignored} ignored ({})",
        counted(errors, "error"),
        counted(warnings, "warning"),
        counted(*agents, "agent file"),
        counted(*skills, "skill"),
        counted(*files, "file"),
    )
}

pub(super) fn counted(count: usize, noun: &str) -> String {
    let ending = match (count, noun.ends_with('x')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{count} {noun}{ending}")
}

/// Returns each kind of diagnostic with its first one and the others, in the order of the first ones. Messages and hints of one
/// kind differ in the names that they quote.
fn grouped(diagnostics: &[Diagnostic]) -> Vec<(&Diagnostic, Vec<&Diagnostic>)> {
    let mut groups: Vec<(&Diagnostic, Vec<&Diagnostic>)> = Vec::new();
    let mut known = BTreeMap::new();
    for diagnostic in diagnostics {
        match known.entry((diagnostic.severity, diagnostic.template())) {
            Entry::Occupied(at) => {
                let at: &usize = at.get();
                groups[*at].1.push(diagnostic);
            }
            Entry::Vacant(free) => {
                free.insert(groups.len());
                groups.push((diagnostic, Vec::new()));
            }
        }
    }
    groups
}

/// Names further places of a diagnostic, each with the name that its message quotes, if it is another one.
fn places(first: &Diagnostic, others: &[&Diagnostic]) -> String {
    let quoted = |diagnostic: &Diagnostic| -> Vec<String> {
        diagnostic.message.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let of_first = quoted(first);
    let place = |diagnostic: &&Diagnostic| {
        let line = if diagnostic.line == 0 { String::new() } else { format!(":{}", diagnostic.line) };
        let other = quoted(diagnostic).into_iter().zip(&of_first).find(|(name, first)| name != *first);
        let name = other.map(|(name, _)| format!(" (`{}`)", columns::cut(&name, MAX_NAME))).unwrap_or_default();
        format!("{}{line}{name}", shown(diagnostic))
    };
    let named: Vec<String> = others.iter().take(MAX_PLACES).map(place).collect();
    let more = match others.len().saturating_sub(MAX_PLACES) {
        0 => String::new(),
        more => format!(" and {more} more ({} in all; -v lists them)", others.len() + 1),
    };
    format!("also in {}{more}", named.join(", "))
}

fn groups(diagnostic: &Diagnostic, others: &[&Diagnostic], line: Option<String>) -> Vec<Group<'static>> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Info => Level::INFO,
    };
    let title = level.primary_title(sanitize::inert_line(&diagnostic.message));
    let path = sanitize::inert_line(&shown(diagnostic));
    let mut group = match line {
        Some(line) => {
            let span = span(&line, diagnostic.column);
            let snippet = Snippet::source(line).line_start(diagnostic.line as usize).path(path);
            title.element(snippet.annotation(AnnotationKind::Primary.span(span)))
        }
        None => title.element(Origin::path(path)),
    };
    if let Some(hint) = &diagnostic.hint {
        group = group.element(Level::HELP.message(sanitize::inert_line(hint)));
    }
    if !others.is_empty() {
        group = group.element(Level::NOTE.message(sanitize::inert_line(&places(diagnostic, others))));
    }
    vec![group]
}

/// Returns the path relative to the current folder, as pull requests need it.
pub(super) fn shown(diagnostic: &Diagnostic) -> String {
    let Some(path) = &diagnostic.path else { return String::new() };
    let folder = environment::current_folder().unwrap_or_default();
    let path = path.strip_prefix(&folder).unwrap_or(path);
    path.strip_prefix("./").unwrap_or(path).display().to_string()
}

/// Returns the range in bytes of the word that starts at a column in characters.
fn span(line: &str, column: u32) -> std::ops::Range<usize> {
    let start = line.char_indices().nth(column.saturating_sub(1) as usize).map_or(line.len(), |(at, _)| at);
    let rest = &line[start..];
    let word = rest.find(|c: char| c.is_whitespace() || matches!(c, ',' | ':' | ']')).unwrap_or(rest.len());
    let least = rest.chars().next().map_or(0, char::len_utf8);
    start..start + word.max(least)
}

/// The lines of the last file, because diagnostics come file by file.
#[derive(Default)]
struct Source {
    path: Option<std::sync::Arc<std::path::PathBuf>>,
    lines: Vec<String>,
}

impl Source {
    fn line(&mut self, diagnostic: &Diagnostic) -> Option<String> {
        let path = diagnostic.path.as_ref().filter(|_| diagnostic.line > 0)?;
        if self.path.as_ref() != Some(path) {
            self.lines = lines(path);
            self.path = Some(path.clone());
        }
        self.lines.get(diagnostic.line as usize - 1).cloned()
    }
}

fn lines(path: &Path) -> Vec<String> {
    let is_small = fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_FILE);
    let text = if is_small { fs::read_to_string(path).unwrap_or_default() } else { String::new() };
    text.lines().map(|line| sanitize::inert(line).replace('\t', " ")).collect()
}

/// Prints annotations for pull requests, one line each.
pub(super) fn github(report: &CheckReport, out: &mut dyn Write) -> io::Result<()> {
    for diagnostic in &report.diagnostics {
        let kind = match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "notice",
        };
        let path = shown(diagnostic);
        let mut message = sanitize::inert(&diagnostic.message);
        if let Some(hint) = &diagnostic.hint {
            message.push_str(&format!("\nhint: {}", sanitize::inert(hint)));
        }
        let place = match diagnostic.line {
            0 => String::new(),
            line => format!(",line={line},col={}", diagnostic.column),
        };
        let path = escape(&sanitize::inert_line(&path)).replace(':', "%3A").replace(',', "%2C");
        writeln!(out, "::{kind} file={path}{place}::{}", escape(&message))?;
    }
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}
