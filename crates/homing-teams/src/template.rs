//! Templates and conditions in team files. Values are data: a value that is inserted is never rendered again.

use std::{collections::BTreeSet, sync::LazyLock};

use homing_core::registry::distance;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};
use serde_json::Value;

/// Maximum number of steps of one template, so that a loop in a hostile file ends.
const FUEL: u64 = 200_000;

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment
});

/// An error in a template, with its line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TemplateError {
    pub(crate) line: usize,
    pub(crate) message: String,
}

/// Renders a template.
pub(crate) fn render(template: &str, scope: &Value) -> Result<String, String> {
    // Most tasks contain no expression and need no rendering.
    if !template.contains('{') {
        return Ok(template.to_owned());
    }
    ENVIRONMENT.render_str(template, to_minijinja(scope)).map_err(|error| message(&error))
}

fn to_minijinja(scope: &Value) -> minijinja::Value {
    minijinja::Value::from(minijinja::value::Serde(scope))
}

/// Evaluates an expression.
pub(crate) fn evaluate(expression: &str, scope: &Value) -> Result<Value, String> {
    let compiled = ENVIRONMENT.compile_expression(expression).map_err(|error| message(&error))?;
    let value = compiled.eval(to_minijinja(scope)).map_err(|error| message(&error))?;
    if value.is_undefined() {
        return Err(format!("`{expression}` is not defined"));
    }
    serde_json::to_value(value).map_err(|error| error.to_string())
}

/// Evaluates a condition.
pub(crate) fn holds(condition: &str, scope: &Value) -> Result<bool, String> {
    let compiled = ENVIRONMENT.compile_expression(condition).map_err(|error| message(&error))?;
    compiled.eval(to_minijinja(scope)).map(|value| value.is_true()).map_err(|error| message(&error))
}

/// Renders all templates in a value. A string that is a single expression keeps the type of the expression.
pub(crate) fn fill(value: &Value, scope: &Value) -> Result<Value, String> {
    match value {
        Value::String(text) => match lone_expression(text) {
            Some(expression) => evaluate(expression, scope),
            None => render(text, scope).map(Value::String),
        },
        Value::Array(items) => items.iter().map(|item| fill(item, scope)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| Ok((key.clone(), fill(value, scope)?)))
            .collect::<Result<_, _>>()
            .map(Value::Object),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.clone()),
    }
}

fn lone_expression(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    (!inner.contains("{{") && !inner.contains("}}")).then_some(inner)
}

/// Names that a template uses and does not define, with their paths, such as `results.research.output`.
pub(crate) fn names(template: &str) -> Result<BTreeSet<String>, TemplateError> {
    let parsed = ENVIRONMENT.template_from_str(template).map_err(|error| problem(&error))?;
    for (line, expression) in expressions(template) {
        known_operations(expression).map_err(|message| TemplateError { line, message })?;
    }
    Ok(parsed.undeclared_variables(true).into_iter().collect())
}

/// Names that a condition uses, with their paths.
pub(crate) fn names_in_condition(condition: &str) -> Result<BTreeSet<String>, TemplateError> {
    let parsed = ENVIRONMENT.compile_expression(condition).map_err(|error| problem(&error))?;
    known_operations(condition).map_err(|message| TemplateError { line: 1, message })?;
    Ok(parsed.undeclared_variables(true).into_iter().collect())
}

/// The expressions and statements of a template, each with its line.
fn expressions(template: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = template[at..].find('{').map(|open| at + open) {
        let close = match template.as_bytes().get(open + 1) {
            Some(b'{') => "}}",
            Some(b'%') => "%}",
            Some(b'#') => "#}",
            Some(_) | None => {
                at = open + 1;
                continue;
            }
        };
        let inside = open + 2;
        let end = template[inside..].find(close).map_or(template.len(), |end| inside + end);
        if close != "#}" {
            found.push((1 + template[..open].matches('\n').count(), &template[inside..end]));
        }
        at = (end + 2).min(template.len());
    }
    found
}

