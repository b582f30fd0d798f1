//! Draws the live tree as lines of text: a pure function of the board and the size of the screen.

use std::collections::BTreeSet;

use homing_core::{envelope::Status, limits::usd, place::Place};

use super::{Board, BoardRow, figures};
use crate::columns::{UnicodeWidthStr, cut_with};

/// The size and abilities of the screen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) is_unicode: bool,
}

/// Draws the tree in at most `height` lines of at most `width` columns. Finished subtrees are folded first, then deep ones.
pub(crate) fn frame(board: &Board, look: Look) -> Vec<String> {
    let rows: Vec<&BoardRow> = board.rows().collect();
    let most = look.height.max(1);
    let shown = fold(&rows, most);
    let mut lines: Vec<String> =
        shown.iter().map(|row| line(row, hidden_below(row, &rows, &shown), board.now, look)).collect();
    if lines.len() > most {
        lines.truncate(most.saturating_sub(1));
        let left = rows.len() - lines.len();
        lines.push(cut(&format!("{} {}", dots(look), figures::count(left as u64, "more run")), look, look.width));
    }
    lines
}

/// Draws one line for the items of a map: how many are finished, running and failed, and their usage.
pub(crate) fn bar(board: &Board, of: usize, look: Look) -> String {
    let items = || board.rows().filter(|row| row.place.depth() == 1);
    let finished = items().filter(|row| row.status.is_over()).count();
    let failed = items().filter(|row| row.status.is_over() && row.status != Status::Done).count();
    let busy = items().filter(|row| !row.status.is_over()).count();
    let tokens: u64 = board.rows().map(|row| row.tokens).sum();
    let cost: u64 = board.rows().map(|row| row.cost_micros).sum();
    let took = board.rows().next().map_or(0, |root| root.took(board.now));
    let width = (look.width / 3).min(30);
    let full = (width * finished).checked_div(of).unwrap_or(0).min(width);
    let (done, open) = if look.is_unicode { ("█", "░") } else { ("#", ".") };
    let waiting = board.rows().filter(|row| row.waits_for_budget()).count();
    let waiting = if waiting > 0 { format!(" · {waiting} waiting for budget") } else { String::new() };
    let line = format!(
        "{}{} {finished}/{of} · {busy} running{waiting} · {failed} failed · {} tok · {} · {}",
        done.repeat(full),
        open.repeat(width - full),
        figures::tokens(tokens),
        usd(cost),
        figures::time(took)
    );
    cut(&line, look, look.width)
}

/// Removes whole subtrees until the rest fits: finished ones first, then the deepest.
fn fold<'a>(rows: &[&'a BoardRow], most: usize) -> Vec<&'a BoardRow> {
    let mut shown: Vec<&BoardRow> = rows.to_vec();
    if shown.len() > most {
        let finished: BTreeSet<&Place> = rows.iter().filter(|row| row.status.is_over()).map(|row| &row.place).collect();
        shown.retain(|row| !is_below_any(&row.place, &finished));
    }
    if shown.len() > most {
        shown.retain(|row| !row.status.is_over() || row.place.depth() == 0);
    }
    let mut deepest = shown.iter().map(|row| row.place.depth()).max().unwrap_or(0);
    while shown.len() > most && deepest > 1 {
        shown.retain(|row| row.place.depth() < deepest);
        deepest -= 1;
    }
    shown
}

fn is_below_any(place: &Place, tops: &BTreeSet<&Place>) -> bool {
    let mut above = place.parent();
    while let Some(parent) = above {
        if tops.contains(&parent) {
            return true;
        }
        above = parent.parent();
    }
    false
}

