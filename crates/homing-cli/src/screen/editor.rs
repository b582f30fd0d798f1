//! `Editor`: a text of several lines with a cursor, as pure state.

use homing_core::sanitize;
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// A text with a cursor. The cursor is always between two characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Editor {
    text: String,
    /// Position of the cursor in bytes.
    cursor: usize,
}

/// A text as rows of the screen, and the row and column of the cursor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<String>,
    pub(crate) cursor: (usize, usize),
}

impl Editor {
    pub(crate) fn with(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { cursor: text.len(), text }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text, and is empty afterwards.
    pub(crate) fn take(&mut self) -> String {
        self.cursor = 0;
        std::mem::take(&mut self.text)
    }

    /// Inserts text at the cursor. Control characters are left out, so that a pasted text is only text.
    pub(crate) fn insert(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let text: String = text.chars().filter(|character| !sanitize::is_active(*character)).collect();
        self.text.insert_str(self.cursor, &text);
        self.cursor += text.len();
    }

    /// Handles a key that edits the text or moves within it. Returns false for other keys, and for up and down in the first
    /// and the last line.
    pub(crate) fn key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        match key.code {
            KeyCode::Enter if alt || key.modifiers.contains(KeyModifiers::SHIFT) => self.insert("\n"),
            KeyCode::Char('j') if control => self.insert("\n"),
            KeyCode::Char('a') if control => self.cursor = self.line_start(),
            KeyCode::Char('e') if control => self.cursor = self.line_end(),
            KeyCode::Char('b') if alt => self.cursor = self.word_left(),
            KeyCode::Char('f') if alt => self.cursor = self.word_right(),
            KeyCode::Char('b') if control => self.cursor = self.left(),
            KeyCode::Char('f') if control => self.cursor = self.right(),
            KeyCode::Char('w') if control => self.delete_from(self.word_left()),
            KeyCode::Char('u') if control => self.delete_from(self.line_start()),
            KeyCode::Char('k') if control => self.delete_to(self.line_end()),
            KeyCode::Char(character) if !control && !alt => self.insert(character.encode_utf8(&mut [0; 4])),
            KeyCode::Backspace if alt || control => self.delete_from(self.word_left()),
            KeyCode::Backspace => self.delete_from(self.left()),
            KeyCode::Delete => self.delete_to(self.right()),
            KeyCode::Left if control || alt => self.cursor = self.word_left(),
            KeyCode::Right if control || alt => self.cursor = self.word_right(),
            KeyCode::Left => self.cursor = self.left(),
            KeyCode::Right => self.cursor = self.right(),
            KeyCode::Home => self.cursor = self.line_start(),
            KeyCode::End => self.cursor = self.line_end(),
            KeyCode::Up => return self.line_up(),
            KeyCode::Down => return self.line_down(),
            _ => return false,
        }
        true
    }

    /// Replaces a backslash at the end by a line break; returns false if there is none.
    pub(crate) fn continue_line(&mut self) -> bool {
        let ends = self.cursor == self.text.len() && self.text.ends_with('\\');
        if ends {
            self.text.pop();
            self.cursor = self.text.len();
            self.insert("\n");
        }
        ends
    }

    /// Returns the text in rows of at most `width` columns.
    pub(crate) fn rows(&self, width: usize) -> Rows {
        let mut rows = vec![String::new()];
        let (mut used, mut cursor) = (0, (0, 0));
        let mut at = 0;
        for character in self.text.graphemes(true) {
            let shown = if character == "\t" { "    " } else { character };
            let wide = shown.width();
            if character != "\n" && used + wide > width.max(2) {
                rows.push(String::new());
                used = 0;
            }
            if at == self.cursor {
                cursor = (rows.len() - 1, used);
            }
            at += character.len();
            if character == "\n" {
                rows.push(String::new());
                used = 0;
            } else if let Some(row) = rows.last_mut() {
                row.push_str(shown);
                used += wide;
            }
        }
        if self.cursor == self.text.len() {
            if used >= width.max(2) {
                rows.push(String::new());
                used = 0;
            }
            cursor = (rows.len() - 1, used);
        }
        Rows { rows, cursor }
    }

