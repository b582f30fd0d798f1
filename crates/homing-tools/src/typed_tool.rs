//! From a typed function to a tool: schema, argument errors that name the argument, and work that may block.
//! It knows no particular tool.

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
    tool::{Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A tool whose arguments are a Rust type.
pub trait TypedTool: Send + Sync + 'static {
    /// The arguments; their doc comments become the descriptions in the schema.
    type Args: DeserializeOwned + JsonSchema + Send;

    /// The name models call it by.
    const NAME: &'static str;
    /// What a resumed run may do about a call that was under way.
    const REPLAY: Replay;
    /// Effect of a call.
    const EFFECT: homing_core::tool::Effect;
    /// Arguments of a good call, as JSON; shown when a call's arguments cannot be read.
    const EXAMPLE: &'static str;

    /// When and how to use it.
    fn description(&self) -> String;

    /// What argument rules are held against.
    fn subjects(&self, context: &ToolContext, args: &Self::Args) -> Subjects {
        let _ = (context, args);
        Subjects::None
    }

    /// Does it.
    fn run<'a>(&'a self, context: &'a ToolContext, args: Self::Args) -> impl Future<Output = ToolOutput> + Send + 'a;
}

/// Makes a [`Tool`] of a [`TypedTool`].
pub fn typed<T: TypedTool>(tool: T) -> Arc<dyn Tool> {
    let spec = ToolSpec {
        name: T::NAME.to_owned(),
        description: tool.description(),
        schema: schema::<T::Args>(),
        replay: T::REPLAY,
        effect: T::EFFECT,
    };
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
        // The same reading as in `call`, so that what is checked is what is done.
        match read_args::<T>(args.clone()) {
            Ok(args) => self.tool.subjects(context, &args),
            Err(why) => Subjects::Unclear(why),
        }
    }

    fn call<'a>(&'a self, context: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            match read_args::<T>(args) {
                Ok(args) => self.tool.run(context, args).await,
                Err(why) => ToolOutput::error(why),
            }
        })
    }
}

fn read_args<T: TypedTool>(args: Value) -> Result<T::Args, String> {
    let object = match args {
        Value::Object(object) => object,
        Value::Null => Map::new(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(format!("{}: the arguments must be a JSON object, for example {}", T::NAME, T::EXAMPLE));
        }
    };
    serde_path_to_error::deserialize(Value::Object(object)).map_err(|error| {
        let at = error.path().to_string();
        let about = if at == "." { String::new() } else { format!("argument `{at}`: ") };
        format!("{}: {about}{}. Example: {}", T::NAME, error.into_inner(), T::EXAMPLE)
    })
}

/// The arguments' schema without what only costs tokens.
pub(crate) fn schema<A: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|it| {
        it.meta_schema = None;
        it.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<A>().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("description");
        object.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    quieten(&mut schema);
    schema
}

/// Drops titles, number formats and `null` as an alternative (optional arguments are simply not required), and writes
/// choices as a plain list.
fn quieten(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    object.remove("title");
    object.remove("format");
    object.remove("default");
    drop_null(object);
    list_choices(object);
    for key in ["items", "additionalProperties"] {
        object.get_mut(key).into_iter().for_each(quieten);
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties.values_mut().for_each(quieten);
    }
}

fn drop_null(object: &mut Map<String, Value>) {
    if let Some(Value::Array(kinds)) = object.get_mut("type") {
        kinds.retain(|it| it != "null");
        if let [only] = kinds.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = object.get_mut("enum") {
        choices.retain(|it| !it.is_null());
    }
    if let Some(Value::Array(kinds)) = object.get("anyOf") {
        let rest: Vec<Value> = kinds.iter().filter(|it| it["type"] != "null").cloned().collect();
        if let [Value::Object(only)] = rest.as_slice() {
            object.remove("anyOf");
            only.iter().for_each(|(key, value)| {
                object.entry(key.clone()).or_insert_with(|| value.clone());
            });
        }
    }
}

fn list_choices(object: &mut Map<String, Value>) {
    let Some(Value::Array(kinds)) = object.get("oneOf") else { return };
    let choices: Option<Vec<Value>> = kinds.iter().map(|it| it.get("const").cloned()).collect();
    if let Some(choices) = choices {
        object.remove("oneOf");
        object.insert("type".to_owned(), "string".into());
        object.insert("enum".to_owned(), Value::Array(choices));
    }
}

/// Tells work on a blocking thread that nobody waits for more of it.
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

/// Sets the flag when the call's future is dropped, so that no thread works on for a run that has ended.
struct StopOnDrop(StopSignal);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Runs `work` where it may block. When the call is cancelled the work is told so, and what it returns is returned.
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
        Err(_) => ToolOutput::error("the tool broke on this call; try it another way"),
    }
}
