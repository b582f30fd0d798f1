//! `Dialog`: a question of a run, and the answer that the user is writing.

use homing_core::{
    question::{Answer, OpenQuestion, QuestionKind},
    sanitize,
};
use ratatui_core::{
    style::{Color, Modifier, Style},
    text::Line,
};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent};

use super::{
    editor::Editor,
    wrap::{Indent, wrap_text},
};
use crate::permission_prompt::{HELP, NewRules, Step, TerminalPrompt, is_yes};

const QUIET: Style = Style::new().add_modifier(Modifier::DIM);

/// A question, and the answer that the user is writing.
#[derive(Debug)]
pub(crate) struct Dialog {
    pub(crate) open: OpenQuestion,
    /// Number of other questions that wait.
    pub(crate) others: usize,
    pub(crate) editor: Editor,
    /// Rules that are written if the user confirms it.
    confirm: Option<NewRules>,
    /// A remark about the last answer.
    note: Option<String>,
}

impl Dialog {
    /// Shows the first of the questions. A dialog about one of them that is open stays open.
    pub(crate) fn refresh(dialog: &mut Option<Self>, questions: Vec<OpenQuestion>) {
        let others = questions.len().saturating_sub(1);
        if let Some(shown) = dialog
            && questions.iter().any(|question| question.id == shown.open.id)
        {
            shown.others = others;
            return;
        }
        let first = questions.into_iter().next();
        *dialog = first.map(|open| Self { open, others, editor: Editor::default(), confirm: None, note: None });
    }

    /// Handles a key. Enter returns what the user wrote.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<String> {
        if key.code == KeyCode::Enter && key.modifiers.is_empty() {
            return Some(self.editor.take());
        }
        self.editor.key(key);
        None
    }

    /// Interprets what the user wrote. Returns the answer, or `None` if something is left to ask. A lasting approval is shown
    /// before it is given.
    pub(crate) fn enter(&mut self, text: &str, prompt: &TerminalPrompt) -> Option<Answer> {
        let question = &self.open.question;
        if let Some(new) = self.confirm.take() {
            if is_yes(text) {
                prompt.remember(question, &new);
            }
            return Some(Answer::Yes);
        }
        match self.open.kind {
            QuestionKind::Permission => match prompt.first_step(text, question) {
                Step::Answer(answer) => return Some(answer),
                Step::Repeat => self.note = Some(HELP.trim().to_owned()),
                Step::Confirm(new) => {
                    self.note = Some(prompt.preview(&new));
                    self.confirm = Some(new);
                }
            },
            QuestionKind::Choice | QuestionKind::Text => match question.read_answer(text) {
                Ok(answer) => return Some(answer),
                Err(error) => self.note = Some(error.to_string()),
            },
        }
        None
    }

    /// Returns the question in lines of at most `width` columns.
    pub(crate) fn lines(&self, width: usize) -> Vec<Line<'static>> {
        let question = &self.open.question;
        let mark = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut lines = wrap_text(&sanitize::inert(question.text.trim()), bold, width, &Indent::hanging("? ", mark));
        let indent = Indent::all("  ", QUIET);
        let who = format!("asked by run {} ({})", self.open.place, sanitize::inert_line(&self.open.agent));
        let rule = question.rule.as_deref().map(|rule| format!(", because of {}", sanitize::inert_line(rule)));
        let others = if self.others == 0 { String::new() } else { format!("; {} more", self.others) };
        lines.extend(wrap_text(&format!("{who}{}{others}", rule.unwrap_or_default()), QUIET, width, &indent));
        for (at, option) in question.options.iter().enumerate() {
            let option = format!("{}. {}", at + 1, sanitize::inert_line(option));
            lines.extend(wrap_text(&option, Style::new(), width, &indent));
        }
        if let Some(note) = &self.note {
            lines.extend(wrap_text(&sanitize::inert(note), Style::new().fg(Color::Yellow), width, &indent));
        }
        lines
    }

    /// Returns the answers that are possible, in short.
    pub(crate) fn choices(&self) -> &'static str {
        match (self.open.kind, &self.confirm) {
            (_, Some(_)) => "write it? y: yes · n: no, allow only this call",
            (QuestionKind::Permission, None) => "y: yes · n: no · a: always this call here · w: wider · no, because …",
            (QuestionKind::Choice, None) => "write the number or the text of an option",
            (QuestionKind::Text, None) => "write your answer",
        }
    }
}
