//! Reading, writing and editing: the output for the model, and the files on disk.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use crate::tool_fixture::ToolFixture;
use homing_core::{authority::Layer, tool::Replay};
use homing_tools::toolset::{ToolsConfig, files_tools};
use serde_json::json;

fn fixture() -> ToolFixture {
    ToolFixture::new(files_tools(ToolsConfig::default()))
}

#[tokio::test]
async fn read_numbers_lines_and_pages() {
    let fixture = fixture();
    fixture.file("a.txt", "one\ntwo\r\nthree");
    let run = fixture.run();
    assert_eq!(run.ok("read", json!({"path": "a.txt"})).await, "     1\tone\n     2\ttwo\n     3\tthree\n");
    let page = run.ok("read", json!({"file_path": "a.txt", "offset": 2.0, "limit": "1"})).await;
    assert_eq!(page, "     2\ttwo\n… [lines 2 to 2 shown; continue with offset=3]");
    fixture.file("empty", "");
    assert_eq!(run.ok("read", json!({"path": "empty"})).await, "(empty is empty)");
}

#[tokio::test]
async fn t11_read_rejects_unreadable_files_with_a_reason() {
    let fixture = fixture();
    fixture.file("binary", b"ab\0cd");
    fixture.file("latin1", b"caf\xe9\n");
    fixture.file("utf16", b"\xff\xfea\0");
    fixture.file("short", "1\n2\n");
    std::fs::create_dir(fixture.root().join("folder")).unwrap();
    let run = fixture.run();
    let why = async |path: &str| run.refused("read", json!({"path": path, "offset": 1})).await;
    assert!(why("binary").await.contains("NUL"));
    assert!(why("latin1").await.contains("not UTF-8"));
    assert!(why("utf16").await.contains("UTF-16"));
    assert!(why("folder").await.contains("`ls`"));
    assert!(why("missing").await.contains("does not exist"));
    let beyond = run.refused("read", json!({"path": "short", "offset": 9})).await;
    assert_eq!(beyond, "short has only 2 lines; line 9 does not exist");
}

#[tokio::test]
async fn t11_sparse_file_of_10_gb_is_cheap_to_read() {
    let fixture = fixture();
    let path = fixture.file("huge", "");
    std::fs::File::options().write(true).open(&path).unwrap().set_len(10 << 30).unwrap();
    let text = fixture.file("text", "line\n".repeat(100_000));
    std::fs::File::options().write(true).open(&text).unwrap().set_len(10 << 30).unwrap();
    let run = fixture.run();
    assert!(run.refused("read", json!({"path": "huge"})).await.contains("NUL"));
    assert!(run.ok("read", json!({"path": "text"})).await.len() < 300 * 1024);
    run.refused("read", json!({"path": "text", "offset": 200_000_000})).await;
}

#[tokio::test]
async fn long_lines_and_long_files_are_cut() {
    let fixture = fixture();
    fixture.file("line", "é".repeat(5_000_000));
    fixture.file("lines", format!("{}\n", "y".repeat(1_000)).repeat(1_500));
    let run = fixture.run();
    let line = run.ok("read", json!({"path": "line"})).await;
    assert!(line.len() < 10_000 && line.contains("more bytes in this line"), "{}", line.len());
    let lines = run.ok("read", json!({"path": "lines"})).await;
    assert!(lines.len() < 300 * 1024 && lines.contains("continue with offset="));
}

#[tokio::test]
async fn pdf_files_are_returned_with_their_pages() {
    let fixture = fixture();
    let document = |pages: usize| format!("%PDF-1.4\n<</Type/Pages>>{}\0", "<</Type/Page>>".repeat(pages));
    fixture.file("a.pdf", document(3));
    fixture.file("hidden.pdf", "%PDF-1.7\n\0");
    fixture.file("long.pdf", document(101));
    let run = fixture.run();
    let output = run.call("read", json!({"path": "a.pdf"})).await;
    assert_eq!((output.images[0].media_type.as_str(), output.images[0].pages), ("application/pdf", Some(3)));
    assert!(output.text.starts_with("a.pdf (application/pdf, 3 pages, "), "{}", output.text);
    let hidden = run.call("read", json!({"path": "hidden.pdf"})).await;
    assert_eq!(hidden.images[0].pages, Some(100), "the most that it can be");
    assert!(run.refused("read", json!({"path": "long.pdf"})).await.contains("has 101 pages; at most 100"));
}

