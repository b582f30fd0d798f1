//! The `edit` tool: exact replacements in a file, all of them or none.

use std::sync::Arc;

use homing_core::{
    rule::Subjects,
    tool::{Replay, ToolContext, ToolOutput},
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    files::{
        atomic_write::{FileWrites, replace},
        change_diff::{diff, read_all, text_before},
        file_versions::{FileStat, FileVersion, SeenVersions, hash},
        path_arg::{RequestedPath, path_subjects},
        workspace_files::target,
    },
    lenient_args,
    typed_tool::{TypedTool, blocking},
};

/// Maximum size of the edited file.
const MAX_FILE: usize = 64 * 1024 * 1024;

/// The `edit` tool.
pub(crate) struct EditTool {
    pub(crate) writes: Arc<FileWrites>,
}

/// Arguments of `edit`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct EditArgs {
    /// The file, relative to the working folder or absolute.
    #[serde(alias = "file_path", alias = "filePath", alias = "absolute_path", alias = "file", alias = "filename")]
    path: String,
    /// Replacements, applied in this order; if one fails, none is applied.
    #[serde(default)]
    edits: Vec<Replacement>,
    // Other harnesses use one replacement per call, with its parts beside the path.
    #[serde(
        default,
        alias = "old_string",
        alias = "oldString",
        alias = "old_str",
        alias = "old_text",
        alias = "search"
    )]
    #[schemars(skip)]
    old: Option<String>,
    #[serde(
        default,
        alias = "new_string",
        alias = "newString",
        alias = "new_str",
        alias = "new_text",
        alias = "replace"
    )]
    #[schemars(skip)]
    new: Option<String>,
    #[serde(default, alias = "replace_all", alias = "replaceAll", deserialize_with = "lenient_args::switch")]
    #[schemars(skip)]
    all: bool,
}

/// One replacement.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct Replacement {
    /// The exact text in the file, without line numbers; long enough to be unique in the file.
    #[serde(alias = "old_string", alias = "oldString", alias = "old_str", alias = "old_text", alias = "search")]
    old: String,
    /// The replacement text.
    #[serde(alias = "new_string", alias = "newString", alias = "new_str", alias = "new_text", alias = "replace")]
    new: String,
    /// Replace all occurrences instead of exactly one.
    #[serde(default, alias = "replace_all", alias = "replaceAll", deserialize_with = "lenient_args::switch")]
    #[schemars(with = "Option<bool>")]
    all: bool,
}

impl TypedTool for EditTool {
    type Args = EditArgs;
    const NAME: &'static str = "edit";
    const REPLAY: Replay = Replay::Unsafe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Changes;
    const EXAMPLE: &'static str = r#"{"path": "src/main.rs", "edits": [{"old": "let a = 1;", "new": "let a = 2;"}]}"#;

    fn description(&self) -> String {
        "Replaces exact pieces of text in a file and returns the change as a diff. Read the file first and copy `old` \
         from it exactly, without the line numbers; include enough surrounding lines to make it unique, or set `all`. \
         Several edits are applied in order, all or none."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &EditArgs) -> Subjects {
        path_subjects(context, &args.path)
    }

    fn preview(&self, context: &ToolContext, args: &EditArgs) -> Option<String> {
        let requested = RequestedPath::new(context, &args.path).ok()?;
        let before = text_before(context, &requested)?;
        let after = apply(&before, &replacements(args).ok()?).ok()?;
        Some(diff(&before, &after, &requested))
    }

    async fn run(&self, context: &ToolContext, args: EditArgs) -> ToolOutput {
        let writes = self.writes.clone();
        blocking(context, move |context, _| edit(context, &writes, &args)).await
    }
}

fn edit(context: &ToolContext, writes: &FileWrites, args: &EditArgs) -> Result<ToolOutput, String> {
    let requested = RequestedPath::new(context, &args.path)?;
    let replacements = replacements(args)?;
    let mut target = target(context, EditTool::NAME, &requested)?;
    let Some(opened) = &mut target.existing else {
        return Err(format!("{} does not exist: use `write` to create it", requested.shown));
    };
    let bytes = read_all(opened, &requested)?;
    let now = FileVersion { stat: FileStat::of(&opened.metadata), hash: Some(hash(&bytes)) };
    if context.state.get::<SeenVersions>().get(&opened.real).is_some_and(|seen| !seen.is_same(&now)) {
        return Err(format!("{} has changed since this run read it: read it again before you edit", requested.shown));
    }
    let Ok(before) = String::from_utf8(bytes) else {
        return Err(format!("{} is not UTF-8 text and cannot be edited", requested.shown));
    };
    let after = apply(&before, &replacements)?;
    let contents = (Some(before.as_bytes()), after.as_bytes());
    let data = replace(context, writes, &requested, &target, contents, None)?;
    Ok(ToolOutput::text(diff(&before, &after, &requested)).data(data))
}

