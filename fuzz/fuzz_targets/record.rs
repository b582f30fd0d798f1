//! Records of the journal. A readable record is written and read again unchanged, and an unknown kind is refused.
#![no_main]

use homing_core::fact::{Fact, Record};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &str| {
    if let Ok(record) = serde_json::from_str::<Record>(text) {
        let written = serde_json::to_string(&record).expect("a record can be written");
        let read: Record = serde_json::from_str(&written).expect("what was written can be read");
        assert_eq!(read, record);
        assert_eq!(serde_json::to_string(&read).expect("twice"), written);
    }
    let Ok(Value::Object(object)) = serde_json::from_str::<Value>(text) else { return };
    if let Ok(fact) = serde_json::from_value::<Fact>(Value::Object(object.clone())) {
        assert_eq!(object.keys().collect::<Vec<_>>(), [fact.kind()], "a fact has one name, and it is known");
    }
});
