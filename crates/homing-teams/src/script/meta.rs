//! The header of a workflow script, `export const meta = {...}`: a literal that is read without running the script.

use std::ops::Range;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::limit_fields::LimitFields;

/// The deepest nesting of the header.
const MAX_DEPTH: u32 = 32;

/// The header of a script.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) description: String,
    #[serde(rename = "whenToUse")]
    pub(crate) when_to_use: Option<String>,
    /// Limits of the whole script, with the keys of a team file. Claude Code ignores them.
    pub(crate) limits: LimitFields,
}

/// A mistake in the header, with its line and column.
#[derive(Debug, PartialEq)]
pub(crate) struct HeaderError {
    pub(crate) position: (u32, u32),
    pub(crate) message: String,
}

impl Meta {
    /// Reads the header, and returns it with its place in the text: the engine must not see `export`.
    pub(crate) fn parse(text: &str) -> Result<(Self, Range<usize>), HeaderError> {
        let mut reader = LiteralReader { text, at: 0 };
        reader.skip_hashbang();
        reader.skip_blank()?;
        let begin = reader.at;
        for word in ["export", "const", "meta", "="] {
            reader.skip_blank()?;
            if !reader.takes(word) {
                reader.at = begin;
                return Err(reader.error("a script must begin with `export const meta = { name, description }`"));
            }
        }
        reader.skip_blank()?;
        let object = reader.at;
        let value = reader.value(0)?;
        let end = reader.at;
        reader.at = object;
        let meta: Self = serde_json::from_value(value).map_err(|error| reader.error(format!("meta: {error}")))?;
        if meta.description.trim().is_empty() {
            return Err(reader.error("meta.description must be a text that is not empty"));
        }
        Ok((meta, begin..end))
    }
}

/// Reads a JavaScript literal without variables, calls and interpolation.
struct LiteralReader<'a> {
    text: &'a str,
    at: usize,
}

