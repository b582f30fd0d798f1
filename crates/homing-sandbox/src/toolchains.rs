//! Where toolchains live, found from `PATH`: what a build must be able to read outside the system's own folders, and
//! nothing beside it. Credentials often lie next to toolchains, so homes are never opened whole.

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

/// How many programs of a folder are looked at for links that lead elsewhere.
const MAX_LINKS: usize = 500;

/// Everything that is readable besides a run's own folders.
pub(super) fn system(surroundings: &CommandEnv) -> Vec<PathBuf> {
    let system = SYSTEM.iter().map(PathBuf::from);
    let etc = ETC.iter().map(|name| Path::new("/etc").join(name));
    system.chain(etc).chain(readable(surroundings)).filter(|it| it.exists()).collect()
}

/// Folders outside the system's that must be readable for the programs on `PATH` to work.
fn readable(surroundings: &CommandEnv) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    for folder in surroundings.path().iter().filter(|it| it.is_dir()) {
        add(&mut found, folder, &surroundings.home);
        if !is_system(folder) {
            linked_from(folder).iter().for_each(|it| add(&mut found, it, &surroundings.home));
        }
    }
    let named = ["RUSTUP_HOME", "GOROOT", "JAVA_HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR"];
    let named = named.into_iter().filter_map(|name| surroundings.var(name)).map(PathBuf::from);
    let usual = [".rustup", ".cargo/registry", ".cargo/git", "go/pkg/mod"].map(|it| surroundings.home.join(it));
    for place in named.chain(usual).filter(|it| it.is_dir() && !holds(it, &surroundings.home)) {
        found.extend(place.canonicalize());
        found.insert(place);
    }
    found.into_iter().filter(|it| !is_system(it)).collect()
}

/// A folder of programs, and the toolchain that it is the `bin` of.
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

/// The toolchain around a `bin` folder, if it can be opened whole.
fn toolchain_of(bin: &Path, home: &Path) -> Option<PathBuf> {
    let named = bin.file_name().is_some_and(|name| ["bin", "sbin", "shims"].iter().any(|it| name == *it));
    let around = bin.parent().filter(|_| named)?;
    let private = BIN_ONLY.iter().any(|name| home.join(name) == around);
    (!private && !holds(around, home) && around.components().count() > 2).then(|| around.to_owned())
}

/// Whether opening `folder` would open the home.
fn holds(folder: &Path, home: &Path) -> bool {
    home.starts_with(folder)
}

fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|root| path.starts_with(root))
}

/// The folders of programs that links in this one point to.
fn linked_from(folder: &Path) -> BTreeSet<PathBuf> {
    let Ok(entries) = folder.read_dir() else { return BTreeSet::new() };
    let links = entries.flatten().take(MAX_LINKS).filter(|it| it.file_type().is_ok_and(|kind| kind.is_symlink()));
    let targets = links.filter_map(|link| link.path().canonicalize().ok());
    targets
        .filter(|it| it.is_file())
        .filter_map(|it| it.parent().map(Path::to_owned))
        .filter(|it| !is_system(it))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolchains_are_opened_and_credentials_beside_them_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap().join("home/u");
        for place in
            [".cargo/bin", ".rustup", ".pyenv/shims", ".local/bin", "bin", ".nvm/versions/node/v22/bin", ".ssh"]
        {
            std::fs::create_dir_all(home.join(place)).unwrap();
        }
        std::fs::write(home.join(".cargo/credentials.toml"), "secret").unwrap();
        let on_path = [".cargo/bin", ".pyenv/shims", ".local/bin", "bin", ".nvm/versions/node/v22/bin"];
        let path: Vec<String> = on_path.iter().map(|it| home.join(it).display().to_string()).collect();
        let env = std::collections::BTreeMap::from([("PATH".to_owned(), format!("{}:/usr/bin:/", path.join(":")))]);
        let found = readable(&CommandEnv { home: home.clone(), env });
        let expected = [".cargo/bin", ".local/bin", ".nvm/versions/node/v22", ".pyenv", ".rustup", "bin"];
        assert_eq!(found, expected.map(|it| home.join(it)));
    }
}
