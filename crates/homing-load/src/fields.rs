//! The table of keys: it maps the keys of all dialects to the fields of a definition. `build` reads the values.

use std::borrow::Cow;

use homing_core::limits::Limit;

/// A setting of model calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Temperature,
    Seed,
    TopP,
    ServiceTier,
}

/// A field of a definition, as a key names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Name,
    Title,
    Aliases,
    Description,
    Prompt,
    /// Instructions that follow the prompt.
    PromptMore,
    Tools,
    Denied,
    /// OpenCode's map of tool to allow, ask or deny.
    Permission,
    /// Roo's and Goose's bundles of tools.
    Groups,
    Extensions,
    Delegates,
    /// The agents to which it may delegate.
    Agents,
    Model,
    FallbackModels,
    Provider,
    Effort,
    Sampling(Setting),
    Skills,
    Resources,
    Limit(Limit, Unit),
    /// A map of limits.
    Limits,
    /// The tokens of one reply or of the whole run, depending on the value.
    MaxTokens,
    SharedContext,
    Parameters,
    Inherit,
    ProjectContext,
    PermissionMode,
    ReadOnly,
    Background,
    Isolation,
    Memory,
    McpServers,
    Hooks,
    Schema,
    SchemaOptional,
    Response,
    OnFailure,
    Taint,
    InitialPrompt,
    Color,
    Metadata,
    /// A map whose keys are read as keys of the agent.
    Inline,
    /// Data of the author or for another program: kept as metadata without a diagnostic.
    Note,
    /// A key of another program without effect here, for this reason: reported and kept as metadata.
    Ignored(&'static str),
    /// VS Code's handoffs: agents to which this one may delegate.
    Handoffs,
    /// A flag that with this value leaves the project's instructions out.
    NoProject(bool),
    /// Claude Code's size from which on a conversation is summarised.
    CompactWindow,
    /// Claude Code's agents that observe its runs.
    Observer(ObserverKey),
    /// Goose's recipes to which this one may delegate.
    SubRecipes,
    /// `disable: true` removes the agent.
    Disable,
    /// `local` or `remote`.
    Kind,
    /// OpenCode's `primary`, `subagent` or `all`.
    Mode,
    /// A flag that with this value keeps the agent from models.
    NotForModels(bool),
    /// A flag that with this value keeps the agent out of the user's lists.
    NotForUser(bool),
}

/// A key about observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObserverKey {
    Agents,
    Message,
    Subagents,
}

/// The unit of a bare number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Count,
    Dollars,
    Millis,
    Seconds,
    Minutes,
}

use Field as F;

