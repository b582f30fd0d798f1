//! Tests of teams, as one program, because linking each file of them takes longer than running it.

mod chat;
mod choices;
mod crew;
mod examples;
mod failures;
mod files;
mod forks;
mod graph;
mod orchestrator_and_map;
mod person;
mod pictures_and_plans;
mod ported;
mod recorded;
mod scripts;
mod second_turn;
mod support;
