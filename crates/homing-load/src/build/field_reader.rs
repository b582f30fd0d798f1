//! One key with its value, read as text, a list or a flag. Values of the wrong type are reported.

use std::borrow::Cow;

use crate::{
    diagnostics::Diagnostics,
    fix::FixDraft,
    node::{Node, NodeKind},
    tools,
};

/// The value of one key, and the diagnostics to which problems with it are reported.
pub(super) struct FieldReader<'a> {
    pub(super) key: &'a str,
    pub(super) value: &'a Node<'a>,
    pub(super) diagnostics: &'a mut Diagnostics,
}

impl<'a> FieldReader<'a> {
    pub(super) fn new(key: &'a str, value: &'a Node<'a>, diagnostics: &'a mut Diagnostics) -> Self {
        Self { key, value, diagnostics }
    }

    /// A reader for a value inside this one.
    pub(super) fn inner<'b>(&'b mut self, key: &'b str, value: &'b Node<'b>) -> FieldReader<'b> {
        FieldReader { key, value, diagnostics: self.diagnostics }
    }

    /// Reports a warning at the value's position.
    pub(super) fn warn(&mut self, message: impl Into<String>, hint: &str) {
        self.diagnostics.warn(self.value.position, self.key, message, hint);
    }

    /// Reports an error at the value's position.
    pub(super) fn error(&mut self, message: impl Into<String>, hint: &str) {
        self.diagnostics.error(self.value.position, self.key, message, hint);
    }

    /// The trimmed text of a scalar; empty for lists and maps.
    pub(super) fn word(&self) -> &'a str {
        self.value.text().unwrap_or_default().trim()
    }

    /// Reads a scalar. A list of scalars is joined; other values are reported.
    pub(super) fn text(&mut self) -> Option<String> {
        self.borrowed_text().map(Cow::into_owned)
    }

    /// The same, borrowed if it is a scalar.
    pub(super) fn borrowed_text(&mut self) -> Option<Cow<'a, str>> {
        match &self.value.kind {
            NodeKind::Plain(_) if self.value.is_null() => None,
            NodeKind::Plain(text) | NodeKind::Quoted(text) => Some(Cow::Borrowed(text)),
            NodeKind::List(items) if items.iter().all(|item| item.text().is_some()) => {
                let message = format!("`{}` must be text, not a list: its entries were joined", self.key);
                self.warn(message, "write a single text");
                let joined = items.iter().filter_map(Node::text).collect::<Vec<_>>().join(", ");
                self.diagnostics.fix(FixDraft::value("write a single text", self.value.position, &joined));
                Some(Cow::Owned(joined))
            }
            NodeKind::List(_) | NodeKind::Map(_) => {
                self.warn(format!("`{}` must be text, not {}: ignored", self.key, self.value.noun()), "");
                None
            }
        }
    }

    /// Reads a list of names or a comma-separated text.
    pub(super) fn list(&mut self) -> Vec<String> {
        match self.value.text() {
            Some(_) if self.value.is_null() => Vec::new(),
            Some(text) => {
                let names = text.split([',', '\n']).map(str::trim);
                names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
            }
            None => {
                let items = tools::items(self.value, self.key, self.diagnostics);
                items.into_iter().map(|(item, _)| item.into_owned()).collect()
            }
        }
    }

    /// Reads true or false.
    pub(super) fn flag(&mut self) -> bool {
        self.value.truth().unwrap_or_else(|| {
            self.warn(format!("`{}` is neither true nor false: treated as false", self.key), "");
            false
        })
    }
}
