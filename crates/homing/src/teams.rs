//! Teams: agents that work together by a fixed pattern instead of a model's decisions.
//!
//! A [`Team`] is an agent whose model is a program: a [`Crew`] of tasks with dependencies, a [`Chat`], a [`Graph`] over shared state,
//! a [`Map`] over a list, an [`Orchestrator`] with workers, or, with the feature `scripts`, a workflow [`Script`]. Any agent can delegate to it, and teams can be members of teams. Its
//! members run, are limited and resume like all other runs. Its functions and tools belong to its own members: no other agent can
//! call them.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use homing::{
//!     AgentDefinition, Homing, Replay, Task, model_fn,
//!     teams::{Edge, FieldType, Graph, Node, Reducer, Team, function},
//!     testing::{last_words, say},
//! };
//! use serde_json::json;
//!
//! let graph = Graph::starting_at("count")
//!     .field("words", FieldType::Any, Reducer::Replace, 0)
//!     .node(Node::tool("count", "count", json!({"text": "{{ task }}"})).writes("words"))
//!     .node(Node::agent("report", "writer", "There are {{ state.words }} words."))
//!     .edge(Edge::new("count", "report"));
//! let count = function("count", Replay::Safe, |args| {
//!     Ok(json!(args["text"].as_str().unwrap_or_default().split_whitespace().count()))
//! });
//! let homing = Homing::builder()
//!     .agent(AgentDefinition::new("writer", "Writes", "Write."))
//!     .team(Team::new("counter", graph).tool(count))
//!     .own_model(model_fn("demo/echo", |request| Ok(say(last_words(&request)))))
//!     .build()?;
//! let result = homing.spawn(Task::new("counter", "one two three"))?.await;
//! assert_eq!(result.output, "There are 3 words.");
//! # Ok(())
//! # }
//! ```

#[doc(no_inline)]
pub use crate::{Chat, Crew, CrewTask, Graph, Map, Orchestrator, Team, TeamResult};
pub use homing_teams::{
    ChatMessage, Edge, Execution, FieldType, LimitFields, LoadedTeam, MapResult, NextSpeaker, Node, OnTaskFailure,
    Pattern, Process, Reduce, Reducer, Script, Several, SpeakerRule, StateField, TaskCheck, Work, function, load,
    map_results,
};
