//! Configuration files of users and projects. A project's file can only narrow the user's.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use homing_core::{
    authority::{Layer, Network, Sandbox},
    limits::{Cap, Limit, Limits},
    rule::Rule,
};
use homing_models::ProviderConfig;
use homing_runtime::OnDemand;
use homing_runtime::journal::sqlite::Account;
use homing_sandbox::SandboxOptions;
use serde::Deserialize;

use crate::{
    cli::values, exit::Trouble, notify::NotifyConfig, restate_config::RestateConfig, search_config::SearchConfig,
};

/// One configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// The default model.
    pub(crate) model: Option<String>,
    /// Maximum number of runs at the same time.
    pub(crate) parallel: Option<u64>,
    /// Journal file, or `off`.
    pub(crate) journal: Option<String>,
    /// Limits of a run tree. Agents can lower them, flags can raise them.
    pub(crate) limits: LimitsConfig,
    /// Aliases of models.
    pub(crate) aliases: BTreeMap<String, String>,
    /// Replacements for models named in agent files.
    pub(crate) model_map: BTreeMap<String, String>,
    /// Changes and additions to the providers.
    pub(crate) providers: BTreeMap<String, ProviderConfig>,
    /// Sandbox for commands.
    pub(crate) sandbox: SandboxConfig,
    /// Budget accounts.
    pub(crate) accounts: BTreeMap<String, AccountConfig>,
    /// Permission rules.
    pub(crate) rules: RuleLists,
    /// Tools that agents may give to child runs beyond their own, by agent.
    pub(crate) delegates: BTreeMap<String, Vec<Rule>>,
    /// Pre-approved calls by project, whose folder is the key.
    pub(crate) projects: BTreeMap<PathBuf, ProjectRules>,
    /// Size from which on tools are offered on demand.
    pub(crate) on_demand: OnDemandConfig,
    /// Notifications at the end of a run and at a question.
    pub(crate) notify: NotifyConfig,
    /// MCP servers, by name: `command`, `args` and `env`, or `url` and `headers`.
    pub(crate) mcp: BTreeMap<String, serde_json::Value>,
    /// The search engine for the tool `websearch`.
    pub(crate) websearch: Option<SearchConfig>,
    /// The Restate server and its workers.
    pub(crate) restate: RestateConfig,
}

/// The size from which on tools are offered on demand.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OnDemandConfig {
    /// Number of tools.
    tools: Option<usize>,
    /// Bytes of their specifications.
    bytes: Option<usize>,
}

/// Limits as written in the file: numbers, amounts, durations, `none`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LimitsConfig {
    cost: Option<ConfigAmount>,
    tokens: Option<ConfigAmount>,
    turns: Option<ConfigAmount>,
    tool_calls: Option<ConfigAmount>,
    children: Option<ConfigAmount>,
    depth: Option<ConfigAmount>,
    time: Option<ConfigAmount>,
    output: Option<ConfigAmount>,
}

/// A number or text.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum ConfigAmount {
    Whole(u64),
    Fraction(f64),
    Text(String),
}

