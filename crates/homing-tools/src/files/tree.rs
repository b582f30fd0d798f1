//! The `tree` tool: shows a folder and its subfolders.

use homing_core::{
    rule::Subjects,
    tool::{Replay, ToolContext, ToolOutput},
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    files::{
        path_arg::{or_workdir, path_subjects, printable},
        walk::{SearchRoot, open_folder},
        workspace_files::exists_below,
    },
    lenient_args,
    typed_tool::{StopSignal, TypedTool, blocking},
};

/// Maximum number of entries shown.
const MAX_SHOWN: usize = 1_000;
/// Default number of levels.
const DEFAULT_DEPTH: u64 = 3;

/// The `tree` tool.
pub(crate) struct TreeTool;

/// Arguments of `tree`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TreeArgs {
    /// The folder; the working folder if absent.
    #[serde(default, alias = "directory", alias = "dir", alias = "dir_path", alias = "folder")]
    path: Option<String>,
    /// Number of levels to show (default: 3).
    #[serde(
        default,
        alias = "max_depth",
        alias = "maxDepth",
        alias = "level",
        deserialize_with = "lenient_args::count"
    )]
    #[schemars(with = "Option<u64>")]
    depth: Option<u64>,
}

impl TypedTool for TreeTool {
    type Args = TreeArgs;
    const NAME: &'static str = "tree";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"path": "src", "depth": 2}"#;

    fn description(&self) -> String {
        "Shows a folder and its subfolders, indented, up to a depth (default: 3). Files ignored by .gitignore and `.git` \
         are left out. Useful as a first overview of a project."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &TreeArgs) -> Subjects {
        path_subjects(context, or_workdir(args.path.as_deref()))
    }

    async fn run(&self, context: &ToolContext, args: TreeArgs) -> ToolOutput {
        blocking(context, move |context, stop| {
            let root = open_folder(context, TreeTool::NAME, or_workdir(args.path.as_deref()))?;
            let depth = args.depth.unwrap_or(DEFAULT_DEPTH).clamp(1, 50) as usize;
            Ok(ToolOutput::text(show(&root, depth, stop)))
        })
        .await
    }
}

fn show(root: &SearchRoot<'_>, depth: usize, stop: &StopSignal) -> String {
    let mut text = String::new();
    let mut shown = 0;
    let walk = root.walk().max_depth(Some(depth)).sort_by_file_name(Ord::cmp).build();
    for entry in walk.flatten().filter(|entry| entry.depth() > 0) {
        let Some(rest) = root.rest(entry.path()) else { continue };
        if !root.allows(rest) || !exists_below(&root.folder, rest) {
            continue;
        }
        if shown == MAX_SHOWN || stop.is_set() {
            text.push_str("… more entries: name a subfolder, or a smaller depth\n");
            return text;
        }
        shown += 1;
        let end = if entry.file_type().is_some_and(|it| it.is_dir()) { "/" } else { "" };
        text.push_str(&format!("{}{}{end}\n", "  ".repeat(entry.depth() - 1), printable(entry.file_name())));
    }
    if shown == 0 {
        text.push_str("(the folder is empty)\n");
    }
    text
}
