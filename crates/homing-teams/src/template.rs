//! Templates and conditions in team files. Values are data: a value that is inserted is never rendered again.

use std::{collections::BTreeSet, sync::LazyLock};

use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior};
use serde_json::Value;

use crate::shell_template;

/// Maximum number of steps of one template, so that a loop in a hostile file ends.
pub(crate) const FUEL: u64 = 200_000;

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.add_filter("shell_quote", |text: String| shell_template::quoted(&text));
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
    Ok(parsed.undeclared_variables(true).into_iter().collect())
}

/// Names that a condition uses, with their paths.
pub(crate) fn names_in_condition(condition: &str) -> Result<BTreeSet<String>, TemplateError> {
    let parsed = ENVIRONMENT.compile_expression(condition).map_err(|error| problem(&error))?;
    Ok(parsed.undeclared_variables(true).into_iter().collect())
}

fn problem(error: &Error) -> TemplateError {
    TemplateError { line: error.line().unwrap_or(1), message: message(error) }
}

pub(crate) fn message(error: &Error) -> String {
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
    fn endless_template_is_stopped() {
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        assert!(render(endless, &json!({})).is_err());
    }
}
