//! Confinement of the very process that calls it, for good: Landlock for files, seccomp for everything that is no file.
//! Only the helper's stages call this.

use crate::process::{LandlockRules, Sockets};

/// Applies both. An error means that nothing may be executed.
#[cfg(target_os = "linux")]
pub(crate) fn apply(rules: &LandlockRules) -> Result<(), String> {
    drop_capabilities();
    files::restrict(rules)?;
    syscalls::close_the_rest(&rules.net)?;
    filter_syscalls(rules.sockets)
}

/// Closes the system calls that lead out of a sandbox.
#[cfg(target_os = "linux")]
pub(crate) fn filter_syscalls(sockets: Sockets) -> Result<(), String> {
    syscalls::apply(sockets)
}

/// Which Landlock the kernel has.
#[cfg(target_os = "linux")]
pub(crate) fn landlock_version() -> Option<u32> {
    files::version()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn apply(_: &LandlockRules) -> Result<(), String> {
    Err("there is no sandbox for this system".to_owned())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn filter_syscalls(_: Sockets) -> Result<(), String> {
    Err("there is no sandbox for this system".to_owned())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn landlock_version() -> Option<u32> {
    None
}

/// Without capabilities root is one user among others: it neither makes devices nor opens what belongs to others.
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

    /// The least that will do: before it, files outside could be cut to nothing.
    const LEAST: ABI = ABI::V3;

    /// The newest version that the kernel accepts without reserve, of those that make a difference here.
    pub(super) fn version() -> Option<u32> {
        let hard = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        if hard().scope(Scope::Signal | Scope::AbstractUnixSocket).is_ok() {
            return Some(6);
        }
        let versions = [(5, ABI::V5), (3, LEAST)];
        versions.into_iter().find(|(_, abi)| hard().handle_access(AccessFs::from_all(*abi)).is_ok()).map(|(it, _)| it)
    }

    pub(super) fn restrict(rules: &LandlockRules) -> Result<(), String> {
        ruleset(rules).map_err(|error| format!("Landlock: {error}"))
    }

    fn ruleset(rules: &LandlockRules) -> Result<(), Box<dyn std::error::Error>> {
        let read = AccessFs::from_read(LEAST);
        let mut created = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(LEAST))?
            .set_compatibility(CompatLevel::BestEffort)
            .scope(Scope::Signal | Scope::AbstractUnixSocket)?
            .create()?;
        for path in &rules.read {
            created = allow(created, path, read)?;
        }
        // Devices are made by nobody in here.
        let made = AccessFs::MakeChar | AccessFs::MakeBlock;
        for path in &rules.write {
            created = allow(created, path, AccessFs::from_all(LEAST) & !made)?;
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

    /// What does not exist needs no rule.
    fn allow(
        created: RulesetCreated,
        path: &Path,
        access: BitFlags<AccessFs>,
    ) -> Result<RulesetCreated, Box<dyn std::error::Error>> {
        let Ok(fd) = PathFd::new(path) else { return Ok(created) };
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(LEAST) };
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
    use crate::process::Net;

    type LandlockRuleset = BTreeMap<i64, Vec<SeccompRule>>;

    /// Other processes, mounts and namespaces, kernel objects, the machine's state.
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

    /// Calls that programs try first and do without: the answer is "not there". A ring of requests would open sockets
    /// behind the filter's back, and the flags of `clone3` lie where a filter cannot look.
    const ABSENT: &[i64] =
        &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_clone3];

    /// Calls that hang labels on a file by its path, wherever it lies: Landlock has no word on them. The answer is "not on
    /// this file system", which programs that copy files take in good part.
    const LABELS: &[i64] = &[
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
        SETXATTRAT,
        REMOVEXATTRAT,
    ];

    /// New calls have the same number on every machine.
    const SETXATTRAT: i64 = 463;
    const REMOVEXATTRAT: i64 = 466;

    /// Requests that set a file's flags (`chattr`), for which a file needs to be open for reading only.
    const SET_FLAGS: [u64; 2] = [0x4008_6602, 0x401c_5820];

    /// Calls that change what a process may use, with the argument that says whose, and its value for oneself. Without a
    /// namespace of its own a command could starve or end every process of the same user.
    const ONESELF: &[(i64, u8, u64)] = &[
        (libc::SYS_prlimit64, 0, 0),
        (libc::SYS_setpriority, 0, 0),
        (libc::SYS_setpriority, 1, 0),
        (libc::SYS_ioprio_set, 0, 1),
        (libc::SYS_ioprio_set, 1, 0),
        (libc::SYS_move_pages, 0, 0),
        (libc::SYS_migrate_pages, 0, 0),
    ];

    /// Memory, semaphores and queues that all processes of a user share, unless they are in a namespace of their own.
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

    /// Calls that set a file's mode, and which argument it is.
    const MODES: &[(i64, u8)] = &[
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, 1),
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (libc::SYS_fchmodat2, 2),
    ];

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

    /// From here on these calls of this process, and of all that it will start, end with `errno`.
    fn install(errno: i32, rules: Result<LandlockRuleset, seccompiler::BackendError>) -> Result<(), String> {
        let arch = std::env::consts::ARCH.try_into().map_err(|error| format!("seccomp: {error}"))?;
        let program =
            rules.and_then(|rules| program(rules, errno, arch)).map_err(|error| format!("seccomp: {error}"))?;
        seccompiler::apply_filter(&program).map_err(|error| format!("seccomp: {error}"))
    }

    /// Closes what Landlock does not speak of and a namespace would have kept apart: labels and flags of files outside, what
    /// processes outside may use, and, in the machine's own namespaces, what processes share. Modes and times stay open,
    /// because programs cannot do without setting them.
    pub(super) fn close_the_rest(net: &Net) -> Result<(), String> {
        install(libc::EOPNOTSUPP, labels())?;
        install(libc::EPERM, others())?;
        match net {
            Net::Machine => install(libc::ENOSYS, Ok(SHARED.iter().map(|number| (*number, Vec::new())).collect())),
            Net::Own { .. } => Ok(()),
        }
    }

    fn labels() -> Result<LandlockRuleset, seccompiler::BackendError> {
        let mut rules: LandlockRuleset = LABELS.iter().map(|number| (*number, Vec::new())).collect();
        let flags =
            SET_FLAGS.map(|request| SeccompRule::new(vec![SeccompCondition::new(1, Len::Dword, Op::Eq, request)?]));
        rules.insert(libc::SYS_ioctl, flags.into_iter().collect::<Result<_, _>>()?);
        Ok(rules)
    }

    /// Anything but the one value means somebody else.
    fn others() -> Result<LandlockRuleset, seccompiler::BackendError> {
        let mut rules = LandlockRuleset::new();
        for (number, argument, own) in ONESELF {
            let other = SeccompRule::new(vec![SeccompCondition::new(*argument, Len::Dword, Op::Ne, *own)?])?;
            rules.entry(*number).or_default().push(other);
        }
        rules.extend([libc::SYS_process_madvise, libc::SYS_process_mrelease].map(|number| (number, Vec::new())));
        Ok(rules)
    }

    fn program(rules: LandlockRuleset, errno: i32, arch: TargetArch) -> Result<BpfProgram, seccompiler::BackendError> {
        let errno = SeccompAction::Errno(errno.unsigned_abs());
        let program: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, errno, arch)?.try_into()?;
        Ok(match arch {
            TargetArch::x86_64 => without_x32(program),
            TargetArch::aarch64 | TargetArch::riscv64 => program,
        })
    }

    /// The second set of numbers that x86-64 kernels may know would pass a filter by number; all of it is absent.
    fn without_x32(program: BpfProgram) -> BpfProgram {
        let (load, jump_if_at_least, give) = (0x20, 0x35, 0x06);
        let errno = 0x0005_0000 | libc::ENOSYS.unsigned_abs();
        let mut guarded = vec![
            sock_filter { code: load, jt: 0, jf: 0, k: 0 },
            sock_filter { code: jump_if_at_least, jt: 0, jf: 1, k: 0x4000_0000 },
            sock_filter { code: give, jt: 0, jf: 0, k: errno },
        ];
        guarded.extend(program);
        guarded
    }

    fn forbidden(sockets: Sockets) -> Result<LandlockRuleset, seccompiler::BackendError> {
        let mut rules: LandlockRuleset = FORBIDDEN.iter().map(|number| (*number, Vec::new())).collect();
        let mask = u64::from(NAMESPACES.unsigned_abs());
        let clones = (0..64)
            .map(|bit| 1_u64 << bit)
            .filter(|bit| mask & bit != 0)
            .map(|bit| SeccompRule::new(vec![SeccompCondition::new(0, Len::Qword, Op::MaskedEq(bit), bit)?]));
        rules.insert(libc::SYS_clone, clones.collect::<Result<_, _>>()?);
        let terminal = [libc::TIOCSTI, libc::TIOCLINUX]
            .map(|request| SeccompRule::new(vec![SeccompCondition::new(1, Len::Dword, Op::Eq, request)?]));
        rules.insert(libc::SYS_ioctl, terminal.into_iter().collect::<Result<_, _>>()?);
        // A program that runs as somebody else would outlive the sandbox.
        for (number, mode) in MODES {
            let special = [0o4000, 0o2000]
                .map(|bit| SeccompRule::new(vec![SeccompCondition::new(*mode, Len::Dword, Op::MaskedEq(bit), bit)?]));
            rules.insert(*number, special.into_iter().collect::<Result<_, _>>()?);
        }
        rules.insert(libc::SYS_socket, vec![except_families(sockets.families())?]);
        // A pair of local sockets leads nowhere but to itself.
        rules.insert(libc::SYS_socketpair, vec![except_families(&[libc::AF_UNIX])?]);
        Ok(rules)
    }

    fn absent() -> Result<LandlockRuleset, seccompiler::BackendError> {
        Ok(ABSENT.iter().map(|number| (*number, Vec::new())).collect())
    }

    /// Matches every family but these. With none of them the rule would match all, so an impossible family stands in.
    fn except_families(families: &[i32]) -> Result<SeccompRule, seccompiler::BackendError> {
        let others = families
            .iter()
            .map(|family| SeccompCondition::new(0, Len::Dword, Op::Ne, u64::from(family.unsigned_abs())));
        let never = SeccompCondition::new(0, Len::Dword, Op::Ne, u64::from(u32::MAX))?;
        let mut conditions = others.collect::<Result<Vec<_>, _>>()?;
        conditions.push(never);
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
