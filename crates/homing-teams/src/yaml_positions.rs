//! Where in a file a field stands: by its path, such as `crew.tasks[3].context`. It knows YAML and nothing of teams.

use std::collections::HashMap;

use granit_parser::{Event, Parser};

/// Lines and columns by path.
pub(crate) struct YamlPositions(HashMap<String, (u32, u32)>);

/// A collection that is still open: its path, and where in it we are.
enum OpenNode {
    List { path: String, next: usize },
    Map { path: String, key: Option<String> },
}

impl YamlPositions {
    /// The places of a text that has been read before, and so is known to be sound.
    pub(crate) fn of(text: &str) -> Self {
        let (mut spots, mut open) = (HashMap::new(), Vec::new());
        let mut parser = Parser::new_from_str(text);
        while let Some(Ok((event, span))) = parser.next_event() {
            let spot = (number(span.start.line()), number(span.start.col()).saturating_add(1));
            match event {
                Event::Scalar(text, ..) => scalar(&mut spots, &mut open, spot, &text),
                Event::Alias(_) => scalar(&mut spots, &mut open, spot, ""),
                Event::SequenceStart(..) => {
                    let path = arrive(&mut spots, &mut open, spot);
                    open.push(OpenNode::List { path, next: 0 });
                }
                Event::MappingStart(..) => {
                    let path = arrive(&mut spots, &mut open, spot);
                    open.push(OpenNode::Map { path, key: None });
                }
                Event::SequenceEnd | Event::MappingEnd => {
                    open.pop();
                }
                Event::DocumentEnd => break,
                _ => (),
            }
        }
        Self(spots)
    }

    /// The place of a field, or of the nearest thing around it that stands in the file.
    pub(crate) fn find(&self, path: &str) -> (u32, u32) {
        let mut path = path;
        loop {
            if let Some(spot) = self.0.get(path) {
                return *spot;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return self.0.get("").copied().unwrap_or((0, 0)),
            }
        }
    }
}

fn number(it: usize) -> u32 {
    u32::try_from(it).unwrap_or(u32::MAX)
}

/// A key waits for its value; everything else has arrived.
fn scalar(spots: &mut HashMap<String, (u32, u32)>, open: &mut [OpenNode], spot: (u32, u32), text: &str) {
    if let Some(OpenNode::Map { path, key: key @ None }) = open.last_mut() {
        spots.entry(joined(path, text)).or_insert(spot);
        *key = Some(text.to_owned());
    } else {
        arrive(spots, open, spot);
    }
}

/// The path of the value that begins here; its own place is more exact than that of its key.
fn arrive(spots: &mut HashMap<String, (u32, u32)>, open: &mut [OpenNode], spot: (u32, u32)) -> String {
    let path = match open.last_mut() {
        None => String::new(),
        Some(OpenNode::List { path, next }) => {
            *next += 1;
            format!("{path}[{}]", *next - 1)
        }
        Some(OpenNode::Map { path, key }) => joined(path, &key.take().unwrap_or_default()),
    };
    spots.insert(path.clone(), spot);
    path
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_path_and_a_missing_one_by_what_is_around_it() {
        let spots =
            YamlPositions::of("name: x\ncrew:\n  tasks:\n    - name: a\n      context: [b, c]\n    - name: d\n");
        assert_eq!(spots.find("name"), (1, 7));
        assert_eq!(spots.find("crew.tasks[0].context[1]"), (5, 20));
        assert_eq!(spots.find("crew.tasks[1].context[1]"), (6, 7));
        assert_eq!(spots.find("chat.members"), (1, 1));
    }
}
