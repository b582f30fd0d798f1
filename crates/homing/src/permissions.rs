//! Permissions: what agents may do, and who is asked.
//!
//! [`Permissions`] bound all agents of a [`Homing`](crate::Homing): rules such as `bash(git log *)` allow, deny or require approval,
//! and folders, network and [`Sandbox`] bound what tools and commands can touch. An agent's own definition, its parent's authority
//! and a task's [`Grant`] each can only narrow them. A call that needs approval asks the [`PermissionHandler`]; the [`Question`]
//! names the agent, the tool and the arguments. Without a handler the call is denied, or the question waits until any process
//! answers it ([`OnQuestion::Park`]).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use homing::{
//!     AgentDefinition, Answer, Homing, Permissions, Question, Replay, Task, ask_fn, model_fn, testing::{call, last_words, say}, tool_fn,
//! };
//! use serde_json::{Value, json};
//!
//! let decide = |question: Question| async move {
//!     let call = question.call;
//!     if call.tool == "deploy" && call.args["to"] == "staging" { Answer::Yes } else { Answer::No }
//! };
//! let homing = Homing::builder()
//!     .agent(AgentDefinition::new("releaser", "Releases", "Deploy."))
//!     .tool(tool_fn("deploy", "Deploys.", Replay::Unsafe, |_, _: Value| async { Ok("deployed".to_owned()) }))
//!     .own_model(model_fn("demo/m", |request| {
//!         Ok(if request.messages.len() == 1 { call([("deploy", json!({"to": "production"}))]) } else { say(last_words(&request)) })
//!     }))
//!     .permissions(Permissions::default().ask(["deploy"]))
//!     .on_ask(ask_fn(decide))
//!     .build()?;
//! let result = homing.spawn(Task::new("releaser", "release"))?.await;
//! assert_eq!(result.output, "denied: deploy: the user declined");
//! # Ok(())
//! # }
//! ```

#[doc(no_inline)]
pub use crate::{
    Allow, Answer, AnswerError, Grant, IntoRule, Layer, Network, OnQuestion, OpenQuestion, PendingApproval,
    PermissionHandler, PermissionMode, Permissions, Question, QuestionId, QuestionKind, RequestedCall, Rule, Sandbox,
    ask_fn,
};
pub use homing_core::{authority::Decision, question::UnclearAnswer, rule::RuleError};
#[cfg(feature = "shell")]
pub use homing_sandbox::SandboxOptions;
