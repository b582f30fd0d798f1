//! Draws the live trees: a list, the runs of the chosen tree, and what happened last.

use homing_core::{envelope::Status, limits::usd, sanitize, short_id::short_id};
use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
    terminal::Frame,
    text::{Line, Span},
};

use super::{LiveTrees, Mode, WatchedTree};
use crate::{
    columns::{cell, cut},
    progress::{figures, first_line, frame::Look, frame::row_line},
    screen::{
        area::{put, spread, take_bottom, take_top},
        editor::Editor,
        tree_lines::styled,
    },
};

/// Columns from which on a line about a tree shows what it holds.
const WIDE: u16 = 110;

const QUIET: Style = Style::new().add_modifier(Modifier::DIM);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws the live trees.
pub(crate) fn view(state: &LiveTrees, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width < 4 || area.height < 3 {
        return;
    }
    let buffer = frame.buffer_mut();
    let mut left = area;
    put(buffer, take_top(&mut left, 1), &[header(state, area.width)]);
    put(buffer, take_bottom(&mut left, 1), &[footer(state, area.width)]);
    let cursor = input(state, &mut left, buffer);
    let height = u16::try_from(state.trees.len().max(1)).unwrap_or(u16::MAX).min(left.height / 3).max(1);
    list(state, take_top(&mut left, height), buffer);
    if let Some(tree) = state.chosen() {
        details(state, tree, left, buffer);
    }
    if let Some(cursor) = cursor {
        frame.set_cursor_position(cursor);
    }
}

fn header(state: &LiveTrees, width: u16) -> Line<'static> {
    let live = state.trees.iter().filter(|tree| !tree.status().is_over()).count();
    let bold = Style::new().add_modifier(Modifier::BOLD).fg(Color::Cyan);
    let count = figures::count(live as u64, "live run tree");
    let scope = sanitize::inert_line(&state.scope);
    let left = vec![Span::styled(count, bold), Span::styled(format!(" · {scope}"), QUIET)];
    let spent: u64 = state.trees.iter().filter_map(|tree| Some(tree.fold.root()?.subtree.usage.cost_micros)).sum();
    let held: u64 = state.trees.iter().filter_map(|tree| Some(tree.fold.root()?.held.cost_micros)).sum();
    let money = format!("  spent {}, held {}", usd(spent), usd(held));
    spread(left, vec![Span::styled(money, QUIET)], " ", width)
}

fn footer(state: &LiveTrees, width: u16) -> Line<'static> {
    let keys = match (&state.mode, state.run) {
        (Mode::Telling(_), _) => "Enter: send · Esc: back".to_owned(),
        (Mode::Cancelling, _) => "y: cancel it · any other key: back".to_owned(),
        (Mode::Answering(dialog), _) => format!("{} · Esc: back", dialog.choices()),
        (Mode::Choosing, run) => {
            let move_on = if run.is_none() { "Enter: runs" } else { "Esc: trees" };
            let is_interrupted = state.chosen().is_some_and(|tree| tree.status() == Status::Interrupted);
            let act = if is_interrupted { "r: resume" } else { "t: tell · c: cancel · a: answer" };
            format!("↑↓: choose · {move_on} · {act} · q: leave")
        }
    };
    let text = if state.note.is_empty() { keys } else { sanitize::inert_line(&state.note) };
    let style = if state.note.is_empty() { QUIET } else { Style::new().fg(Color::Yellow) };
    Line::styled(cut(&text, usize::from(width)), style)
}

