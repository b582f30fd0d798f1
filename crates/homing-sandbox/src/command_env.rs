//! The environment that commands get: a short list of what they need, nothing that opens doors. Hosts hand in theirs.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{policy::SandboxOptions, private_folder::Private};

/// The host's surroundings, as values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandEnv {
    /// The user's home.
    pub home: PathBuf,
    /// The environment, `PATH` among it.
    pub env: BTreeMap<String, String>,
}

/// What is passed on as it is: language, time, and where toolchains live.
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

/// Names with these words in them are secrets, whoever asks for them by a pattern.
const SECRETS: &[&str] = &["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH", "COOKIE", "DSN"];

/// Whether a variable of this name is taken for a secret: it is passed on only when it is named in full.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRETS.iter().any(|word| name.contains(word))
}

impl CommandEnv {
    /// The value of a variable.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.env.get(name).map(String::as_str)
    }

    /// The folders of `PATH`, absolute ones only: a relative one would be looked up in the workspace.
    pub fn path(&self) -> Vec<PathBuf> {
        let path = self.var("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
        path.split(':').map(PathBuf::from).filter(|it| it.is_absolute()).collect()
    }

    /// Where `program` is found in `PATH`, outside the folders of `not_in`.
    pub fn find(&self, program: &str, not_in: &[PathBuf]) -> Option<PathBuf> {
        let outside = |path: &PathBuf| {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            !not_in.iter().any(|root| path.starts_with(root) || real.starts_with(root))
        };
        self.path().into_iter().map(|folder| folder.join(program)).find(|path| path.is_file() && outside(path))
    }

    /// The environment of a command: what everybody gets, what the user named, and private places for what is written.
    pub(super) fn clean(&self, options: &SandboxOptions, private: &Private, tmp: &Path) -> BTreeMap<String, String> {
        let mut env = self.passed(options);
        self.toolchain_homes(&mut env);
        env.extend(private.env(self, tmp));
        for (name, value) in FIXED {
            env.insert((*name).to_owned(), (*value).to_owned());
        }
        env
    }

    /// The environment of a program of the user's own, such as a server: the real home, and no secrets.
    pub fn plain_env(&self, options: &SandboxOptions) -> BTreeMap<String, String> {
        let mut env = self.passed(options);
        env.insert("HOME".to_owned(), self.home.display().to_string());
        env.insert("TERM".to_owned(), "dumb".to_owned());
        env
    }

    fn passed(&self, options: &SandboxOptions) -> BTreeMap<String, String> {
        let mut env: BTreeMap<String, String> = BTreeMap::new();
        let locale = |name: &str| name.starts_with("LC_");
        for (name, value) in &self.env {
            let passed = PASSED.contains(&name.as_str()) || locale(name) || options.passes(name);
            if passed && !value.contains('\0') {
                env.insert(name.clone(), value.clone());
            }
        }
        let path: Vec<String> = self.path().iter().map(|it| it.display().to_string()).collect();
        env.insert("PATH".to_owned(), path.join(":"));
        env
    }

    /// Homes that a toolchain would look for below `HOME`, which is a private one in there.
    fn toolchain_homes(&self, env: &mut BTreeMap<String, String>) {
        for (name, folder) in [("RUSTUP_HOME", ".rustup"), ("PYENV_ROOT", ".pyenv"), ("NVM_DIR", ".nvm")] {
            let place = self.home.join(folder);
            if !env.contains_key(name) && place.is_dir() {
                env.insert(name.to_owned(), place.display().to_string());
            }
        }
    }
}

/// Nobody sits at a terminal, nobody answers a question.
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

/// What keeps git from running what a repository's own files tell it to.
///
/// The file system monitor is a command that every `git status` would run, so it is always off. Hooks are the project's
/// own and run inside the sandbox where work is done; where nothing may change there is no use for them.
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

/// Whether git runs a repository's hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitHooks {
    /// As git would.
    Run,
    /// No.
    Off,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inv40_no_secret_gets_through_unless_it_is_named_in_full() {
        let names =
            ["OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "MY_FLAG", "DB_DSN"];
        let mut env: BTreeMap<String, String> = names.iter().map(|name| ((*name).into(), "sk-1".into())).collect();
        env.insert("LD_PRELOAD".into(), "/evil.so".into());
        env.insert("BASH_ENV".into(), "/evil".into());
        env.insert("SSH_AUTH_SOCK".into(), "/run/agent".into());
        let surroundings = CommandEnv { home: "/home/u".into(), env };
        let private = Private { root: "/private".into() };
        let passed = |env: &[&str]| {
            let options = SandboxOptions { env: env.iter().map(|it| (*it).into()).collect(), ..Default::default() };
            let clean = surroundings.clean(&options, &private, Path::new("/tmp"));
            surroundings.env.keys().filter(|name| clean.contains_key(*name)).cloned().collect::<Vec<_>>()
        };
        assert!(passed(&[]).is_empty());
        assert_eq!(passed(&["*"]), ["BASH_ENV", "LD_PRELOAD", "MY_FLAG"]);
        assert_eq!(passed(&["MY_*", "GITHUB_TOKEN"]), ["GITHUB_TOKEN", "MY_FLAG"]);
    }

    #[test]
    fn relative_folders_on_the_path_are_dropped() {
        let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:.:bin:/bin:".to_owned())]);
        let surroundings = CommandEnv { home: "/home/u".into(), env };
        assert_eq!(surroundings.path(), [PathBuf::from("/usr/bin"), PathBuf::from("/bin")]);
    }
}
