//! The `ls` tool: lists a folder.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use homing_core::{
    rule::Subjects,
    tool::{Replay, ToolContext, ToolOutput},
};
use rustix::fs::{AtFlags, Dir, FileType, readlinkat, statat};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    files::{
        path_arg::{or_workdir, path_subjects, printable},
        walk::{SearchRoot, open_folder},
        workspace_files::OpenFolder,
    },
    typed_tool::{TypedTool, blocking},
};

/// Maximum number of entries shown.
const MAX_SHOWN: usize = 1_000;
/// Maximum number of names read and sorted.
const MAX_READ: usize = 100_000;

/// The `ls` tool.
pub(crate) struct LsTool;

/// Arguments of `ls`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct LsArgs {
    /// The folder; the working folder if absent.
    #[serde(
        default,
        alias = "directory",
        alias = "dir",
        alias = "dir_path",
        alias = "target_directory",
        alias = "folder"
    )]
    path: Option<String>,
}

impl TypedTool for LsTool {
    type Args = LsArgs;
    const NAME: &'static str = "ls";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"path": "src"}"#;

    fn description(&self) -> String {
        "Lists a folder: folders end in `/`, links show their target, files show their size in bytes. Includes hidden \
         and ignored files."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &LsArgs) -> Subjects {
        path_subjects(context, or_workdir(args.path.as_deref()))
    }

    async fn run(&self, context: &ToolContext, args: LsArgs) -> ToolOutput {
        blocking(context, move |context, _| {
            let root = open_folder(context, LsTool::NAME, or_workdir(args.path.as_deref()))?;
            list(&root).map_err(|error| format!("cannot list the folder: {error}"))
        })
        .await
    }
}

fn list(root: &SearchRoot<'_>) -> std::io::Result<ToolOutput> {
    let mut names: Vec<OsString> = Vec::new();
    let mut beyond = 0_usize;
    for entry in Dir::read_from(&root.folder.fd)? {
        let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        if name == "." || name == ".." || !root.allows(name.as_ref()) {
            continue;
        }
        if names.len() < MAX_READ {
            names.push(name);
        } else {
            beyond += 1;
        }
    }
    names.sort();
    let mut text: String = names.iter().take(MAX_SHOWN).map(|name| line(&root.folder, name)).collect();
    let more = names.len().saturating_sub(MAX_SHOWN) + beyond;
    match (names.is_empty(), more) {
        (true, _) => text.push_str("(the folder is empty)\n"),
        (false, 0) => (),
        (false, more) => text.push_str(&format!("… {more} more: `glob` finds files by name\n")),
    }
    Ok(ToolOutput::text(text))
}

fn line(folder: &OpenFolder, name: &OsStr) -> String {
    let shown = printable(name);
    let Ok(stat) = statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW) else { return format!("{shown} (gone)\n") };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => format!("{shown}/\n"),
        FileType::RegularFile => format!("{shown} ({} bytes)\n", stat.st_size),
        FileType::Symlink => match readlinkat(&folder.fd, name, Vec::new()) {
            Ok(to) => format!("{shown} -> {}\n", printable(OsStr::from_bytes(to.as_bytes()))),
            Err(_) => format!("{shown} (link)\n"),
        },
        _ => format!("{shown} (pipe, socket or device)\n"),
    }
}
