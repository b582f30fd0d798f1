//! The configuration of the runtime itself.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use homing_core::{authority::Grant, redaction::Secrets};

use crate::on_demand::OnDemand;

/// The configuration of the runtime itself.
///
/// # Examples
///
/// ```
/// # use homing_runtime as homing;
/// use std::time::Duration;
///
/// use homing::RuntimeConfig;
///
/// let mut config = RuntimeConfig::default();
/// config.max_output = 16_000;
/// config.retries.max_backoff = Duration::from_secs(5);
/// // Homing::builder().settings(config)
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuntimeConfig {
    /// Maximum number of runs that work at once; the others queue.
    pub max_runs: usize,
    /// Maximum number of model calls in progress per provider and key.
    pub max_asks: usize,
    /// Maximum number of tools that one run uses at once.
    pub max_tools: usize,
    /// Maximum length of a reply, in tokens.
    pub max_output: u64,
    /// Minimum output of a model call, in tokens; with less budget the run lands.
    pub output_floor: u64,
    /// Output reserved for the landing, the last turn of a run that reached a limit, in tokens.
    pub landing_output: u64,
    /// Repetition of failed model calls.
    pub retries: RetryConfig,
    /// Treatment of questions to the user.
    pub on_question: OnQuestion,
    /// Time that a tool has to return its partial result when its run is stopped.
    pub grace: Duration,
    /// Longest answer of a child that is not cut for its parent's model, in bytes.
    pub inline_answer: usize,
    /// Secrets that are removed from facts and events, in addition to the keys of the models.
    pub secrets: Secrets,
    /// Knowledge of the host about untrusted content and secret files.
    pub taint: TaintConfig,
    /// Longest time that the runs of a fan-out wait for the first reply to one of them to begin, so that the others can use
    /// the prompt cache of the provider. Zero turns it off.
    pub cache_wait: Duration,
    /// The size from which on tools are offered on demand.
    pub on_demand: OnDemand,
    /// True if the host exports spans of its runs. The calls of tools then continue the trace; otherwise they pass on the
    /// context that the caller of the tree sent, if there is one.
    pub exports_spans: bool,
}

/// Treatment of a question to the user: a request for approval, or a question of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnQuestion {
    /// The host's handler is asked; without a handler, or without its answer in time, the call is denied.
    Ask {
        /// Time that the handler has to answer.
        within: Duration,
    },
    /// The question waits, for days if need be, until any process answers it. The process may exit meanwhile.
    Park,
    /// The call is denied.
    Deny,
}

impl Default for OnQuestion {
    fn default() -> Self {
        Self::Ask { within: Duration::from_secs(300) }
    }
}

/// Repetition of failed model calls.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RetryConfig {
    /// Attempts before a model with a broken connection is given up.
    pub max_attempts: u32,
    /// Longest pause between attempts, if the provider does not name one.
    pub max_backoff: Duration,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self { max_attempts: 6, max_backoff: Duration::from_secs(30) }
    }
}

/// Finds a file with secrets that a run in this folder can read.
pub type SecretFinder = Arc<dyn Fn(&Grant, &Path) -> Option<PathBuf> + Send + Sync>;

/// Knowledge of the host about untrusted content and secret files. By default nothing is known, and nothing is asked.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct TaintConfig {
    /// True if the project has files that need trust, and the user does not trust them.
    pub project_is_untrusted: bool,
    /// Finds secrets in reach of a run.
    pub secrets: Option<SecretFinder>,
}

impl std::fmt::Debug for TaintConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaintConfig").field("project_is_untrusted", &self.project_is_untrusted).finish_non_exhaustive()
    }
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            max_runs: 16,
            max_asks: 16,
            max_tools: 16,
            max_output: 8_192,
            output_floor: 1_024,
            landing_output: 1_024,
            retries: RetryConfig::default(),
            on_question: OnQuestion::default(),
            grace: Duration::from_secs(2),
            inline_answer: 24_000,
            secrets: Secrets::default(),
            taint: TaintConfig::default(),
            cache_wait: Duration::from_secs(10),
            on_demand: OnDemand::default(),
            exports_spans: false,
        }
    }
}
