//! `todo`: a run's list of what is to be done. It lives and ends with the run.

use std::sync::{Mutex, PoisonError};

use homing_core::tool::{Replay, ToolContext, ToolOutput};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{files::path_arg::inert, typed_tool::TypedTool};

/// Items in one list at most.
const MOST: usize = 200;

/// Keeps a list.
pub(crate) struct Todo;

/// Arguments of `todo`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The whole list, in order; it replaces the one before. Absent: the list is only shown.
    #[serde(default, alias = "todos", alias = "tasks", alias = "plan", alias = "list")]
    items: Option<Vec<TodoEntry>>,
}

/// An item as models write it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TodoEntry {
    Whole(TodoItem),
    Words(String),
}

// The schema shows one way to write an item; both are understood.
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
    /// What is to be done.
    #[serde(alias = "content", alias = "task", alias = "title", alias = "step", alias = "description")]
    text: String,
    /// How far it is.
    #[serde(default, alias = "state")]
    status: TodoStatus,
}

/// How far an item is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum TodoStatus {
    /// Not begun.
    #[default]
    #[serde(alias = "open", alias = "todo", alias = "not_started", alias = "not-started")]
    Pending,
    /// Under way.
    #[serde(alias = "in-progress", alias = "inprogress", alias = "doing", alias = "active")]
    InProgress,
    /// Finished.
    #[serde(alias = "completed", alias = "complete", alias = "finished")]
    Done,
    /// Given up.
    #[serde(alias = "canceled", alias = "dropped")]
    Cancelled,
}

/// What a run keeps.
#[derive(Default)]
struct TodoList(Mutex<Vec<TodoItem>>);

impl TypedTool for Todo {
    type Args = Args;
    const NAME: &'static str = "todo";
    // The list itself comes back by calling again.
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"items": [{"text": "Find the bug", "status": "in_progress"}]}"#;

    fn description(&self) -> String {
        "Keeps your list of what is to be done in this task. Send the whole list each time, with the status of each \
         item; send nothing to see it. Use it for tasks of several steps, and keep one item in progress."
            .to_owned()
    }

    async fn run(&self, context: &ToolContext, args: Args) -> ToolOutput {
        let list = context.state.get::<TodoList>();
        let mut list = list.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(items) = args.items {
            if items.len() > MOST {
                return ToolOutput::error(format!("todo: {} items are too many, the most is {MOST}", items.len()));
            }
            *list = items.into_iter().map(TodoEntry::item).collect();
        }
        let data = serde_json::to_value(&*list).ok();
        ToolOutput { data, ..ToolOutput::text(render(&list)) }
    }
}

impl TodoEntry {
    fn item(self) -> TodoItem {
        match self {
            Self::Whole(item) => item,
            Self::Words(text) => TodoItem { text, status: TodoStatus::Pending },
        }
    }
}

fn render(list: &[TodoItem]) -> String {
    if list.is_empty() {
        return "The list is empty.".to_owned();
    }
    let done = list.iter().filter(|it| it.status == TodoStatus::Done).count();
    let lines: String = list
        .iter()
        .map(|it| {
            let mark = match it.status {
                TodoStatus::Pending => "[ ]",
                TodoStatus::InProgress => "[>]",
                TodoStatus::Done => "[x]",
                TodoStatus::Cancelled => "[-]",
            };
            format!("{mark} {}\n", inert(it.text.as_ref()))
        })
        .collect();
    format!("{done} of {} done\n{lines}", list.len())
}
