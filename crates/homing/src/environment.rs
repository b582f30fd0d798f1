//! Reads the process environment: variables, folders, terminal settings and API keys. This is the only module in the
//! workspace that does so; everything else is handed values.

use std::{
    collections::BTreeMap,
    env, io,
    path::{Path, PathBuf},
};

/// Returns the value of a variable, if it is set and valid UTF-8.
pub fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// Returns every variable whose name and value are valid UTF-8.
pub fn variables() -> BTreeMap<String, String> {
    env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect()
}

/// Returns the folder that a variable names. A relative path counts as unset.
pub fn folder(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Returns an API key or a provider's address from a variable. A blank value counts as unset.
#[cfg(feature = "providers")]
pub fn key(name: &str) -> Option<secrecy::SecretString> {
    variable(name).filter(|value| !value.trim().is_empty()).map(Into::into)
}

/// Returns the user's AWS profile: the one that `AWS_PROFILE` names, or `default`. Its files are read when they are needed.
#[cfg(feature = "providers")]
pub fn aws_profile() -> std::sync::Arc<dyn homing_models::AwsProfile> {
    let set = |name: &&str| variable(name).filter(|value| !value.trim().is_empty());
    let name = ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"].iter().find_map(set).unwrap_or_else(|| "default".to_owned());
    let home = folder("HOME").unwrap_or_default();
    let file =
        |variable: &str, default: &str| set(&variable).map_or_else(|| home.join(".aws").join(default), PathBuf::from);
    std::sync::Arc::new(crate::aws_profile::ProfileFiles {
        name,
        credentials: file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        config: file("AWS_CONFIG_FILE", "config"),
        checked: std::sync::Mutex::default(),
    })
}

/// Returns the current folder.
///
/// # Errors
///
/// Fails if the folder was removed or may not be read.
pub fn current_folder() -> io::Result<PathBuf> {
    env::current_dir()
}

/// Returns the date where the user is.
///
/// `jiff` looks for the name of the system's time zone among all the zones of the machine, for which it lists hundreds of files. A
/// date needs only the rules of the zone, which are in `/etc/localtime`, unless `TZ` names another one.
#[cfg(feature = "tools")]
pub(crate) fn today() -> jiff::civil::Date {
    let zone = match env::var_os("TZ") {
        Some(_) => None,
        None => std::fs::read("/etc/localtime").ok().and_then(|rules| jiff::tz::TimeZone::tzif("Local", &rules).ok()),
    };
    jiff::Timestamp::now().to_zoned(zone.unwrap_or_else(jiff::tz::TimeZone::system)).date()
}

/// Returns the system's folder for temporary files.
pub fn temporary_folder() -> PathBuf {
    env::temp_dir()
}

/// Returns the path of the running executable.
///
/// # Errors
///
/// Fails if the system cannot report the path.
pub fn executable() -> io::Result<PathBuf> {
    env::current_exe()
}

/// Returns whether `TERM` is `dumb`: the terminal understands no control sequences.
pub fn is_dumb_terminal() -> bool {
    env::var_os("TERM").is_some_and(|value| value == "dumb")
}

/// Returns whether the user allows colours: `NO_COLOR` is unset and the terminal is not dumb.
pub fn allows_colours() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && !is_dumb_terminal()
}

/// Returns whether the locale can show more than ASCII. An unset locale counts as able to.
pub fn is_unicode_locale() -> bool {
    let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set);
    locale.is_none_or(|value| {
        let value = value.to_ascii_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    })
}

/// The folders of the current user.
///
/// # Examples
///
/// ```
/// let folders = homing::environment::Folders::from_env();
/// if let Some(path) = folders.journal() {
///     assert!(path.ends_with("homing/journal.db"));
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Folders {
    /// The home folder.
    pub home: Option<PathBuf>,
    /// Configuration, such as `~/.config/homing`.
    pub config: Option<PathBuf>,
    /// Data, such as `~/.local/share/homing`: the journal, trust decisions.
    pub data: Option<PathBuf>,
    /// State that may be lost, such as `~/.local/state/homing`: worktrees of runs.
    pub state: Option<PathBuf>,
    /// Files that last as long as the login session: `XDG_RUNTIME_DIR` with `homing` appended.
    pub runtime: Option<PathBuf>,
}

impl Folders {
    /// Reads `HOME` and the XDG variables. A relative path counts as unset.
    pub fn from_env() -> Self {
        let home = folder("HOME");
        let below = |name: &str, fallback: &str| {
            folder(name).or_else(|| Some(home.as_ref()?.join(fallback))).map(|path| path.join("homing"))
        };
        let is_mac = cfg!(target_os = "macos");
        let config = below("XDG_CONFIG_HOME", ".config");
        let data = below("XDG_DATA_HOME", if is_mac { "Library/Application Support" } else { ".local/share" });
        let state = below("XDG_STATE_HOME", if is_mac { "Library/Caches" } else { ".local/state" });
        let runtime = folder("XDG_RUNTIME_DIR").map(|path| path.join("homing"));
        Self { config, data, state, runtime, home }
    }

    /// The journal file.
    pub fn journal(&self) -> Option<PathBuf> {
        Some(self.data.as_ref()?.join("journal.db"))
    }

    /// The file with the projects that the user trusts.
    pub fn trust(&self) -> Option<PathBuf> {
        Some(self.data.as_ref()?.join("trust.json"))
    }

    /// The file with the MCP tools that the user approved.
    pub fn approvals(&self) -> Option<PathBuf> {
        Some(self.data.as_ref()?.join("servers.json"))
    }

    /// The folder with the tokens for remote MCP servers.
    pub fn mcp_tokens(&self) -> Option<PathBuf> {
        Some(self.data.as_ref()?.join("mcp-tokens"))
    }

    /// The folder with the contents of files before and after changes by agents.
    pub fn contents(&self) -> Option<PathBuf> {
        Some(self.data.as_ref()?.join("contents"))
    }

    /// The folders of the user's plugins, sorted by path.
    pub fn plugins(&self) -> Vec<PathBuf> {
        let list = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let entries = self.config.iter().flat_map(|config| list(&config.join("plugins")));
        let mut plugins: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
        plugins.sort();
        plugins
    }
}

#[cfg(all(test, feature = "tools"))]
mod tests {
    #[test]
    fn today_is_the_date_in_the_systems_time_zone() {
        let before = jiff::Zoned::now().date();
        let today = super::today();
        assert!(today == before || today == jiff::Zoned::now().date(), "{today}, {before}");
    }
}
