//! The standard set: agents and skills of the project and the user, the file tools, commands in a sandbox, the rules of
//! settings files. What a project's files ask for beyond narrowing is left out until they are trusted.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{authority::Layer, diagnostic::Diagnostic, limits::Limits, rule::Rule, tool::Tool};
use homing_load::{ParseOptions, Places};
use homing_sandbox::{CommandEnv, SandboxOptions, is_users_alone};
use homing_tools::{
    hooks::{CommandHooks, HookConfig},
    shell::{bash::Bash, commands::Commands, sandboxed_git::SandboxedGit},
    toolset::{ToolsConfig, files_tools},
    trust::{
        AuthorityFiles, TrustStore,
        settings::{self, Trust},
    },
    worktree::GitWorktrees,
};
use serde_json::Value;
use uuid::Uuid;

use crate::{Folders, HomingBuilder, servers::serve};

/// What the standard set is made of.
pub struct CodingSetup {
    /// Where agents and skills are looked for.
    pub places: Places,
    /// How their files are read.
    pub options: ParseOptions,
    /// What the user trusts; `None` trusts nothing.
    pub trust: Option<TrustStore>,
    /// The program that watches over commands: one whose `main` calls [`run_helper_if_asked`]. Without it no commands run.
    pub helper: Option<PathBuf>,
    /// The environment that commands get a clean part of.
    pub env: BTreeMap<String, String>,
    /// What commands may touch besides.
    pub sandbox: SandboxOptions,
    /// Private folders of runs lie here. It must be writable by this user alone; otherwise commands are refused.
    pub private: PathBuf,
    /// Worktrees of runs lie here, also those that are kept because something was done in them. Like `private`.
    pub worktrees: PathBuf,
    /// The tools' own options.
    pub tools: ToolsConfig,
    /// Whether the built-in agents are there.
    pub built_in: bool,
    /// The most that files without trust may ask for; where nothing is said, the built-in defaults are.
    pub limits: Limits,
    /// What agents may hand on beyond their own tools, by name. The user's word, so it needs no trust.
    pub delegates: BTreeMap<String, Vec<Rule>>,
    /// MCP servers of the user's, by name, as `mcpServers` writes them. Their tools are there once they are approved.
    pub servers: BTreeMap<String, Value>,
    /// Where it is written which tools of servers are approved.
    pub pins: Option<PathBuf>,
}

impl CodingSetup {
    /// The project around `folder`, the user's folders, and the environment as it is.
    pub fn from_env(folder: &Path) -> Self {
        let folders = Folders::from_env();
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let mut places = Places::new(folder);
        places.home = folders.home.clone();
        places.config = folders.config.as_ref().and_then(|it| it.parent()).map(Path::to_owned);
        places.plugins = folders.plugins();
        places.managed = ["/etc/homing", "/etc/claude-code"].map(PathBuf::from).to_vec();
        let env =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let private = private_folder(&folders);
        Self {
            places,
            options: ParseOptions::default(),
            trust: folders.trust().and_then(|path| TrustStore::load(path).ok()),
            helper: None,
            env: env.collect(),
            sandbox: SandboxOptions::default(),
            worktrees: worktrees_folder(&folders).unwrap_or_else(|| private.join("worktrees")),
            private,
            tools: ToolsConfig::default(),
            built_in: true,
            limits: Limits::default(),
            delegates: BTreeMap::new(),
            servers: BTreeMap::new(),
            pins: folders.pins(),
        }
    }

    /// Adds all of it to a builder.
    pub(crate) fn add_to(self, builder: HomingBuilder) -> HomingBuilder {
        let project = self.look();
        let (mut builder, hooks) = add_settings(builder, &project.files, project.trust);
        builder.diagnostics.extend(project.diagnostics);
        builder = builder.agents(project.agents).skills(Arc::new(project.skills));
        self.add_tools(builder, hooks, &project.servers)
    }

    fn add_tools(
        mut self,
        mut builder: HomingBuilder,
        hooks: HookConfig,
        servers: &BTreeMap<String, Value>,
    ) -> HomingBuilder {
        self.tools.skills = builder.library();
        let Some(helper) = self.helper else {
            let what = "commands, hooks and MCP servers are not run: this program is not set up as their helper, so \
                        `bash` is missing";
            builder.diagnostics.push(Diagnostic::warning(what));
            return builder.tools(files_tools(self.tools));
        };
        let home = self.places.home.clone().unwrap_or_else(|| self.private.join("home"));
        let surroundings = CommandEnv { home, env: self.env };
        let commands = Arc::new(Commands::new(helper, surroundings, self.sandbox, self.private.clone()));
        self.tools.git = Some(Arc::new(SandboxedGit { commands: commands.clone() }));
        // The user's word on a name counts more than a project's.
        let mut common = servers.clone();
        common.extend(self.servers);
        let folders = server_folders(&self.places);
        let served = serve(&common, &mut builder.agents, self.pins.as_deref(), &commands, folders);
        builder.diagnostics.extend(served.diagnostics);
        builder.agent_tools = served.brought;
        let vouched = builder.agents.iter().map(|agent| agent.hooks.clone()).filter(|it| !it.is_null()).collect();
        let bash: Arc<dyn Tool> = Arc::new(Bash::new(commands.clone()));
        builder
            .tools(files_tools(self.tools))
            .tools(served.tools)
            .tool(bash)
            .hooks(Arc::new(CommandHooks::new(commands.clone(), hooks).with_agents(vouched)))
            .workspaces(Arc::new(GitWorktrees {
                commands,
                folder: self.worktrees,
                sandbox: homing_core::authority::Sandbox::WorkspaceWrite,
            }))
    }
}

