//! Extracts the words of a question that are worth searching for, with their forms and synonyms.

/// Words that are not worth searching for.
const STOP: &[&str] = &[
    "the",
    "a",
    "an",
    "and",
    "or",
    "of",
    "in",
    "on",
    "at",
    "to",
    "for",
    "from",
    "with",
    "by",
    "is",
    "are",
    "was",
    "were",
    "be",
    "been",
    "do",
    "does",
    "did",
    "done",
    "how",
    "what",
    "where",
    "which",
    "who",
    "why",
    "when",
    "that",
    "this",
    "these",
    "those",
    "it",
    "its",
    "as",
    "if",
    "then",
    "than",
    "so",
    "can",
    "could",
    "should",
    "would",
    "will",
    "must",
    "may",
    "i",
    "we",
    "you",
    "me",
    "us",
    "our",
    "my",
    "your",
    "they",
    "them",
    "there",
    "here",
    "not",
    "no",
    "any",
    "all",
    "each",
    "every",
    "some",
    "into",
    "about",
    "please",
    "find",
    "show",
    "tell",
    "explain",
    "list",
    "look",
    "search",
    "locate",
    "describe",
    "give",
    "get",
    "see",
    "know",
    "want",
    "need",
    "code",
    "codebase",
    "repository",
    "repo",
    "project",
    "file",
    "files",
    "line",
    "lines",
    "place",
    "places",
    "work",
    "works",
    "working",
    "happen",
    "happens",
    "use",
    "uses",
    "used",
    "using",
    "handled",
    "handle",
    "handles",
    "implemented",
    "implement",
    "implementation",
    "defined",
    "define",
    "definition",
    "definitions",
    "usages",
    "located",
    "question",
    "made",
    "make",
    "makes",
    "report",
    "answer",
    "exactly",
    "also",
    "only",
    "up",
];

/// Words that are used for the same thing.
const SYNONYMS: &[&[&str]] = &[
    &["retry", "backoff", "attempt"],
    &["authenticate", "auth", "login", "credential"],
    &["authorize", "permission", "allow"],
    &["configuration", "config", "setting"],
    &["delete", "remove"],
    &["cancel", "abort", "halt"],
    &["parse", "decode"],
    &["write", "save", "persist"],
    &["error", "failure", "exception"],
    &["limit", "budget", "quota"],
    &["timeout", "deadline"],
    &["spawn", "launch"],
    &["price", "cost"],
    &["secret", "credential", "key"],
    &["log", "trace"],
    &["database", "sqlite", "sql"],
];

/// A word to search for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keyword {
    /// The word as it is in the question.
    pub(super) word: String,
    /// The root of the word and of its synonyms, in lower case.
    pub(super) roots: Vec<WordRoot>,
}

/// The beginning that all forms of a word share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WordRoot {
    text: String,
    /// The endings that may follow; empty allows any.
    endings: &'static [&'static str],
    is_whole_word: bool,
    /// The words of a name, which may be joined by `_`, `-`, a capital or nothing.
    parts: Vec<String>,
}

impl WordRoot {
    /// Returns the root of a name such as `max_output`, `Retry-After` or `RunTree`. It matches however the words are joined.
    fn name(name: &str) -> Self {
        let mut parts = vec![String::new()];
        let mut before = ' ';
        for letter in name.chars() {
            let begins = matches!(letter, '_' | '-') || (letter.is_ascii_uppercase() && before.is_ascii_lowercase());
            if begins && parts.last().is_some_and(|part| !part.is_empty()) {
                parts.push(String::new());
            }
            if !matches!(letter, '_' | '-') {
                parts.last_mut().expect("never empty").push(letter.to_ascii_lowercase());
            }
            before = letter;
        }
        Self { text: parts.concat(), endings: &[], is_whole_word: false, parts }
    }

    fn of(word: &str) -> Self {
        let word = word.to_lowercase();
        for ending in ["ies", "ied", "ying", "y"] {
            if let Some(stem) = word.strip_suffix(ending).filter(|stem| stem.len() >= 3) {
                return Self { text: stem.to_owned(), endings: &["y", "ies", "ied"], ..Self::plain("") };
            }
        }
        if word.len() <= 3 {
            return Self { is_whole_word: true, ..Self::plain(&word) };
        }
        for ending in ["ations", "ation", "ings", "ing", "ers", "er", "ed", "es", "s", "e"] {
            if let Some(stem) = word.strip_suffix(ending).filter(|stem| stem.len() >= 4 && !stem.ends_with('s')) {
                return Self::plain(undoubled(stem));
            }
        }
        Self::plain(&word)
    }

    fn plain(text: &str) -> Self {
        Self { text: text.to_owned(), endings: &[], is_whole_word: false, parts: Vec::new() }
    }

    /// Returns a regular expression for the forms of this word.
    fn pattern(&self) -> String {
        match (self.is_whole_word, self.endings.is_empty()) {
            _ if self.parts.len() > 1 => self.parts.join("[-_]?"),
            (true, _) => format!("{}(?:\\b|_)", self.text),
            (false, true) => self.text.clone(),
            (false, false) => format!("{}(?:{})", self.text, self.endings.join("|")),
        }
    }