#[tokio::test]
async fn images_are_returned() {
    let fixture = fixture();
    fixture.file("a.png", b"\x89PNG\r\n\x1a\n....");
    let output = fixture.run().call("read", json!({"path": "a.png"})).await;
    assert_eq!(output.images[0].media_type, "image/png");
    assert!(!output.is_error);
}

#[tokio::test]
async fn edit_shows_its_diff_and_keeps_crlf_bom_and_mode() {
    let fixture = fixture();
    let path = fixture.file("a.sh", "\u{feff}one\r\ntwo\r\nthree\r\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
    let run = fixture.run();
    run.ok("read", json!({"path": "a.sh"})).await;
    let diff = run.ok("edit", json!({"path": "a.sh", "edits": [{"old": "one\ntwo", "new": "one\nzwei\ndrei"}]})).await;
    assert_eq!(fixture.content("a.sh"), "\u{feff}one\r\nzwei\r\ndrei\r\nthree\r\n");
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o750);
    assert!(diff.contains("-two") && diff.contains("+zwei"), "{diff}");
}

#[test]
fn question_shows_the_change_as_a_diff() {
    let mut fixture = fixture();
    fixture.file("a.txt", "one\ntwo\n");
    fixture.file("secret.txt", "hidden\n");
    let deny = vec!["read(secret.txt)".parse().unwrap()];
    fixture.grant = fixture.grant.under(Layer::everything("test").deny(deny));
    let run = fixture.run();
    let preview = |tool: &str, args| run.tool(tool).preview(&run.context, &args);
    let edited = preview("edit", json!({"path": "a.txt", "old": "two", "new": "zwei"})).unwrap();
    assert!(edited.contains("-two\n+zwei") && !edited.contains("-one"), "{edited}");
    let replaced = preview("write", json!({"path": "a.txt", "content": "one\nthree\n"})).unwrap();
    assert!(replaced.contains("-two\n+three"), "{replaced}");
    assert!(preview("write", json!({"path": "new.txt", "content": "x"})).unwrap().contains("+x"));
    let closed = preview("write", json!({"path": "secret.txt", "content": "x"})).unwrap();
    assert!(!closed.contains("hidden"), "{closed}");
    assert_eq!(preview("edit", json!({"path": "a.txt", "old": "missing", "new": "x"})), None);
    assert_eq!(preview("read", json!({"path": "a.txt"})), None);
    assert_eq!(fixture.content("a.txt"), "one\ntwo\n", "nothing is written");
}

#[tokio::test]
async fn diff_counts_lines_from_the_start_of_the_file() {
    let fixture = fixture();
    let lines: String = (1..=100).map(|at| format!("line {at}\n")).collect();
    fixture.file("a", lines);
    let diff = fixture.run().ok("edit", json!({"path": "a", "old_string": "line 50\n", "new_string": "fifty\n"})).await;
    let expected = "--- a\n+++ a\n@@ -47,7 +47,7 @@\n line 47\n line 48\n line 49\n-line 50\n+fifty\n line 51\n line 52\n line 53\n";
    assert_eq!(diff, expected);
}

#[tokio::test]
async fn edits_are_applied_in_order_all_or_none() {
    let fixture = fixture();
    fixture.file("a", "a b c");
    let run = fixture.run();
    run.ok("edit", json!({"path": "a", "edits": [{"old": "a", "new": "x"}, {"old": "x b", "new": "y"}]})).await;
    assert_eq!(fixture.content("a"), "y c");
    let why =
        run.refused("edit", json!({"path": "a", "edits": [{"old": "y", "new": "z"}, {"old": "q", "new": ""}]})).await;
    assert!(why.contains("edit 2 of 2") && why.contains("nothing was changed"), "{why}");
    assert_eq!(fixture.content("a"), "y c");
}

