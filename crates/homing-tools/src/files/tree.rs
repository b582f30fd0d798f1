//! `tree`: folders within folders, to a depth.

use homing_core::{
    rule::Subjects,
    tool::{Replay, ToolContext, ToolOutput},
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    files::{
        path_arg::{inert, or_workdir, path_subjects},
        walk::{Ground, ground},
        workspace_files::exists_below,
    },
    lenient_args,
    typed_tool::{StopSignal, TypedTool, blocking},
};

/// Entries in one answer.
const MOST: usize = 1_000;
/// Levels where the call names none.
const DEFAULT_DEPTH: u64 = 3;

/// Shows folders within folders.
pub(crate) struct Tree;

/// Arguments of `tree`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The folder; the working folder if absent.
    #[serde(default, alias = "directory", alias = "dir", alias = "dir_path", alias = "folder")]
    path: Option<String>,
    /// How many levels to show; 3 if absent.
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

impl TypedTool for Tree {
    type Args = Args;
    const NAME: &'static str = "tree";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"path": "src", "depth": 2}"#;

    fn description(&self) -> String {
        "Shows a folder and what is below it, indented, to a depth (3 if absent). Files named by .gitignore and `.git` \
         are left out. A good first look at a project."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &Args) -> Subjects {
        path_subjects(context, or_workdir(args.path.as_deref()))
    }

    async fn run(&self, context: &ToolContext, args: Args) -> ToolOutput {
        blocking(context, move |context, stop| {
            let ground = ground(context, Tree::NAME, or_workdir(args.path.as_deref()))?;
            let depth = args.depth.unwrap_or(DEFAULT_DEPTH).clamp(1, 50) as usize;
            Ok(ToolOutput::text(show(&ground, depth, stop)))
        })
        .await
    }
}

fn show(ground: &Ground<'_>, depth: usize, stop: &StopSignal) -> String {
    let mut text = String::new();
    let mut shown = 0;
    let walk = ground.walk().max_depth(Some(depth)).sort_by_file_name(Ord::cmp).build();
    for entry in walk.flatten().filter(|it| it.depth() > 0) {
        let Some(rest) = ground.rest(entry.path()) else { continue };
        if !ground.allows(rest) || !exists_below(&ground.folder, rest) {
            continue;
        }
        if shown == MOST || stop.is_set() {
            text.push_str("… more: name a folder further down, or a smaller depth\n");
            return text;
        }
        shown += 1;
        let end = if entry.file_type().is_some_and(|it| it.is_dir()) { "/" } else { "" };
        text.push_str(&format!("{}{}{end}\n", "  ".repeat(entry.depth() - 1), inert(entry.file_name())));
    }
    if shown == 0 {
        text.push_str("(the folder is empty)\n");
    }
    text
}
