//! Arguments as models write them, against every tool that only looks, in a small folder. No tool breaks, and what is read
//! leniently (`"10"`, `10.0`, `"true"`) means what it means when it is written plainly.
#![no_main]

use std::{
    path::PathBuf,
    sync::{Arc, LazyLock},
};

use homing_core::{
    BoxFuture,
    authority::{Authority, Grant, Network, Sandbox},
    place::Place,
    tool::{Answer, CallHost, CallKey, Question, Tool, ToolContext, ToolOutput, ToolState},
};
use homing_tools::toolset::{ToolsConfig, files_tools};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const LOOKING: &[&str] = &["read", "glob", "grep", "ls", "tree", "think", "todo"];

static TOOLS: LazyLock<Vec<Arc<dyn Tool>>> = LazyLock::new(|| files_tools(ToolsConfig::default()));

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder").keep();
    let folder = folder.canonicalize().expect("it is there");
    std::fs::create_dir(folder.join("src")).expect("a folder");
    for (name, text) in [("a.txt", "one\ntwo\nthree\n"), ("src/b.rs", "fn main() {}\n"), ("empty", "")] {
        std::fs::write(folder.join(name), text).expect("a file");
    }
    folder
});

struct NoHost;

impl CallHost for NoHost {
    fn cancelled(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn progress(&self, _: &str) {}

    fn ask(&self, _: Question) -> BoxFuture<'_, Answer> {
        Box::pin(std::future::ready(Answer::Unavailable))
    }
}

fn context() -> ToolContext {
    let roots = vec![FOLDER.clone()];
    let grant = Arc::new(Grant {
        layers: Vec::new(),
        read: roots.clone(),
        write: roots,
        network: Network::Off,
        sandbox: Sandbox::WorkspaceWrite,
    });
    ToolContext {
        key: CallKey { run: uuid::Uuid::nil(), turn: 1, index: 0 },
        place: Place::root(),
        agent: "fuzz".to_owned(),
        workdir: FOLDER.clone(),
        authority: Arc::new(Authority { own: grant.clone(), grant }),
        state: Arc::new(ToolState::default()),
        host: Arc::new(NoHost),
    }
}

fn call(runtime: &tokio::runtime::Runtime, tool: &Arc<dyn Tool>, args: Value) -> ToolOutput {
    let output = runtime.block_on(tool.call(&context(), args));
    // What a caught panic says. Arguments may have these words, too, but stand between others.
    assert!(!output.text.starts_with("the tool broke on this call"), "{}: {}", tool.spec().name, output.text);
    output
}

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let Ok(args) = serde_json::from_slice::<Value>(rest) else { return };
    let tool = &TOOLS[usize::from(*first) % TOOLS.len()];
    let plain = plainly(&tool.spec().schema, args.clone());
    assert_eq!(plainly(&tool.spec().schema, plain.clone()), plain);
    let context = context();
    assert_eq!(tool.subjects(&context, &args), tool.subjects(&context, &plain), "{args} {plain}");
    if LOOKING.contains(&tool.spec().name.as_str()) {
        thread_local!(static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime"));
        RUNTIME.with(|runtime| {
            assert_eq!(call(runtime, tool, args.clone()).is_error, call(runtime, tool, plain).is_error, "{args}");
        });
    }
});

/// The same arguments with numbers and switches as the schema has them.
fn plainly(schema: &Value, mut args: Value) -> Value {
    let (Some(fields), Some(known)) = (args.as_object_mut(), schema["properties"].as_object()) else { return args };
    for (name, value) in fields {
        let kind = known.get(name).and_then(|schema| schema["type"].as_str());
        let plain = match (kind, &*value) {
            (Some("integer"), Value::String(text)) => text.trim().parse::<u64>().ok().map(Value::from),
            (Some("boolean"), Value::String(text)) if text.eq_ignore_ascii_case("true") => Some(true.into()),
            (Some("boolean"), Value::String(text)) if text.eq_ignore_ascii_case("false") => Some(false.into()),
            _ => None,
        };
        if let Some(plain) = plain {
            *value = plain;
        }
    }
    args
}
