//! YAML to [`Node`]s, within a budget. Knows YAML and nothing of agents.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, Span};

use crate::node::{Node, NodeEntry, NodeKind, Position};

/// Front matter of real agents nests four levels; what nests this deep was made to hurt.
const MAX_DEPTH: usize = 48;
/// Aliases are expanded, so the budget counts what comes out, not what was written.
const MAX_NODES: usize = 20_000;

/// Why a text is not YAML, or not YAML that we read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct YamlError {
    pub(crate) spot: Position,
    pub(crate) message: String,
    /// A budget was exceeded: there is no point in trying to repair the text.
    pub(crate) hostile: bool,
}

/// Reads the first document of `text`, whose first line is line `first_line` of its file.
pub(crate) fn parse(text: &str, first_line: u32) -> Result<Node, YamlError> {
    let mut builder = NodeBuilder { first_line, ..NodeBuilder::default() };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| YamlError {
            spot: builder.spot_of(error.marker().line(), error.marker().col()),
            message: error.info(),
            hostile: matches!(error.kind(), ErrorKind::RecursionLimitExceeded),
        })?;
        if builder.take(event, &span)? == Go::Stop {
            break;
        }
    }
    Ok(builder
        .root
        .unwrap_or_else(|| Node::new(Position { line: first_line, column: 1 }, NodeKind::Plain(String::new()))))
}

#[derive(PartialEq)]
enum Go {
    On,
    Stop,
}

#[derive(Default)]
struct NodeBuilder {
    first_line: u32,
    open: Vec<OpenNode>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    root: Option<Node>,
}

/// A collection that has not been closed yet.
struct OpenNode {
    anchor: usize,
    spot: Position,
    what: Unfinished,
}

enum Unfinished {
    List(Vec<Node>),
    Map { entries: Vec<NodeEntry>, key: Option<(String, Position)> },
}

impl NodeBuilder {
    fn spot_of(&self, line: usize, column: usize) -> Position {
        let line = u32::try_from(line.max(1)).unwrap_or(u32::MAX);
        Position {
            line: self.first_line.saturating_add(line - 1),
            column: u32::try_from(column).unwrap_or(u32::MAX).saturating_add(1),
        }
    }

    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<Go, YamlError> {
        let spot = self.spot_of(span.start.line(), span.start.col());
        match event {
            Event::Scalar(text, style, anchor, _tag) => {
                let kind = match style {
                    ScalarStyle::Plain => NodeKind::Plain(text.into_owned()),
                    _ => NodeKind::Quoted(text.into_owned()),
                };
                self.finish(anchor, Node::new(spot, kind))?;
            }
            Event::SequenceStart(_, anchor, _tag) => self.open(anchor, spot, Unfinished::List(Vec::new()))?,
            Event::MappingStart(_, anchor, _tag) => {
                self.open(anchor, spot, Unfinished::Map { entries: Vec::new(), key: None })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let node = node.ok_or_else(|| hostile(spot, "an alias refers to something that contains it"))?;
                self.finish(0, Node { spot, ..node })?;
            }
            Event::DocumentEnd => return Ok(Go::Stop),
            _ => (),
        }
        Ok(Go::On)
    }

    fn open(&mut self, anchor: usize, spot: Position, what: Unfinished) -> Result<(), YamlError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(hostile(spot, format!("nested more than {MAX_DEPTH} levels deep")));
        }
        self.open.push(OpenNode { anchor, spot, what });
        Ok(())
    }

    fn close(&mut self) -> Result<(), YamlError> {
        let Some(OpenNode { anchor, spot, what }) = self.open.pop() else { return Ok(()) };
        let kind = match what {
            Unfinished::List(items) => NodeKind::List(items),
            Unfinished::Map { entries, .. } => NodeKind::Map(merged(entries)),
        };
        self.finish(anchor, Node::new(spot, kind))
    }

    /// Puts a finished node where it belongs.
    fn finish(&mut self, anchor: usize, node: Node) -> Result<(), YamlError> {
        self.nodes += size(&node);
        if self.nodes > MAX_NODES {
            return Err(hostile(node.spot, format!("more than {MAX_NODES} values")));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|it| &mut it.what) {
            None => self.root = Some(node),
            Some(Unfinished::List(items)) => items.push(node),
            Some(Unfinished::Map { entries, key }) => match key.take() {
                Some((key, spot)) => entries.push(NodeEntry { key, spot, value: node }),
                None => *key = Some((node.text().unwrap_or("?").to_owned(), node.spot)),
            },
        }
        Ok(())
    }
}

fn hostile(spot: Position, message: impl Into<String>) -> YamlError {
    YamlError { spot, message: message.into(), hostile: true }
}

/// What a node adds to the budget: a collection's members were counted when they were finished, an alias' were not,
/// so counting everything again errs on the safe side.
fn size(node: &Node) -> usize {
    match &node.kind {
        NodeKind::Plain(_) | NodeKind::Quoted(_) => 1,
        NodeKind::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        NodeKind::Map(entries) => 1 + entries.iter().map(|it| size(&it.value)).sum::<usize>(),
    }
}

/// Follows merge keys (`<<: *base`): what the map says itself counts, the rest comes from the base.
fn merged(entries: Vec<NodeEntry>) -> Vec<NodeEntry> {
    if !entries.iter().any(|it| it.key == "<<") {
        return entries;
    }
    let (bases, mut own): (Vec<_>, Vec<_>) = entries.into_iter().partition(|it| it.key == "<<");
    for base in bases {
        let maps = match base.value.kind {
            NodeKind::List(items) => items,
            NodeKind::Map(_) | NodeKind::Plain(_) | NodeKind::Quoted(_) => vec![base.value],
        };
        for entry in maps.iter().filter_map(Node::entries).flatten() {
            if !own.iter().any(|it| it.key == entry.key) {
                own.push(entry.clone());
            }
        }
    }
    own
}
