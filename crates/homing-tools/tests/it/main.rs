//! Tests of the tools, as one program, because linking each file of them takes longer than running it. Tests that start this program again, or
//! count what it has open, are programs of their own.

mod builds;
mod denied;
mod differential;
mod files;
mod forged_git;
mod gadgets;
mod git;
mod git_only;
mod hooks;
mod isolation;
mod network;
mod paths;
mod protected;
mod sandbox;
mod search;
mod shell;
mod small;
mod web;
mod worktrees;

#[path = "../command_fixture/mod.rs"]
mod command_fixture;
#[path = "../tool_fixture/mod.rs"]
mod tool_fixture;
