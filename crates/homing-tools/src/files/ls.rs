//! `ls`: what is in a folder.

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
        path_arg::{inert, or_workdir, path_subjects},
        walk::{Ground, ground},
        workspace_files::OpenFolder,
    },
    typed_tool::{TypedTool, blocking},
};

/// Entries in one answer.
const MOST_SHOWN: usize = 1_000;
/// Names that are read and sorted.
const MOST_READ: usize = 100_000;

/// Lists folders.
pub(crate) struct Ls;

/// Arguments of `ls`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Args {
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

impl TypedTool for Ls {
    type Args = Args;
    const NAME: &'static str = "ls";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"path": "src"}"#;

    fn description(&self) -> String {
        "Lists a folder: folders end in `/`, links show where they point, files show their size in bytes. Hidden and \
         ignored files are listed, too."
            .to_owned()
    }

    fn subjects(&self, context: &ToolContext, args: &Args) -> Subjects {
        path_subjects(context, or_workdir(args.path.as_deref()))
    }

    async fn run(&self, context: &ToolContext, args: Args) -> ToolOutput {
        blocking(context, move |context, _| {
            let ground = ground(context, Ls::NAME, or_workdir(args.path.as_deref()))?;
            list(&ground).map_err(|error| format!("the folder cannot be listed: {error}"))
        })
        .await
    }
}

fn list(ground: &Ground<'_>) -> std::io::Result<ToolOutput> {
    let mut names: Vec<OsString> = Vec::new();
    let mut beyond = 0_usize;
    for entry in Dir::read_from(&ground.folder.fd)? {
        let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        match () {
            () if name == "." || name == ".." || !ground.allows(name.as_ref()) => (),
            () if names.len() < MOST_READ => names.push(name),
            () => beyond += 1,
        }
    }
    names.sort();
    let mut text: String = names.iter().take(MOST_SHOWN).map(|name| line(&ground.folder, name)).collect();
    let more = names.len().saturating_sub(MOST_SHOWN) + beyond;
    match (names.is_empty(), more) {
        (true, _) => text.push_str("(the folder is empty)\n"),
        (false, 0) => (),
        (false, more) => text.push_str(&format!("… {more} more: `glob` finds files by name\n")),
    }
    Ok(ToolOutput::text(text))
}

fn line(folder: &OpenFolder, name: &OsStr) -> String {
    let shown = inert(name);
    let Ok(stat) = statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW) else { return format!("{shown} (gone)\n") };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => format!("{shown}/\n"),
        FileType::RegularFile => format!("{shown} ({} bytes)\n", stat.st_size),
        FileType::Symlink => match readlinkat(&folder.fd, name, Vec::new()) {
            Ok(to) => format!("{shown} -> {}\n", inert(OsStr::from_bytes(to.as_bytes()))),
            Err(_) => format!("{shown} (link)\n"),
        },
        _ => format!("{shown} (pipe, socket or device)\n"),
    }
}
