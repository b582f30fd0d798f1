//! Tools without side effects: `think`, `todo`, `skill`, `ask`.

use std::sync::Arc;

use crate::tool_fixture::ToolFixture;
use homing_core::{
    authority::{Allow, Layer},
    definition::{OfferedTo, Scope},
    rule::{Rule, Subject, Subjects},
    skill::{Skill, SkillCard, SkillLibrary},
    tool::Answer,
    tool_names,
};
use homing_tools::toolset::{ToolsConfig, files_tools};
use serde_json::json;

struct Library(Vec<SkillCard>);

impl SkillLibrary for Library {
    fn list(&self) -> &[SkillCard] {
        &self.0
    }
    fn get(&self, name: &str) -> Option<Result<Arc<Skill>, String>> {
        let card = self.0.iter().find(|card| card.name == name)?.clone();
        if name == "broken" {
            return Some(Err("its file is gone".to_owned()));
        }
        Some(Ok(Arc::new(Skill { card, body: "Do it well.".into(), resources: vec!["a.txt".into()] })))
    }
}

fn fixture() -> ToolFixture {
    let card = |name: &str, description: &str| SkillCard {
        name: name.into(),
        description: description.into(),
        path: format!("/skills/{name}/SKILL.md").into(),
        scope: Scope::User,
        ..SkillCard::default()
    };
    let mut config = ToolsConfig::default();
    config.skills =
        Some(Arc::new(Library(vec![card("broken", "Breaks."), card("release", "When\nyou release.\u{202e}")])));
    ToolFixture::new(files_tools(config))
}

#[tokio::test]
async fn r15_skills_are_listed_loaded_and_named_in_the_description() {
    let mut fixture = fixture();
    let run = fixture.run();
    let description = &run.tool("skill").spec().description;
    assert!(description.contains("- broken: Breaks.\n- release: When you release.\\u{202e}\n"), "{description}");
    assert!(run.ok("skill", json!({})).await.contains("- release:"));
    let loaded = run.ok("skill", json!({"name": "release"})).await;
    assert!(loaded.starts_with("<skill name=\"release\">\nDo it well.") && loaded.contains("- a.txt"), "{loaded}");
    assert!(run.refused("skill", json!({"name": "broken"})).await.contains("gone"));
    assert!(run.refused("skill", json!({"skill": "nope"})).await.contains("available: broken, release"));
    assert_eq!(run.subjects("skill", json!({"name": "x"})), Subjects::Parts(vec![Subject::Name("x".into())]));
    let allow = Allow::Only(vec![Rule::calls("skill", "rel*")]);
    fixture.grant = fixture.grant.under(Layer::everything("agent x").allow(allow));
    assert!(!fixture.run().call("skill", json!({})).await.text.contains("broken"));
}

#[tokio::test]
async fn skill_of_the_user_alone_is_not_offered_to_models() {
    let mut deploy = SkillCard { name: "deploy".into(), description: "Deploys.".into(), ..SkillCard::default() };
    deploy.settings.offered_to = OfferedTo::User;
    let lint = SkillCard { name: "lint".into(), description: "Lints.".into(), ..SkillCard::default() };
    let mut config = ToolsConfig::default();
    config.skills = Some(Arc::new(Library(vec![deploy, lint])));
    let fixture = ToolFixture::new(files_tools(config));
    let run = fixture.run();
    let description = &run.tool("skill").spec().description;
    assert!(description.contains("lint") && !description.contains("deploy"), "{description}");
    assert!(!run.ok("skill", json!({})).await.contains("deploy"));
    let refused = run.refused("skill", json!({"name": "deploy"})).await;
    assert!(refused.contains("only the user"), "{refused}");
    assert!(!run.refused("skill", json!({"name": "nope"})).await.contains("deploy"));
    let loaded = run.ok("skill", json!({"name": "lint", "arguments": "src tests"})).await;
    assert!(loaded.contains("ARGUMENTS: src tests"), "{loaded}");
}

#[tokio::test]
async fn r29_todo_list_belongs_to_its_run() {
    let fixture = fixture();
    let (one, other) = (fixture.run(), fixture.run());
    let text = one
        .ok(
            "todo",
            json!({"todos": [{"content": "a", "status": "completed"}, {"text": "b", "status": "in_progress"}, "c"]}),
        )
        .await;
    assert_eq!(text, "1 of 3 done\n[x] a\n[>] b\n[ ] c\n");
    assert_eq!(one.ok("todo", json!({})).await, text);
    assert_eq!(other.ok("todo", json!({})).await, "the list is empty");
}

#[tokio::test]
async fn ask_reaches_the_user_or_reports_that_none_is_available() {
    let fixture = fixture();
    let run = fixture.run_answering(Answer::Text("Postgres".into()));
    let answer = run.ok("ask", json!({"question": "Which?", "options": ["SQLite", "Postgres"]})).await;
    assert_eq!(answer, "Postgres");
    assert_eq!(run.host.asked.lock().unwrap()[0].options.len(), 2);
    assert!(fixture.run().refused("ask", json!({"question": "Which?"})).await.contains("no user"));
    assert!(fixture.run().refused("ask", json!({"question": " "})).await.contains("Example"));
}

#[tokio::test]
async fn think_changes_nothing() {
    let fixture = fixture();
    assert_eq!(fixture.run().ok("think", json!({"thought": "hm"})).await, "Noted.");
}

#[test]
fn every_tool_has_a_canonical_name() {
    for tool in fixture().tools {
        let name = &tool.spec().name;
        assert_eq!(tool_names::canonical(name), Some(name.as_str()));
    }
}
