//! The part of a `CodingSetup` that runs commands: `bash`, hooks, MCP servers and worktrees.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use homing_core::{diagnostic::Diagnostic, tool::Tool};
use homing_sandbox::CommandEnv;
use homing_tools::{
    hooks::{CommandHooks, HookConfig},
    shell::{bash::Bash, command_changes::CommandChanges, commands::Commands, sandboxed_git::SandboxedGit},
    toolset::files_tools,
    worktree::GitWorktrees,
};
use serde_json::Value;

#[cfg(not(feature = "mcp"))]
use crate::missing_features::{self, MissingFeature};
use crate::{CodingSetup, HomingBuilder, agent_memory::MemoryFolders, coding_preset::RunFolders, environment};

impl CodingSetup {
    /// Adds all tools. `hooks` and `servers` are those of trusted files.
    pub(crate) fn add_tools(
        mut self,
        mut builder: HomingBuilder,
        hooks: Vec<Value>,
        servers: &BTreeMap<String, Value>,
    ) -> HomingBuilder {
        let Some(helper) = self.helper.clone().filter(|_| !self.without_commands) else {
            return self.add_file_tools(builder);
        };
        self.tools.skills = builder.tools.extensions.skills.clone();
        let memories = MemoryFolders::new(&self.places);
        let home = self.places.home.clone().unwrap_or_else(|| self.private.join("home"));
        let command_env = CommandEnv { home, env: std::mem::take(&mut self.env) };
        // A server of the user takes precedence over one of the project with the same name.
        let mut common = servers.clone();
        common.append(&mut self.servers);
        #[cfg(feature = "mcp")]
        let secrets = crate::servers::secrets(&common, &builder.registry, &command_env);
        let commands =
            Arc::new(Commands::new(helper, command_env, std::mem::take(&mut self.sandbox), self.private.clone()));
        builder.tools.commands = Some(commands.clone());
        self.tools.git = Some(Arc::new(SandboxedGit { commands: commands.clone() }));
        #[cfg(feature = "mcp")]
        {
            builder.config.secrets = builder.config.secrets.and(secrets);
            builder = crate::servers::add(&self, builder, &common, &commands);
        }
        #[cfg(not(feature = "mcp"))]
        if !common.is_empty() {
            let missing = MissingFeature::new("there are MCP servers", "mcp");
            builder.diagnostics.push(missing_features::warning(&missing));
        }
        let hooks = project_hooks(&mut builder, &hooks);
        let agent_hooks = builder
            .registry
            .definitions()
            .map(|agent| agent.integrations.hooks.clone())
            .filter(|hooks| !hooks.is_null());
        let hooks = CommandHooks::new(commands.clone(), hooks).with_agents(agent_hooks.collect());
        let contents = self.tools.contents.clone();
        let changes = contents.map(|contents| Arc::new(CommandChanges::new(contents, self.worktrees.clone())));
        let bash: Arc<dyn Tool> = Arc::new(Bash::new(commands.clone()).with_changes(changes));
        let sandbox = homing_core::authority::Sandbox::WorkspaceWrite;
        let extensions = &mut builder.tools.extensions;
        // Calls wait for their records if a hook may follow.
        if !hooks.is_empty() {
            extensions.hooks = Some(Arc::new(hooks));
        }
        let worktrees = GitWorktrees { commands, folder: self.worktrees, sandbox };
        extensions.workspaces = Some(Arc::new(RunFolders { worktrees: Some(Box::new(worktrees)), memories }));
        builder.tools(files_tools(self.tools)).tool(bash)
    }
}

/// Reads the hooks of settings files.
fn project_hooks(builder: &mut HomingBuilder, hooks: &[Value]) -> HookConfig {
    let mut all = HookConfig::default();
    for value in hooks {
        let (config, warnings) = HookConfig::parse(value);
        builder.diagnostics.extend(warnings.into_iter().map(Diagnostic::warning));
        all = all.and(config);
    }
    all
}

/// Set once this program has shown that it can be started as its own helper.
static IS_HELPER: OnceLock<()> = OnceLock::new();

/// Makes this program the helper that supervises commands. Call it first in `main`: commands are started below a second
/// process of this program, in which this function does not return.
///
/// # Examples
///
/// ```no_run
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     homing::run_helper_if_asked();
///     let homing = homing::Homing::coding(".").build()?;
///     // …
///     Ok(())
/// }
/// ```
pub fn run_helper_if_asked() {
    homing_sandbox::process::run_helper_if_asked(std::env::args_os());
    let _ = IS_HELPER.set(());
}

/// Returns this program if it can be its own helper, otherwise the program `homing-helper` beside it.
pub(crate) fn own_helper() -> Option<PathBuf> {
    let program = environment::executable().ok()?;
    if IS_HELPER.get().is_some() {
        return Some(program);
    }
    let beside = program.parent()?.join("homing-helper");
    beside.is_file().then_some(beside)
}
