//! `write`: a whole file at once. It knows contents as text; how a file is replaced safely is not its business.

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
        workspace_files::{Opened, target},
    },
    typed_tool::{TypedTool, blocking},
};

/// The largest file that is written in one call.
const MOST: usize = 32 * 1024 * 1024;

/// Writes files.
pub(crate) struct Write {
    pub(crate) writers: Arc<Writers>,
}

/// Arguments of `write`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The file, relative to the working folder or absolute. Missing folders are made.
    #[serde(alias = "file_path", alias = "filePath", alias = "absolute_path", alias = "file", alias = "filename")]
    path: String,
    /// All of the file's new contents.
    #[serde(alias = "contents", alias = "text", alias = "file_text", alias = "data")]
    content: String,
}

impl TypedTool for Write {
    type Args = Args;
    const NAME: &'static str = "write";
    const REPLAY: Replay = Replay::Unsafe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Changes;
    const EXAMPLE: &'static str = r#"{"path": "notes/plan.md", "content": "First…"}"#;

    fn description(&self) -> String {
        "Writes a whole file, replacing what was there; missing folders are made. To change a part of a file, use \
         `edit`. Read an existing file before you replace it: a file that changed since, or that another agent wrote, \
         is not overwritten."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &Args) -> Subjects {
        path_subjects(context, &args.path)
    }

    async fn run(&self, context: &ToolContext, args: Args) -> ToolOutput {
        let writers = self.writers.clone();
        blocking(context, move |context, _| write(context, &writers, &args)).await
    }
}

fn write(context: &ToolContext, writers: &Writers, args: &Args) -> Result<ToolOutput, String> {
    if args.content.len() > MOST {
        return Err(format!("`content` has {} bytes; at most {MOST} are written in one call", args.content.len()));
    }
    let wanted = RequestedPath::new(context, &args.path)?;
    let mut target = target(context, Write::NAME, &wanted)?;
    let before = match &mut target.existing {
        None => None,
        Some(opened) => Some(unchanged(context, writers, opened, &wanted)?),
    };
    if before.as_deref() == Some(args.content.as_bytes()) {
        return Ok(ToolOutput::text(format!("{} already has these contents; nothing was written", wanted.shown)));
    }
    replace(context, writers, &wanted, &target, args.content.as_bytes())?;
    let lines = args.content.lines().count();
    Ok(match before.as_deref().map(std::str::from_utf8) {
        Some(Ok(before)) => ToolOutput::text(format!(
            "{} replaced ({lines} lines)\n{}",
            wanted.shown,
            diff(before, &args.content, &wanted)
        )),
        Some(Err(_)) => ToolOutput::text(format!("{} replaced ({lines} lines)", wanted.shown)),
        None => ToolOutput::text(format!("{} created ({lines} lines)", wanted.shown)),
    })
}

/// The contents to be replaced, if this run may: they are as it saw them, or no other run put them there.
fn unchanged(
    context: &ToolContext,
    writers: &Writers,
    opened: &mut Opened,
    wanted: &RequestedPath,
) -> Result<Vec<u8>, String> {
    let content = whole(opened, wanted)?;
    let now = Stamp { face: Face::of(&opened.metadata), hash: Some(hash(&content)) };
    match context.state.get::<SeenVersion>().get(&opened.real) {
        Some(seen) if seen.still_holds(&now) => Ok(content),
        Some(_) => Err(format!("{} was changed since this run read it: read it again, then decide", wanted.shown)),
        None => match writers.lock().get(&opened.real) {
            Some(writer) if writer.run != context.key.run => {
                Err(format!("{} was written by {}: read it before you replace it", wanted.shown, writer.who))
            }
            Some(_) | None => Ok(content),
        },
    }
}
