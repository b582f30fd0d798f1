//! Finds the folders that builds must be able to read outside the system's own, starting from `PATH`. Credentials often lie
//! next to toolchains, so a home folder is never opened as a whole.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::command_env::CommandEnv;

/// The system's own folders.
const SYSTEM: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store"];

/// Files of `/etc` that programs need to run at all, to name users and to check certificates. No secrets among them.
const ETC: &[&str] = &[
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "fonts",
    "gai.conf",
    "group",
    "host.conf",
    "hosts",
    "inputrc",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "magic",
    "magic.mime",
    "maven",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "perl",
    "pki",
    "profile",
    "protocols",
    "python3",
    "resolv.conf",
    "services",
    "ssl",
    "terminfo",
    "timezone",
    "xdg",
    "xml",
];

/// Folders beside credentials, of which only `bin` is opened.
const BIN_ONLY: &[&str] = &[".cargo", ".local", ".config", "go", ".npm-global", ".deno", ".bun"];

/// Number of programs per folder that are checked for links that lead elsewhere.
const MAX_LINKS: usize = 500;

/// Returns everything that is readable besides a run's own folders.
pub(super) fn system(host: &CommandEnv) -> Vec<PathBuf> {
    let system = SYSTEM.iter().map(PathBuf::from);
    let etc = ETC.iter().map(|name| Path::new("/etc").join(name));
    system.chain(etc).chain(readable(host)).filter(|path| path.exists()).collect()
}

/// Returns the folders outside the system's that programs on `PATH` need to read.
fn readable(host: &CommandEnv) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    for folder in host.path().iter().filter(|it| it.is_dir()) {
        add(&mut found, folder, &host.home);
        if !is_system(folder) {
            linked_from(folder).iter().for_each(|bin| add(&mut found, bin, &host.home));
        }
    }
    let named = ["RUSTUP_HOME", "GOROOT", "JAVA_HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR"];
    let named = named.into_iter().filter_map(|name| host.var(name)).map(PathBuf::from);
    let usual = [".rustup", ".cargo/registry", ".cargo/git", "go/pkg/mod"].map(|name| host.home.join(name));
    for place in named.chain(usual).filter(|place| place.is_dir() && !holds(place, &host.home)) {
        found.extend(place.canonicalize());
        found.insert(place);
    }
    found.into_iter().filter(|path| !is_system(path)).collect()
}

/// Adds a folder of programs, or the whole toolchain that it is the `bin` of.
fn add(found: &mut BTreeSet<PathBuf>, bin: &Path, home: &Path) {
    for folder in [Some(bin.to_owned()), bin.canonicalize().ok()].into_iter().flatten() {
        if holds(&folder, home) {
            continue;
        }
        match toolchain_of(&folder, home) {
            Some(toolchain) => found.insert(toolchain),
            None => found.insert(folder),
        };
    }
}

/// Returns the toolchain around a `bin` folder, if it can be opened as a whole.
fn toolchain_of(bin: &Path, home: &Path) -> Option<PathBuf> {
    let named = bin.file_name().is_some_and(|name| ["bin", "sbin", "shims"].iter().any(|known| name == *known));
    let around = bin.parent().filter(|_| named)?;
    let private = BIN_ONLY.iter().any(|name| home.join(name) == around);
    (!private && !holds(around, home) && around.components().count() > 2).then(|| around.to_owned())
}

/// Returns true if opening `folder` would open the home.
fn holds(folder: &Path, home: &Path) -> bool {
    home.starts_with(folder)
}

fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|root| path.starts_with(root))
}

/// Returns the folders of programs that links in this one point to.
fn linked_from(folder: &Path) -> BTreeSet<PathBuf> {
    let Ok(entries) = folder.read_dir() else { return BTreeSet::new() };
    let links = entries.flatten().take(MAX_LINKS).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    let targets = links.filter_map(|link| link.path().canonicalize().ok());
    targets
        .filter(|it| it.is_file())
        .filter_map(|target| target.parent().map(Path::to_owned))
        .filter(|path| !is_system(path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolchains_are_readable_and_credentials_beside_them_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap().join("home/u");
        for place in
            [".cargo/bin", ".rustup", ".pyenv/shims", ".local/bin", "bin", ".nvm/versions/node/v22/bin", ".ssh"]
        {
            std::fs::create_dir_all(home.join(place)).unwrap();
        }
        std::fs::write(home.join(".cargo/credentials.toml"), "secret").unwrap();
        let on_path = [".cargo/bin", ".pyenv/shims", ".local/bin", "bin", ".nvm/versions/node/v22/bin"];
        let path: Vec<String> = on_path.iter().map(|name| home.join(name).display().to_string()).collect();
        let env = std::collections::BTreeMap::from([("PATH".to_owned(), format!("{}:/usr/bin:/", path.join(":")))]);
        let found = readable(&CommandEnv { home: home.clone(), env });
        let expected = [".cargo/bin", ".local/bin", ".nvm/versions/node/v22", ".pyenv", ".rustup", "bin"];
        assert_eq!(found, expected.map(|name| home.join(name)));
    }
}
