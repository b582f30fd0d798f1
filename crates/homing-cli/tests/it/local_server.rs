//! Servers on the user's machine: their models, their prices, and names that are sent as given.

use homing_testing::{FakeResponse, ReceivedRequest};
use serde_json::Value;

use crate::world::{World, code, err, json, out};

fn local(seen: &ReceivedRequest) -> FakeResponse {
    if seen.path.ends_with("/models") {
        return FakeResponse::json(200, r#"{"object":"list","data":[{"id":"tiny-1"},{"id":"tiny-2"}]}"#);
    }
    FakeResponse::chat_text("from here")
}

fn model_of(seen: &ReceivedRequest) -> String {
    let body: Value = serde_json::from_str(&seen.body).unwrap();
    body["model"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn local_server_is_asked_for_its_models() {
    let world = World::new(|_, seen| local(seen));
    let output = world.homing(&["run", "x"]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "from here\n"), "{}", err(&output));
    let requests = world.provider.requests();
    let paths: Vec<&str> = requests.iter().map(|seen| seen.path.as_str()).collect();
    assert_eq!(paths, ["/v1/models", "/v1/chat/completions"]);
    assert_eq!(model_of(&requests[1]), "tiny-1");
    let said = format!("using openai/tiny-1, the first model that {} offers", world.provider.url());
    assert!(err(&output).contains(&said), "{}", err(&output));
}

#[test]
fn local_server_is_free_unless_prices_are_configured() {
    let world = World::new(|_, seen| local(seen));
    let cost =
        |model: &str| json(&world.homing(&["run", "--json", "--model", model, "x"]))["usage"]["cost_micros"].clone();
    assert_eq!(cost("openai/gpt-4o"), 0);
    assert_ne!(cost("openai/gpt-4.1"), 0, "its price is configured");
}

#[test]
fn model_that_the_user_names_is_sent_as_given() {
    let world = World::new(|_, seen| local(seen));
    for name in ["gpt-4-turbo", "openai/gpt-4-turbo", "openai:gpt-3.5-turbo"] {
        let output = world.homing(&["run", "--model", name, "--model-map", "*=openai/gpt-4.1", "x"]);
        assert_eq!(code(&output), 0, "{}", err(&output));
        let sent = model_of(world.provider.requests().last().unwrap());
        assert_eq!(sent, name.trim_start_matches("openai/").trim_start_matches("openai:"));
    }
    let unknown = world.homing(&["run", "--model", "mystery", "x"]);
    assert_eq!(code(&unknown), 2);
    assert!(err(&unknown).contains("unknown model `mystery`"), "{}", err(&unknown));
    assert_eq!(world.provider.requests().len(), 3, "nothing is sent for an unknown name");
}
