//! Where the user keeps things, as the environment says. Nobody else asks the environment.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use homing_load::Places;

/// The project around the working folder, and the user's, the plugins' and the administrator's folders.
pub(crate) fn from_environment() -> io::Result<Places> {
    let mut places = Places::new(env::current_dir()?);
    places.home = folder("HOME");
    places.config = folder("XDG_CONFIG_HOME").or_else(|| Some(places.home.as_ref()?.join(".config")));
    places.managed = ["/etc/homing", "/etc/claude-code"].map(PathBuf::from).to_vec();
    places.plugins = places.config.iter().flat_map(|it| folders_in(&it.join("homing/plugins"))).collect();
    Ok(places)
}

/// An absolute folder from a variable; anything else counts as unset.
fn folder(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|it| it.is_absolute())
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut folders: Vec<PathBuf> = entries.map(|it| it.path()).filter(|it| it.is_dir()).collect();
    folders.sort();
    folders
}
