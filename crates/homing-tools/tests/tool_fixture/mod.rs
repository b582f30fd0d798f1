//! A fixture for calling tools: a temporary folder, permissions for it, and a host that records questions.
#![allow(dead_code, unreachable_pub, reason = "each test file uses only a part")]

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use homing_core::{
    BoxFuture,
    authority::{Authority, Grant, Layer, Network, Sandbox},
    place::Place,
    rule::Subjects,
    tool::{Answer, CallHost, CallKey, Question, Tool, ToolContext, ToolOutput, ToolState},
};
use serde_json::Value;
use tempfile::TempDir;

pub struct ToolFixture {
    pub dir: TempDir,
    pub tools: Vec<Arc<dyn Tool>>,
    pub grant: Grant,
}

pub struct Host {
    pub answer: Answer,
    pub asked: Mutex<Vec<Question>>,
}

impl CallHost for Host {
    fn cancelled(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
    fn progress(&self, _text: &str) {}
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        self.asked.lock().unwrap().push(question);
        let answer = self.answer.clone();
        Box::pin(async move { answer })
    }
}

impl ToolFixture {
    /// Creates the workspace `repo` in a temporary folder, readable and writable.
    pub fn new(tools: Vec<Arc<dyn Tool>>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("repo");
        std::fs::create_dir(&root).unwrap();
        let grant = Grant::new(vec![Arc::new(Layer::everything("test"))])
            .read(vec![root.clone()])
            .write(vec![root])
            .network(Network::Off)
            .sandbox(Sandbox::WorkspaceWrite);
        Self { dir, tools, grant }
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("repo")
    }

    pub fn outside(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    pub fn file(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn content(&self, path: impl AsRef<Path>) -> String {
        std::fs::read_to_string(self.root().join(path)).unwrap()
    }

    pub fn run(&self) -> Run<'_> {
        self.run_answering(Answer::Unavailable)
    }

    pub fn run_answering(&self, answer: Answer) -> Run<'_> {
        let host = Arc::new(Host { answer, asked: Mutex::default() });
        let grant = Arc::new(self.grant.clone());
        let context = ToolContext::new(
            CallKey { run: uuid::Uuid::new_v4(), turn: 1, index: 0 },
            Place::root(),
            "tester".to_owned(),
            self.root(),
            Arc::new(Authority { own: grant.clone(), grant }),
            Arc::new(ToolState::default()),
            host.clone(),
        );
        Run { fixture: self, context, host }
    }
}

pub struct Run<'f> {
    pub fixture: &'f ToolFixture,
    pub context: ToolContext,
    pub host: Arc<Host>,
}

impl Run<'_> {
    pub fn tool(&self, name: &str) -> &Arc<dyn Tool> {
        self.fixture.tools.iter().find(|tool| tool.spec().name == name).unwrap_or_else(|| panic!("no tool {name}"))
    }

    pub async fn call(&self, name: &str, args: Value) -> ToolOutput {
        self.tool(name).call(&self.context, args).await
    }

    pub async fn ok(&self, name: &str, args: Value) -> String {
        let output = self.call(name, args).await;
        assert!(!output.is_error, "{name}: {}", output.text);
        output.text
    }

    pub async fn refused(&self, name: &str, args: Value) -> String {
        let output = self.call(name, args).await;
        assert!(output.is_error, "{name} was not refused: {}", output.text);
        output.text
    }

    pub fn subjects(&self, name: &str, args: Value) -> Subjects {
        self.tool(name).subjects(&self.context, &args)
    }
}
