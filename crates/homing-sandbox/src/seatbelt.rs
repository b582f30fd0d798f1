//! Builds the profile for a command under macOS' Seatbelt (`sandbox-exec`). Nothing is executed here, so the text is built and
//! tested on every platform.
//!
//! A profile denies everything and then allows what the command may use. The last rule that matches decides, so the denials
//! of protected and denied paths come last. Unlike a bind mount or a Landlock rule, a denial also holds for paths that do
//! not exist yet, so nothing has to be restored afterwards. Folders around such a path may not be renamed or removed,
//! because the path would move along with them and leave its rule behind.

use std::path::{Path, PathBuf};

use homing_core::authority::{Network, Sandbox};

use crate::{
    policy::{PolicyError, SandboxSetup},
    process::{Confinement, RELAY_PORT},
};

/// Rules that every program needs: to start, to have children, to read the machine's description, and to use the devices
/// that hold no data.
const BASE: &str = r#"(version 1)
(deny default)
(allow process-exec)
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-read* (literal "/"))
(allow ipc-posix-sem)
(allow ipc-posix-shm-read* (ipc-posix-name "apple.shm.notification_center"))
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo") (global-name "com.apple.system.notification_center"))
(allow pseudo-tty)
(allow file-read* file-write-data file-ioctl (literal "/dev/null") (literal "/dev/zero") (literal "/dev/dtracehelper"))
(allow file-read* (literal "/dev/random") (literal "/dev/urandom"))
(allow file-read* file-write* file-ioctl (literal "/dev/ptmx") (regex #"^/dev/ttys[0-9]+$"))
(allow file-read* (subpath "/dev/fd"))
"#;

/// The folders of macOS itself, beside those that all systems have. No data of a user among them.
const SYSTEM: &[&str] = &[
    "/System",
    "/Library/Apple",
    "/Library/Developer",
    "/Library/Frameworks",
    "/Applications/Xcode.app",
    "/opt/homebrew",
    "/private/etc",
    "/private/var/db/dyld",
    "/private/var/db/timezone",
    "/private/var/select",
];

/// Builds the confinement of a command.
///
/// # Errors
/// Fails if a path is not valid UTF-8, because a profile cannot name it.
pub(super) fn confinement(setup: &SandboxSetup<'_>, program: &Path) -> Result<Confinement, PolicyError> {
    let proxy_socket = setup.access.proxy_socket.clone();
    Ok(Confinement::Seatbelt { program: program.to_owned(), profile: profile(setup)?, proxy_socket })
}

fn profile(setup: &SandboxSetup<'_>) -> Result<String, PolicyError> {
    let access = setup.access;
    let mut text = BASE.to_owned();
    let system = SYSTEM.iter().map(PathBuf::from).chain(setup.system.iter().cloned());
    let read = system.chain(access.read.iter().cloned()).chain([setup.private.root.clone()]);
    rule(&mut text, "allow file-read*", "subpath", read.map(real))?;
    let private = setup.private.root.clone();
    let own = match access.sandbox {
        Sandbox::ReadOnly => vec![setup.private.tmp()],
        Sandbox::WorkspaceWrite | Sandbox::Off => ["home", "tmp", "cargo"].map(|name| private.join(name)).to_vec(),
    };
    let write = access.write.iter().cloned().chain(own);
    rule(&mut text, "allow file-read* file-write*", "subpath", write.map(real))?;
    text.push_str(&network(setup));
    let denied = &access.denied;
    let protected: Vec<(PathBuf, PathBuf)> = match access.sandbox {
        Sandbox::ReadOnly | Sandbox::Off => Vec::new(),
        Sandbox::WorkspaceWrite => {
            let names = |files: crate::process::ProtectedFiles| {
                let root = files.root;
                files.names.into_iter().map(move |name| (root.clone(), root.join(name)))
            };
            setup.protected().into_iter().flat_map(names).collect()
        }
    };
    let closed = denied.read_only.iter().chain(&denied.missing).chain(&denied.unreadable);
    let around = closed.flat_map(|path| folders_around(setup, path));
    let around_protected = protected.iter().flat_map(|(root, path)| {
        path.ancestors().skip(1).take_while(move |folder| *folder != root.as_path()).map(Path::to_owned)
    });
    rule(&mut text, "deny file-write-unlink", "literal", around.chain(around_protected))?;
    let read_only = denied.read_only.iter().chain(&denied.missing).cloned();
    // The files of other runs and of the user that are saved for restoring them.
    let store = Some(setup.private.store()).filter(|store| setup.is_writable(store));
    rule(&mut text, "deny file-write*", "subpath", protected.into_iter().map(|(_, path)| path).chain(read_only))?;
    rule(&mut text, "deny file-read* file-write*", "subpath", denied.unreadable.iter().cloned().chain(store))?;
    Ok(text)
}

/// Returns the folders around a denied path that the command could rename.
fn folders_around<'a>(setup: &'a SandboxSetup<'_>, path: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
    let is_renamable = |folder: &&Path| folder.parent().is_some_and(|outer| setup.is_writable(outer));
    path.ancestors().skip(1).take_while(is_renamable).map(Path::to_owned)
}

/// Returns the rules on the network. Listed hosts are reached through a proxy, which listens on one port of this machine.
fn network(setup: &SandboxSetup<'_>) -> String {
    match (&setup.access.network, &setup.access.proxy_socket) {
        (Network::On, _) => concat!(
            "(allow network-outbound (remote ip))\n(allow network-inbound (local ip))\n(allow network-bind (local ip))\n",
            "(allow network-outbound (literal \"/private/var/run/mDNSResponder\"))\n(allow system-socket)\n",
            "(allow mach-lookup (global-name \"com.apple.SystemConfiguration.configd\") ",
            "(global-name \"com.apple.trustd.agent\"))\n"
        )
        .to_owned(),
        (Network::Hosts(_), Some(_)) => {
            format!("(allow network-outbound (remote ip \"localhost:{RELAY_PORT}\"))\n(allow system-socket)\n")
        }
        (Network::Hosts(_), None) | (Network::Off, _) => String::new(),
    }
}

/// Adds a rule on paths; without paths it would apply to all, so there is none.
fn rule(
    text: &mut String,
    action: &str,
    filter: &str,
    paths: impl Iterator<Item = PathBuf>,
) -> Result<(), PolicyError> {
    let mut filters: Vec<String> = Vec::new();
    for path in paths {
        let filter = format!("({filter} {})", quoted(&path)?);
        if !filters.contains(&filter) {
            filters.push(filter);
        }
    }
    if !filters.is_empty() {
        text.push_str(&format!("({action}\n  {})\n", filters.join("\n  ")));
    }
    Ok(())
}

/// Returns a path as a string of the profile's language.
fn quoted(path: &Path) -> Result<String, PolicyError> {
    let text = path.to_str().filter(|text| !text.contains(char::is_control)).ok_or_else(|| PolicyError::Denied {
        rules: path.display().to_string(),
        why: "a profile of Seatbelt cannot name a path that is not plain text".to_owned(),
    })?;
    Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// Resolves links, because rules are compared with the real path: `/tmp` is `/private/tmp`.
fn real(path: PathBuf) -> PathBuf {
    path.canonicalize().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{PrivateFolder, denied_paths::DeniedPaths, policy::Access};

    struct Folder {
        _temporary: tempfile::TempDir,
        root: PathBuf,
    }

    impl Folder {
        fn new() -> Self {
            let temporary = tempfile::tempdir().unwrap();
            let root = temporary.path().canonicalize().unwrap();
            for name in ["ws/.git/hooks", "ws/deploy", "lib", "private/home", "private/tmp"] {
                fs::create_dir_all(root.join(name)).unwrap();
            }
            Self { _temporary: temporary, root }
        }

        fn access(&self) -> Access {
            Access {
                sandbox: Sandbox::WorkspaceWrite,
                read: vec![self.root.join("lib")],
                write: vec![self.root.join("ws")],
                network: Network::Off,
                proxy_socket: None,
                unix_sockets: false,
                denied: DeniedPaths::default(),
            }
        }

        /// Returns the profile with the folder's path replaced by `ROOT`, without the rules that all profiles share.
        fn profile(&self, access: &Access) -> String {
            let private = PrivateFolder { root: self.root.join("private") };
            let (system, home) = (["/usr/bin".into()], Path::new("/Users/u"));
            let setup = SandboxSetup { access, system: &system, private: &private, workdir: &self.root, home };
            let text = profile(&setup).unwrap();
            let rules = text.strip_prefix(BASE).expect("it begins with the common rules").to_owned();
            rules.replace(self.root.to_str().unwrap(), "ROOT")
        }
    }

    fn position(text: &str, part: &str) -> usize {
        text.find(part).unwrap_or_else(|| panic!("`{part}` is missing in:\n{text}"))
    }

    #[test]
    fn profile_allows_the_policys_folders_and_then_denies_protected_paths() {
        let folder = Folder::new();
        let text = folder.profile(&folder.access());
        let read = position(&text, "(allow file-read*\n");
        let write = position(
            &text,
            "(allow file-read* file-write*\n  (subpath \"ROOT/ws\")\n  (subpath \"ROOT/private/home\")",
        );
        let protected = position(&text, "(deny file-write*\n");
        assert!(read < write && write < protected, "the last rule that matches decides:\n{text}");
        let readable = &text[read..write];
        for path in ["/System", "/usr/bin", "ROOT/lib", "ROOT/private"] {
            assert!(readable.contains(&format!("(subpath \"{path}\")")), "{path}:\n{text}");
        }
        // Missing paths are denied as well: nothing has to be removed afterwards.
        for name in [".git/hooks", ".git/config", ".claude", ".mcp.json", ".vscode"] {
            assert!(text[protected..].contains(&format!("(subpath \"ROOT/ws/{name}\")")), "{name}:\n{text}");
        }
        let renamed = &text[position(&text, "(deny file-write-unlink\n")..protected];
        assert!(renamed.contains("(literal \"ROOT/ws/.git\")") && !renamed.contains("\"ROOT/ws\""), "{renamed}");
        assert!(!text.contains("network"), "the network is off:\n{text}");
    }

    #[test]
    fn read_only_commands_write_to_a_temporary_folder_only() {
        let folder = Folder::new();
        let access = Access { sandbox: Sandbox::ReadOnly, write: Vec::new(), ..folder.access() };
        let text = folder.profile(&access);
        assert!(text.contains("(allow file-read* file-write*\n  (subpath \"ROOT/private/tmp\"))"), "{text}");
        assert!(!text.contains("ROOT/ws"), "{text}");
    }

    #[test]
    fn denied_paths_are_closed_and_cannot_be_moved_away() {
        let folder = Folder::new();
        let ws = folder.root.join("ws");
        let denied = DeniedPaths {
            unreadable: vec![ws.join("deploy/.env")],
            read_only: vec![ws.join("vendor")],
            missing: vec![ws.join("later")],
        };
        let text = folder.profile(&Access { denied, ..folder.access() });
        let closed = position(&text, "(deny file-read* file-write*\n  (subpath \"ROOT/ws/deploy/.env\"))");
        let read_only = &text[position(&text, "(deny file-write*\n")..closed];
        assert!(read_only.contains("\"ROOT/ws/vendor\"") && read_only.contains("\"ROOT/ws/later\""), "{text}");
        assert!(text.contains("(literal \"ROOT/ws/deploy\")"), "the folder around it cannot be renamed:\n{text}");
    }

    #[test]
    fn network_is_off_a_proxy_or_the_machines() {
        let folder = Folder::new();
        let with = |network: Network, proxy_socket: Option<PathBuf>| {
            folder.profile(&Access { network, proxy_socket, ..folder.access() })
        };
        let hosts = || Network::Hosts(vec!["example.org".into()]);
        let proxied = with(hosts(), Some("/p.sock".into()));
        assert!(proxied.contains("(allow network-outbound (remote ip \"localhost:3128\"))"), "{proxied}");
        assert_eq!(proxied.matches("network").count(), 1, "{proxied}");
        assert!(!with(hosts(), None).contains("network"), "without a proxy there is none");
        assert!(with(Network::On, None).contains("(allow network-outbound (remote ip))"));
    }

    #[test]
    fn paths_are_quoted_or_refused() {
        assert_eq!(quoted(Path::new("/a b/\"c\\d\")(allow default")).unwrap(), r#""/a b/\"c\\d\")(allow default""#);
        assert!(quoted(Path::new("/a\nb")).is_err());
        use std::os::unix::ffi::OsStrExt;
        assert!(quoted(Path::new(std::ffi::OsStr::from_bytes(b"/a\xff"))).is_err());
    }
}
