//! Builds the environment of commands: a short list of variables, without secrets. The host passes its own environment in.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{policy::SandboxOptions, private_folder::PrivateFolder};

/// The home folder and environment of the host process, as values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandEnv {
    /// The user's home.
    pub home: PathBuf,
    /// The environment variables, including `PATH`.
    pub env: BTreeMap<String, String>,
}

/// Variables that are passed on unchanged: language, time zone, and the locations of toolchains.
const PASSED: &[&str] = &[
    "PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "USER",
    "LOGNAME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "RUSTUP_DIST_SERVER",
    "RUSTFLAGS",
    "JAVA_HOME",
    "GOROOT",
    "GOFLAGS",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "NVM_DIR",
    "NODE_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CC",
    "CXX",
    "CFLAGS",
    "CXXFLAGS",
    "LDFLAGS",
    "PKG_CONFIG_PATH",
    "LD_LIBRARY_PATH",
    "CI",
    "SOURCE_DATE_EPOCH",
    "MAKEFLAGS",
];

/// Variables whose names contain one of these words count as secrets, even if a pattern of the user matches them.
const SECRETS: &[&str] = &["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH", "COOKIE", "DSN"];

/// Returns true if a variable of this name counts as a secret, which is passed on only if the user names it in full.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRETS.iter().any(|word| name.contains(word))
}

impl CommandEnv {
    /// Returns the value of a variable.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.env.get(name).map(String::as_str)
    }

    /// Returns the absolute folders of `PATH`. A relative one would be looked up in the workspace.
    pub fn path(&self) -> Vec<PathBuf> {
        let path = self.var("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
        path.split(':').map(PathBuf::from).filter(|folder| folder.is_absolute()).collect()
    }

    /// Finds `program` in `PATH`, outside the folders of `not_in`.
    pub fn find(&self, program: &str, not_in: &[PathBuf]) -> Option<PathBuf> {
        let outside = |path: &PathBuf| {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            !not_in.iter().any(|root| path.starts_with(root) || real.starts_with(root))
        };
        self.path().into_iter().map(|folder| folder.join(program)).find(|path| path.is_file() && outside(path))
    }

    /// Builds the environment of a confined command: common variables, those the user named, and private folders to write to.
    pub(super) fn confined_env(
        &self,
        options: &SandboxOptions,
        private: &PrivateFolder,
        tmp: &Path,
    ) -> BTreeMap<String, String> {
        let mut env = self.passed_on(options);
        self.toolchain_homes(&mut env);
        env.extend(private.env(self, tmp));
        for (name, value) in FIXED {
            env.insert((*name).to_owned(), (*value).to_owned());
        }
        env
    }

    /// Builds the environment of a program that the user configured, such as an MCP server: the real home, and no secrets.
    pub fn plain_env(&self, options: &SandboxOptions) -> BTreeMap<String, String> {
        let mut env = self.passed_on(options);
        env.insert("HOME".to_owned(), self.home.display().to_string());
        env.insert("TERM".to_owned(), "dumb".to_owned());
        env
    }

    fn passed_on(&self, options: &SandboxOptions) -> BTreeMap<String, String> {
        let mut env: BTreeMap<String, String> = BTreeMap::new();
        let locale = |name: &str| name.starts_with("LC_");
        for (name, value) in &self.env {
            let is_passed = PASSED.contains(&name.as_str()) || locale(name) || options.passes(name);
            if is_passed && !value.contains('\0') {
                env.insert(name.clone(), value.clone());
            }
        }
        let path: Vec<String> = self.path().iter().map(|folder| folder.display().to_string()).collect();
        env.insert("PATH".to_owned(), path.join(":"));
        env
    }

    /// Names the toolchain folders that would otherwise be looked up below `HOME`, which is a private folder in the sandbox.
    fn toolchain_homes(&self, env: &mut BTreeMap<String, String>) {
        for (name, folder) in [("RUSTUP_HOME", ".rustup"), ("PYENV_ROOT", ".pyenv"), ("NVM_DIR", ".nvm")] {
            let place = self.home.join(folder);
            if !env.contains_key(name) && place.is_dir() {
                env.insert(name.to_owned(), place.display().to_string());
            }
        }
    }
}

