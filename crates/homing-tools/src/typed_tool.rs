//! [`TypedTool`]: a tool whose arguments are a Rust type, with a generated schema and argument errors that name the argument.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use homing_core::{
    BoxFuture,
    rule::Subjects,
    tool::{Effect, Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A tool whose arguments are a Rust type.
pub trait TypedTool: Send + Sync + 'static {
    /// The arguments; their doc comments become the descriptions in the schema.
    type Args: DeserializeOwned + JsonSchema + Send;

    /// The name by which models call the tool.
    const NAME: &'static str;
    /// Decides whether a resumed run may repeat a call that was interrupted.
    const REPLAY: Replay;
    /// Effect of a call.
    const EFFECT: Effect;
    /// Arguments of a valid call, as JSON; shown when a call's arguments cannot be parsed.
    const EXAMPLE: &'static str;

    /// Describes when and how to use the tool.
    fn description(&self) -> String;

    /// Returns the parts of a call that permission rules with patterns apply to.
    fn subjects(&self, context: &ToolContext, args: &Self::Args) -> Subjects {
        let _ = (context, args);
        Subjects::None
    }

    /// Returns what a call would change, for the user who must approve it.
    fn preview(&self, context: &ToolContext, args: &Self::Args) -> Option<String> {
        let _ = (context, args);
        None
    }

    /// Executes a call.
    fn run<'a>(&'a self, context: &'a ToolContext, args: Self::Args) -> impl Future<Output = ToolOutput> + Send + 'a;
}

/// Makes a [`Tool`] from a [`TypedTool`].
pub fn typed<T: TypedTool>(tool: T) -> Arc<dyn Tool> {
    let spec =
        ToolSpec::new(T::NAME.to_owned(), tool.description(), schema::<T::Args>()).replay(T::REPLAY).effect(T::EFFECT);
    Arc::new(Typed { spec, tool })
}

struct Typed<T> {
    spec: ToolSpec,
    tool: T,
}

impl<T: TypedTool> Tool for Typed<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn subjects(&self, context: &ToolContext, args: &Value) -> Subjects {
        // The arguments are parsed exactly as in `call`, so that the rules see what will be executed.
        match read_args(T::NAME, T::EXAMPLE, args.clone()) {
            Ok(args) => self.tool.subjects(context, &args),
            Err(why) => Subjects::Unclear(why),
        }
    }

    fn preview(&self, context: &ToolContext, args: &Value) -> Option<String> {
        let args = read_args(T::NAME, T::EXAMPLE, args.clone()).ok()?;
        self.tool.preview(context, &args)
    }

    fn call<'a>(&'a self, context: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            match read_args(T::NAME, T::EXAMPLE, args) {
                Ok(args) => self.tool.run(context, args).await,
                Err(why) => ToolOutput::error(why),
            }
        })
    }
}

fn read_args<A: DeserializeOwned>(tool: &str, example: &str, args: Value) -> Result<A, String> {
    let object = match args {
        Value::Object(object) => object,
        Value::Null => Map::new(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(format!("{tool}: the arguments must be a JSON object, for example {example}"));
        }
    };
    serde_path_to_error::deserialize(Value::Object(object)).map_err(|error| {
        let path = error.path().to_string();
        let argument = if path == "." { String::new() } else { format!("argument `{path}`: ") };
        format!("{tool}: {argument}{}. Example: {example}", error.into_inner())
    })
}

/// Generates the schema of the arguments, without keywords that only cost tokens.
fn schema<A: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<A>().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("description");
        object.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    simplify(&mut schema);
    schema
}

/// Drops titles, number formats and `null` alternatives (optional arguments are not required), and turns constants into
/// an `enum`.
fn simplify(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    for key in ["title", "format", "default"] {
        if keyword(object, key).is_some() {
            object.remove(key);
        }
    }
    drop_null(object);
    list_choices(object);
    for key in ["items", "additionalProperties"] {
        keyword(object, key).into_iter().for_each(simplify);
    }
    if let Some(Value::Object(properties)) = keyword(object, "properties") {
        properties.values_mut().for_each(simplify);
    }
}

