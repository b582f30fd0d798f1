//! Constructors and setters of the types that other crates build. The types are `non_exhaustive`, so that a new field is not a
//! breaking change; outside this crate a literal cannot be written.

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde_json::Value;

use crate::{
    authority::{Allow, Authority, Grant, Layer, Network, Sandbox},
    definition::PermissionMode,
    diagnostic::{Diagnostic, Fix, Severity},
    message::{AttachedContent, Attachment, Image, Part, Reply, StopReason, TranscriptEntry, Usage},
    model::{
        Abilities, AskFailure, Charge, Effort, ModelCard, ModelError, ModelRequest, Rates, Sampling, ToolChoice,
        Toolbox,
    },
    place::Place,
    rule::Rule,
    tool::{CallHost, CallKey, Effect, Replay, ToolContext, ToolOutput, ToolSpec, ToolState},
};

impl Usage {
    /// Sets the tokens sent, cached ones included.
    #[must_use]
    pub fn input(mut self, input: u64) -> Self {
        self.input = input;
        self
    }

    /// Sets the tokens read from the provider's cache.
    #[must_use]
    pub fn cached(mut self, cached: u64) -> Self {
        self.cached = cached;
        self
    }

    /// Sets the tokens written to the provider's cache.
    #[must_use]
    pub fn cache_write(mut self, cache_write: u64) -> Self {
        self.cache_write = cache_write;
        self
    }

    /// Sets the tokens received, reasoning included.
    #[must_use]
    pub fn output(mut self, output: u64) -> Self {
        self.output = output;
        self
    }

    /// Sets the tokens spent on reasoning.
    #[must_use]
    pub fn reasoning(mut self, reasoning: u64) -> Self {
        self.reasoning = reasoning;
        self
    }

    /// Sets the cost in millionths of a US dollar.
    #[must_use]
    pub fn cost_micros(mut self, cost_micros: u64) -> Self {
        self.cost_micros = cost_micros;
        self
    }

    /// Sets whether these are worst-case estimates.
    #[must_use]
    pub fn estimated(mut self, estimated: bool) -> Self {
        self.estimated = estimated;
        self
    }
}

impl Reply {
    /// Creates a reply of these parts that is complete.
    pub fn new(parts: Vec<Part>) -> Self {
        Self { parts, ..Self::default() }
    }

    /// Sets the parts.
    #[must_use]
    pub fn parts(mut self, parts: Vec<Part>) -> Self {
        self.parts = parts;
        self
    }

    /// Sets the reason why the model stopped.
    #[must_use]
    pub fn stop(mut self, stop: StopReason) -> Self {
        self.stop = stop;
        self
    }

    /// Sets the usage.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Sets the name of the model that answered.
    #[must_use]
    pub fn model(mut self, model: impl Into<Option<String>>) -> Self {
        self.model = model.into();
        self
    }

    /// Sets the tool whose call the output limit cut.
    #[must_use]
    pub fn cut_call(mut self, cut_call: impl Into<Option<String>>) -> Self {
        self.cut_call = cut_call.into();
        self
    }

    /// Sets the results of a program.
    #[must_use]
    pub fn data(mut self, data: impl Into<Option<Value>>) -> Self {
        self.data = data.into();
        self
    }
}

impl Image {
    /// Creates an image, or a document, of base64 text.
    pub fn new(media_type: impl Into<String>, base64: impl Into<String>) -> Self {
        Self { media_type: media_type.into(), base64: base64.into(), pages: None }
    }

    /// Sets the number of pages of a document.
    #[must_use]
    pub fn pages(mut self, pages: impl Into<Option<u32>>) -> Self {
        self.pages = pages.into();
        self
    }
}

impl Attachment {
    /// Creates an attachment.
    pub fn new(path: impl Into<String>, content: AttachedContent) -> Self {
        Self { path: path.into(), content }
    }
}

impl ModelCard {
    /// Sets the name of the rate limiter.
    #[must_use]
    pub fn rate_limit_key(mut self, rate_limit_key: impl Into<String>) -> Self {
        self.rate_limit_key = rate_limit_key.into();
        self
    }

    /// Sets the prices; `None` if they are not known.
    #[must_use]
    pub fn rates(mut self, rates: impl Into<Option<Rates>>) -> Self {
        self.rates = rates.into();
        self
    }

    /// Sets the maximum number of tokens in a request and its reply.
    #[must_use]
    pub fn context_window(mut self, context_window: impl Into<Option<u64>>) -> Self {
        self.context_window = context_window.into();
        self
    }

    /// Sets the maximum number of output tokens.
    #[must_use]
    pub fn max_output(mut self, max_output: impl Into<Option<u64>>) -> Self {
        self.max_output = max_output.into();
        self
    }

    /// Sets the abilities.
    #[must_use]
    pub fn abilities(mut self, abilities: impl Into<Option<Abilities>>) -> Self {
        self.abilities = abilities.into();
        self
    }
}

impl Rates {
    /// Sets the price of input.
    #[must_use]
    pub fn input(mut self, input: u64) -> Self {
        self.input = input;
        self
    }

    /// Sets the price of input read from the cache.
    #[must_use]
    pub fn cached(mut self, cached: u64) -> Self {
        self.cached = cached;
        self
    }

    /// Sets the price of input written to the cache.
    #[must_use]
    pub fn cache_write(mut self, cache_write: u64) -> Self {
        self.cache_write = cache_write;
        self
    }

    /// Sets the price of output.
    #[must_use]
    pub fn output(mut self, output: u64) -> Self {
        self.output = output;
        self
    }

    /// Sets the higher prices of long requests.
    #[must_use]
    pub fn above(mut self, above: Vec<(u64, Rates)>) -> Self {
        self.above = above;
        self
    }
}

