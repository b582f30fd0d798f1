//! Gives a command a separate network with a loopback, and relays one port of it to a socket outside. Which hosts may be
//! reached is decided by the proxy behind that socket.

use std::{
    io,
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

/// The port of the relay. The network belongs to the command alone, so the port is free.
pub(crate) const PORT: u16 = 3128;

/// Maximum number of open connections; further ones are closed.
const MAX_OPEN: usize = 64;

/// Stack size of a relaying thread.
const STACK: usize = 128 << 10;

/// Opens the relay, for as long as this process lives.
pub(super) fn open(socket: PathBuf) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))?;
    let open = Arc::new(());
    let listen = move || {
        for stream in listener.incoming().flatten() {
            let connection = open.clone();
            if Arc::strong_count(&open) <= MAX_OPEN + 1 {
                let socket = socket.clone();
                let _ = thread::Builder::new().stack_size(STACK).spawn(move || {
                    let _ = relay(&stream, &socket);
                    drop(connection);
                });
            }
        }
    };
    thread::Builder::new().stack_size(STACK).spawn(listen).map(drop)
}

/// Copies bytes both ways until both sides are done.
fn relay(inside: &TcpStream, socket: &Path) -> io::Result<()> {
    let outside = UnixStream::connect(socket)?;
    let (mut from, mut to) = (inside.try_clone()?, outside.try_clone()?);
    let up = thread::Builder::new().stack_size(STACK).spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    })?;
    let _ = io::copy(&mut &outside, &mut &*inside);
    let _ = inside.shutdown(Shutdown::Both);
    let _ = up.join();
    Ok(())
}

/// Moves this process, and all that it will start, into a network that has only a loopback, and into an IPC namespace that
/// shares no memory, semaphores or queues with processes outside. Returns true if that needed a user namespace.
#[cfg(target_os = "linux")]
pub(super) fn own_network() -> io::Result<bool> {
    use rustix::thread::UnshareFlags;
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    // Root may create a network namespace directly; other users need a user namespace first.
    let own = UnshareFlags::NEWNET | UnshareFlags::NEWIPC;
    let needs_users = unshare(own).is_err();
    if needs_users {
        unshare(UnshareFlags::NEWUSER | own)?;
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    loopback_up()?;
    Ok(needs_users)
}

/// Makes the next child of this process the first process of a PID namespace: the kernel ends all others in it with that
/// one. Returns false if that is not permitted.
#[cfg(target_os = "linux")]
pub(super) fn own_processes() -> bool {
    unshare(rustix::thread::UnshareFlags::NEWPID).is_ok()
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn unshare(flags: rustix::thread::UnshareFlags) -> io::Result<()> {
    // SAFETY: the flags passed here unshare neither open files nor memory, so no Rust invariant is affected.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn loopback_up() -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: an interface request is plain data, for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(i16::MAX);
    // SAFETY: the descriptor is open, and the request lives until the call returns.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn own_network() -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn own_processes() -> bool {
    false
}
