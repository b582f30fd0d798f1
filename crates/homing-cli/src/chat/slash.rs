//! Commands that begin with a slash.

use std::path::Path;

use homing_core::place::Place;

/// Commands with what they do, in the order of the help.
pub(crate) const COMMANDS: [(&str, &str); 12] = [
    ("/help", "show the commands and keys"),
    ("/agents", "list the agents and teams"),
    ("/agent NAME", "let another agent or team continue the conversation"),
    ("/model [NAME]", "show the model, or use another one from the next message on"),
    ("/attach PATH", "attach a picture, a PDF document or a text to the next message; a word @PATH does too"),
    ("/cost", "show what the conversation has cost"),
    ("/diff", "show the files that the agent has changed"),
    ("/tell PLACE TEXT", "send a message to a running child, such as 1.2"),
    ("/cancel [PLACE]", "stop the current turn, or one child"),
    ("/runs", "show or hide the tree of runs"),
    ("/new", "begin a new conversation"),
    ("/quit", "leave; `homing continue` takes the conversation up again"),
];

/// Keys with what they do.
pub(crate) const KEYS: [(&str, &str); 8] = [
    ("Enter", "send; while the agent works, the message reaches it at its next step"),
    ("Alt-Enter, Ctrl-J, \\ Enter", "begin a new line"),
    ("Up, Down", "earlier and later messages"),
    ("PgUp, PgDn", "scroll"),
    ("Tab", "complete a command, a name, or a path after @"),
    ("Esc, Ctrl-C", "stop the current turn; Ctrl-C clears the line, and twice it leaves"),
    ("Ctrl-Z", "suspend; `fg` continues"),
    ("Ctrl-D", "leave, if the line is empty"),
];

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slash {
    Help,
    Agents,
    Agent(String),
    Model(Option<String>),
    Attach(String),
    Cost,
    Diff,
    Tell(Place, String),
    Cancel(Option<Place>),
    Runs,
    New,
    Quit,
}

