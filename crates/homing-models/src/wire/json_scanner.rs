//! [`Scanner`]: reads JSON in place, strictly and without allocating. It gives up instead of reporting errors.

use std::borrow::Cow;

use super::EventText;

/// A JSON string whose escapes are not checked yet.
#[derive(Clone, Copy)]
pub(super) struct JsonStr<'a> {
    /// With its quotes.
    pub(super) quoted: &'a str,
    has_escapes: bool,
}

impl<'a> JsonStr<'a> {
    /// The text; `None` if an escape is wrong.
    pub(super) fn read(self) -> Option<Cow<'a, str>> {
        if !self.has_escapes {
            return Some(Cow::Borrowed(&self.quoted[1..self.quoted.len() - 1]));
        }
        let inner = &self.quoted[1..self.quoted.len() - 1];
        unescaped(inner)
            .map(Cow::Owned)
            .or_else(|| serde_json::from_str::<EventText<'a>>(self.quoted).ok().map(|text| text.0))
    }
}

/// Reads a text with escapes of one letter; `None` if it has others.
fn unescaped(text: &str) -> Option<String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        out.push(match rest.as_bytes().get(at + 1)? {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            letter @ (b'"' | b'\\' | b'/') => char::from(*letter),
            _ => return None,
        });
        rest = &rest[at + 2..];
    }
    out.push_str(rest);
    Some(out)
}

/// The bytes that end a part of a string without escapes: the quote, an escape, and those that a string must not contain.
static ENDS_PLAIN_TEXT: [bool; 256] = {
    let mut ends = [false; 256];
    let mut control = 0;
    while control < 0x20 {
        ends[control] = true;
        control += 1;
    }
    ends[b'"' as usize] = true;
    ends[b'\\' as usize] = true;
    ends
};

/// Nesting of ignored values that is followed.
const MAX_DEPTH: usize = 16;

/// Reads JSON strictly, and gives up with `None`.
pub(super) struct Scanner<'a> {
    text: &'a str,
    pub(super) at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The text that was not read yet.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Reads this byte, after white space.
    fn eat(&mut self, byte: u8) -> Option<()> {
        self.space();
        self.take(byte)
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    /// Reads an object; `read` must read the value of each key.
    #[inline]
    pub(super) fn members(&mut self, read: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.open_object()?;
        if self.take(b'}').is_some() {
            return Some(());
        }
        self.rest_of_members(read)
    }

    pub(super) fn open_object(&mut self) -> Option<()> {
        self.eat(b'{')?;
        self.space();
        Some(())
    }

    /// Reads the members of an object from a key on.
    #[inline]
    pub(super) fn rest_of_members(&mut self, mut read: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        loop {
            let key = self.plain()?;
            self.eat(b':')?;
            read(self, key)?;
            self.space();
            if self.take(b',').is_none() {
                return self.take(b'}');
            }
        }
    }

    /// Reads an array; `read` must read each element.
    #[inline]
    pub(super) fn elements(&mut self, mut read: impl FnMut(&mut Self, usize) -> Option<()>) -> Option<()> {
        self.eat(b'[')?;
        self.space();
        if self.take(b']').is_some() {
            return Some(());
        }
        for at in 0.. {
            read(self, at)?;
            self.space();
            if self.take(b',').is_none() {
                break;
            }
        }
        self.take(b']')
    }

    /// Reads a string.
    pub(super) fn text(&mut self) -> Option<JsonStr<'a>> {
        self.eat(b'"')?;
        let (start, mut has_escapes) = (self.at - 1, false);
        loop {
            let rest = self.text.as_bytes().get(self.at..)?;
            self.at += rest.iter().position(|byte| ENDS_PLAIN_TEXT[usize::from(*byte)])?;
            match self.text.as_bytes()[self.at] {
                b'"' => break,
                b'\\' => {
                    has_escapes = true;
                    self.at += 2;
                }
                _ => return None,
            }
        }
        self.at += 1;
        Some(JsonStr { quoted: self.text.get(start..self.at)?, has_escapes })
    }

    /// Reads a string without escapes.
    pub(super) fn plain(&mut self) -> Option<&'a str> {
        let text = self.text()?;
        (!text.has_escapes).then(|| &text.quoted[1..text.quoted.len() - 1])
    }

    fn is_null(&mut self) -> bool {
        self.space();
        self.peek() == Some(b'n')
    }

    pub(super) fn null(&mut self) -> Option<()> {
        self.space();
        self.word("null")
    }

    pub(super) fn plain_or_null(&mut self) -> Option<Option<&'a str>> {
        if self.is_null() { self.null().map(|()| None) } else { self.plain().map(Some) }
    }

    pub(super) fn text_or_null(&mut self) -> Option<Option<JsonStr<'a>>> {
        if self.is_null() { self.null().map(|()| None) } else { self.text().map(Some) }
    }

    /// Reads an object as text.
    pub(super) fn object_or_null(&mut self) -> Option<Option<&'a str>> {
        if self.is_null() {
            return self.null().map(|()| None);
        }
        let start = self.at;
        (self.peek() == Some(b'{')).then_some(())?;
        self.skip(0)?;
        Some(Some(&self.text[start..self.at]))
    }

    /// Reads an object like [`Self::members`], or nothing from `null`.
    pub(super) fn members_or_null(&mut self, read: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        if self.is_null() { self.null() } else { self.members(read) }
    }

    /// Reads a number like [`Self::number`], or zero from `null`.
    pub(super) fn number_or_null(&mut self) -> Option<u64> {
        if self.is_null() { self.null().map(|()| 0) } else { self.number() }
    }

    /// Reads a number without sign, fraction and exponent.
    pub(super) fn number(&mut self) -> Option<u64> {
        self.space();
        let start = self.at;
        self.digits()?;
        let digits = &self.text[start..self.at];
        let is_plain = digits.len() < 19 && (digits.len() == 1 || !digits.starts_with('0'));
        let is_whole = !matches!(self.peek(), Some(b'.' | b'e' | b'E'));
        if is_plain && is_whole { digits.parse().ok() } else { None }
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    /// Reads any value. Strings with escapes are not checked here, so they are not accepted.
    pub(super) fn skip(&mut self, depth: usize) -> Option<()> {
        self.space();
        match self.peek()? {
            b'"' => self.plain().map(drop),
            b'{' if depth < MAX_DEPTH => self.members(|scan, _| scan.skip(depth + 1)),
            b'[' if depth < MAX_DEPTH => self.elements(|scan, _| scan.skip(depth + 1)),
            b'n' => self.word("null"),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'0'..=b'9' => self.skip_number(),
            _ => None,
        }
    }

    fn skip_number(&mut self) -> Option<()> {
        let start = self.at;
        self.digits()?;
        if self.at > start + 1 && self.text.as_bytes()[start] == b'0' {
            return None;
        }
        if self.take(b'.').is_some() {
            self.digits()?;
        }
        // An exponent is rare and may be out of range.
        (!matches!(self.peek(), Some(b'e' | b'E'))).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read_like_all_json() {
        for text in [r#"{\"n\":0}"#, r"a\n\t\r\/\\", r"\u00fc\b\f", r"ü\n", r"\"] {
            let quoted = format!("\"{text}\"");
            let read = JsonStr { quoted: &quoted, has_escapes: true }.read().map(Cow::into_owned);
            assert_eq!(read, serde_json::from_str::<String>(&quoted).ok(), "{text}");
        }
    }
}
