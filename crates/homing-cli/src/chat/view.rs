//! Draws a conversation: the text, the tree of runs beside or below it, the question or the line that the user writes.

use homing_core::{limits::usd, sanitize};
use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
    terminal::Frame,
    text::{Line, Span},
};

use super::{Chat, cells::QUIET, slash};
use crate::{
    columns::cut,
    progress::figures,
    screen::{
        area::{put, spread, take_bottom, take_top},
        editor::{Editor, Rows},
        markdown::markdown,
        tree_lines::tree_lines,
    },
};

/// From this width on, the tree stands beside the text.
const WIDE: u16 = 120;

/// Draws the conversation.
pub(crate) fn view(chat: &mut Chat, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width < 4 || area.height < 3 {
        return;
    }
    let buffer = frame.buffer_mut();
    let mut left = area;
    put(buffer, take_bottom(&mut left, 1), &[footer(chat, area.width)]);
    let cursor = input(chat, &mut left, buffer);
    put(buffer, take_bottom(&mut left, 1), &[state_line(chat, area.width)]);
    if left.height > 3 {
        put(buffer, take_top(&mut left, 1), &[header(chat, area.width)]);
    }
    runs(chat, &mut left, buffer);
    text(chat, left, buffer);
    frame.set_cursor_position(cursor);
}

fn header(chat: &Chat, width: u16) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let about = &chat.about;
    let left = vec![
        Span::styled(sanitize::inert_line(&about.agent), bold.fg(Color::Cyan)),
        Span::styled(format!(" · {}", sanitize::inert_line(&about.model)), QUIET),
        Span::styled(format!(" · {}", sanitize::inert_line(&about.folder)), QUIET),
    ];
    let now: u64 = chat.turn.iter().flat_map(|_| chat.board.rows()).map(|row| row.tokens).sum();
    let cost: u64 = chat.turn.iter().flat_map(|_| chat.board.rows()).map(|row| row.cost_micros).sum();
    let tokens = figures::tokens(chat.spent.input + chat.spent.output + now);
    let cost = usd(chat.spent.cost_micros + cost);
    spread(left, vec![Span::styled(format!("  {tokens} tok · {cost}"), QUIET)], " ", width)
}

/// The line above the input: what the agent does.
fn state_line(chat: &Chat, width: u16) -> Line<'static> {
    let Some(turn) = &chat.turn else {
        let right = if chat.scroll > 0 { format!(" {} lines below ", chat.scroll) } else { String::new() };
        return spread(Vec::new(), vec![Span::styled(right, QUIET)], "─", width);
    };
    let time = figures::time(chat.now.saturating_sub(turn.began));
    let cost: u64 = chat.board.rows().map(|row| row.cost_micros).sum();
    let of = turn.limit.map(|limit| format!(" of {}", usd(limit))).unwrap_or_default();
    let sign = if chat.dialog.is_some() { ("○ ", Color::Yellow) } else { ("● ", Color::Cyan) };
    let doing = if chat.dialog.is_some() { "waiting for your answer".to_owned() } else { chat.activity() };
    let left =
        vec![Span::styled("─ ", QUIET), Span::styled(sign.0, Style::new().fg(sign.1)), Span::raw(format!("{doing} "))];
    let budget = chat.board.rows().filter(|row| row.waits_for_budget()).count();
    let budget = if budget > 0 { format!("{budget} waiting for budget · ") } else { String::new() };
    spread(left, vec![Span::styled(format!(" {budget}{}{of} · {time} ─", usd(cost)), QUIET)], "─", width)
}

fn footer(chat: &Chat, width: u16) -> Line<'static> {
    let commands = slash::matching(chat.editor.text());
    let text = if let Some(dialog) = &chat.dialog {
        dialog.choices().to_owned()
    } else if chat.is_leaving() {
        "press Ctrl-C again to leave".to_owned()
    } else if !commands.is_empty() {
        commands.join("  ")
    } else if !chat.attached.is_empty() {
        let names = chat.attached.iter().filter_map(|path| path.file_name());
        let names: Vec<String> = names.map(|name| sanitize::inert_line(&name.to_string_lossy())).collect();
        format!("attached: {}", names.join(", "))
    } else if chat.turn.is_some() {
        "Enter: message to the agent · Esc: stop · /help".to_owned()
    } else {
        "Enter: send · Alt-Enter: new line · @path: attach · /help · Ctrl-C twice: leave".to_owned()
    };
    Line::styled(cut(&text, usize::from(width)), QUIET)
}

