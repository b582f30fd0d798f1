//! Attaches files to a task, as the run's rules allow it.

use std::path::PathBuf;

use homing_runtime::{SpawnError, Task};
use homing_tools::files::attach;
pub use homing_tools::files::attach::AttachError;

use crate::Homing;

/// Reason why files cannot be attached to a task.
///
/// # Examples
///
/// ```
/// use homing::{AttachError, AttachFilesError};
///
/// fn is_refused(error: &AttachFilesError) -> bool {
///     matches!(error, AttachFilesError::File(AttachError::Denied { .. } | AttachError::Secret { .. }))
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachFilesError {
    /// The task cannot be spawned.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// A file cannot be attached.
    #[error(transparent)]
    File(#[from] AttachError),
}

impl Homing {
    /// Attaches the files at these absolute paths to `task`: images and PDF documents as such, other files as text. A rule
    /// that denies the agent to read a file applies; its folders do not.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use homing::{Homing, Task};
    ///
    /// let homing = Homing::coding(".").build()?;
    /// let task = homing.attach(Task::new("general", "Why does it look like this?"), &["/tmp/screen.png".into()])?;
    /// println!("{}", homing.spawn(task)?.wait().await.output);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the task cannot be spawned, or if a file cannot be read, is of an unsupported kind or too large, usually holds
    /// secrets, or is denied. Nothing is spent.
    pub fn attach(&self, mut task: Task, files: &[PathBuf]) -> Result<Task, AttachFilesError> {
        // The rules are those of the agent that gets the files.
        let (spawned, _) = self.runtime.plan(task.clone())?;
        task.attachments.extend(attach::read_all(files, &spawned.authority.own, &spawned.workdir)?);
        Ok(task)
    }
}
