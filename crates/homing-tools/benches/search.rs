//! Measures `grep` and `glob` on a generated tree, compared with ripgrep if it is installed, and `read` and `edit` of a
//! 10 MB file. Prints medians. Run with `cargo bench -p homing-tools --bench search`.
#![allow(clippy::print_stdout, missing_docs, reason = "prints its results")]

#[path = "../tests/tool_fixture/mod.rs"]
mod tool_fixture;

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use homing_tools::toolset::{ToolsConfig, files_tools};
use serde_json::json;
use tool_fixture::ToolFixture;

const FILES: usize = 20_000;
const ROUNDS: usize = 15;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fixture = ToolFixture::new(files_tools(ToolsConfig::default()));
    plant(&fixture.root());
    let run = fixture.run();
    let call = |tool: &str, args: serde_json::Value| {
        let output = runtime.block_on(run.call(tool, args));
        assert!(!output.is_error, "{}", output.text);
    };
    compare(
        "grep, rare",
        || call("grep", json!({"pattern": "needle_[0-9]+"})),
        &["-n", "needle_[0-9]+"],
        &fixture.root(),
    );
    compare("grep, common", || call("grep", json!({"pattern": "return"})), &["-n", "return"], &fixture.root());
    compare(
        "glob",
        || call("glob", json!({"pattern": "**/*_77.rs"})),
        &["--files", "-g", "**/*_77.rs"],
        &fixture.root(),
    );

    let line = "the quick brown fox jumps over the lazy dog 0123456789\n";
    fixture.file("big.txt", format!("{}unique line\n{}", line.repeat(95_000), line.repeat(95_000)));
    println!(
        "read of a 10 MB file, line 95,000: {:?}",
        median(|| call("read", json!({"path": "big.txt", "offset": 95_000, "limit": 20})))
    );
    let mut flip = false;
    let edit = median(|| {
        flip = !flip;
        let (old, new) = if flip { ("unique line", "changed line") } else { ("changed line", "unique line") };
        call("edit", json!({"path": "big.txt", "old": old, "new": new}));
    });
    println!("edit of a 10 MB file: {edit:?}");
    println!("memory at most: {} MB", peak_memory() / 1024);
}

/// Creates folders of 100 files of 4 KB each, with some folders ignored.
fn plant(root: &Path) {
    for at in 0..FILES {
        let folder = root.join(format!("crate_{}/src", at / 100));
        std::fs::create_dir_all(&folder).unwrap();
        let mut text = String::new();
        for line in 0..80 {
            text.push_str(&format!(
                "    let value_{line} = compute({at}, {line}); if value_{line} > 3 {{ return; }}\n"
            ));
        }
        if at % 500 == 0 {
            text.push_str(&format!("fn needle_{at}() {{}}\n"));
        }
        std::fs::write(folder.join(format!("file_{}.rs", at % 100)), text).unwrap();
    }
    std::fs::write(root.join(".gitignore"), "crate_1*/\n").unwrap();
}

fn compare(name: &str, ours: impl FnMut(), args: &[&str], root: &Path) {
    let ours = median(ours);
    let rg = || {
        Command::new("rg")
            .args(["--hidden", "-g", "!.git", "--no-require-git"])
            .args(args)
            .current_dir(root)
            .stdout(Stdio::null())
            .status()
    };
    if rg().is_err() {
        println!("{name}: {ours:?} (rg is not installed)");
        return;
    }
    let theirs = median(|| drop(rg()));
    println!("{name}: {ours:?}, rg {theirs:?}, ratio {:.2}", ours.as_secs_f64() / theirs.as_secs_f64());
}

fn median(mut work: impl FnMut()) -> Duration {
    work();
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed()
        })
        .collect();
    times.sort();
    times[ROUNDS / 2]
}

fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
