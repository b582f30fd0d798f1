//! The state of a graph: its initial values, and how new values are combined with old ones.

use serde_json::{Map as Object, Value, json};

use crate::graph::{FieldType, Graph, Reducer, StateField};

/// The initial state. A graph that continues an earlier turn begins with the state at its end.
pub(crate) fn initial(graph: &Graph, earlier: Option<&Value>) -> Object<String, Value> {
    let kept = |name: &str, field: &StateField| {
        let value = earlier?.get(name).filter(|value| !value.is_null() && fits(field.kind, value))?;
        Some(value.clone())
    };
    let value =
        |(name, field): (&String, &StateField)| (name.clone(), kept(name, field).unwrap_or_else(|| first(field)));
    graph.state.iter().map(value).collect()
}

fn first(field: &StateField) -> Value {
    match (&field.default, field.reducer, field.kind) {
        (Value::Null, Reducer::Append, _) | (Value::Null, _, FieldType::List) => json!([]),
        (Value::Null, Reducer::Merge, _) | (Value::Null, _, FieldType::Object) => json!({}),
        (Value::Null, Reducer::Add, _) => json!(0),
        (default, _, _) => default.clone(),
    }
}

/// Combines `new` with the field `name`.
pub(crate) fn put(graph: &Graph, state: &mut Object<String, Value>, name: &str, new: Value) -> Result<(), String> {
    let Some(field) = graph.state.get(name) else { return Err(format!("the state has no `{name}`")) };
    let old = state.get(name).cloned().unwrap_or_default();
    let in_code = graph.reducers.get(name).and_then(|reducer| reducer.0.as_ref());
    let combined = in_code.map(|reducer| reducer(&old, new.clone()));
    let value =
        combined.unwrap_or_else(|| reduce(field.reducer, old, new)).map_err(|why| format!("`{name}`: {why}"))?;
    if !fits(field.kind, &value) {
        return Err(format!("`{name}` must be {}, not {}", kind_name(field.kind), brief(&value)));
    }
    state.insert(name.to_owned(), value);
    Ok(())
}

/// Replaces the field `name`, whatever its reducer.
pub(crate) fn set(graph: &Graph, state: &mut Object<String, Value>, name: &str, value: Value) -> Result<(), String> {
    let Some(field) = graph.state.get(name) else { return Err(format!("the state has no `{name}`")) };
    if !fits(field.kind, &value) {
        return Err(format!("`{name}` must be {}, not {}", kind_name(field.kind), brief(&value)));
    }
    state.insert(name.to_owned(), value);
    Ok(())
}

fn reduce(reducer: Reducer, old: Value, new: Value) -> Result<Value, String> {
    match (reducer, old, new) {
        (Reducer::Replace, _, new) => Ok(new),
        (Reducer::Append, Value::Array(mut list), Value::Array(more)) => {
            list.extend(more);
            Ok(Value::Array(list))
        }
        (Reducer::Append, Value::Array(mut list), one) => {
            list.push(one);
            Ok(Value::Array(list))
        }
        (Reducer::Merge, Value::Object(mut fields), Value::Object(more)) => {
            fields.extend(more);
            Ok(Value::Object(fields))
        }
        (Reducer::Add, Value::Number(a), Value::Number(b)) => sum(&a, &b),
        (Reducer::Append, old, _) => Err(format!("{} is not a list to append to", brief(&old))),
        (Reducer::Merge, _, new) => Err(format!("{} has no keys to merge", brief(&new))),
        (Reducer::Add, _, new) => Err(format!("{} is not a number to add", brief(&new))),
    }
}

fn sum(a: &serde_json::Number, b: &serde_json::Number) -> Result<Value, String> {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.checked_add(b).map(Value::from).ok_or_else(|| "the sum is too large".to_owned()),
        _ => Ok(json!(a.as_f64().unwrap_or(0.0) + b.as_f64().unwrap_or(0.0))),
    }
}

fn fits(kind: FieldType, value: &Value) -> bool {
    match kind {
        FieldType::Any => true,
        FieldType::String => value.is_string(),
        FieldType::Number => value.is_number(),
        FieldType::Boolean => value.is_boolean(),
        FieldType::List => value.is_array(),
        FieldType::Object => value.is_object(),
    }
}

fn kind_name(kind: FieldType) -> &'static str {
    match kind {
        FieldType::Any => "anything",
        FieldType::String => "a string",
        FieldType::Number => "a number",
        FieldType::Boolean => "true or false",
        FieldType::List => "a list",
        FieldType::Object => "an object",
    }
}

/// The beginning of a value, for messages.
pub(crate) fn brief(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= 60 { text } else { format!("{}…", &text[..text.floor_char_boundary(60)]) }
}

/// The reason why the reducer of a field cannot work on its type, if there is one.
pub(crate) fn reducer_misfit(field: &StateField) -> Option<String> {
    let needed = match field.reducer {
        Reducer::Replace => return None,
        Reducer::Append => FieldType::List,
        Reducer::Merge => FieldType::Object,
        Reducer::Add => FieldType::Number,
    };
    let name = match field.reducer {
        Reducer::Replace => "replace",
        Reducer::Append => "append",
        Reducer::Merge => "merge",
        Reducer::Add => "add",
    };
    let fits = field.kind == needed || field.kind == FieldType::Any;
    (!fits).then(|| format!("`{name}` needs {}, not {}", kind_name(needed), kind_name(field.kind)))
}

/// Returns whether the default has the type of the field.
pub(crate) fn default_fits(field: &StateField) -> bool {
    field.default.is_null() || fits(field.kind, &field.default)
}
