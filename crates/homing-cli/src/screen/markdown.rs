//! Renders Markdown as styled lines of a given width. The text is made inert first, so nothing in it acts on the terminal.

use homing_core::sanitize;
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui_core::{
    style::{Color, Modifier, Style},
    text::{Line, Span},
};

use super::wrap::{Indent, columns_of, wrap};

const CODE: Style = Style::new().fg(Color::Cyan);
const QUIET: Style = Style::new().add_modifier(Modifier::DIM);

/// Renders `text` in lines of at most `width` columns.
pub(crate) fn markdown(text: &str, width: usize) -> Vec<Line<'static>> {
    let text = sanitize::inert(text);
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut page = Page { width, ..Page::default() };
    for event in Parser::new_ext(&text, options) {
        page.take(event);
    }
    page.end_paragraph();
    while page.lines.last().is_some_and(|line| line.spans.is_empty()) {
        page.lines.pop();
    }
    page.lines
}

/// The state of rendering.
#[derive(Default)]
struct Page {
    width: usize,
    lines: Vec<Line<'static>>,
    /// The paragraph that is being read.
    spans: Vec<Span<'static>>,
    styles: Vec<Style>,
    /// The blocks around the paragraph, outermost first.
    indents: Vec<Indent>,
    /// The number of the next item of each list, or `None` for lists without numbers.
    lists: Vec<Option<u64>>,
    link: Option<String>,
    is_code: bool,
    table: Vec<Vec<Vec<Span<'static>>>>,
}

impl Page {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.is_code => self.code_lines(&text),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.add(&text, self.style()),
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.add(&text, self.style().patch(CODE));
            }
            Event::SoftBreak => self.add(" ", self.style()),
            Event::HardBreak => self.end_lines(),
            Event::Rule => {
                self.blank();
                let width = self.width.min(40);
                self.lines.push(Line::styled("─".repeat(width), QUIET));
            }
            Event::TaskListMarker(is_done) => self.add(if is_done { "[x] " } else { "[ ] " }, self.style()),
            Event::FootnoteReference(name) => self.add(&format!("[{name}]"), QUIET),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph if self.is_item_start() => (),
            Tag::Paragraph | Tag::HtmlBlock => self.blank(),
            Tag::Heading { level, .. } => {
                self.blank();
                let style = Style::new().add_modifier(Modifier::BOLD);
                let is_top = level == HeadingLevel::H1;
                self.styles.push(if is_top { style.add_modifier(Modifier::UNDERLINED) } else { style });
            }
            Tag::BlockQuote(_) => {
                self.blank();
                self.indents.push(Indent::all("│ ", QUIET));
            }
            Tag::CodeBlock(kind) => {
                self.end_lines();
                self.blank();
                if let CodeBlockKind::Fenced(language) = kind
                    && !language.trim().is_empty()
                {
                    self.lines.push(Line::styled(format!("  {}", language.trim()), QUIET));
                }
                self.is_code = true;
            }
            Tag::List(first) => {
                self.end_lines();
                if self.lists.is_empty() {
                    self.blank();
                }
                self.lists.push(first);
            }
            Tag::Item => self.start_item(),
            Tag::Table(_) => self.blank(),
            Tag::TableHead | Tag::TableRow => self.table.push(Vec::new()),
            Tag::Emphasis => self.styles.push(self.style().add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.styles.push(self.style().add_modifier(Modifier::BOLD)),
            Tag::Strikethrough => self.styles.push(self.style().add_modifier(Modifier::CROSSED_OUT)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some(dest_url.to_string());
                self.styles.push(self.style().add_modifier(Modifier::UNDERLINED));
            }
            _ => (),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_paragraph(),
            TagEnd::Heading(_) => {
                self.end_paragraph();
                self.styles.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.end_paragraph();
                self.indents.pop();
            }
            TagEnd::CodeBlock => self.is_code = false,
            TagEnd::List(_) => {
                self.lists.pop();
            }
            TagEnd::Item => {
                self.end_lines();
                self.indents.pop();
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.spans);
                if let Some(row) = self.table.last_mut() {
                    row.push(cell);
                }
            }
            TagEnd::Table => self.end_table(),
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                let shown: String = self.spans.iter().map(|span| span.content.as_ref()).collect();
                if let Some(address) = self.link.take().filter(|address| !shown.ends_with(address.as_str())) {
                    self.add(&format!(" ({address})"), QUIET);
                }
            }
            _ => (),
        }
    }

    fn start_item(&mut self) {
        self.end_lines();
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            Some(None) | None => "• ".to_owned(),
        };
        self.indents.push(Indent::hanging(mark, Style::new().fg(Color::Cyan)));
    }

    /// Returns whether the innermost item has no text yet.
    fn is_item_start(&self) -> bool {
        self.spans.is_empty() && self.indents.last().is_some_and(|indent| indent.first != indent.rest)
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn add(&mut self, text: &str, style: Style) {
        self.spans.push(Span::styled(text.to_owned(), style));
    }

    /// Ends the lines of a paragraph.
    fn end_paragraph(&mut self) {
        self.end_lines();
    }

    /// Wraps what was read since the last break.
    fn end_lines(&mut self) {
        if self.spans.is_empty() {
            return;
        }
        let spans = std::mem::take(&mut self.spans);
        let indent = self.indent();
        self.lines.extend(wrap(&spans, self.width, &indent));
        // The mark of an item stands before its first line only.
        for indent in &mut self.indents {
            indent.first.clone_from(&indent.rest);
        }
    }

    fn indent(&self) -> Indent {
        self.indents.iter().fold(Indent::default(), |outer, inner| inner.within(&outer))
    }

    /// Adds an empty line before a block, unless there is one.
    fn blank(&mut self) {
        self.end_lines();
        if self.lines.last().is_some_and(|line| !line.spans.is_empty()) {
            self.lines.push(Line::default());
        }
    }

    fn code_lines(&mut self, text: &str) {
        let indent = Indent::all("│ ", QUIET).within(&self.indent());
        for line in text.lines() {
            self.lines.extend(wrap(&[Span::styled(line.to_owned(), CODE)], self.width, &indent));
        }
    }

    fn end_table(&mut self) {
        let rows = std::mem::take(&mut self.table);
        let widths = column_widths(&rows, self.width);
        for (at, row) in rows.iter().enumerate() {
            self.lines.extend(table_row(row, &widths));
            if at == 0 {
                let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                self.lines.push(Line::styled(rule.join("─┼─"), QUIET));
            }
        }
    }
}

