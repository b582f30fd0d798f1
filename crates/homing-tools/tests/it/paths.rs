//! List P of the promises: no path, link or rename leads a file tool out of its roots.

use std::{
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::tool_fixture::ToolFixture;
use homing_core::{
    authority::{Allow, Layer},
    rule::{Rule, Subject, Subjects},
};
use homing_tools::toolset::{ToolsConfig, files_tools};
use serde_json::json;

fn fixture() -> ToolFixture {
    ToolFixture::new(files_tools(ToolsConfig::default()))
}

/// Every file tool refuses `path`, and nothing changes outside.
async fn all_refuse(fixture: &ToolFixture, path: &str) {
    let run = fixture.run();
    let before = std::fs::read(fixture.outside().join("secret")).ok();
    for (tool, args) in [
        ("read", json!({"path": path})),
        ("grep", json!({"path": path, "pattern": "."})),
        ("ls", json!({"path": path})),
        ("tree", json!({"path": path})),
        ("glob", json!({"path": path, "pattern": "*"})),
        ("write", json!({"path": path, "content": "owned"})),
        ("edit", json!({"path": path, "old": "s", "new": "owned"})),
    ] {
        let why = run.refused(tool, args).await;
        assert!(!why.contains("SECRET"), "{tool} {path}: {why}");
    }
    assert_eq!(std::fs::read(fixture.outside().join("secret")).ok(), before, "{path}");
}

#[tokio::test]
async fn p1_p2_p9_t6_paths_outside_the_roots_are_refused() {
    let fixture = fixture();
    std::fs::write(fixture.outside().join("secret"), "SECRET").unwrap();
    std::fs::create_dir(fixture.outside().join("repo-evil")).unwrap();
    std::fs::write(fixture.outside().join("repo-evil/x"), "SECRET").unwrap();
    let evil = fixture.outside().join("repo-evil/x");
    let absolute = fixture.outside().join("secret");
    for path in [
        evil.to_str().unwrap(),
        absolute.to_str().unwrap(),
        "../secret",
        "a/../../secret",
        "./.././secret",
        "/etc/passwd",
        "//etc//passwd",
        "~/x",
        "~",
        "a\0b",
    ] {
        all_refuse(&fixture, path).await;
    }
}

#[tokio::test]
async fn p9_odd_names_are_taken_literally() {
    let fixture = fixture();
    let run = fixture.run();
    for path in ["trailing ", "trailing.", "$HOME", "~user", ".//x", "a//./b"] {
        run.ok("write", json!({"path": path, "content": "x"})).await;
        run.ok("read", json!({"path": path})).await;
    }
    assert!(fixture.root().join("$HOME").exists() && fixture.root().join("~user").exists());
    run.refused("read", json!({"path": ""})).await;
}

#[tokio::test]
async fn p3_links_to_the_outside_are_refused() {
    let fixture = fixture();
    std::fs::write(fixture.outside().join("secret"), "SECRET").unwrap();
    symlink("../secret", fixture.root().join("file")).unwrap();
    symlink("..", fixture.root().join("dir")).unwrap();
    symlink(fixture.outside().join("secret"), fixture.root().join("absolute")).unwrap();
    symlink("dir/secret", fixture.root().join("twice")).unwrap();
    symlink("loop", fixture.root().join("loop")).unwrap();
    symlink("../nowhere", fixture.root().join("dangling")).unwrap();
    for path in ["file", "dir/secret", "absolute", "twice", "loop", "dangling"] {
        all_refuse(&fixture, path).await;
    }
    assert!(!fixture.outside().join("nowhere").exists());
    let run = fixture.run();
    let found = run.ok("grep", json!({"pattern": "SECRET"})).await;
    assert_eq!(found, "no matches\n");
}

#[tokio::test]
async fn relative_and_absolute_links_inside_are_followed() {
    let fixture = fixture();
    let file = fixture.file("a/file", "inside");
    symlink(&file, fixture.root().join("absolute")).unwrap();
    symlink("a", fixture.root().join("dir")).unwrap();
    let run = fixture.run();
    assert!(run.ok("read", json!({"path": "absolute"})).await.contains("inside"));
    assert!(run.ok("read", json!({"path": "dir/file"})).await.contains("inside"));
    assert!(run.ok("read", json!({"path": file.to_str().unwrap()})).await.contains("inside"));
}

#[tokio::test]
async fn p5_p13_kernel_files_pipes_and_devices_are_refused() {
    let mut fixture = fixture();
    let pipe = fixture.root().join("pipe");
    rustix_mkfifo(&pipe);
    let _socket = std::os::unix::net::UnixListener::bind(fixture.root().join("socket")).unwrap();
    symlink("/dev/zero", fixture.root().join("zero")).unwrap();
    symlink("/proc/self/environ", fixture.root().join("environ")).unwrap();
    for path in ["pipe", "socket", "zero", "environ", "/proc/self/environ", "/proc/self/root/etc/passwd", "/dev/stdin"]
    {
        all_refuse(&fixture, path).await;
    }
    // Even if everything may be read.
    fixture.grant.read = vec!["/".into()];
    let run = fixture.run();
    for path in ["/proc/self/environ", "/proc/self/mem", "/proc/self/fd/0", "/proc/self/root/etc/hostname", "/dev/zero"]
    {
        run.refused("read", json!({"path": path})).await;
    }
    run.ok("read", json!({"path": "/etc/passwd"})).await;
}

fn rustix_mkfifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

#[tokio::test]
async fn p6_writing_a_hard_link_does_not_change_the_other_file() {
    let fixture = fixture();
    std::fs::write(fixture.outside().join("secret"), "SECRET").unwrap();
    std::fs::hard_link(fixture.outside().join("secret"), fixture.root().join("hard")).unwrap();
    let run = fixture.run();
    run.ok("write", json!({"path": "hard", "content": "owned"})).await;
    assert_eq!(std::fs::read_to_string(fixture.outside().join("secret")).unwrap(), "SECRET");
}

#[tokio::test]
async fn p8_p14_protected_paths_cannot_be_written_or_created() {
    let fixture = fixture();
    std::fs::create_dir_all(fixture.root().join(".claude/agents")).unwrap();
    symlink(".claude", fixture.root().join("innocent")).unwrap();
    let run = fixture.run();
    for path in [
        ".git/hooks/pre-commit",
        ".git/config",
        ".claude/agents/evil.md",
        ".CLAUDE/settings.json",
        "innocent/settings.json",
        "sub/.mcp.json",
        ".homing/config.toml",
        ".codex/config.toml",
        "x/../.claude/settings.local.json",
    ] {
        let why = run.refused("write", json!({"path": path, "content": "x"})).await;
        assert!(why.contains("may not be written by an agent"), "{path}: {why}");
    }
    assert!(!fixture.root().join(".git").exists());
    run.ok("write", json!({"path": ".gitignore", "content": "x"})).await;
}

#[tokio::test]
async fn workspace_inside_an_agent_folder_can_be_written() {
    let mut fixture = fixture();
    let inner = fixture.root().join(".homing/worktrees/one");
    std::fs::create_dir_all(&inner).unwrap();
    fixture.grant.write = vec![inner.clone()];
    let run = fixture.run();
    run.ok("write", json!({"path": inner.join("a.txt").to_str().unwrap(), "content": "x"})).await;
    run.refused("write", json!({"path": inner.join(".git/config").to_str().unwrap(), "content": "x"})).await;
}

#[tokio::test]
async fn p10_names_that_are_too_long_get_a_message() {
    let fixture = fixture();
    let run = fixture.run();
    for path in ["a".repeat(300), "a/".repeat(3_000)] {
        let why = run.refused("write", json!({"path": path, "content": "x"})).await;
        assert!(why.contains("long"), "{why}");
        run.refused("read", json!({"path": path})).await;
    }
}

#[tokio::test]
async fn p11_p12_unprintable_names_are_escaped() {
    let fixture = fixture();
    std::fs::write(fixture.root().join(std::ffi::OsStr::from_bytes(b"bad\xff")), "needle").unwrap();
    fixture.file("new\nline", "needle");
    fixture.file("esc\u{1b}[31m", "needle");
    fixture.file("rtl\u{202e}txt", "needle");
    let run = fixture.run();
    for (tool, args) in [
        ("ls", json!({})),
        ("tree", json!({})),
        ("glob", json!({"pattern": "*"})),
        ("grep", json!({"pattern": "needle"})),
    ] {
        let text = run.ok(tool, args).await;
        assert_eq!(text.lines().count(), 4, "{tool}: {text}");
        assert!(text.contains("bad\\xff") && text.contains("\\u{1b}") && text.contains("\\u{202e}"), "{tool}: {text}");
    }
}

#[tokio::test]
async fn p15_root_may_be_a_link_and_a_deleted_workspace_is_an_error() {
    let mut fixture = fixture();
    fixture.file("a", "x");
    let link = fixture.outside().join("link");
    symlink(fixture.root(), &link).unwrap();
    fixture.grant.read = vec![link.clone()];
    fixture.grant.write = vec![link.clone()];
    let mut run = fixture.run();
    run.ok("read", json!({"path": "a"})).await;
    run.context.workdir = link;
    run.ok("write", json!({"path": "b", "content": "x"})).await;
    run.ok("read", json!({"path": "a"})).await;
    std::fs::remove_dir_all(fixture.root()).unwrap();
    run.refused("read", json!({"path": "a"})).await;
    run.refused("write", json!({"path": "c/d", "content": "x"})).await;
    run.refused("glob", json!({"pattern": "*"})).await;
}

#[tokio::test]
async fn rules_see_the_target_of_a_link() {
    let mut fixture = fixture();
    fixture.file("secrets/key", "SECRET");
    fixture.file("src/a", "x");
    symlink("../secrets/key", fixture.root().join("src/link")).unwrap();
    let subjects = fixture.run().subjects("read", json!({"path": "src/link"}));
    let path = |path: &str| Subject::Path(path.to_owned());
    assert_eq!(subjects, Subjects::Parts(vec![path("src/link"), path("secrets/key")]));
    assert_eq!(fixture.run().subjects("read", json!({"path": "x/../src/a"})), Subjects::Parts(vec![path("src/a")]));
    // And again when the file is opened, in case the link changed after the first check.
    let deny =
        Layer::everything("user").deny(vec![Rule::calls("read", "secrets/**"), Rule::calls("edit", "secrets/**")]);
    fixture.grant = fixture.grant.under(deny);
    let run = fixture.run();
    run.refused("read", json!({"path": "src/link"})).await;
    run.refused("write", json!({"path": "src/link", "content": "x"})).await;
    run.ok("read", json!({"path": "src/a"})).await;
}

#[tokio::test]
async fn denied_folder_is_not_searched_through_its_parent() {
    let mut fixture = fixture();
    fixture.file("secrets/key", "needle SECRET");
    fixture.file("src/a", "needle");
    fixture.grant = fixture.grant.under(Layer::everything("user").deny(vec![Rule::calls("read", "secrets/**")]));
    let run = fixture.run();
    assert_eq!(run.ok("grep", json!({"pattern": "needle"})).await, "src/a:1:needle\n");
    assert_eq!(run.ok("glob", json!({"pattern": "**"})).await, "src/a\n");
    assert!(!run.ok("tree", json!({})).await.contains("key"));
    assert!(!run.call("ls", json!({"path": "secrets"})).await.text.contains("key"));
}

#[tokio::test]
async fn allow_pattern_applies_to_the_opened_file() {
    let mut fixture = fixture();
    fixture.file("src/a", "x");
    fixture.file("other/a", "x");
    symlink("../other", fixture.root().join("src/out")).unwrap();
    fixture.grant = fixture.grant.under(
        Layer::everything("agent x")
            .allow(Allow::Only(vec![Rule::calls("read", "src/**"), Rule::calls("write", "src/**")])),
    );
    let run = fixture.run();
    run.ok("read", json!({"path": "src/a"})).await;
    run.refused("read", json!({"path": "src/out/a"})).await;
    run.refused("write", json!({"path": "src/out/new", "content": "x"})).await;
}

/// Swaps `name` between a folder (or file) inside and a link to the outside, as fast as possible.
fn swapper(root: &Path, name: &str, outside: &Path, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    let (name, inside, link) = (root.join(name), root.join(format!("{name}.in")), root.join(format!("{name}.out")));
    symlink(outside, &link).unwrap();
    std::thread::spawn(move || {
        let mut swaps = 0;
        while !stop.load(Ordering::Relaxed) {
            let _ = std::fs::rename(&name, &inside).and_then(|()| std::fs::rename(&link, &name));
            let _ = std::fs::rename(&name, &link).and_then(|()| std::fs::rename(&inside, &name));
            swaps += 2;
        }
        swaps
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv38_p4_swapping_links_never_leads_outside() {
    let fixture = fixture();
    let outside = fixture.outside().join("elsewhere");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("target"), "SECRET").unwrap();
    fixture.file("dir/target", "harmless");
    fixture.file("file", "harmless");
    let stop = Arc::new(AtomicBool::new(false));
    let swappers = [
        swapper(&fixture.root(), "dir", &outside, stop.clone()),
        swapper(&fixture.root(), "file", &outside.join("target"), stop.clone()),
    ];
    let run = fixture.run();
    let until = Instant::now() + Duration::from_secs(3);
    let (mut calls, mut served) = (0_u64, 0_u64);
    while Instant::now() < until && calls < 100_000 {
        for (tool, args) in [
            ("read", json!({"path": "dir/target"})),
            ("read", json!({"path": "file"})),
            ("grep", json!({"pattern": "SECRET|harmless", "path": "dir"})),
            ("write", json!({"path": "dir/target", "content": format!("harmless {calls}")})),
            ("write", json!({"path": format!("dir/new-{}", calls % 50), "content": "harmless"})),
            ("edit", json!({"path": "file", "old": "harmless", "new": "harmless"})),
            ("ls", json!({"path": "dir"})),
        ] {
            let output = run.call(tool, args).await;
            assert!(!output.text.contains("SECRET"), "{tool}: {}", output.text);
            calls += 1;
            served += u64::from(!output.is_error);
        }
    }
    stop.store(true, Ordering::Relaxed);
    let swaps: u64 = swappers.into_iter().map(|thread| thread.join().unwrap()).sum();
    let left: Vec<_> = std::fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["target"], "something was created outside");
    assert_eq!(std::fs::read_to_string(outside.join("target")).unwrap(), "SECRET");
    assert!(swaps > 100 && served > 0, "the race did not happen: {swaps} swaps, {calls} calls, {served} served");
}
