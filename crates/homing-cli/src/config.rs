//! What users and projects write into configuration files. A project's file can only narrow what the user's says.

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
use homing_runtime::journal::sqlite::Account;
use homing_sandbox::SandboxOptions;
use serde::Deserialize;

use crate::{cli::values, exit::Trouble};

/// One configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// What runs speak with where nothing else is said.
    pub(crate) model: Option<String>,
    /// Runs that work at once.
    pub(crate) parallel: Option<u64>,
    /// Where runs are recorded: a file, or `off`.
    pub(crate) journal: Option<String>,
    /// What a tree may spend. Agents can ask for less, flags for more.
    pub(crate) limits: LimitsConfig,
    /// Short names of models.
    pub(crate) aliases: BTreeMap<String, String>,
    /// What files ask for, and what they get instead.
    pub(crate) model_map: BTreeMap<String, String>,
    /// Changes and additions to the providers.
    pub(crate) providers: BTreeMap<String, ProviderConfig>,
    /// How commands are confined.
    pub(crate) sandbox: SandboxConfig,
    /// Who pays, and how much at most.
    pub(crate) accounts: BTreeMap<String, AccountConfig>,
    /// Which calls are allowed beforehand, asked about, denied.
    pub(crate) rules: RuleLists,
    /// What agents may hand on beyond their own tools, by name.
    pub(crate) delegates: BTreeMap<String, Vec<Rule>>,
    /// MCP servers, by name: `command`, `args` and `env`, or `url` and `headers`.
    pub(crate) mcp: BTreeMap<String, serde_json::Value>,
}

/// Limits as people write them: numbers, amounts, times, `none`.
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
    /// read-only, workspace-write or off.
    pub(crate) mode: Option<Sandbox>,
    /// off, on, or hosts.
    pub(crate) network: Option<String>,
    /// More folders to read.
    pub(crate) read: Vec<PathBuf>,
    /// More folders to change.
    pub(crate) write: Vec<PathBuf>,
    /// More variables to pass on.
    pub(crate) env: Vec<String>,
    /// Hosts that may be reached, besides those of `network`.
    pub(crate) hosts: Vec<String>,
}

impl SandboxConfig {
    pub(crate) fn options(&self) -> SandboxOptions {
        SandboxOptions { read: self.read.clone(), write: self.write.clone(), env: self.env.clone() }
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
    /// Calls that are not asked about.
    pub(crate) allow: Vec<Rule>,
    /// Calls that are asked about.
    pub(crate) ask: Vec<Rule>,
    /// Calls that are refused.
    pub(crate) deny: Vec<Rule>,
}

impl LimitsConfig {
    fn limits(&self) -> Result<Limits, String> {
        let read = |amount: &Option<ConfigAmount>, how: fn(&str) -> Result<Cap, String>| match amount {
            None => Ok(Cap::Default),
            Some(amount) => how(&amount.to_string()),
        };
        Ok(Limits {
            turns: read(&self.turns, values::count)?,
            depth: read(&self.depth, values::count)?,
            tokens: read(&self.tokens, values::count)?,
            cost_micros: read(&self.cost, values::money)?,
            tool_calls: read(&self.tool_calls, values::count)?,
            children: read(&self.children, values::count)?,
            wall_ms: read(&self.time, values::time)?,
            work_ms: Cap::Default,
        })
    }
}

impl Config {
    /// Reads a file; a missing one says nothing.
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
                .hint("`homing config show` lists what can be set")
        };
        let config: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        config.limits.limits().map_err(|error| wrong(format!("limits: {error}")))?;
        config.accounts().map_err(|error| wrong(format!("accounts: {error}")))?;
        config.network().map_err(|error| wrong(format!("sandbox.network: {error}")))?;
        Ok(config)
    }

    pub(crate) fn accounts(&self) -> Result<BTreeMap<String, Account>, String> {
        let read = |(name, account): (&String, &AccountConfig)| {
            let cap = account.per_day.as_ref().map(|it| values::money(&it.to_string())).transpose()?;
            Ok((name.clone(), Account { per_day_micros: cap.and_then(Cap::value) }))
        };
        self.accounts.iter().map(read).collect()
    }

    pub(crate) fn network(&self) -> Result<Option<Network>, String> {
        self.sandbox.network.as_deref().map(values::network).transpose()
    }

    fn layer(&self, from: String) -> Layer {
        Layer { ask: self.rules.ask.clone(), deny: self.rules.deny.clone(), ..Layer::everything(from) }
    }
}

