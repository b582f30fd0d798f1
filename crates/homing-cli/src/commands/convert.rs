//! `homing convert`: writes agents in the form of another ecosystem. Files go to stdout or below a folder, the report to stderr.

use std::{
    fs::{self, OpenOptions},
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
};

use homing::{CodingSetup, Folders, environment};
use homing_core::{
    definition::{AgentDefinition, ModelChoice, Scope},
    diagnostic::{Diagnostic, Severity},
    sanitize,
};
use homing_load::{
    Discovered, ParseOptions, Parsed, Places, Recurse,
    convert::{Conversion, Outcome, convert, files, target},
    discover, load_file, load_folder,
};
use homing_models::{Providers, names::Resolver};
use serde_json::{Value, json};

use crate::{
    cli::convert::ConvertArgs,
    config::Layered,
    exit::{Exit, Trouble},
    session::{AsIfUsable, agent_file},
    terminal,
};

pub(crate) fn run(args: &ConvertArgs) -> anyhow::Result<Exit> {
    let form = target(&args.to).ok_or_else(|| Trouble::usage(format!("unknown form `{}`", args.to)))?;
    let mut errors = Vec::new();
    let mut definitions: Vec<AgentDefinition> = Vec::new();
    for name in &args.agents {
        for agent in find(name, &mut errors)? {
            if !definitions.iter().any(|other| other.name == agent.name) {
                definitions.push(agent);
            }
        }
    }
    for error in &errors {
        terminal::say(&error.to_string());
    }
    let config = Layered::read(Folders::from_env().config.as_deref(), &environment::current_folder()?)?;
    let providers = Providers::new(config.user.providers.clone(), |_| None);
    let resolver = Resolver {
        providers: &AsIfUsable(&providers),
        default: None,
        aliases: config.user.aliases.clone(),
        map: Vec::new(),
        strict: false,
    };
    let model = |name: &str| {
        let resolved = resolver.resolve(&ModelChoice::Exact(name.to_owned()), None).ok()?;
        resolved.names.into_iter().next()
    };
    let all: Vec<Conversion> = definitions.iter().map(|definition| convert(definition, form, &model)).collect();
    let is_refused = |conversion: &Conversion| !args.allow_wider && conversion.wider().next().is_some();
    let (refused, accepted): (Vec<Conversion>, Vec<Conversion>) = all.into_iter().partition(is_refused);
    let written = write(args, &files(&accepted))?;
    if args.json {
        let each = |conversion: &Conversion| as_json(conversion, args, is_refused(conversion));
        let conversions: Vec<Value> = accepted.iter().chain(&refused).map(each).collect();
        writeln!(anstream::stdout(), "{}", terminal::json(&json!({"to": form.name(), "agents": conversions})))?;
    } else {
        accepted.iter().chain(&refused).for_each(|conversion| report(conversion, args, is_refused(conversion)));
    }
    Ok(match (refused.is_empty(), errors.is_empty() && written) {
        (false, _) => Exit::Refused,
        (true, true) => Exit::Done,
        (true, _) => Exit::Failed,
    })
}

/// Finds the agents that an argument names: a folder, a file, or the name of a loaded agent.
fn find(name: &str, errors: &mut Vec<Diagnostic>) -> anyhow::Result<Vec<AgentDefinition>> {
    let mut take = |parsed: Parsed| {
        errors.extend(parsed.diagnostics.into_iter().filter(|found| found.severity == Severity::Error));
        parsed.definitions
    };
    if Path::new(name).is_dir() {
        let folder = fs::canonicalize(name)?;
        let mut places = Places::new(folder.clone());
        places.skip_built_in = true;
        let found = discover(&places, &ParseOptions::default());
        let inside = of_folder(&found, &folder);
        if !inside.is_empty() {
            return Ok(inside);
        }
        let parsed = load_folder(&folder, Recurse::Yes, Scope::CommandLine, &ParseOptions::default());
        let definitions: Vec<AgentDefinition> = parsed.into_iter().flat_map(take).collect();
        if definitions.is_empty() {
            return Err(Trouble::usage(format!("there are no agents in {name}")).into());
        }
        return Ok(definitions);
    }
    if let Some(path) = agent_file(name)? {
        let definitions = take(load_file(&path, Scope::CommandLine, &ParseOptions::default()));
        if definitions.is_empty() && errors.is_empty() {
            return Err(Trouble::usage(format!("{name} defines no agent")).into());
        }
        return Ok(definitions);
    }
    // Every field is kept: writing a file needs no trust.
    let places = CodingSetup::from_env(&environment::current_folder()?).places;
    let found = discover(&places, &ParseOptions::default());
    let entry = found.registry.registered(name).map_err(|error| {
        Trouble::usage(error.to_string())
            .hint("`homing agents` lists the available agents; a file or a folder may be named, too")
    })?;
    Ok(vec![(*entry.definition).clone()])
}