impl AskFailure {
    /// Creates a failure with its cost.
    pub fn new(error: ModelError, charge: Charge) -> Self {
        Self { error, charge, partial: String::new() }
    }

    /// Sets the cost of the failed attempt.
    #[must_use]
    pub fn charge(mut self, charge: Charge) -> Self {
        self.charge = charge;
        self
    }

    /// Sets the text that had arrived.
    #[must_use]
    pub fn partial(mut self, partial: impl Into<String>) -> Self {
        self.partial = partial.into();
        self
    }
}

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

    /// Sets the system prompt.
    #[must_use]
    pub fn system(mut self, system: &'a str) -> Self {
        self.system = system;
        self
    }

    /// Sets the transcript.
    #[must_use]
    pub fn messages(mut self, messages: &'a [Arc<TranscriptEntry>]) -> Self {
        self.messages = messages;
        self
    }

    /// Sets the available tools.
    #[must_use]
    pub fn tools(mut self, tools: &'a Toolbox) -> Self {
        self.tools = tools;
        self
    }

    /// Sets whether tools may or must be called.
    #[must_use]
    pub fn choice(mut self, choice: ToolChoice) -> Self {
        self.choice = choice;
        self
    }

    /// Sets the maximum number of output tokens.
    #[must_use]
    pub fn max_output(mut self, max_output: u64) -> Self {
        self.max_output = max_output;
        self
    }

    /// Sets the reasoning effort.
    #[must_use]
    pub fn effort(mut self, effort: impl Into<Option<Effort>>) -> Self {
        self.effort = effort.into();
        self
    }

    /// Sets the temperature in thousandths.
    #[must_use]
    pub fn temperature_milli(mut self, temperature_milli: impl Into<Option<u32>>) -> Self {
        self.temperature_milli = temperature_milli.into();
        self
    }

    /// Sets further settings.
    #[must_use]
    pub fn sampling(mut self, sampling: &'a Sampling) -> Self {
        self.sampling = sampling;
        self
    }

    /// Sets the time until the run's deadline.
    #[must_use]
    pub fn time_left(mut self, time_left: impl Into<Option<Duration>>) -> Self {
        self.time_left = time_left.into();
        self
    }
}

impl ToolSpec {
    /// Sets the treatment of an interrupted call in a resumed run.
    #[must_use]
    pub fn replay(mut self, replay: Replay) -> Self {
        self.replay = replay;
        self
    }

    /// Sets the effect of a call.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }
}

impl ToolOutput {
    /// Sets the images and documents for the model.
    #[must_use]
    pub fn images(mut self, images: Vec<Image>) -> Self {
        self.images = images;
        self
    }

    /// Sets the result as JSON, for programs.
    #[must_use]
    pub fn data(mut self, data: impl Into<Option<Value>>) -> Self {
        self.data = data.into();
        self
    }

    /// Sets whether the tool failed.
    #[must_use]
    pub fn is_error(mut self, is_error: bool) -> Self {
        self.is_error = is_error;
        self
    }
}

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

    /// Sets the run's working folder.
    #[must_use]
    pub fn workdir(mut self, workdir: impl Into<PathBuf>) -> Self {
        self.workdir = workdir.into();
        self
    }

    /// Sets the runtime's side of the call.
    #[must_use]
    pub fn host(mut self, host: Arc<dyn CallHost>) -> Self {
        self.host = host;
        self
    }
}

impl Grant {
    /// Creates permissions with these rules, without folders and network, and with commands confined.
    pub fn new(layers: Vec<Arc<Layer>>) -> Self {
        Self { layers, read: Vec::new(), write: Vec::new(), network: Network::Off, sandbox: Sandbox::WorkspaceWrite }
    }

    /// Sets the rules.
    #[must_use]
    pub fn layers(mut self, layers: Vec<Arc<Layer>>) -> Self {
        self.layers = layers;
        self
    }

    /// Sets the folders that may be read.
    #[must_use]
    pub fn read(mut self, read: Vec<PathBuf>) -> Self {
        self.read = read;
        self
    }

    /// Sets the folders that may be changed.
    #[must_use]
    pub fn write(mut self, write: Vec<PathBuf>) -> Self {
        self.write = write;
        self
    }

    /// Sets the hosts that may be reached.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Sets the confinement of commands.
    #[must_use]
    pub fn sandbox(mut self, sandbox: Sandbox) -> Self {
        self.sandbox = sandbox;
        self
    }
}

impl Layer {
    /// Sets the calls that are allowed.
    #[must_use]
    pub fn allow(mut self, allow: Allow) -> Self {
        self.allow = allow;
        self
    }

    /// Sets the calls that need approval.
    #[must_use]
    pub fn ask(mut self, ask: Vec<Rule>) -> Self {
        self.ask = ask;
        self
    }

    /// Sets the calls that are never allowed.
    #[must_use]
    pub fn deny(mut self, deny: Vec<Rule>) -> Self {
        self.deny = deny;
        self
    }

    /// Sets the calls that are approved in advance.
    #[must_use]
    pub fn settled(mut self, settled: Vec<Rule>) -> Self {
        self.settled = settled;
        self
    }

    /// Sets the permission mode.
    #[must_use]
    pub fn mode(mut self, mode: impl Into<Option<PermissionMode>>) -> Self {
        self.mode = mode.into();
        self
    }
}

impl Diagnostic {
    /// Sets the severity.
    #[must_use]
    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// Sets the file.
    #[must_use]
    pub fn path(mut self, path: impl Into<Option<Arc<PathBuf>>>) -> Self {
        self.path = path.into();
        self
    }

    /// Sets the message.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Sets the correction that a program can make.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<Option<Box<Fix>>>) -> Self {
        self.fix = fix.into();
        self
    }
}