#[tokio::test]
async fn t9_meaningless_edits_are_rejected() {
    let fixture = fixture();
    fixture.file("a", "x x\n    indented line\n");
    let run = fixture.run();
    let why = async |old: &str, new: &str| run.refused("edit", json!({"path": "a", "old": old, "new": new})).await;
    assert!(why("", "b").await.contains("empty"));
    assert!(why("x", "x").await.contains("are the same"));
    assert!(why("x", "y").await.contains("2 times"));
    assert!(why("  indented line\nmore", "y").await.contains("near line 2"));
    run.ok("edit", json!({"path": "a", "old_str": "x", "new_str": "y", "replace_all": true})).await;
    assert!(fixture.content("a").starts_with("y y"));
    fixture.file("many", "ab".repeat(1_000_000));
    run.ok("edit", json!({"path": "many", "old": "a", "new": "c", "all": "true"})).await;
    assert!(fixture.content("many").starts_with("cbcb"));
    let why = run.refused("edit", json!({"path": "many", "old": "c", "new": "z".repeat(100_000), "all": true})).await;
    assert!(why.contains("too large"));
}

#[tokio::test]
async fn file_changed_since_read_is_not_edited_or_overwritten() {
    let fixture = fixture();
    fixture.file("a", "one");
    let run = fixture.run();
    run.ok("read", json!({"path": "a"})).await;
    fixture.file("a", "two");
    assert!(run.refused("edit", json!({"path": "a", "old": "two", "new": "x"})).await.contains("changed since"));
    assert!(run.refused("write", json!({"path": "a", "content": "x"})).await.contains("changed since"));
    assert_eq!(fixture.content("a"), "two");
    run.ok("read", json!({"path": "a"})).await;
    run.ok("write", json!({"path": "a", "content": "x"})).await;
    run.ok("edit", json!({"path": "a", "old": "x", "new": "y"})).await;
    run.ok("write", json!({"path": "a", "content": "z"})).await;
    assert_eq!(fixture.content("a"), "z");
}

