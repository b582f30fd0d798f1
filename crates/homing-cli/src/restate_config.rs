//! `[restate]` of the configuration: the server that keeps run trees, and the defaults of `homing worker`.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::{cli::values, exit::Trouble};

/// The Restate server and its workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RestateConfig {
    /// Admin address of the server.
    pub(crate) admin: Option<Url>,
    /// Ingress address of the server, if it differs from the one that the server names.
    pub(crate) ingress: Option<Url>,
    /// Runs agents on workers unless a flag says otherwise.
    pub(crate) default: bool,
    /// Folders that every worker has at the same path.
    pub(crate) shared_workspaces: Vec<PathBuf>,
    /// Address on which a worker of this machine listens.
    pub(crate) listen: Option<SocketAddr>,
    /// Address at which the server reaches a worker of this machine.
    pub(crate) advertise: Option<Url>,
    /// Name of this machine under which followers of a run reach its worker.
    pub(crate) live_host: Option<String>,
}

/// An address that begins with `http://` or `https://`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Url(pub(crate) String);

impl TryFrom<String> for Url {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        values::http_url(&text).map(Self)
    }
}

impl RestateConfig {
    /// Checks what a single value cannot show.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.default && self.admin.is_none() {
            return Err("`default` needs the address of the server: set `admin`".to_owned());
        }
        match self.shared_workspaces.iter().find(|folder| !folder.is_absolute()) {
            Some(folder) => Err(format!("shared_workspaces: `{}` is not an absolute path", folder.display())),
            None => Ok(()),
        }
    }

    /// Returns whether every worker has this folder, which is absolute.
    pub(crate) fn shares(&self, folder: &Path) -> bool {
        let is_within = |shared: &PathBuf| shared.canonicalize().is_ok_and(|shared| folder.starts_with(shared));
        self.shared_workspaces.iter().any(is_within)
    }

    /// Returns the shared folders of this machine with their links resolved.
    pub(crate) fn shared_folders(&self) -> Result<Vec<PathBuf>, Trouble> {
        let resolved = self.shared_workspaces.iter().map(|folder| {
            let wrong = |error| {
                Trouble::config(format!("[restate] shared_workspaces: cannot open {}: {error}", folder.display()))
            };
            folder.canonicalize().map_err(wrong)
        });
        resolved.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RestateConfig, String> {
        let config: RestateConfig = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        config.check().map(|()| config)
    }

    #[test]
    fn bad_values_are_named() {
        for (text, message) in [
            ("admin = '127.0.0.1:9070'", "`127.0.0.1:9070` is not an address: write http://HOST:PORT"),
            ("admin = 'http://'", "`http://` is not an address: write http://HOST:PORT"),
            ("ingress = 'http://host:99999'", "`http://host:99999` is not an address: write http://HOST:PORT"),
            ("listen = 'somewhere'", "invalid socket address syntax"),
            ("default = true", "`default` needs the address of the server: set `admin`"),
            ("shared_workspaces = ['work']", "shared_workspaces: `work` is not an absolute path"),
        ] {
            assert_eq!(read(text).unwrap_err(), message, "{text}");
        }
        assert!(read("server = 'x'").unwrap_err().starts_with("unknown field `server`"));
    }

    #[test]
    fn shared_folders_include_what_is_below_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let config = read(&format!("shared_workspaces = [{:?}]", root.display().to_string())).unwrap();
        assert!(config.shares(&root) && config.shares(&root.join("project")));
        assert!(!config.shares(root.parent().unwrap()));
    }
}