/// Variables that keep programs from opening a terminal or prompting for input.
const FIXED: &[(&str, &str)] = &[
    ("TERM", "dumb"),
    ("SHELL", "/bin/bash"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_EDITOR", "true"),
    ("EDITOR", "true"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "true"),
    ("SSH_ASKPASS", "true"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("NO_COLOR", "1"),
    ("npm_config_update_notifier", "false"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("PIP_NO_INPUT", "1"),
];

/// Returns variables that keep git from executing what a repository's own files configure.
///
/// The file system monitor is a command that every `git status` would execute, so it is always off. Hooks belong to the
/// project and run inside the sandbox of commands that may change files; for commands that only read they are off.
pub fn git_guards(hooks: GitHooks) -> BTreeMap<String, String> {
    let mut settings = vec![
        ("safe.directory", "*"),
        ("safe.bareRepository", "explicit"),
        ("core.fsmonitor", "false"),
        ("protocol.ext.allow", "never"),
        ("core.pager", "cat"),
        ("gc.auto", "0"),
    ];
    match hooks {
        GitHooks::Run => (),
        GitHooks::Off => settings.extend([
            ("core.hooksPath", "/dev/null"),
            ("core.sshCommand", "false"),
            ("core.gitProxy", "false"),
            ("credential.helper", ""),
        ]),
    }
    let mut env = BTreeMap::from([("GIT_CONFIG_COUNT".to_owned(), settings.len().to_string())]);
    for (at, (key, value)) in settings.into_iter().enumerate() {
        env.insert(format!("GIT_CONFIG_KEY_{at}"), key.to_owned());
        env.insert(format!("GIT_CONFIG_VALUE_{at}"), value.to_owned());
    }
    env.insert("GIT_CONFIG_NOSYSTEM".to_owned(), "1".to_owned());
    env
}

/// Setting for a repository's git hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitHooks {
    /// Git runs them as usual.
    Run,
    /// Git does not run them.
    Off,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inv40_secrets_are_passed_on_only_if_named_in_full() {
        let names =
            ["OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "MY_FLAG", "DB_DSN"];
        let mut env: BTreeMap<String, String> = names.iter().map(|name| ((*name).into(), "sk-1".into())).collect();
        env.insert("LD_PRELOAD".into(), "/evil.so".into());
        env.insert("BASH_ENV".into(), "/evil".into());
        env.insert("SSH_AUTH_SOCK".into(), "/run/agent".into());
        let host = CommandEnv { home: "/home/u".into(), env };
        let private = PrivateFolder { root: "/private".into() };
        let passed = |env: &[&str]| {
            let options = SandboxOptions { env: env.iter().map(|name| (*name).into()).collect(), ..Default::default() };
            let confined = host.confined_env(&options, &private, Path::new("/tmp"));
            host.env.keys().filter(|name| confined.contains_key(*name)).cloned().collect::<Vec<_>>()
        };
        assert!(passed(&[]).is_empty());
        assert_eq!(passed(&["*"]), ["BASH_ENV", "LD_PRELOAD", "MY_FLAG"]);
        assert_eq!(passed(&["MY_*", "GITHUB_TOKEN"]), ["GITHUB_TOKEN", "MY_FLAG"]);
    }

    #[test]
    fn relative_folders_on_the_path_are_dropped() {
        let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:.:bin:/bin:".to_owned())]);
        let host = CommandEnv { home: "/home/u".into(), env };
        assert_eq!(host.path(), [PathBuf::from("/usr/bin"), PathBuf::from("/bin")]);
    }
}
