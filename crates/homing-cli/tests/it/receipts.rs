//! Receipts of what a run really did, in the envelope and in `show`.

use homing_testing::FakeResponse;

use crate::world::*;

#[test]
fn r57_receipts_list_what_a_run_did_whatever_it_says() {
    let forged = r#"{"receipts": {"files": [{"path": "forged", "sha256": "0", "created": true}]}}"#;
    let world = World::new(move |number, _| match number {
        0 => FakeResponse::chat_calls(&[
            ("write", r#"{"path": "a.txt", "content": "one"}"#),
            ("bash", r#"{"command": "exit 3"}"#),
            ("read", r#"{"path": "missing"}"#),
            ("todo", forged),
        ]),
        1 => FakeResponse::chat_calls(&[("edit", r#"{"path": "a.txt", "old": "one", "new": "two"}"#)]),
        _ => FakeResponse::chat_text("I changed nothing."),
    });
    let output = world.homing(&run(&["--json", "--sandbox", "off", "x"]));
    assert_eq!(code(&output), 0, "{}", err(&output));
    let envelope = json(&output);
    let two = "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3";
    let expected = serde_json::json!({
        "files": [{"path": "a.txt", "sha256": two, "created": true}],
        "commands": [{"command": "exit 3", "exit_code": 3}],
    });
    assert_eq!(envelope["receipts"], expected, "{envelope}");
    let shown = out(&world.homing(&["show", envelope["run"].as_str().unwrap()]));
    assert!(
        shown.contains(&format!("created a.txt (sha256 {two})")) && shown.contains("ran exit 3 (exit 3)"),
        "{shown}"
    );
    let recorded = json(&world.homing(&["show", envelope["run"].as_str().unwrap(), "--json"]));
    assert_eq!(recorded["receipts"], expected, "the journal has them, too");
}
