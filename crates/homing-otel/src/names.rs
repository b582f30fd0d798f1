//! Names of spans, attributes and metrics: those of OpenTelemetry's conventions for generative AI, and `homing.*` for the rest.

use crate::span::{Attributes, text};

pub(crate) const INVOKE_AGENT: &str = "invoke_agent";
pub(crate) const INVOKE_WORKFLOW: &str = "invoke_workflow";
pub(crate) const CHAT: &str = "chat";
pub(crate) const EXECUTE_TOOL: &str = "execute_tool";

pub(crate) const OPERATION: &str = "gen_ai.operation.name";
pub(crate) const PROVIDER: &str = "gen_ai.provider.name";
/// The older name of the provider attribute, which many viewers still use.
pub(crate) const SYSTEM_NAME: &str = "gen_ai.system";
pub(crate) const MODEL: &str = "gen_ai.request.model";
pub(crate) const MAX_TOKENS: &str = "gen_ai.request.max_tokens";
pub(crate) const RESPONSE_MODEL: &str = "gen_ai.response.model";
pub(crate) const FINISH: &str = "gen_ai.response.finish_reasons";
pub(crate) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(crate) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(crate) const CACHED_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
pub(crate) const CACHE_WRITE_TOKENS: &str = "gen_ai.usage.cache_creation.input_tokens";
pub(crate) const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
pub(crate) const FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
pub(crate) const TOKEN_TYPE: &str = "gen_ai.token.type";
pub(crate) const AGENT: &str = "gen_ai.agent.name";
pub(crate) const AGENT_ID: &str = "gen_ai.agent.id";
pub(crate) const AGENT_VERSION: &str = "gen_ai.agent.version";
pub(crate) const WORKFLOW: &str = "gen_ai.workflow.name";
pub(crate) const CONVERSATION: &str = "gen_ai.conversation.id";
pub(crate) const TOOL: &str = "gen_ai.tool.name";
pub(crate) const TOOL_TYPE: &str = "gen_ai.tool.type";
pub(crate) const CALL_ID: &str = "gen_ai.tool.call.id";
pub(crate) const ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub(crate) const RESULT: &str = "gen_ai.tool.call.result";
pub(crate) const SYSTEM: &str = "gen_ai.system_instructions";
pub(crate) const INPUT: &str = "gen_ai.input.messages";
pub(crate) const OUTPUT: &str = "gen_ai.output.messages";
pub(crate) const ERROR: &str = "error.type";

/// Names of OpenInference, which viewers such as Phoenix show in their lists.
pub(crate) const INPUT_VALUE: &str = "input.value";
pub(crate) const OUTPUT_VALUE: &str = "output.value";
pub(crate) const OPENINFERENCE_KIND: &str = "openinference.span.kind";

pub(crate) const RUN: &str = "homing.run";
pub(crate) const CALL: &str = "homing.call";
pub(crate) const PLACE: &str = "homing.place";
pub(crate) const STATUS: &str = "homing.status";
pub(crate) const LIMIT: &str = "homing.limit";
pub(crate) const COST: &str = "homing.cost_usd";
pub(crate) const QUEUED: &str = "homing.queued_seconds";
pub(crate) const TAGS: &str = "homing.tags";

pub(crate) const TOKEN_USAGE: &str = "gen_ai.client.token.usage";
pub(crate) const DURATION: &str = "gen_ai.client.operation.duration";
pub(crate) const FIRST_CHUNK_TIME: &str = "gen_ai.client.operation.time_to_first_chunk";
pub(crate) const RUNS: &str = "homing.runs";
pub(crate) const COST_SUM: &str = "homing.cost";
pub(crate) const QUEUE: &str = "homing.run.queue.duration";
pub(crate) const RUN_TIME: &str = "homing.run.duration";
pub(crate) const DROPPED: &str = "homing.telemetry.dropped";

/// Splits a model name into the provider and its own name for the model.
pub(crate) fn split(model: &str) -> (&str, &str) {
    let (provider, model) = model.split_once('/').unwrap_or((model, model));
    (well_known(provider), model)
}

/// Returns the name of a provider in the conventions, if it has one that differs.
fn well_known(provider: &str) -> &str {
    match provider {
        "azure" => "azure.ai.openai",
        "bedrock" => "aws.bedrock",
        "gemini" | "gemini-interactions" => "gcp.gemini",
        "mistral" => "mistral_ai",
        "moonshot" => "moonshot_ai",
        "vertex" => "gcp.vertex_ai",
        "xai" => "x_ai",
        other => other,
    }
}

/// Returns the attributes of a model.
pub(crate) fn model(name: &str) -> Attributes {
    let (provider, model) = split(name);
    vec![(PROVIDER, text(provider)), (SYSTEM_NAME, text(provider)), (MODEL, text(model))]
}

/// Returns true if a name stands for a team's program, which is called like a model but is not one.
pub(crate) fn is_program(model: &str) -> bool {
    model.starts_with("team/")
}

/// Returns true if a name stands for the program of a team, a map or a script, and not for a person who is a member of one.
pub(crate) fn is_workflow(model: &str) -> bool {
    is_program(model) && model != "team/person"
}