    fn left(&self) -> usize {
        self.text[..self.cursor].grapheme_indices(true).next_back().map_or(0, |(at, _)| at)
    }

    fn right(&self) -> usize {
        self.text[self.cursor..].graphemes(true).next().map_or(self.cursor, |next| self.cursor + next.len())
    }

    fn word_left(&self) -> usize {
        let before = self.text[..self.cursor].trim_end();
        before.char_indices().rev().find(|(_, c)| c.is_whitespace()).map_or(0, |(at, c)| at + c.len_utf8())
    }

    fn word_right(&self) -> usize {
        let after = &self.text[self.cursor..];
        let blank = after.len() - after.trim_start().len();
        let end = after[blank..].find(char::is_whitespace).map_or(after.len(), |at| blank + at);
        self.cursor + end
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.text[self.cursor..].find('\n').map_or(self.text.len(), |at| self.cursor + at)
    }

    fn delete_from(&mut self, start: usize) {
        self.text.replace_range(start..self.cursor, "");
        self.cursor = start;
    }

    fn delete_to(&mut self, end: usize) {
        self.text.replace_range(self.cursor..end, "");
    }

    fn line_up(&mut self) -> bool {
        let start = self.line_start();
        if start == 0 {
            return false;
        }
        let column = self.text[start..self.cursor].graphemes(true).count();
        self.cursor = start - 1;
        self.cursor = self.line_start();
        self.move_right_by(column);
        true
    }

    fn line_down(&mut self) -> bool {
        let end = self.line_end();
        if end == self.text.len() {
            return false;
        }
        let column = self.text[self.line_start()..self.cursor].graphemes(true).count();
        self.cursor = end + 1;
        self.move_right_by(column);
        true
    }

    fn move_right_by(&mut self, columns: usize) {
        let line = &self.text[self.cursor..self.line_end()];
        self.cursor += line.graphemes(true).take(columns).map(str::len).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(editor: &mut Editor, keys: &[(KeyCode, KeyModifiers)]) {
        for (code, modifiers) in keys {
            editor.key(KeyEvent::new(*code, *modifiers));
        }
    }

    #[test]
    fn characters_are_edited_as_the_user_sees_them() {
        let none = KeyModifiers::NONE;
        let mut editor = Editor::with("日本👩‍🚀e\u{301}");
        press(&mut editor, &[(KeyCode::Backspace, none), (KeyCode::Backspace, none)]);
        assert_eq!(editor.text(), "日本");
        press(&mut editor, &[(KeyCode::Left, none), (KeyCode::Char('x'), none)]);
        assert_eq!(editor.text(), "日x本");
        press(&mut editor, &[(KeyCode::Home, none), (KeyCode::Delete, none)]);
        assert_eq!(editor.text(), "x本");
    }

    #[test]
    fn several_lines_are_edited_and_shown() {
        let none = KeyModifiers::NONE;
        let mut editor = Editor::with("one two");
        press(&mut editor, &[(KeyCode::Enter, KeyModifiers::ALT)]);
        editor.insert("three\r\nfour\u{1b}[31m");
        assert_eq!(editor.text(), "one two\nthree\nfour[31m");
        assert!(editor.key(KeyEvent::new(KeyCode::Up, none)) && editor.key(KeyEvent::new(KeyCode::Up, none)));
        assert!(!editor.key(KeyEvent::new(KeyCode::Up, none)), "there is no line above");
        press(&mut editor, &[(KeyCode::Char('w'), KeyModifiers::CONTROL)]);
        assert_eq!(editor.text(), "one wo\nthree\nfour[31m", "the column is kept as far as possible");
        let rows = editor.rows(4);
        assert_eq!(rows.rows, ["one ", "wo", "thre", "e", "four", "[31m"]);
        assert_eq!(Editor::with("日本").rows(3), Rows { rows: vec!["日".into(), "本".into()], cursor: (1, 2) });
        assert_eq!(Editor::with("abcd").rows(4).cursor, (1, 0));
        let mut slash = Editor::with("a\\");
        assert!(slash.continue_line() && !Editor::with("a").continue_line());
        assert_eq!(slash.text(), "a\n");
    }
}
