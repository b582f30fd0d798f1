//! `homing config set`, `unset` and `edit`: change the user's file, keep its comments, and write nothing that cannot be read again.

use std::{fs, path::Path, process::Command};

use homing::{Folders, environment};
use toml_edit::{DocumentMut, Item, Key, Table, TableLike, Value};

use crate::{
    config::{Config, Layered},
    exit::Trouble,
    terminal,
};

/// Sets a value.
pub(super) fn set(layered: &Layered, key: &str, value: &str) -> Result<(), Trouble> {
    let path = user_file(layered.user_path.as_deref())?;
    let keys = parsed_key(key)?;
    let as_text = Value::from(value);
    // `2.00` is a number and `on` is a text; a text that looks like a number is tried second.
    let tries = value.parse::<Value>().ok().into_iter().chain([as_text]);
    let mut first_error = None;
    for value in tries {
        let mut document = read(path)?;
        put(document.as_table_mut(), &keys, value).map_err(|why| Trouble::usage(format!("{key}: {why}")))?;
        match check(&document.to_string()) {
            Ok(()) => {
                write(path, &document.to_string())?;
                terminal::say(&format!("set {key} in {}", path.display()));
                return Ok(());
            }
            Err(error) => _ = first_error.get_or_insert(error),
        }
    }
    let error = first_error.unwrap_or_default();
    Err(Trouble::usage(format!("cannot set {key}: {error}"))
        .hint("`homing config show` lists the keys with their values"))
}

/// Removes a value.
pub(super) fn unset(layered: &Layered, key: &str) -> Result<(), Trouble> {
    let path = user_file(layered.user_path.as_deref())?;
    let keys = parsed_key(key)?;
    let mut document = read(path)?;
    let Some((last, tables)) = keys.split_last() else { return Err(Trouble::usage("the key is empty")) };
    let mut table: Option<&mut dyn TableLike> = Some(document.as_table_mut());
    for part in tables {
        table = table.and_then(|table| table.get_mut(part.get())).and_then(Item::as_table_like_mut);
    }
    if table.and_then(|table| table.remove(last.get())).is_none() {
        return Err(Trouble::usage(format!("{key} is not set in {}", path.display())));
    }
    write(path, &document.to_string())?;
    terminal::say(&format!("removed {key} from {}", path.display()));
    Ok(())
}

/// Opens the file in the user's editor, and checks it afterwards.
pub(super) fn open(folders: &Folders) -> Result<(), Trouble> {
    let path = folders.config.as_ref().map(|folder| folder.join("config.toml"));
    let path = user_file(path.as_deref())?;
    if !path.exists() {
        write(path, "")?;
    }
    let editor = ["VISUAL", "EDITOR"].into_iter().find_map(environment::variable).unwrap_or_else(|| "vi".to_owned());
    // An editor may have arguments: `code --wait`.
    let status = Command::new("sh").args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(path).status();
    let status = status.map_err(|error| Trouble::config(format!("cannot start {editor}: {error}")))?;
    if !status.success() {
        return Err(Trouble::config(format!("{editor} failed: {status}")));
    }
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error.to_string()))?;
    check(&text).map_err(|error| unreadable(path, &error).hint("correct it with `homing config edit`"))
}

fn user_file(path: Option<&Path>) -> Result<&Path, Trouble> {
    path.ok_or_else(|| Trouble::config("HOME is not set, so there is no configuration"))
}

fn parsed_key(key: &str) -> Result<Vec<Key>, Trouble> {
    Key::parse(key).map_err(|error| Trouble::usage(format!("`{key}` is not a key: {error}")))
}

fn unreadable(path: &Path, why: &str) -> Trouble {
    Trouble::config(format!("{}: {why}", path.display()))
}

fn read(path: &Path) -> Result<DocumentMut, Trouble> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(unreadable(path, &error.to_string())),
    };
    text.parse().map_err(|error: toml_edit::TomlError| unreadable(path, &error.to_string()))
}

/// Sets a value below its tables, which are created if they are missing.
fn put(table: &mut Table, keys: &[Key], value: Value) -> Result<(), String> {
    let Some((last, tables)) = keys.split_last() else { return Err("the key is empty".to_owned()) };
    let mut table: &mut dyn TableLike = table;
    for part in tables {
        let item = table.entry(part.get()).or_insert_with(|| Item::Table(Table::new()));
        table = item.as_table_like_mut().ok_or_else(|| format!("`{}` is not a table", part.get()))?;
    }
    if let Some(Item::Value(old)) = table.get_mut(last.get()) {
        // The comments around the old value stay.
        let around = old.decor().clone();
        *old = value;
        *old.decor_mut() = around;
    } else {
        table.insert(last.get(), Item::Value(value));
    }
    Ok(())
}

fn check(text: &str) -> Result<(), String> {
    toml::from_str::<Config>(text).map(|_| ()).map_err(|error| error.message().to_owned())
}

/// Writes the file as a whole, so that a crash leaves the old one.
fn write(path: &Path, text: &str) -> Result<(), Trouble> {
    let failed = |error: std::io::Error| Trouble::config(format!("cannot write {}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let next = path.with_extension("toml.new");
    fs::write(&next, text).and_then(|()| fs::rename(&next, path)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_set_below_its_table_and_comments_stay() {
        let mut document: DocumentMut = "# mine\nmodel = \"x/y\" # best\n".parse().unwrap();
        put(document.as_table_mut(), &parsed_key("limits.cost").unwrap(), "2.0".parse().unwrap()).unwrap();
        put(document.as_table_mut(), &parsed_key("model").unwrap(), Value::from("a/b")).unwrap();
        let text = document.to_string();
        assert!(
            text.contains("# mine") && text.contains("model = \"a/b\" # best") && text.contains("[limits]\ncost = 2.0"),
            "{text}"
        );
        assert_eq!(check(&text), Ok(()));
        assert!(check("limits.cots = 1").is_err());
        assert!(put(document.as_table_mut(), &parsed_key("model.x").unwrap(), Value::from(1)).is_err());
    }
}