/// Draws the question, if there is one, and the line that the user writes. Returns the position of the cursor.
fn input(chat: &Chat, left: &mut Rect, buffer: &mut Buffer) -> (u16, u16) {
    let width = usize::from(left.width);
    let editor: &Editor = chat.dialog.as_ref().map_or(&chat.editor, |dialog| &dialog.editor);
    let Rows { rows, cursor } = editor.rows(width.saturating_sub(2));
    let most = usize::from(left.height / 3).max(1);
    let from = cursor.0.saturating_sub(most - 1).min(rows.len().saturating_sub(most));
    let shown: Vec<Line<'static>> =
        rows.iter().enumerate().skip(from).take(most).map(|(at, row)| prompt_row(at, row)).collect();
    let area = take_bottom(left, u16::try_from(shown.len()).unwrap_or(1));
    put(buffer, area, &shown);
    if let Some(dialog) = &chat.dialog {
        let mut lines = dialog.lines(width);
        let most = usize::from(left.height.saturating_sub(2)).max(1);
        if lines.len() > most {
            lines.truncate(most.saturating_sub(1));
            lines.push(Line::styled("  … the question is longer than the screen", QUIET));
        }
        let area = take_bottom(left, u16::try_from(lines.len()).unwrap_or(u16::MAX));
        put(buffer, area, &lines);
    }
    let column = u16::try_from(cursor.1 + 2).unwrap_or(u16::MAX).min(area.width.saturating_sub(1));
    let row = u16::try_from(cursor.0 - from).unwrap_or(0).min(area.height.saturating_sub(1));
    (area.x + column, area.y + row)
}

fn prompt_row(at: usize, row: &str) -> Line<'static> {
    let mark = Style::new().fg(Color::Green).add_modifier(Modifier::BOLD);
    Line::from(vec![Span::styled(if at == 0 { "› " } else { "  " }, mark), Span::raw(row.to_owned())])
}

/// Draws the tree of runs: beside the text if the screen is wide, otherwise below it.
fn runs(chat: &Chat, left: &mut Rect, buffer: &mut Buffer) {
    if !chat.shows_runs(left.width >= WIDE) || left.height < 6 {
        return;
    }
    if left.width >= WIDE {
        let width = left.width * 2 / 5;
        left.width -= width;
        let beside = Rect { x: left.x + left.width, width, ..*left };
        let lines = tree_lines(&chat.board, usize::from(width).saturating_sub(3), usize::from(left.height));
        for y in beside.y..beside.y + beside.height {
            buffer.set_string(beside.x + 1, y, "│", QUIET);
        }
        put(buffer, Rect { x: beside.x + 3, width: width - 3, ..beside }, &lines);
        left.width -= 1;
        return;
    }
    let lines = tree_lines(&chat.board, usize::from(left.width), usize::from(left.height / 3));
    let area = take_bottom(left, u16::try_from(lines.len()).unwrap_or(0));
    put(buffer, area, &lines);
    let rule = vec![Span::styled("─ runs ", QUIET)];
    put(buffer, take_bottom(left, 1), &[spread(rule, Vec::new(), "─", area.width)]);
}

/// Draws the conversation, from its end.
fn text(chat: &mut Chat, area: Rect, buffer: &mut Buffer) {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut arriving = Vec::new();
    if let Some(turn) = chat.turn.as_ref().filter(|turn| !turn.streaming.trim().is_empty()) {
        arriving.push(Line::default());
        arriving.extend(markdown(&turn.streaming, width));
    }
    if chat.scroll > 0 {
        let all = chat.cells.height(width) + arriving.len();
        chat.scroll = chat.scroll.min(all.saturating_sub(height));
    }
    let mut lines = chat.cells.tail(width, height + chat.scroll, 0);
    lines.extend(arriving);
    let end = lines.len().saturating_sub(chat.scroll);
    let lines = &lines[end.saturating_sub(height)..end];
    put(buffer, area, lines);
}
