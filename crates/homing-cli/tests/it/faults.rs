//! Faults of the machine: clock jumps, signals, few file descriptors, a stopped process, files that change.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use homing_testing::{FakeResponse, ResponseStep};

use crate::world::*;

/// Measures how slow the machine is, as an allowance for the time limits below.
fn slack(world: &World) -> Duration {
    let begun = Instant::now();
    world.homing(&["--version"]);
    begun.elapsed() * 10
}

fn gone_within(child: Child, bound: Duration) -> (std::process::Output, Duration) {
    let begun = Instant::now();
    let output = child.wait_with_output().unwrap();
    let took = begun.elapsed();
    assert!(took < bound, "{took:?}, the maximum is {bound:?}: {}", err(&output));
    (output, took)
}

/// An agent that runs a command which ignores signals.
fn stubborn() -> World {
    World::new(|_, seen| {
        if has_results(seen) {
            FakeResponse::chat_text("x")
        } else {
            FakeResponse::chat_calls(&[("bash", r#"{"command":"trap '' INT TERM; sleep 600"}"#)])
        }
    })
}

fn check_journal(world: &World) {
    let runs = world.homing(&["runs", "--json"]);
    assert_eq!(code(&runs), 0, "{}", err(&runs));
    let doctor = out(&world.homing(&["doctor"]));
    assert!(!doctor.contains("damaged"), "{doctor}");
}

#[test]
fn inv16_fault44_one_ctrl_c_ends_all_runs_within_three_seconds() {
    let world = stubborn();
    let slack = slack(&world);
    let child = world.command(&run(&["--sandbox", "off", "--yes", "--json", "x"])).spawn().unwrap();
    wait_until("it asks", || !world.provider.requests().is_empty());
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, "INT");
    let (output, took) = gone_within(child, Duration::from_secs(3) + slack);
    println!("one Ctrl-C with a stubborn command: {took:?}");
    assert_eq!((code(&output), &json(&output)["status"]), (130, &"cancelled".into()));
    assert_eq!(world.provider.requests().len(), 1, "nothing new was asked");
    check_journal(&world);
}

#[test]
fn inv16_fault44_second_ctrl_c_exits_within_half_a_second() {
    let world = stubborn();
    let slack = slack(&world);
    let child = world.command(&run(&["--sandbox", "off", "--yes", "x"])).spawn().unwrap();
    wait_until("it asks", || !world.provider.requests().is_empty());
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, "INT");
    // Signals within a second count as one, because `timeout` sends two.
    std::thread::sleep(Duration::from_millis(1_100));
    signal(&child, "INT");
    let (output, took) = gone_within(child, Duration::from_millis(500) + slack);
    println!("a second Ctrl-C: {took:?}");
    assert_eq!(code(&output), 130);
    check_journal(&world);
}

#[test]
fn fault44_signal_at_any_moment_leaves_a_valid_journal() {
    let world = World::new(|_, _| FakeResponse::chat_text("hello").after(Duration::from_millis(30)));
    for moment in 0..16 {
        let child = world.command(&run(&["--json", "x"])).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(moment * 8));
        // It may have ended already.
        let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status();
        let output = child.wait_with_output().unwrap();
        // Before the program handles signals, the signal ends it.
        let is_known = [Some(0), Some(130)].contains(&output.status.code()) || output.status.signal() == Some(2);
        assert!(is_known, "after {moment} × 8 ms: {:?} {}", output.status, err(&output));
    }
    check_journal(&world);
}

#[test]
fn fault46_stopped_process_continues() {
    let world = World::new(|_, seen| {
        if has_results(seen) {
            FakeResponse::chat_text("awake").after(Duration::from_millis(200))
        } else {
            FakeResponse::chat_calls(&[("ls", "{}")])
        }
    });
    let child = world.command(&run(&["--json", "x"])).spawn().unwrap();
    wait_until("it asks", || !world.provider.requests().is_empty());
    signal(&child, "STOP");
    std::thread::sleep(Duration::from_secs(2));
    signal(&child, "CONT");
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), &json(&output)["output"]), (0, &"awake".into()), "{}", err(&output));
    assert_eq!(world.provider.requests().len(), 2, "nothing was asked twice");
}