/// Counts the hidden runs whose nearest shown ancestor is this one: unfinished and finished.
fn hidden_below(row: &BoardRow, all: &[&BoardRow], shown: &[&BoardRow]) -> (usize, usize) {
    if all.len() == shown.len() {
        return (0, 0);
    }
    let is_shown = |place: &Place| shown.iter().any(|row| row.place == *place);
    let nearest = |place: &Place| {
        let mut above = place.parent();
        while let Some(parent) = above {
            if is_shown(&parent) {
                return Some(parent);
            }
            above = parent.parent();
        }
        None
    };
    let hidden =
        all.iter().filter(|other| !is_shown(&other.place) && nearest(&other.place).as_ref() == Some(&row.place));
    let (finished, open): (Vec<&BoardRow>, Vec<&BoardRow>) = hidden.copied().partition(|other| other.status.is_over());
    (open.len(), finished.len())
}

/// Draws one run without its children.
pub(crate) fn row_line(row: &BoardRow, now: u64, look: Look) -> String {
    line(row, (0, 0), now, look)
}

fn line(row: &BoardRow, (open, finished): (usize, usize), now: u64, look: Look) -> String {
    let indent = " ".repeat((2 * row.place.depth()).min(look.width / 3));
    let head = format!("{indent}{} {}", glyph(row.status, look), row.agent);
    let folded = match (open, finished) {
        (0, 0) => String::new(),
        (0, finished) => format!(" ({finished} finished)"),
        (open, 0) => format!(" ({open} hidden)"),
        (open, finished) => format!(" ({open} hidden, {finished} finished)"),
    };
    let tail = tail(row, now, look);
    let available = look.width.saturating_sub(tail.width() + 1);
    let left = cut(&format!("{head}{folded}  {}", row.activity), look, available);
    let gap = " ".repeat(look.width.saturating_sub(left.width() + tail.width()));
    format!("{left}{gap}{tail}").trim_end().to_owned()
}

/// Formats the figures at the right, as many as the width allows.
fn tail(row: &BoardRow, now: u64, look: Look) -> String {
    let time = figures::time(row.took(now));
    match look.width {
        0..30 => String::new(),
        30..60 => format!("{time:>6}"),
        _ => format!("{:>7} tok {:>8} {time:>6}", figures::tokens(row.tokens), usd(row.cost_micros)),
    }
}

/// Returns the sign for a status.
fn glyph(status: Status, look: Look) -> char {
    let (unicode, ascii) = match status {
        Status::Queued => ('·', '.'),
        Status::Running => ('●', '*'),
        Status::Waiting => ('○', 'o'),
        Status::Interrupted => ('!', '!'),
        Status::Done => ('✓', '+'),
        Status::Exhausted | Status::TimedOut => ('◐', '%'),
        Status::Cancelled => ('–', '-'),
        Status::Failed => ('✗', 'x'),
        _ => ('?', '?'),
    };
    if look.is_unicode { unicode } else { ascii }
}

fn dots(look: Look) -> &'static str {
    if look.is_unicode { "…" } else { "..." }
}

/// Cuts `text` to at most `width` columns.
fn cut(text: &str, look: Look, width: usize) -> String {
    cut_with(text, width, dots(look))
}

/// Returns the line with its sign in colour.
pub(crate) fn coloured(line: &str) -> String {
    let Some((at, sign)) = line.char_indices().find(|(_, c)| !c.is_whitespace()) else { return line.to_owned() };
    let colour = sign_colour(sign);
    format!("{}\x1b[{colour}m{sign}\x1b[0m{}", &line[..at], &line[at + sign.len_utf8()..])
}

/// Returns the colour of a sign, as the number that terminals use; 2 is dim.
pub(crate) fn sign_colour(sign: char) -> &'static str {
    match sign {
        '✓' | '+' => "32",
        '✗' | 'x' | '!' => "31",
        '◐' | '%' => "33",
        '●' | '*' => "36",
        _ => "2",
    }
}

#[cfg(test)]
mod tests {
    use snapbox::{assert_data_eq, str};

    use super::*;

    fn row(place: &str, agent: &str, status: Status, activity: &str) -> BoardRow {
        BoardRow {
            place: place.parse().unwrap(),
            agent: agent.to_owned(),
            status,
            activity: activity.to_owned(),
            streamed: String::new(),
            tokens: 12_345,
            cost_micros: 4_200,
            began: Some(1_000),
            ended: status.is_over().then_some(3_500),
        }
    }