fn list(state: &LiveTrees, area: Rect, buffer: &mut Buffer) {
    if state.trees.is_empty() {
        let text = "no run is live here; one that is started now, such as with `homing run`, appears";
        return put(buffer, area, &[Line::styled(cut(text, usize::from(area.width)), QUIET)]);
    }
    let chosen = state.chosen().map(|tree| tree.id);
    let at = state.trees.iter().position(|tree| Some(tree.id) == chosen).unwrap_or(0);
    let height = usize::from(area.height);
    let from = at.saturating_sub(height.saturating_sub(1)).min(state.trees.len().saturating_sub(height));
    let shown = state.trees.iter().skip(from).take(height);
    let lines: Vec<Line<'static>> = shown.map(|tree| tree_line(state, tree, area.width)).collect();
    put(buffer, area, &lines);
    if state.run.is_none() {
        let y = area.y + u16::try_from(at - from).unwrap_or(0);
        buffer.set_style(Rect { y, height: 1, ..area }, CHOSEN);
    }
}

/// One tree: its state, agent, runs, money, time and task.
fn tree_line(state: &LiveTrees, tree: &WatchedTree, width: u16) -> Line<'static> {
    let Some(root) = tree.fold.root() else { return Line::default() };
    let (sign, colour) = match tree.status() {
        Status::Queued => ("· ", Color::Reset),
        Status::Running => ("● ", Color::Cyan),
        Status::Waiting => ("○ ", Color::Cyan),
        Status::Done => ("✓ ", Color::Green),
        Status::Exhausted | Status::TimedOut => ("◐ ", Color::Yellow),
        Status::Cancelled => ("– ", Color::Reset),
        Status::Failed | Status::Interrupted => ("✗ ", Color::Red),
        _ => ("? ", Color::Reset),
    };
    let runs = tree.board.rows().count();
    let open = tree.board.rows().filter(|row| !row.status.is_over()).count();
    let took = tree.board.rows().next().map_or(0, |root| root.took(state.now));
    let project =
        if tree.project.is_empty() { String::new() } else { format!("{}  ", sanitize::inert_line(&tree.project)) };
    let count = format!("{open}/{runs} runs");
    // A narrow screen needs the space for the task; what all trees hold is in the first line.
    let is_wide = width >= WIDE;
    let money = if is_wide { format!("{:>34}", money(tree, true)) } else { money(tree, false) };
    let right = format!("  {count:>8}  {money}  {:>6}", figures::time(took));
    let agent = cell(&sanitize::inert_line(&root.spawned.agent.name), 12) + " ";
    let left = vec![
        Span::styled(sign, Style::new().fg(colour)),
        Span::styled(agent, Style::new().add_modifier(Modifier::BOLD)),
        Span::styled(waiting(tree), Style::new().fg(Color::Yellow)),
        Span::styled(project, QUIET),
        Span::raw(first_line(&root.spawned.task)),
    ];
    spread(left, vec![Span::raw(right)], " ", width)
}

/// Says what a tree waits for, if it waits.
fn waiting(tree: &WatchedTree) -> String {
    let questions = tree.questions().len() as u64;
    let budget = tree.board.rows().filter(|row| row.waits_for_budget()).count();
    match (tree.status(), questions, budget) {
        (Status::Interrupted, ..) => "interrupted: no process works on it  ".to_owned(),
        (_, 1.., _) => format!("{}  ", figures::count(questions, "question")),
        (_, 0, 1..) => format!("{budget} waiting for budget  "),
        (_, 0, 0) => String::new(),
    }
}

/// Formats what a tree has spent, what it holds if that is asked for, and its limit.
fn money(tree: &WatchedTree, shows_held: bool) -> String {
    let Some(root) = tree.fold.root() else { return String::new() };
    let held = match root.held.cost_micros {
        held if shows_held && held > 0 => format!(" + {} held", usd(held)),
        _ => String::new(),
    };
    let limit = root.limits.cost_micros.value().map(|limit| format!(" of {}", usd(limit)));
    format!("{}{held}{}", usd(root.subtree.usage.cost_micros), limit.unwrap_or_default())
}