/// The common table, with folded keys.
const TABLE: &[(&str, Field)] = &[
    ("name", F::Name),
    ("description", F::Description),
    ("tools", F::Tools),
    ("model", F::Model),
    ("color", F::Color),
    ("title", F::Title),
    ("label", F::Title),
    ("displayname", F::Title),
    ("aliases", F::Aliases),
    ("prompt", F::Prompt),
    ("systemprompt", F::Prompt),
    ("instructions", F::Prompt),
    ("developerinstructions", F::Prompt),
    ("allowedtools", F::Tools),
    ("disallowedtools", F::Denied),
    ("toolsdeny", F::Denied),
    ("deniedtools", F::Denied),
    ("denytools", F::Denied),
    ("excludetools", F::Denied),
    ("permission", F::Permission),
    ("delegates", F::Delegates),
    ("fallbackmodels", F::FallbackModels),
    ("fallbackmodel", F::FallbackModels),
    ("llmconfig", F::Model),
    ("modelprovider", F::Provider),
    ("effort", F::Effort),
    ("reasoningeffort", F::Effort),
    ("modelreasoningeffort", F::Effort),
    ("thinking", F::Effort),
    ("variant", F::Ignored("variants of models are not known here")),
    ("temperature", F::Sampling(Setting::Temperature)),
    ("seed", F::Sampling(Setting::Seed)),
    ("topp", F::Sampling(Setting::TopP)),
    ("servicetier", F::Sampling(Setting::ServiceTier)),
    ("skills", F::Skills),
    ("resources", F::Resources),
    ("defaultreads", F::Resources),
    ("limits", F::Limits),
    ("budget", F::Limits),
    ("turnbudget", F::Limits),
    ("maxturns", F::Limit(Limit::Turns, Unit::Count)),
    ("turns", F::Limit(Limit::Turns, Unit::Count)),
    ("steps", F::Limit(Limit::Turns, Unit::Count)),
    ("maxsteps", F::Limit(Limit::Turns, Unit::Count)),
    ("maxdepth", F::Limit(Limit::Depth, Unit::Count)),
    ("depth", F::Limit(Limit::Depth, Unit::Count)),
    ("maxtokens", F::MaxTokens),
    ("tokens", F::Limit(Limit::Tokens, Unit::Count)),
    ("maxcost", F::Limit(Limit::Cost, Unit::Dollars)),
    ("cost", F::Limit(Limit::Cost, Unit::Dollars)),
    ("maxbudgetusd", F::Limit(Limit::Cost, Unit::Dollars)),
    ("maxtoolcalls", F::Limit(Limit::ToolCalls, Unit::Count)),
    ("toolcalls", F::Limit(Limit::ToolCalls, Unit::Count)),
    ("maxchildren", F::Limit(Limit::Children, Unit::Count)),
    ("children", F::Limit(Limit::Children, Unit::Count)),
    ("timeout", F::Limit(Limit::Wall, Unit::Seconds)),
    ("maxseconds", F::Limit(Limit::Wall, Unit::Seconds)),
    ("timeoutseconds", F::Limit(Limit::Wall, Unit::Seconds)),
    ("timeoutmins", F::Limit(Limit::Wall, Unit::Minutes)),
    ("timeoutms", F::Limit(Limit::Wall, Unit::Millis)),
    ("wall", F::Limit(Limit::Wall, Unit::Seconds)),
    ("work", F::Limit(Limit::Work, Unit::Seconds)),
    ("maxoutput", F::Limit(Limit::Output, Unit::Count)),
    ("maxoutputtokens", F::Limit(Limit::Output, Unit::Count)),
    ("sharedcontext", F::SharedContext),
    ("inherit", F::Inherit),
    ("inheritmessages", F::Inherit),
    ("defaultcontext", F::Inherit),
    ("context", F::ProjectContext),
    ("surroundings", F::ProjectContext),
    ("inheritprojectcontext", F::NoProject(false)),
    ("permissionmode", F::PermissionMode),
    ("approvalmode", F::PermissionMode),
    ("sandboxmode", F::PermissionMode),
    ("readonly", F::ReadOnly),
    ("background", F::Background),
    ("isbackground", F::Background),
    ("isolation", F::Isolation),
    ("memory", F::Memory),
    ("mcpservers", F::McpServers),
    ("hooks", F::Hooks),
    ("schema", F::Schema),
    ("outputschema", F::Schema),
    ("schemaoptional", F::SchemaOptional),
    ("onfailure", F::OnFailure),
    ("taint", F::Taint),
    ("initialprompt", F::InitialPrompt),
    ("metadata", F::Metadata),
    ("disable", F::Disable),
    ("kind", F::Kind),
    ("colour", F::Color),
    ("category", F::Note),
    ("emoji", F::Note),
    ("vibe", F::Note),
    ("icon", F::Note),
    ("tags", F::Note),
    ("version", F::Note),
    ("author", F::Note),
    ("authors", F::Note),
    ("license", F::Note),
    ("compatibility", F::Note),
    ("homepage", F::Note),
    ("mode", F::Mode),
    ("hidden", F::NotForUser(true)),
    ("argumenthint", F::Ignored("it is shown in menus only")),
    ("disablemodelinvocation", F::NotForModels(true)),
    ("userinvocable", F::NotForUser(false)),
    ("userinvokable", F::NotForUser(false)),
    ("target", F::Ignored("the agent runs here, whatever its target")),
    ("infer", F::NotForModels(false)),
    ("handoffs", F::Handoffs),
    ("agents", F::Agents),
    ("package", F::Ignored("names are not qualified by packages")),
    ("nicknamecandidates", F::Ignored("runs are numbered, not named")),
    ("omitclaudemd", F::NoProject(true)),
    ("autocompactwindow", F::CompactWindow),
    ("observer", F::Observer(ObserverKey::Agents)),
    ("observermessage", F::Observer(ObserverKey::Message)),
    ("observesubagents", F::Observer(ObserverKey::Subagents)),
    ("options", F::Ignored("options of providers are not sent")),
    ("approvalpolicy", F::Ignored("the user's rules decide what needs approval")),
    ("websearch", F::Ignored("list the tool `websearch` instead")),
    ("modelverbosity", F::Ignored("the verbosity is not sent")),
    ("modelreasoningsummary", F::Ignored("summaries of reasoning are not requested")),
    ("executor", F::Ignored("the agent runs here, not in an external program")),
];

/// Normalises a key: lower case, without `-`, `_` and spaces. Most keys are written like this.
pub(crate) fn fold(key: &str) -> Cow<'_, str> {
    if key.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return Cow::Borrowed(key);
    }
    let letters = key.chars().filter(|character| !matches!(character, '-' | '_' | ' '));
    let mut folded = String::with_capacity(key.len());
    if key.is_ascii() {
        folded.extend(letters.map(|letter| letter.to_ascii_lowercase()));
    } else {
        folded.extend(letters.flat_map(char::to_lowercase));
    }
    Cow::Owned(folded)
}

/// The field that a folded key names.
pub(crate) fn lookup(folded: &str) -> Option<Field> {
    TABLE.iter().find(|(key, _)| *key == folded).map(|(_, field)| *field)
}

/// The common table: folded keys and their fields.
pub(crate) fn common() -> &'static [(&'static str, Field)] {
    TABLE
}

