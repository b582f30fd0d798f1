//! Confines the calling process irrevocably: Landlock for files, seccomp for everything else. Only the stages of the helper
//! process call this.
//!
//! Neither mechanism is enough alone. Landlock decides per path what may be read and written, but does not cover sockets
//! with a path name, extended attributes, file flags, tracing or mounts. A seccomp filter sees system call numbers and plain
//! arguments, but no paths. So Landlock holds the file rules, and seccomp closes the calls that would lead around them. Both
//! are inherited by every child process and cannot be lifted, so they are applied last, directly before the command is
//! executed, in a process that nothing else shares. Each step that fails aborts the start: a command is never run with half
//! of its sandbox.

use crate::process::{LandlockRules, Sockets};

/// Applies Landlock and seccomp. After an error nothing may be executed.
#[cfg(target_os = "linux")]
pub(crate) fn apply(rules: &LandlockRules) -> Result<(), String> {
    drop_capabilities();
    files::restrict(rules)?;
    syscalls::close_landlock_gaps(&rules.net)?;
    filter_syscalls(rules.sockets)
}

/// Blocks the system calls that lead out of a sandbox.
#[cfg(target_os = "linux")]
pub(crate) fn filter_syscalls(sockets: Sockets) -> Result<(), String> {
    syscalls::apply(sockets)
}

/// Returns the version of Landlock that the kernel supports.
#[cfg(target_os = "linux")]
pub(crate) fn landlock_version() -> Option<u32> {
    files::version()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn apply(_: &LandlockRules) -> Result<(), String> {
    Err("no sandbox is available for this operating system".to_owned())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn filter_syscalls(_: Sockets) -> Result<(), String> {
    Err("no sandbox is available for this operating system".to_owned())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn landlock_version() -> Option<u32> {
    None
}

/// Drops all capabilities, so that even root can neither create devices nor open files of other users.
#[cfg(target_os = "linux")]
fn drop_capabilities() {
    use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
    for capability in CapabilitySet::all().iter() {
        let _ = remove_capability_from_bounding_set(capability);
    }
}

#[cfg(target_os = "linux")]
mod files {
    use std::path::Path;

    use landlock::{
        ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
        RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
    };

    use super::LandlockRules;

    /// The oldest version that is sufficient: earlier ones do not prevent truncating files outside.
    const MINIMUM: ABI = ABI::V3;

    /// Returns the newest version that the kernel supports fully, of those that differ in what is used here.
    pub(super) fn version() -> Option<u32> {
        let hard = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        if hard().scope(Scope::Signal | Scope::AbstractUnixSocket).is_ok() {
            return Some(6);
        }
        let versions = [(5, ABI::V5), (3, MINIMUM)];
        versions
            .into_iter()
            .find(|(_, abi)| hard().handle_access(AccessFs::from_all(*abi)).is_ok())
            .map(|(version, _)| version)
    }

    pub(super) fn restrict(rules: &LandlockRules) -> Result<(), String> {
        ruleset(rules).map_err(|error| format!("Landlock: {error}"))
    }

    fn ruleset(rules: &LandlockRules) -> Result<(), Box<dyn std::error::Error>> {
        let read = AccessFs::from_read(MINIMUM);
        let mut created = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(MINIMUM))?
            .set_compatibility(CompatLevel::BestEffort)
            .scope(Scope::Signal | Scope::AbstractUnixSocket)?
            .create()?;
        for path in &rules.read {
            created = allow(created, path, read)?;
        }
        for path in &rules.list {
            created = allow(created, path, AccessFs::ReadDir.into())?;
        }
        // No command creates device files.
        let devices = AccessFs::MakeChar | AccessFs::MakeBlock;
        for path in &rules.write {
            created = allow(created, path, AccessFs::from_all(MINIMUM) & !devices)?;
        }
        for device in ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"] {
            created = allow(created, Path::new(device), AccessFs::ReadFile | AccessFs::WriteFile)?;
        }
        let status = created.restrict_self()?;
        if status.ruleset == RulesetStatus::NotEnforced {
            return Err("not enforced by this kernel".into());
        }
        Ok(())
    }

    /// Adds a rule for a path. A path that does not exist needs none.
    fn allow(
        created: RulesetCreated,
        path: &Path,
        access: BitFlags<AccessFs>,
    ) -> Result<RulesetCreated, Box<dyn std::error::Error>> {
        let Ok(fd) = PathFd::new(path) else { return Ok(created) };
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(MINIMUM) };
        Ok(created.add_rule(PathBeneath::new(fd, access))?)
    }
}