    fn board(rows: Vec<BoardRow>) -> Board {
        let rows = rows.into_iter().map(|row| (row.place.clone(), row)).collect();
        Board { rows, now: 8_400, ..Board::default() }
    }

    fn small() -> Board {
        board(vec![
            row("1", "general", Status::Waiting, "delegate to explore"),
            row("1.1", "explore", Status::Done, "found it in src/retry.rs"),
            row("1.2", "explore", Status::Running, "grep 日本語 retry"),
            row("1.2.1", "plan", Status::Failed, "no key"),
            row("1.3", "explore", Status::Queued, "queued"),
        ])
    }

    fn look(width: usize, height: usize) -> Look {
        Look { width, height, is_unicode: true }
    }

    #[test]
    fn tree_has_one_line_per_run() {
        let lines = frame(&small(), look(72, 10)).join("\n");
        assert_data_eq!(
            lines,
            str![[r#"
○ general  delegate to explore                 12.3k tok  $0.0042   7.4s
  ✓ explore  found it in src/retry.rs          12.3k tok  $0.0042   2.5s
  ● explore  grep 日本語 retry                 12.3k tok  $0.0042   7.4s
    ✗ plan  no key                             12.3k tok  $0.0042   2.5s
  · explore  queued                            12.3k tok  $0.0042   7.4s
"#]]
        );
    }

    #[test]
    fn twenty_ascii_columns_are_enough() {
        let lines = frame(&small(), Look { width: 20, height: 10, is_unicode: false });
        assert!(lines.iter().all(|line| line.width() <= 20), "{lines:?}");
        assert!(lines[1].trim_start().starts_with("+ explore") && lines[3].contains("x plan"), "{lines:?}");
        for width in 0..40 {
            assert!(frame(&small(), look(width, 3)).iter().all(|line| line.width() <= width));
        }
    }

    #[test]
    fn big_tree_is_folded_into_the_height() {
        let mut rows = vec![row("1", "lead", Status::Waiting, "")];
        for n in 1..=20 {
            rows.push(row(&format!("1.{n}"), "worker", if n % 2 == 0 { Status::Done } else { Status::Running }, "x"));
            rows.push(row(&format!("1.{n}.1"), "helper", Status::Done, "y"));
        }
        for height in 1..50 {
            assert!(frame(&board(rows.clone()), look(80, height)).len() <= height);
        }
        let lines = frame(&board(rows.clone()), look(80, 12));
        assert!(lines[0].starts_with("○ lead ("), "{lines:?}");
        assert!(lines[0].contains("finished)") && lines[1..].iter().all(|line| line.contains('●')), "{lines:?}");
        let short = frame(&board(rows.clone()), look(80, 5));
        assert!(short.len() == 5 && short[4].starts_with("… 37 more runs"), "{short:?}");
        assert_eq!(frame(&board(rows), look(80, 60)).len(), 41);
    }

    #[test]
    fn bar_counts_finished_running_and_failed_items() {
        let line = bar(&small(), 3, look(90, 1));
        assert_data_eq!(
            line,
            str!["██████████░░░░░░░░░░░░░░░░░░░░ 1/3 · 2 running · 0 failed · 61.7k tok · $0.021 · 7.4s"]
        );
    }

    #[test]
    fn thousand_runs_are_drawn_quickly() {
        let mut rows = vec![row("1", "lead", Status::Waiting, "")];
        rows.extend((1..=1_000).map(|n| row(&format!("1.{n}"), "worker", Status::Running, "x")));
        let board = board(rows);
        let started = std::time::Instant::now();
        for _ in 0..10 {
            assert_eq!(frame(&board, look(80, 24)).len(), 24);
        }
        assert!(started.elapsed() < std::time::Duration::from_secs(2), "{:?}", started.elapsed());
    }
}