/// The effect of a key, for the table in the documentation.
pub(crate) fn effect(field: Field) -> String {
    let text = match field {
        F::Name => "name",
        F::Title => "display name",
        F::Aliases => "other names",
        F::Description => "description",
        F::Prompt => "prompt",
        F::PromptMore => "follows the prompt",
        F::Tools | F::Groups => "tools it may use",
        F::Denied => "tools it may not use",
        F::Permission => "tools and calls that are allowed, asked about or denied",
        F::Extensions => "tools and MCP servers",
        F::Delegates => "tools it may pass on (needs trust)",
        F::Agents | F::Handoffs | F::SubRecipes => "agents to which it may delegate",
        F::Model => "model",
        F::FallbackModels => "models to use if the first is not available",
        F::Provider => "provider of the model",
        F::Effort => "reasoning effort",
        F::Sampling(Setting::Temperature) => "temperature",
        F::Sampling(Setting::Seed) => "seed, if the provider takes one",
        F::Sampling(Setting::TopP) => "share of the most likely tokens to choose from",
        F::Sampling(Setting::ServiceTier) => "class of service at the provider",
        F::Skills => "skills in its prompt",
        F::Resources => "files that belong to it",
        F::Limit(limit, _) => return format!("limit: {limit}"),
        F::Limits => "map of limits",
        F::MaxTokens => "limit of one reply up to 65,536, else of the run",
        F::SharedContext => "keys of the parent's context",
        F::Parameters => "values for `{{KEY}}`, with defaults",
        F::Inherit => "messages of the parent that it starts with",
        F::ProjectContext | F::NoProject(_) => "project context in its prompt",
        F::CompactWindow => "tokens from which on its conversation is summarised",
        F::Observer(ObserverKey::Agents) => "agents that observe its runs",
        F::Observer(ObserverKey::Message) => "follows what observers are shown",
        F::Observer(ObserverKey::Subagents) => "`false`: observers are not shown the runs below",
        F::PermissionMode | F::ReadOnly => "permission mode",
        F::Background => "runs in the background",
        F::Isolation => "own worktree",
        F::Memory => "notes between runs (needs trust)",
        F::McpServers => "MCP servers (needs trust)",
        F::Hooks => "hooks (needs trust)",
        F::Schema | F::Response => "schema of its answer",
        F::SchemaOptional => "`true`: prose is an answer too",
        F::Taint => "network use after untrusted content was read",
        F::OnFailure => "effect of its failure",
        F::InitialPrompt => "task if none is given",
        F::Color => "colour in listings",
        F::Metadata => "map of notes",
        F::Inline => "its keys are read as keys of the agent",
        F::Note => "note of the author",
        F::Ignored(reason) => return format!("ignored: {reason}"),
        F::Disable => "removes the agent",
        F::Kind => "`remote` is refused",
        F::Mode => "`primary`: only the user starts it",
        F::NotForModels(value) => return format!("`{value}`: only the user starts it"),
        F::NotForUser(value) => return format!("`{value}`: only models start it"),
    };
    text.to_owned()
}

/// The fields of a definition's JSON form that a key sets.
pub(crate) fn definition_fields(field: Field) -> &'static [&'static str] {
    match field {
        F::Name => &["name", "title", "aliases"],
        F::Title => &["title"],
        F::Aliases => &["aliases"],
        F::Description => &["description"],
        F::Prompt | F::PromptMore => &["prompt", "description"],
        F::Tools | F::Permission | F::Groups | F::Agents | F::Handoffs => &["tools", "denied", "asked"],
        F::Denied => &["denied", "tools", "asked"],
        F::Extensions => &["tools", "mcp_servers"],
        F::Delegates => &["delegates"],
        F::Model | F::FallbackModels | F::Provider => &["model"],
        F::Effort => &["effort"],
        F::Sampling(Setting::Temperature) => &["temperature_milli"],
        F::Sampling(Setting::Seed | Setting::TopP | Setting::ServiceTier) => &["sampling"],
        F::CompactWindow => &["compact_window"],
        F::Observer(_) => &["observers"],
        F::Skills => &["skills"],
        F::Resources => &["resources"],
        F::Limit(..) | F::Limits | F::MaxTokens => &["limits"],
        F::SharedContext => &["shared_context"],
        F::Parameters => &["shared_context", "parameters"],
        F::Inherit => &["inherit"],
        F::ProjectContext => &["surroundings", "inherit"],
        F::NoProject(_) => &["surroundings"],
        F::PermissionMode | F::ReadOnly => &["permission_mode"],
        F::Background => &["background"],
        F::Isolation => &["isolation"],
        F::Memory => &["memory"],
        F::McpServers => &["mcp_servers"],
        F::Hooks => &["hooks"],
        F::Schema | F::Response => &["schema"],
        F::SchemaOptional => &["schema_optional"],
        F::OnFailure => &["on_failure"],
        F::Taint => &["taint"],
        F::InitialPrompt => &["initial_prompt"],
        F::Color => &["color"],
        F::Mode | F::NotForModels(_) | F::NotForUser(_) => &["offered_to"],
        F::Metadata | F::Note | F::Ignored(_) | F::SubRecipes | F::Inline | F::Disable | F::Kind => &[],
    }
}
