//! Teams of agents: orchestrator, crew, chat, graph, map, workflow script. A team is an ordinary run whose model is a program;
//! this crate has no scheduler of its own and does not access files, providers or terminals.
//!
//! A program is a pure function from the transcript to the next reply: it delegates, and in the end it answers. So every
//! member is a run with a place in the tree, under the team's limits, in the journal. A team that was killed resumes where
//! it was, because its next step depends only on the transcript.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod chat;
mod check;
mod code;
mod crew;
mod diagram;
mod failed;
mod file;
mod function;
mod graph;
mod history;
mod install;
mod limit_fields;
mod map;
mod memory;
mod mermaid;
mod orchestrator;
mod person;
mod plan;
mod program;
mod recorded;
mod references;
mod result;
mod roles;
mod script;
mod set_values;
mod shell_template;
mod source;
mod team;
mod template;
mod yaml_positions;

pub use chat::{Chat, ChatMessage, NextSpeaker, SpeakerRule};
pub use crew::{Crew, CrewTask, OnTaskFailure, Process, check::TaskCheck};
pub use diagram::{Diagram, DiagramEdge, DiagramNode, diagram};
pub use file::{LoadedTeam, load, schema};
pub use function::function;
pub use graph::{Edge, FieldType, FirstOf, Graph, Node, Reducer, Several, StateField, Work};
pub use install::{TeamModels, install, install_beside, is_program, is_team_agent};
pub use limit_fields::LimitFields;
pub use map::{Map, MapResult, Reduce, map_results};
pub use mermaid::mermaid;
pub use orchestrator::Orchestrator;
pub use plan::{Plan, Planned, plan};
pub use recorded::{install_recorded, recorded, recorded_in, set_member_model};
pub use result::{Execution, TeamResult, is_team};
pub use script::Script;
pub use set_values::with_values;
pub use team::{Member, MemberFailure, Pattern, Team};
