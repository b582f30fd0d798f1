//! The live tree as lines of text: a pure function of what is known and of the room there is.

use std::collections::BTreeSet;

use homing_core::{envelope::Status, place::Place};

use super::{Board, RunRow, figures};

/// What the screen can show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) is_unicode: bool,
}

/// The tree in at most `height` lines of at most `width` columns: finished subtrees are folded first, then deep ones.
pub(crate) fn frame(board: &Board, look: Look) -> Vec<String> {
    let rows: Vec<&RunRow> = board.rows().collect();
    let most = look.height.max(1);
    let shown = fold(&rows, most);
    let mut lines: Vec<String> =
        shown.iter().map(|row| line(row, hidden_below(row, &rows, &shown), board.now, look)).collect();
    if lines.len() > most {
        lines.truncate(most.saturating_sub(1));
        let left = rows.len() - lines.len();
        lines.push(cut(&format!("{} {}", dots(look), figures::count(left as u64, "more run")), look.width));
    }
    lines
}

/// One line for many runs of the same kind: how many came back, how many are at work, what they took.
pub(crate) fn bar(board: &Board, of: usize, look: Look) -> String {
    let items = || board.rows().filter(|row| row.place.depth() == 1);
    let over = items().filter(|row| row.status.is_over()).count();
    let failed = items().filter(|row| row.status.is_over() && row.status != Status::Done).count();
    let busy = items().filter(|row| !row.status.is_over()).count();
    let tokens: u64 = board.rows().map(|row| row.tokens).sum();
    let cost: u64 = board.rows().map(|row| row.cost_micros).sum();
    let took = board.rows().next().map_or(0, |root| root.took(board.now));
    let width = (look.width / 3).min(30);
    let full = (width * over).checked_div(of).unwrap_or(0).min(width);
    let (done, open) = if look.is_unicode { ("█", "░") } else { ("#", ".") };
    let line = format!(
        "{}{} {over}/{of} · {busy} at work · {failed} not done · {} tok · {} · {}",
        done.repeat(full),
        open.repeat(width - full),
        figures::tokens(tokens),
        figures::money(cost),
        figures::time(took)
    );
    cut(&line, look.width)
}

/// Leaves out whole subtrees until the rest fits: what is over goes first, then what is deepest.
fn fold<'a>(rows: &[&'a RunRow], most: usize) -> Vec<&'a RunRow> {
    let mut shown: Vec<&RunRow> = rows.to_vec();
    if shown.len() > most {
        let over: BTreeSet<&Place> = rows.iter().filter(|row| row.status.is_over()).map(|row| &row.place).collect();
        shown
            .retain(|row| !row.place.parent().is_some_and(|it| over.contains(&it)) && !is_below_any(&row.place, &over));
    }
    if shown.len() > most {
        // Keep the living, and of the finished ones none.
        let living: Vec<&RunRow> =
            shown.iter().copied().filter(|row| !row.status.is_over() || row.place.depth() == 0).collect();
        shown = living;
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
    while let Some(it) = above {
        if tops.contains(&it) {
            return true;
        }
        above = it.parent();
    }
    false
}

/// Runs below this one that no line shows, told to it where none of its nearer ancestors is shown.
fn hidden_below(row: &RunRow, all: &[&RunRow], shown: &[&RunRow]) -> (usize, usize) {
    if all.len() == shown.len() {
        return (0, 0);
    }
    let is_shown = |place: &Place| shown.iter().any(|it| it.place == *place);
    let nearest = |place: &Place| {
        let mut above = place.parent();
        while let Some(it) = above {
            if is_shown(&it) {
                return Some(it);
            }
            above = it.parent();
        }
        None
    };
    let hidden = all.iter().filter(|it| !is_shown(&it.place) && nearest(&it.place).as_ref() == Some(&row.place));
    hidden.fold((0, 0), |(open, over), it| if it.status.is_over() { (open, over + 1) } else { (open + 1, over) })
}

fn line(row: &RunRow, (open, over): (usize, usize), now: u64, look: Look) -> String {
    let indent = " ".repeat((2 * row.place.depth()).min(look.width / 3));
    let head = format!("{indent}{} {}", glyph(row.status, look), row.agent);
    let folded = match (open, over) {
        (0, 0) => String::new(),
        (0, over) => format!(" (+{over} over)"),
        (open, 0) => format!(" (+{open})"),
        (open, over) => format!(" (+{open}, {over} over)"),
    };
    let tail = tail(row, now, look);
    let room = look.width.saturating_sub(columns(&tail) + 1);
    let left = cut(&format!("{head}{folded}  {}", row.doing), room);
    let gap = " ".repeat(look.width.saturating_sub(columns(&left) + columns(&tail)));
    format!("{left}{gap}{tail}").trim_end().to_owned()
}

/// The figures at the right, as many as there is room for.
fn tail(row: &RunRow, now: u64, look: Look) -> String {
    let time = figures::time(row.took(now));
    match look.width {
        0..30 => String::new(),
        30..60 => format!("{time:>6}"),
        _ => format!("{:>7} tok {:>8} {time:>6}", figures::tokens(row.tokens), figures::money(row.cost_micros)),
    }
}