/// Returns the widths of a table's columns. If they do not fit, the widest ones are narrowed.
fn column_widths(rows: &[Vec<Vec<Span<'static>>>], width: usize) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| columns_of(cell)).max();
    let mut widths: Vec<usize> = (0..columns).map(|at| widest(at).unwrap_or(0).max(1)).collect();
    let separators = 3 * columns.saturating_sub(1);
    while widths.iter().sum::<usize>() + separators > width {
        let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > 4) else { break };
        *widest -= 1;
    }
    widths
}

fn table_row(row: &[Vec<Span<'static>>], widths: &[usize]) -> Vec<Line<'static>> {
    let cells: Vec<Vec<Line<'static>>> = widths
        .iter()
        .enumerate()
        .map(|(at, width)| wrap(row.get(at).map_or(&[], Vec::as_slice), *width, &Indent::default()))
        .collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let line = |at: usize| {
        let mut spans = Vec::new();
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            if column > 0 {
                spans.push(Span::styled(" │ ", QUIET));
            }
            let own = cell.get(at).map(|line| line.spans.clone()).unwrap_or_default();
            let blank = width.saturating_sub(columns_of(&own));
            spans.extend(own);
            if column + 1 < widths.len() {
                spans.push(Span::raw(" ".repeat(blank)));
            }
        }
        Line::from(spans)
    };
    (0..height).map(line).collect()
}

#[cfg(test)]
mod tests {
    use snapbox::{assert_data_eq, str};
    use unicode_width::UnicodeWidthStr;

    use super::*;

    fn shown(text: &str, width: usize) -> String {
        let lines: Vec<String> =
            markdown(text, width).iter().map(|line| line.to_string().trim_end().to_owned()).collect();
        lines.join("\n")
    }

    const SAMPLE: &str =
        "# Retries\n\nModel calls are retried in `model_call.rs`, **not** in the [client](https://x.y/z).\n
1. first
2. second, which is long enough for two lines
   - nested 日本語
   - [x] done

> quoted

```rust
fn main() {
\tretry();
}
```

| file | why |
|---|---|
| `a.rs` | it waits until the provider is available again |
| b.rs | 日本 |
";

    #[test]
    fn blocks_are_laid_out_within_the_width() {
        assert_data_eq!(
            shown(SAMPLE, 40),
            str![[r#"
Retries

Model calls are retried in
model_call.rs, not in the client
(https://x.y/z).

1. first
2. second, which is long enough for two
   lines
   • nested 日本語
   • [x] done

│ quoted

  rust
│ fn main() {
│     retry();
│ }

file │ why
─────┼──────────────────────────────────
a.rs │ it waits until the provider is
     │ available again
b.rs │ 日本
"#]]
        );
    }

    #[test]
    fn hostile_and_broken_text_is_inert_and_never_too_wide() {
        let hostile = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}abc\n\n```\nopen\u{9b}31m\n| a |\n- **b\n<script>\u{8}";
        for width in 1..60 {
            for line in markdown(&format!("{SAMPLE}{hostile}"), width) {
                let text = line.to_string();
                assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{text:?}");
                assert!(width < 20 || text.width() <= width, "{width}: {text:?}");
            }
        }
    }
}
