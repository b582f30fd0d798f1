//! Bedrock's Converse API: signatures, frames, reasoning, caching, usage and errors.
#![allow(missing_docs)]

use std::{collections::BTreeMap, sync::Arc};

use crate::support::*;
use homing_core::{
    message::{Args, Image, Message, Part, Reply, StopReason, ToolCall, ToolResult, TranscriptEntry},
    model::{Charge, Effort, Model, ModelError, ToolChoice},
};
use homing_models::{AwsCredentials, AwsProfile, ProviderConfig, Providers};
use homing_testing::{FakeProvider, FakeResponse, ResponseStep, aws_event, aws_exception, check_aws_signature};
use secrecy::SecretString;
use serde_json::{Value, json};

const CLAUDE: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

/// A model of a provider at `url`, with a bearer token.
fn bedrock(url: &str) -> Arc<dyn Model> {
    model_named(url, "bedrock", "bedrock", CLAUDE, patient())
}

fn signed(url: &str, model: &str, variables: &'static [(&'static str, &'static str)]) -> Arc<dyn Model> {
    let config: ProviderConfig = serde_json::from_value(json!({ "base_url": url, "patience": 1 })).unwrap();
    let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
    let providers = Providers::new(BTreeMap::from([("bedrock".to_owned(), config)]), lookup);
    providers.model(&format!("bedrock/{model}")).unwrap()
}

fn event(event: &str, payload: &Value) -> Vec<u8> {
    aws_event(event, &payload.to_string())
}

fn delta(index: u32, delta: Value) -> Vec<u8> {
    event("contentBlockDelta", &json!({"contentBlockIndex": index, "delta": delta, "p": "abcd"}))
}

fn stop(index: u32) -> Vec<u8> {
    event("contentBlockStop", &json!({ "contentBlockIndex": index }))
}

