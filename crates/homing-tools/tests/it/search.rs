//! Searching with `grep`, `glob`, `ls` and `tree`: stable order, ignore files respected, bounded output.

use crate::tool_fixture::ToolFixture;
use homing_tools::toolset::{ToolsConfig, files_tools};
use serde_json::json;

fn fixture() -> ToolFixture {
    let fixture = ToolFixture::new(files_tools(ToolsConfig::default()));
    fixture.file(".gitignore", "target/\n*.log\n");
    fixture.file("target/out.rs", "fn needle() {}\n");
    fixture.file("noise.log", "needle\n");
    fixture.file(".git/config", "needle\n");
    fixture.file(".github/ci.yml", "needle: yes\n");
    fixture.file("src/main.rs", "// one\nfn main() {}\n// NEEDLE\nfn needle() {}\n// five\n");
    fixture.file("src/deep/b.rs", "needle\nneedle\n");
    fixture.file("docs/a.md", "a needle in a haystack\n");
    fixture.file("picture.bin", b"needle\0needle\n");
    fixture
}

#[tokio::test]
async fn grep_sorts_by_path_and_leaves_out_ignored_files() {
    let fixture = fixture();
    let run = fixture.run();
    let found = run.ok("grep", json!({"pattern": r"needle\b"})).await;
    let expected = ".github/ci.yml:1:needle: yes\ndocs/a.md:1:a needle in a haystack\nsrc/deep/b.rs:1:needle\n\
                    src/deep/b.rs:2:needle\nsrc/main.rs:4:fn needle() {}\n";
    assert_eq!(found, expected);
    let same = run.ok("grep", json!({"query": r"needle\b", "path": "."})).await;
    assert_eq!(same, expected);
    let below = run.ok("grep", json!({"regex": "needle", "path": "src", "glob": "*.rs", "-i": true})).await;
    assert_eq!(below.lines().count(), 4, "{below}");
    assert!(below.starts_with("src/deep/b.rs:1:"));
    let single = run.ok("grep", json!({"pattern": "needle", "path": "src/main.rs"})).await;
    assert_eq!(single, "src/main.rs:4:fn needle() {}\n");
}

#[tokio::test]
async fn grep_shows_context_counts_and_names() {
    let fixture = fixture();
    let run = fixture.run();
    let context = run.ok("grep", json!({"pattern": "NEEDLE", "context": 1})).await;
    assert_eq!(context, "src/main.rs-2-fn main() {}\nsrc/main.rs:3:// NEEDLE\nsrc/main.rs-4-fn needle() {}\n");
    let counts = run.ok("grep", json!({"pattern": "needle", "output_mode": "count", "path": "src"})).await;
    assert_eq!(counts, "src/deep/b.rs:2\nsrc/main.rs:1\n");
    let names = run.ok("grep", json!({"pattern": "needle", "mode": "files_with_matches", "path": "src"})).await;
    assert_eq!(names, "src/deep/b.rs\nsrc/main.rs\n");
    assert_eq!(run.ok("grep", json!({"pattern": "nowhere to be found"})).await, "no matches\n");
    assert_eq!(run.ok("grep", json!({"pattern": "main() {", "fixed": true})).await, "src/main.rs:2:fn main() {}\n");
}

#[tokio::test]
async fn grep_output_is_bounded_and_stable() {
    let fixture = fixture();
    for file in 0..200 {
        fixture.file(&format!("many/{file:03}.txt"), "bulk\n".repeat(50));
    }
    let run = fixture.run();
    let first = run.ok("grep", json!({"pattern": "bulk", "limit": 120})).await;
    assert_eq!(first.lines().count(), 121);
    assert!(first.contains("\nmany/002.txt:20:bulk\n… 9880 more matches (10000 in total, in 200 files)"), "{first}");
    for _ in 0..5 {
        assert_eq!(run.ok("grep", json!({"pattern": "bulk", "limit": 120})).await, first);
    }
    let files = run.ok("grep", json!({"pattern": "bulk", "mode": "files", "limit": 10})).await;
    assert!(files.contains("many/009.txt\n… 190 more files"), "{files}");
    fixture.file("line.txt", format!("start{}", "x".repeat(3_000_000)));
    let line = run.ok("grep", json!({"pattern": "^start"})).await;
    assert!(line.len() < 1_000);
}