impl LiteralReader<'_> {
    fn error(&self, message: impl Into<String>) -> HeaderError {
        let before = &self.text[..self.at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        HeaderError { position: (number(line), number(column)), message: message.into() }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Skips `word` if it comes next as a whole word.
    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.rest().strip_prefix(word).is_some_and(|after| {
            let is_word = word.ends_with(is_word_char);
            !is_word || !after.starts_with(is_word_char)
        });
        if is_next {
            self.at += word.len();
        }
        is_next
    }

    fn skip_hashbang(&mut self) {
        if self.rest().starts_with("#!") {
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn skip_blank(&mut self) -> Result<(), HeaderError> {
        loop {
            let rest = self.rest();
            let blank =
                rest.len() - rest.trim_start_matches(|char: char| char.is_whitespace() || char == '\u{feff}').len();
            let rest = &rest[blank..];
            let comment = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if let Some(inside) = rest.strip_prefix("/*") {
                inside.find("*/").map(|end| end + 4).ok_or_else(|| self.error("this comment has no end"))?
            } else {
                self.at += blank;
                return Ok(());
            };
            self.at += blank + comment;
        }
    }

    fn value(&mut self, depth: u32) -> Result<Value, HeaderError> {
        if depth > MAX_DEPTH {
            return Err(self.error("meta is nested too deeply"));
        }
        match self.peek() {
            Some('{') => self.object(depth),
            Some('[') => self.array(depth),
            Some('"' | '\'' | '`') => self.string().map(Value::String),
            Some('0'..='9' | '-' | '.') => self.number(),
            _ if self.takes("true") => Ok(Value::Bool(true)),
            _ if self.takes("false") => Ok(Value::Bool(false)),
            _ if self.takes("null") => Ok(Value::Null),
            _ => Err(self.error("meta must be a literal: no variables, calls or spreads")),
        }
    }

    fn object(&mut self, depth: u32) -> Result<Value, HeaderError> {
        let mut object = Map::new();
        self.at += 1;
        loop {
            self.skip_blank()?;
            if self.takes("}") {
                return Ok(Value::Object(object));
            }
            let key = match self.peek() {
                Some('"' | '\'') => self.string()?,
                _ => self.word()?,
            };
            self.skip_blank()?;
            if !self.takes(":") {
                return Err(self.error("meta must be a literal: expected `:` after a key"));
            }
            self.skip_blank()?;
            let value = self.value(depth + 1)?;
            object.insert(key, value);
            self.skip_blank()?;
            if !self.takes(",") && self.peek() != Some('}') {
                return Err(self.error("meta must be a literal: expected `,` or `}`"));
            }
        }
    }

    fn array(&mut self, depth: u32) -> Result<Value, HeaderError> {
        let mut array = Vec::new();
        self.at += 1;
        loop {
            self.skip_blank()?;
            if self.takes("]") {
                return Ok(Value::Array(array));
            }
            array.push(self.value(depth + 1)?);
            self.skip_blank()?;
            if !self.takes(",") && self.peek() != Some(']') {
                return Err(self.error("meta must be a literal: expected `,` or `]`"));
            }
        }
    }

    fn word(&mut self) -> Result<String, HeaderError> {
        let length = self.rest().find(|char| !is_word_char(char)).unwrap_or(self.rest().len());
        if length == 0 {
            return Err(self.error("meta must be a literal: expected a key"));
        }
        let word = self.rest()[..length].to_owned();
        self.at += length;
        Ok(word)
    }

    fn number(&mut self) -> Result<Value, HeaderError> {
        let is_part = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '+' | '_');
        let length = self.rest().find(|char| !is_part(char)).unwrap_or(self.rest().len());
        let text = self.rest()[..length].replace('_', "");
        let text = if text.starts_with('.') { format!("0{text}") } else { text };
        let number = serde_json::from_str(&text).map_err(|_| self.error(format!("`{text}` is not a number")))?;
        self.at += length;
        Ok(number)
    }

    fn string(&mut self) -> Result<String, HeaderError> {
        let quote = self.peek().unwrap_or('"');
        let begin = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let Some(char) = self.peek() else {
                self.at = begin;
                return Err(self.error("this text has no end"));
            };
            if quote == '`' && self.rest().starts_with("${") {
                return Err(self.error("meta must be a literal: no interpolation"));
            }
            self.at += char.len_utf8();
            match char {
                _ if char == quote => return Ok(text),
                '\\' => self.escape(&mut text)?,
                '\n' if quote != '`' => {
                    self.at = begin;
                    return Err(self.error("this text has no end on its line"));
                }
                _ => text.push(char),
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<(), HeaderError> {
        let Some(char) = self.peek() else { return Err(self.error("this text has no end")) };
        self.at += char.len_utf8();
        match char {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            '\n' => (),
            '\\' | '\'' | '"' | '`' | '$' | '/' => text.push(char),
            _ => return Err(self.error(format!("the escape `\\{char}` is not supported in meta"))),
        }
        Ok(())
    }
}

fn is_word_char(char: char) -> bool {
    char.is_alphanumeric() || char == '_' || char == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_read_with_comments_and_every_kind_of_literal() {
        let text = "#!/usr/bin/env workflow\n// first\n/* and */ export const meta = {\n  name: 'find-it', // a name\n  \
                    \"description\": \"it\\'s\",\n  phases: [{title: `A`, n: -1.5, ok: true},],\n  limits: {max_tokens: 500_000},\n}\n";
        let (meta, place) = Meta::parse(text).unwrap();
        assert_eq!((meta.name.as_str(), meta.description.as_str()), ("find-it", "it's"));
        assert_eq!(meta.limits.max_tokens, Some(500_000));
        assert!(text[place.clone()].starts_with("export const") && text[place].ends_with('}'));
    }

    #[test]
    fn header_that_is_not_a_literal_is_refused_with_its_position() {
        for (text, position, message) in [
            ("const x = 1", (1, 1), "must begin with"),
            ("\nexport const meta = {\n  name: NAME }", (3, 9), "no variables"),
            ("export const meta = {name: `a${1}`}", (1, 30), "no interpolation"),
            ("export const meta = {...x}", (1, 22), "expected a key"),
            ("export const meta = {name: 'a}\n", (1, 28), "no end"),
            ("export const meta = {name: 'a'}", (1, 21), "meta.description"),
            ("export const meta = {name: 1, description: 'd'}", (1, 21), "expected a string"),
            ("export const metaphor = {}", (1, 1), "must begin with"),
        ] {
            let error = Meta::parse(text).unwrap_err();
            assert_eq!(error.position, position, "{text}: {}", error.message);
            assert!(error.message.contains(message), "{text}: {}", error.message);
        }
    }

    #[test]
    fn deep_header_is_refused() {
        let text = format!("export const meta = {{a: {}", "[".repeat(100_000));
        assert!(Meta::parse(&text).unwrap_err().message.contains("too deeply"));
    }
}
