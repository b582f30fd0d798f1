//! Chats: the choice of the next speaker, and the end of the conversation.

use std::sync::Arc;

use crate::support::{MemberRequest, agent_names, agents, cut_anywhere, parts, run, scripted};
use homing_core::{
    envelope::Status,
    message::Reply,
    model::{AskFailure, ModelError, ModelRequest, SingleModel},
    scripted_model::{FunctionModel, call, say},
};
use homing_runtime::{RuntimeParts, journal::MemoryJournal};
use homing_teams::{Chat, OnTaskFailure, Team};
use serde_json::json;

fn host(
    chat: Chat,
    script: impl Fn(MemberRequest<'_>) -> Reply + Send + Sync + Copy + 'static,
) -> impl Fn(Arc<MemoryJournal>) -> RuntimeParts {
    let team = Team::new("talk", chat);
    move |journal| parts(journal, agents(["ada", "bob", "cyd", "host"]), scripted(script), vec![team.clone()])
}

fn speak(member: MemberRequest<'_>) -> Reply {
    let heard = member.first_words().matches("\n[").count();
    say(format!("{} heard {heard}", member.name))
}

#[tokio::test(start_paused = true)]
async fn r45_members_speak_in_turn_and_see_the_same_history() {
    let chat = Chat::new(["ada", "bob", "cyd"]).max_rounds(5);
    let whole = cut_anywhere(host(chat, speak), "talk", "tea or coffee").await;
    assert_eq!(agent_names(&whole), ["ada", "bob", "cyd", "ada", "bob"]);
    assert_eq!((whole.status, whole.output.as_str()), (Status::Done, "bob heard 4"));
}

#[tokio::test(start_paused = true)]
async fn r45_model_chooses_the_speaker_and_its_failure_may_be_skipped() {
    let script = |member: MemberRequest<'_>| match (member.name, member.first_words().matches("\n[").count()) {
        ("host", 0) => call([("answer", json!({"speaker": "cyd"}))]),
        // Not a member: the schema rejects it twice, and the selector fails.
        ("host", 1) => call([("answer", json!({"speaker": "dan"}))]),
        ("host", _) => say("I would rather not say"),
        _ => speak(member),
    };
    let chat = || Chat::new(["ada", "bob", "cyd"]).selected_by("host").max_rounds(4);
    let failed = cut_anywhere(host(chat(), script), "talk", "tea").await;
    assert_eq!((failed.status, agent_names(&failed)), (Status::Failed, vec!["host", "cyd", "host"]));
    let whole = cut_anywhere(host(chat().on_failure(OnTaskFailure::Skip), script), "talk", "tea").await;
    let speakers: Vec<&str> = agent_names(&whole).into_iter().filter(|name| *name != "host").collect();
    assert_eq!(speakers, ["cyd", "ada", "bob", "cyd"]);
    assert_eq!(whole.status, Status::Done);
}

#[tokio::test(start_paused = true)]
async fn r45_speakers_hand_over_by_name() {
    let script = |member: MemberRequest<'_>| match member.name {
        "ada" => say("what do you think, @cyd?"),
        "cyd" => say("ask @dan or mail me@example.org"),
        _ => say("STOP here"),
    };
    let chat = Chat::new(["ada", "bob", "cyd"]).handing_off().max_rounds(4).stop_word("STOP");
    let whole = cut_anywhere(host(chat, script), "talk", "tea").await;
    assert_eq!(agent_names(&whole), ["ada", "cyd", "cyd", "cyd"], "without a hand-over the speaker stays");
}

#[tokio::test(start_paused = true)]
async fn r45_mail_address_of_a_member_is_not_a_hand_over() {
    let script = |member: MemberRequest<'_>| match member.name {
        "ada" => say("mail me@bob or x.y@bob.org, (@cyd)"),
        _ => say("done. STOP"),
    };
    let chat = Chat::new(["ada", "bob", "cyd"]).handing_off().max_rounds(4).stop_word("STOP");
    let whole = cut_anywhere(host(chat, script), "talk", "tea").await;
    assert_eq!((agent_names(&whole), whole.output.as_str()), (vec!["ada", "cyd"], "done."));
}

#[tokio::test(start_paused = true)]
async fn r45_answer_is_the_last_useful_message_without_the_stop_word() {
    let script = |member: MemberRequest<'_>| match member.name {
        "ada" => say("A poem about tea"),
        _ => say("**APPROVE**"),
    };
    let chat = Chat::new(["ada", "bob"]).stop_word("APPROVE");
    let whole = cut_anywhere(host(chat, script), "talk", "tea").await;
    assert_eq!((whole.status, whole.output.as_str()), (Status::Done, "A poem about tea"));
    let message = |speaker: &str, text: &str| json!({"speaker": speaker, "text": text, "status": "done"});
    let said = [message("ada", "A poem about tea"), message("bob", "**APPROVE**")];
    assert_eq!(whole.data, Some(json!({"messages": said, "summary": null}).into()));
}

#[tokio::test(start_paused = true)]
async fn r45_selector_and_speakers_that_hand_over_see_descriptions() {
    let script = |member: MemberRequest<'_>| {
        let sees_all = member.first_words().contains("- ada: the ada\n- bob: the bob");
        match member.name {
            "host" if sees_all => call([("answer", json!({"speaker": "bob"}))]),
            "host" => call([("answer", json!({"speaker": "ada"}))]),
            _ => say(format!("{} {sees_all}", member.name)),
        }
    };
    let (chosen, _) =
        run(&host(Chat::new(["ada", "bob"]).selected_by("host").max_rounds(1), script), "talk", "x").await;
    assert_eq!(chosen.output, "bob false");
    let (handed, _) = run(&host(Chat::new(["ada", "bob"]).handing_off().max_rounds(1), script), "talk", "x").await;
    assert_eq!(handed.output, "ada true");
}

#[tokio::test(start_paused = true)]
async fn r45_rules_choose_the_speaker_and_a_stop_word_ends_the_chat() {
    let script = |member: MemberRequest<'_>| match member.name {
        "host" => say("they agreed on tea"),
        "cyd" => say("AGREED"),
        _ => speak(member),
    };
    let chat = Chat::new(["ada", "bob", "cyd"])
        .rule("round == 0", "bob")
        .rule("last.speaker == 'bob' and 'heard' in last.text", "cyd")
        .stop_word("AGREED")
        .summary("host");
    let whole = cut_anywhere(host(chat, script), "talk", "tea").await;
    assert_eq!(agent_names(&whole), ["bob", "cyd", "host"]);
    assert_eq!(whole.output, "they agreed on tea");
}

#[tokio::test(start_paused = true)]
async fn r45_chat_ends_if_no_member_can_speak() {
    let team = Team::new("talk", Chat::new(["ada", "bob"]).max_rounds(1_000));
    let make = move |journal: Arc<MemoryJournal>| {
        let mute = |_: ModelRequest<'_>| Err(AskFailure::free(ModelError::Unusable { reason: "mute".into() }));
        let models = Arc::new(SingleModel(Arc::new(FunctionModel::new("script/mute", mute))));
        parts(journal, agents(["ada", "bob"]), models, vec![team.clone()])
    };
    let (result, _) = run(&make, "talk", "tea").await;
    assert_eq!((result.status, result.children.len()), (Status::Failed, 2));
    assert!(result.error.unwrap().message.contains("all contributions of a whole round failed"));
}
