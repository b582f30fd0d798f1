//! Tools from async closures, with arguments described by their type.

use std::{future::Future, sync::Arc};

use homing_core::{
    BoxFuture,
    tool::{Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

struct Closure<F> {
    spec: ToolSpec,
    act: F,
}

type Act = dyn Fn(ToolContext, Value) -> BoxFuture<'static, ToolOutput> + Send + Sync;

impl Tool for Closure<Box<Act>> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, context: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput> {
        (self.act)(context.clone(), args)
    }
}

/// A tool that is an async function of its arguments.
///
/// The arguments' type gives the schema; what does not fit it comes back to the model as a message. An `Err` is a message to
/// the model, too. `replay` says what a resumed run may do about a call that was under way.
pub fn tool_fn<A, F, O>(name: &str, description: &str, replay: Replay, act: F) -> Arc<dyn Tool>
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
    let spec = ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        schema,
        replay,
        effect: homing_core::tool::Effect::Changes,
    };
    let act: Box<Act> = Box::new(move |context, args| match serde_json::from_value::<A>(args) {
        Err(error) => {
            let text = format!("the arguments do not fit: {error}");
            Box::pin(std::future::ready(ToolOutput::error(text)))
        }
        Ok(args) => {
            let done = act(context, args);
            Box::pin(async move { done.await.map_or_else(ToolOutput::error, ToolOutput::text) })
        }
    });
    Arc::new(Closure { spec, act })
}
