//! Reads a shell line with a bash grammar (tree-sitter); only a few kinds of syntax nodes are accepted.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use tree_sitter::{Node, ParseOptions, Parser, Tree};

use super::{Unclear, Word};

/// Maximum nesting; the syntax tree is walked recursively.
const MAX_DEPTH: usize = 60;
/// Time limit for parsing; ordinary lines take microseconds.
const MAX_TIME: Duration = Duration::from_millis(500);

/// Returns the simple commands of `line`, in order.
pub(super) fn commands(line: &str) -> Result<Vec<Vec<Word>>, Unclear> {
    let tree = parse(line).ok_or("cannot parse the command")?;
    let root = tree.root_node();
    if root.has_error() {
        return Err("the command has a syntax error or unsupported syntax".to_owned());
    }
    let mut reader = SyntaxReader { line, commands: Vec::new() };
    reader.statement(root, 0)?;
    covers(line, root)?;
    Ok(reader.commands)
}

fn parse(line: &str) -> Option<Tree> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok()?;
    let until = Instant::now() + MAX_TIME;
    let mut in_time = |_: &tree_sitter::ParseState| {
        if Instant::now() < until { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let options = ParseOptions::new().progress_callback(&mut in_time);
    let bytes = line.as_bytes();
    parser.parse_with_options(&mut |at, _| &bytes[at.min(bytes.len())..], None, Some(options))
}

struct SyntaxReader<'a> {
    line: &'a str,
    commands: Vec<Vec<Word>>,
}

impl SyntaxReader<'_> {
    fn statement(&mut self, node: Node<'_>, depth: usize) -> Result<(), Unclear> {
        if depth > MAX_DEPTH {
            return Err("the command is nested too deeply".to_owned());
        }
        match node.kind() {
            "program" | "list" | "pipeline" | "subshell" | "redirected_statement" => {
                let mut cursor = node.walk();
                node.children(&mut cursor).try_for_each(|child| self.statement(child, depth + 1))
            }
            "command" => self.command(node),
            "file_redirect" => self.redirect(node),
            "comment" | "&&" | "||" | ";" | "|" | "|&" | "(" | ")" | "\n" => Ok(()),
            kind => Err(format!("it uses `{kind}`, which rules cannot check")),
        }
    }

    fn command(&mut self, node: Node<'_>) -> Result<(), Unclear> {
        let mut words = Vec::new();
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "command_name" => words.push(self.word(only_child(child)?)?),
                "file_redirect" => self.redirect(child)?,
                _ => words.push(self.word(child)?),
            }
        }
        self.commands.push(words);
        Ok(())
    }

    fn word(&self, node: Node<'_>) -> Result<Word, Unclear> {
        let mut raw = String::new();
        let mut word = Word { text: String::new(), is_pattern: false, is_quoted: false };
        self.add_to(&mut word, &mut raw, node)?;
        check_braces(&raw)?;
        // Bash reads the digits in `p 0>&2` as a stream, the grammar as an argument.
        let is_number = !word.is_quoted && word.text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && self.line[node.end_byte()..].starts_with(['<', '>']) {
            return Err("it redirects a stream".to_owned());
        }
        Ok(word)
    }

    /// Appends a part of a word. `raw` collects the unquoted text, in which braces have a meaning.
    fn add_to(&self, word: &mut Word, raw: &mut String, node: Node<'_>) -> Result<(), Unclear> {
        let text = &self.line[node.byte_range()];
        match node.kind() {
            "word" | "number" if node.child_count() == 0 => {
                check_bare(text)?;
                word.is_pattern |= text.contains(['*', '?', '[']);
                word.text.push_str(text);
                raw.push_str(text);
            }
            "raw_string" => {
                let inner = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).ok_or("broken quotes")?;
                word.text.push_str(inner);
                word.is_quoted = true;
                raw.push('\'');
            }
            "string" => {
                let mut cursor = node.walk();
                let is_expansion = |child: &Node<'_>| !matches!(child.kind(), "\"" | "string_content");
                if let Some(expansion) = node.children(&mut cursor).find(is_expansion) {
                    return Err(format!("it uses `{}`, whose value is not known in advance", expansion.kind()));
                }
                let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or("broken quotes")?;
                word.text.push_str(&unescape(inner)?);
                word.is_quoted = true;
                raw.push('\'');
            }
            "concatenation" => {
                let mut cursor = node.walk();
                node.children(&mut cursor).try_for_each(|child| self.add_to(word, raw, child))?;
            }
            kind => return Err(format!("it uses `{kind}`, whose value is not known in advance")),
        }
        Ok(())
    }

    /// Accepts redirections to `/dev/null` and between streams; any other one uses a file that no rule has checked.
    fn redirect(&self, node: Node<'_>) -> Result<(), Unclear> {
        let text = &self.line[node.byte_range()];
        let mut cursor = node.walk();
        let pieces: Vec<&str> = node.children(&mut cursor).map(|child| &self.line[child.byte_range()]).collect();
        let pieces = match pieces.as_slice() {
            ["1" | "2", rest @ ..] => rest,
            rest => rest,
        };
        match pieces {
            // The grammar accepts a target on a later line, which bash does not.
            [">" | ">>" | "&>" | "&>>" | "<", "/dev/null"] if !text.contains('\n') => Ok(()),
            [">&", "1" | "2"] if !text.contains([' ', '\t', '\n']) => Ok(()),
            _ => Err("it redirects to or from a file".to_owned()),
        }
    }
}

