//! Measures loading many agents: generated files in one folder, read and parsed from disk.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::{fs, path::Path};

use criterion::{Criterion, criterion_group, criterion_main};
use homing_load::{ParseOptions, Places, discover};
use tempfile::TempDir;

/// A project with `count` agents of typical size: about 300 bytes of front matter and 2 KB of prompt.
fn project(count: usize) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    let agents = folder.path().join(".claude/agents");
    fs::create_dir_all(&agents).expect("a folder");
    (0..count).for_each(|index| write(&agents, index));
    folder
}

fn write(agents: &Path, index: usize) {
    let description = "Reviews changes for correctness, security and style; use it proactively after every change to code \
                       that others depend on, and before anything is merged into the main branch.";
    let front = format!(
        "name: agent-{index}\ndescription: {description}\ntools: Read, Grep, Glob, Bash, Write\nmodel: sonnet\ncolor: blue\n"
    );
    let prompt = "You look at code with care. Say what is wrong, where, and how to mend it.\n".repeat(27);
    fs::write(agents.join(format!("agent-{index}.md")), format!("---\n{front}---\n\n{prompt}")).expect("a file");
}

fn load(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("discover");
    group.sample_size(10);
    for count in [1_000, 10_000] {
        let folder = project(count);
        let places = Places::new(folder.path());
        group.bench_function(format!("{count} files"), |bencher| {
            bencher.iter(|| {
                let loaded = discover(&places, &ParseOptions::default());
                assert!(loaded.registry.len() >= count && loaded.diagnostics.is_empty());
                loaded
            });
        });
    }
}

criterion_group!(benches, load);
criterion_main!(benches);