/// Fails if an expression uses a filter or a test that does not exist: otherwise that would be found only when it is evaluated.
fn known_operations(expression: &str) -> Result<(), String> {
    for (kind, name) in operations(expression) {
        let (probe, missing) = match kind {
            "filter" => (format!("none|{name}"), ErrorKind::UnknownFilter),
            _ => (format!("none is {name}"), ErrorKind::UnknownTest),
        };
        let outcome = ENVIRONMENT.compile_expression(&probe).and_then(|probe| probe.eval(()));
        if outcome.is_err_and(|error| error.kind() == missing) {
            let near = FILTERS.iter().filter(|_| kind == "filter").min_by_key(|known| distance(known, name));
            let near = near.filter(|known| distance(known, name) <= 2);
            let hint = near.map(|known| format!(" (did you mean `{known}`?)")).unwrap_or_default();
            return Err(format!("unknown {kind} `{name}`{hint}"));
        }
    }
    Ok(())
}

/// Filters that are suggested for a misspelt one.
const FILTERS: [&str; 24] = [
    "default", "first", "float", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min",
    "reject", "replace", "reverse", "round", "select", "sort", "split", "sum", "tojson", "trim", "upper",
];

/// The filters and tests that an expression names, outside of its strings.
fn operations(expression: &str) -> Vec<(&'static str, &str)> {
    let mut found = Vec::new();
    let words = Words { text: expression, at: 0 };
    let mut before = "";
    for word in words {
        match (before, word) {
            ("|", name) if is_name(name) => found.push(("filter", name)),
            ("is", "not") => {
                // The test follows.
                continue;
            }
            ("is", name) if is_name(name) => found.push(("test", name)),
            (_, _) => (),
        }
        before = word;
    }
    found
}

fn is_name(word: &str) -> bool {
    word.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_')
}

/// The words and signs of an expression, without spaces and strings.
struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        let start = self.at;
        let first = bytes[start];
        if first == b'\'' || first == b'"' {
            self.at += 1;
            while self.at < bytes.len() && bytes[self.at] != first {
                self.at += if bytes[self.at] == b'\\' { 2 } else { 1 };
            }
            self.at += 1;
            return Some("");
        }
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        self.at += bytes[start..].iter().take_while(|byte| is_word(byte)).count();
        if self.at == start {
            self.at += self.text[start..].chars().next().map_or(1, char::len_utf8);
        }
        self.text.get(start..self.at)
    }
}

fn problem(error: &Error) -> TemplateError {
    TemplateError { line: error.line().unwrap_or(1), message: message(error) }
}

fn message(error: &Error) -> String {
    let kind = error.kind().to_string();
    error.detail().map_or(kind.clone(), |detail| format!("{kind}: {detail}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_data_and_are_never_rendered_again() {
        let scope = json!({"task": "{{ secret }} {% for x in y %}", "secret": "no"});
        assert_eq!(render("Do: {{ task }}", &scope).unwrap(), "Do: {{ secret }} {% for x in y %}");
        assert_eq!(fill(&json!({"q": "{{ task }}"}), &scope).unwrap(), json!({"q": "{{ secret }} {% for x in y %}"}));
    }

    #[test]
    fn single_expression_keeps_its_type() {
        let scope = json!({"n": 3, "list": [1, 2]});
        assert_eq!(
            fill(&json!(["{{ n + 1 }}", "{{ list }}", "n={{ n }}"]), &scope).unwrap(),
            json!([4, [1, 2], "n=3"])
        );
    }

    #[test]
    fn undefined_name_is_an_error() {
        assert!(render("{{ unknown }}", &json!({})).is_err());
        assert!(holds("a.b.c == 1", &json!({"a": {}})).is_err());
        assert!(!holds("a.b is defined", &json!({"a": {}})).unwrap());
    }

    #[test]
    fn unknown_filter_or_test_is_found_without_evaluation() {
        let message = |template: &str| names(template).unwrap_err().message;
        assert_eq!(message("{{ task | lenght }}"), "unknown filter `lenght` (did you mean `length`?)");
        assert_eq!(message("a\n{% if task is not strnig %}x{% endif %}"), "unknown test `strnig`");
        assert_eq!(names("a\n{{ task | frobnicate }}").unwrap_err().line, 2);
        let fine = "{{ task | replace('| nope', \"is it\") | upper }} {# | nope #} { | nope } {% if task is defined %}{% endif %}";
        assert!(names(fine).is_ok(), "{:?}", names(fine));
        assert!(names_in_condition("failures.f is not defined or 'ä' in task").is_ok());
        assert!(names_in_condition("task | nope").is_err());
    }

    #[test]
    fn endless_template_is_stopped() {
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        assert!(render(endless, &json!({})).is_err());
    }
}
