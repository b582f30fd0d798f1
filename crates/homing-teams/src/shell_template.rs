//! Renders the command of a `bash` node. The values that a template inserts come from models and files, so each is quoted for
//! the place where it stands and stays one word. If the place is not understood, rendering fails instead of guessing.

use std::sync::LazyLock;

use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde_json::Value;

use crate::template;

/// Characters around a value in the rendered text. Unicode reserves them for such internal use; values lose them.
const OPEN: char = '\u{fdd0}';
const CLOSE: char = '\u{fdd1}';

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(template::FUEL));
    // Values are quoted in any case, so the filter changes nothing here.
    environment.add_filter("shell_quote", |value: minijinja::Value| value);
    environment.set_formatter(|out, _, value| {
        if value.is_safe() {
            out.write_str(&without_marks(&value.to_string()))?;
        } else {
            out.write_str(&format!("{OPEN}{}{CLOSE}", without_marks(&value.to_string())))?;
        }
        Ok(())
    });
    environment
});

fn without_marks(text: &str) -> String {
    text.replace([OPEN, CLOSE], "")
}

/// Renders a command. Each value becomes one word, or a part of the word around it; a value with the filter `safe` is inserted
/// as shell code.
pub(crate) fn render(command: &str, scope: &Value) -> Result<String, String> {
    if !command.contains('{') {
        return Ok(command.to_owned());
    }
    let rendered = ENVIRONMENT
        .render_str(&without_marks(command), minijinja::Value::from(minijinja::value::Serde(scope)))
        .map_err(|error| template::message(&error))?;
    let mut pieces = rendered.split(OPEN);
    let mut place = ShellPlace::default();
    let mut out = String::with_capacity(rendered.len());
    let first = pieces.next().unwrap_or_default();
    place.read(first);
    out.push_str(first);
    for piece in pieces {
        let (value, rest) = piece.split_once(CLOSE).unwrap_or((piece, ""));
        out.push_str(&place.quote(value)?);
        place.read(rest);
        out.push_str(rest);
    }
    Ok(out)
}

/// Problems of the template of a command: places at which a value cannot be quoted, and values that become shell code.
pub(crate) struct CommandProblems {
    /// The place that is not understood, if any.
    pub(crate) error: Option<String>,
    /// The first expression that is inserted as shell code.
    pub(crate) raw: Option<String>,
}

/// Checks the template of a command without any values.
pub(crate) fn check(command: &str) -> CommandProblems {
    let mut found = CommandProblems { error: None, raw: None };
    let mut place = ShellPlace::default();
    let mut rest = command;
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find("{%")).chain(rest.find("{#")).min() {
        place.read(&rest[..at]);
        let end = match &rest[at..at + 2] {
            "{{" => "}}",
            "{%" => "%}",
            _ => "#}",
        };
        let (inside, behind) = rest[at + 2..].split_once(end).unwrap_or((&rest[at + 2..], ""));
        if end == "}}" {
            let is_raw = inside.split('|').skip(1).any(|filter| filter.trim().trim_end_matches('-').trim() == "safe");
            if is_raw {
                found.raw.get_or_insert_with(|| inside.trim().to_owned());
            } else if let Err(why) = place.quote("x") {
                found.error.get_or_insert(why);
            }
        }
        rest = behind;
    }
    found
}

/// Quotes a text as one word.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The place in a command up to which its text was read.
#[derive(Default)]
struct ShellPlace {
    quotes: Quotes,
    /// The last character was a backslash that escapes the next one.
    is_escaped: bool,
    /// The last character, if it was not escaped.
    last: Option<char>,
    /// The construct after which quotes are not followed any more.
    unclear: Option<&'static str>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Quotes {
    #[default]
    None,
    Single,
    Double,
    Comment,
}

impl ShellPlace {
    /// Reads text of the command itself.
    fn read(&mut self, text: &str) {
        for letter in text.chars() {
            self.letter(letter);
        }
    }

    fn letter(&mut self, letter: char) {
        if std::mem::take(&mut self.is_escaped) {
            self.last = None;
            return;
        }
        let before = self.last.replace(letter);
        let starts_word = before.is_none_or(|before| before.is_whitespace() || ";&|()".contains(before));
        match (self.quotes, letter) {
            (Quotes::None | Quotes::Double, '\\') => self.is_escaped = true,
            (Quotes::None | Quotes::Double, '`') => self.unclear = Some("a backquote"),
            (Quotes::None | Quotes::Double, '{') if before == Some('$') => self.unclear = Some("`${`"),
            (Quotes::None | Quotes::Double, '[') if before == Some('$') => self.unclear = Some("`$[`"),
            // Bash evaluates the subscript of an array as arithmetic, in which quotes do not protect.
            (Quotes::None, '[') if !starts_word => self.unclear = Some("`[` within a word"),
            (Quotes::Double, '(') if before == Some('$') => self.unclear = Some("`$(` in quotes"),
            (Quotes::None, '(') if before == Some('(') => self.unclear = Some("`((`"),
            (Quotes::None, '<') if before == Some('<') => self.unclear = Some("`<<`"),
            (Quotes::None, '\'' | '"') if before == Some('$') => self.unclear = Some("`$` before quotes"),
            (Quotes::None, '\'') => self.quotes = Quotes::Single,
            (Quotes::None, '"') => self.quotes = Quotes::Double,
            (Quotes::None, '#') if starts_word => self.quotes = Quotes::Comment,
            (Quotes::Single, '\'') | (Quotes::Double, '"') | (Quotes::Comment, '\n') => self.quotes = Quotes::None,
            (Quotes::None | Quotes::Single | Quotes::Double | Quotes::Comment, _) => (),
        }
    }

