//! Server entries of configuration files: a command with arguments and variables, or a URL with headers.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use sha2::{Digest, Sha256};

use homing_sandbox::{CommandEnv, is_secret};

const STARTUP: Duration = Duration::from_secs(10);
const CALL: Duration = Duration::from_secs(60);
const MAX_TIME: Duration = Duration::from_secs(600);

/// The configuration of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Its name in the file.
    pub name: String,
    /// The command or address of the server.
    pub place: ServerPlace,
    /// Timeout of the start.
    pub startup: Duration,
    /// Timeout of one call.
    pub call: Duration,
}

/// The command or address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerPlace {
    /// A local program, connected by its standard streams.
    Program {
        /// The program: a name on `PATH`, or an absolute path.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables added to the clean environment; `${NAME}` stands for the host's variable.
        env: BTreeMap<String, String>,
    },
    /// A remote server, connected over HTTP.
    Url {
        /// Its address.
        url: String,
        /// Request headers; `${NAME}` stands for the host's variable.
        headers: BTreeMap<String, String>,
        /// The transport.
        transport: UrlTransport,
    },
}

/// The transport of a remote server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlTransport {
    /// Streamable HTTP, since the revision 2025-03-26.
    Http,
    /// Server-sent events, of older servers.
    Sse,
}

impl std::fmt::Display for ServerPlace {
    /// Shows the command line or the address for approval, without the values of variables and headers.
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

/// An invalid server entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("MCP server `{name}`: {why}")]
pub struct ServerConfigError {
    /// The server.
    pub name: String,
    /// The reason, and the expected form.
    pub why: String,
}

impl ServerConfig {
    /// Parses one entry of `mcpServers`.
    ///
    /// # Errors
    ///
    /// Fails if the entry has not exactly one of a command and an address, or if a field is invalid.
    pub fn parse(name: &str, value: &Value) -> Result<Self, ServerConfigError> {
        let bad = |why: &str| ServerConfigError { name: name.to_owned(), why: why.to_owned() };
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let place = match (text("command"), text("url").or_else(|| text("httpUrl"))) {
            (Some(command), None) => {
                let args = strings(value.get("args")).ok_or_else(|| bad("`args` must be a list of strings"))?;
                ServerPlace::Program { command, args, env: pairs(value.get("env")) }
            }
            (None, Some(url)) if url.starts_with("https://") || url.starts_with("http://") => {
                let transport = match text("type").or_else(|| text("transport")).as_deref() {
                    Some("sse") => UrlTransport::Sse,
                    Some("http" | "streamable-http" | "streamable_http" | "streamableHttp") | None => {
                        UrlTransport::Http
                    }
                    Some(_) => return Err(bad("`type` of a server with a `url` must be `http` or `sse`")),
                };
                ServerPlace::Url { url, headers: pairs(value.get("headers")), transport }
            }
            (None, Some(_)) => return Err(bad("`url` must begin with https:// or http://")),
            (Some(_), Some(_)) => return Err(bad("`command` and `url` are both set; keep one")),
            (None, None) => return Err(bad("neither `command` nor `url` is set")),
        };
        let seconds = |keys: &[&str], default: Duration| {
            let number = keys.iter().find_map(|key| value.get(key).and_then(Value::as_f64));
            let seconds = number.filter(|seconds| *seconds > 0.0);
            seconds.map_or(default, |seconds| Duration::from_secs_f64(seconds.min(MAX_TIME.as_secs_f64())))
        };
        let startup = seconds(&["startup_timeout_sec", "startup_timeout"], STARTUP);
        Ok(Self { name: name.to_owned(), place, startup, call: seconds(&["tool_timeout_sec", "tool_timeout"], CALL) })
    }

    /// Returns the tokens that the server gets: variables and headers with the names of secrets.
    pub fn secrets(&self, host_env: &CommandEnv) -> Vec<String> {
        let (ServerPlace::Program { env: pairs, .. } | ServerPlace::Url { headers: pairs, .. }) = &self.place;
        let named = pairs.iter().filter(|(name, _)| is_secret(name) && !name.to_ascii_uppercase().contains("AUTHOR_"));
        // `Bearer` and the like come before the secret itself.
        let last_word = |value: String| value.rsplit(' ').next().unwrap_or_default().to_owned();
        let values = named.map(|(_, value)| last_word(expand(value, host_env)));
        // A path leads to a secret, but is not one.
        values.filter(|value| !value.starts_with('/')).collect()
    }

