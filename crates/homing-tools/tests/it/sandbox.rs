//! The limits of commands, under every sandbox back-end of this machine.
#![allow(clippy::print_stderr)]

use std::fs;

use crate::command_fixture::{CommandFixture, HELPER, each};
use homing_core::authority::Sandbox;
use homing_sandbox::Sandboxes;

#[tokio::test]
async fn commands_work_in_the_workspace() {
    for (name, fixture) in each().await {
        let output = fixture.bash("echo hello > a; cat a; pwd; exit 3").await;
        let expected = format!("hello\n{}\n[exit code 3]", fixture.workspace.display());
        assert_eq!(output.text, expected, "{name}");
        assert!(output.is_error);
        assert_eq!(fixture.files(&fixture.workspace), ["a"], "{name}");
    }
}

#[tokio::test]
async fn inv35_without_a_back_end_nothing_runs() {
    let fixture = CommandFixture::with(Sandboxes::none(HELPER), |commands| commands);
    for sandbox in [Sandbox::ReadOnly, Sandbox::WorkspaceWrite] {
        let output = fixture.bash_in(sandbox, "touch here").await;
        assert!(output.is_error && output.text.contains("sandbox"), "{}", output.text);
    }
    assert!(fixture.files(&fixture.workspace).is_empty());
    let output = fixture.bash_in(Sandbox::Off, "touch here").await;
    assert!(!output.is_error, "{}", output.text);
    assert_eq!(fixture.files(&fixture.workspace), ["here"]);
}

#[tokio::test]
async fn read_only_sandbox_prevents_all_changes() {
    for (name, fixture) in each().await {
        fs::write(fixture.workspace.join("a"), "x").unwrap();
        let output = fixture.bash_in(Sandbox::ReadOnly, "cat a; echo y > a; rm a; touch b; mkdir c; ls").await;
        assert!(output.text.starts_with('x'), "{name}: {}", output.text);
        assert_eq!(fixture.files(&fixture.workspace), ["a"], "{name}: {}", output.text);
        assert_eq!(fs::read_to_string(fixture.workspace.join("a")).unwrap(), "x", "{name}");
    }
}

/// Attempts to escape: each prints a word if it succeeds.
const ESCAPES: &str = r#"
(exec 3<>/dev/tcp/127.0.0.1/PORT) 2>/dev/null && echo tcp
python3 - <<'END' 2>/dev/null
import socket
try:
    s = socket.socket(socket.AF_UNIX); s.connect("SOCKET"); print("unix")
except OSError: pass
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"x", ("127.0.0.1", UDP)); print("sent")
except OSError: pass
try:
    socket.socket(40, socket.SOCK_STREAM); print("vsock")
except OSError: pass
try:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print("packet")
except OSError: pass
END
kill -0 RUNTIME 2>/dev/null && echo signal
{ tr '\0' '\n' < /proc/RUNTIME/environ | grep -q . && echo environ; } 2>/dev/null
cat /proc/1/environ 2>/dev/null | tr '\0' '\n' | grep -q HOMING_TEST_SECRET && echo environ-of-init
unshare -Ur true 2>/dev/null && echo userns
cp /bin/true t; chmod u+s t 2>/dev/null; chmod g+s t 2>/dev/null; [ -u t ] && echo setuid; [ -g t ] && echo setgid
mount -t tmpfs none /tmp 2>/dev/null && echo mount
mknod dev b 8 0 2>/dev/null && echo device
env | grep -E 'API_KEY|TOKEN|SECRET|SSH_AUTH_SOCK' && echo secrets
ls ~/.ssh /root/.ssh 2>/dev/null && echo ssh
cat /etc/shadow 2>/dev/null && echo shadow
prlimit --pid RUNTIME --core=0:0 2>/dev/null && echo limits
renice -n 19 -p RUNTIME >/dev/null 2>&1 && echo nice
ionice -c 3 -p RUNTIME 2>/dev/null && echo ionice
for file in sys/kernel/core_pattern sys/kernel/hostname sys/vm/swappiness sysrq-trigger; do (: >> /proc/$file) 2>/dev/null && echo "$file"; done
(echo 1 > /proc/RUNTIME/oom_score_adj) 2>/dev/null && echo oom
touch /tmp/homing-canary-PORT 2>/dev/null
echo end
"#;

#[tokio::test]
async fn inv39_network_sockets_and_processes_are_unreachable() {
    for (name, fixture) in each().await {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_nonblocking(true).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let socket = fixture.outside.join("socket");
        let _unix = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let port = tcp.local_addr().unwrap().port();
        let script = ESCAPES
            .replace("PORT", &port.to_string())
            .replace("UDP", &udp.local_addr().unwrap().port().to_string())
            .replace("SOCKET", &socket.display().to_string())
            .replace("RUNTIME", &std::process::id().to_string());
        let output = fixture.bash(&script).await;
        let escapes: Vec<&str> = output.text.lines().filter(|line| *line != "end" && *line != "sent").collect();
        assert_eq!(escapes, Vec::<&str>::new(), "{name}");
        assert!(output.text.ends_with("end"), "{name}: {}", output.text);
        assert!(tcp.accept().is_err() && udp.recv(&mut [0; 8]).is_err(), "{name}: something arrived");
        assert!(!std::path::Path::new(&format!("/tmp/homing-canary-{port}")).exists(), "{name}");
    }
}

