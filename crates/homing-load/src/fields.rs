//! The table of keys: it maps the keys of all dialects to the fields of a definition. `build` reads the values.

use homing_core::limits::Limit;

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
    Temperature,
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
    InheritProject,
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
    Retry,
    InitialPrompt,
    Color,
    Metadata,
    /// A map whose keys are read as keys of the agent.
    Inline,
    /// Data of the author or for another program: kept as metadata without a diagnostic.
    Note,
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
    ("variant", F::Note),
    ("temperature", F::Temperature),
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
    ("inheritprojectcontext", F::InheritProject),
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
    ("argumenthint", F::Note),
    ("disablemodelinvocation", F::NotForModels(true)),
    ("userinvocable", F::NotForUser(false)),
    ("userinvokable", F::NotForUser(false)),
    ("target", F::Note),
    ("infer", F::NotForModels(false)),
    ("handoffs", F::Note),
    ("agents", F::Agents),
    ("package", F::Note),
    ("nicknamecandidates", F::Note),
];

/// Normalises a key: lower case, without `-`, `_` and spaces.
pub(crate) fn fold(key: &str) -> String {
    key.chars().filter(|character| !matches!(character, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

/// The field that a folded key names.
pub(crate) fn lookup(folded: &str) -> Option<Field> {
    TABLE.iter().find(|(key, _)| *key == folded).map(|(_, field)| *field)
}