fn replacements(args: &EditArgs) -> Result<Vec<Replacement>, String> {
    let mut replacements = args.edits.clone();
    match (&args.old, &args.new) {
        (Some(old), Some(new)) => {
            replacements.push(Replacement { old: old.clone(), new: new.clone(), all: args.all });
        }
        (None, None) => (),
        (Some(_), None) => return Err(format!("edit: `new` is missing. Example: {}", EditTool::EXAMPLE)),
        (None, Some(_)) => return Err(format!("edit: `old` is missing. Example: {}", EditTool::EXAMPLE)),
    }
    if replacements.is_empty() {
        return Err(format!("edit: `edits` is missing or empty. Example: {}", EditTool::EXAMPLE));
    }
    Ok(replacements)
}

/// Applies all replacements. The first one borrows, so that a large file is copied only once per replacement.
fn apply(before: &str, replacements: &[Replacement]) -> Result<String, String> {
    let mut after: Option<String> = None;
    for (at, replacement) in replacements.iter().enumerate() {
        let text = after.as_deref().unwrap_or(before);
        let position = if replacements.len() == 1 {
            String::new()
        } else {
            format!("edit {} of {}: ", at + 1, replacements.len())
        };
        after = Some(apply_one(text, replacement).map_err(|why| format!("{position}{why}; nothing was changed"))?);
    }
    Ok(after.unwrap_or_else(|| before.to_owned()))
}

fn apply_one(text: &str, replacement: &Replacement) -> Result<String, String> {
    if replacement.old.is_empty() {
        return Err("`old` is empty: give the text to replace, or use `write` for a whole file".to_owned());
    }
    if replacement.old == replacement.new {
        return Err("`old` and `new` are the same".to_owned());
    }
    // Models write \n; a file with \r\n line ends keeps them.
    let crlf = text.contains("\r\n")
        && !replacement.old.contains('\r')
        && (replacement.old.contains('\n') || replacement.new.contains('\n'));
    let (old, new) = if crlf {
        (replacement.old.replace('\n', "\r\n"), replacement.new.replace("\r\n", "\n").replace('\n', "\r\n"))
    } else {
        (replacement.old.clone(), replacement.new.clone())
    };
    let mut matches = text.match_indices(&old).map(|(at, _)| at);
    let Some(first) = matches.next() else { return Err(not_found(text, &old)) };
    if replacement.all {
        let count = 1 + matches.count();
        let length = text.len() as u128 + count as u128 * new.len() as u128;
        return if length > MAX_FILE as u128 {
            Err("the file would become too large".to_owned())
        } else {
            Ok(text.replace(&old, &new))
        };
    }
    if let Some(second) = matches.next() {
        let lines = [first, second].map(|at| line_of(text, at));
        let count = 2 + matches.count();
        return Err(format!(
            "`old` occurs {count} times (lines {}, {}{}): add surrounding lines to make it unique, or set `all`",
            lines[0],
            lines[1],
            if count > 2 { ", …" } else { "" }
        ));
    }
    let mut after = String::with_capacity(text.len() - old.len() + new.len());
    after.push_str(&text[..first]);
    after.push_str(&new);
    after.push_str(&text[first + old.len()..]);
    Ok(after)
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Describes the closest match: usually only white space or a line in the middle differs.
fn not_found(text: &str, old: &str) -> String {
    let Some(first) = old.lines().map(str::trim).find(|line| !line.is_empty()) else {
        return "`old` is only white space and does not occur in the file".to_owned();
    };
    let near = text.lines().enumerate().find(|(_, line)| line.trim() == first);
    let near = near.or_else(|| text.lines().enumerate().find(|(_, line)| line.contains(first)));
    match near {
        Some((at, line)) => {
            let line: String = line.chars().take(200).collect();
            format!(
                "`old` does not occur exactly; its first line is near line {}: {line:?}. Check white space and the following lines",
                at + 1
            )
        }
        None => {
            "neither `old` nor its first line occurs in the file: read the file and copy the text exactly".to_owned()
        }
    }
}