#[cfg(target_os = "linux")]
mod syscalls {
    use std::collections::BTreeMap;

    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
        SeccompRule, TargetArch, sock_filter,
    };

    use super::Sockets;
    use crate::process::CommandNetwork;

    type SeccompRules = BTreeMap<i64, Vec<SeccompRule>>;

    /// Calls that reach other processes, mounts and namespaces, kernel objects, or the state of the machine.
    const FORBIDDEN: &[i64] = &[
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_getfd,
        libc::SYS_kcmp,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        libc::SYS_chroot,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_open_by_handle_at,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_kexec_load,
        libc::SYS_kexec_file_load,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_acct,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_adjtimex,
        libc::SYS_clock_adjtime,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
        libc::SYS_quotactl,
        libc::SYS_syslog,
        libc::SYS_vhangup,
    ];

    /// Calls that programs can do without; they fail with `ENOSYS`. `io_uring` would open sockets without passing the filter,
    /// and the flags of `clone3` are in memory, which a filter cannot read.
    const ABSENT: &[i64] =
        &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_clone3];

    /// Calls that set extended attributes of any file by its path, which Landlock does not cover. They fail with
    /// `EOPNOTSUPP`, which programs that copy files tolerate.
    const XATTRS: &[i64] = &[
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
        SETXATTRAT,
        REMOVEXATTRAT,
    ];

    /// Recent system calls have the same number on every architecture.
    const SETXATTRAT: i64 = 463;
    const REMOVEXATTRAT: i64 = 466;

    /// `ioctl` requests that set a file's flags (`chattr`). They work on files that are open for reading only.
    const SET_FLAGS: [u64; 2] = [0x4008_6602, 0x401c_5820];

    /// Calls that change the resources of a process: the argument that selects the process, and its value for the caller.
    /// Without its own PID namespace a command could otherwise starve or end every process of the same user.
    const SELF_ONLY: &[(i64, u8, u64)] = &[
        (libc::SYS_prlimit64, 0, 0),
        (libc::SYS_setpriority, 0, 0),
        (libc::SYS_setpriority, 1, 0),
        (libc::SYS_ioprio_set, 0, 1),
        (libc::SYS_ioprio_set, 1, 0),
        (libc::SYS_move_pages, 0, 0),
        (libc::SYS_migrate_pages, 0, 0),
        (libc::SYS_sched_setaffinity, 0, 0),
        (libc::SYS_sched_setscheduler, 0, 0),
        (libc::SYS_sched_setparam, 0, 0),
        (libc::SYS_sched_setattr, 0, 0),
    ];

    /// Shared memory, semaphores and queues, which all processes of a user share outside an IPC namespace.
    const SHARED: &[i64] = &[
        libc::SYS_shmget,
        libc::SYS_shmat,
        libc::SYS_shmctl,
        libc::SYS_semget,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_semctl,
        libc::SYS_msgget,
        libc::SYS_msgsnd,
        libc::SYS_msgrcv,
        libc::SYS_msgctl,
        libc::SYS_mq_open,
        libc::SYS_mq_unlink,
    ];

    /// Calls that set a file's mode, with the index of the mode argument.
    const MODES: &[(i64, u8)] = &[
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, 1),
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (libc::SYS_fchmodat2, 2),
    ];

    /// The bits of a socket's type without its flags.
    const SOCKET_KIND: u64 = 0xf;

    const NAMESPACES: i32 = libc::CLONE_NEWNS
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;

    pub(super) fn apply(sockets: Sockets) -> Result<(), String> {
        install(libc::EPERM, forbidden(sockets))?;
        install(libc::ENOSYS, absent())
    }

    /// Makes these calls fail with `errno`, in this process and in all that it will start.
    fn install(errno: i32, rules: Result<SeccompRules, seccompiler::BackendError>) -> Result<(), String> {
        let arch = std::env::consts::ARCH.try_into().map_err(|error| format!("seccomp: {error}"))?;
        let program =
            rules.and_then(|rules| program(rules, errno, arch)).map_err(|error| format!("seccomp: {error}"))?;
        seccompiler::apply_filter(&program).map_err(|error| format!("seccomp: {error}"))
    }

    /// Blocks what Landlock does not cover and a namespace would have isolated: attributes and flags of files outside, the
    /// resources of processes outside, and, without an IPC namespace, shared memory. Modes and times stay open, because
    /// ordinary programs fail if they cannot set them.
    pub(super) fn close_landlock_gaps(net: &CommandNetwork) -> Result<(), String> {
        install(libc::EOPNOTSUPP, xattrs())?;
        install(libc::EPERM, other_processes())?;
        match net {
            CommandNetwork::Machine => {
                install(libc::ENOSYS, Ok(SHARED.iter().map(|number| (*number, Vec::new())).collect()))
            }
            CommandNetwork::Own { .. } => Ok(()),
        }
    }

    fn xattrs() -> Result<SeccompRules, seccompiler::BackendError> {
        let mut rules: SeccompRules = XATTRS.iter().map(|number| (*number, Vec::new())).collect();
        let flags =
            SET_FLAGS.map(|request| SeccompRule::new(vec![SeccompCondition::new(1, Len::Dword, Op::Eq, request)?]));
        rules.insert(libc::SYS_ioctl, flags.into_iter().collect::<Result<_, _>>()?);
        Ok(rules)
    }

    /// Matches the calls of [`SELF_ONLY`] if they select another process.
    fn other_processes() -> Result<SeccompRules, seccompiler::BackendError> {
        let mut rules = SeccompRules::new();
        for (number, argument, own) in SELF_ONLY {
            let other = SeccompRule::new(vec![SeccompCondition::new(*argument, Len::Dword, Op::Ne, *own)?])?;
            rules.entry(*number).or_default().push(other);
        }
        rules.extend([libc::SYS_process_madvise, libc::SYS_process_mrelease].map(|number| (number, Vec::new())));
        Ok(rules)
    }

    fn program(rules: SeccompRules, errno: i32, arch: TargetArch) -> Result<BpfProgram, seccompiler::BackendError> {
        let errno = SeccompAction::Errno(errno.unsigned_abs());
        let program: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, errno, arch)?.try_into()?;
        Ok(match arch {
            TargetArch::x86_64 => without_x32(program),
            TargetArch::aarch64 | TargetArch::riscv64 => program,
        })
    }

    /// Blocks the x32 system calls: x86-64 kernels may accept this second set of numbers, which would bypass the filter.
    fn without_x32(program: BpfProgram) -> BpfProgram {
        let (load, jump_if_at_least, give_back) = (0x20, 0x35, 0x06);
        let errno = 0x0005_0000 | libc::ENOSYS.unsigned_abs();
        let mut guarded = vec![
            sock_filter { code: load, jt: 0, jf: 0, k: 0 },
            sock_filter { code: jump_if_at_least, jt: 0, jf: 1, k: 0x4000_0000 },
            sock_filter { code: give_back, jt: 0, jf: 0, k: errno },
        ];
        guarded.extend(program);
        guarded
    }

    fn forbidden(sockets: Sockets) -> Result<SeccompRules, seccompiler::BackendError> {
        let mut rules: SeccompRules = FORBIDDEN.iter().map(|number| (*number, Vec::new())).collect();
        let mask = u64::from(NAMESPACES.unsigned_abs());
        let clones = (0..64)
            .map(|bit| 1_u64 << bit)
            .filter(|bit| mask & bit != 0)
            .map(|bit| SeccompRule::new(vec![SeccompCondition::new(0, Len::Qword, Op::MaskedEq(bit), bit)?]));
        rules.insert(libc::SYS_clone, clones.collect::<Result<_, _>>()?);
        let terminal = [libc::TIOCSTI, libc::TIOCLINUX]
            .map(|request| SeccompRule::new(vec![SeccompCondition::new(1, Len::Dword, Op::Eq, request)?]));
        rules.insert(libc::SYS_ioctl, terminal.into_iter().collect::<Result<_, _>>()?);
        // A set-user-id program in the workspace would still grant its owner's rights after the sandbox is gone.
        for (number, mode) in MODES {
            let special = [0o4000, 0o2000]
                .map(|bit| SeccompRule::new(vec![SeccompCondition::new(*mode, Len::Dword, Op::MaskedEq(bit), bit)?]));
            rules.insert(*number, special.into_iter().collect::<Result<_, _>>()?);
        }
        rules.insert(libc::SYS_socket, vec![except_families(sockets.families())?]);
        // A pair of streams connects only its own two ends. A datagram socket can send to any path, even one of a pair.
        let mut pairs = vec![except_families(&[libc::AF_UNIX])?];
        if sockets != Sockets::Namespaced {
            for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
                let is_kind =
                    SeccompCondition::new(1, Len::Dword, Op::MaskedEq(SOCKET_KIND), u64::from(kind.unsigned_abs()))?;
                pairs.push(SeccompRule::new(vec![is_kind])?);
            }
        }
        rules.insert(libc::SYS_socketpair, pairs);
        Ok(rules)
    }

    fn absent() -> Result<SeccompRules, seccompiler::BackendError> {
        Ok(ABSENT.iter().map(|number| (*number, Vec::new())).collect())
    }

    /// Matches every socket family but these. A rule without conditions would not be valid, so an impossible family is added.
    fn except_families(families: &[i32]) -> Result<SeccompRule, seccompiler::BackendError> {
        let others = families
            .iter()
            .map(|family| SeccompCondition::new(0, Len::Dword, Op::Ne, u64::from(family.unsigned_abs())));
        let impossible = SeccompCondition::new(0, Len::Dword, Op::Ne, u64::from(u32::MAX))?;
        let mut conditions = others.collect::<Result<Vec<_>, _>>()?;
        conditions.push(impossible);
        SeccompRule::new(conditions)
    }

    impl Sockets {
        fn families(self) -> &'static [i32] {
            match self {
                Self::None => &[],
                Self::Internet => &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
                Self::Namespaced => &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_UNIX],
            }
        }
    }
}
