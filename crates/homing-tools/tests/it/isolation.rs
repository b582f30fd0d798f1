//! Commands reach no socket and no process outside, and their number of processes is limited, under every back-end.
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use std::{
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram, UnixListener},
    },
    process::{Command, Stdio},
};

use crate::command_fixture::{CommandFixture, again_as_ordinary_user, each, gone_within, sandboxes};
use homing_core::{
    authority::{Network, Sandbox},
    tool::{ToolContext, ToolOutput},
};
use homing_tools::shell::commands::Commands;

fn context(fixture: &CommandFixture, network: Network) -> ToolContext {
    fixture.context(fixture.grant(Sandbox::WorkspaceWrite).network(network))
}

/// Attempts to reach the sockets `stream` and `datagrams` in the working folder, and an abstract one.
const KNOCKS: &str = r#"
import socket, itertools
def attempt(knock):
    try: knock()
    except OSError: pass
def connect(kind, address):
    s = socket.socket(socket.AF_UNIX, kind); s.connect(address); s.send(b"knock")
for kind, address in itertools.product([socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW], ["stream", "datagrams", "\0ABSTRACT"]):
    attempt(lambda: connect(kind, address))
    for flags in [0, socket.SOCK_NONBLOCK, socket.SOCK_CLOEXEC]:
        def pair(knock):
            a, b = socket.socketpair(socket.AF_UNIX, kind | flags)
            knock(a)
        attempt(lambda: pair(lambda s: s.sendto(b"knock", address)))
        attempt(lambda: pair(lambda s: s.sendmsg([b"knock"], [], 0, address)))
        def later(s): s.connect(address); s.send(b"knock")
        attempt(lambda: pair(later))
a, b = socket.socketpair(); a.send(b"pairs work"); print(b.recv(20).decode())
"#;

#[tokio::test]
async fn sockets_in_the_workspace_and_abstract_ones_do_not_answer() {
    for (name, fixture) in each().await {
        let stream = UnixListener::bind(fixture.workspace.join("stream")).unwrap();
        let datagrams = UnixDatagram::bind(fixture.workspace.join("datagrams")).unwrap();
        let hidden = format!("homing-test-{}-{name}", std::process::id());
        let hidden_stream = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&hidden).unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        hidden_stream.set_nonblocking(true).unwrap();
        for network in [Network::Off, Network::On] {
            let script = format!("python3 - <<'END'\n{}END", KNOCKS.replace("ABSTRACT", &hidden));
            let output = fixture.bash_with(&context(&fixture, network.clone()), &script).await;
            assert_eq!(output.text, "pairs work", "{name}: {network:?}");
            assert!(stream.accept().is_err(), "{name}: {network:?}: the stream socket was reached");
            assert!(datagrams.recv(&mut [0; 8]).is_err(), "{name}: {network:?}: the datagram socket was reached");
            assert!(hidden_stream.accept().is_err(), "{name}: {network:?}: the abstract socket was reached");
        }
    }
}

#[tokio::test]
async fn local_sockets_work_under_bubblewrap_if_the_user_permits_them() {
    let found = sandboxes().await.only(|backend| matches!(backend, homing_sandbox::Backend::Bubblewrap { .. }));
    if found.best().is_none() {
        return eprintln!("skipped: bubblewrap does not work here");
    }
    let permit = |mut commands: Commands| {
        commands.options.unix_sockets = true;
        commands
    };
    let fixture = CommandFixture::with(found, permit);
    let own = "import socket; a = socket.socket(socket.AF_UNIX); a.bind('own'); a.listen(); b = socket.socket(socket.AF_UNIX); b.connect('own'); print('connected')";
    assert_eq!(fixture.bash(&format!("python3 -c \"{own}\"")).await.text, "connected");
}

/// Attempts to change how the process `VICTIM` is scheduled. Each prints a word if it succeeds.
const SCHEDULES: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, change):
    try: change()
    except OSError: return
    print(name)
def checked(result):
    if result != 0: raise OSError(ctypes.get_errno())
attempt("affinity", lambda: os.sched_setaffinity(VICTIM, {0}))
attempt("scheduler", lambda: os.sched_setscheduler(VICTIM, os.SCHED_IDLE, os.sched_param(0)))
attempt("parameters", lambda: os.sched_setparam(VICTIM, os.sched_param(0)))
attributes = (ctypes.c_uint32 * 12)(48, os.SCHED_IDLE)
attempt("attributes", lambda: checked(libc.syscall(314, VICTIM, attributes, 0)))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, VICTIM, 19))
attempt("signal", lambda: os.kill(VICTIM, 0))
os.sched_setaffinity(0, os.sched_getaffinity(0))
print("end")
"#;

#[tokio::test]
async fn scheduling_of_other_processes_cannot_be_changed() {
    for (name, fixture) in each().await {
        let mut victim = Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().unwrap();
        for network in [Network::Off, Network::On] {
            let script = format!("python3 - <<'END'\n{}END", SCHEDULES.replace("VICTIM", &victim.id().to_string()));
            let output = fixture.bash_with(&context(&fixture, network.clone()), &script).await;
            assert_eq!(output.text, "end", "{name}: {network:?}");
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
    }
}

async fn start_many(fixture: &CommandFixture, network: Network) -> ToolOutput {
    // A plain sh is used because bash retries for a long time when it cannot fork.
    let many = "sh -c 'i=0; while [ $i -lt 300 ]; do sleep 4 & i=$((i + 1)); done; wait'; sleep 4";
    fixture.bash_with(&context(fixture, network), many).await
}

#[tokio::test]
async fn processes_are_limited_with_and_without_a_control_group() {
    let found = sandboxes().await;
    for backend in found.ready.clone() {
        let limit = |mut commands: Commands| {
            commands.limits.processes = 64;
            commands
        };
        let fixture = CommandFixture::with(found.only(|other| *other == backend), limit);
        for network in [Network::Off, Network::On] {
            let output = start_many(&fixture, network.clone()).await;
            assert_eq!(output.data.unwrap()["limit"], "processes", "{backend:?}: {network:?}: {}", output.text);
            let marker = fixture.folder.path().display().to_string();
            let left = gone_within(&marker, std::time::Duration::from_secs(5));
            assert_eq!(left, Vec::<i32>::new(), "{backend:?}: {network:?}");
        }
    }
}

#[test]
fn ordinary_users_commands_are_isolated_too() {
    again_as_ordinary_user(
        module_path!(),
        &[
            "sockets_in_the_workspace_and_abstract_ones_do_not_answer",
            "local_sockets_work_under_bubblewrap_if_the_user_permits_them",
            "scheduling_of_other_processes_cannot_be_changed",
            "processes_are_limited_with_and_without_a_control_group",
        ],
    );
}
