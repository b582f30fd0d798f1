//! Positions of fields in a YAML file, by path such as `crew.tasks[3].context`.

use std::{borrow::Cow, collections::HashMap};

use granit_parser::{Event, Parser, ScalarStyle};

/// Lines and columns by path.
pub(crate) struct YamlPositions {
    by_path: HashMap<String, (u32, u32)>,
}

/// A collection whose end has not been read: its path, and the current position in it.
enum OpenCollection {
    List { path: String, next: usize },
    Map { path: String, key: Option<String> },
}

impl YamlPositions {
    /// The positions in a text that has been parsed before and is therefore valid YAML.
    pub(crate) fn of(text: &str) -> Self {
        let (mut positions, mut open) = (HashMap::new(), Vec::new());
        let mut parser = Parser::new_from_str(text);
        while let Some(Ok((event, span))) = parser.next_event() {
            let position = (number(span.start.line()), number(span.start.col()).saturating_add(1));
            match event {
                Event::Scalar(text, ..) => scalar(&mut positions, &mut open, position, &text),
                Event::Alias(_) => scalar(&mut positions, &mut open, position, ""),
                Event::SequenceStart(..) => {
                    let path = record_value(&mut positions, &mut open, position);
                    open.push(OpenCollection::List { path, next: 0 });
                }
                Event::MappingStart(..) => {
                    let path = record_value(&mut positions, &mut open, position);
                    open.push(OpenCollection::Map { path, key: None });
                }
                Event::SequenceEnd | Event::MappingEnd => {
                    open.pop();
                }
                Event::DocumentEnd => break,
                _ => (),
            }
        }
        Self { by_path: positions }
    }

    /// The position of a field, or of the nearest enclosing field that is in the file.
    pub(crate) fn find(&self, path: &str) -> (u32, u32) {
        let mut path = path;
        loop {
            if let Some(position) = self.by_path.get(path) {
                return *position;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return self.by_path.get("").copied().unwrap_or((0, 0)),
            }
        }
    }
}

/// Puts quotes around plain values such as `012`. A number would lose its zero, and the value is a postcode or an ID more
/// often than a number; where a number is needed, the quotes make it an error.
pub(crate) fn quote_leading_zeros(text: &str) -> Cow<'_, str> {
    let mut found = Vec::new();
    let mut parser = Parser::new_from_str(text);
    while let Some(Ok((event, span))) = parser.next_event() {
        if let Event::Scalar(value, ScalarStyle::Plain, ..) = event
            && has_leading_zero(&value)
            && let Some(at) = offset(text, span.start.line(), span.start.col())
            && text[at..].starts_with(&*value)
        {
            found.push((at, value.len()));
        }
    }
    if found.is_empty() {
        return text.into();
    }
    let mut quoted = text.to_owned();
    for (at, length) in found.into_iter().rev() {
        quoted.insert(at + length, '"');
        quoted.insert(at, '"');
    }
    quoted.into()
}

/// The byte offset of a line, from 1, and a column in characters, from 0.
fn offset(text: &str, line: usize, column: usize) -> Option<usize> {
    let start = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum::<usize>();
    text[start..].char_indices().nth(column).map(|(at, _)| start + at)
}

fn has_leading_zero(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Records a scalar: a key is kept until its value is read.
fn scalar(positions: &mut HashMap<String, (u32, u32)>, open: &mut [OpenCollection], position: (u32, u32), text: &str) {
    if let Some(OpenCollection::Map { path, key: key @ None }) = open.last_mut() {
        positions.entry(joined(path, text)).or_insert(position);
        *key = Some(text.to_owned());
    } else {
        record_value(positions, open, position);
    }
}

/// Records the position of the value that begins here, which is more exact than that of its key, and returns its path.
fn record_value(
    positions: &mut HashMap<String, (u32, u32)>,
    open: &mut [OpenCollection],
    position: (u32, u32),
) -> String {
    let path = match open.last_mut() {
        None => String::new(),
        Some(OpenCollection::List { path, next }) => {
            *next += 1;
            format!("{path}[{}]", *next - 1)
        }
        Some(OpenCollection::Map { path, key }) => joined(path, &key.take().unwrap_or_default()),
    };
    positions.insert(path.clone(), position);
    path
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_field_has_the_position_of_its_parent() {
        let positions =
            YamlPositions::of("name: x\ncrew:\n  tasks:\n    - name: a\n      context: [b, c]\n    - name: d\n");
        assert_eq!(positions.find("name"), (1, 7));
        assert_eq!(positions.find("crew.tasks[0].context[1]"), (5, 20));
        assert_eq!(positions.find("crew.tasks[1].context[1]"), (6, 7));
        assert_eq!(positions.find("chat.members"), (1, 1));
    }
}
