//! `JsonText`: a JSON value that is kept as text.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, value::RawValue};

/// A JSON value that is kept as text, for data that is rarely looked at: a parsed object takes up to ten times as much memory.
///
/// # Examples
///
/// ```
/// # mod homing { pub use homing_core::json_text::JsonText; }
/// use homing::JsonText;
/// use serde_json::json;
///
/// let data = JsonText::from(json!({"exit_code": 0}));
/// assert_eq!(data.as_str(), r#"{"exit_code":0}"#);
/// assert_eq!(data.value()["exit_code"], 0);
/// ```
#[derive(Clone)]
pub struct JsonText(Arc<RawValue>);

impl JsonText {
    /// Encodes a value.
    ///
    /// # Errors
    ///
    /// Fails if the value is not valid as JSON, such as a map whose keys are not strings.
    pub fn new(value: &impl Serialize) -> serde_json::Result<Self> {
        serde_json::value::to_raw_value(value).map(|text| Self(text.into()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Parses the text.
    pub fn value(&self) -> Value {
        self.parse().unwrap_or_default()
    }

    /// Parses the text as `T`.
    ///
    /// # Errors
    ///
    /// Fails if the value does not match the type.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> serde_json::Result<T> {
        serde_json::from_str(self.as_str())
    }
}

impl From<&Value> for JsonText {
    fn from(value: &Value) -> Self {
        Self::new(value).expect("a JSON value has only string keys")
    }
}

impl From<Value> for JsonText {
    fn from(value: Value) -> Self {
        Self::from(&value)
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// It is parsed and written again, because `RawValue` cannot be read within an enum whose tag is one of its fields.
impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::{Message, ToolResult};

    #[test]
    fn data_of_a_result_is_written_as_json_and_read_within_tagged_messages() {
        let data = json!({"z": [1, 2.5, null], "a": {"text": "\"quoted\""}});
        let result = ToolResult {
            index: 0,
            call_id: "c".to_owned(),
            name: "tool".to_owned(),
            text: String::new(),
            images: Vec::new(),
            data: Some((&data).into()),
            is_error: false,
        };
        let message = Message::Tool(Arc::new(result));
        let text = serde_json::to_string(&message).unwrap();
        assert!(text.contains(r#""data":{"z":[1,2.5,null],"a":{"text":"\"quoted\""}}"#), "{text}");
        assert_eq!(serde_json::to_value(&message).unwrap()["data"], data);
        assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), message);
    }
}
