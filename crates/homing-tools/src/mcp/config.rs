//! Servers as configuration files write them: a command with arguments and variables, or a URL with headers.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use sha2::{Digest, Sha256};

use homing_sandbox::CommandEnv;

const STARTUP: Duration = Duration::from_secs(10);
const CALL: Duration = Duration::from_secs(60);
const MAX_TIME: Duration = Duration::from_secs(600);

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Its name in the file.
    pub name: String,
    /// Where it is.
    pub place: ServerPlace,
    /// How long it may take to start.
    pub startup: Duration,
    /// How long one call may take.
    pub call: Duration,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerPlace {
    /// A program of this machine, spoken to over its standard streams.
    Program {
        /// The program: a name on `PATH`, or an absolute path.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables it gets, besides the clean environment; `${NAME}` stands for the host's.
        env: BTreeMap<String, String>,
    },
    /// A service, spoken to over HTTP.
    Url {
        /// Its address.
        url: String,
        /// Headers it gets; `${NAME}` stands for the host's variable.
        headers: BTreeMap<String, String>,
    },
}

impl std::fmt::Display for ServerPlace {
    /// As somebody who has to approve it reads it: the command line, or the address. No values of variables or headers.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Program { command, args, .. } => {
                f.write_str(command)?;
                args.iter().try_for_each(|arg| write!(f, " {arg}"))
            }
            Self::Url { url, .. } => f.write_str(url),
        }
    }
}

/// A server that cannot be used as it is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("MCP server `{name}`: {why}")]
pub struct ServerConfigError {
    /// The server.
    pub name: String,
    /// Why, and what to write instead.
    pub why: String,
}

impl ServerConfig {
    /// Reads one entry of `mcpServers`.
    pub fn parse(name: &str, value: &Value) -> Result<Self, ServerConfigError> {
        let bad = |why: &str| ServerConfigError { name: name.to_owned(), why: why.to_owned() };
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let place = match (text("command"), text("url").or_else(|| text("httpUrl"))) {
            (Some(command), None) => {
                let args = strings(value.get("args")).ok_or_else(|| bad("`args` must be a list of strings"))?;
                ServerPlace::Program { command, args, env: pairs(value.get("env")) }
            }
            (None, Some(url)) if url.starts_with("https://") || url.starts_with("http://") => {
                ServerPlace::Url { url, headers: pairs(value.get("headers")) }
            }
            (None, Some(_)) => return Err(bad("`url` must begin with https:// or http://")),
            (Some(_), Some(_)) => return Err(bad("it has both `command` and `url`; keep one")),
            (None, None) => return Err(bad("it has neither `command` nor `url`")),
        };
        let seconds = |keys: &[&str], default: Duration| {
            let number = keys.iter().find_map(|key| value.get(key).and_then(Value::as_f64));
            number.filter(|it| *it > 0.0).map_or(default, |it| Duration::from_secs_f64(it.min(MAX_TIME.as_secs_f64())))
        };
        let startup = seconds(&["startup_timeout_sec", "startup_timeout"], STARTUP);
        Ok(Self { name: name.to_owned(), place, startup, call: seconds(&["tool_timeout_sec", "tool_timeout"], CALL) })
    }

    /// What an approval is bound to: program, arguments and the names of variables, or address and names of headers.
    pub(super) fn hash(&self) -> String {
        let names = |pairs: &BTreeMap<String, String>| pairs.keys().cloned().collect::<Vec<_>>();
        let subject = match &self.place {
            ServerPlace::Program { command, args, env } => serde_json::json!(["program", command, args, names(env)]),
            ServerPlace::Url { url, headers } => serde_json::json!(["url", url, names(headers)]),
        };
        hash(&subject)
    }
}

/// The hash of a value's text; objects keep the order in which they were written.
pub(super) fn hash(value: &Value) -> String {
    Sha256::digest(value.to_string()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn strings(value: Option<&Value>) -> Option<Vec<String>> {
    match value {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(value) => value.as_array()?.iter().map(|it| it.as_str().map(str::to_owned)).collect(),
    }
}

fn pairs(value: Option<&Value>) -> BTreeMap<String, String> {
    let object = value.and_then(Value::as_object).into_iter().flatten();
    object.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// `${NAME}` and `${NAME:-default}` become the host's values. What is not there becomes nothing.
pub(super) fn expand(text: &str, surroundings: &CommandEnv) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let Some((inside, behind)) = after.split_once('}') else {
            out.push_str("${");
            rest = after;
            continue;
        };
        let (name, default) = inside.split_once(":-").unwrap_or((inside, ""));
        out.push_str(surroundings.var(name).unwrap_or(default));
        rest = behind;
    }
    out + rest
}

/// The program behind a command: never one that the workspace brings along, whatever `PATH` says.
pub(super) fn resolve(command: &str, surroundings: &CommandEnv, roots: &[PathBuf]) -> Result<PathBuf, String> {
    let path = Path::new(command);
    if path.is_absolute() {
        let real = path.canonicalize().map_err(|error| format!("{command}: {error}"))?;
        let inside = roots.iter().any(|root| real.starts_with(root) || path.starts_with(root));
        return if inside { Err(format!("{command} lies inside the workspace")) } else { Ok(path.to_owned()) };
    }
    if command.contains('/') {
        return Err(format!("{command} is a relative path; write an absolute one, or a name on PATH"));
    }
    let missing = || format!("{command} is not found on PATH outside the workspace");
    surroundings.find(command, roots).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_are_read_as_the_field_writes_them() {
        let parse = |value: Value| ServerConfig::parse("s", &value);
        let program = parse(json!({"command": "npx", "args": ["-y", "x"], "env": {"A": "${A}"}})).unwrap();
        assert_eq!((program.startup, program.call), (STARTUP, CALL));
        assert!(matches!(
            parse(json!({"type": "http", "url": "https://x/mcp"})).unwrap().place,
            ServerPlace::Url { .. }
        ));
        for bad in [json!({}), json!({"url": "file:///x"}), json!({"command": "a", "args": [1]}), json!(7)] {
            assert!(parse(bad.clone()).is_err(), "{bad}");
        }
        let more = parse(json!({"command": "npx", "args": ["-y", "y"], "env": {"A": "${A}"}})).unwrap();
        assert_ne!(program.hash(), more.hash());
        let other_value = parse(json!({"command": "npx", "args": ["-y", "x"], "env": {"A": "new token"}})).unwrap();
        assert_eq!(program.hash(), other_value.hash(), "a value is no part of what was approved, its name is");
    }

    #[test]
    fn m13_only_variables_that_are_named_are_filled_in() {
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        let surroundings = CommandEnv { home: "/".into(), env };
        assert_eq!(expand("x${A}y${B}z${C:-d}${", &surroundings), "x1yzd${");
    }

    #[test]
    fn m15_a_program_of_the_workspace_is_never_taken() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::write(root.join("sh"), "").unwrap();
        let env = BTreeMap::from([("PATH".to_owned(), format!("{}:.:/usr/bin:/bin", root.display()))]);
        let surroundings = CommandEnv { home: "/".into(), env };
        let roots = [root.clone()];
        let found = resolve("sh", &surroundings, &roots).unwrap();
        assert!(!found.starts_with(&root), "{found:?}");
        for refused in ["./sh", "bin/sh", &root.join("sh").display().to_string(), "no-such-program"] {
            assert!(resolve(refused, &surroundings, &roots).is_err(), "{refused}");
        }
    }
}
