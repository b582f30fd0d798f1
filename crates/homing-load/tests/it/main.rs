//! Tests of loading, as one program, because linking each file of them takes longer than running it.

mod convert;
mod corpus;
mod dialects;
mod discovery;
mod field_table;
mod file_references;
mod fixes;
mod front_matter;
mod generated;
mod hostile_files;
mod hostile_yaml;
mod meaning;
mod mini_fuzz;
mod misspelt_restrictions;
mod offered;
mod opencode_permissions;
mod partial_tools;
mod show;
mod skills;