fn end(reason: &str) -> [Vec<u8>; 2] {
    let usage =
        json!({"usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}, "metrics": {"latencyMs": 1}});
    [event("messageStop", &json!({ "stopReason": reason })), event("metadata", &usage)]
}

fn hi() -> FakeResponse {
    let start = event("messageStart", &json!({"role": "assistant"}));
    FakeResponse::aws_frames(
        &[[start, delta(0, json!({"text": "Hi."})), stop(0)].to_vec(), end("end_turn").to_vec()].concat(),
    )
}

/// Two signed blocks with a redacted one between them, text and a call.
fn thinking_frames() -> Vec<Vec<u8>> {
    let thought = |index, key: &str, text: &str| delta(index, json!({"reasoningContent": {key: text}}));
    let call = json!({"contentBlockIndex": 4, "start": {"toolUse": {"toolUseId": "t1", "name": "read"}}});
    let frames = vec![
        event("messageStart", &json!({"role": "assistant"})),
        thought(0, "text", "First, "),
        thought(0, "text", "look."),
        thought(0, "signature", "sig-1"),
        stop(0),
        thought(1, "redactedContent", "blob"),
        stop(1),
        thought(2, "text", "Then read."),
        thought(2, "signature", "sig-2"),
        stop(2),
        delta(3, json!({"text": "I read x."})),
        stop(3),
        event("contentBlockStart", &call),
        delta(4, json!({"toolUse": {"input": "{\"path\":"}})),
        delta(4, json!({"toolUse": {"input": "\"x\"}"}})),
        stop(4),
    ];
    [frames, end("tool_use").to_vec()].concat()
}

fn blocks() -> Value {
    json!([
        {"reasoningContent": {"reasoningText": {"text": "First, look.", "signature": "sig-1"}}},
        {"reasoningContent": {"redactedContent": "blob"}},
        {"reasoningContent": {"reasoningText": {"text": "Then read.", "signature": "sig-2"}}},
        {"text": "I read x."},
        {"toolUse": {"toolUseId": "t1", "name": "read", "input": {"path": "x"}}},
    ])
}

fn result() -> ToolResult {
    ToolResult {
        index: 0,
        call_id: "t1".into(),
        name: "read".into(),
        text: "the file".into(),
        images: vec![],
        data: None,
        is_error: false,
    }
}

fn last_body(provider: &FakeProvider) -> Value {
    serde_json::from_str(&provider.requests().last().unwrap().body).unwrap()
}

/// The request of the second turn.
async fn second_turn(model: &dyn Model, provider: &FakeProvider, reply: &Reply) -> Value {
    let kept: Reply = serde_json::from_str(&serde_json::to_string(reply).unwrap()).unwrap();
    let messages = [Message::user("go"), Message::Assistant(kept.into()), Message::Tool(result().into())]
        .map(TranscriptEntry::new);
    ask_with(model, request(&messages, &tools())).await.reply();
    last_body(provider)
}

const STATIC: &[(&str, &str)] =
    &[("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_REGION", "eu-central-1")];

#[tokio::test]
async fn requests_are_signed_as_aws_checks_them() {
    let provider = FakeProvider::answers(vec![hi()]).await;
    let reply = ask(&*signed(&provider.url(), CLAUDE, STATIC)).await.reply();
    assert_eq!(reply.text(), "Hi.");
    let request = provider.requests().remove(0);
    assert_eq!(request.path, "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream");
    check_aws_signature(&request, "AKIDEXAMPLE", SECRET, "eu-central-1").unwrap();
    check_aws_signature(&request, "AKIDEXAMPLE", "another secret", "eu-central-1").unwrap_err();

    let with_token: &[(&str, &str)] = &[STATIC[0], STATIC[1], ("AWS_SESSION_TOKEN", "session")];
    let arn = "arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-sonnet-4-5";
    let with_token: &'static [(&str, &str)] = Box::leak(with_token.to_vec().into_boxed_slice());
    ask(&*signed(&provider.url(), arn, with_token)).await.reply();
    let request = provider.requests().remove(1);
    assert_eq!(request.header("x-amz-security-token"), Some("session"));
    assert!(request.header("authorization").unwrap().contains("x-amz-security-token"), "the token is signed");
    assert!(request.path.contains("inference-profile%2Feu.anthropic"), "{}", request.path);
    check_aws_signature(&request, "AKIDEXAMPLE", SECRET, "us-east-1").unwrap();
}

#[tokio::test]
async fn bearer_token_replaces_the_signature() {
    let provider = FakeProvider::answers(vec![hi()]).await;
    let token: &[(&str, &str)] = &[("AWS_BEARER_TOKEN_BEDROCK", "bedrock-key"), STATIC[0], STATIC[1]];
    let token: &'static [(&str, &str)] = Box::leak(token.to_vec().into_boxed_slice());
    ask(&*signed(&provider.url(), CLAUDE, token)).await.reply();
    let request = provider.requests().remove(0);
    assert_eq!(request.header("authorization"), Some("Bearer bedrock-key"));
    assert_eq!(request.header("x-amz-date"), None);
}

/// A profile whose credentials expire, and which counts how often they are fetched.
struct Expiring(std::sync::atomic::AtomicUsize, std::time::Duration);

impl AwsProfile for Expiring {
    fn region(&self) -> Option<String> {
        Some("us-west-2".into())
    }

    fn has_credentials(&self) -> bool {
        true
    }

    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    fn credentials(&self) -> Result<AwsCredentials, String> {
        let count = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(AwsCredentials {
            access_key_id: format!("ASIA{count}"),
            secret_access_key: SecretString::from(SECRET),
            session_token: None,
            expires: Some(std::time::SystemTime::now() + self.1),
        })
    }
}

#[tokio::test]
async fn credentials_of_a_profile_are_kept_until_they_expire() {
    for (lifetime, fetches) in [(3_600, 1), (60, 2)] {
        let provider = FakeProvider::answers(vec![hi()]).await;
        let profile = Arc::new(Expiring(Default::default(), std::time::Duration::from_secs(lifetime)));
        let config: ProviderConfig = serde_json::from_value(json!({ "base_url": provider.url() })).unwrap();
        let providers =
            Providers::new(BTreeMap::from([("bedrock".to_owned(), config)]), |_| None).with_aws_profile(profile);
        let model = providers.model(&format!("bedrock/{CLAUDE}")).unwrap();
        ask(&*model).await.reply();
        ask(&*model).await.reply();
        let last = provider.requests().remove(1);
        check_aws_signature(&last, &format!("ASIA{}", fetches - 1), SECRET, "us-west-2").unwrap();
    }
}

#[test]
fn missing_region_and_missing_credentials_are_named() {
    let none = Providers::new(BTreeMap::new(), |_| None);
    let why = none.model(&format!("bedrock/{CLAUDE}")).map(|_| ()).unwrap_err().to_string();
    assert!(why.contains("AWS_BEARER_TOKEN_BEDROCK") && why.contains("AWS_ACCESS_KEY_ID"), "{why}");
    let lookup = |name: &str| (name == "AWS_ACCESS_KEY_ID").then(|| SecretString::from("AKID"));
    let why = Providers::new(BTreeMap::new(), lookup).model("bedrock/x").map(|_| ()).unwrap_err().to_string();
    assert_eq!(why, "provider `bedrock`: no region is set: set AWS_REGION, or `region` in your AWS profile");
}

#[tokio::test]
async fn streamed_reply_is_decoded_and_returned_with_its_reasoning() {
    let provider = FakeProvider::answers(vec![FakeResponse::aws_frames(&thinking_frames())]).await;
    let model = bedrock(&provider.url());
    let outcome = ask(&*model).await;
    assert_eq!(outcome.deltas, "<First, ><look.><Then read.>I read x.[read]");
    let reply = outcome.reply();
    assert_eq!((reply.text().as_str(), reply.calls().count(), &reply.stop), ("I read x.", 1, &StopReason::Calls));
    assert_eq!((reply.usage.input, reply.usage.output, reply.usage.estimated), (10, 5, false));
    let body = second_turn(&*model, &provider, &reply).await;
    assert_eq!(body["messages"][1]["content"], blocks());
    let expected = json!([
        {"toolResult": {"toolUseId": "t1", "content": [{"text": "the file"}]}},
        {"cachePoint": {"type": "default"}},
    ]);
    assert_eq!(body["messages"][2]["content"], expected);
}

#[tokio::test]
async fn whole_reply_is_decoded_and_returned_with_its_reasoning() {
    let whole = json!({"output": {"message": {"role": "assistant", "content": blocks()}}, "stopReason": "tool_use",
        "usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}});
    let provider = FakeProvider::answers(vec![FakeResponse::json(200, &whole.to_string())]).await;
    let model = unstreamed_model(&provider.url(), "bedrock", "bedrock", CLAUDE);
    let reply = ask(&*model).await.reply();
    assert!(provider.requests()[0].path.ends_with("/converse"), "{}", provider.requests()[0].path);
    assert_eq!((reply.text().as_str(), reply.calls().count()), ("I read x.", 1));
    assert_eq!(second_turn(&*model, &provider, &reply).await["messages"][1]["content"], blocks());
}

fn said(mut parts: Vec<Part>) -> Reply {
    parts.push(Part::from(ToolCall { id: "t1".into(), name: "read".into(), args: Args::Json(json!({"path": "x"})) }));
    Reply::new(parts).stop(StopReason::Calls)
}

fn thought(signature: Option<&str>, origin: Option<&str>) -> Part {
    Part::Thinking { text: "Hm.".into(), signature: signature.map(str::to_owned), origin: origin.map(str::to_owned) }
}

#[tokio::test]
async fn only_reasoning_that_bedrock_signed_goes_back() {
    let provider = FakeProvider::answers(vec![hi()]).await;
    let model = bedrock(&provider.url());
    for foreign in [
        thought(None, Some("bedrock")),
        thought(None, Some("reasoning_content")),
        thought(Some("sig"), None),
        thought(Some("sig"), Some("genai/minimax")),
        Part::Opaque { wire: "anthropic".into(), block: json!({"type": "redacted_thinking"}) },
    ] {
        let body = second_turn(&*model, &provider, &said(vec![foreign.clone()])).await;
        assert_eq!(body["messages"][1]["content"], json!([blocks()[4]]), "{foreign:?}");
    }
    // Journals from before the native wire have another origin.
    let body = second_turn(&*model, &provider, &said(vec![thought(Some("s"), Some("genai/bedrock"))])).await;
    let whole = json!({"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}});
    assert_eq!(body["messages"][1]["content"], json!([whole, blocks()[4]]));
}

#[tokio::test]
async fn request_has_tools_cache_marks_limits_and_thinking() {
    let provider = FakeProvider::answers(vec![hi()]).await;
    let (messages, tools) = ([TranscriptEntry::new(Message::user("go"))], tools());
    let asked = request(&messages, &tools).effort(Effort::Low).max_output(4_000);
    ask_with(&*bedrock(&provider.url()), asked).await.reply();
    let body = last_body(&provider);
    let point = json!({"cachePoint": {"type": "default"}});
    assert_eq!(body["system"], json!([{"text": "You are a test."}, point]));
    assert_eq!(body["messages"], json!([{"role": "user", "content": [{"text": "go"}, point]}]));
    assert_eq!(body["inferenceConfig"], json!({"maxTokens": 4_000}));
    let thinking = json!({"thinking": {"type": "enabled", "budget_tokens": 1_024}});
    assert_eq!(body["additionalModelRequestFields"], thinking);
    let sent = body["toolConfig"]["tools"].as_array().unwrap();
    assert_eq!((sent[0]["toolSpec"]["name"].as_str(), sent.last()), (Some("read"), Some(&point)));
    assert!(sent[0]["toolSpec"]["inputSchema"]["json"]["properties"].is_object());

    let forced = request(&messages, &tools).choice(ToolChoice::Tool("read"));
    ask_with(&*bedrock(&provider.url()), forced).await.reply();
    assert_eq!(last_body(&provider)["toolConfig"]["toolChoice"], json!({"tool": {"name": "read"}}));

    let llama = model_named(&provider.url(), "bedrock", "bedrock", "meta.llama3-70b-instruct-v1:0", patient());
    ask_with(&*llama, request(&messages, &tools)).await.reply();
    assert!(!last_body(&provider).to_string().contains("cachePoint"), "Bedrock refuses marks for other models");
}

#[tokio::test]
async fn tools_are_sent_if_the_conversation_has_calls() {
    let provider = FakeProvider::answers(vec![hi()]).await;
    let model = bedrock(&provider.url());
    let messages = [Message::user("go"), Message::Assistant(said(vec![]).into()), Message::Tool(result().into())]
        .map(TranscriptEntry::new);
    let (some, none) = (tools(), homing_core::model::Toolbox::default());
    ask_with(&*model, request(&messages, &some).choice(ToolChoice::Off)).await.reply();
    assert_eq!(last_body(&provider)["toolConfig"]["tools"].as_array().unwrap().len(), 3);
    ask_with(&*model, request(&messages, &none)).await.reply();
    assert_eq!(last_body(&provider)["toolConfig"]["tools"][0]["toolSpec"]["name"], "read");
    let plain = [TranscriptEntry::new(Message::user("go"))];
    ask_with(&*model, request(&plain, &some).choice(ToolChoice::Off)).await.reply();
    assert!(last_body(&provider).get("toolConfig").is_none());
}

#[tokio::test]
async fn images_and_documents_are_sent() {
    let provider = FakeProvider::answers(vec![hi()]).await;
    let image = |media_type: &str, pages| Image::new(media_type, "QUJD").pages(pages);
    let images = vec![image("image/jpeg", None), image(Image::PDF, Some(1)), image(Image::PDF, Some(1))];
    let failed = ToolResult { images: images.clone(), is_error: true, ..result() };
    let user = Message::User { text: "see".into(), images };
    let messages =
        [user, Message::Assistant(said(vec![]).into()), Message::Tool(failed.into())].map(TranscriptEntry::new);
    ask_with(&*bedrock(&provider.url()), request(&messages, &tools())).await.reply();
    let body = last_body(&provider);
    let content = &body["messages"][0]["content"];
    assert_eq!(content[1], json!({"image": {"format": "jpeg", "source": {"bytes": "QUJD"}}}));
    assert_eq!(
        (&content[2]["document"]["format"], &content[2]["document"]["source"]["bytes"]),
        (&"pdf".into(), &"QUJD".into())
    );
    let result = &body["messages"][2]["content"][0]["toolResult"];
    assert_eq!((&result["status"], &result["content"][1]["image"]["format"]), (&"error".into(), &"jpeg".into()));
    let documents = [&content[2], &content[3], &result["content"][2], &result["content"][3]];
    let mut names: Vec<&str> = documents.iter().map(|block| block["document"]["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 4, "Bedrock refuses two documents of the same name: {names:?}");
}

#[tokio::test]
async fn cached_tokens_are_added_to_the_input() {
    let usage = json!({"usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 115,
        "cacheReadInputTokens": 80, "cacheWriteInputTokens": 20}});
    let frames = [
        delta(0, json!({"text": "Hi."})),
        stop(0),
        event("messageStop", &json!({"stopReason": "end_turn"})),
        event("metadata", &usage),
    ];
    let provider = FakeProvider::answers(vec![FakeResponse::aws_frames(&frames)]).await;
    let usage = ask(&*bedrock(&provider.url())).await.reply().usage;
    assert_eq!((usage.input, usage.cached, usage.cache_write, usage.output), (110, 80, 20, 5));
    assert_eq!(usage.cost_micros, 160, "110 tokens at $1 and 5 at $10 per million");
}

#[tokio::test]
async fn stop_reasons_are_mapped() {
    let cut_call = |reason: &str| {
        let call = json!({"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "t1", "name": "write"}}});
        let frames = vec![event("contentBlockStart", &call), delta(0, json!({"toolUse": {"input": "{\"path\":"}}))];
        FakeResponse::aws_frames(&[frames, end(reason).to_vec()].concat())
    };
    let text = |reason: &str| {
        FakeResponse::aws_frames(&[vec![delta(0, json!({"text": "Hi."})), stop(0)], end(reason).to_vec()].concat())
    };
    let answers = vec![cut_call("max_tokens"), text("max_tokens"), text("stop_sequence"), text("guardrail_intervened")];
    let provider = FakeProvider::answers(answers).await;
    let model = bedrock(&provider.url());
    let cut = ask(&*model).await.reply();
    assert_eq!((cut.stop, cut.cut_call.as_deref(), cut.parts.len()), (StopReason::Length, Some("write"), 0));
    assert_eq!(ask(&*model).await.reply().stop, StopReason::Length);
    assert_eq!(ask(&*model).await.reply().stop, StopReason::End);
    assert!(matches!(ask(&*model).await.failure().error, ModelError::Refused { .. }));
}

#[tokio::test]
async fn errors_and_exceptions_in_the_stream_are_classified() {
    let hello = delta(0, json!({"text": "Hel"}));
    let in_stream = |kind: &str, message: &str| {
        let exception = aws_exception(kind, &json!({ "message": message }).to_string());
        FakeResponse::aws_frames(&[hello.clone(), exception])
    };
    let status = |status: u16, kind: &str, message: &str| {
        let body = json!({ "message": message }).to_string();
        FakeResponse::response(status, &[("x-amzn-errortype", kind), ("content-type", "application/json")], body)
    };
    let failure = |answer: FakeResponse| async {
        let provider = FakeProvider::answers(vec![answer]).await;
        ask(&*bedrock(&provider.url())).await.failure()
    };
    let throttled = failure(in_stream("throttlingException", "Too many tokens per minute")).await;
    assert!(matches!(throttled.error, ModelError::Busy { .. }), "{throttled:?}");
    assert_eq!((throttled.charge, throttled.partial.as_str()), (Charge::Hold, "Hel"));
    let error = failure(in_stream("modelStreamErrorException", "stopped")).await.error;
    assert!(matches!(error, ModelError::Broken { .. }), "{error:?}");
    let error = failure(in_stream("serviceUnavailableException", "later")).await.error;
    assert!(matches!(error, ModelError::Busy { .. }), "{error:?}");
    let error = failure(in_stream("validationException", "malformed input")).await.error;
    assert!(matches!(error, ModelError::Unusable { .. }), "{error:?}");
    let error = failure(status(429, "ThrottlingException", "Too many requests")).await.error;
    assert!(matches!(error, ModelError::Busy { .. }), "{error:?}");
    let error = failure(status(400, "ServiceQuotaExceededException", "quota")).await.error;
    assert!(matches!(error, ModelError::Busy { .. }), "{error:?}");
    let error = failure(status(424, "ModelErrorException", "the model failed")).await.error;
    assert!(matches!(error, ModelError::Broken { .. }), "{error:?}");
    let error = failure(status(403, "ExpiredTokenException", "expired")).await.error;
    assert!(matches!(error, ModelError::Unauthorized { .. }), "{error:?}");
    let error = failure(status(400, "ValidationException", "Input is too long for requested model.")).await.error;
    assert!(matches!(error, ModelError::ContextFull { .. }), "{error:?}");
}

#[tokio::test]
async fn cut_or_damaged_stream_yields_no_reply() {
    let frames = thinking_frames().concat();
    let without_metadata = frames.len() - end("tool_use")[1].len();
    let content_type =
        "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.amazon.eventstream\r\nconnection: close\r\n\r\n";
    let cut = |length: usize| {
        let head = ResponseStep::Bytes(content_type.as_bytes().to_vec());
        FakeResponse::steps(vec![head, ResponseStep::Bytes(frames[..length].to_vec())])
    };
    for length in (0..frames.len()).step_by(97) {
        let provider = FakeProvider::answers(vec![cut(length)]).await;
        let result = ask(&*bedrock(&provider.url())).await.result;
        match result {
            Ok(reply) => assert!(length >= without_metadata && reply.usage.estimated, "{length}: {reply:?}"),
            Err(failure) => assert!(length < without_metadata && failure.error.is_retryable(), "{length}: {failure:?}"),
        }
    }
    let mut damaged = frames.clone();
    damaged[60] ^= 1;
    let provider = FakeProvider::answers(vec![FakeResponse::aws_frames(&[damaged])]).await;
    let error = ask(&*bedrock(&provider.url())).await.failure().error;
    assert_eq!(error, ModelError::Broken { reason: "the stream is damaged: a checksum is wrong".into() });
}
