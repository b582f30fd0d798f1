//! Discovery of agents: precedence, validation, built-in agents, plugins, trust.

use std::{fs, path::Path};

use homing_core::{
    authority::Allow,
    definition::{AgentDefinition, ProjectContext, Scope},
    diagnostic::Severity,
    limits::Limits,
    registry::Registry,
};
use homing_load::{
    Discovered, ParseOptions, Places, Recurse, TrustPolicy, builtin, discover, discover_trusted, load_file,
    load_folder, parse_json,
};
use tempfile::TempDir;

/// A home, a repository with a folder inside, a plugin and an administrator's folder.
struct World {
    root: TempDir,
}

impl World {
    fn new() -> Self {
        let world = Self { root: TempDir::new().expect("a temporary folder") };
        fs::create_dir_all(world.path("repo/.git")).unwrap();
        fs::create_dir_all(world.path("repo/sub")).unwrap();
        world
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.root.path().join(path)
    }

    /// Writes an agent whose description is the path of its file.
    fn agent(&self, path: &str, name: &str) {
        self.file(path, &format!("---\nname: {name}\ndescription: {path}\n---\nPrompt.\n"));
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn places(&self) -> Places {
        let mut places = Places::new(self.path("repo/sub"));
        places.home = Some(self.path("home"));
        places.config = Some(self.path("home/.config"));
        places.managed = vec![self.path("managed")];
        places.plugins = vec![self.path("plugin")];
        places
    }

    fn load(&self) -> Discovered {
        discover(&self.places(), &ParseOptions::default())
    }

    fn winner(&self, name: &str) -> String {
        self.load().registry.get(name).unwrap().description.clone()
    }
}

#[test]
fn r6_stronger_scope_wins_and_shadowed_agents_are_kept() {
    let world = World::new();
    let order = [
        "home/.claude/agents/a.md",
        "plugin/agents/a.md",
        "repo/.claude/agents/a.md",
        "repo/sub/.claude/agents/a.md",
        "managed/agents/a.md",
    ];
    for path in order {
        world.agent(path, "explore");
        assert_eq!(world.winner("explore"), path);
    }
    let loaded = world.load();
    let hidden: Vec<&str> =
        loaded.registry.registered("explore").unwrap().shadows.iter().map(|it| it.description.as_str()).collect();
    assert_eq!(hidden[..4], [order[3], order[2], order[1], order[0]]);
    assert_eq!(loaded.registry.registered("explore").unwrap().shadows[4].source.kind, Scope::BuiltIn);
}

#[test]
fn r6_command_line_wins_over_project_but_not_administrator() {
    let world = World::new();
    world.agent("repo/.claude/agents/a.md", "a");
    let mut places = world.places();
    places.agents_json = Some(r#"{"a": {"description": "typed", "prompt": "p"}}"#.into());
    let loaded = discover(&places, &ParseOptions::default());
    assert_eq!(loaded.registry.get("a").unwrap().description, "typed");
    world.agent("managed/agents/a.md", "a");
    let loaded = discover(&places, &ParseOptions::default());
    assert_eq!(loaded.registry.get("a").unwrap().description, "managed/agents/a.md");
}

#[test]
fn dialects_that_share_a_folder_find_their_own_files() {
    let world = World::new();
    world.agent("repo/.claude/agents/a.md", "a");
    assert!(!world.load().registry.has("b"));
    world.file("repo/.claude/agents/deep/b.yaml", "name: b\ndescription: d\nprompt: p\n");
    let registry = world.load().registry;
    let dialects = ["a", "b"].map(|name| registry.get(name).unwrap().source.dialect.clone());
    assert_eq!(dialects, ["claude-code", "instructor"]);
}

#[test]
fn r6_precedence_of_dialects_within_a_scope() {
    let world = World::new();
    for path in [
        "repo/.qwen/agents/a.md",
        "repo/.cursor/agents/a.md",
        "repo/.agents/agents/a.md",
        "repo/.claude/agents/a.md",
        "repo/.homing/agents/a.md",
    ] {
        world.agent(path, "a");
        assert_eq!(world.winner("a"), path);
    }
}

#[test]
fn r6_claude_user_agent_wins_over_plugin_which_stays_qualified() {
    let world = World::new();
    world.file("plugin/.claude-plugin/plugin.json", r#"{"name": "tools"}"#);
    world.agent("plugin/agents/a.md", "a");
    assert_eq!(world.winner("tools:a"), "plugin/agents/a.md");
    assert_eq!(world.winner("a"), "plugin/agents/a.md");
    world.agent("home/.claude/agents/a.md", "a");
    assert_eq!(world.winner("a"), "home/.claude/agents/a.md");
    assert_eq!(world.winner("tools:a"), "plugin/agents/a.md");
}

#[test]
fn home_as_working_folder_still_belongs_to_the_user() {
    let world = World::new();
    world.agent("home/.claude/agents/a.md", "a");
    let mut places = world.places();
    places.cwd = world.path("home");
    let loaded = discover(&places, &ParseOptions::default());
    assert_eq!(loaded.registry.get("a").unwrap().source.kind, Scope::User);
    assert!(loaded.registry.registered("a").unwrap().shadows.is_empty());
}

#[test]
fn project_without_repository_is_the_working_folder() {
    let folder = TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join("inner")).unwrap();
    assert_eq!(Places::new(folder.path().join("inner")).project_folders(), [folder.path().join("inner")]);
}

#[test]
fn r4_errors_name_file_line_and_field() {
    let parsed = crate::show::parsed(".claude/agents/x.md", "---\nname: x\ndescription: \"  \"\n---\n\n");
    assert!(parsed.definitions.is_empty());
    for (diagnostic, field) in parsed.diagnostics.iter().zip(["description", "prompt"]) {
        assert_eq!(diagnostic.severity, Severity::Error);
        assert_eq!(diagnostic.field.as_deref(), Some(field));
        assert_eq!(diagnostic.path.as_deref().map(|it| it.as_path()), Some(Path::new(".claude/agents/x.md")));
        assert!(diagnostic.line > 0);
    }
    let parsed = crate::show::parsed(".claude/agents/x.md", "---\nname: My Agent_2\ndescription: d\n---\nP\n");
    let agent = &parsed.definitions[0];
    assert_eq!((agent.name.as_str(), agent.title.as_deref()), ("my-agent-2", Some("My Agent_2")));
    let registry = Registry::from_iter(parsed.definitions);
    assert!(registry.has("my-agent-2") && registry.has("My Agent_2"));
}

#[test]
fn r4_strict_mode_rejects_repaired_files() {
    let world = World::new();
    world.file("repo/.claude/agents/a.md", "---\nname: A\ndescription: one: two\n---\nP\n");
    let path = world.path("repo/.claude/agents/a.md");
    assert_eq!(load_file(&path, Scope::Project, &ParseOptions::default()).definitions.len(), 1);
    let strict = ParseOptions { strict: true, ..ParseOptions::default() };
    let parsed = load_file(&path, Scope::Project, &strict);
    assert!(parsed.definitions.is_empty());
    assert!(parsed.diagnostics.iter().all(|diagnostic| diagnostic.severity == Severity::Error));
}

#[test]
fn r7_agents_load_from_a_file_a_folder_or_json() {
    let world = World::new();
    world.agent("set/one.md", "one");
    world.agent("set/deep/two.md", "two");
    world.file("set/three.json", r#"{"name": "three", "description": "d", "prompt": "p"}"#);
    let names = |below| {
        let parsed = load_folder(&world.path("set"), below, Scope::User, &ParseOptions::default());
        let registry: Registry = parsed.into_iter().flat_map(|it| it.definitions).collect();
        registry.names().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(Recurse::No), ["one", "three"]);
    assert_eq!(names(Recurse::Yes), ["one", "three", "two"]);
    let one = load_file(&world.path("set/one.md"), Scope::User, &ParseOptions::default());
    assert_eq!(one.definitions[0].name, "one");
    let json = parse_json(
        r#"{"a": {"description": "d", "prompt": "p"}, "b": {"description": "d", "prompt": "p"}}"#,
        Scope::CommandLine,
        &ParseOptions::default(),
    );
    assert_eq!(json.definitions.len(), 2);
    assert!(!parse_json("{", Scope::CommandLine, &ParseOptions::default()).diagnostics.is_empty());
}

#[test]
fn r8_unknown_tools_are_reported() {
    let world = World::new();
    world.file("repo/.claude/agents/a.md", "---\nname: a\ndescription: d\ntools: Read, deploy\n---\nP\n");
    let path = world.path("repo/.claude/agents/a.md");
    let lenient = load_file(&path, Scope::Project, &ParseOptions::default());
    assert_eq!(lenient.diagnostics[0].severity, Severity::Warning);
    assert_eq!((lenient.diagnostics[0].line, lenient.diagnostics[0].column), (4, 14));
    assert_eq!(lenient.definitions[0].tools.allowed, Allow::Only(vec!["read".parse().unwrap()]));
    let strict = load_file(&path, Scope::Project, &ParseOptions { strict: true, ..ParseOptions::default() });
    assert!(strict.definitions.is_empty());
    let known = load_file(&path, Scope::Project, &ParseOptions { strict: true, tools: vec!["deploy".into()] });
    assert_eq!(
        known.definitions[0].tools.allowed,
        Allow::Only(vec!["read".parse().unwrap(), "deploy".parse().unwrap()])
    );
}

fn built_in(name: &str) -> &'static AgentDefinition {
    builtin::agents().iter().find(|agent| agent.name == name).expect("agent ships")
}

fn tools(name: &str) -> Vec<String> {
    match &built_in(name).tools.allowed {
        Allow::All => vec!["*".into()],
        Allow::Only(rules) => rules.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn r10_built_in_agents_have_tools_and_can_be_overridden() {
    let names: Vec<&str> = builtin::agents().iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["explore", "plan", "code", "code-review", "general"]);
    assert_eq!(tools("explore"), ["glob", "grep", "read", "ls", "tree"]);
    assert_eq!(tools("plan"), tools("explore"));
    assert_eq!(tools("code-review"), ["glob", "grep", "read", "diff", "bash(git only)"]);
    assert_eq!(tools("general"), ["*"]);
    assert!(["explore", "plan", "code-review"].iter().all(|name| built_in(name).task.schema.is_some()));
    assert_eq!(built_in("explore").context.project_context, ProjectContext::Environment);
    assert_eq!(built_in("plan").context.project_context, ProjectContext::Environment);
    assert!(built_in("general").prompt.contains("`explore`"));
    let world = World::new();
    // What the prompts in the wild call it.
    assert_eq!(world.load().registry.get("general-purpose").unwrap().name, "general");
    world.agent("repo/.homing/agents/mine.md", "general");
    assert_eq!(world.winner("general"), "repo/.homing/agents/mine.md");
}

#[test]
fn r10_r12_shipped_agents_need_no_repair() {
    let strict = ParseOptions { strict: true, ..ParseOptions::default() };
    for (name, text) in builtin::EXAMPLES {
        let path = Path::new(".claude/agents").join(name);
        let parsed = homing_load::parse(
            &path,
            text.as_bytes().to_vec(),
            homing_load::ParsedFile::Named,
            Scope::Project,
            &strict,
        );
        assert_eq!(parsed.diagnostics, [], "{name}");
        assert_eq!(format!("{}.md", parsed.definitions[0].name), *name);
    }
    assert!(
        builtin::agents().iter().all(|agent| agent.extra.unknown.is_empty() && agent.source.kind == Scope::BuiltIn)
    );
}

#[test]
fn r11_agents_come_from_configuration_and_plugins() {
    let world = World::new();
    world.file("home/.config/homing/agents.json", r#"{"configured": {"description": "d", "prompt": "p"}}"#);
    world.agent("home/.config/homing/agents/filed.md", "filed");
    world.agent("plugin/agents/deep/plugged.md", "plugged");
    world.agent("extra/typed.md", "typed");
    let mut places = world.places();
    places.folders.push(world.path("extra"));
    let registry = discover(&places, &ParseOptions::default()).registry;
    for (name, scope) in
        [("configured", Scope::User), ("filed", Scope::User), ("plugged", Scope::Plugin), ("typed", Scope::CommandLine)]
    {
        assert_eq!(registry.get(name).unwrap().source.kind, scope, "{name}");
    }
}

#[test]
fn r12_four_example_agents_ship() {
    let names: Vec<&str> = builtin::EXAMPLES.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["code-reviewer.md", "test-writer.md", "api-designer.md", "researcher.md"]);
}

#[test]
fn untrusted_project_agents_are_registered_without_authority() {
    let world = World::new();
    let text =
        "---\nname: db\ndescription: d\nhooks: {Stop: x}\nmcpServers: {db: {command: sh}}\ntools: Read\n---\nP\n";
    world.file("repo/.claude/agents/db.md", text);
    let mut places = world.places();
    places.skip_built_in = true;
    let is_trusted = |scope: Scope, _: Option<&Path>| scope != Scope::Project;
    let trust = TrustPolicy { is_trusted: &is_trusted, ceiling: Limits::default() };
    let found = discover_trusted(&places, &ParseOptions::default(), trust);
    let agent = found.registry.get("db").unwrap();
    assert!(agent.integrations.hooks.is_null() && agent.integrations.mcp_servers.is_empty());
    assert_eq!(agent.tools.allowed, Allow::Only(vec!["read".parse().unwrap()]), "restrictions stay");
    let stripped: Vec<(&str, &str)> =
        found.stripped.iter().map(|stripped| (stripped.agent.as_str(), stripped.field.as_str())).collect();
    assert_eq!(stripped, [("db", "hooks"), ("db", "mcpServers")]);
    assert_eq!(found.diagnostics.len(), 2, "{:?}", found.diagnostics);
    assert_eq!(found.registry.names().collect::<Vec<_>>(), ["db"], "built-in agents are left out");
    let trusting = TrustPolicy { is_trusted: &|_, _| true, ceiling: Limits::default() };
    let found = discover_trusted(&places, &ParseOptions::default(), trusting);
    assert!(!found.registry.get("db").unwrap().integrations.hooks.is_null() && found.stripped.is_empty());
}

#[test]
fn codex_roles_are_agents() {
    let root = TempDir::new().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let config = "model = \"gpt-5\"\n[agents]\nmax_depth = 2\n[agents.reviewer]\ndescription = \"Reviews\"\nconfig_file = \"roles/r.toml\"\n\
                  [agents.brief]\ndescription = \"Is brief\"\n[agents.away]\nconfig_file = \"../../x.toml\"\n";
    write(".codex/config.toml", config);
    write(
        ".codex/roles/r.toml",
        "developer_instructions = \"You review.\"\nmodel = \"gpt-5-mini\"\nsandbox_mode = \"read-only\"\n",
    );
    let mut places = Places::new(root.path());
    places.skip_built_in = true;
    let found = discover(&places, &ParseOptions::default());
    let names: Vec<&str> = found.registry.names().collect();
    assert_eq!(names, ["brief", "reviewer"], "{:?}", found.diagnostics);
    let reviewer = found.registry.get("reviewer").unwrap();
    assert_eq!((reviewer.description.as_str(), reviewer.prompt.as_str()), ("Reviews", "You review."));
    assert!(
        found.diagnostics.iter().any(|error| error.line == 9 && error.message.contains("`away`")),
        "{:?}",
        found.diagnostics
    );
    write(".codex/config.toml", "model = \"gpt-5\"\n");
    let found = discover(&places, &ParseOptions::default());
    assert!(found.registry.is_empty() && found.diagnostics.is_empty() && found.ignored.is_empty(), "{found:?}");
}

#[test]
fn file_that_another_one_names_is_one_agent() {
    let root = TempDir::new().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let role = "[agents.scout]\ndescription = \"Scouts ahead\"\nconfig_file = \"./agents/s.toml\"\nnickname_candidates = [\"Ada\"]\n";
    write(".codex/config.toml", &format!("[agents]\nmax_depth = 1\n{role}"));
    write(".codex/agents/s.toml", "developer_instructions = \"You scout.\"\n");
    let recipe = |title: &str, more: &str| {
        format!("version: 1.0.0\ntitle: {title}\ndescription: d\ninstructions: You {{{{ do }}}}.\n{more}")
    };
    let parameter =
        "parameters: [{key: do, input_type: string, requirement: optional, default: wait, description: x}]\n";
    for lead in ["a", "z"] {
        let sub = format!("sub_recipes: [{{name: sub-{lead}, path: ./m{lead}.yaml, values: {{do: help}}}}]\n");
        write(&format!(".goose/recipes/{lead}.yaml"), &recipe(lead, &(parameter.to_owned() + &sub)));
        write(&format!(".goose/recipes/m{lead}.yaml"), &recipe(&format!("sub-{lead}"), parameter));
    }
    let mut places = Places::new(root.path());
    places.skip_built_in = true;
    let found = discover(&places, &ParseOptions::default());
    assert_eq!(found.registry.names().collect::<Vec<_>>(), ["a", "scout", "sub-a", "sub-z", "z"]);
    let said: Vec<&str> = found.diagnostics.iter().map(|found| found.message.as_str()).collect();
    let ignored = [
        "`max_depth` is ignored: it is a setting of Codex itself",
        "`nickname_candidates` is ignored: a role has a description and a file",
    ];
    assert_eq!(said, ignored);
    assert_eq!(found.registry.get("scout").unwrap().description, "Scouts ahead");
    for name in ["sub-a", "sub-z"] {
        let entry = found.registry.registered(name).unwrap();
        assert_eq!(entry.definition.task.parameters["do"], Some("help".into()), "{name}");
        assert!(entry.shadows.is_empty(), "{name}");
    }
}

#[test]
fn users_own_configurations_of_codex_and_opencode_bring_agents() {
    let world = World::new();
    world.file("home/.codex/config.toml", "[agents.scout]\ndescription = \"Scouts\"\nconfig_file = \"roles/s.toml\"\n");
    world.file("home/.codex/roles/s.toml", "developer_instructions = \"You scout.\"\n");
    world.file(
        "home/.config/opencode/opencode.json",
        r#"{"agent": {"helper": {"description": "Helps", "prompt": "You help.", "tools": {"bash": false}}}}"#,
    );
    let mut places = world.places();
    places.skip_built_in = true;
    let found = discover(&places, &ParseOptions::default());
    assert_eq!(found.registry.names().collect::<Vec<_>>(), ["helper", "scout"], "{:?}", found.diagnostics);
    let scout = found.registry.get("scout").unwrap();
    assert_eq!((scout.source.kind, scout.prompt.as_str()), (Scope::User, "You scout."));
}

#[test]
fn kiro_agent_is_read_without_remarks_about_other_programs() {
    let text = r#"{"name": "k", "description": "d", "prompt": "P", "tools": ["read"], "allowedTools": ["read"], "hooks": {}, "welcomeMessage": "hi"}"#;
    let parsed = homing_load::parse(
        Path::new(".kiro/agents/k.json"),
        text.as_bytes().to_vec(),
        homing_load::ParsedFile::Named,
        Scope::Project,
        &ParseOptions::default(),
    );
    let said: Vec<&str> = parsed.diagnostics.iter().map(|found| found.message.as_str()).collect();
    assert_eq!(
        said,
        [
            "`allowedTools` is ignored: the user's rules decide what needs approval",
            "`welcomeMessage` is ignored: no message is shown when an agent starts",
        ]
    );
    assert!(parsed.definitions[0].integrations.hooks.is_null());
}

#[test]
fn plugin_manifest_names_further_folders() {
    let root = TempDir::new().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let agent = |name: &str| format!("---\nname: {name}\ndescription: d\n---\nP\n");
    // A file that is also in the usual folder is one agent, not a duplicate.
    let manifest = r#"{"name": "kit", "skills": "./abilities", "agents":
        ["./more/", "./single/one.md", "./agents/usual.md", "../outside", "/etc"]}"#;
    write("kit/.claude-plugin/plugin.json", manifest);
    write("kit/commands/go.md", "Go.\n");
    write("kit/agents/usual.md", &agent("usual"));
    write("kit/more/extra.md", &agent("extra"));
    write("kit/single/one.md", &agent("one"));
    write("kit/single/two.md", &agent("two"));
    write("outside/evil.md", &agent("evil"));
    write("kit/abilities/fly/SKILL.md", "---\nname: fly\ndescription: d\n---\nFly.\n");
    let mut places = Places::new(root.path().join("repo"));
    places.skip_built_in = true;
    places.plugins = vec![root.path().join("kit")];
    let found = discover(&places, &ParseOptions::default());
    let names: Vec<&str> = found.registry.names().collect();
    assert_eq!(names, ["extra", "one", "usual"], "{:?}", found.diagnostics);
    let said: Vec<&str> = found.diagnostics.iter().map(|found| found.message.as_str()).collect();
    assert_eq!(said, ["`commands` of the plugin is ignored: write them as skills"]);
    use homing_core::skill::SkillLibrary;
    assert!(found.skills.has("kit:fly"));
}

#[test]
fn unknown_key_that_resembles_a_known_one_has_a_hint() {
    let text = "---\nname: a\ndescription: d\nbackgroud: true\nzzzzzz: 1\n---\nP\n";
    let parsed = homing_load::parse(
        Path::new(".claude/agents/a.md"),
        text.as_bytes().to_vec(),
        homing_load::ParsedFile::Named,
        homing_core::definition::Scope::Project,
        &ParseOptions::default(),
    );
    let hints: Vec<Option<&str>> = parsed.diagnostics.iter().map(|warning| warning.hint.as_deref()).collect();
    assert_eq!(hints, [Some("did you mean `background`?"), None], "{:?}", parsed.diagnostics);
}
