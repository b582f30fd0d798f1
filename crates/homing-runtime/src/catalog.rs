//! `Catalog`: many named things with descriptions, listed as briefly as their number demands, and searched by words.
//!
//! Every request carries the specifications of the run's tools, so long lists are paid for in every turn. Tools on demand
//! and the agents that a run may delegate to share this module.

/// Number of entries that a search returns.
const MAX_FOUND: usize = 5;

/// Number of further entries that a search names.
const MAX_ALSO: usize = 20;

/// The longest description in a short listing, in bytes.
const SHORT: usize = 80;

/// One thing of a catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) description: &'a str,
}

/// A list of things by name.
pub(crate) struct Catalog<'a> {
    entries: Vec<Entry<'a>>,
}

/// The form in which a catalog is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Descriptions of up to this many bytes.
    Described(usize),
    /// Names only.
    Names,
    /// Not at all; the model searches.
    Search,
}

/// The result of a search, best first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    pub(crate) best: Vec<Entry<'a>>,
    /// Names of entries that match less well.
    pub(crate) also: Vec<&'a str>,
}

impl<'a> Catalog<'a> {
    pub(crate) fn new(entries: impl Iterator<Item = Entry<'a>>) -> Self {
        Self { entries: entries.collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The most detailed form whose listing has at most `max_bytes`: descriptions of up to `longest` bytes, short ones, names.
    pub(crate) fn detail(&self, longest: usize, max_bytes: usize) -> Detail {
        let forms = [Detail::Described(longest), Detail::Described(SHORT.min(longest)), Detail::Names];
        forms.into_iter().find(|form| self.listing(*form).len() <= max_bytes).unwrap_or(Detail::Search)
    }

    /// The entries as text: one line for each, one line of names, or nothing.
    pub(crate) fn listing(&self, detail: Detail) -> String {
        match detail {
            Detail::Described(longest) => {
                let line = |entry: &Entry<'_>| format!("\n- {}: {}", entry.name, brief(entry.description, longest));
                self.entries.iter().map(line).collect()
            }
            Detail::Names => {
                let names: Vec<&str> = self.entries.iter().map(|entry| entry.name).collect();
                format!(" {}", names.join(", "))
            }
            Detail::Search => String::new(),
        }
    }

    /// Finds entries by words of their names and descriptions. All entries that the query names exactly are among the best.
    pub(crate) fn search(&self, query: &str) -> Found<'a> {
        let query = query.to_lowercase();
        let words: Vec<&str> = words(&query).collect();
        let named: Vec<&str> = query.split([' ', ',', '\n']).filter(|name| !name.is_empty()).collect();
        let mut scored: Vec<(u32, Entry<'a>)> = self
            .entries
            .iter()
            .map(|entry| (score(entry, &words, &named), *entry))
            .filter(|(score, _)| *score > 0)
            .collect();
        // Stable, so that equal entries keep their order and a replay finds the same.
        scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        let exact = scored.iter().filter(|(score, _)| *score >= EXACT).count();
        let rest = scored.split_off(scored.len().min(exact.max(MAX_FOUND)));
        let best = scored.into_iter().map(|(_, entry)| entry).collect();
        Found { best, also: rest.into_iter().take(MAX_ALSO).map(|(_, entry)| entry.name).collect() }
    }
}

/// The score of an entry that the query names exactly.
const EXACT: u32 = 1_000;

fn score(entry: &Entry<'_>, words: &[&str], named: &[&str]) -> u32 {
    let name = entry.name.to_lowercase();
    if named.contains(&name.as_str()) {
        return EXACT;
    }
    let description = entry.description.to_lowercase();
    let of_word = |word: &&str| {
        // Two letters are part of too many words.
        let within = |text: &str| u32::from(word.len() > 2 && text.contains(*word));
        let is_word_of = |text: &str| self::words(text).any(|part| part == *word);
        let in_name = if is_word_of(&name) { 10 } else { 5 * within(&name) };
        let in_text = if is_word_of(&description) { 2 } else { within(&description) };
        in_name + in_text
    };
    words.iter().map(of_word).sum()
}

/// The words of a text, without single letters.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| word.len() > 1)
}

/// The first paragraph of a description on one line, cut after `longest` bytes.
pub(crate) fn brief(description: &str, longest: usize) -> String {
    let line = description.split("\n\n").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() > longest { format!("{}…", &line[..line.floor_char_boundary(longest)]) } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog<'static> {
        let entry = |(name, description)| Entry { name, description };
        let tools = [
            ("mcp__github__create_issue", "Opens an issue in a repository.\n\nLong explanation."),
            ("mcp__github__list_issues", "Lists the issues of a repository."),
            ("mcp__mail__send", "Sends a message, for example about an issue."),
            ("mcp__db__query", "Runs a statement."),
        ];
        Catalog::new(tools.into_iter().map(entry))
    }

    #[test]
    fn search_ranks_names_before_descriptions() {
        let names = |query: &str| catalog().search(query).best.iter().map(|entry| entry.name).collect::<Vec<_>>();
        let all = ["mcp__github__create_issue", "mcp__github__list_issues", "mcp__mail__send"];
        assert_eq!(names("Issue?"), all);
        assert_eq!(names("run a database statement"), ["mcp__db__query"]);
        assert_eq!(names("mcp__db__query, mcp__mail__send")[..2], ["mcp__mail__send", "mcp__db__query"]);
        assert_eq!(names("zebra"), Vec::<&str>::new());
    }

    #[test]
    fn search_loads_a_few_and_names_more() {
        let names: Vec<String> = (0..100).map(|n| format!("tool_{n}")).collect();
        let catalog = Catalog::new(names.iter().map(|name| Entry { name, description: "" }));
        let found = catalog.search("tool");
        assert_eq!((found.best.len(), found.also.len()), (5, 20));
        let all = names[..30].join(" ");
        assert_eq!(catalog.search(&all).best.len(), 30, "everything that is named");
    }

    #[test]
    fn listing_shrinks_until_it_fits() {
        let long = "word ".repeat(100);
        let names: Vec<String> = (0..100).map(|n| format!("agent-{n}")).collect();
        let catalog = Catalog::new(names.iter().map(|name| Entry { name, description: &long }));
        assert_eq!(catalog.detail(400, 100_000), Detail::Described(400));
        assert_eq!(catalog.detail(400, 20_000), Detail::Described(80));
        assert_eq!(catalog.detail(400, 5_000), Detail::Names);
        assert_eq!(catalog.detail(400, 500), Detail::Search);
    }
}
