//! Constructors and setters of the types that other crates build. The types are `non_exhaustive`, so that a new field is not a
//! breaking change; outside this crate a literal cannot be written.

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde_json::Value;

use crate::{
    authority::{Allow, Authority, Grant, Layer, Network, Sandbox},
    definition::PermissionMode,
    diagnostic::{Diagnostic, Fix, Severity},
    message::{AttachedContent, Attachment, Image, Part, Reply, StopReason, ToolCall, TranscriptEntry, Usage},
    model::{
        Abilities, AskFailure, Charge, Effort, ModelCard, ModelError, ModelRequest, Rates, Sampling, ToolChoice,
        Toolbox,
    },
    place::Place,
    rule::Rule,
    tool::{CallHost, CallKey, Effect, Replay, ToolContext, ToolOutput, ToolSpec, ToolState},
};

/// Defines setters that are named like their fields. A type with a lifetime is followed by it.
macro_rules! setters {
    ($type:ty $(; $lifetime:lifetime)? { $($(#[$doc:meta])* $field:ident: $argument:ty,)* }) => {
        impl$(<$lifetime>)? $type {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $field(mut self, $field: $argument) -> Self {
                    self.$field = $field.into();
                    self
                }
            )*
        }
    };
}

setters! { Usage {
    /// Sets the tokens sent, cached ones included.
    input: u64,
    /// Sets the tokens read from the provider's cache.
    cached: u64,
    /// Sets the tokens written to the provider's cache.
    cache_write: u64,
    /// Sets the tokens received, reasoning included.
    output: u64,
    /// Sets the tokens spent on reasoning.
    reasoning: u64,
    /// Sets the cost in millionths of a US dollar.
    cost_micros: u64,
    /// Sets whether these are worst-case estimates.
    estimated: bool,
} }

impl Reply {
    /// Creates a reply of these parts that is complete.
    pub fn new(parts: Vec<Part>) -> Self {
        Self { parts, ..Self::default() }
    }
}

setters! { Reply {
    /// Sets the parts.
    parts: Vec<Part>,
    /// Sets the reason why the model stopped.
    stop: StopReason,
    /// Sets the usage.
    usage: Usage,
    /// Sets the name of the model that answered.
    model: impl Into<Option<String>>,
    /// Sets the tool whose call the output limit cut.
    cut_call: impl Into<Option<String>>,
} }

impl Reply {
    /// Sets the results of a program.
    #[must_use]
    pub fn data(mut self, data: impl Into<Option<Value>>) -> Self {
        self.data = data.into().map(Arc::new);
        self
    }
}

impl Image {
    /// Creates an image, or a document, of base64 text.
    pub fn new(media_type: impl Into<String>, base64: impl Into<String>) -> Self {
        Self { media_type: media_type.into(), base64: base64.into(), pages: None }
    }
}

setters! { Image {
    /// Sets the number of pages of a document.
    pages: impl Into<Option<u32>>,
} }

impl Attachment {
    /// Creates an attachment.
    pub fn new(path: impl Into<String>, content: AttachedContent) -> Self {
        Self { path: path.into(), content }
    }
}

setters! { ModelCard {
    /// Sets the name of the rate limiter.
    rate_limit_key: impl Into<String>,
    /// Sets the prices; `None` if they are not known.
    rates: impl Into<Option<Rates>>,
    /// Sets the maximum number of tokens in a request and its reply.
    context_window: impl Into<Option<u64>>,
    /// Sets the maximum number of output tokens.
    max_output: impl Into<Option<u64>>,
    /// Sets the abilities.
    abilities: impl Into<Option<Abilities>>,
} }

setters! { Rates {
    /// Sets the price of input.
    input: u64,
    /// Sets the price of input read from the cache.
    cached: u64,
    /// Sets the price of input written to the cache.
    cache_write: u64,
    /// Sets the price of output.
    output: u64,
    /// Sets the higher prices of long requests.
    above: Vec<(u64, Rates)>,
} }

impl AskFailure {
    /// Creates a failure with its cost.
    pub fn new(error: ModelError, charge: Charge) -> Self {
        Self { error, charge, partial: String::new() }
    }
}

setters! { AskFailure {
    /// Sets the cost of the failed attempt.
    charge: Charge,
    /// Sets the text that had arrived.
    partial: impl Into<String>,
} }

impl<'a> ModelRequest<'a> {
    /// Creates a request without limits and settings of its own. `key` is the same for every attempt at one step.
    pub fn new(system: &'a str, messages: &'a [Arc<TranscriptEntry>], tools: &'a Toolbox, key: &'a str) -> Self {
        Self {
            system,
            messages,
            tools,
            choice: ToolChoice::Auto,
            max_output: u64::MAX,
            effort: None,
            temperature_milli: None,
            sampling: &Sampling::NONE,
            time_left: None,
            key,
        }
    }
}

setters! { ModelRequest<'a>; 'a {
    /// Sets the system prompt.
    system: &'a str,
    /// Sets the transcript.
    messages: &'a [Arc<TranscriptEntry>],
    /// Sets the available tools.
    tools: &'a Toolbox,
    /// Sets whether tools may or must be called.
    choice: ToolChoice,
    /// Sets the maximum number of output tokens.
    max_output: u64,
    /// Sets the reasoning effort.
    effort: impl Into<Option<Effort>>,
    /// Sets the temperature in thousandths.
    temperature_milli: impl Into<Option<u32>>,
    /// Sets further settings.
    sampling: &'a Sampling,
    /// Sets the time until the run's deadline.
    time_left: impl Into<Option<Duration>>,
} }

setters! { ToolSpec {
    /// Sets the treatment of an interrupted call in a resumed run.
    replay: Replay,
    /// Sets the effect of a call.
    effect: Effect,
} }

setters! { ToolOutput {
    /// Sets the images and documents for the model.
    images: Vec<Image>,
    /// Sets the result as JSON, for programs.
    data: impl Into<Option<Value>>,
    /// Sets whether the tool failed.
    is_error: bool,
} }

impl ToolContext {
    /// Creates the context of a call.
    pub fn new(
        key: CallKey,
        place: Place,
        agent: impl Into<String>,
        workdir: impl Into<PathBuf>,
        authority: Arc<Authority>,
        state: Arc<ToolState>,
        host: Arc<dyn CallHost>,
    ) -> Self {
        Self { key, place, agent: agent.into(), workdir: workdir.into(), authority, state, host, trace: None }
    }
}

impl From<ToolCall> for Part {
    fn from(call: ToolCall) -> Self {
        Self::Call(Arc::new(call))
    }
}

setters! { ToolContext {
    /// Sets the run's working folder.
    workdir: impl Into<PathBuf>,
    /// Sets the runtime's side of the call.
    host: Arc<dyn CallHost>,
} }

impl Grant {
    /// Creates permissions with these rules, without folders and network, and with commands confined.
    pub fn new(layers: Vec<Arc<Layer>>) -> Self {
        Self { layers, read: Vec::new(), write: Vec::new(), network: Network::Off, sandbox: Sandbox::WorkspaceWrite }
    }
}

setters! { Grant {
    /// Sets the rules.
    layers: Vec<Arc<Layer>>,
    /// Sets the folders that may be read.
    read: Vec<PathBuf>,
    /// Sets the folders that may be changed.
    write: Vec<PathBuf>,
    /// Sets the hosts that may be reached.
    network: Network,
    /// Sets the confinement of commands.
    sandbox: Sandbox,
} }

setters! { Layer {
    /// Sets the calls that are allowed.
    allow: Allow,
    /// Sets the calls that need approval.
    ask: Vec<Rule>,
    /// Sets the calls that are never allowed.
    deny: Vec<Rule>,
    /// Sets the calls that are approved in advance.
    settled: Vec<Rule>,
    /// Sets the permission mode.
    mode: impl Into<Option<PermissionMode>>,
} }

setters! { Diagnostic {
    /// Sets the severity.
    severity: Severity,
    /// Sets the file.
    path: impl Into<Option<Arc<PathBuf>>>,
    /// Sets the message.
    message: impl Into<String>,
    /// Sets the correction that a program can make.
    fix: impl Into<Option<Box<Fix>>>,
} }
