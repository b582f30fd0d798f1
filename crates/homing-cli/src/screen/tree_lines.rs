//! The live tree of `progress` as styled lines.

use ratatui_core::{
    style::{Color, Modifier, Style},
    text::{Line, Span},
};

use crate::progress::{
    Board,
    frame::{Look, frame, sign_colour},
};

/// Draws the tree, with the place of each run, in at most `height` lines of at most `width` columns.
pub(crate) fn tree_lines(board: &Board, width: usize, height: usize) -> Vec<Line<'static>> {
    let look = Look { width, height, is_unicode: homing::environment::is_unicode_locale() };
    frame(&board.with_places(), look).iter().map(|line| styled(line)).collect()
}

/// Colours the sign of a line, as the live tree of `homing run` does.
pub(crate) fn styled(line: &str) -> Line<'static> {
    let Some((at, sign)) = line.char_indices().find(|(_, c)| !c.is_whitespace()) else { return Line::default() };
    let (before, rest) = (line[..at].to_owned(), line[at + sign.len_utf8()..].to_owned());
    let style = match sign_colour(sign) {
        "32" => Style::new().fg(Color::Green),
        "31" => Style::new().fg(Color::Red),
        "33" => Style::new().fg(Color::Yellow),
        "36" => Style::new().fg(Color::Cyan),
        _ => Style::new().add_modifier(Modifier::DIM),
    };
    Line::from(vec![Span::raw(before), Span::styled(sign.to_string(), style), Span::raw(rest)])
}
