//! Skills: cards once, bodies on demand, and a skill as an agent.

use std::{fs, path::Path};

use homing_core::{
    definition::{OfferedTo, Scope},
    limits::Limits,
    model::Effort,
    rule::Rule,
    skill::SkillLibrary,
};
use homing_load::{
    ParseOptions, Places, SkillFolders, TrustPolicy, discover_trusted, is_about_hidden_agent, skill_as_agent,
};
use tempfile::TempDir;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const PDF: &str =
    "---\nname: pdf\ndescription: Reads PDF files\nallowed-tools: Read Bash\n---\n\n# PDF\n\nUse scripts/x.py.\n";

#[test]
fn r13_library_lists_cards_and_reads_bodies_on_demand() {
    let root = TempDir::new().unwrap();
    write(root.path(), ".claude/skills/pdf/SKILL.md", PDF);
    write(root.path(), ".claude/skills/pdf/scripts/x.py", "print()");
    write(root.path(), ".agents/skills/style.md", "---\nname: style\ndescription: How we write\n---\nWrite well.\n");
    write(root.path(), ".acai/skills/none/SKILL.md", "no front matter");
    let (library, diagnostics) = SkillFolders::discover(&Places::new(root.path()));
    let names: Vec<&str> = library.list().iter().map(|card| card.name.as_str()).collect();
    assert_eq!(names, ["pdf", "style"]);
    assert_eq!(library.list()[0].description, "Reads PDF files");
    assert!(library.has("pdf") && !library.has("none") && library.get("none").is_none());
    assert_eq!(diagnostics.len(), 2, "{diagnostics:?}");

    let skill = library.get("pdf").unwrap().unwrap();
    assert_eq!(
        (skill.body.as_str(), skill.resources.as_slice()),
        ("# PDF\n\nUse scripts/x.py.", &["scripts/x.py".to_owned()][..])
    );
    // The body comes from the file as it is now; the card stays what it was.
    write(root.path(), ".claude/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: changed\n---\nNew body.\n");
    assert_eq!(library.get("pdf").unwrap().unwrap().body, "New body.");
    assert_eq!(library.list()[0].description, "Reads PDF files");
    fs::remove_file(root.path().join(".claude/skills/pdf/SKILL.md")).unwrap();
    assert!(library.get("pdf").unwrap().is_err());
}

#[test]
fn r13_project_skill_wins_and_plugin_skill_is_qualified() {
    let root = TempDir::new().unwrap();
    write(root.path(), "home/.claude/skills/pdf/SKILL.md", PDF);
    write(root.path(), "repo/.homing/skills/pdf/SKILL.md", PDF);
    write(root.path(), "kit/skills/pdf/SKILL.md", PDF);
    let mut places = Places::new(root.path().join("repo"));
    places.home = Some(root.path().join("home"));
    places.plugins = vec![root.path().join("kit")];
    let (library, _) = SkillFolders::discover(&places);
    let found: Vec<(&str, Scope)> = library.list().iter().map(|card| (card.name.as_str(), card.scope)).collect();
    assert_eq!(found, [("kit:pdf", Scope::Plugin), ("pdf", Scope::Project)]);
}

#[test]
fn untrusted_project_skill_does_not_replace_one_of_the_user() {
    let root = TempDir::new().unwrap();
    write(root.path(), "home/.claude/skills/pdf/SKILL.md", PDF);
    write(root.path(), "repo/.homing/skills/pdf/SKILL.md", PDF);
    write(root.path(), "repo/.homing/skills/other/SKILL.md", "---\nname: other\ndescription: d\n---\nBody.\n");
    let mut places = Places::new(root.path().join("repo"));
    places.home = Some(root.path().join("home"));
    for (trusts, scope, said) in
        [(false, Scope::User, "is not trusted, so your skill in"), (true, Scope::Project, "replaces")]
    {
        let is_trusted = |scope: Scope, _: Option<&Path>| trusts || scope != Scope::Project;
        let trust = TrustPolicy { is_trusted: &is_trusted, ceiling: Limits::default() };
        let found = discover_trusted(&places, &ParseOptions::default(), trust);
        let scopes: Vec<(&str, Scope)> =
            found.skills.list().iter().map(|card| (card.name.as_str(), card.scope)).collect();
        assert_eq!(scopes, [("other", Scope::Project), ("pdf", scope)], "a name that is free needs no trust");
        let announced: Vec<_> = found.diagnostics.iter().filter(|found| is_about_hidden_agent(found)).collect();
        assert!(announced.len() == 1 && announced[0].message.contains(said), "{announced:?}");
    }
}