    /// Quotes a value for this place.
    fn quote(&mut self, value: &str) -> Result<String, String> {
        let unclear = match (self.unclear, self.is_escaped, self.quotes) {
            (Some(construct), _, _) => Some(format!("after {construct}")),
            (None, true, _) => Some("after a backslash".to_owned()),
            (None, false, Quotes::Comment) => Some("in a comment".to_owned()),
            (None, false, Quotes::None | Quotes::Single | Quotes::Double) => None,
        };
        if let Some(place) = unclear {
            return Err(format!(
                "a value {place} cannot be quoted safely: insert it before, outside of other constructs"
            ));
        }
        if value.contains('\0') {
            return Err("a value contains a NUL character".to_owned());
        }
        self.last = Some('x');
        Ok(match self.quotes {
            Quotes::None | Quotes::Comment => quoted(value),
            Quotes::Double => format!("\"{}\"", quoted(value)),
            Quotes::Single => value.replace('\'', r"'\''"),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Values that would run a command or split the line if they were not quoted.
    const HOSTILE: &[&str] = &[
        "; touch pwned",
        "$(touch pwned)",
        "`touch pwned`",
        "'; touch pwned; '",
        "\"; touch pwned; \"",
        "a\ntouch pwned\n",
        "\\",
        "\\'; touch pwned #",
        "x' \"$(touch pwned)\" 'y",
        "* ~ $HOME !x",
        "",
        "--",
    ];

    #[test]
    fn values_stay_data_in_every_place() {
        let folder = tempfile::tempdir().unwrap();
        let commands = [
            "printf %s {{ v }}",
            "printf %s \"{{ v }}\"",
            "printf %s '{{ v }}'",
            "printf %s \"a {{ v }} b\" # a comment with it's quote",
            "printf %s x{{ v | shell_quote }}'y z'",
            "true \"it's\" && printf %s {{ v }}",
            "printf %s $(printf %s {{ v }})",
            "printf %s \\\"{{ v }}\\\"",
            "[ {{ v }} = x ] || printf %s {{ v }}",
        ];
        for value in HOSTILE {
            for command in commands {
                let rendered = render(command, &json!({"v": value})).unwrap();
                let output = std::process::Command::new("bash")
                    .args(["-c", &rendered])
                    .current_dir(folder.path())
                    .output()
                    .expect("bash runs");
                assert!(!folder.path().join("pwned").exists(), "{command} with {value:?}: {rendered}");
                let printed = String::from_utf8_lossy(&output.stdout).into_owned();
                let is_exact = !command.contains("$(");
                assert!(!is_exact || printed.contains(value), "{command} with {value:?}: {rendered}: {printed}");
            }
        }
    }

    #[test]
    fn unclear_places_are_refused_and_raw_code_must_be_asked_for() {
        let scope = json!({"v": "ls; true", "list": ["a b", "c"]});
        for command in [
            "cat <<EOF\n{{ v }}\nEOF",
            "echo \"$(echo \"{{ v }}\")\"",
            "echo `echo {{ v }}`",
            "echo $(( {{ v }} ))",
            "echo $[ {{ v }} ]",
            "a[{{ v }}]=1",
            "echo ${x:-{{ v }}}",
            "echo \\{{ v }}",
            "echo $'{{ v }}'",
            "# {{ v }}",
        ] {
            assert!(render(command, &scope).is_err(), "{command}");
            assert!(check(command).error.is_some(), "{command}");
        }
        assert_eq!(render("{{ v | safe }}", &scope).unwrap(), "ls; true");
        assert_eq!(check("{{ v | safe }}").raw.as_deref(), Some("v | safe"));
        assert_eq!(render("cat{% for f in list %} {{ f }}{% endfor %}", &scope).unwrap(), "cat 'a b' 'c'");
        assert!(check("cat{% for f in list %} \"{{ f }}\"{% endfor %}").error.is_none());
        assert!(render("{{ unknown }}", &scope).is_err());
    }
}
