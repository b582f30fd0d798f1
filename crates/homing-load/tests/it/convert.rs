//! Agents in the forms of other ecosystems: what is written, what the report says, and round trips.
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use std::path::{Path, PathBuf};

use crate::generated::Dice;
use homing_core::{
    authority::{Allow, Authority, Decision, Grant, Network, Sandbox},
    definition::{AgentDefinition, OfferedTo, Scope},
    rule::{Rule, Subject, Subjects},
    tool::Effect,
    tool_names,
};
use insta::assert_snapshot;

use homing_load::{
    ParseOptions, Parsed, ParsedFile,
    convert::{Change, Conversion, Outcome, Target, convert, files, form_table, target, targets},
    dialect, parse,
};

/// Translates a few names of models.
fn models(name: &str) -> Option<String> {
    if let Some((provider, id)) = name.split_once(['/', ':']) {
        return Some(format!("{}/{id}", if provider == "google" { "gemini" } else { provider }));
    }
    match name {
        "sonnet" => Some("anthropic/claude-sonnet-5-5".to_owned()),
        id if id.starts_with("claude-") => Some(format!("anthropic/{}", id.replace('.', "-"))),
        id if id.starts_with("gpt-") => Some(format!("openai/{id}")),
        id if id.starts_with("gemini-") => Some(format!("gemini/{id}")),
        _ => None,
    }
}

fn to(name: &str) -> &'static Target {
    target(name).expect("a known form")
}

fn converted(text: &str, name: &str) -> Conversion {
    convert(&crate::show::definition(text), to(name), &models)
}

/// The file and the report, without the fields that are kept.
fn shown(text: &str, name: &str) -> String {
    let conversion = converted(text, name);
    let changes = conversion.report.iter().filter(|change| change.outcome != Outcome::Kept);
    let changes: Vec<String> = changes.map(change_text).collect();
    format!("{}\n{}{}", conversion.path.display(), conversion.text, changes.join("\n"))
}

fn change_text(change: &Change) -> String {
    format!("{} {}: {}", change.outcome.name(), change.field, change.note)
}

/// Reads a file as its ecosystem's folder has it.
fn read_back(conversion: &Conversion, target: &Target) -> Parsed {
    let found = ParsedFile::Among(dialect::named(target.name()).expect("a dialect"));
    let bytes = conversion.text.clone().into_bytes();
    parse(&conversion.path, bytes, found, Scope::Project, &ParseOptions::default())
}