fn only_child(node: Node<'_>) -> Result<Node<'_>, Unclear> {
    match (node.child_count(), node.child(0)) {
        (1, Some(child)) => Ok(child),
        (_, _) => Err("the program's name is not a plain word".to_owned()),
    }
}

/// Accepts unquoted text only if its characters are literal or part of a file pattern.
fn check_bare(text: &str) -> Result<(), Unclear> {
    let is_literal = |it: char| it.is_alphanumeric() || "_-./:=,+%@^~#*?[]{}".contains(it);
    match text.chars().find(|&it| !is_literal(it)) {
        None => Ok(()),
        Some(special) => Err(format!("it uses `{special}` outside quotes")),
    }
}

/// Returns double-quoted text as the command receives it; an error if the shell would expand a part of it.
fn unescape(inner: &str) -> Result<String, Unclear> {
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(next) = rest.next() {
        match next {
            '$' | '`' => return Err(format!("it uses `{next}` in double quotes, whose value is not known in advance")),
            '\\' => match rest.next() {
                Some(escaped @ ('$' | '`' | '"' | '\\')) => text.push(escaped),
                Some('\n') | None => return Err("it continues a line inside quotes".to_owned()),
                Some(other) => text.extend(['\\', other]),
            },
            other => text.push(other),
        }
    }
    Ok(text)
}

/// Rejects brace expansion (`{a,b}`, `{1..9}`); `stash@{0}` is a plain name.
fn check_braces(raw: &str) -> Result<(), Unclear> {
    let mut rest = raw;
    while let Some(at) = rest.find(['{', '}']) {
        let inner = rest[..at].ends_with('@').then(|| rest[at..].strip_prefix('{')).flatten();
        let end = inner.and_then(|inner| inner.find('}').map(|end| (inner, end)));
        match end {
            Some((inner, end)) if inner[..end].bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') => {
                rest = &inner[end + 1..];
            }
            Some(_) | None => return Err("it uses braces, which may expand to several words".to_owned()),
        }
    }
    Ok(())
}

/// Checks that every character belongs to a node that was read: the grammar may skip text that a shell does not.
fn covers(line: &str, root: Node<'_>) -> Result<(), Unclear> {
    let mut seen = vec![false; line.len()];
    let mut cursor = root.walk();
    let mut more = true;
    while more {
        let node = cursor.node();
        if node.child_count() == 0 || matches!(node.kind(), "string" | "raw_string" | "comment") {
            seen[node.byte_range()].fill(true);
            more = cursor.goto_next_sibling();
        } else {
            more = cursor.goto_first_child();
        }
        while !more && cursor.goto_parent() {
            more = cursor.goto_next_sibling();
        }
    }
    let is_skipped = line.bytes().zip(seen).any(|(byte, seen)| !seen && !matches!(byte, b' ' | b'\t' | b'\n'));
    if is_skipped { Err("a part of it cannot be parsed".to_owned()) } else { Ok(()) }
}
