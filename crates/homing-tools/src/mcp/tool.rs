//! A tool of an MCP server, as a [`Tool`].

use std::sync::Arc;

use homing_core::{
    BoxFuture,
    tool::{Replay, Tool, ToolContext, ToolOutput, ToolSpec},
    trace_context::TraceContext,
};
use serde_json::{Map, Value};

use super::{connection::Connection, definitions::ListedTool, results};

pub(super) struct McpTool {
    spec: ToolSpec,
    tool: ListedTool,
    connection: Arc<Connection>,
}

impl McpTool {
    pub(super) fn new(tool: ListedTool, connection: Arc<Connection>) -> Self {
        // The server's claim to only read counts as the user approved it with the tool; without it a tool counts as changing
        // something. A server that is not approved has no tools at all.
        let replay = if tool.read_only { Replay::Safe } else { Replay::Unsafe };
        let spec = ToolSpec::new(tool.name.clone(), tool.description.clone(), tool.schema.clone())
            .replay(replay)
            .effect(replay.implied_effect());
        Self { spec, tool, connection }
    }

    async fn run(&self, args: Map<String, Value>, trace: Option<&TraceContext>) -> ToolOutput {
        match self.connection.call(&self.tool, args, trace).await {
            Ok(result) => results::output(result),
            Err(error) => ToolOutput::error(error.to_string()),
        }
    }
}

impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, context: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let args = match args {
                Value::Object(args) => args,
                Value::Null => Map::new(),
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    return ToolOutput::error(format!("{}: the arguments must be a JSON object", self.spec.name));
                }
            };
            tokio::select! {
                output = self.run(args, context.trace.as_ref()) => output,
                () = context.cancelled() => ToolOutput::error("cancelled; the server was notified, the outcome is unknown"),
            }
        })
    }
}
