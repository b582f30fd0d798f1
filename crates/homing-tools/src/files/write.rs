//! The `write` tool: creates or replaces a whole file.

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
        file_versions::{FileStat, FileVersion, LastWriters, SeenVersions, hash},
        path_arg::{RequestedPath, path_subjects},
        workspace_files::{OpenFile, target},
    },
    typed_tool::{TypedTool, blocking},
};

/// Maximum size of a file written in one call.
const MAX_CONTENT: usize = 32 * 1024 * 1024;

/// The `write` tool.
pub(crate) struct WriteTool {
    pub(crate) writes: Arc<FileWrites>,
}

/// Arguments of `write`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WriteArgs {
    /// The file, relative to the working folder or absolute. Missing folders are created.
    #[serde(alias = "file_path", alias = "filePath", alias = "absolute_path", alias = "file", alias = "filename")]
    path: String,
    /// The complete new contents.
    #[serde(alias = "contents", alias = "text", alias = "file_text", alias = "data")]
    content: String,
}

impl TypedTool for WriteTool {
    type Args = WriteArgs;
    const NAME: &'static str = "write";
    const REPLAY: Replay = Replay::Unsafe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Changes;
    const EXAMPLE: &'static str = r#"{"path": "notes/plan.md", "content": "First…"}"#;

    fn description(&self) -> String {
        "Writes a whole file, replacing existing contents; missing folders are created. To change a part of a file, use \
         `edit`. Read an existing file before you replace it: a file that has changed since you read it, or that \
         another agent wrote, is not overwritten."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &WriteArgs) -> Subjects {
        path_subjects(context, &args.path)
    }

    fn preview(&self, context: &ToolContext, args: &WriteArgs) -> Option<String> {
        let requested = RequestedPath::new(context, &args.path).ok()?;
        let before = text_before(context, &requested).unwrap_or_default();
        Some(diff(&before, &args.content, &requested))
    }

    async fn run(&self, context: &ToolContext, args: WriteArgs) -> ToolOutput {
        let writes = self.writes.clone();
        blocking(context, move |context, _| write(context, &writes, &args)).await
    }
}

fn write(context: &ToolContext, writes: &FileWrites, args: &WriteArgs) -> Result<ToolOutput, String> {
    if args.content.len() > MAX_CONTENT {
        return Err(format!(
            "`content` has {} bytes; at most {MAX_CONTENT} can be written in one call",
            args.content.len()
        ));
    }
    let requested = RequestedPath::new(context, &args.path)?;
    let mut target = target(context, WriteTool::NAME, &requested)?;
    let before = match &mut target.existing {
        None => None,
        Some(opened) => Some(unchanged(context, &writes.writers, opened, &requested)?),
    };
    if before.as_deref() == Some(args.content.as_bytes()) {
        return Ok(ToolOutput::text(format!("{} already has these contents: nothing was written", requested.shown)));
    }
    let contents = (before.as_deref(), args.content.as_bytes());
    let data = replace(context, writes, &requested, &target, contents, None)?;
    let lines = args.content.lines().count();
    let output = match before.as_deref().map(std::str::from_utf8) {
        Some(Ok(before)) => ToolOutput::text(format!(
            "{} replaced ({lines} lines)\n{}",
            requested.shown,
            diff(before, &args.content, &requested)
        )),
        Some(Err(_)) => ToolOutput::text(format!("{} replaced ({lines} lines)", requested.shown)),
        None => ToolOutput::text(format!("{} created ({lines} lines)", requested.shown)),
    };
    Ok(output.data(data))
}

/// Returns the contents to replace if this run has seen them, or if no other run wrote them.
fn unchanged(
    context: &ToolContext,
    writers: &LastWriters,
    opened: &mut OpenFile,
    requested: &RequestedPath,
) -> Result<Vec<u8>, String> {
    let content = read_all(opened, requested)?;
    let now = FileVersion { stat: FileStat::of(&opened.metadata), hash: Some(hash(&content)) };
    match context.state.get::<SeenVersions>().get(&opened.real) {
        Some(seen) if seen.is_same(&now) => Ok(content),
        Some(_) => {
            Err(format!("{} has changed since this run read it: read it again before you write", requested.shown))
        }
        None => match writers.lock().get(&opened.real) {
            Some(writer) if writer.run != context.key.run => {
                Err(format!("{} was written by {}: read it before you replace it", requested.shown, writer.description))
            }
            Some(_) | None => Ok(content),
        },
    }
}