/// Draws the chosen tree: a line about it, its runs, and what happened last to the chosen one.
fn details(state: &LiveTrees, tree: &WatchedTree, mut left: Rect, buffer: &mut Buffer) {
    let (width, place) = (left.width, state.chosen_place());
    let run = tree.fold.runs().iter().find(|run| run.place == place);
    let agent = run.map(|run| sanitize::inert_line(&run.spawned.agent.name)).unwrap_or_default();
    let model = run.and_then(|run| run.spawned.models.first()).map(|model| sanitize::inert_line(model));
    let usage = run.map(|run| run.subtree.usage).unwrap_or_default();
    let owner = tree.owner.map_or_else(|| "no process".to_owned(), |pid| format!("process {pid}"));
    let title = format!(
        "─ {place} {agent} · {} · {} tok · {owner} · {} ",
        model.unwrap_or_default(),
        figures::tokens(usage.input + usage.output),
        short_id(tree.id)
    );
    put(buffer, take_top(&mut left, 1), &[spread(vec![Span::styled(title, QUIET)], Vec::new(), "─", width)]);
    let rows: Vec<_> = tree.board.rows().map(|row| row.with_place()).collect();
    let height = rows.len().min(usize::from(left.height / 2).max(1));
    let at = rows.iter().position(|row| row.place == place).unwrap_or(0);
    let from = at.saturating_sub(height / 2).min(rows.len().saturating_sub(height));
    let look = Look { width: usize::from(width), height, is_unicode: homing::environment::is_unicode_locale() };
    let lines: Vec<Line<'static>> =
        rows.iter().skip(from).take(height).map(|row| styled(&row_line(row, state.now, look))).collect();
    let area = take_top(&mut left, u16::try_from(lines.len()).unwrap_or(u16::MAX));
    put(buffer, area, &lines);
    if state.run.is_some() {
        let y = area.y + u16::try_from(at - from).unwrap_or(0);
        buffer.set_style(Rect { y, height: 1, ..area }, CHOSEN);
    }
    put(buffer, take_top(&mut left, 1), &[spread(Vec::new(), Vec::new(), "─", width)]);
    let log = tree.lines(&place, usize::from(left.height));
    let log: Vec<Line<'static>> =
        log.iter().map(|line| Line::raw(cut(&sanitize::inert_line(line), usize::from(width)))).collect();
    put(buffer, left, &log);
}

/// Draws what the user is writing. Returns the position of the cursor.
fn input(state: &LiveTrees, left: &mut Rect, buffer: &mut Buffer) -> Option<(u16, u16)> {
    let place = state.chosen_place();
    let width = usize::from(left.width);
    let (question, editor): (Vec<Line<'static>>, Option<&Editor>) = match &state.mode {
        Mode::Choosing => return None,
        Mode::Telling(editor) => (vec![Line::raw(format!("message to run {place}"))], Some(editor)),
        Mode::Cancelling => {
            let style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
            (vec![Line::styled(format!("cancel run {place} and the runs below it?"), style)], None)
        }
        Mode::Answering(dialog) => (dialog.lines(width), Some(&dialog.editor)),
    };
    let mut cursor = None;
    if let Some(editor) = editor {
        let rows = editor.rows(width.saturating_sub(2));
        let area = take_bottom(left, 1);
        let row = rows.rows.get(rows.cursor.0).cloned().unwrap_or_default();
        let mark = Style::new().fg(Color::Green).add_modifier(Modifier::BOLD);
        put(buffer, area, &[Line::from(vec![Span::styled("› ", mark), Span::raw(row)])]);
        let column = u16::try_from(rows.cursor.1 + 2).unwrap_or(u16::MAX).min(area.width.saturating_sub(1));
        cursor = Some((area.x + column, area.y));
    }
    let most = left.height.saturating_sub(2).max(1);
    let area = take_bottom(left, u16::try_from(question.len()).unwrap_or(u16::MAX).min(most));
    put(buffer, area, &question);
    put(buffer, take_bottom(left, 1), &[spread(Vec::new(), Vec::new(), "─", area.width)]);
    cursor
}
