//! `SpawnError`: the reasons why a run could not start.

use homing_core::{fact::LimitHit, model::ModelError, registry::UnknownAgent};

use crate::journal::JournalError;

/// The reason why a run could not start.
///
/// # Examples
///
/// ```
/// # use homing_runtime as homing;
/// use homing::SpawnError;
///
/// /// The status with which a web service answers.
/// fn http_status(error: &SpawnError) -> u16 {
///     match error {
///         SpawnError::UnknownAgent(_) => 404,
///         SpawnError::EmptyTask | SpawnError::MissingParameter { .. } => 422,
///         SpawnError::Limit(_) => 429,
///         _ => 500,
///     }
/// }
///
/// assert_eq!(http_status(&SpawnError::EmptyTask), 422);
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// There is no such agent.
    #[error(transparent)]
    UnknownAgent(#[from] UnknownAgent),
    /// A parameter of the agent has neither a value nor a default.
    #[error("agent {agent} needs a value for `{parameter}`")]
    MissingParameter {
        /// The agent.
        agent: String,
        /// The key.
        parameter: String,
    },
    /// No model of the agent is available.
    #[error("no model for this agent: {0}")]
    NoModel(ModelError),
    /// A cost limit was requested, and the model's price is not known.
    #[error("no price is known for {model}, so a cost limit cannot be enforced: configure a price or limit tokens")]
    UnknownPrice {
        /// The model.
        model: String,
    },
    /// The task has no text.
    #[error("the task is empty")]
    EmptyTask,
    /// The model does not read an image or document that is attached to the task.
    #[error("{model} does not read {path} ({media_type})")]
    UnreadableAttachment {
        /// The model.
        model: String,
        /// The attached file.
        path: String,
        /// Its media type.
        media_type: String,
    },
    /// The answer must match a schema, and this build cannot check that.
    #[error("the answer must match a schema, which needs the feature `schemas` of the crate `homing`")]
    NoSchemas,
    /// A limit of the run or an ancestor is reached.
    #[error("the {} limit of {} is reached (run {})", .0.name, .0.limit, .0.place)]
    Limit(LimitHit),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Its worktree could not be created.
    #[error("cannot create a worktree for this run: {0}")]
    Workspace(String),
    /// The tree cannot be forked at this position.
    #[error("cannot fork: {0}")]
    Fork(String),
}