/// Chooses the folder for the private folders of runs.
///
/// A fixed name in the temporary folder of the machine would belong to the user who is first to make it. The user's own
/// folders are out of reach of others; a user who has none gets a name that nobody can guess.
fn private_folder(folders: &Folders) -> PathBuf {
    let runtime = folders.runtime.as_ref().filter(|it| it.parent().is_some_and(is_users_alone));
    let own = runtime.or(folders.state.as_ref()).cloned();
    own.unwrap_or_else(|| std::env::temp_dir().join(format!("homing-{}", Uuid::new_v4())))
}

/// Chooses the folder for worktrees: work that is kept there must outlast the session, so it is never the runtime folder.
fn worktrees_folder(folders: &Folders) -> Option<PathBuf> {
    Some(folders.state.as_ref()?.join("worktrees"))
}

/// The folder in which MCP servers work, and the project's other folders, from none of which their programs come.
pub fn server_folders(places: &Places) -> Vec<PathBuf> {
    let around = places.project_folders().into_iter().filter(|it| *it != places.cwd);
    [places.cwd.clone()].into_iter().chain(around).collect()
}

/// What settings files deny and ask holds always; their hooks run once they are trusted.
fn add_settings(mut builder: HomingBuilder, files: &AuthorityFiles, trust: Trust) -> (HomingBuilder, HookConfig) {
    let mut hooks = HookConfig::default();
    let names = [".claude/settings.json", ".claude/settings.local.json"];
    for path in files.paths().filter(|path| names.iter().any(|name| path.ends_with(name))) {
        let name = path.display().to_string();
        match settings::ClaudeSettings::parse(&name, files.get(path).unwrap_or_default()) {
            Ok(settings) => {
                if trust == Trust::Untrusted && !settings.hooks(Trust::Trusted).is_null() {
                    let what = format!("the hooks of {name} do not run, because this project's files are not trusted");
                    let remark = Diagnostic::warning(what).hint("look at the files, then run `homing trust`");
                    builder.diagnostics.push(remark);
                }
                let warnings = settings.warnings.iter().map(Diagnostic::warning);
                builder.diagnostics.extend(warnings);
                let (config, warnings) = HookConfig::parse(&settings.hooks(trust));
                builder.diagnostics.extend(warnings.into_iter().map(Diagnostic::warning));
                hooks = hooks.and(config);
                let settled = settings.allowed(trust).to_vec();
                builder = builder.layer(Layer { settled, ..settings.layer });
            }
            Err(error) => builder.diagnostics.push(Diagnostic::warning(error.to_string())),
        }
    }
    (builder, hooks)
}

/// Becomes the helper that watches over commands, if this process was started as one. Call it first in `main`.
pub fn run_helper_if_asked() {
    homing_sandbox::process::run_helper_if_asked(std::env::args_os());
}

impl HomingBuilder {
    /// The standard set: discovery, tools, commands, rules.
    #[must_use]
    pub fn standard(mut self, standard: CodingSetup) -> Self {
        self.standard = Some(standard);
        self
    }

    /// Agents and skills of the project around `folder`, and the built-in ones, with the standard tools.
    #[must_use]
    pub fn discover(self, folder: impl AsRef<Path>) -> Self {
        self.standard(CodingSetup::from_env(folder.as_ref()))
    }

    /// Everything a coding agent needs.
    #[cfg(all(feature = "providers", feature = "sqlite"))]
    pub(crate) fn coding(self, folder: PathBuf) -> Self {
        let mut builder = self.discover(&folder).workdir(folder).keys_from_env().with_surroundings();
        if let Some(path) = Folders::from_env().journal() {
            builder = builder.journal(path);
        }
        builder
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn private_folders_lie_where_no_other_user_can_reach() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = folder.path().join("run");
        fs::create_dir(&runtime).unwrap();
        let state = Some(folder.path().join("state/homing"));
        let mut folders = Folders { runtime: Some(runtime.join("homing")), state: state.clone(), ..Folders::default() };
        let mode = |mode| fs::set_permissions(&runtime, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o700);
        assert_eq!(private_folder(&folders), runtime.join("homing"));
        for open in [0o755, 0o770, 0o777] {
            mode(open);
            assert_eq!(Some(private_folder(&folders)), state, "{open:o}");
        }
        assert_eq!(worktrees_folder(&folders), Some(folder.path().join("state/homing/worktrees")));
        folders = Folders::default();
        assert_ne!(
            private_folder(&folders),
            private_folder(&folders),
            "a name in the temporary folder is no fixed one"
        );
    }
}