/// The agents whose files are below a folder.
fn of_folder(found: &Discovered, folder: &Path) -> Vec<AgentDefinition> {
    let is_inside = |agent: &AgentDefinition| agent.source.path.as_ref().is_some_and(|path| path.starts_with(folder));
    let agents = found.registry.all().map(|entry| &*entry.definition);
    agents.filter(|agent| is_inside(agent)).cloned().collect()
}

/// Prints the files, or writes them below the folder. Returns false if a file could not be written.
fn write(args: &ConvertArgs, files: &[(PathBuf, String)]) -> anyhow::Result<bool> {
    let Some(folder) = &args.out else {
        if !args.json {
            print(files)?;
        }
        return Ok(true);
    };
    let paths: Vec<PathBuf> = files.iter().map(|(path, _)| folder.join(path)).collect();
    let existing: Vec<&PathBuf> = paths.iter().filter(|path| path.symlink_metadata().is_ok()).collect();
    if let (Some(first), false) = (existing.first(), args.force) {
        let more = existing.len() - 1;
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        let trouble = Trouble::usage(format!("{} already exists{more}; nothing was written", first.display()));
        return Err(trouble.hint("--force overwrites it; --dry-run shows what would be written").into());
    }
    let mut complete = true;
    for ((_, text), path) in files.iter().zip(&paths) {
        if args.dry_run {
            terminal::say(&format!("would write {}", path.display()));
        } else if let Err(error) = write_file(path, text, args.force) {
            terminal::say(&format!("error: cannot write {}: {error}", path.display()));
            complete = false;
        } else if !args.json {
            writeln!(anstream::stdout(), "{}", sanitize::inert_line(&path.display().to_string()))?;
        }
    }
    Ok(complete)
}

fn print(files: &[(PathBuf, String)]) -> std::io::Result<()> {
    let mut out = anstream::stdout().lock();
    for (path, text) in files {
        if files.len() > 1 {
            writeln!(out, "==> {} <==", path.display())?;
        }
        // A file keeps every character; a terminal must not obey them.
        let text = if std::io::stdout().is_terminal() { sanitize::inert(text) } else { text.into() };
        write!(out, "{text}")?;
    }
    out.flush()
}

fn write_file(path: &Path, text: &str, force: bool) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    options.write(true).open(path)?.write_all(text.as_bytes())
}

/// Prints what becomes of each field, the gravest change first.
fn report(conversion: &Conversion, args: &ConvertArgs, refused: bool) {
    let path = conversion.path.display();
    terminal::say(&if refused {
        format!("refused: {} would be allowed more as {path}:", conversion.agent)
    } else {
        format!("{} as {path}:", conversion.agent)
    });
    let changes = conversion.report.iter().filter(|change| change.outcome != Outcome::Kept);
    for change in changes {
        terminal::say(&format!("  {:9} {}: {}", change.outcome.name(), label(&change.field), change.note));
    }
    let kept = conversion.report.iter().filter(|change| change.outcome == Outcome::Kept);
    let kept: Vec<&str> = kept.map(|change| label(&change.field)).collect();
    terminal::say(&format!("  {:9} {}", "kept", kept.join(", ")));
    if refused && !args.allow_wider {
        terminal::say("  hint: change the agent, or accept the lines marked `wider` with --allow-wider");
    }
}

/// The name of a field as agent files have it.
fn label(field: &str) -> &str {
    match field {
        "denied" => "disallowedTools",
        "asked" => "approval",
        "permission_mode" => "permissionMode",
        "mcp_servers" => "mcpServers",
        "initial_prompt" => "initialPrompt",
        "surroundings" => "context",
        "temperature_milli" => "temperature",
        "offered_to" => "who may start it",
        other => other,
    }
}

fn as_json(conversion: &Conversion, args: &ConvertArgs, refused: bool) -> Value {
    let changes = conversion
        .report
        .iter()
        .map(|change| json!({"field": change.field, "outcome": change.outcome.name(), "note": change.note}));
    let path = args.out.as_ref().map_or_else(|| conversion.path.clone(), |folder| folder.join(&conversion.path));
    json!({
        "agent": conversion.agent,
        "path": path.display().to_string(),
        "text": conversion.text,
        "refused": refused,
        "written": args.out.is_some() && !args.dry_run && !refused,
        "report": changes.collect::<Vec<_>>(),
    })
}
