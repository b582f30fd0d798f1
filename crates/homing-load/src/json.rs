//! JSON to [`Node`]s, with comments and trailing commas allowed, as the field's configuration files have them.
//! Knows JSON and nothing of agents.

use crate::node::{Node, NodeEntry, NodeKind, Position};

const MAX_DEPTH: usize = 64;

/// Why a text is not JSON.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonError {
    pub(crate) spot: Position,
    pub(crate) message: String,
}

/// Reads one JSON value.
pub(crate) fn parse(text: &str) -> Result<Node, JsonError> {
    let mut reader = JsonReader { rest: text, spot: Position { line: 1, column: 1 }, depth: 0 };
    let node = reader.value()?;
    reader.skip_blank()?;
    match reader.rest.is_empty() {
        true => Ok(node),
        false => Err(reader.error("there is more text after the value")),
    }
}

struct JsonReader<'a> {
    rest: &'a str,
    spot: Position,
    depth: usize,
}

impl JsonReader<'_> {
    fn error(&self, message: impl Into<String>) -> JsonError {
        JsonError { spot: self.spot, message: message.into() }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        match next {
            '\n' => self.spot = Position { line: self.spot.line + 1, column: 1 },
            _ => self.spot.column += 1,
        }
        Some(next)
    }

    fn skip_blank(&mut self) -> Result<(), JsonError> {
        loop {
            if self.peek().is_some_and(char::is_whitespace) {
                self.next();
            } else if self.rest.starts_with("//") {
                while self.peek().is_some_and(|it| it != '\n') {
                    self.next();
                }
            } else if self.rest.starts_with("/*") {
                let end = self.rest.find("*/").ok_or_else(|| self.error("a comment is never closed"))?;
                let left = self.rest.len() - end - 2;
                while self.rest.len() > left {
                    self.next();
                }
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self) -> Result<Node, JsonError> {
        self.skip_blank()?;
        let spot = self.spot;
        let kind = match self.peek() {
            Some('{') => self.nested(Self::map)?,
            Some('[') => self.nested(Self::list)?,
            Some('"') => NodeKind::Quoted(self.string()?),
            Some(_) => NodeKind::Plain(self.word()?),
            None => return Err(self.error("the text ends where a value should stand")),
        };
        Ok(Node::new(spot, kind))
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<NodeKind, JsonError>) -> Result<NodeKind, JsonError> {
        if self.depth >= MAX_DEPTH {
            return Err(self.error(format!("nested more than {MAX_DEPTH} levels deep")));
        }
        self.depth += 1;
        self.next();
        let kind = read(self);
        self.depth -= 1;
        kind
    }

    fn list(&mut self) -> Result<NodeKind, JsonError> {
        let mut items = Vec::new();
        while !self.ends(']')? {
            items.push(self.value()?);
            self.separator(']')?;
        }
        Ok(NodeKind::List(items))
    }

    fn map(&mut self) -> Result<NodeKind, JsonError> {
        let mut entries = Vec::new();
        while !self.ends('}')? {
            let spot = self.spot;
            if self.peek() != Some('"') {
                return Err(self.error("a key in double quotes should stand here"));
            }
            let key = self.string()?;
            self.skip_blank()?;
            if self.next() != Some(':') {
                return Err(self.error("a `:` should stand after the key"));
            }
            entries.push(NodeEntry { key, spot, value: self.value()? });
            self.separator('}')?;
        }
        Ok(NodeKind::Map(entries))
    }

    fn ends(&mut self, close: char) -> Result<bool, JsonError> {
        self.skip_blank()?;
        let ends = self.peek() == Some(close);
        if ends {
            self.next();
        }
        Ok(ends)
    }

    fn separator(&mut self, close: char) -> Result<(), JsonError> {
        self.skip_blank()?;
        match self.peek() {
            Some(',') => {
                self.next();
                Ok(())
            }
            Some(it) if it == close => Ok(()),
            Some(_) | None => Err(self.error(format!("a `,` or `{close}` should stand here"))),
        }
    }

    /// serde_json knows the escapes; this finds where the string ends.
    fn string(&mut self) -> Result<String, JsonError> {
        let (start, text) = (self.spot, self.rest);
        self.next();
        loop {
            match self.next() {
                Some('"') => break,
                Some('\\') => _ = self.next(),
                Some(_) => (),
                None => return Err(JsonError { spot: start, message: "a string is never closed".into() }),
            }
        }
        let written = &text[..text.len() - self.rest.len()];
        serde_json::from_str(written)
            .map_err(|error| JsonError { spot: start, message: format!("bad string: {error}") })
    }

    fn word(&mut self) -> Result<String, JsonError> {
        let end = self.rest.find(|it: char| it.is_whitespace() || ",]}:[{\"".contains(it)).unwrap_or(self.rest.len());
        let word = self.rest[..end].to_owned();
        let known = matches!(word.as_str(), "null" | "true" | "false");
        if !known && serde_json::from_str::<serde_json::Number>(&word).is_err() {
            return Err(self.error(format!("`{word}` is not a JSON value")));
        }
        for _ in word.chars() {
            self.next();
        }
        Ok(word)
    }
}
