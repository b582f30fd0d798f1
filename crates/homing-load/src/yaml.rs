//! Parses YAML into [`Node`]s with limits on depth and size. It knows nothing about agents.

mod plain_lines;

use std::{borrow::Cow, collections::HashMap};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, Span};

use crate::node::{Node, NodeEntry, NodeKind, Position};

/// The maximum depth. The front matter of real agents has about four levels.
const MAX_DEPTH: usize = 48;
/// The maximum number of values, counted after aliases are expanded.
const MAX_NODES: usize = 20_000;
/// The number of keys that most maps do not exceed. Growing a list costs more than reading a key.
const USUAL_KEYS: usize = 8;

/// A YAML syntax error or an exceeded limit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct YamlError {
    pub(crate) position: Position,
    pub(crate) message: String,
    /// A limit was exceeded, so the text must not be repaired and parsed again.
    pub(crate) hostile: bool,
}

/// Parses the first document of `text`, whose first line is line `first_line` of its file.
pub(crate) fn parse(text: &str, first_line: u32) -> Result<Node<'_>, YamlError> {
    plain_lines::parse(text, first_line).map_or_else(|| with_parser(text, first_line), Ok)
}

/// Parses any text.
fn with_parser(text: &str, first_line: u32) -> Result<Node<'_>, YamlError> {
    let mut builder = NodeBuilder { first_line, ..NodeBuilder::default() };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| YamlError {
            position: builder.position_of(error.marker().line(), error.marker().col()),
            message: error.info(),
            hostile: matches!(error.kind(), ErrorKind::RecursionLimitExceeded),
        })?;
        if builder.take(event, &span)? == DocumentState::Ended {
            break;
        }
    }
    Ok(builder.root.unwrap_or_else(|| Node::new(Position { line: first_line, column: 1 }, NodeKind::Plain("".into()))))
}

#[derive(PartialEq)]
enum DocumentState {
    Open,
    Ended,
}

#[derive(Default)]
struct NodeBuilder<'a> {
    first_line: u32,
    open: Vec<OpenNode<'a>>,
    anchors: HashMap<usize, Node<'a>>,
    nodes: usize,
    root: Option<Node<'a>>,
}

/// A collection that has not been closed yet.
struct OpenNode<'a> {
    anchor: usize,
    position: Position,
    content: Unfinished<'a>,
}

enum Unfinished<'a> {
    List(Vec<Node<'a>>),
    Map { entries: Vec<NodeEntry<'a>>, key: Option<(Cow<'a, str>, Position)> },
}

impl<'a> NodeBuilder<'a> {
    fn position_of(&self, line: usize, column: usize) -> Position {
        let line = u32::try_from(line.max(1)).unwrap_or(u32::MAX);
        Position {
            line: self.first_line.saturating_add(line - 1),
            column: u32::try_from(column).unwrap_or(u32::MAX).saturating_add(1),
        }
    }

    fn take(&mut self, event: Event<'a>, span: &Span) -> Result<DocumentState, YamlError> {
        let position = self.position_of(span.start.line(), span.start.col());
        match event {
            Event::Scalar(text, style, anchor, _tag) => {
                let kind = match style {
                    ScalarStyle::Plain => NodeKind::Plain(text),
                    _ => NodeKind::Quoted(text),
                };
                self.finish(anchor, Node::new(position, kind))?;
            }
            Event::SequenceStart(_, anchor, _tag) => self.open(anchor, position, Unfinished::List(Vec::new()))?,
            Event::MappingStart(_, anchor, _tag) => {
                self.open(anchor, position, Unfinished::Map { entries: Vec::with_capacity(USUAL_KEYS), key: None })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let node = node.ok_or_else(|| hostile(position, "an alias refers to a value that contains it"))?;
                self.finish(0, Node { position, ..node })?;
            }
            Event::DocumentEnd => return Ok(DocumentState::Ended),
            _ => (),
        }
        Ok(DocumentState::Open)
    }

    fn open(&mut self, anchor: usize, position: Position, content: Unfinished<'a>) -> Result<(), YamlError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(hostile(position, format!("nested more than {MAX_DEPTH} levels deep")));
        }
        self.open.push(OpenNode { anchor, position, content });
        Ok(())
    }

    fn close(&mut self) -> Result<(), YamlError> {
        let Some(OpenNode { anchor, position, content }) = self.open.pop() else { return Ok(()) };
        let kind = match content {
            Unfinished::List(items) => NodeKind::List(items),
            Unfinished::Map { entries, .. } => NodeKind::Map(merged(entries)),
        };
        self.finish(anchor, Node::new(position, kind))
    }

    /// Adds a finished node to its collection.
    fn finish(&mut self, anchor: usize, node: Node<'a>) -> Result<(), YamlError> {
        self.nodes += size(&node);
        if self.nodes > MAX_NODES {
            return Err(hostile(node.position, format!("more than {MAX_NODES} values")));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Unfinished::List(items)) => items.push(node),
            Some(Unfinished::Map { entries, key }) => match key.take() {
                Some((key, position)) => entries.push(NodeEntry { key, position, value: node }),
                None => {
                    let text = match node.kind {
                        NodeKind::Plain(text) | NodeKind::Quoted(text) => text,
                        NodeKind::List(_) | NodeKind::Map(_) => "?".into(),
                    };
                    *key = Some((text, node.position));
                }
            },
        }
        Ok(())
    }
}

fn hostile(position: Position, message: impl Into<String>) -> YamlError {
    YamlError { position, message: message.into(), hostile: true }
}

/// The number of values in a node. Members of collections are counted more than once, which is the safe side: members of
/// an alias were not counted before.
fn size(node: &Node<'_>) -> usize {
    match &node.kind {
        NodeKind::Plain(_) | NodeKind::Quoted(_) => 1,
        NodeKind::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        NodeKind::Map(entries) => 1 + entries.iter().map(|entry| size(&entry.value)).sum::<usize>(),
    }
}

/// Resolves merge keys (`<<: *base`): keys of the map itself take precedence over keys of the base.
fn merged(entries: Vec<NodeEntry<'_>>) -> Vec<NodeEntry<'_>> {
    if !entries.iter().any(|entry| entry.key == "<<") {
        return entries;
    }
    let (bases, mut own): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.key == "<<");
    for base in bases {
        let maps = match base.value.kind {
            NodeKind::List(items) => items,
            NodeKind::Map(_) | NodeKind::Plain(_) | NodeKind::Quoted(_) => vec![base.value],
        };
        for entry in maps.iter().filter_map(Node::entries).flatten() {
            if !own.iter().any(|other| other.key == entry.key) {
                own.push(entry.clone());
            }
        }
    }
    own
}
