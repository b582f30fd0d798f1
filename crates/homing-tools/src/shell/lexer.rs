//! A second reading of a shell line, character by character and without a grammar. It knows less than the first; where
//! both agree, neither was fooled.

use std::{iter::Peekable, str::Chars};

use super::{
    Unclear, Word,
    syntax::{check_bare, check_braces},
};

/// Returns the simple commands of `line`, in order.
pub(super) fn commands(line: &str) -> Result<Vec<Vec<Word>>, Unclear> {
    let mut lexer = Lexer { rest: line.chars().peekable(), commands: Vec::new(), words: Vec::new() };
    while let Some(&next) = lexer.rest.peek() {
        lexer.token(next)?;
    }
    lexer.end_command();
    Ok(lexer.commands)
}

struct Lexer<'a> {
    rest: Peekable<Chars<'a>>,
    commands: Vec<Vec<Word>>,
    words: Vec<Word>,
}

impl Lexer<'_> {
    fn token(&mut self, next: char) -> Result<(), Unclear> {
        match next {
            ' ' | '\t' => {
                self.rest.next();
            }
            '\n' | ';' | '(' | ')' | '|' => self.separator(next)?,
            '#' => while self.rest.next_if(|&it| it != '\n').is_some() {},
            '&' => self.ampersand()?,
            '>' | '<' => self.redirect()?,
            _ => {
                let word = self.word()?;
                // `2>` is a redirection of stream 2, not a word.
                let is_stream = !word.is_quoted && matches!(word.text.as_str(), "1" | "2");
                if is_stream && matches!(self.rest.peek(), Some('>' | '<')) {
                    return self.redirect();
                }
                if !word.is_quoted
                    && word.text.bytes().all(|it| it.is_ascii_digit())
                    && matches!(self.rest.peek(), Some('>' | '<'))
                {
                    return Err("it redirects a stream".to_owned());
                }
                self.words.push(word);
            }
        }
        Ok(())
    }

    fn separator(&mut self, next: char) -> Result<(), Unclear> {
        self.rest.next();
        if next == '(' && !self.words.is_empty() {
            return Err("it defines a function".to_owned());
        }
        if matches!(next, '|') {
            self.rest.next_if(|it| matches!(it, '|' | '&'));
        }
        if next == ';' && self.rest.peek() == Some(&';') {
            return Err("it uses `;;`".to_owned());
        }
        self.end_command();
        Ok(())
    }

    fn ampersand(&mut self) -> Result<(), Unclear> {
        self.rest.next();
        match self.rest.peek() {
            Some('&') => {
                self.rest.next();
                self.end_command();
                Ok(())
            }
            Some('>') => self.redirect(),
            _ => Err("it runs a command in the background".to_owned()),
        }
    }

    /// Accepts redirections to `/dev/null` and between streams only.
    fn redirect(&mut self) -> Result<(), Unclear> {
        let refused = || Err("it redirects to or from a file".to_owned());
        let way = self.rest.next();
        if way == Some('>') {
            self.rest.next_if_eq(&'>');
            if self.rest.next_if_eq(&'&').is_some() {
                let stream = self.word()?;
                return if matches!(stream.text.as_str(), "1" | "2") { Ok(()) } else { refused() };
            }
        }
        while self.rest.next_if(|it| matches!(it, ' ' | '\t')).is_some() {}
        let target = self.word()?;
        if target.text == "/dev/null" && !target.is_quoted { Ok(()) } else { refused() }
    }

    fn word(&mut self) -> Result<Word, Unclear> {
        let mut word = Word { text: String::new(), is_pattern: false, is_quoted: false };
        let mut raw = String::new();
        while let Some(&next) = self.rest.peek() {
            match next {
                ' ' | '\t' | '\n' | ';' | '(' | ')' | '|' | '&' | '<' | '>' => break,
                '\'' | '"' => {
                    self.rest.next();
                    let inner = self.until(next)?;
                    word.text.push_str(&if next == '"' { unescape(&inner)? } else { inner });
                    word.is_quoted = true;
                    raw.push('\'');
                }
                next => {
                    self.rest.next();
                    check_bare(next.encode_utf8(&mut [0; 4]))?;
                    word.is_pattern |= matches!(next, '*' | '?' | '[');
                    word.text.push(next);
                    raw.push(next);
                }
            }
        }
        check_braces(&raw)?;
        if self.words.is_empty() && raw.find('=').is_some_and(|at| is_name(&raw[..at])) {
            return Err("it sets a variable".to_owned());
        }
        Ok(word)
    }

    fn until(&mut self, quote: char) -> Result<String, Unclear> {
        let mut inner = String::new();
        while let Some(next) = self.rest.next() {
            match next {
                it if it == quote => return Ok(inner),
                '\\' if quote == '"' => {
                    inner.push(next);
                    inner.extend(self.rest.next());
                }
                it => inner.push(it),
            }
        }
        Err("its quotes are not closed".to_owned())
    }

    fn end_command(&mut self) {
        if !self.words.is_empty() {
            self.commands.push(std::mem::take(&mut self.words));
        }
    }
}

fn is_name(text: &str) -> bool {
    let text = text.strip_suffix('+').unwrap_or(text);
    let text = text.split_once('[').map_or(text, |(name, _)| name);
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')
}

/// Returns double-quoted text as the command receives it; an error if the shell would expand a part of it.
pub(super) fn unescape(inner: &str) -> Result<String, Unclear> {
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(next) = rest.next() {
        match next {
            '$' | '`' => return Err(format!("it uses `{next}` in double quotes, whose value is not known in advance")),
            '\\' => match rest.next() {
                Some(it @ ('$' | '`' | '"' | '\\')) => text.push(it),
                Some('\n') | None => return Err("it continues a line inside quotes".to_owned()),
                Some(it) => text.extend(['\\', it]),
            },
            it => text.push(it),
        }
    }
    Ok(text)
}
