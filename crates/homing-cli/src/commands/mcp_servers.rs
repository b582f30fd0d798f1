//! `homing mcp add`, `list`, `remove`, `login` and `logout`: the MCP servers that agents may use.

use std::{collections::BTreeMap, fs, path::PathBuf};

use homing::{CodingSetup, Folders, KnownServer, environment};
use homing_core::sanitize;
use homing_tools::mcp::{ApprovalState, McpApprovals, OauthTokens, ServerConfig, ServerPlace};
use homing_tools::trust::{AuthorityFiles, TrustState};
use serde::Serialize;
use serde_json::{Value, json};

use super::mcp::{AddArgs, McpCommand};
use crate::{
    config::Layered,
    exit::{Exit, Trouble, TroubleKind, print},
    terminal,
};

pub(crate) async fn run(command: &McpCommand) -> anyhow::Result<Exit> {
    let servers = Servers::read()?;
    match command {
        McpCommand::Serve(_) => unreachable!("the server is started elsewhere"),
        McpCommand::Add(args) => servers.add(args),
        McpCommand::List { json } => servers.list(*json),
        McpCommand::Remove { name } => servers.remove(name),
        McpCommand::Login { name } => Box::pin(servers.login(name)).await,
        McpCommand::Logout { name } => servers.logout(name),
    }
}

/// The servers that are known, and where they are configured.
struct Servers {
    config: Layered,
    path: PathBuf,
    folders: Folders,
    known: Vec<KnownServer>,
}

/// Returns whether the project has servers that the user does not trust yet.
fn has_untrusted_servers() -> bool {
    let setup = CodingSetup::from_env(&environment::current_folder().unwrap_or_default());
    let files = AuthorityFiles::of_project(&setup.places.project_folders());
    let is_trusted = setup.trust.is_some_and(|store| store.state(files.project(), &files) == TrustState::Trusted);
    !is_trusted && files.paths().any(|path| path.ends_with(".mcp.json"))
}

/// A server as it is written to the configuration.
#[derive(Serialize)]
struct ServerEntry {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    transport: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
}

impl Servers {
    fn read() -> Result<Self, Trouble> {
        let folder = environment::current_folder().unwrap_or_default();
        let folders = Folders::from_env();
        let config = Layered::read(folders.config.as_deref(), &folder)?;
        let no_home = || Trouble::config("HOME is not set, so there is no configuration");
        let path = config.user_path.clone().ok_or_else(no_home)?;
        let mut setup = CodingSetup::from_env(&folder);
        setup.servers.clone_from(&config.user.mcp);
        let known = setup.known_servers();
        Ok(Self { config, path, folders, known })
    }

    fn tokens(&self) -> Option<OauthTokens> {
        self.folders.mcp_tokens().map(OauthTokens::new)
    }