#[tokio::test]
async fn parallel_runs_do_not_overwrite_each_other() {
    let fixture = fixture();
    let (first, second) = (fixture.run(), fixture.run());
    first.ok("write", json!({"path": "a", "content": "first"})).await;
    let why = second.refused("write", json!({"path": "a", "content": "second"})).await;
    assert!(why.contains("agent tester"), "{why}");
    second.ok("read", json!({"path": "a"})).await;
    second.ok("write", json!({"path": "a", "content": "second"})).await;
    assert!(first.refused("edit", json!({"path": "a", "old": "second", "new": "x"})).await.contains("changed since"));
    assert_eq!(fixture.content("a"), "second");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn only_one_of_many_concurrent_creators_of_a_file_wins() {
    let fixture = fixture();
    for round in 0..20 {
        let runs: Vec<_> = (0..8).map(|_| fixture.run()).collect();
        let path = format!("race-{round}");
        let calls = runs.iter().enumerate().map(|(at, run)| {
            let (tool, context) = (run.tool("write").clone(), run.context.clone());
            let args = json!({"path": path, "content": format!("run {at}")});
            tokio::spawn(async move { tool.call(&context, args).await })
        });
        let mut won = Vec::new();
        for (at, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
            if !call.await.unwrap().is_error {
                won.push(at);
            }
        }
        assert_eq!(won.len(), 1, "round {round}");
        assert_eq!(fixture.content(&path), format!("run {}", won[0]));
    }
    let left: Vec<_> = std::fs::read_dir(fixture.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 20, "temporary files were left: {left:?}");
}

#[tokio::test]
async fn write_creates_folders_and_follows_links_inside() {
    let fixture = fixture();
    let run = fixture.run();
    run.ok("write", json!({"path": "a/b/c.txt", "content": "c\n"})).await;
    assert_eq!(fixture.root().join("a/b/c.txt").metadata().unwrap().mode() & 0o133, 0);
    symlink("a/b/c.txt", fixture.root().join("link")).unwrap();
    run.ok("write", json!({"path": "link", "content": "d\n"})).await;
    assert_eq!(fixture.content("a/b/c.txt"), "d\n");
    assert!(fixture.root().join("link").symlink_metadata().unwrap().is_symlink());
    let why = run.refused("edit", json!({"path": "nope", "old": "a", "new": "b"})).await;
    assert!(why.contains("`write`"));
}

#[tokio::test]
async fn t12_large_content_and_folders_are_not_written() {
    let fixture = fixture();
    std::fs::create_dir(fixture.root().join("folder")).unwrap();
    let run = fixture.run();
    assert!(run.refused("write", json!({"path": "folder", "content": ""})).await.contains("is a folder"));
    let why = run.refused("write", json!({"path": "big", "content": "x".repeat(33 << 20)})).await;
    assert!(why.contains("at most"));
    assert!(!fixture.root().join("big").exists());
}

#[tokio::test]
async fn t1_t3_t4_t7_t14_bad_arguments_get_a_helpful_message() {
    let fixture = fixture();
    fixture.file("a", "x");
    let run = fixture.run();
    let cases = [
        ("read", json!(["a"]), "must be a JSON object"),
        ("read", json!("a"), "must be a JSON object"),
        ("read", json!(null), "missing field `path`"),
        ("read", json!({"path": 7}), "argument `path`"),
        ("read", json!({"path": "a", "offset": -1}), "argument `offset`: -1 is not a whole number"),
        ("read", json!({"path": "a", "limit": 1.5}), "argument `limit`"),
        ("read", json!({"path": "a", "limit": {"a": 1}}), "argument `limit`"),
        ("read", json!({"path": "a", "file_path": "b"}), "duplicate field `path`"),
        ("edit", json!({"path": "a", "edits": [{"old": "x"}]}), "argument `edits[0]`: missing field `new`"),
        ("edit", json!({"path": "a"}), "`edits` is missing"),
        ("edit", json!({"path": "a", "old": "x"}), "`new` is missing"),
        ("grep", json!({"pattern": "x", "mode": "everything"}), "argument `mode`: unknown variant"),
        ("todo", json!({"items": [{"text": 3}]}), "argument `items[0]`"),
    ];
    for (tool, args, expected) in cases {
        let why = run.refused(tool, args.clone()).await;
        assert!(why.contains(expected), "{tool} {args}: {why}");
        assert!(why.contains("xample"), "{tool} {args}: {why}");
    }
    let why = run.refused("read", json!({"path": "a", "offset": 1e15, "unknown": true})).await;
    assert!(why.contains("has only 1 lines"), "{why}");
}

#[test]
fn every_tool_has_a_replay_policy_and_a_plain_schema() {
    for tool in fixture().tools {
        let spec = tool.spec();
        let expected = if matches!(spec.name.as_str(), "write" | "edit") { Replay::Unsafe } else { Replay::Safe };
        assert_eq!(spec.replay, expected, "{}", spec.name);
        assert_eq!(spec.schema["type"], "object", "{}", spec.name);
        let text = spec.schema.to_string();
        for keyword in ["$schema", "$defs", "\"title\"", "\"format\"", "null", "oneOf", "anyOf"] {
            assert!(!text.contains(keyword), "{}: {text}", spec.name);
        }
        assert!(spec.description.len() > 60, "{}", spec.name);
    }
}

#[test]
fn schemas_show_the_canonical_arguments() {
    let fixture = fixture();
    let run = fixture.run();
    let grep = &run.tool("grep").spec().schema;
    assert_eq!(grep["properties"]["mode"]["enum"], json!(["content", "files", "count"]));
    assert_eq!(grep["required"], json!(["pattern"]));
    let edit = &run.tool("edit").spec().schema;
    let names: Vec<_> = edit["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["path", "edits"]);
    assert_eq!(edit["properties"]["edits"]["items"]["required"], json!(["old", "new"]));
    let todo = &run.tool("todo").spec().schema["properties"]["items"]["items"];
    assert_eq!(todo["properties"]["status"]["enum"], json!(["pending", "in_progress", "done", "cancelled"]));
}