#[test]
fn fault47_thirty_children_end_despite_few_file_descriptors() {
    let world = World::new(|_, seen| match task_of(seen) {
        task if task.contains("piece") => FakeResponse::chat_text("done").after(Duration::from_millis(100)),
        _ if has_results(seen) => FakeResponse::chat_text("all came back"),
        _ => {
            let call = |n| ("delegate", format!(r#"{{"agent":"explore","task":"piece {n}"}}"#));
            let calls: Vec<(&str, String)> = (0..30).map(call).collect();
            FakeResponse::chat_calls(&calls.iter().map(|(name, args)| (*name, args.as_str())).collect::<Vec<_>>())
        }
    });
    let homing = world.command(&run(&["--json", "--parallel", "30", "lead them"]));
    let mut limited = Command::new("sh");
    limited.arg("-c").arg("ulimit -n 40; exec \"$@\"").arg("sh").arg(homing.get_program()).args(homing.get_args());
    limited.current_dir(world.project.path()).env_clear();
    limited.envs(homing.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = limited.stdin(Stdio::null()).output().unwrap();
    assert!(!err(&output).contains("panicked"), "{}", err(&output));
    let envelope = json(&output);
    let is_told = envelope["output"] == "all came back" || !envelope["error"]["message"].is_null();
    assert!(is_told, "{envelope}");
}

#[test]
fn fault50_changed_agent_file_does_not_affect_a_live_run() {
    let world = World::new(|_, seen| match task_of(seen) {
        task if task.contains("piece") => FakeResponse::chat_text(if seen.body.contains("You are the first version") {
            "the first version"
        } else {
            "another version"
        }),
        _ if has_results(seen) => {
            let first = seen.body.contains("the first version");
            FakeResponse::chat_text(if first { "as it was" } else { "changed" })
        }
        _ => FakeResponse::chat_calls(&[("delegate", r#"{"agent":"worker","task":"a piece"}"#)])
            .after(Duration::from_millis(500)),
    });
    let file = |version: &str| format!("---\nname: worker\ndescription: Works.\n---\nYou are {version}.\n");
    world.write(".claude/agents/worker.md", &file("the first version"));
    let child = world.command(&run(&["--json", "lead"])).spawn().unwrap();
    wait_until("it asks", || !world.provider.requests().is_empty());
    world.write(".claude/agents/worker.md", &file("the second one"));
    let output = child.wait_with_output().unwrap();
    assert_eq!(json(&output)["output"], "as it was", "{}", err(&output));
}

/// Finds libfaketime, which fakes the clock.
fn libfaketime() -> Option<String> {
    let paths = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let files = paths.map(|path| format!("{path}/faketime/libfaketimeMT.so.1"));
    files.into_iter().find(|file| std::path::Path::new(file).exists())
}

#[test]
fn fault9_wall_clock_jumps_do_not_affect_a_run() {
    let Some(library) = libfaketime() else { return eprintln!("skipped: libfaketime is not installed here") };
    for jump in ["+1d", "-1d"] {
        let world = World::new(|_, seen| {
            if has_results(seen) {
                FakeResponse::chat_text("on time").after(Duration::from_secs(2))
            } else {
                FakeResponse::chat_calls(&[("ls", "{}")]).after(Duration::from_secs(1))
            }
        });
        let clock = world.home.path().join("clock");
        std::fs::write(&clock, "+0").unwrap();
        let mut command = world.command(&run(&["--json", "--timeout", "60s", "x"]));
        command.env("LD_PRELOAD", &library).env("FAKETIME_TIMESTAMP_FILE", &clock);
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("FAKETIME_NO_CACHE", "1");
        let child = command.spawn().unwrap();
        wait_until("it asks", || !world.provider.requests().is_empty());
        std::fs::write(&clock, jump).unwrap();
        let output = child.wait_with_output().unwrap();
        let envelope = json(&output);
        assert_eq!((code(&output), &envelope["output"]), (0, &"on time".into()), "{jump}: {envelope}");
    }
}

#[test]
fn fault10_timers_work_after_a_long_suspend() {
    let world = World::saying("awake");
    let homing = world.command(&run(&["--json", "x"]));
    let mut asleep = Command::new("unshare");
    asleep.args(["-T", "--monotonic", "100000", "--boottime", "200000", "--fork"]);
    asleep.arg(homing.get_program()).args(homing.get_args()).current_dir(world.project.path()).env_clear();
    asleep.envs(homing.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = match asleep.stdin(Stdio::null()).output() {
        Ok(output) if !err(&output).contains("unshare:") => output,
        Ok(output) => return eprintln!("skipped: no time namespaces here: {}", err(&output).trim()),
        Err(error) => return eprintln!("skipped: no unshare here: {error}"),
    };
    assert_eq!((code(&output), &json(&output)["output"]), (0, &"awake".into()), "{}", err(&output));
    assert_eq!(world.provider.requests().len(), 1);
}

#[test]
fn endless_reply_ends_the_run_and_leaves_little_behind() {
    let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"and so on and so on \"}}]}\n\n";
    let (pause, limit) = (Duration::from_micros(1), Duration::from_secs(300));
    let flood = ResponseStep::Repeat { bytes: event.repeat(50).into_bytes(), pause, limit };
    let world = World::new(move |_, _| FakeResponse::open_stream(vec![flood.clone()]));
    let output = world.homing(&run(&["--json", "x"]));
    let envelope = json(&output);
    assert_eq!((code(&output), world.provider.requests().len()), (1, 1), "{}", err(&output));
    let said = envelope["error"]["message"].as_str().unwrap();
    assert!(said.contains("far longer than the permitted"), "{said}");
    assert_eq!(envelope["usage"]["estimated"], true, "{}", envelope["usage"]);
    assert!(envelope["usage"]["output"].as_u64().unwrap() > 8_192, "what was seen is charged: {}", envelope["usage"]);
    let journal = world.home.path().join(".local/share/homing");
    let sizes = std::fs::read_dir(journal).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    let (journal, printed) = (sizes.sum::<u64>(), output.stdout.len());
    assert!(journal < 8 << 20 && printed < 4 << 20, "{journal} bytes in the journal, {printed} printed");
}

/// Starts a run that asks, reads a file and asks again, with time between to change the world.
fn two_turns() -> World {
    let world = World::new(|_, seen| {
        let pause = Duration::from_secs(1);
        if has_results(seen) {
            FakeResponse::chat_text("not reached").after(pause)
        } else {
            FakeResponse::chat_calls(&[("write", r#"{"path":"new.txt","content":"x"}"#)]).after(pause)
        }
    });
    world.homing(&["runs"]);
    world
}

#[test]
fn deleted_or_replaced_journal_ends_the_run_before_it_acts() {
    for is_replaced in [false, true] {
        let world = two_turns();
        let child = world.command(&run(&["--json", "x"])).spawn().unwrap();
        wait_until("it asks", || !world.provider.requests().is_empty());
        let folder = world.home.path().join(".local/share/homing");
        std::fs::rename(&folder, world.home.path().join("moved")).unwrap();
        if is_replaced {
            assert!(world.homing(&["runs"]).status.success(), "another process creates a new journal");
        }
        let output = child.wait_with_output().unwrap();
        let envelope = json(&output);
        assert_eq!((code(&output), &envelope["status"]), (1, &"failed".into()), "{envelope}");
        assert_eq!(
            (&envelope["error"]["kind"], &envelope["resumable"]),
            (&"journal".into(), &false.into()),
            "{envelope}"
        );
        let said = envelope["error"]["message"].as_str().unwrap();
        assert!(said.contains("journal.db was deleted or replaced while it was in use"), "{said}");
        let hint = envelope["error"]["hint"].as_str().unwrap();
        assert!(hint.contains("start it again"), "{hint}");
        assert!(!world.project.path().join("new.txt").exists(), "nothing happens that is not recorded");
        assert_eq!(world.provider.requests().len(), 1);
    }
}

#[test]
fn file_size_limit_is_named_and_does_not_kill_the_process() {
    let world = World::new(|_, seen| {
        if has_results(seen) {
            FakeResponse::chat_text("not reached")
        } else {
            FakeResponse::chat_calls(&[("read", r#"{"path":"big.txt"}"#)])
        }
    });
    world.write("big.txt", &"a line of the big file\n".repeat(3_000));
    world.homing(&["runs"]);
    // In units of 512 bytes: enough for nothing at all, and enough to begin.
    for (blocks, expected) in [(0, 2), (100, 1)] {
        let homing = world.command(&run(&["--json", "x"]));
        let mut limited = Command::new("sh");
        limited.arg("-c").arg(format!("ulimit -f {blocks}; exec \"$@\"")).arg("sh");
        limited.arg(homing.get_program()).args(homing.get_args()).current_dir(world.project.path()).env_clear();
        limited.envs(homing.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = limited.stdin(Stdio::null()).output().unwrap();
        assert_eq!(code(&output), expected, "{:?} {}", output.status, err(&output));
        let limit = format!("this process may write files of at most {} bytes (ulimit -f)", blocks * 512);
        let envelope = json(&output);
        let said = envelope["error"]["message"].as_str().unwrap_or_default();
        assert!(envelope["status"] == "failed" && said.contains(&limit), "{envelope}");
    }
    check_journal(&world);
}
