//! The plugins that the user has installed with Claude Code and enabled in its settings.
//!
//! Only the user's own files count: a plugin that a project enables, or that was installed for one project, is not among them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// The maximum size of the files that are read.
const MAX_FILE: u64 = 1024 * 1024;

/// Returns the folders of the enabled plugins, sorted by the plugins' names.
pub(crate) fn enabled(home: &Path) -> Vec<PathBuf> {
    let installed = read(&home.join(".claude/plugins/installed_plugins.json"));
    let settings = read(&home.join(".claude/settings.json"));
    let is_enabled = |id: &str| settings["enabledPlugins"][id].as_bool() == Some(true);
    let Some(plugins) = installed["plugins"].as_object() else { return Vec::new() };
    let mut enabled: Vec<(&String, PathBuf)> = plugins
        .iter()
        .filter(|(id, _)| is_enabled(id))
        .filter_map(|(id, installations)| Some((id, users_folder(installations)?)))
        .collect();
    enabled.sort();
    enabled.into_iter().map(|(_, folder)| folder).collect()
}

/// The folder of the installation for the user: the second version of the list has several for each plugin, the first had one.
fn users_folder(installations: &Value) -> Option<PathBuf> {
    let all = installations.as_array().map_or(std::slice::from_ref(installations), Vec::as_slice);
    let is_users = |installation: &&Value| installation["scope"].as_str().is_none_or(|scope| scope == "user");
    let folder = PathBuf::from(all.iter().find(is_users)?["installPath"].as_str()?);
    (folder.is_absolute() && folder.is_dir()).then_some(folder)
}

fn read(path: &Path) -> Value {
    let is_small = fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_FILE);
    let bytes = is_small.then(|| fs::read(path).ok()).flatten();
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_plugins_that_the_user_installed_and_enabled_are_found() {
        let home = tempfile::tempdir().unwrap();
        let folder = |name: &str| home.path().join("cache").join(name);
        let installed = |list: &Value| {
            fs::create_dir_all(home.path().join(".claude/plugins")).unwrap();
            fs::write(home.path().join(".claude/plugins/installed_plugins.json"), list.to_string()).unwrap();
        };
        for name in ["on", "off", "other", "theirs"] {
            fs::create_dir_all(folder(name)).unwrap();
        }
        let of = |scope: &str, name: &str| json!([{"scope": scope, "installPath": folder(name)}]);
        installed(&json!({"version": 2, "plugins": {
            "on@m": of("user", "on"), "off@m": of("user", "off"), "other@m": of("user", "other"),
            "theirs@m": of("project", "theirs"), "gone@m": of("user", "gone"),
            "relative@m": [{"scope": "user", "installPath": "cache/on"}],
        }}));
        assert_eq!(enabled(home.path()), Vec::<PathBuf>::new(), "nothing is enabled");
        let settings = json!({"enabledPlugins": {
            "on@m": true, "off@m": false, "theirs@m": true, "gone@m": true, "relative@m": true, "unknown@m": true,
        }});
        fs::write(home.path().join(".claude/settings.json"), settings.to_string()).unwrap();
        assert_eq!(enabled(home.path()), [folder("on")]);
        installed(&json!({"version": 1, "plugins": {"on@m": {"installPath": folder("on"), "version": "1.0"}}}));
        assert_eq!(enabled(home.path()), [folder("on")]);
        fs::write(home.path().join(".claude/plugins/installed_plugins.json"), "not json").unwrap();
        assert_eq!(enabled(home.path()), Vec::<PathBuf>::new());
    }
}
