//! OpenCode's wildcards: `*` matches any text, `?` any character, and a trailing ` *` also matches nothing at all.
//! Comparisons of two patterns are exact for short patterns and err on the restrictive side for long ones.

/// The maximum length of patterns that are compared exactly, because the cost grows with the product of their lengths.
const MAX_COMPARED: usize = 96;

/// Returns true if `pattern` matches every text.
pub(crate) fn is_everything(pattern: &str) -> bool {
    !pattern.is_empty() && pattern.bytes().all(|byte| byte == b'*')
}

/// Returns true if `pattern` matches the literal `text`.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let text: Vec<Token> = text.chars().map(Token::Char).collect();
    forms(pattern).iter().any(|form| contains(form, &text))
}

/// Returns true if `outer` certainly matches every text that `inner` matches.
pub(crate) fn covers(outer: &str, inner: &str) -> bool {
    if outer == inner || is_everything(outer) {
        return true;
    }
    if outer.len().max(inner.len()) > MAX_COMPARED {
        return false;
    }
    let outer = forms(outer);
    forms(inner).iter().all(|inner| outer.iter().any(|outer| contains(outer, inner)))
}

/// Returns true if there may be a text that both match.
pub(crate) fn overlap(a: &str, b: &str) -> bool {
    if a.len().max(b.len()) > MAX_COMPARED {
        return true;
    }
    let others = forms(b);
    forms(a).iter().any(|a| others.iter().any(|b| meet(a, b)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Char(char),
    /// Any one character.
    One,
    /// Any text.
    Any,
}

fn tokens(pattern: &str) -> Vec<Token> {
    let token = |character: char| match character {
        '*' => Token::Any,
        '?' => Token::One,
        // OpenCode treats Windows separators like slashes.
        '\\' => Token::Char('/'),
        other => Token::Char(other),
    };
    pattern.chars().map(token).collect()
}

/// The pattern, and the pattern without its trailing ` *` if it has one.
fn forms(pattern: &str) -> Vec<Vec<Token>> {
    let bare = pattern.strip_suffix(" *").map(tokens);
    bare.into_iter().chain([tokens(pattern)]).collect()
}

/// Returns true if `outer` matches `inner`, where a wildcard of `inner` needs an equal or wider one in `outer`.
fn contains(outer: &[Token], inner: &[Token]) -> bool {
    // `reached[j]`: the tokens of `outer` so far match the first `j` of `inner`.
    let mut reached = vec![false; inner.len() + 1];
    reached[0] = true;
    for token in outer {
        let mut next = vec![false; inner.len() + 1];
        for j in 0..=inner.len() {
            next[j] = match token {
                Token::Any => reached[j] || (j > 0 && next[j - 1]),
                Token::One => j > 0 && reached[j - 1] && inner[j - 1] != Token::Any,
                Token::Char(_) => j > 0 && reached[j - 1] && inner[j - 1] == *token,
            };
        }
        reached = next;
    }
    reached[inner.len()]
}

/// Returns true if a text exists that both match.
fn meet(a: &[Token], b: &[Token]) -> bool {
    let mut reached = vec![false; b.len() + 1];
    for i in 0..=a.len() {
        let mut next = vec![false; b.len() + 1];
        for j in 0..=b.len() {
            let before = |tokens: &[Token], at: usize| at.checked_sub(1).map(|index| tokens[index]);
            next[j] = match (before(a, i), before(b, j)) {
                (None, None) => true,
                (None, Some(b)) => b == Token::Any && next[j - 1],
                (Some(a), None) => a == Token::Any && reached[0],
                (Some(Token::Any), Some(_)) | (Some(_), Some(Token::Any)) => reached[j] || next[j - 1],
                (Some(a), Some(b)) => reached[j - 1] && (a == b || a == Token::One || b == Token::One),
            };
        }
        reached = next;
    }
    reached[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_star_matches_without_its_space() {
        assert!(matches("git *", "git") && matches("git *", "git log -p") && !matches("git *", "gitk"));
        assert!(matches("*", "") && matches("a?c", "abc") && !matches("a?c", "ac"));
        assert!(matches("src/*.rs", "src/a/b.rs"));
    }

    #[test]
    fn wider_patterns_cover_narrower_ones() {
        for (outer, inner) in [("*", "x*"), ("git *", "git push *"), ("git *", "git"), ("a*c", "a?c"), ("g*", "git *")]
        {
            assert!(covers(outer, inner), "{outer} covers {inner}");
        }
        for (outer, inner) in [("git push *", "git *"), ("a?c", "a*c"), ("git*x", "git *"), ("git", "git *")] {
            assert!(!covers(outer, inner), "{outer} does not cover {inner}");
        }
    }

    #[test]
    fn patterns_overlap_when_one_text_matches_both() {
        for (a, b) in [("git *", "* push"), ("a*", "*b"), ("git", "git *"), ("*", "x"), ("?x", "y*")] {
            assert!(overlap(a, b) && overlap(b, a), "{a} and {b}");
        }
        for (a, b) in [("git *", "ls *"), ("a*", "b*"), ("?", "ab"), ("*.md", "*.rs")] {
            assert!(!overlap(a, b) && !overlap(b, a), "{a} and {b}");
        }
    }
}