impl std::fmt::Display for ConfigAmount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Fraction(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SandboxConfig {
    /// `read-only`, `workspace-write` or `off`.
    pub(crate) mode: Option<Sandbox>,
    /// `off`, `on`, or hosts.
    pub(crate) network: Option<String>,
    /// Additional folders to read.
    pub(crate) read: Vec<PathBuf>,
    /// Additional folders to change.
    pub(crate) write: Vec<PathBuf>,
    /// Additional variables to pass to commands.
    pub(crate) env: Vec<String>,
    /// Hosts that may be reached in addition to those of `network`.
    pub(crate) hosts: Vec<String>,
    /// Permits local sockets.
    pub(crate) unix_sockets: bool,
}

impl SandboxConfig {
    pub(crate) fn options(&self) -> SandboxOptions {
        SandboxOptions {
            read: self.read.clone(),
            write: self.write.clone(),
            env: self.env.clone(),
            unix_sockets: self.unix_sockets,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AccountConfig {
    /// US dollars per day.
    per_day: Option<ConfigAmount>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RuleLists {
    /// Pre-approved calls.
    pub(crate) allow: Vec<Rule>,
    /// Calls that need approval.
    pub(crate) ask: Vec<Rule>,
    /// Denied calls.
    pub(crate) deny: Vec<Rule>,
}

/// Rules for one project, in the user's configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProjectRules {
    /// Pre-approved calls.
    pub(crate) allow: Vec<Rule>,
}

impl LimitsConfig {
    fn limits(&self) -> Result<Limits, String> {
        let read = |amount: &Option<ConfigAmount>, parse: fn(&str) -> Result<Cap, String>| match amount {
            None => Ok(Cap::Default),
            Some(amount) => parse(&amount.to_string()),
        };
        Ok(Limits::default()
            .with(Limit::Turns, read(&self.turns, values::count)?)
            .with(Limit::Depth, read(&self.depth, values::count)?)
            .with(Limit::Tokens, read(&self.tokens, values::count)?)
            .with(Limit::Cost, read(&self.cost, values::money)?)
            .with(Limit::ToolCalls, read(&self.tool_calls, values::count)?)
            .with(Limit::Children, read(&self.children, values::count)?)
            .with(Limit::Wall, read(&self.time, values::time)?)
            .with(Limit::Work, Cap::Default)
            .with(Limit::Output, read(&self.output, values::count)?))
    }
}

impl Config {
    /// Reads a file. A missing file is an empty configuration.
    pub(crate) fn read(path: &Path) -> Result<Self, Trouble> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Self::default());
            }
            Err(error) => return Err(Trouble::config(format!("cannot read {}: {error}", path.display()))),
        };
        let wrong = |what: String| {
            Trouble::config(format!("{}: {}", path.display(), what.trim_end()))
                .hint("`homing config show` lists the settings")
        };
        let config: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        config.limits.limits().map_err(|error| wrong(format!("limits: {error}")))?;
        config.accounts().map_err(|error| wrong(format!("accounts: {error}")))?;
        config.network().map_err(|error| wrong(format!("sandbox.network: {error}")))?;
        config.restate.check().map_err(|error| wrong(format!("restate: {error}")))?;
        Ok(config)
    }

    pub(crate) fn accounts(&self) -> Result<BTreeMap<String, Account>, String> {
        let read = |(name, account): (&String, &AccountConfig)| {
            let cap = account.per_day.as_ref().map(|amount| values::money(&amount.to_string())).transpose()?;
            Ok((name.clone(), Account { per_day_micros: cap.and_then(Cap::value) }))
        };
        self.accounts.iter().map(read).collect()
    }

    pub(crate) fn network(&self) -> Result<Option<Network>, String> {
        self.sandbox.network.as_deref().map(values::network).transpose()
    }

    fn layer(&self, from: String) -> Layer {
        Layer::everything(from).ask(self.rules.ask.clone()).deny(self.rules.deny.clone())
    }
}

/// The configurations of the user and the project, with their paths.
pub(crate) struct Layered {
    pub(crate) user: Config,
    pub(crate) user_path: Option<PathBuf>,
    pub(crate) project: Config,
    pub(crate) project_path: PathBuf,
}

impl Layered {
    /// Reads both files.
    pub(crate) fn read(config_folder: Option<&Path>, project: &Path) -> Result<Self, Trouble> {
        let user_path = config_folder.map(|folder| folder.join("config.toml"));
        let user = user_path.as_deref().map(Config::read).transpose()?.unwrap_or_default();
        let project_path = project.join(".homing/config.toml");
        let project = Config::read(&project_path)?;
        Ok(Self { user, user_path, project, project_path })
    }

    /// The project's folder, by which the user's configuration names it.
    pub(crate) fn project_folder(&self) -> PathBuf {
        let folder = self.project_path.ancestors().nth(2).unwrap_or(&self.project_path);
        folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
    }