    fn add(&self, args: &AddArgs) -> anyhow::Result<Exit> {
        let name = &args.name;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(
                Trouble::usage(format!("`{name}` is not a server name: use letters, digits, `-` and `_`")).into()
            );
        }
        if self.config.user.mcp.contains_key(name) {
            return Err(Trouble::usage(format!("there is a server `{name}` already"))
                .hint(format!("remove it first: homing mcp remove {name}"))
                .into());
        }
        let header = |text: &String| {
            let (name, value) = text
                .split_once(':')
                .ok_or_else(|| Trouble::usage(format!("`{text}` is not a header; write NAME: VALUE")))?;
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        };
        let entry = ServerEntry {
            transport: args.transport.clone().filter(|transport| transport == "sse"),
            url: args.url.clone(),
            command: args.command.first().cloned(),
            args: args.command.iter().skip(1).cloned().collect(),
            env: args.env.iter().cloned().collect(),
            headers: args.header.iter().map(header).collect::<Result<_, Trouble>>()?,
        };
        ServerConfig::parse(name, &json!(entry)).map_err(|error| Trouble::usage(error.to_string()))?;
        let section = toml::to_string(&BTreeMap::from([("mcp", BTreeMap::from([(name, &entry)]))]))?;
        let before = fs::read_to_string(&self.path).unwrap_or_default();
        let gap = if before.is_empty() || before.ends_with("\n\n") { "" } else { "\n" };
        self.save(&format!("{before}{gap}{section}"))?;
        terminal::say(&format!("added `{name}` to {}", self.path.display()));
        terminal::say(&format!("hint: look at its tools and approve them with `homing trust --server {name}`"));
        Ok(Exit::Done)
    }

    /// Writes the configuration, unless it would no longer be valid.
    fn save(&self, text: &str) -> Result<(), Trouble> {
        let failed =
            |error: &dyn std::fmt::Display| Trouble::config(format!("cannot write {}: {error}", self.path.display()));
        text.parse::<toml::Table>().map_err(|error| failed(&error))?;
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        }
        // A link, such as one into a folder of dotfiles, stays one.
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let staged = path.with_extension("toml.new");
        fs::write(&staged, text).map_err(|error| failed(&error))?;
        if let Ok(metadata) = fs::metadata(&path) {
            let _ = fs::set_permissions(&staged, metadata.permissions());
        }
        fs::rename(&staged, &path).map_err(|error| failed(&error))
    }

    fn list(&self, as_json: bool) -> anyhow::Result<Exit> {
        let approvals = self.folders.approvals().and_then(|path| McpApprovals::load(&path).ok()).unwrap_or_default();
        let rows: Vec<Value> = self.known.iter().map(|server| self.row(server, &approvals)).collect();
        if as_json {
            print(&terminal::json(&json!(rows)))?;
            return Ok(Exit::Done);
        }
        if has_untrusted_servers() {
            terminal::say("the servers of .mcp.json are left out, because this project's files are not trusted");
            terminal::say("hint: look at them, then run `homing trust`");
        } else if rows.is_empty() {
            terminal::say("no MCP servers; add one with `homing mcp add`");
        }
        for row in &rows {
            let text = |key: &str| sanitize::inert_line(row[key].as_str().unwrap_or_default());
            let line = format!("{:<16}  {:<22}  {}  ({})", text("name"), text("state"), text("server"), text("from"));
            print(&line)?;
        }
        Ok(Exit::Done)
    }

    fn row(&self, server: &KnownServer, approvals: &McpApprovals) -> Value {
        let config = &server.config;
        let (state, tools) = match approvals.state(config) {
            ApprovalState::Approved(tools) => (format!("approved, {} tools", tools.len()), Some(tools.len())),
            ApprovalState::Changed => ("changed since approved".to_owned(), None),
            ApprovalState::Unknown => ("not approved".to_owned(), None),
        };
        let signed_in = url(config).and_then(|url| Some(self.tokens()?.has(url)));
        json!({
            "name": config.name,
            "server": config.place.to_string(),
            "state": state,
            "tools": tools,
            "from": server.from,
            "signed_in": signed_in,
        })
    }

    fn remove(&self, name: &str) -> anyhow::Result<Exit> {
        if !self.config.user.mcp.contains_key(name) {
            return Err(Trouble::usage(format!("there is no server `{name}` in your configuration"))
                .hint("`homing mcp list` lists the servers")
                .into());
        }
        let before = fs::read_to_string(&self.path)?;
        let after = without_section(&before, name).ok_or_else(|| {
            Trouble::config(format!(
                "`{name}` is not a section of its own in {}: remove it by hand",
                self.path.display()
            ))
        })?;
        self.save(&after)?;
        if let (Some(url), Some(tokens)) = (self.user_server(name).as_ref().and_then(url), self.tokens()) {
            tokens.forget(url);
        }
        if let Some(path) = self.folders.approvals() {
            let mut approvals = McpApprovals::load(&path)?;
            approvals.forget(name);
            approvals.save(&path)?;
        }
        terminal::say(&format!("removed `{name}`"));
        Ok(Exit::Done)
    }

    fn user_server(&self, name: &str) -> Option<ServerConfig> {
        ServerConfig::parse(name, self.config.user.mcp.get(name)?).ok()
    }

    /// Returns the address of a remote server and the place of its token.
    fn remote(&self, name: &str) -> Result<(String, OauthTokens), Trouble> {
        let server = self.known.iter().find(|server| server.config.name == name);
        let server = server.ok_or_else(|| {
            Trouble::usage(format!("there is no MCP server `{name}`")).hint("`homing mcp list` lists the servers")
        })?;
        let url = url(&server.config)
            .ok_or_else(|| Trouble::usage(format!("`{name}` is a local program and needs no sign-in")))?;
        let tokens = self.tokens().ok_or_else(|| Trouble::config("HOME is not set, so tokens cannot be saved"))?;
        Ok((url.to_owned(), tokens))
    }

    async fn login(&self, name: &str) -> anyhow::Result<Exit> {
        let (url, tokens) = self.remote(name)?;
        let show = |address: &str| {
            terminal::say("open this address in a browser on this machine to sign in:");
            let _ = print(&sanitize::inert_line(address));
        };
        tokens.sign_in(&url, show).await.map_err(|why| {
            Trouble::new(
                TroubleKind::Auth,
                format!("cannot sign in to `{name}` at {url}: {}", sanitize::inert_line(&why)),
            )
        })?;
        terminal::say(&format!("signed in to `{name}`"));
        Ok(Exit::Done)
    }

    fn logout(&self, name: &str) -> anyhow::Result<Exit> {
        let (url, tokens) = self.remote(name)?;
        terminal::say(if tokens.forget(&url) { "token deleted" } else { "there was no token" });
        Ok(Exit::Done)
    }
}

fn url(config: &ServerConfig) -> Option<&str> {
    match &config.place {
        ServerPlace::Url { url, .. } => Some(url),
        ServerPlace::Program { .. } => None,
    }
}

/// Removes the section of a server and its subsections; `None` if there is no such section.
fn without_section(text: &str, name: &str) -> Option<String> {
    let is_its = |line: &str| {
        let header = line.trim().strip_prefix('[').and_then(|rest| rest.split(']').next());
        let key: Option<String> = header.map(|key| key.chars().filter(|c| !c.is_whitespace() && *c != '"').collect());
        key.is_some_and(|key| key == format!("mcp.{name}") || key.starts_with(&format!("mcp.{name}.")))
    };
    let (mut kept, mut inside, mut found) = (String::new(), false, false);
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('[') {
            inside = is_its(line);
            found |= inside;
        }
        if !inside {
            kept.push_str(line);
        }
    }
    found.then(|| format!("{}\n", kept.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_of_a_server_is_removed_and_the_rest_kept() {
        let text = "model = \"x\" # mine\n\n[mcp.a]\ncommand = \"x\"\n\n[mcp.a.env]\nK = \"v\"\n\n[mcp.ab]\nurl = \"https://x\"\n";
        assert_eq!(without_section(text, "a").unwrap(), "model = \"x\" # mine\n\n[mcp.ab]\nurl = \"https://x\"\n");
        assert_eq!(without_section(text, "b"), None);
    }
}