#[tokio::test]
async fn t10_hostile_patterns_finish_quickly() {
    let fixture = fixture();
    fixture.file("as.txt", "a".repeat(50_000));
    let run = fixture.run();
    assert!(run.refused("grep", json!({"pattern": "(a{1000}){1000}{1000}"})).await.contains("pattern"));
    assert!(run.refused("grep", json!({"pattern": "(".repeat(5_000)})).await.contains("`fixed`"));
    run.ok("grep", json!({"pattern": "(a*)*b"})).await;
    run.ok("grep", json!({"pattern": "(a|a)*(a|a)*c"})).await;
    run.ok("glob", json!({"pattern": "**/".repeat(100) + "x"})).await;
    run.ok("glob", json!({"pattern": "{a,b}".repeat(30)})).await;
    run.refused("glob", json!({"pattern": "{a,".repeat(1_000)})).await;
    run.refused("glob", json!({"pattern": "[a"})).await;
    run.refused("glob", json!({"pattern": "../*"})).await;
    run.refused("glob", json!({"pattern": "/etc/*"})).await;
}

#[tokio::test]
async fn glob_finds_files_by_name_or_age() {
    let fixture = fixture();
    let run = fixture.run();
    assert_eq!(run.ok("glob", json!({"pattern": "*.rs"})).await, "src/deep/b.rs\nsrc/main.rs\n");
    assert_eq!(run.ok("glob", json!({"pattern": "*.rs", "path": "src/deep"})).await, "src/deep/b.rs\n");
    assert_eq!(run.ok("glob", json!({"pattern": "src/*.rs"})).await, "src/main.rs\n");
    let absolute = fixture.root().join("src/**/*.rs");
    assert_eq!(run.ok("glob", json!({"pattern": absolute.to_str().unwrap()})).await.lines().count(), 2);
    assert_eq!(run.ok("glob", json!({"pattern": "*.zip"})).await, "no files match\n");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(9_000);
    std::fs::File::open(fixture.root().join("src/deep/b.rs")).unwrap().set_modified(old).unwrap();
    assert_eq!(run.ok("glob", json!({"pattern": "*.rs", "sort": "mtime"})).await, "src/main.rs\nsrc/deep/b.rs\n");
    assert_eq!(run.ok("glob", json!({"pattern": "*.rs", "limit": 1})).await.lines().count(), 2);
}

#[tokio::test]
async fn ls_and_tree_show_folders() {
    let fixture = fixture();
    let run = fixture.run();
    let listed = run.ok("ls", json!({})).await;
    assert_eq!(
        listed,
        ".git/\n.github/\n.gitignore (14 bytes)\ndocs/\nnoise.log (7 bytes)\npicture.bin (14 bytes)\nsrc/\ntarget/\n"
    );
    let tree = run.ok("tree", json!({"depth": 2})).await;
    assert_eq!(tree, ".github/\n  ci.yml\n.gitignore\ndocs/\n  a.md\npicture.bin\nsrc/\n  deep/\n  main.rs\n");
    assert!(run.refused("ls", json!({"path": "src/main.rs"})).await.contains("is a file"));
    for file in 0..1_100 {
        fixture.file(&format!("many/{file}"), "");
    }
    assert!(run.ok("ls", json!({"path": "many"})).await.ends_with("… 100 more: `glob` finds files by name\n"));
    assert_eq!(run.ok("tree", json!({"path": "many"})).await.lines().count(), 1_001);
}