/// Reads a command. `None` if the text is a message, or names something else, such as a skill.
pub(crate) fn read(text: &str) -> Option<Result<Slash, String>> {
    let (name, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
    let rest = rest.trim();
    let needed = |what: &str| if rest.is_empty() { Err(format!("usage: {what}")) } else { Ok(rest.to_owned()) };
    Some(match name {
        "/help" | "/?" => Ok(Slash::Help),
        "/agents" => Ok(Slash::Agents),
        "/agent" => needed("/agent NAME").map(Slash::Agent),
        "/model" => Ok(Slash::Model(Some(rest.to_owned()).filter(|name| !name.is_empty()))),
        "/attach" => needed("/attach PATH").map(Slash::Attach),
        "/cost" => Ok(Slash::Cost),
        "/diff" => Ok(Slash::Diff),
        "/runs" => Ok(Slash::Runs),
        "/new" | "/clear" => Ok(Slash::New),
        "/quit" | "/exit" => Ok(Slash::Quit),
        "/cancel" if rest.is_empty() => Ok(Slash::Cancel(None)),
        "/cancel" => place(rest).map(|place| Slash::Cancel(Some(place))),
        "/tell" => tell(rest),
        _ => return None,
    })
}

fn tell(rest: &str) -> Result<Slash, String> {
    let usage = || "usage: /tell PLACE TEXT, such as /tell 1.2 look at the tests too".to_owned();
    let (at, message) = rest.split_once(char::is_whitespace).ok_or_else(usage)?;
    Ok(Slash::Tell(place(at)?, message.trim().to_owned()))
}

fn place(text: &str) -> Result<Place, String> {
    text.parse().map_err(|_| format!("`{text}` is not a place such as 1.2"))
}

/// Returns whether a text that is not a command looks like one: a slash and one word of letters.
pub(crate) fn looks_like_one(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.strip_prefix('/')
        .is_some_and(|name| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_:".contains(c)))
}

/// Returns the commands that begin like the text.
pub(crate) fn matching(text: &str) -> Vec<&'static str> {
    if !text.starts_with('/') || text.contains(char::is_whitespace) {
        return Vec::new();
    }
    COMMANDS.iter().map(|(usage, _)| *usage).filter(|usage| usage.starts_with(text)).collect()
}

/// Returns the path at the end of a message that can be completed: that of `/attach`, or a last word `@PATH`.
pub(crate) fn path_to_complete(text: &str) -> Option<&str> {
    if let Some(path) = text.strip_prefix("/attach ") {
        return Some(path.trim_start());
    }
    text.rsplit(char::is_whitespace).next()?.strip_prefix('@')
}

/// Completes a path by what is in its folder: as far as all entries that begin like it agree. A folder gets a slash.
pub(crate) fn complete_path(folder: &Path, begun: &str) -> Option<String> {
    let (above, name) = begun.rsplit_once('/').map_or(("", begun), |(above, name)| (above, name));
    let parent =
        if begun.starts_with('/') && above.is_empty() { Path::new("/").to_owned() } else { folder.join(above) };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(parent).ok()?.flatten() {
        let is_folder = entry.path().is_dir();
        let Ok(other) = entry.file_name().into_string() else { continue };
        if other.starts_with(name) && (!other.starts_with('.') || name.starts_with('.')) {
            found.push(if is_folder { other + "/" } else { other });
        }
    }
    let mut common = found.first()?.clone();
    for other in &found {
        let shared = common.char_indices().zip(other.chars()).find(|((_, one), two)| one != two);
        let end = shared.map_or_else(|| common.len().min(other.len()), |((at, _), _)| at);
        common.truncate(end);
    }
    Some(format!("{}{common}", &begun[..begun.len() - name.len()]))
}

/// Completes a command, or the name after `/agent `.
pub(crate) fn complete(text: &str, agents: &[String]) -> Option<String> {
    if let Some(begun) = text.strip_prefix("/agent ") {
        let mut found = agents.iter().filter(|name| name.starts_with(begun));
        return found.next().filter(|_| found.next().is_none()).map(|name| format!("/agent {name}"));
    }
    let found = matching(text);
    let name = found.first()?.split(' ').next()?;
    let is_only = found.iter().all(|usage| usage.split(' ').next() == Some(name));
    let has_argument = found[0].contains(' ');
    is_only.then(|| if has_argument { format!("{name} ") } else { name.to_owned() })
}

/// Returns the help.
pub(crate) fn help() -> String {
    let rows = |rows: &[(&str, &str)]| {
        let lines: Vec<String> = rows.iter().map(|(what, does)| format!("| `{what}` | {does} |")).collect();
        lines.join("\n")
    };
    format!("| command | |\n|---|---|\n{}\n\n| key | |\n|---|---|\n{}", rows(&COMMANDS), rows(&KEYS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_and_everything_else_is_a_message() {
        assert_eq!(read("/cancel"), Some(Ok(Slash::Cancel(None))));
        assert_eq!(read(" /tell 1.2  go on "), Some(Ok(Slash::Tell("1.2".parse().unwrap(), "go on".into()))));
        assert_eq!(read("/model offline"), Some(Ok(Slash::Model(Some("offline".into())))));
        assert!(read("/tell 1.2").unwrap().unwrap_err().starts_with("usage"));
        assert!(read("/cancel me").unwrap().unwrap_err().contains("not a place"));
        assert_eq!((read("hello"), read("/usr/bin is full"), read("/review x")), (None, None, None));
        assert!(looks_like_one("/review x") && !looks_like_one("/usr/bin") && !looks_like_one("a /b"));
    }

    #[test]
    fn paths_are_completed_as_far_as_they_agree() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["src/main.rs", "src/map.rs", "src/größe.rs", "docs/a.md", ".hidden"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let completed = |begun: &str| complete_path(folder.path(), begun);
        assert_eq!(completed("s").as_deref(), Some("src/"));
        assert_eq!(completed("src/m").as_deref(), Some("src/ma"));
        assert_eq!(completed("src/mai").as_deref(), Some("src/main.rs"));
        assert_eq!(completed("src/gr").as_deref(), Some("src/größe.rs"));
        assert_eq!((completed("x"), completed("nowhere/x")), (None, None));
        let whole = folder.path().join("do").display().to_string();
        assert_eq!(completed(&whole), Some(whole + "cs/"));
        assert_eq!(path_to_complete("compare @src/m"), Some("src/m"));
        assert_eq!(path_to_complete("/attach my p"), Some("my p"));
        assert_eq!((path_to_complete("mail me@home.org now"), path_to_complete("/agent x")), (None, None));
    }

    #[test]
    fn tab_completes_what_is_unambiguous() {
        let agents = ["explore".to_owned(), "general".to_owned()];
        assert_eq!(complete("/co", &agents).as_deref(), Some("/cost"));
        assert_eq!(complete("/t", &agents).as_deref(), Some("/tell "));
        assert_eq!(complete("/a", &agents), None);
        assert_eq!(complete("/agent ex", &agents).as_deref(), Some("/agent explore"));
        assert_eq!(complete("/agent x", &agents), None);
        for (usage, _) in COMMANDS {
            let name = usage.split(' ').next().unwrap();
            assert!(read(name).is_some(), "{name} is documented");
        }
    }
}
