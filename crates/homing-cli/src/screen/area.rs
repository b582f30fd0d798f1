//! Dividing the screen, and lines with a left and a right part.

use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr;

use super::wrap::columns_of;
use crate::columns::cut;

/// Takes lines from the bottom of an area.
pub(crate) fn take_bottom(area: &mut Rect, height: u16) -> Rect {
    let height = height.min(area.height);
    area.height -= height;
    Rect { y: area.y + area.height, height, ..*area }
}

/// Takes lines from the top of an area.
pub(crate) fn take_top(area: &mut Rect, height: u16) -> Rect {
    let height = height.min(area.height);
    let top = Rect { height, ..*area };
    area.y += height;
    area.height -= height;
    top
}

/// Draws the lines that fit.
pub(crate) fn put(buffer: &mut Buffer, area: Rect, lines: &[Line<'_>]) {
    for (line, y) in lines.iter().zip(area.y..area.y + area.height) {
        buffer.set_line(area.x, y, line, area.width);
    }
}

/// Joins what stands at the left and at the right of a line; the left is cut if both do not fit.
pub(crate) fn spread(left: Vec<Span<'static>>, right: Vec<Span<'static>>, fill: &str, width: u16) -> Line<'static> {
    let room = usize::from(width).saturating_sub(columns_of(&right));
    let mut spans = Vec::new();
    let mut used = 0;
    for span in left {
        let text = cut(&span.content, room.saturating_sub(used));
        used += text.width();
        spans.push(Span::styled(text, span.style));
    }
    let quiet = Style::new().add_modifier(Modifier::DIM);
    spans.push(Span::styled(fill.repeat(room.saturating_sub(used)), quiet));
    spans.extend(right);
    Line::from(spans)
}