#[test]
fn r13_skill_with_problems_loads_and_is_reported() {
    let root = TempDir::new().unwrap();
    write(root.path(), "My_Skill/SKILL.md", "---\ndescription: Use: always\n---\nBody.\n");
    let (library, diagnostics) = SkillFolders::in_folder(root.path(), Scope::User);
    assert_eq!(library.list()[0].name, "My_Skill");
    assert_eq!(library.list()[0].description, "Use: always");
    assert_eq!(diagnostics.len(), 3, "{diagnostics:?}");
    assert!(diagnostics.iter().all(|diagnostic| diagnostic.line > 0));
}

#[test]
fn r9_skill_as_agent_keeps_its_resources() {
    let root = TempDir::new().unwrap();
    write(root.path(), "pdf/SKILL.md", &PDF.replace("---\n\n", "resources: [guide.txt]\n---\n\n"));
    write(root.path(), "pdf/scripts/x.py", "print()");
    let parsed = skill_as_agent(&root.path().join("pdf/SKILL.md"), Scope::Project, &ParseOptions::default());
    let agent = &parsed.definitions[0];
    assert_eq!((agent.name.as_str(), agent.description.as_str()), ("pdf", "Reads PDF files"));
    assert!(agent.prompt.starts_with("# PDF"));
    assert_eq!(agent.attachments.resources, ["guide.txt", "scripts/x.py"]);
}

