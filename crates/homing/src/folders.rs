//! Where this user's things lie. Read from the environment only when a host asks for it.

use std::{
    env,
    path::{Path, PathBuf},
};

/// Where this user's things lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folders {
    /// The home folder, where there is one.
    pub home: Option<PathBuf>,
    /// Configuration, such as `~/.config/homing`.
    pub config: Option<PathBuf>,
    /// Data, such as `~/.local/share/homing`: the journal, what is trusted.
    pub data: Option<PathBuf>,
    /// State that can be lost, such as `~/.local/state/homing`: worktrees of runs.
    pub state: Option<PathBuf>,
    /// Files that live as long as the user is logged in: the value of `XDG_RUNTIME_DIR`, with `homing` in it.
    pub runtime: Option<PathBuf>,
}

impl Folders {
    /// As the environment says; a variable that is no absolute path counts as unset.
    pub fn from_env() -> Self {
        let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
        let home = folder("HOME");
        let below = |name: &str, fallback: &str| {
            folder(name).or_else(|| Some(home.as_ref()?.join(fallback))).map(|it| it.join("homing"))
        };
        let is_mac = cfg!(target_os = "macos");
        let config = below("XDG_CONFIG_HOME", ".config");
        let data = below("XDG_DATA_HOME", if is_mac { "Library/Application Support" } else { ".local/share" });
        let state = below("XDG_STATE_HOME", if is_mac { "Library/Caches" } else { ".local/state" });
        let runtime = folder("XDG_RUNTIME_DIR").map(|it| it.join("homing"));
        Self { config, data, state, runtime, home }
    }

    /// The journal.
    pub fn journal(&self) -> Option<PathBuf> {
        Some(self.data.as_ref()?.join("journal.db"))
    }

    /// What the user trusts.
    pub fn trust(&self) -> Option<PathBuf> {
        Some(self.data.as_ref()?.join("trust.json"))
    }

    /// Which tools of MCP servers the user approved.
    pub fn pins(&self) -> Option<PathBuf> {
        Some(self.data.as_ref()?.join("servers.json"))
    }

    /// Folders of the user's plugins, in order.
    pub fn plugins(&self) -> Vec<PathBuf> {
        let list = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path());
        let mut plugins: Vec<PathBuf> =
            self.config.iter().flat_map(|it| list(&it.join("plugins"))).filter(|it| it.is_dir()).collect();
        plugins.sort();
        plugins
    }
}
