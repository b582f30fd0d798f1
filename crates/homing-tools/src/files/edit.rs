//! `edit`: exact replacements in a file, all of them or none. It changes text; safe replacement is elsewhere.

use std::sync::Arc;

use homing_core::{
    rule::Subjects,
    tool::{Replay, ToolContext, ToolOutput},
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    files::{
        atomic_write::replace,
        change_diff::{diff, whole},
        file_versions::{Face, SeenVersion, Stamp, Writers, hash},
        path_arg::{RequestedPath, path_subjects},
        workspace_files::target,
    },
    lenient_args,
    typed_tool::{TypedTool, blocking},
};

/// The largest file that an edit may leave behind.
const MOST: usize = 64 * 1024 * 1024;

/// Edits files.
pub(crate) struct Edit {
    pub(crate) writers: Arc<Writers>,
}

/// Arguments of `edit`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The file, relative to the working folder or absolute.
    #[serde(alias = "file_path", alias = "filePath", alias = "absolute_path", alias = "file", alias = "filename")]
    path: String,
    /// Replacements, made in this order; if one cannot be made, none is.
    #[serde(default)]
    edits: Vec<Change>,
    // Other harnesses have one replacement per call, its parts beside the path.
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
#[derive(Debug, Deserialize, JsonSchema)]
struct Change {
    /// The text as it stands in the file, exactly, without line numbers; long enough to stand there only once.
    #[serde(alias = "old_string", alias = "oldString", alias = "old_str", alias = "old_text", alias = "search")]
    old: String,
    /// What takes its place.
    #[serde(alias = "new_string", alias = "newString", alias = "new_str", alias = "new_text", alias = "replace")]
    new: String,
    /// Replace it everywhere instead of exactly once.
    #[serde(default, alias = "replace_all", alias = "replaceAll", deserialize_with = "lenient_args::switch")]
    #[schemars(with = "Option<bool>")]
    all: bool,
}

impl TypedTool for Edit {
    type Args = Args;
    const NAME: &'static str = "edit";
    const REPLAY: Replay = Replay::Unsafe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Changes;
    const EXAMPLE: &'static str = r#"{"path": "src/main.rs", "edits": [{"old": "let a = 1;", "new": "let a = 2;"}]}"#;

    fn description(&self) -> String {
        "Replaces exact pieces of text in a file and returns the change as a diff. Read the file first and copy `old` \
         from it exactly, without the line numbers; give enough of the surrounding lines that it stands there only \
         once, or set `all`. Several edits are made in order, all or none."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &Args) -> Subjects {
        path_subjects(context, &args.path)
    }

    async fn run(&self, context: &ToolContext, args: Args) -> ToolOutput {
        let writers = self.writers.clone();
        blocking(context, move |context, _| edit(context, &writers, args)).await
    }
}

fn edit(context: &ToolContext, writers: &Writers, args: Args) -> Result<ToolOutput, String> {
    let wanted = RequestedPath::new(context, &args.path)?;
    let changes = changes(args)?;
    let mut target = target(context, Edit::NAME, &wanted)?;
    let Some(opened) = &mut target.existing else {
        return Err(format!("{} does not exist: use `write` to create it", wanted.shown));
    };
    let bytes = whole(opened, &wanted)?;
    let now = Stamp { face: Face::of(&opened.metadata), hash: Some(hash(&bytes)) };
    if context.state.get::<SeenVersion>().get(&opened.real).is_some_and(|seen| !seen.still_holds(&now)) {
        return Err(format!("{} was changed since this run read it: read it again, then edit", wanted.shown));
    }
    let Ok(before) = String::from_utf8(bytes) else {
        return Err(format!("{} is not UTF-8 text and cannot be edited", wanted.shown));
    };
    let after = apply(&before, &changes)?;
    replace(context, writers, &wanted, &target, after.as_bytes())?;
    Ok(ToolOutput::text(diff(&before, &after, &wanted)))
}

fn changes(args: Args) -> Result<Vec<Change>, String> {
    let mut changes = args.edits;
    match (args.old, args.new) {
        (Some(old), Some(new)) => changes.push(Change { old, new, all: args.all }),
        (None, None) => (),
        (Some(_), None) => return Err(format!("edit: `new` is missing. Example: {}", Edit::EXAMPLE)),
        (None, Some(_)) => return Err(format!("edit: `old` is missing. Example: {}", Edit::EXAMPLE)),
    }
    if changes.is_empty() {
        return Err(format!("edit: `edits` is missing or empty. Example: {}", Edit::EXAMPLE));
    }
    Ok(changes)
}

/// The text after all changes. The first one borrows, so that a large file is copied once per change, not more.
fn apply(before: &str, changes: &[Change]) -> Result<String, String> {
    let mut after: Option<String> = None;
    for (at, change) in changes.iter().enumerate() {
        let text = after.as_deref().unwrap_or(before);
        let of = if changes.len() == 1 { String::new() } else { format!("edit {} of {}: ", at + 1, changes.len()) };
        after = Some(apply_one(text, change).map_err(|why| format!("{of}{why}. Nothing was changed."))?);
    }
    Ok(after.unwrap_or_else(|| before.to_owned()))
}

fn apply_one(text: &str, change: &Change) -> Result<String, String> {
    if change.old.is_empty() {
        return Err("`old` is empty: give the text to replace, or use `write` for a whole file".to_owned());
    }
    if change.old == change.new {
        return Err("`old` and `new` are the same".to_owned());
    }
    // Models write \n; a file that has \r\n everywhere keeps it.
    let crlf =
        text.contains("\r\n") && !change.old.contains('\r') && (change.old.contains('\n') || change.new.contains('\n'));
    let (old, new) = match crlf {
        true => (change.old.replace('\n', "\r\n"), change.new.replace("\r\n", "\n").replace('\n', "\r\n")),
        false => (change.old.clone(), change.new.clone()),
    };
    let mut places = text.match_indices(&old).map(|(at, _)| at);
    let Some(first) = places.next() else { return Err(not_found(text, &old)) };
    if change.all {
        let count = 1 + places.count();
        let length = text.len() as u128 + count as u128 * new.len() as u128;
        return if length > MOST as u128 {
            Err("the file would grow too large".to_owned())
        } else {
            Ok(text.replace(&old, &new))
        };
    }
    if let Some(second) = places.next() {
        let lines = [first, second].map(|at| line_of(text, at));
        let count = 2 + places.count();
        return Err(format!(
            "`old` stands there {count} times (lines {}, {}{}): add surrounding lines to say which is meant, or set `all`",
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

/// Says where the text nearly stands: what differs is mostly white space, or a line in the middle.
fn not_found(text: &str, old: &str) -> String {
    let Some(wanted) = old.lines().map(str::trim).find(|it| !it.is_empty()) else {
        return "`old` is only white space and does not stand in the file".to_owned();
    };
    let near = text.lines().enumerate().find(|(_, line)| line.trim() == wanted);
    let near = near.or_else(|| text.lines().enumerate().find(|(_, line)| line.contains(wanted)));
    match near {
        Some((at, line)) => {
            let line: String = line.chars().take(200).collect();
            format!(
                "`old` does not stand in the file exactly; its first line is near line {}: {line:?}. Check white space and the lines after it",
                at + 1
            )
        }
        None => "`old` does not stand in the file, nor does its first line: read the file and copy the text exactly"
            .to_owned(),
    }
}
