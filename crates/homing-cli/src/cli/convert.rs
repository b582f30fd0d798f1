//! The arguments of `homing convert`.

use std::path::PathBuf;

use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser},
};
use homing_load::convert::targets;

#[derive(Debug, Args)]
#[command(
    after_help = "The file is printed, or written below --out into the folder that the other program reads. The report on stderr says what
becomes of each field: wider (a restriction is lost), dropped, narrower, mapped or kept. A conversion that would allow
an agent more than its file does is refused (exit 4) unless --allow-wider accepts it.

Examples:
  homing convert reviewer --to opencode                  print the file
  homing convert .claude/agents --to gemini --out .      write all agents of a folder into this project
  homing convert reviewer.md --to codex --json           the file and the report as JSON"
)]
pub(crate) struct ConvertArgs {
    /// Agents by name, agent files, or folders.
    #[arg(value_name = "AGENT|FILE|DIR", required = true, add = crate::completion::agent())]
    pub(crate) agents: Vec<String>,
    /// Form to write.
    #[arg(long, value_name = "FORM", value_parser = PossibleValuesParser::new(forms()))]
    pub(crate) to: String,
    /// Folder of a project to write into, instead of stdout.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Overwrite existing files.
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    /// Write nothing; only show the files and the report.
    #[arg(long, requires = "out")]
    pub(crate) dry_run: bool,
    /// Convert even if restrictions are lost.
    #[arg(long)]
    pub(crate) allow_wider: bool,
    /// Print the files and the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The forms by the usual names of their programs.
fn forms() -> Vec<PossibleValue> {
    let value = |name: &'static str| match name {
        "claude-code" => PossibleValue::new("claude").alias("claude-code"),
        "copilot" => PossibleValue::new("copilot").alias("vscode"),
        other => PossibleValue::new(other),
    };
    targets().iter().map(|form| value(form.name())).collect()
}
