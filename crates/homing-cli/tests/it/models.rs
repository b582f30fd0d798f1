//! `homing models`: providers and models with limits, prices and keys.

use homing_testing::FakeResponse;

use crate::world::*;

#[test]
fn models_of_a_provider_have_limits_and_prices() {
    let world = World::new(|_, seen| {
        assert!(seen.path.ends_with("/models"), "{}", seen.path);
        FakeResponse::json(200, r#"{"data": [{"id": "gpt-4.1"}, {"id": "unheard-of"}]}"#)
    });
    let asked = json(&world.homing(&["models", "openai", "--json"]));
    let names: Vec<&str> =
        asked["models"].as_array().unwrap().iter().map(|model| model["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["openai/gpt-4.1", "openai/unheard-of"]);
    assert_eq!(
        (asked["usable"].as_bool(), asked["models"][0]["micros_per_million"]["output"].as_u64()),
        (Some(true), Some(8_000_000))
    );
    assert!(asked["models"][1]["context_window"].is_null(), "{asked}");

    let table = world.homing(&["models", "anthropic"]);
    assert_eq!(code(&table), 0);
    let line = out(&table).lines().find(|line| line.starts_with("anthropic/claude-3-5-haiku ")).unwrap().to_owned();
    assert!(line.contains("200.0k window") && line.contains("per million"), "{line}");
    assert!(err(&table).contains("set ANTHROPIC_API_KEY"), "{}", err(&table));
    assert_eq!(code(&world.homing(&["models", "nowhere"])), 2);
    let all = out(&world.homing(&["models", "--offline"]));
    assert!(all.contains("OPENAI_API_KEY is set") && all.contains("offline "), "{all}");
    assert!(!all.contains("sk-secret-of-the-test"));
}

#[test]
fn web_search_exists_only_if_an_engine_is_configured() {
    let offered = |world: &World| world.provider.requests().last().unwrap().body.contains("\"websearch\"");
    let world = World::saying("x");
    assert_eq!(code(&world.homing(&run(&["--network", "on", "x"]))), 0);
    assert!(!offered(&world), "nothing is promised without an engine");
    world.configure("[websearch]\nengine = \"searxng\"\nurl = \"http://127.0.0.1:1\"");
    assert_eq!(code(&world.homing(&run(&["--network", "on", "x"]))), 0);
    assert!(offered(&world));
    world.configure("[websearch]\nengine = \"brave\"");
    let refused = world.homing(&run(&["x"]));
    assert_eq!(code(&refused), 2);
    assert!(err(&refused).contains("no API key: set BRAVE_API_KEY"), "{}", err(&refused));
}
