//! The `restore` tool: brings a file back to contents that were kept. Only `undo` uses it; models are never offered it. The rules
//! on `write` and `edit`, protected paths and the folders of a run hold for it as for those tools.

use std::sync::Arc;

use homing_core::{
    rule::Subjects,
    tool::{Effect, Replay, Tool, ToolContext, ToolOutput},
    tool_names,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    files::{
        atomic_write::{FileWrites, remove, replace},
        change_diff::read_all,
        contents::{ContentStore, sha256},
        path_arg::{RequestedPath, path_subjects},
        workspace_files::{rules_allow, target},
    },
    typed_tool::{TypedTool, blocking, typed},
};

/// The `restore` tool.
struct RestoreTool {
    writes: Arc<FileWrites>,
}

/// Arguments of `restore`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestoreArgs {
    /// The file, relative to the working folder or absolute.
    pub path: String,
    /// The hash of the contents that it must have now; if absent, it must not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<String>,
    /// The hash of the contents to restore; if absent, the file is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The permission bits of a file that does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

/// Creates the tool with the contents that were kept.
pub fn restore_tool(contents: Arc<ContentStore>) -> Arc<dyn Tool> {
    typed(RestoreTool { writes: Arc::new(FileWrites { contents: Some(contents), ..FileWrites::default() }) })
}

impl TypedTool for RestoreTool {
    type Args = RestoreArgs;
    const NAME: &'static str = tool_names::RESTORE;
    const REPLAY: Replay = Replay::Unsafe;
    const EFFECT: Effect = Effect::Changes;
    const EXAMPLE: &'static str = r#"{"path": "src/main.rs", "expect": "HASH", "content": "HASH"}"#;

    fn description(&self) -> String {
        "Brings a file back to contents that were kept.".to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &RestoreArgs) -> Subjects {
        path_subjects(context, &args.path)
    }

    async fn run(&self, context: &ToolContext, args: RestoreArgs) -> ToolOutput {
        let writes = self.writes.clone();
        blocking(context, move |context, _| restore(context, &writes, &args)).await
    }
}

fn restore(context: &ToolContext, writes: &FileWrites, args: &RestoreArgs) -> Result<ToolOutput, String> {
    let requested = RequestedPath::new(context, &args.path)?;
    let changed = || format!("{} has changed in the meantime: it was left as it is", requested.shown);
    // The folders above a missing file would be created.
    if args.expect.is_some() && requested.absolute.symlink_metadata().is_err() {
        return Err(changed());
    }
    let mut target = target(context, tool_names::WRITE, &requested)?;
    rules_allow(context, tool_names::EDIT, Effect::Changes, &target.real)?;
    let now = target.existing.as_mut().map(|opened| read_all(opened, &requested)).transpose()?;
    if now.as_deref().map(sha256) != args.expect {
        return Err(changed());
    }
    let Some(hash) = &args.content else {
        let data = remove(writes, &requested, &target, now.as_deref())?;
        return Ok(ToolOutput::text(format!("{} deleted", requested.shown)).data(data));
    };
    let content = writes.contents.as_ref().and_then(|contents| contents.get(hash));
    let content = content.ok_or_else(|| format!("the earlier contents of {} are no longer kept", requested.shown))?;
    let data = replace(context, writes, &requested, &target, (now.as_deref(), &content), args.mode)?;
    Ok(ToolOutput::text(format!("{} restored", requested.shown)).data(data))
}