/// The user's word and the project's, with where each lies.
pub(crate) struct Layered {
    pub(crate) user: Config,
    pub(crate) user_path: Option<PathBuf>,
    pub(crate) project: Config,
    pub(crate) project_path: PathBuf,
}

impl Layered {
    /// Reads both files.
    pub(crate) fn read(config_folder: Option<&Path>, project: &Path) -> Result<Self, Trouble> {
        let user_path = config_folder.map(|it| it.join("config.toml"));
        let user = user_path.as_deref().map(Config::read).transpose()?.unwrap_or_default();
        let project_path = project.join(".homing/config.toml");
        let project = Config::read(&project_path)?;
        Ok(Self { user, user_path, project, project_path })
    }

    /// What a project's file says in vain, because it would not narrow anything.
    pub(crate) fn ignored(&self) -> Vec<String> {
        let it = &self.project;
        let said = [
            ("model", it.model.is_some()),
            ("journal", it.journal.is_some()),
            ("aliases", !it.aliases.is_empty()),
            ("model_map", !it.model_map.is_empty()),
            ("providers", !it.providers.is_empty()),
            ("accounts", !it.accounts.is_empty()),
            ("rules.allow", !it.rules.allow.is_empty()),
            ("delegates", !it.delegates.is_empty()),
            ("mcp", !it.mcp.is_empty()),
            ("sandbox.read", !it.sandbox.read.is_empty()),
            ("sandbox.write", !it.sandbox.write.is_empty()),
            ("sandbox.env", !it.sandbox.env.is_empty()),
            ("sandbox.hosts", !it.sandbox.hosts.is_empty()),
        ];
        let path = self.project_path.display();
        let word = |key: &str| format!("{path}: `{key}` is ignored: a project's configuration can only narrow");
        said.iter().filter(|(_, is_said)| *is_said).map(|(key, _)| word(key)).collect()
    }

    /// What the user's configuration allows; a flag alone goes beyond it.
    pub(crate) fn ceiling(&self) -> Limits {
        self.user.limits.limits().unwrap_or_default()
    }

    /// Limits: flags, else the tighter of the agent's own and the user's; the project narrows all but the flags.
    pub(crate) fn limits(&self, flags: Limits, agent: Limits) -> Limits {
        let project = self.project.limits.limits().unwrap_or_default();
        let below = agent.tighter(self.ceiling());
        let narrowed = match Limit::SETTABLE.iter().any(|it| project.cap(*it) != Cap::Default) {
            // Where the project is silent, `tighter` leaves what was said; where nobody spoke, the default is what it narrows.
            true => only_where_said(below.or(Limits::root()).tighter(project), project, below),
            false => below,
        };
        flags.or(narrowed)
    }

    pub(crate) fn sandbox(&self, flag: Option<Sandbox>) -> Sandbox {
        let user = self.user.sandbox.mode.unwrap_or(Sandbox::WorkspaceWrite);
        flag.unwrap_or_else(|| self.project.sandbox.mode.map_or(user, |it| it.min(user)))
    }

    pub(crate) fn network(&self, flag: Option<Network>) -> Network {
        let said = |config: &Config| config.network().unwrap_or_default();
        let user = match (said(&self.user).unwrap_or(Network::Off), self.user.sandbox.hosts.clone()) {
            (Network::On, _) => Network::On,
            (Network::Off, more) if more.is_empty() => Network::Off,
            (Network::Off, more) => Network::Hosts(more),
            (Network::Hosts(hosts), more) => Network::Hosts(hosts.into_iter().chain(more).collect()),
        };
        flag.unwrap_or_else(|| said(&self.project).map_or(user.clone(), |it| it.intersect(&user)))
    }

    pub(crate) fn parallel(&self, flag: Option<u64>) -> Option<u64> {
        flag.or_else(|| [self.user.parallel, self.project.parallel].into_iter().flatten().min())
    }

    /// Who has a say besides the flags.
    pub(crate) fn layers(&self) -> Vec<Layer> {
        let mut user = self.user.layer("your configuration".to_owned());
        user.settled.clone_from(&self.user.rules.allow);
        vec![user, self.project.layer("the project's configuration".to_owned())]
    }
}

