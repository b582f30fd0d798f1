//! `Permissions`: rules, folders, network and sandbox that bound all agents.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    authority::{Allow, Grant, Layer, Network, Sandbox},
    rule::{Rule, RuleError},
};
use homing_runtime::OnQuestion;

use super::BuildError;

/// The upper bound of what agents may do. An agent's own definition can only narrow it.
///
/// The default allows every tool within the working folder, without network.
///
/// # Examples
///
/// ```
/// use homing::{Network, Permissions};
///
/// let permissions = Permissions::default()
///     .deny(["bash(rm *)"])
///     .may_read("/usr/share/doc")
///     .network(Network::Hosts(vec!["api.example.org".to_owned()]));
/// ```
#[derive(Clone, Debug)]
pub struct Permissions {
    layer: Layer,
    more_layers: Vec<Layer>,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    network: Network,
    sandbox: Sandbox,
    pub(super) on_question: OnQuestion,
    /// The first rule that could not be parsed.
    invalid: Option<RuleError>,
}

/// A permission rule, or its text such as `bash(git log *)`. A text that cannot be parsed is reported when the
/// [`Homing`](crate::Homing) is built.
///
/// # Examples
///
/// ```
/// use homing::{Permissions, Rule};
///
/// let parsed: Rule = "edit".parse().unwrap();
/// let permissions = Permissions::default().deny(["bash(rm *)"]).ask([parsed]);
/// ```
pub trait IntoRule {
    /// Returns the rule.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a rule.
    fn into_rule(self) -> Result<Rule, RuleError>;
}

impl IntoRule for Rule {
    fn into_rule(self) -> Result<Rule, RuleError> {
        Ok(self)
    }
}

impl IntoRule for &str {
    fn into_rule(self) -> Result<Rule, RuleError> {
        self.parse()
    }
}

impl IntoRule for String {
    fn into_rule(self) -> Result<Rule, RuleError> {
        self.as_str().into_rule()
    }
}

impl Default for Permissions {
    fn default() -> Self {
        Self {
            layer: Layer::everything("the host"),
            more_layers: Vec::new(),
            read: Vec::new(),
            write: Vec::new(),
            network: Network::Off,
            sandbox: Sandbox::WorkspaceWrite,
            invalid: None,
            on_question: OnQuestion::default(),
        }
    }
}

impl Permissions {
    /// Allows only calls that match these rules or those of another call of this method.
    #[must_use]
    pub fn only(mut self, rules: impl IntoIterator<Item = impl IntoRule>) -> Self {
        let rules = self.parsed(rules);
        match &mut self.layer.allow {
            Allow::Only(list) => list.extend(rules),
            Allow::All => self.layer.allow = Allow::Only(rules),
        }
        self
    }

    /// Denies calls that match these rules, even if something else allows them.
    #[must_use]
    pub fn deny(mut self, rules: impl IntoIterator<Item = impl IntoRule>) -> Self {
        let rules = self.parsed(rules);
        self.layer.deny.extend(rules);
        self
    }

    /// Asks for approval before calls that match these rules.
    #[must_use]
    pub fn ask(mut self, rules: impl IntoIterator<Item = impl IntoRule>) -> Self {
        let rules = self.parsed(rules);
        self.layer.ask.extend(rules);
        self
    }

    fn parsed(&mut self, rules: impl IntoIterator<Item = impl IntoRule>) -> Vec<Rule> {
        let rule = |rule: Result<Rule, RuleError>| match rule {
            Ok(rule) => Some(rule),
            Err(invalid) => {
                self.invalid.get_or_insert(invalid);
                None
            }
        };
        rules.into_iter().map(IntoRule::into_rule).filter_map(rule).collect()
    }

    /// Sets what happens to questions to the user: the handler is asked, which is the default, or the question waits until any
    /// process answers it, or the call is denied.
    #[must_use]
    pub fn on_question(mut self, policy: OnQuestion) -> Self {
        self.on_question = policy;
        self
    }

    /// Adds a layer of rules. A call must be allowed by every layer.
    #[must_use]
    pub fn layer(mut self, layer: Layer) -> Self {
        self.more_layers.push(layer);
        self
    }

    /// Adds a folder outside the working folder that may be read.
    #[must_use]
    pub fn may_read(mut self, folder: impl Into<PathBuf>) -> Self {
        self.read.push(folder.into());
        self
    }

    /// Adds a folder outside the working folder that may be read and changed.
    #[must_use]
    pub fn may_write(mut self, folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        self.read.push(folder.clone());
        self.write.push(folder);
        self
    }

    /// Sets which hosts may be reached. The default is none.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Sets how commands are confined. The default confines writes to the working folder.
    #[must_use]
    pub fn sandbox(mut self, sandbox: Sandbox) -> Self {
        self.sandbox = sandbox;
        self
    }

    /// Returns the folders that agents may use, the working folder first.
    #[cfg(feature = "tools")]
    pub(super) fn roots(&self, workdir: &Path) -> Vec<PathBuf> {
        [workdir.to_owned()].into_iter().chain(self.read.iter().chain(&self.write).cloned()).collect()
    }

    pub(super) fn grant(self, workdir: &Path) -> Result<Grant, BuildError> {
        if let Some(error) = self.invalid {
            return Err(error.into());
        }
        let layers = [self.layer].into_iter().chain(self.more_layers).map(Arc::new).collect();
        let with = |more: Vec<PathBuf>| [workdir.to_owned()].into_iter().chain(more).collect();
        let write = if self.sandbox == Sandbox::ReadOnly { Vec::new() } else { with(self.write) };
        Ok(Grant::new(layers).read(with(self.read)).write(write).network(self.network).sandbox(self.sandbox))
    }
}
