//! Tools made from async closures. The type of the arguments gives the schema.

use std::{future::Future, sync::Arc};

use homing_core::{
    BoxFuture,
    tool::{Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

type BoxedFn = dyn Fn(ToolContext, Value) -> BoxFuture<'static, ToolOutput> + Send + Sync;

/// A tool that calls a closure.
struct FnTool {
    spec: ToolSpec,
    function: Box<BoxedFn>,
}

impl Tool for FnTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, context: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput> {
        (self.function)(context.clone(), args)
    }
}

/// Makes a tool from an async function of its arguments.
///
/// The schema that the model sees is generated from the type `A`. Arguments that do not match it are returned to the model
/// as an error, and so is an `Err` of the function. `replay` says whether a call that was interrupted by a crash may be
/// repeated when the run is resumed; a tool with [`Replay::Safe`] counts as reading only, any other one as changing
/// something, which ask mode asks about and plan mode does not allow.
///
/// # Examples
///
/// ```
/// use homing::{Replay, tool_fn};
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Sum {
///     a: i64,
///     b: i64,
/// }
///
/// let add = tool_fn("add", "Adds two numbers.", Replay::Safe, |_, Sum { a, b }| async move {
///     a.checked_add(b).map(|sum| sum.to_string()).ok_or_else(|| "the sum is too large".to_owned())
/// });
/// assert_eq!(add.spec().name, "add");
/// ```
pub fn tool_fn<A, F, O>(name: &str, description: &str, replay: Replay, function: F) -> Arc<dyn Tool>
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(ToolContext, A) -> O + Send + Sync + 'static,
    O: Future<Output = Result<String, String>> + Send + 'static,
{
    let mut schema = schemars::schema_for!(A).to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("$schema");
        object.remove("title");
    }
    let spec =
        ToolSpec::new(name.to_owned(), description.to_owned(), schema).replay(replay).effect(replay.implied_effect());
    let function: Box<BoxedFn> = Box::new(move |context, args| match serde_json::from_value::<A>(args) {
        Err(error) => {
            let text = format!("the arguments do not match the schema: {error}");
            Box::pin(std::future::ready(ToolOutput::error(text)))
        }
        Ok(args) => {
            let output = function(context, args);
            Box::pin(async move { output.await.map_or_else(ToolOutput::error, ToolOutput::text) })
        }
    });
    Arc::new(FnTool { spec, function })
}
