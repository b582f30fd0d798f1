//! The user's own files that no agent may read or change, even if a folder of the run contains them: keys, configuration and
//! files that a shell or a login executes.

use std::path::{Path, PathBuf};

use homing_core::{
    authority::{Allow, Layer},
    diagnostic::Diagnostic,
    rule::Rule,
};

/// Files and folders in the home folder that hold keys. They are neither readable nor writable.
const KEYS: &[&str] = &[
    ".aws",
    ".azure",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/gcloud",
    ".config/gh",
    ".config/op",
    ".docker/config.json",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".ssh",
    ".vault-token",
];

/// Files and folders in the home folder that configure the user's programs or are executed later. They are not writable.
const SETTINGS: &[&str] = &[
    ".bash_aliases",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".cargo/bin",
    ".cargo/config.toml",
    ".config",
    ".emacs",
    ".emacs.d",
    ".gitconfig",
    ".inputrc",
    ".local/bin",
    ".local/share",
    ".pam_environment",
    ".profile",
    ".tmux.conf",
    ".vim",
    ".vimrc",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".zlogin",
    ".zlogout",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    "Library/LaunchAgents",
    "bin",
];

/// The user's files, by absolute path.
pub(crate) struct UserFiles {
    home: PathBuf,
    /// Neither readable nor writable: keys, and the journal and the decisions of the user.
    secret: Vec<PathBuf>,
    /// Readable only.
    settings: Vec<PathBuf>,
}

impl UserFiles {
    /// Lists the files of the user with this home folder. `config` and `data` are the folders of this program.
    pub(crate) fn new(home: &Path, config: Option<&Path>, data: Option<&Path>) -> Self {
        let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
        let below = |names: &[&str]| names.iter().map(|name| home.join(name)).collect::<Vec<_>>();
        let (mut secret, mut settings) = (below(KEYS), below(SETTINGS));
        secret.extend(data.map(Path::to_owned));
        settings.extend(config.map(Path::to_owned));
        Self { home, secret, settings }
    }

    /// Returns the reason why agents must not work in `folder`; `None` if they may.
    pub(crate) fn refuses(&self, folder: &Path) -> Option<String> {
        let secret = self.secret.iter().find(|path| folder.starts_with(path))?;
        Some(format!("{} holds keys or this program's own data", secret.display()))
    }

    /// Returns a warning if `folder` is the home folder or contains it.
    pub(crate) fn warning(&self, folder: &Path) -> Option<Diagnostic> {
        let what = format!(
            "{} contains your home folder: agents can read and change your files there, except for keys, settings and \
             files that a shell executes",
            folder.display()
        );
        self.home.starts_with(folder).then(|| Diagnostic::warning(what).hint("work in a project's folder"))
    }

    /// Returns rules that deny the user's files in `roots`, the first of which is the working folder; `None` if there are none.
    pub(crate) fn layer(&self, roots: &[PathBuf]) -> Option<Layer> {
        let roots: Vec<PathBuf> =
            roots.iter().map(|root| root.canonicalize().unwrap_or_else(|_| root.clone())).collect();
        let inside = |path: &&PathBuf| roots.iter().any(|root| path.starts_with(root));
        let patterns = |path: &PathBuf| {
            // Rules see paths in the working folder without it. An agent in a worktree of its own has another one.
            let in_workdir = roots.first().and_then(|workdir| path.strip_prefix(workdir).ok());
            let absolute = format!("/{}", path.display());
            [Some(absolute), in_workdir.map(|path| format!("/{}", path.display()))].into_iter().flatten()
        };
        let deny = |tool: &'static str, paths: &[PathBuf]| {
            let patterns: Vec<String> = paths.iter().filter(inside).flat_map(patterns).collect();
            patterns.into_iter().map(move |pattern| Rule::calls(tool, pattern)).collect::<Vec<_>>()
        };
        let mut rules = deny("read", &self.secret);
        rules.extend(deny("edit", &self.secret));
        rules.extend(deny("edit", &self.settings));
        let layer = Layer::everything("the protection of your own files").allow(Allow::All).deny(rules);
        (!layer.deny.is_empty()).then_some(layer)
    }
}

#[cfg(test)]
mod tests {
    use homing_core::{
        authority::{Decision, Grant, Network, Sandbox},
        rule::{Subject, Subjects},
        tool::Effect,
    };

    use super::*;

    fn is_denied(layer: Option<Layer>, tool: &str, path: &str) -> bool {
        let layers = layer.into_iter().map(std::sync::Arc::new).collect();
        let (read, write) = (Vec::new(), Vec::new());
        let grant = Grant::new(layers).read(read).write(write).network(Network::Off).sandbox(Sandbox::WorkspaceWrite);
        let subjects = Subjects::Parts(vec![Subject::Path(path.to_owned())]);
        matches!(grant.decide(tool, Effect::Changes, &subjects), Decision::Deny { .. })
    }

    #[test]
    fn folders_of_keys_are_refused_and_the_home_folder_is_warned_about() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let files = UserFiles::new(&home, None, Some(&home.join("data/homing")));
        for folder in [home.join(".ssh"), home.join("data/homing/x")] {
            assert!(files.refuses(&folder).is_some(), "{}", folder.display());
        }
        for folder in [&home, home.parent().unwrap(), Path::new("/")] {
            assert!(files.refuses(folder).is_none() && files.warning(folder).is_some(), "{}", folder.display());
        }
        for folder in [home.join("project"), home.join(".config/nvim"), PathBuf::from("/srv")] {
            assert!(files.refuses(&folder).is_none() && files.warning(&folder).is_none(), "{}", folder.display());
        }
    }

    #[test]
    fn keys_are_unreadable_and_settings_unwritable_in_folders_that_contain_them() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        let files = UserFiles::new(&home, Some(&home.join("cfg/homing")), None);
        let in_home = || files.layer(std::slice::from_ref(&home));
        let beside = || files.layer(&[home.join("project"), home.clone()]);
        let absolute = |path: &str| home.join(path).display().to_string();
        for (tool, path) in [
            ("read", ".ssh/id_rsa"),
            ("grep", ".aws/credentials"),
            ("write", ".bashrc"),
            ("edit", "cfg/homing/config.toml"),
            ("write", ".ssh/config"),
        ] {
            assert!(is_denied(in_home(), tool, path), "{tool} {path}");
            assert!(is_denied(beside(), tool, &absolute(path)), "{tool} {path}");
        }
        for (tool, path) in [("read", ".bashrc"), ("read", "notes"), ("write", "code/.bashrc"), ("read", "code/.ssh/x")]
        {
            assert!(!is_denied(in_home(), tool, path), "{tool} {path}");
        }
        assert!(files.layer(&[home.join("project")]).is_none(), "an ordinary project needs no rules");
    }
}