/// The fields of two definitions that differ.
fn differing(before: &AgentDefinition, after: &AgentDefinition) -> Vec<String> {
    let fields = |definition: &AgentDefinition| serde_json::to_value(definition).expect("JSON");
    let (before, after) = (fields(before), fields(after));
    let keys = before.as_object().expect("a map").keys().chain(after.as_object().expect("a map").keys());
    let mut keys: Vec<String> =
        keys.filter(|key| *key != "source" && before.get(key.as_str()) != after.get(key.as_str())).cloned().collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Checks one conversion: the file loads without warnings, the report names every difference, nothing is wider without a word,
/// and a second conversion changes nothing.
fn check(definition: &AgentDefinition, target: &'static Target) {
    let conversion = convert(definition, target, &models);
    let context = || {
        let text: String = conversion.text.chars().take(600).collect();
        let changes: Vec<String> = conversion.report.iter().map(change_text).collect();
        format!("{} for {}: {:?}\n{text}\n{}", definition.name, target.name(), definition.tools, changes.join("\n"))
    };
    let parsed = read_back(&conversion, target);
    let warnings: Vec<String> = parsed
        .diagnostics
        .iter()
        .filter(|found| found.severity > homing_core::diagnostic::Severity::Info)
        .map(ToString::to_string)
        .collect();
    assert!(warnings.is_empty(), "{warnings:?}\n{}", context());
    let [back] = parsed.definitions.as_slice() else {
        panic!("{} definitions: {}", parsed.definitions.len(), context())
    };
    for field in differing(definition, back) {
        let is_named = conversion.report.iter().any(|change| {
            change.outcome != Outcome::Kept && (change.field == field || change.field.starts_with(&format!("{field}.")))
        });
        assert!(is_named, "`{field}` differs and is not in the report: {}", context());
    }
    if conversion.wider().next().is_none() {
        let wider = wider_calls(definition, back, target);
        assert!(wider.is_empty(), "{wider:?} are allowed: {}", context());
        assert!(
            definition.execution.offered_to != OfferedTo::User || back.execution.offered_to == OfferedTo::User,
            "{}",
            context()
        );
        assert_eq!(definition.execution.isolation, back.execution.isolation, "{}", context());
    }
    let again = convert(back, target, &models);
    let back_again = read_back(&again, target);
    let text: String = again.text.chars().take(600).collect();
    assert_eq!(differing(&sorted(back), &sorted(&back_again.definitions[0])), [] as [&str; 0], "{text}\n{}", context());
}

/// The definition with its tools in alphabetical order.
fn sorted(definition: &AgentDefinition) -> AgentDefinition {
    let mut definition = definition.clone();
    if let Allow::Only(rules) = &mut definition.tools.allowed {
        rules.sort();
        rules.dedup();
    }
    definition.tools.denied.sort();
    definition.tools.asked.sort();
    definition
}

/// Calls that the second definition permits and the first does not, judged by the runtime's own decision.
fn wider_calls(before: &AgentDefinition, after: &AgentDefinition, target: &Target) -> Vec<String> {
    let policy = Grant::new(Vec::new())
        .read(vec![PathBuf::from("/")])
        .write(vec![PathBuf::from("/")])
        .network(Network::On)
        .sandbox(Sandbox::Off);
    let (before_grant, after_grant) = (Authority::root(policy.clone(), before).own, Authority::root(policy, after).own);
    let freedom = |grant: &Grant, tool: &str, subjects: &Subjects| match grant.decide(tool, effect(tool), subjects) {
        Decision::Deny { .. } => 0,
        Decision::Ask { .. } => 1,
        Decision::Allow { .. } => 2,
    };
    let mut wider = Vec::new();
    for (tool, subjects) in probes(before, target) {
        // A shell reads and writes any file, whatever the other tools may do; reading includes finding.
        let stronger: &[&str] = match tool.as_str() {
            "grep" | "glob" | "ls" | "tree" | "diff" => &["read", "bash"],
            "read" | "write" => &["bash"],
            "edit" => &["write", "bash"],
            _ => &[],
        };
        let whole = |tool: &&str| before.tools.allowed == Allow::All || is_listed(before, tool);
        let is_implied = stronger.iter().filter(|tool| whole(tool)).any(|tool| {
            freedom(&before_grant, tool, &Subjects::None) == 2
                && freedom(&before_grant, tool, &Subjects::Unclear(String::new())) == 2
        });
        let server = tool.strip_prefix("mcp__").and_then(|rest| rest.split("__").next());
        let is_own = server.is_some_and(|server| before.integrations.mcp_servers.contains_key(server));
        if !is_implied && !is_own && freedom(&after_grant, &tool, &subjects) > freedom(&before_grant, &tool, &subjects)
        {
            wider.push(format!("{tool} {subjects:?}"));
        }
    }
    if before_grant.sandbox < after_grant.sandbox && after_grant.shows("bash", Effect::Commands) {
        wider.push("the sandbox".to_owned());
    }
    wider
}

fn is_listed(definition: &AgentDefinition, tool: &str) -> bool {
    matches!(&definition.tools.allowed, Allow::Only(rules) if rules.contains(&Rule::tool(tool)))
}

fn effect(tool: &str) -> Effect {
    match tool {
        "edit" | "write" => Effect::Changes,
        "bash" => Effect::Commands,
        "fetch" | "websearch" => Effect::Network,
        "delegate" => Effect::Delegates,
        _ if tool.starts_with("mcp__") => Effect::Changes,
        _ => Effect::Reads,
    }
}

/// Calls of every tool: some that the generated patterns match and some that they do not.
fn probes(definition: &AgentDefinition, target: &Target) -> Vec<(String, Subjects)> {
    let harmless = ["think", "answer", "todo", "wait", "tell", "cancel"];
    let mut probes = Vec::new();
    for tool in tool_names::all().filter(|tool| !harmless.contains(tool)) {
        let subjects: Vec<Subject> = match tool {
            "bash" => ["git log -p", "git push", "rm -rf x", "npm test"]
                .map(|text| Subject::Command { text: text.to_owned(), classes: Vec::new() })
                .into(),
            "fetch" => ["docs.rs", "example.org"].map(|host| Subject::Host(host.to_owned())).into(),
            "delegate" | "skill" => ["scout", "other"].map(|name| Subject::Name(name.to_owned())).into(),
            "read" | "edit" | "write" | "ls" | "tree" | "grep" | "glob" | "diff" => {
                ["src/a.rs", "docs/a.md", "README.md", "x/.env"].map(|path| Subject::Path(path.to_owned())).into()
            }
            _ => Vec::new(),
        };
        probes.push((tool.to_owned(), Subjects::None));
        probes.extend(subjects.into_iter().map(|subject| (tool.to_owned(), Subjects::Parts(vec![subject]))));
    }
    let mut mcp = vec!["mcp__other__tool", "mcp__github__create"];
    // In OpenCode, `github_get_issue` may belong to two servers.
    if !matches!(target.name(), "opencode" | "kilo") {
        mcp.push("mcp__github_get__issue");
    }
    if definition.name != "plain" {
        mcp.push("mcp__github__get_issue");
    }
    probes.extend(mcp.into_iter().map(|tool| (tool.to_owned(), Subjects::None)));
    probes
}

#[test]
fn generated_agents_survive_every_form() {
    let mut dice = Dice::new(0x5eed_0042_cafe_f00d);
    for _ in 0..120 {
        let definition = crate::generated::definition(&mut dice);
        for target in targets() {
            check(&definition, target);
        }
    }
}

#[test]
fn corpus_agents_survive_every_form() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/agents");
    if !folder.is_dir() {
        return eprintln!("skipped: there is no corpus at {}", folder.display());
    }
    let mut paths = Vec::new();
    crate::generated::gather(&folder, &mut paths);
    paths.sort();
    let mut checked = 0;
    for path in paths.iter().step_by(25) {
        let bytes = std::fs::read(path).expect("a file");
        let parsed = parse(path, bytes, ParsedFile::Anywhere, Scope::Project, &ParseOptions::default());
        for definition in &parsed.definitions {
            checked += 1;
            targets().iter().for_each(|target| check(definition, target));
        }
    }
    assert!(checked > 30, "{checked}");
}