#[test]
fn r13_incomplete_skill_is_completed_or_rejected() {
    let root = TempDir::new().unwrap();
    let said = |text: &str| {
        write(root.path(), "one/SKILL.md", text);
        let (library, diagnostics) = SkillFolders::in_folder(root.path(), Scope::User);
        let said: Vec<String> =
            diagnostics.iter().map(|diagnostic| format!("{}: {}", diagnostic.line, diagnostic.message)).collect();
        format!("{} · {}", library.list().len(), said.join("; "))
    };
    let long = "x".repeat(70_000);
    let shown = [
        "---\nname: \"  \"\ndescription: d\n---\nBody.\n",
        "---\nname: one\n---\n# Title\n\nWhat it does.\n",
        "---\nname: one\n---\n# Title\n",
        "---\nname: one\n\t- {\n---\nBody.\n",
        &format!("---\nname: one\ndescription: {long}\n---\nBody.\n"),
    ]
    .map(said)
    .join("\n");
    insta::assert_snapshot!(shown, @r###"
    1 · 2: missing `name`: using `one`
    1 · 2: missing `description`: using the first paragraph
    0 · 4: missing `description`
    1 · 2: missing `description`: using the first paragraph; 2: other programs do not accept the name `one - {`; 3: lines are indented with tabs: read as spaces
    0 · 1: the front matter has more than 65536 bytes
    "###);
    let missing = skill_as_agent(&root.path().join("none/SKILL.md"), Scope::Project, &ParseOptions::default());
    assert!(missing.definitions.is_empty() && missing.diagnostics.len() == 1, "{missing:?}");
}

#[test]
fn variables_of_skills_and_plugins_are_their_folders() {
    let root = TempDir::new().unwrap();
    let body = "---\nname: x\ndescription: d\n---\nRun ${CLAUDE_SKILL_DIR}/a.sh, ${CLAUDE_PLUGIN_ROOT}/b.sh, ${HOME}, $ARGUMENTS.\n";
    write(root.path(), "kit/skills/x/SKILL.md", body);
    write(root.path(), "kit/agents/y.md", "---\nname: y\ndescription: d\n---\nRead ${CLAUDE_PLUGIN_ROOT}/z.\n");
    let mut places = Places::new(root.path().join("repo"));
    places.plugins = vec![root.path().join("kit")];
    let (library, _) = SkillFolders::discover(&places);
    let kit = root.path().join("kit").display().to_string();
    let rendered = library.get("kit:x").unwrap().unwrap().render_with("now");
    assert!(rendered.contains(&format!("Run {kit}/skills/x/a.sh, {kit}/b.sh, ${{HOME}}, now.")), "{rendered}");
    let found = homing_load::discover(&places, &ParseOptions::default());
    assert_eq!(found.registry.get("kit:y").unwrap().prompt, format!("Read {kit}/z."));
}

#[test]
fn skills_of_other_programs_are_found() {
    let root = TempDir::new().unwrap();
    let folders = [".github", ".codex", ".gemini", ".qwen", ".opencode", ".cursor", ".factory", ".goose"];
    for folder in folders {
        let name = &folder[1..];
        let text = format!("---\nname: {name}\ndescription: d\n---\nBody.\n");
        write(root.path(), &format!("{folder}/skills/{name}/SKILL.md"), &text);
    }
    let (library, diagnostics) = SkillFolders::discover(&Places::new(root.path()));
    assert_eq!(library.list().len(), folders.len(), "{diagnostics:?}");
}

#[test]
fn settings_of_a_skill_are_read_or_reported() {
    let root = TempDir::new().unwrap();
    let text = "---\nname: fix\ndescription: Fixes.\nwhen_to_use: On bugs.\narguments: [issue, branch]\nargument-hint: [issue] [branch]\n\
                context: fork\nagent: code\nmodel: opus\neffort: high\nbackground: true\ndisable-model-invocation: yes\n\
                allowed-tools: Bash(git *) Read KillShell\ndisallowed-tools: [WebFetch, Wirte]\npaths: src/**\nlicense: MIT\nwat: 1\n---\nFix $issue.\n";
    write(root.path(), "other/SKILL.md", text);
    let (library, diagnostics) = SkillFolders::in_folder(root.path(), Scope::User);
    let card = &library.list()[0];
    assert_eq!(card.description, "Fixes.\nOn bugs.");
    let settings = &card.settings;
    assert_eq!(settings.offered_to, OfferedTo::User);
    assert_eq!(settings.arguments, ["issue", "branch"]);
    assert_eq!(
        (settings.agent.as_deref(), settings.model.as_deref(), settings.fork),
        (Some("code"), Some("opus"), true)
    );
    assert_eq!((settings.effort, settings.background), (Some(Effort::High), true));
    let shown = |rules: &[Rule]| rules.iter().map(Rule::to_string).collect::<Vec<_>>().join(", ");
    assert_eq!(shown(&settings.approved), "bash(git *), read");
    assert_eq!(shown(&settings.denied), "fetch, write, Wirte", "an unknown name in a restriction closes");
    assert_eq!(settings.argument_hint.as_deref(), Some("[issue] [branch]"));
    let said: Vec<String> =
        diagnostics.iter().map(|diagnostic| format!("{}: {}", diagnostic.line, diagnostic.message)).collect();
    insta::assert_snapshot!(said.join("\n"), @"
    2: other programs require that the name `fix` is the name of its folder, `other`
    6: `argument-hint` is not valid YAML without quotes: read as text
    13: there is no tool `KillShell` here: it approves nothing
    14: unknown tool `Wirte` in a deny list
    15: `paths` is ignored: the skill is offered for all files
    17: unknown key `wat`: ignored
    ");
}

#[test]
fn untrusted_skill_approves_no_calls_and_keeps_its_restrictions() {
    let root = TempDir::new().unwrap();
    let text = "---\nname: x\ndescription: d\nallowed-tools: Bash\ndisallowed-tools: Write\n---\nBody.\n";
    write(root.path(), ".claude/skills/x/SKILL.md", text);
    let found = |trusted: bool| {
        let trust = TrustPolicy { is_trusted: &|_, _| trusted, ceiling: Default::default() };
        let found = discover_trusted(&Places::new(root.path()), &ParseOptions::default(), trust);
        let settings = &found.skills.list()[0].settings;
        (settings.approved.len(), settings.denied.len(), found.diagnostics.len())
    };
    assert_eq!((found(true), found(false)), ((1, 1, 0), (0, 1, 1)));
}
