//! Teams of agents: orchestrator, crew, chat, graph, map. A team is an ordinary run whose model is a program; this room
//! knows neither files nor providers nor terminals, and it has no engine of its own.
//!
//! A program is a pure function from the transcript to the next reply. It delegates, and it answers in the end. So every
//! member is a run with a place in the tree, under the team's limits, in the journal; and a team that was killed goes on
//! where it was, because what it does next depends on nothing but what was said.

mod chat;
mod check;
mod crew;
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
mod plan;
mod program;
mod references;
mod result;
mod team;
mod template;
mod yaml_positions;

pub use chat::{Chat, NextSpeaker, SpeakerRule};
pub use crew::{Crew, CrewTask, OnFailure, Process};
pub use file::{LoadedTeam, load, schema};
pub use function::function;
pub use graph::{Edge, Field, FieldType, Graph, Node, Reducer, Work};
pub use install::{TeamModels, install, recorded, recorded_in};
pub use limit_fields::LimitFields;
pub use map::{Map, MapResult, Reduce, map_results};
pub use mermaid::mermaid;
pub use orchestrator::Orchestrator;
pub use plan::{Plan, Planned, plan};
pub use result::{Execution, TeamResult};
pub use team::{Member, MemberFailure, Pattern, Team};
