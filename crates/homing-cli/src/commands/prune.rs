//! `homing prune`: deletes old runs.

use homing_runtime::journal::sqlite::Retention;

use crate::{
    cli::journal::PruneArgs,
    exit::{Exit, Trouble},
    progress::figures,
    terminal,
};

pub(crate) async fn run(args: &PruneArgs) -> anyhow::Result<Exit> {
    let journal = super::runs::open(&args.journal)?;
    let keep = Retention { age: args.older_than, bytes: args.max_size };
    let pruned = journal.prune(keep).await.map_err(Trouble::from)?;
    for tree in &pruned.unreadable {
        terminal::say(&format!("warning: cannot read {tree}, so it was kept; `homing doctor --journal` shows why"));
    }
    let (trees, size) = (figures::count(pruned.trees, "run"), pruned.bytes as f64 / 1e6);
    terminal::say(&format!("{trees} deleted; the journal has {size:.1} MB"));
    Ok(Exit::Done)
}