    /// Hashes what an approval is bound to: program, arguments and variable names, or address and header names.
    pub(super) fn hash(&self) -> String {
        let names = |pairs: &BTreeMap<String, String>| pairs.keys().cloned().collect::<Vec<_>>();
        let subject = match &self.place {
            ServerPlace::Program { command, args, env } => serde_json::json!(["program", command, args, names(env)]),
            ServerPlace::Url { url, headers, transport: UrlTransport::Http } => {
                serde_json::json!(["url", url, names(headers)])
            }
            ServerPlace::Url { url, headers, transport: UrlTransport::Sse } => {
                serde_json::json!(["sse", url, names(headers)])
            }
        };
        hash(&subject)
    }
}

/// Hashes the JSON text of a value; objects keep their order of keys.
pub(super) fn hash(value: &Value) -> String {
    format!("{:x}", Sha256::digest(value.to_string()))
}

fn strings(value: Option<&Value>) -> Option<Vec<String>> {
    match value {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(value) => value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
    }
}

fn pairs(value: Option<&Value>) -> BTreeMap<String, String> {
    let object = value.and_then(Value::as_object).into_iter().flatten();
    object.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Replaces `${NAME}` and `${NAME:-default}` by the host's values; unset variables become empty.
pub(super) fn expand(text: &str, host_env: &CommandEnv) -> String {
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
        out.push_str(host_env.var(name).unwrap_or(default));
        rest = behind;
    }
    out + rest
}

/// Finds the program of a command. A program inside the workspace is never used, even if `PATH` names it.
pub(super) fn resolve(command: &str, host_env: &CommandEnv, roots: &[PathBuf]) -> Result<PathBuf, String> {
    let path = Path::new(command);
    if path.is_absolute() {
        let real = path.canonicalize().map_err(|error| format!("{command}: {error}"))?;
        let inside = roots.iter().any(|root| real.starts_with(root) || path.starts_with(root));
        return if inside { Err(format!("{command} is inside the workspace")) } else { Ok(path.to_owned()) };
    }
    if command.contains('/') {
        return Err(format!("{command} is a relative path; use an absolute path or a name on PATH"));
    }
    let missing = || format!("{command} not found on PATH outside the workspace");
    host_env.find(command, roots).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn common_server_entries_are_parsed() {
        let parse = |value: Value| ServerConfig::parse("s", &value);
        let program = parse(json!({"command": "npx", "args": ["-y", "x"], "env": {"A": "${A}"}})).unwrap();
        assert_eq!((program.startup, program.call), (STARTUP, CALL));
        assert!(matches!(
            parse(json!({"type": "http", "url": "https://x/mcp"})).unwrap().place,
            ServerPlace::Url { .. }
        ));
        let sse = parse(json!({"type": "sse", "url": "https://x/sse"})).unwrap();
        assert!(matches!(sse.place, ServerPlace::Url { transport: UrlTransport::Sse, .. }));
        let bad_type = json!({"type": "carrier pigeon", "url": "https://x"});
        for bad in [json!({}), bad_type, json!({"url": "file:///x"}), json!({"command": "a", "args": [1]}), json!(7)] {
            assert!(parse(bad.clone()).is_err(), "{bad}");
        }
        let more = parse(json!({"command": "npx", "args": ["-y", "y"], "env": {"A": "${A}"}})).unwrap();
        assert_ne!(program.hash(), more.hash());
        let other_value = parse(json!({"command": "npx", "args": ["-y", "x"], "env": {"A": "new token"}})).unwrap();
        assert_eq!(program.hash(), other_value.hash(), "an approval covers the names of variables, not their values");
    }

    #[test]
    fn tokens_of_servers_are_known_as_secrets() {
        let env = BTreeMap::from([("GH".to_owned(), "token-of-the-host".to_owned())]);
        let host_env = CommandEnv { home: "/".into(), env };
        let secrets = |value: Value| ServerConfig::parse("s", &value).unwrap().secrets(&host_env);
        let program = json!({"command": "x", "env": {"GITHUB_TOKEN": "${GH}", "MODE": "production", "KEY_FILE": "/k"}});
        assert_eq!(secrets(program), ["token-of-the-host"]);
        let url =
            json!({"url": "https://x", "headers": {"Authorization": "Bearer abcdefghij", "Accept": "text/plain"}});
        assert_eq!(secrets(url), ["abcdefghij"]);
    }

    #[test]
    fn m13_only_named_variables_are_expanded() {
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        let host_env = CommandEnv { home: "/".into(), env };
        assert_eq!(expand("x${A}y${B}z${C:-d}${", &host_env), "x1yzd${");
    }

    #[test]
    fn m15_programs_in_the_workspace_are_never_used() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::write(root.join("sh"), "").unwrap();
        let env = BTreeMap::from([("PATH".to_owned(), format!("{}:.:/usr/bin:/bin", root.display()))]);
        let host_env = CommandEnv { home: "/".into(), env };
        let roots = [root.clone()];
        let found = resolve("sh", &host_env, &roots).unwrap();
        assert!(!found.starts_with(&root), "{found:?}");
        for refused in ["./sh", "bin/sh", &root.join("sh").display().to_string(), "no-such-program"] {
            assert!(resolve(refused, &host_env, &roots).is_err(), "{refused}");
        }
    }
}
