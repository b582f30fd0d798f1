//! Models and permission handlers from closures, beside [`tool_fn`](crate::tool_fn).

use std::{future::Future, sync::Arc};

use homing_core::{
    BoxFuture,
    message::Reply,
    model::{AskFailure, Model, ModelRequest},
    scripted_model::FunctionModel,
    tool::{Answer, Question},
};
use homing_runtime::PermissionHandler;

/// Makes a free model named `name` from a function of the request.
///
/// # Examples
///
/// ```
/// use homing::{Homing, model_fn, testing::say};
///
/// let builder = Homing::builder().own_model(model_fn("demo/hello", |_| Ok(say("Hello!"))));
/// ```
pub fn model_fn(
    name: impl Into<String>,
    reply: impl Fn(ModelRequest<'_>) -> Result<Reply, AskFailure> + Send + Sync + 'static,
) -> Arc<dyn Model> {
    Arc::new(FunctionModel::new(name, reply))
}

/// Makes a permission handler from an async function of the question.
///
/// # Examples
///
/// ```
/// use homing::{Answer, Homing, ask_fn};
///
/// let builder = Homing::builder().on_ask(ask_fn(|_| async { Answer::No }));
/// ```
pub fn ask_fn<F, A>(answer: F) -> Arc<dyn PermissionHandler>
where
    F: Fn(Question) -> A + Send + Sync + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    Arc::new(AskFunction(answer))
}

struct AskFunction<F>(F);

impl<F, A> PermissionHandler for AskFunction<F>
where
    F: Fn(Question) -> A + Send + Sync,
    A: Future<Output = Answer> + Send + 'static,
{
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin((self.0)(question))
    }
}