    /// Returns true if `line` contains a form of this word at the beginning of a word.
    pub(super) fn is_in(&self, line: &str) -> bool {
        if self.parts.len() > 1 {
            return line.to_ascii_lowercase().replace(['_', '-'], "").contains(&self.text);
        }
        let lower = line.to_ascii_lowercase();
        let bytes = line.as_bytes();
        lower.match_indices(&self.text).any(|(at, found)| {
            let before = at.checked_sub(1).map(|index| bytes[index]);
            let begins = before.is_none_or(|byte| !byte.is_ascii_alphabetic())
                || (bytes[at].is_ascii_uppercase() && before.is_some_and(|byte| byte.is_ascii_lowercase()));
            let rest = &lower[at + found.len()..];
            let ends = match (self.is_whole_word, self.endings.is_empty()) {
                (true, _) => !rest.starts_with(|letter: char| letter.is_ascii_alphabetic()),
                (false, true) => true,
                (false, false) => self.endings.iter().any(|ending| rest.starts_with(ending)),
            };
            begins && ends
        })
    }
}

impl Keyword {
    fn of(word: &str) -> Self {
        let own = WordRoot::of(word);
        let mut roots = vec![own.clone()];
        let related = SYNONYMS.iter().filter(|row| WordRoot::of(row[0]).text == own.text || row.contains(&word));
        for other in related.flat_map(|row| row.iter()) {
            let root = WordRoot::of(other);
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
        Self { word: word.to_owned(), roots }
    }

    /// Returns a regular expression for this word and its synonyms at the beginning of words, including inside camelCase.
    pub(super) fn pattern(&self) -> String {
        let forms = self.roots.iter().map(WordRoot::pattern).collect::<Vec<_>>().join("|");
        let camel = self.roots.iter().map(|root| capitalised(&root.pattern())).collect::<Vec<_>>().join("|");
        format!("(?:\\b|_)(?i:{forms})|(?:{camel})")
    }

    /// Returns a regular expression for the forms of this word and its first synonyms.
    pub(super) fn forms(&self) -> String {
        self.roots.iter().take(3).map(WordRoot::pattern).collect::<Vec<_>>().join("|")
    }

    /// Rates `line`: 2 if it contains the word itself, 1 for a synonym, otherwise 0.
    pub(super) fn fits(&self, line: &str) -> u32 {
        match self.roots.iter().position(|root| root.is_in(line)) {
            Some(0) => 2,
            Some(_) => 1,
            None => 0,
        }
    }
}

fn undoubled(stem: &str) -> &str {
    let bytes = stem.as_bytes();
    let is_doubled = bytes.len() > 4 && bytes[bytes.len() - 1] == bytes[bytes.len() - 2];
    if is_doubled && !stem.ends_with("ll") && !stem.ends_with("ss") { &stem[..stem.len() - 1] } else { stem }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_ascii_uppercase().to_string() + chars.as_str()).unwrap_or_default()
}

/// Returns at most five words of a question that are worth searching for, names first.
pub(super) fn keywords(question: &str) -> Vec<Keyword> {
    let mut found: Vec<(u32, Keyword)> = Vec::new();
    let tokens = question.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'));
    for token in tokens {
        let token = token.trim_matches(['-', '_']);
        let lower = token.to_lowercase();
        if token.len() < 2 || STOP.contains(&lower.as_str()) || token.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let is_name = token.contains(['_', '-']) || token.chars().skip(1).any(|letter| letter.is_ascii_uppercase());
        let keyword = if is_name {
            Keyword { word: token.to_owned(), roots: vec![WordRoot::name(token)] }
        } else {
            Keyword::of(&lower)
        };
        let weight = if is_name { 100 } else { u32::try_from(lower.len().min(12)).unwrap_or(0) };
        if !found.iter().any(|(_, known)| known.roots[0] == keyword.roots[0]) {
            found.push((weight, keyword));
        }
    }
    // Names come first; other words keep the order of the question.
    found.sort_by_key(|(weight, _)| std::cmp::Reverse(u32::from(*weight >= 100)));
    found.into_iter().map(|(_, keyword)| keyword).take(5).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(question: &str) -> Vec<String> {
        keywords(question).into_iter().map(|keyword| keyword.word).collect()
    }

    #[test]
    fn keywords_omit_common_words() {
        assert_eq!(words("where are warm letters stamped?"), ["warm", "letters", "stamped"]);
        assert_eq!(words("How does `max_output` get to the provider?"), ["max_output", "provider"]);
        assert_eq!(words("Explain this code please"), Vec::<String>::new());
    }

    #[test]
    fn name_matches_however_its_words_are_joined() {
        for name in ["Retry-After", "retry_after", "RetryAfter"] {
            let keyword = &keywords(name)[0];
            for line in ["\"retry-after\"", "let retry_after = 1", "struct RetryAfter;", "RETRY_AFTER"] {
                assert_eq!(keyword.fits(line), 2, "{name} in {line}");
            }
            assert_eq!(keyword.fits("after a retry"), 0);
        }
    }

    #[test]
    fn all_forms_of_a_word_match() {
        let retried = Keyword::of("retried");
        for line in ["fn retry()", "let retries = 3;", "has_retried", "RetryPolicy", "maxRetries"] {
            assert_eq!(retried.fits(line), 2, "{line}");
        }
        assert_eq!(retried.fits("with exponential backoff"), 1);
        for line in ["retrieve(x)", "locally", "a symmetry"] {
            assert_eq!(retried.fits(line), 0, "{line}");
        }
        let calls = Keyword::of("calls");
        assert_eq!(calls.fits("locally recall"), 0);
        assert_eq!(calls.fits("modelCall(x)"), 2);
        assert_eq!(Keyword::of("stopping").fits("fn stop_all()"), 2);
        assert_eq!(Keyword::of("permissions").fits("permission denied"), 2);
    }
}
