//! Agents: a name, a description of when to use it, a system prompt, and what it may use.
//!
//! An [`AgentDefinition`] is written in code, built with checks by an [`AgentBuilder`], or read from a file in the format of Claude
//! Code, Codex, OpenCode and others (`AgentFiles`, with the feature `tools`). The [`Registry`] of a [`Homing`](crate::Homing) lists
//! all of them. An agent whose tools include `delegate` starts other agents of the registry; their results return to it as the
//! results of its calls.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use homing::{AgentBuilder, Homing, Limits, Task, model_fn, testing::say};
//!
//! let reviewer = AgentBuilder::new("reviewer")
//!     .description("Reviews changes")
//!     .prompt("Report what is wrong, the worst first.")
//!     .tools(["read", "grep", "bash(git log *)"])
//!     .limits(Limits::default().turns(20))
//!     .build()?;
//! let homing = Homing::builder().agent(reviewer).own_model(model_fn("demo/m", |_| Ok(say("Fine.")))).build()?;
//! assert_eq!(homing.registry().names().collect::<Vec<_>>(), ["reviewer"]);
//! assert_eq!(homing.spawn(Task::new("reviewer", "look"))?.await.output, "Fine.");
//! # Ok(())
//! # }
//! ```

#[doc(no_inline)]
pub use crate::{
    AgentBuildError, AgentBuilder, AgentDefinition, Isolation, ModelChoice, OnFailure, PermissionMode, Registry, Scope,
};
#[cfg(feature = "tools")]
#[doc(no_inline)]
pub use crate::{AgentFiles, CodingSetup, NoAgent};
pub use homing_core::{
    definition::{
        ContextSettings, ExecutionSettings, Inherit, Integrations, MemoryScope, ModelSettings, Source, TaskDefaults,
        ToolRules,
    },
    registry::{RegistryEntry, UnknownAgent},
    skill::{Skill, SkillCard, SkillLibrary, SkillSettings},
};
#[cfg(feature = "tools")]
pub use homing_load::{ParseOptions, Places};
#[cfg(feature = "tools")]
pub use homing_tools::{toolset::ToolsConfig, trust::TrustStore};
