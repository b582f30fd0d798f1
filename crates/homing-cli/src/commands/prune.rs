//! `homing prune`: deletes old runs, or shows which ones it would delete.

use homing_core::short_id::short_id;
use homing_runtime::journal::sqlite::{Pruned, Retention};
use serde_json::json;

use crate::{
    cli::journal::PruneArgs,
    commands::{
        restate::prune::{self as on_servers, Mode, ServerPruned},
        which_run,
    },
    exit::{Exit, Trouble, print},
    progress::figures,
    terminal,
};

pub(crate) async fn run(args: &PruneArgs) -> anyhow::Result<Exit> {
    let journal = super::runs::open(&args.journal)?;
    let keep = Retention { age: args.older_than, bytes: args.max_size };
    if args.json {
        let pruned = if args.dry_run { journal.prunable(keep).await } else { journal.prune(keep).await }
            .map_err(Trouble::from)?;
        let mode = if args.dry_run { Mode::Look } else { Mode::Delete };
        let servers = on_servers::prune(&journal, &pruned.trees, mode).await?;
        let Pruned { trees, unreadable, bytes, floor, .. } = pruned;
        let dry_run = args.dry_run;
        print(&terminal::json(
            &json!({"dry_run": dry_run, "trees": trees, "unreadable": unreadable, "bytes": bytes, "floor": floor, "servers": servers}),
        ))?;
        return Ok(Exit::Done);
    }
    if args.dry_run {
        let pruned = journal.prunable(keep).await.map_err(Trouble::from)?;
        for tree in &pruned.trees {
            print(&which_run::described_by_id(&journal, *tree))?;
        }
        say_floor(&pruned);
        let (trees, size) = (figures::count(pruned.trees.len() as u64, "run"), megabytes(pruned.bytes));
        terminal::say(&format!("{trees} would be deleted; the journal would have about {size}"));
        say_servers(&on_servers::prune(&journal, &pruned.trees, Mode::Look).await?, "would be deleted");
        return Ok(Exit::Done);
    }
    let pruned = journal.prune(keep).await.map_err(Trouble::from)?;
    for tree in &pruned.unreadable {
        let run = short_id(*tree);
        terminal::say(&format!("warning: cannot read run {run}, so it was kept; `homing doctor --journal` shows why"));
    }
    say_floor(&pruned);
    let (trees, size) = (figures::count(pruned.trees.len() as u64, "run"), megabytes(pruned.bytes));
    terminal::say(&format!("{trees} deleted; the journal has {size}"));
    say_servers(&on_servers::prune(&journal, &pruned.trees, Mode::Delete).await?, "deleted");
    Ok(Exit::Done)
}

/// Says what was deleted from servers, and what was not.
fn say_servers(servers: &[ServerPruned], done: &str) {
    for ServerPruned { server, trees, error } in servers {
        if !trees.is_empty() {
            let trees = figures::count(trees.len() as u64, "run");
            terminal::say(&format!("{trees} {done} on the Restate server at {server}"));
        }
        if let Some(error) = error {
            terminal::say(&format!(
                "warning: runs are kept on the Restate server at {server}, until the next `homing prune`: {error}"
            ));
        }
    }
}

/// Warns if the size cannot be reached.
fn say_floor(pruned: &Pruned) {
    if let Some(floor) = pruned.floor {
        let floor = megabytes(floor);
        terminal::say(&format!(
            "warning: --max-size cannot be reached, because results, totals and open runs need {floor}: only --older-than counts"
        ));
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