/// One sign per state.
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
    };
    if look.is_unicode { unicode } else { ascii }
}

fn dots(look: Look) -> &'static str {
    if look.is_unicode { "…" } else { "..." }
}

/// `text` in at most `width` columns.
fn cut(text: &str, width: usize) -> String {
    let mut used = 0;
    let mut out = String::new();
    for it in text.chars() {
        used += wide(it);
        if used > width {
            return out;
        }
        out.push(it);
    }
    out
}

fn columns(text: &str) -> usize {
    text.chars().map(wide).sum()
}

/// Columns of a character: East Asian ones and pictures take two, marks on others none.
fn wide(it: char) -> usize {
    match u32::from(it) {
        0x300..=0x36f | 0x200d | 0xfe00..=0xfe0f | 0x1f3fb..=0x1f3ff => 0,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f => 2,
        0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// The same line with its sign in colour.
pub(crate) fn coloured(line: &str) -> String {
    let Some((at, sign)) = line.char_indices().find(|(_, it)| !it.is_whitespace()) else { return line.to_owned() };
    let colour = match sign {
        '✓' | '+' => "32",
        '✗' | 'x' | '!' => "31",
        '◐' | '%' => "33",
        '●' | '*' => "36",
        _ => "2",
    };
    format!("{}\x1b[{colour}m{sign}\x1b[0m{}", &line[..at], &line[at + sign.len_utf8()..])
}

#[cfg(test)]
mod tests {
    use snapbox::{assert_data_eq, str};

    use super::*;

    fn row(place: &str, agent: &str, status: Status, doing: &str) -> RunRow {
        RunRow {
            place: place.parse().unwrap(),
            agent: agent.to_owned(),
            status,
            doing: doing.to_owned(),
            tokens: 12_345,
            cost_micros: 4_200,
            began: Some(1_000),
            ended: status.is_over().then_some(3_500),
        }
    }

    fn board(rows: Vec<RunRow>) -> Board {
        let rows = rows.into_iter().map(|row| (row.place.clone(), row)).collect();
        Board { rows, now: 8_400, ..Board::default() }
    }

    fn small() -> Board {
        board(vec![
            row("1", "general", Status::Waiting, "delegate explore"),
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
    fn a_tree_has_one_line_per_run() {
        let lines = frame(&small(), look(72, 10)).join("\n");
        assert_data_eq!(
            lines,
            str![[r#"
○ general  delegate explore                    12.3k tok  $0.0042   7.4s
  ✓ explore  found it in src/retry.rs          12.3k tok  $0.0042   2.5s
  ● explore  grep 日本語 retry                 12.3k tok  $0.0042   7.4s
    ✗ plan  no key                             12.3k tok  $0.0042   2.5s
  · explore  queued                            12.3k tok  $0.0042   7.4s
"#]]
        );
    }

    #[test]
    fn twenty_columns_are_enough_and_no_unicode_is_needed() {
        let lines = frame(&small(), Look { width: 20, height: 10, is_unicode: false });
        assert!(lines.iter().all(|it| columns(it) <= 20), "{lines:?}");
        assert!(lines[1].trim_start().starts_with("+ explore") && lines[3].contains("x plan"), "{lines:?}");
        for width in 0..40 {
            assert!(frame(&small(), look(width, 3)).iter().all(|it| columns(it) <= width));
        }
    }

    #[test]
    fn a_big_tree_folds_into_the_height_and_says_what_is_hidden() {
        let mut rows = vec![row("1", "lead", Status::Waiting, "")];
        for n in 1..=20 {
            rows.push(row(&format!("1.{n}"), "worker", if n % 2 == 0 { Status::Done } else { Status::Running }, "x"));
            rows.push(row(&format!("1.{n}.1"), "helper", Status::Done, "y"));
        }
        for height in 1..50 {
            assert!(frame(&board(rows.clone()), look(80, height)).len() <= height);
        }
        let lines = frame(&board(rows.clone()), look(80, 12));
        assert!(lines[0].starts_with("○ lead (+"), "{lines:?}");
        assert!(lines[0].contains("over)") && lines[1..].iter().all(|it| it.contains('●')), "{lines:?}");
        let short = frame(&board(rows.clone()), look(80, 5));
        assert!(short.len() == 5 && short[4].starts_with("… 37 more runs"), "{short:?}");
        assert_eq!(frame(&board(rows), look(80, 60)).len(), 41);
    }

    #[test]
    fn a_bar_says_how_many_came_back() {
        let line = bar(&small(), 3, look(90, 1));
        assert_data_eq!(
            line,
            str!["██████████░░░░░░░░░░░░░░░░░░░░ 1/3 · 2 at work · 0 not done · 61.7k tok · $0.021 · 7.4s"]
        );
    }

    #[test]
    fn a_thousand_runs_are_drawn_in_no_time() {
        let mut rows = vec![row("1", "lead", Status::Waiting, "")];
        rows.extend((1..=1_000).map(|n| row(&format!("1.{n}"), "worker", Status::Running, "x")));
        let board = board(rows);
        let begun = std::time::Instant::now();
        for _ in 0..10 {
            assert_eq!(frame(&board, look(80, 24)).len(), 24);
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
    }
}
