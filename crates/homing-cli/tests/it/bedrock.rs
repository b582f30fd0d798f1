//! Bedrock with the credentials of an AWS profile, judged by the signature that the provider received.

use std::fs;

use homing_testing::{FakeResponse, aws_event, check_aws_signature};

use crate::world::*;

const MODEL: &str = "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

fn world() -> World {
    let world = World::new(|_, _| {
        FakeResponse::aws_frames(&[
            aws_event("messageStart", r#"{"role":"assistant"}"#),
            aws_event("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"hello from bedrock"}}"#),
            aws_event("contentBlockStop", r#"{"contentBlockIndex":0}"#),
            aws_event("messageStop", r#"{"stopReason":"end_turn"}"#),
            aws_event("metadata", r#"{"usage":{"inputTokens":10,"outputTokens":5,"cacheReadInputTokens":90}}"#),
        ])
    });
    let folder = world.home.path().join(".aws");
    fs::create_dir(&folder).unwrap();
    let keys = format!("[work]\naws_access_key_id = AKIDWORK\naws_secret_access_key = {SECRET}\n");
    fs::write(folder.join("credentials"), keys).unwrap();
    let config = "[profile work]\nregion = eu-north-1\n\n[profile corp]\nsso_session = corp\nregion = eu-north-1\n";
    fs::write(folder.join("config"), config).unwrap();
    world
}

#[test]
fn run_is_signed_with_the_profile_of_the_user() {
    let world = world();
    let mut command = world.command(&["run", "--json", "--model", MODEL, "say hello"]);
    let output = command.env("BEDROCK_BASE_URL", world.provider.url()).env("AWS_PROFILE", "work").output().unwrap();
    assert_eq!(code(&output), 0, "{} {}", out(&output), err(&output));
    let envelope = json(&output);
    assert_eq!(envelope["output"], "hello from bedrock");
    assert_eq!((&envelope["usage"]["input"], &envelope["usage"]["cached"]), (&100.into(), &90.into()), "{envelope}");
    let requests = world.provider.requests();
    check_aws_signature(&requests[0], "AKIDWORK", SECRET, "eu-north-1").unwrap();
}

#[test]
fn profile_that_only_aws_can_resolve_names_the_way_out() {
    let world = world();
    let mut command = world.command(&["run", "--model", MODEL, "say hello"]);
    let output = command.env("BEDROCK_BASE_URL", world.provider.url()).env("AWS_PROFILE", "corp").output().unwrap();
    let said = err(&output);
    assert!(said.contains("the AWS profile `corp` gets its credentials by `sso_session`"), "{said}");
    assert!(said.contains("aws configure export-credentials"), "{said}");
    assert_eq!((code(&output), world.provider.requests().len()), (2, 0), "{said}");
}
