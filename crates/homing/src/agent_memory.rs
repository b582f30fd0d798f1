//! The folders in which agents keep notes between runs, as Claude Code places them: one per agent, for the user, for the project, or
//! for the user in the project. The runtime puts the notes into the prompt and lets the agent write to its folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use homing_core::{
    authority::Allow,
    definition::{AgentDefinition, MemoryScope},
    memory::{AgentMemories, NOTES_FILE},
    rule::Rule,
    tool_names,
};
use homing_load::Places;

use crate::project_context::{open_inside, read_head};

/// Maximum number of lines of the notes in a prompt.
const MAX_LINES: usize = 200;
/// Maximum size of the notes in a prompt, in bytes.
const MAX_BYTES: usize = 25 * 1024;

/// The memory folders of a project and its user.
pub(crate) struct MemoryFolders {
    home: Option<PathBuf>,
    project: PathBuf,
}

impl MemoryFolders {
    pub(crate) fn new(places: &Places) -> Self {
        let project = places.project_folders().into_iter().next().unwrap_or_else(|| places.cwd.clone());
        Self { home: places.home.clone(), project }
    }

    /// Returns the folder below which the scope's memories are, and the path from there.
    fn place(&self, scope: MemoryScope) -> Option<(&Path, &'static str)> {
        match scope {
            MemoryScope::User => Some((self.home.as_deref()?, ".claude/agent-memory")),
            MemoryScope::Project => Some((&self.project, ".claude/agent-memory")),
            MemoryScope::Local => Some((&self.project, ".claude/agent-memory-local")),
        }
    }

    /// Lets an agent with a list of tools read and write its memory. An agent without a list may use all tools anyway.
    pub(crate) fn add_rules(&self, definition: &mut AgentDefinition) {
        let Some(folder) = self.folder(definition) else { return };
        let Allow::Only(rules) = &mut definition.tools.allowed else { return };
        // Rules see paths inside the working folder relative to it, and all others as they are.
        let relative = folder.strip_prefix(&self.project).ok().map(|path| path.display().to_string());
        for pattern in [Some(format!("/{}", folder.display())), relative].into_iter().flatten() {
            for tool in [tool_names::READ, tool_names::WRITE, tool_names::EDIT] {
                rules.push(Rule::calls(tool, pattern.clone()));
            }
        }
    }
}

impl AgentMemories for MemoryFolders {
    fn folder(&self, agent: &AgentDefinition) -> Option<PathBuf> {
        let (base, below) = self.place(agent.execution.memory?)?;
        // The names of plugins' agents contain a colon.
        let name = agent.execution.memory_name.as_ref().unwrap_or(&agent.name);
        Some(base.join(below).join(name.replace(':', "-")))
    }

    fn notes(&self, folder: &Path) -> String {
        if has_links(folder) {
            return String::new();
        }
        let file = open_inside(&folder.join(NOTES_FILE), folder);
        let text = file.and_then(|file| read_head(file, MAX_BYTES)).unwrap_or_default();
        text.lines().take(MAX_LINES).collect::<Vec<_>>().join("\n")
    }

    fn prepare(&self, folder: &Path) -> Result<(), String> {
        let message = |error: std::io::Error| format!("cannot use the memory folder {}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(message)?;
        if has_links(folder) {
            return Err(format!("cannot use the memory folder {}: it is a link", folder.display()));
        }
        Ok(())
    }
}

/// Returns true if one of the last three names of a path, which a repository may contain, is a link.
fn has_links(folder: &Path) -> bool {
    folder.ancestors().take(3).any(|path| path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(scope: MemoryScope) -> AgentDefinition {
        let mut agent = AgentDefinition::new("kit:keeper", "d", "p");
        agent.execution.memory = Some(scope);
        agent
    }

    #[test]
    fn each_scope_has_its_folder() {
        let mut places = Places::new("/repo");
        places.home = Some("/home/me".into());
        let folders = MemoryFolders::new(&places);
        let folder = |scope| folders.folder(&agent(scope)).unwrap();
        assert_eq!(folder(MemoryScope::User), Path::new("/home/me/.claude/agent-memory/kit-keeper"));
        assert_eq!(folder(MemoryScope::Project), Path::new("/repo/.claude/agent-memory/kit-keeper"));
        assert_eq!(folder(MemoryScope::Local), Path::new("/repo/.claude/agent-memory-local/kit-keeper"));
        assert_eq!(folders.folder(&AgentDefinition::new("a", "d", "p")), None);
    }

    #[test]
    fn notes_are_bounded_and_stay_in_their_folder() {
        let root = tempfile::tempdir().unwrap();
        let folders = MemoryFolders::new(&Places::new(root.path()));
        let folder = folders.folder(&agent(MemoryScope::Project)).unwrap();
        assert_eq!(folders.notes(&folder), "");
        folders.prepare(&folder).unwrap();
        fs::write(folder.join(NOTES_FILE), "line\n".repeat(1_000)).unwrap();
        assert_eq!(folders.notes(&folder).lines().count(), 200);
        fs::write(folder.join(NOTES_FILE), "x".repeat(100_000)).unwrap();
        assert_eq!(folders.notes(&folder).len(), MAX_BYTES);
        fs::write(root.path().join("secret"), "SECRET").unwrap();
        fs::remove_file(folder.join(NOTES_FILE)).unwrap();
        std::os::unix::fs::symlink("../../../secret", folder.join(NOTES_FILE)).unwrap();
        assert_eq!(folders.notes(&folder), "");
        fs::remove_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(root.path(), &folder).unwrap();
        assert!(folders.prepare(&folder).unwrap_err().contains("is a link"));
    }
}
