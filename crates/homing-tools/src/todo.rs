//! The `todo` tool: a run's task list, kept as long as the run.

use std::sync::{Mutex, PoisonError};

use homing_core::tool::{Replay, ToolContext, ToolOutput};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{files::path_arg::printable, typed_tool::TypedTool};

/// Maximum number of items in a list.
const MAX_ITEMS: usize = 200;

/// The `todo` tool.
pub(crate) struct TodoTool;

/// Arguments of `todo`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TodoArgs {
    /// The whole list, in order; it replaces the previous list. If absent, the list is only shown.
    #[serde(default, alias = "todos", alias = "tasks", alias = "plan", alias = "list")]
    items: Option<Vec<TodoEntry>>,
}

/// An item as models write it: an object or a plain string.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TodoEntry {
    Item(TodoItem),
    Text(String),
}

// The schema shows only the object form; both are accepted.
impl JsonSchema for TodoEntry {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        TodoItem::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        TodoItem::json_schema(generator)
    }
}

/// One thing to do.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct TodoItem {
    /// The task.
    #[serde(alias = "content", alias = "task", alias = "title", alias = "step", alias = "description")]
    text: String,
    /// The state of the task.
    #[serde(default, alias = "state")]
    status: TodoStatus,
}

/// The state of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum TodoStatus {
    /// Not started.
    #[default]
    #[serde(alias = "open", alias = "todo", alias = "not_started", alias = "not-started")]
    Pending,
    /// In progress.
    #[serde(alias = "in-progress", alias = "inprogress", alias = "doing", alias = "active")]
    InProgress,
    /// Finished.
    #[serde(alias = "completed", alias = "complete", alias = "finished")]
    Done,
    /// Cancelled.
    #[serde(alias = "canceled", alias = "dropped")]
    Cancelled,
}

/// The list of one run.
#[derive(Default)]
struct TodoList(Mutex<Vec<TodoItem>>);

impl TypedTool for TodoTool {
    type Args = TodoArgs;
    const NAME: &'static str = "todo";
    // A repeated call writes the same list again.
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"items": [{"text": "Find the bug", "status": "in_progress"}]}"#;

    fn description(&self) -> String {
        "Keeps your task list. Send the whole list each time, with the status of each item; send nothing to see it. Use \
         it for tasks of several steps, and keep one item in progress."
            .to_owned()
    }

    async fn run(&self, context: &ToolContext, args: TodoArgs) -> ToolOutput {
        let list = context.state.get::<TodoList>();
        let mut list = list.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(items) = args.items {
            if items.len() > MAX_ITEMS {
                return ToolOutput::error(format!(
                    "todo: {} items are too many, the maximum is {MAX_ITEMS}",
                    items.len()
                ));
            }
            *list = items.into_iter().map(TodoEntry::into_item).collect();
        }
        let data = serde_json::to_value(&*list).ok();
        ToolOutput::text(render(&list)).data(data)
    }
}

impl TodoEntry {
    fn into_item(self) -> TodoItem {
        match self {
            Self::Item(item) => item,
            Self::Text(text) => TodoItem { text, status: TodoStatus::Pending },
        }
    }
}

fn render(list: &[TodoItem]) -> String {
    if list.is_empty() {
        return "the list is empty".to_owned();
    }
    let done = list.iter().filter(|item| item.status == TodoStatus::Done).count();
    let lines: String = list
        .iter()
        .map(|item| {
            let mark = match item.status {
                TodoStatus::Pending => "[ ]",
                TodoStatus::InProgress => "[>]",
                TodoStatus::Done => "[x]",
                TodoStatus::Cancelled => "[-]",
            };
            format!("{mark} {}\n", printable(item.text.as_ref()))
        })
        .collect();
    format!("{done} of {} done\n{lines}", list.len())
}