/// Access to a System V message queue, which needs neither a file nor a socket.
const SHARES: &str = r#"
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
queue = libc.msgget(KEY, 0)
if queue >= 0: print("reached")
"#;

#[tokio::test]
async fn inv39_message_queues_of_other_processes_are_unreachable() {
    let key = 0x484f_0000 + std::process::id() % 0xffff;
    let make = format!("import ctypes; l = ctypes.CDLL(None); print(l.msgget({key}, 0o1600))");
    let made = std::process::Command::new("python3").args(["-c", &make]).output();
    let Ok(made) = made else { return eprintln!("skipped: there is no python3") };
    let id = String::from_utf8_lossy(&made.stdout).trim().to_owned();
    if id.is_empty() || id.starts_with('-') {
        return eprintln!("skipped: this machine has no queues");
    }
    let mut outputs = Vec::new();
    for (name, fixture) in each().await {
        fs::write(fixture.workspace.join("a.py"), SHARES.replace("KEY", &key.to_string())).unwrap();
        outputs.push((name, fixture.bash("python3 a.py").await.text));
    }
    let remove = format!("import ctypes; ctypes.CDLL(None).msgctl({id}, 0, None)");
    std::process::Command::new("python3").args(["-c", &remove]).status().unwrap();
    for (name, text) in outputs {
        assert!(!text.contains("reached"), "{name}: {text}");
    }
}

#[tokio::test]
async fn attributes_of_outside_files_cannot_be_changed() {
    for (name, fixture) in each().await {
        let file = fixture.outside.join("file");
        fs::write(&file, "x").unwrap();
        let label = |path: &std::path::Path| {
            rustix::fs::setxattr(path, "user.test", b"1", rustix::fs::XattrFlags::empty()).is_ok()
        };
        fs::write(fixture.outside.join("probe"), "").unwrap();
        if !label(&fixture.outside.join("probe")) {
            eprintln!("not tested on this machine: its temporary folder has no labels");
            continue;
        }
        let script = format!(
            "python3 -c 'import os; os.setxattr(\"{0}\", \"user.evil\", b\"1\")'; chattr +A {0}",
            file.display()
        );
        let output = fixture.bash(&script).await;
        let found = rustix::fs::getxattr(&file, "user.evil", &mut [0_u8; 8][..]);
        assert!(found.is_err(), "{name}: {}", output.text);
        let copied = fixture.bash("echo a > a && cp -a a b && cp --preserve=all a c && cat b c").await;
        assert_eq!(copied.text, "a\na", "{name}");
    }
}

#[tokio::test]
async fn inv40_secrets_in_the_environment_do_not_reach_commands() {
    use homing_sandbox::SandboxOptions;
    use homing_tools::shell::commands::Commands;
    let found = crate::command_fixture::sandboxes().await;
    let mut host_env = crate::command_fixture::host_env();
    let key = "sk-ant-0123456789";
    for name in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "HOMING_TOKEN", "ACME_FLAG"] {
        host_env.env.insert(name.to_owned(), key.to_owned());
    }
    for sandbox in [Sandbox::ReadOnly, Sandbox::WorkspaceWrite, Sandbox::Off] {
        let fixture = CommandFixture::with(found.clone(), |commands| {
            Commands::new(HELPER.into(), host_env.clone(), SandboxOptions::default(), commands.private)
        });
        let output =
            fixture.bash_in(sandbox, "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep ACME; set").await;
        assert!(!output.text.contains(key), "{sandbox:?}");
        assert!(output.text.contains("TERM=dumb"));
    }
}