const READER: &str = "---\nname: reader\ndescription: \"Reads: use it.\"\ntools: Read, Grep, Glob, mcp__github__get_issue\nmodel: sonnet\nmaxTurns: 12\ncolor: cyan\n---\nYou read.\n";

#[test]
fn claude_code_agent_in_other_forms() {
    assert_snapshot!(shown(READER, "opencode"), @r#"
    .opencode/agent/reader.md
    ---
    description: "Reads: use it."
    model: anthropic/claude-sonnet-5-5
    steps: 12
    permission:
      "*": deny
      read: allow
      grep: allow
      glob: allow
      list: allow
      github_get_issue: allow
    ---

    You read.
    dropped color: OpenCode has no colour `cyan`
    mapped model: `sonnet` is written as `anthropic/claude-sonnet-5-5`
    mapped tools: `read, grep, glob, mcp__github__get_issue` is written as `read, grep, glob, ls, tree, mcp__github__get_issue, mcp__github_get__issue`
    "#);
    assert_snapshot!(shown(READER, "codex"), @r#"
    .codex/agents/reader.toml
    name = "reader"
    description = "Reads: use it."
    sandbox_mode = "read-only"
    developer_instructions = "You read."
    wider tools: Codex cannot limit an agent to `read`, `grep`, `glob`, `mcp__github__get_issue`
    dropped model: `sonnet`: Codex uses models of openai only, unless it is configured otherwise; the default model applies
    dropped limits.turns: Codex has no such limit: 12 is lost
    dropped color: Codex has no such setting: `cyan` is lost
    narrower permission_mode: set to read-only, because its tools change nothing
    "#);
    assert_snapshot!(shown(READER, "gemini"), @r#"
    .gemini/agents/reader.md
    ---
    name: reader
    description: "Reads: use it."
    tools: [read_file, grep_search, glob, mcp_github_get_issue]
    max_turns: 12
    ---

    You read.
    dropped model: `sonnet`: Gemini CLI uses models of gemini only, unless it is configured otherwise; the default model applies
    dropped color: Gemini CLI has no such setting: `cyan` is lost
    "#);
}

#[test]
fn claude_code_agent_for_copilot_and_goose() {
    assert_snapshot!(shown(READER, "copilot"), @r#"
    .github/agents/reader.agent.md
    ---
    description: "Reads: use it."
    tools: [read, search, github/get_issue]
    model: claude-sonnet-5.5
    ---

    You read.
    dropped limits.turns: Copilot has no such limit: 12 is lost
    dropped color: Copilot has no such setting: `cyan` is lost
    mapped model: `sonnet` is written as `claude-sonnet-5.5`
    mapped tools: `read, grep, glob, mcp__github__get_issue` is written as `read, grep, glob, ls, mcp__github__get_issue`
    "#);
    assert_snapshot!(shown(READER, "goose-recipe"), @r#"
    .goose/recipes/reader.yaml
    title: reader
    description: "Reads: use it."
    instructions: You read.
    extensions:
      - {type: builtin, name: developer}
    settings:
      goose_provider: anthropic
      goose_model: claude-sonnet-5-5
      max_turns: 12
    wider tools: the extension `developer` also allows `write`, `edit`, `bash`
    dropped color: Goose has no such setting: `cyan` is lost
    narrower tools: recipes have no `mcp__github__get_issue`
    mapped model: `sonnet` is written as `anthropic/claude-sonnet-5-5`
    "#);
}

#[test]
fn denials_become_lists_where_nothing_can_be_denied() {
    let text = "---\nname: a\ndescription: d\ndisallowedTools: Bash, Write, Edit\n---\nP\n";
    assert_snapshot!(shown(text, "gemini"), @r#"
    .gemini/agents/a.md
    ---
    name: a
    description: d
    tools: [read_file, grep_search, glob, list_directory, web_fetch, google_web_search, write_todos, activate_skill, ask_user, invoke_agent, "mcp_*"]
    ---

    P
    mapped denied: written as the list of all other tools
    mapped tools: `all` is written as `read, grep, glob, ls, fetch, websearch, todo, skill, ask, delegate, mcp__*`
    "#);
    assert_snapshot!(shown(text, "qwen"), @r#"
    .qwen/agents/a.md
    ---
    name: a
    description: d
    disallowedTools: [run_shell_command, write_file, edit]
    ---

    P
    "#);
}

#[test]
fn no_tools_never_become_all_tools() {
    let text = "---\nname: a\ndescription: d\ntools: []\n---\nP\n";
    for form in targets() {
        let conversion = converted(text, form.name());
        let parsed = read_back(&conversion, form);
        let is_open = matches!(form.name(), "codex" | "cursor" | "goose" | "pi");
        assert_eq!(conversion.wider().next().is_some(), is_open, "{}: {:?}", form.name(), conversion.report);
        assert!(is_open || parsed.definitions[0].tools.allowed != Allow::All, "{}", conversion.text);
    }
    // Qwen Code reads an empty list as all tools.
    assert!(converted(text, "qwen").text.contains("tools: [todo_write]"));
    assert!(converted(text, "claude").text.contains("tools: []"));
}

#[test]
fn patterns_are_kept_or_reported() {
    let text = "---\nname: a\ndescription: d\ntools: Read, Bash(git log:*), Agent(scout, tester)\n---\nP\n";
    assert_snapshot!(shown(text, "claude"), @r#"
    .claude/agents/a.md
    ---
    name: a
    description: d
    tools: Read, Bash, Agent
    ---

    P
    wider tools: Claude Code cannot limit `bash` to `bash(git log:*)`: all its calls would be allowed
    wider tools: Claude Code cannot limit `delegate` to `delegate(scout, tester)`: all its calls would be allowed
    "#);
    assert_snapshot!(shown(text, "opencode"), @r#"
    .opencode/agent/a.md
    ---
    description: d
    permission:
      "*": deny
      read: allow
      bash:
        "*": deny
        "git log *": allow
      list: allow
      task:
        "*": deny
        scout: allow
        tester: allow
    ---

    P
    mapped tools: `read, bash(git log:*), delegate(scout, tester)` is written as `read, bash(git log *), ls, tree, delegate(scout), delegate(tester)`
    "#);
}

#[test]
fn own_form_keeps_everything() {
    let mut dice = Dice::new(0x0000_1234_5678_9abc);
    for _ in 0..100 {
        let definition = crate::generated::definition(&mut dice);
        let conversion = convert(&definition, to("homing"), &models);
        let lost: Vec<&Change> = conversion.report.iter().filter(|change| change.outcome != Outcome::Kept).collect();
        assert!(lost.is_empty(), "{lost:#?}\n{}", conversion.text);
    }
}

/// `UPDATE_DOCS=1` writes the table.
#[test]
fn documentation_has_the_table_of_all_forms() {
    let (begin, end) = ("<!-- form table: written by a test -->\n", "<!-- end of the form table -->");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FORMATS.md");
    let text = std::fs::read_to_string(&path).expect("the page");
    let (before, rest) = text.split_once(begin).expect("the beginning of the table");
    let (written, after) = rest.split_once(end).expect("the end of the table");
    let table = form_table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{begin}{table}{end}{after}")).expect("the page is written");
    } else {
        assert_eq!(written, table, "run this test with UPDATE_DOCS=1");
    }
}

#[test]
fn several_roo_modes_share_one_file() {
    let one = |name: &str| converted(&format!("---\nname: {name}\ndescription: d\ntools: Read\n---\nP\n"), "roo");
    let files = files(&[one("a"), one("b")]);
    let [(path, text)] = files.as_slice() else { panic!("{files:?}") };
    let parsed = crate::show::parsed(path.to_str().expect("text"), text);
    let names: Vec<&str> = parsed.definitions.iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
}
