//! The notes that agents keep between runs: their part of the prompt, and the authority to change them.

use std::{path::PathBuf, sync::Arc};

use homing_core::{
    authority::{Authority, Grant},
    definition::AgentDefinition,
    memory::{self, AgentMemories},
};

use crate::runtime::{RuntimeParts, SpawnError};

/// Lets a run reach its agent's memory, which its parent may not: reading, and writing if it may write at all.
pub(crate) fn granted(parts: &RuntimeParts, agent: &AgentDefinition, authority: Authority) -> Authority {
    let Some((_, folder)) = found(parts, agent) else { return authority };
    let mut own = Grant::clone(&authority.own);
    if !own.write.is_empty() {
        own.write.push(folder.clone());
    }
    own.read.push(folder);
    Authority { own: Arc::new(own), ..authority }
}

/// The section of the prompt with the agent's notes.
pub(crate) fn section(parts: &RuntimeParts, agent: &AgentDefinition) -> Option<String> {
    let (memories, folder) = found(parts, agent)?;
    Some(memory::section(&folder, &memories.notes(&folder)))
}

/// Creates the folder of an agent's memory.
pub(crate) fn prepare(parts: &RuntimeParts, agent: &AgentDefinition) -> Result<(), SpawnError> {
    let Some((memories, folder)) = found(parts, agent) else { return Ok(()) };
    memories.prepare(&folder).map_err(SpawnError::Workspace)
}

fn found<'a>(parts: &'a RuntimeParts, agent: &AgentDefinition) -> Option<(&'a dyn AgentMemories, PathBuf)> {
    let memories = parts.workspaces.as_ref()?.memories()?;
    Some((memories, memories.folder(agent)?))
}