    /// Returns warnings about settings without effect.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let rules = |config: &Config| -> Vec<Rule> {
            let RuleLists { allow, ask, deny } = &config.rules;
            let of_projects = config.projects.values().flat_map(|project| &project.allow);
            allow.iter().chain(ask).chain(deny).chain(of_projects).cloned().collect()
        };
        let unknown = |path: Option<&Path>, config: &Config| -> Vec<String> {
            let path = path.map(|path| path.display().to_string()).unwrap_or_default();
            let rules = rules(config);
            let wrong = rules.iter().filter_map(|rule| Some((rule, values::unknown_tool(rule)?)));
            wrong.map(|(rule, why)| format!("{path}: the rule `{rule}` has no effect: {why}")).collect()
        };
        let user = unknown(self.user_path.as_deref(), &self.user);
        let project = unknown(Some(&self.project_path), &self.project);
        self.ignored().into_iter().chain(user).chain(project).collect()
    }

    /// Returns warnings about settings of the project that are ignored because they do not narrow anything.
    fn ignored(&self) -> Vec<String> {
        let project = &self.project;
        let settings = [
            ("model", project.model.is_some()),
            ("journal", project.journal.is_some()),
            ("aliases", !project.aliases.is_empty()),
            ("model_map", !project.model_map.is_empty()),
            ("providers", !project.providers.is_empty()),
            ("accounts", !project.accounts.is_empty()),
            ("rules.allow", !project.rules.allow.is_empty()),
            ("projects", !project.projects.is_empty()),
            ("delegates", !project.delegates.is_empty()),
            ("mcp", !project.mcp.is_empty()),
            ("notify", project.notify != NotifyConfig::default()),
            ("websearch", project.websearch.is_some()),
            ("restate", project.restate != RestateConfig::default()),
            ("sandbox.read", !project.sandbox.read.is_empty()),
            ("sandbox.write", !project.sandbox.write.is_empty()),
            ("sandbox.env", !project.sandbox.env.is_empty()),
            ("sandbox.hosts", !project.sandbox.hosts.is_empty()),
            ("sandbox.unix_sockets", project.sandbox.unix_sockets),
        ];
        let path = self.project_path.display();
        let warning = |key: &str| format!("{path}: `{key}` is ignored: a project's configuration can only narrow");
        settings.iter().filter(|(_, is_set)| *is_set).map(|(key, _)| warning(key)).collect()
    }

    /// Returns the user's limits. Only a flag can exceed them.
    pub(crate) fn ceiling(&self) -> Limits {
        self.user.limits.limits().unwrap_or_default()
    }

    /// Returns the limits of a run: flags, else the tighter of the agent's and the user's. The project narrows all but flags.
    pub(crate) fn limits(&self, flags: Limits, agent: Limits) -> Limits {
        let project = self.project.limits.limits().unwrap_or_default();
        let below = agent.tighter(self.ceiling());
        let narrowed = if Limit::SETTABLE.iter().any(|limit| project.cap(*limit) != Cap::Default) {
            // A limit that only the project sets narrows the default.
            narrow_set(below.or(Limits::root()).tighter(project), project, below)
        } else {
            below
        };
        flags.or(narrowed)
    }

    pub(crate) fn sandbox(&self, flag: Option<Sandbox>) -> Sandbox {
        let user = self.user.sandbox.mode.unwrap_or(Sandbox::WorkspaceWrite);
        flag.unwrap_or_else(|| self.project.sandbox.mode.map_or(user, |mode| mode.min(user)))
    }

    pub(crate) fn network(&self, flag: Option<Network>) -> Network {
        let network = |config: &Config| config.network().unwrap_or_default();
        let user = match (network(&self.user).unwrap_or(Network::Off), self.user.sandbox.hosts.clone()) {
            (Network::On, _) => Network::On,
            (Network::Off, more) if more.is_empty() => Network::Off,
            (Network::Off, more) => Network::Hosts(more),
            (Network::Hosts(hosts), more) => Network::Hosts(hosts.into_iter().chain(more).collect()),
        };
        flag.unwrap_or_else(|| network(&self.project).map_or(user.clone(), |project| project.intersect(&user)))
    }

    pub(crate) fn parallel(&self, flag: Option<u64>) -> Option<u64> {
        flag.or_else(|| [self.user.parallel, self.project.parallel].into_iter().flatten().min())
    }

    /// Returns the size from which on tools are offered on demand. A project can only lower it.
    pub(crate) fn on_demand(&self) -> OnDemand {
        let (user, project) = (self.user.on_demand, self.project.on_demand);
        let OnDemand { tools, bytes, .. } = OnDemand::default();
        let narrowed = |user: Option<usize>, project: Option<usize>, default: usize| {
            let user = user.unwrap_or(default);
            project.map_or(user, |project| project.min(user))
        };
        OnDemand::new(narrowed(user.tools, project.tools, tools), narrowed(user.bytes, project.bytes, bytes))
    }

    /// Returns the permission layers of the user and the project.
    pub(crate) fn layers(&self) -> Vec<Layer> {
        let mut user = self.user.layer("your configuration".to_owned());
        user.settled.clone_from(&self.user.rules.allow);
        let own = self.user.projects.get(&self.project_folder());
        user.settled.extend(own.into_iter().flat_map(|project| project.allow.clone()));
        vec![user, self.project.layer("the project's configuration".to_owned())]
    }
}