/// Finds a keyword of a schema. There are few of them and most are absent, so comparing takes less than hashing; every process makes
/// these schemas before its first model call.
fn keyword<'a>(object: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Value> {
    object.iter_mut().find(|(name, _)| *name == key).map(|(_, value)| value)
}

fn drop_null(object: &mut Map<String, Value>) {
    if let Some(Value::Array(kinds)) = keyword(object, "type") {
        kinds.retain(|kind| kind != "null");
        if let [only] = kinds.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = keyword(object, "enum") {
        choices.retain(|choice| !choice.is_null());
    }
    if let Some(Value::Array(kinds)) = keyword(object, "anyOf") {
        let rest: Vec<Value> = kinds.iter().filter(|kind| kind["type"] != "null").cloned().collect();
        if let [Value::Object(only)] = rest.as_slice() {
            object.remove("anyOf");
            only.iter().for_each(|(key, value)| {
                object.entry(key.clone()).or_insert_with(|| value.clone());
            });
        }
    }
}

fn list_choices(object: &mut Map<String, Value>) {
    let Some(Value::Array(kinds)) = keyword(object, "oneOf") else { return };
    let choices: Option<Vec<Value>> = kinds.iter().map(|kind| kind.get("const").cloned()).collect();
    if let Some(choices) = choices {
        object.remove("oneOf");
        object.insert("type".to_owned(), "string".into());
        object.insert("enum".to_owned(), Value::Array(choices));
    }
}

/// A flag that asks work on a blocking thread to stop.
#[derive(Clone, Default)]
pub(crate) struct StopSignal(Arc<AtomicBool>);

impl StopSignal {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sets the flag when the call's future is dropped, so that no thread keeps working for a run that has ended.
struct StopOnDrop(StopSignal);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Runs `work` on a blocking thread. A cancelled call sets the stop signal and returns what the work then returns.
pub(crate) async fn blocking(
    context: &ToolContext,
    work: impl FnOnce(&ToolContext, &StopSignal) -> Result<ToolOutput, String> + Send + 'static,
) -> ToolOutput {
    let stop = StopSignal::default();
    let _stop_on_drop = StopOnDrop(stop.clone());
    let mut task = tokio::task::spawn_blocking({
        let (context, stop) = (context.clone(), stop.clone());
        move || work(&context, &stop)
    });
    let joined = tokio::select! {
        joined = &mut task => joined,
        () = context.cancelled() => {
            stop.set();
            task.await
        }
    };
    match joined {
        Ok(Ok(output)) => output,
        Ok(Err(why)) => ToolOutput::error(why),
        Err(_) => ToolOutput::error("the tool failed unexpectedly on this call"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, JsonSchema)]
    struct GreetArgs {
        /// The person to greet.
        #[expect(dead_code, reason = "only its schema matters")]
        name: String,
        #[expect(dead_code, reason = "only its schema matters")]
        times: Option<u32>,
    }

    #[test]
    fn schema_is_short_and_argument_errors_name_the_argument() {
        let schema = schema::<GreetArgs>();
        let properties = serde_json::json!({
            "name": {"type": "string", "description": "The person to greet."}, "times": {"type": "integer", "minimum": 0}
        });
        assert_eq!(schema["properties"], properties);
        assert!(schema.get("title").is_none() && schema.get("$schema").is_none());
        let error = |args| read_args::<GreetArgs>("greet", "{}", args).err().unwrap();
        assert_eq!(
            error(serde_json::json!({"name": 7})),
            "greet: argument `name`: invalid type: integer `7`, expected a string. Example: {}"
        );
        assert_eq!(error(serde_json::json!([])), "greet: the arguments must be a JSON object, for example {}");
    }
}