/// `narrowed` where the project spoke, `below` where it did not.
fn only_where_said(narrowed: Limits, project: Limits, below: Limits) -> Limits {
    let choose = |limit: Limit| match project.cap(limit) {
        Cap::Default => below.cap(limit),
        Cap::Unlimited | Cap::At(_) => narrowed.cap(limit),
    };
    Limits {
        turns: choose(Limit::Turns),
        depth: choose(Limit::Depth),
        tokens: choose(Limit::Tokens),
        cost_micros: choose(Limit::Cost),
        tool_calls: choose(Limit::ToolCalls),
        children: choose(Limit::Children),
        wall_ms: choose(Limit::Wall),
        work_ms: choose(Limit::Work),
    }
}

/// Adds a rule to `rules.allow` of the user's file, leaving everything else in it as it is.
pub(crate) fn allow_for_good(path: &Path, rule: &str) -> io::Result<()> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let next = path.with_extension("toml.new");
    fs::write(&next, with_rule(&text, rule))?;
    fs::rename(&next, path)
}

/// The file's text with one more rule. Comments and order stay, so it is edited as text.
fn with_rule(text: &str, rule: &str) -> String {
    let quoted = toml::Value::String(rule.to_owned()).to_string();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let table = lines.iter().position(|line| line.trim() == "[rules]");
    let Some(table) = table else {
        return format!(
            "{}{}[rules]\nallow = [{quoted}]\n",
            text.trim_end(),
            if text.is_empty() { "" } else { "\n\n" }
        );
    };
    let end = lines[table + 1..].iter().position(|line| line.trim_start().starts_with('[')).map(|it| table + 1 + it);
    let own = &lines[table + 1..end.unwrap_or(lines.len())];
    let list = own.iter().position(|it| it.trim_start().starts_with("allow") && it.contains('['));
    match list.map(|it| table + 1 + it) {
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
    fn a_project_can_only_narrow() {
        let it = layered(
            "[limits]\ncost = 2\n[sandbox]\nmode = 'workspace-write'\nnetwork = 'a.org'",
            "[limits]\ncost = 50\nturns = 3\n[sandbox]\nmode = 'off'\nnetwork = 'on'\n[rules]\nallow = ['bash']\n",
        );
        let limits = it.limits(Limits::default(), Limits::default());
        assert_eq!((limits.cost_micros, limits.turns), (Cap::At(2_000_000), Cap::At(3)));
        assert_eq!(limits.wall_ms, Cap::Default);
        assert_eq!(it.sandbox(None), Sandbox::WorkspaceWrite);
        assert_eq!(it.network(None), Network::Hosts(vec!["a.org".into()]));
        let more = layered("[sandbox]\nhosts = ['b.org']", "[sandbox]\nhosts = ['evil.org']");
        assert_eq!(more.network(None), Network::Hosts(vec!["b.org".into()]));
        assert_eq!(more.network(Some(Network::Off)), Network::Off, "a flag is the last word");
        assert!(it.layers().iter().all(|layer| layer.settled.is_empty()));
        assert_eq!(it.ignored().len(), 1);
        let wide = layered("", "[limits]\ncost = 50\n").limits(Limits::default(), Limits::default());
        assert_eq!(wide.cost_micros, Cap::At(5_000_000), "the default is what a silent user has");
    }

    #[test]
    fn flags_win_and_an_agent_stays_below_the_user() {
        let it = layered("[limits]\nturns = 9\ndepth = 1\ntime = '5m'\ncost = 'none'\n", "");
        let agent = Limits { tokens: Cap::Unlimited, wall_ms: Cap::Unlimited, ..Limits::default().turns(5).depth(2) };
        let limits = it.limits(Limits::default().turns(20), agent);
        assert_eq!((limits.turns, limits.depth, limits.wall_ms), (Cap::At(20), Cap::At(1), Cap::At(300_000)));
        assert_eq!((limits.cost_micros, limits.tokens), (Cap::Unlimited, Cap::Unlimited), "nobody limits these");
        let narrow = it.limits(Limits::default(), agent);
        assert_eq!(narrow.turns, Cap::At(5), "an agent narrows");
    }

    #[test]
    fn a_rule_is_added_without_touching_the_rest() {
        let mut text = String::new();
        for rule in ["bash(git push *)", "write"] {
            text = with_rule(&text, rule);
        }
        assert_eq!(config(&text).rules.allow.len(), 2);
        let text = with_rule("# mine\nmodel = 'x'\n\n[rules]\ndeny = ['bash(rm *)']\n[limits]\nturns = 3\n", "write");
        assert!(text.starts_with("# mine\n") && text.contains("turns = 3"));
        let read = config(&text);
        assert_eq!((read.rules.allow.len(), read.rules.deny.len()), (1, 1));
    }
}