/// Returns `narrowed` for limits that the project sets, and `below` for the others.
fn narrow_set(narrowed: Limits, project: Limits, below: Limits) -> Limits {
    let choose = |limit: Limit| match project.cap(limit) {
        Cap::Default => below.cap(limit),
        Cap::Unlimited | Cap::At(_) => narrowed.cap(limit),
    };
    Limits::default()
        .with(Limit::Turns, choose(Limit::Turns))
        .with(Limit::Depth, choose(Limit::Depth))
        .with(Limit::Tokens, choose(Limit::Tokens))
        .with(Limit::Cost, choose(Limit::Cost))
        .with(Limit::ToolCalls, choose(Limit::ToolCalls))
        .with(Limit::Children, choose(Limit::Children))
        .with(Limit::Wall, choose(Limit::Wall))
        .with(Limit::Work, choose(Limit::Work))
        .with(Limit::Output, choose(Limit::Output))
}

/// The table of the configuration that gets a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RuleTable {
    /// `[rules]`: all projects.
    Everywhere,
    /// `[projects."…"]`: one project.
    Project(PathBuf),
}

impl std::fmt::Display for RuleTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Everywhere => f.write_str("[rules]"),
            // Quoted as in JSON, which is valid as a key of TOML, too.
            Self::Project(folder) => {
                write!(f, "[projects.{}]", serde_json::Value::from(folder.display().to_string()))
            }
        }
    }
}

/// Adds rules to `allow` of a table in the user's file and leaves the rest of it unchanged.
pub(crate) fn add_allow_rules(path: &Path, table: &RuleTable, rules: &[Rule]) -> io::Result<()> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let next = path.with_extension("toml.new");
    let text = rules.iter().fold(text, |text, rule| with_rule(&text, table, &rule.to_string()));
    fs::write(&next, text)?;
    fs::rename(&next, path)
}