#[tokio::test]
async fn p14_protected_paths_cannot_be_changed_or_created() {
    for (name, fixture) in each().await {
        let at = |path: &str| fixture.workspace.join(path);
        fs::create_dir_all(at(".git/hooks")).unwrap();
        fs::write(at(".git/config"), "[core]\n").unwrap();
        fs::write(at(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::create_dir_all(at(".claude/agents")).unwrap();
        let attacks = [
            "echo evil > .git/hooks/pre-commit",
            "echo evil >> .git/config",
            "mv .git g; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; echo evil > .git/config",
            "rm -rf .git/hooks; mkdir .git/hooks; echo evil > .git/hooks/x",
            "mkdir -p .homing/agents; echo evil > .homing/agents/a.md",
            "echo evil > .mcp.json",
            "echo evil > .claude/agents/a.md",
            "mv .claude .c; mkdir .claude; echo evil > .claude/settings.json",
            "mkdir -p .github/agents; echo evil > .github/agents/a.agent.md",
            "ln -s /etc .cursor",
            "rm -rf .git; ln -sT /tmp .git",
        ];
        for attack in attacks {
            let output = fixture.bash(attack).await;
            assert!(output.is_error, "{name}: {attack}: {}", output.text);
            assert_eq!(fs::read_to_string(at(".git/config")).unwrap(), "[core]\n", "{name}: {attack}");
            assert!(fixture.files(&at(".git/hooks")).is_empty(), "{name}: {attack}: {}", output.text);
            assert!(fixture.files(&at(".claude/agents")).is_empty(), "{name}: {attack}");
            for made in [".homing", ".mcp.json", ".github/agents", ".cursor"] {
                assert!(at(made).symlink_metadata().is_err(), "{name}: {attack} left {made}: {}", output.text);
            }
        }
        // Git itself can still write.
        let _ = fs::remove_dir_all(at("."));
        let output = fixture
            .bash("cd sub 2>/dev/null; git init -q r && cd r && echo a > f && git add f && git -c user.name=a -c user.email=a@b commit -qm a && git log --oneline | wc -l")
            .await;
        assert_eq!(output.text, "1", "{name}");
    }
}

#[tokio::test]
async fn p14_created_protected_paths_are_removed_while_the_command_runs() {
    for (name, fixture) in each().await {
        let wait = "for i in $(seq 400); do [ -e .mcp.json -o -e .homing ] || break; sleep 0.02; done";
        // A file may be removed before the next one is created, which makes bash print errors.
        let make = "{ mkdir -p .homing/agents; echo evil > .homing/agents/a.md; echo evil > .mcp.json; } 2>/dev/null";
        let script = format!("{make}; {wait}; ls -A");
        let output = fixture.bash(&script).await;
        assert!(output.text.starts_with("[restored, because"), "{name}: {}", output.text);
        assert!(output.text.contains(".mcp.json") && output.text.contains(".homing"), "{name}: {}", output.text);
        assert!(fixture.files(&fixture.workspace).is_empty(), "{name}");
    }
}

#[tokio::test]
async fn p14_b5_git_configuration_of_nested_repositories_is_protected() {
    for (name, fixture) in each().await {
        let at = |path: &str| fixture.workspace.join(path);
        for path in ["sub/.git/hooks", "gone/.git/hooks", "part/.claude", "tree"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        for path in ["sub/.git/config", "gone/.git/config", "part/.claude/settings.json", "tree/.git"] {
            fs::write(at(path), "ours").unwrap();
        }
        let attack = "echo evil > sub/.git/config; echo evil > sub/.git/hooks/pre-commit; echo evil > sub/.git/config.worktree
            mv sub s; echo evil >> s/.git/config; mv s sub; echo evil > part/.claude/settings.json; echo evil > tree/.git
            rm -rf gone; echo refs > sub/.git/HEAD; echo fine > part/file; true";
        let output = fixture.bash(attack).await;
        assert!(output.is_error && output.text.contains("restored"), "{name}: {}", output.text);
        for path in ["sub/.git/config", "part/.claude/settings.json", "tree/.git"] {
            assert_eq!(fs::read_to_string(at(path)).unwrap(), "ours", "{name}: {path}");
        }
        assert_eq!(fixture.files(&at("sub/.git")), ["HEAD", "config", "hooks"], "{name}");
        assert!(fixture.files(&at("sub/.git/hooks")).is_empty(), "{name}");
        assert!(!at("gone").exists() && at("part/file").exists(), "{name}: work was taken back");
    }
}

#[tokio::test]
async fn git_commits_in_the_workspace_itself() {
    for (name, fixture) in each().await {
        let git = |args: &[&str]| {
            let status = std::process::Command::new("git").args(args).current_dir(&fixture.workspace).status().unwrap();
            assert!(status.success());
        };
        git(&["init", "-q"]);
        let output = fixture
            .bash("echo a > f && git add f && git -c user.name=a -c user.email=a@b commit -qm a && git checkout -qb x && git log --oneline | wc -l")
            .await;
        assert_eq!(output.text, "1", "{name}");
    }
}

#[tokio::test]
async fn temporary_files_are_removed_with_the_run() {
    use homing_core::tool::Tool;
    for (name, fixture) in each().await {
        let context = fixture.context(fixture.grant(Sandbox::WorkspaceWrite));
        let tool = homing_tools::shell::bash::Bash::new(fixture.commands.clone());
        tool.call(&context, serde_json::json!({"command": "echo kept > \"$TMPDIR/a\""})).await;
        let output = tool.call(&context, serde_json::json!({"command": "cat \"$TMPDIR/a\""})).await;
        assert_eq!(output.text, "kept", "{name}");
        let private = fixture.commands.private.join(context.key.run.to_string());
        assert!(private.exists());
        drop(context);
        for _ in 0..100 {
            if !private.exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(!private.exists(), "{name}");
    }
}