/// Returns the file's text with one more rule. It is edited as text to keep comments and order.
fn with_rule(text: &str, table: &RuleTable, rule: &str) -> String {
    let quoted = toml::Value::String(rule.to_owned()).to_string();
    let head = table.to_string();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let Some(table) = lines.iter().position(|line| line.trim() == head) else {
        return format!("{}{}{head}\nallow = [{quoted}]\n", text.trim_end(), if text.is_empty() { "" } else { "\n\n" });
    };
    let end =
        lines[table + 1..].iter().position(|line| line.trim_start().starts_with('[')).map(|line| table + 1 + line);
    let own = &lines[table + 1..end.unwrap_or(lines.len())];
    let list = own.iter().position(|line| line.trim_start().starts_with("allow") && line.contains('['));
    match list.map(|line| table + 1 + line) {
        Some(at) => lines[at] = lines[at].replacen('[', &format!("[{quoted}, "), 1),
        None => lines.insert(table + 1, format!("allow = [{quoted}]")),
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        toml::from_str(text).unwrap()
    }

    fn layered(user: &str, project: &str) -> Layered {
        Layered { user: config(user), user_path: None, project: config(project), project_path: "p".into() }
    }

    #[test]
    fn project_can_only_narrow() {
        let config = layered(
            "[limits]\ncost = 2\n[sandbox]\nmode = 'workspace-write'\nnetwork = 'a.org'",
            "[limits]\ncost = 50\nturns = 3\n[sandbox]\nmode = 'off'\nnetwork = 'on'\n[rules]\nallow = ['bash']\n",
        );
        let limits = config.limits(Limits::default(), Limits::default());
        assert_eq!((limits.cost_micros, limits.turns), (Cap::At(2_000_000), Cap::At(3)));
        assert_eq!(limits.wall_ms, Cap::Default);
        assert_eq!(config.sandbox(None), Sandbox::WorkspaceWrite);
        assert_eq!(config.network(None), Network::Hosts(vec!["a.org".into()]));
        let more = layered("[sandbox]\nhosts = ['b.org']", "[sandbox]\nhosts = ['evil.org']");
        assert_eq!(more.network(None), Network::Hosts(vec!["b.org".into()]));
        assert_eq!(more.network(Some(Network::Off)), Network::Off, "a flag wins");
        assert!(config.layers().iter().all(|layer| layer.settled.is_empty()));
        assert_eq!(config.ignored().len(), 1);
        let wide = layered("", "[limits]\ncost = 50\n").limits(Limits::default(), Limits::default());
        assert_eq!(wide.cost_micros, Cap::At(5_000_000), "without a user limit the default is narrowed");
    }

    #[test]
    fn flags_win_and_an_agent_stays_below_the_user() {
        let config = layered("[limits]\nturns = 9\ndepth = 1\ntime = '5m'\ncost = 'none'\n", "");
        let agent =
            Limits::default().turns(5).depth(2).with(Limit::Tokens, Cap::Unlimited).with(Limit::Wall, Cap::Unlimited);
        let limits = config.limits(Limits::default().turns(20), agent);
        assert_eq!((limits.turns, limits.depth, limits.wall_ms), (Cap::At(20), Cap::At(1), Cap::At(300_000)));
        assert_eq!((limits.cost_micros, limits.tokens), (Cap::Unlimited, Cap::Unlimited), "nothing limits these");
        let narrow = config.limits(Limits::default(), agent);
        assert_eq!(narrow.turns, Cap::At(5), "an agent narrows");
    }

    #[test]
    fn adding_a_rule_keeps_the_rest() {
        let mut text = String::new();
        for rule in ["bash(git push *)", "write"] {
            text = with_rule(&text, &RuleTable::Everywhere, rule);
        }
        assert_eq!(config(&text).rules.allow.len(), 2);
        let text = "# mine\nmodel = 'x'\n\n[rules]\ndeny = ['bash(rm *)']\n[limits]\nturns = 3\n";
        let text = with_rule(text, &RuleTable::Everywhere, "write");
        assert!(text.starts_with("# mine\n") && text.contains("turns = 3"));
        let read = config(&text);
        assert_eq!((read.rules.allow.len(), read.rules.deny.len()), (1, 1));
        let table = RuleTable::Project("/home/u/it's \"here\"".into());
        let text = with_rule(&with_rule(&text, &table, "bash(make)"), &table, "write(=a)");
        let read = config(&text);
        assert_eq!((read.rules.allow.len(), read.projects[Path::new("/home/u/it's \"here\"")].allow.len()), (1, 2));
    }
}
