//! Puts questions of runs to the person behind the client that started them, where that client offers to ask.

use std::sync::Arc;

use futures::{StreamExt, stream::FuturesUnordered};
use homing::{
    Answer, PermissionHandler, Question,
    crates::core::{BoxFuture, sanitize},
};
use rmcp::{
    Peer, RoleServer,
    model::{
        BooleanSchema, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, EnumSchema,
        PrimitiveSchemaDefinition, StringSchema,
    },
    service::ElicitationMode,
};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::{client::Client, server_state::Present};

/// The field of the form that is shown.
const FIELD: &str = "answer";

/// The longest question that is shown, in bytes: arguments of a call can be large.
const LONGEST: usize = 4_000;

/// Asks the client whose run has a question. Build the [`Homing`](homing::Homing) with it, and hand it to the server in
/// [`ServerOptions::asker`](crate::Options::asker).
#[derive(Clone, Default)]
pub struct ElicitationHandler {
    pub(crate) present: Arc<Present>,
}

impl ElicitationHandler {
    /// One that knows no client yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl PermissionHandler for ElicitationHandler {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let Some(client) = self.present.owner(question.key.run) else { return Answer::Nobody };
            let Some(peer) = asks(&client) else { return Answer::Nobody };
            let desk = client.desk(question.key.run);
            // The client is not kept alive by its own question.
            drop(client);
            if let Some(answer) = async { desk?.ask(question.clone()).await }.await {
                return answer;
            }
            put(&peer, &question).await
        })
    }
}

/// The way to a client that offers to ask.
fn asks(client: &Client) -> Option<Peer<RoleServer>> {
    client.peer().filter(|it| it.supported_elicitation_modes().contains(&ElicitationMode::Form)).cloned()
}

/// Where a request that waits for runs takes their questions: asked from within it, they reach the client as part of it.
#[derive(Clone)]
pub(crate) struct QuestionDesk(mpsc::Sender<(Question, oneshot::Sender<Answer>)>);

/// The other side of a [`QuestionDesk`].
pub(crate) struct Questions(mpsc::Receiver<(Question, oneshot::Sender<Answer>)>);

impl QuestionDesk {
    /// A desk, and what is put on it.
    pub(crate) fn new() -> (Self, Questions) {
        let (sender, receiver) = mpsc::channel(16);
        (Self(sender), Questions(receiver))
    }

    /// Whether it is the same one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// `None` where the request ended before there was an answer.
    async fn ask(&self, question: Question) -> Option<Answer> {
        let (sender, answer) = oneshot::channel();
        self.0.send((question, sender)).await.ok()?;
        answer.await.ok()
    }
}

impl Questions {
    /// Puts them to the client, several at once where there are several.
    pub(crate) async fn answer(mut self, peer: &Peer<RoleServer>) -> std::convert::Infallible {
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some((question, answer)) = self.0.recv() => open.push(async move {
                    let _ = answer.send(put(peer, &question).await);
                }),
                Some(()) = open.next() => (),
                else => std::future::pending().await,
            }
        }
    }
}

async fn put(peer: &Peer<RoleServer>, question: &Question) -> Answer {
    let shown = sanitize::inert(&question.text);
    let message = match shown.len() > LONGEST {
        true => format!("{}…", &shown[..shown.floor_char_boundary(LONGEST)]),
        false => shown,
    };
    let form = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema: form(question) };
    peer.create_elicitation(form).await.map_or(Answer::Nobody, |result| answer(question, result))
}

fn form(question: &Question) -> ElicitationSchema {
    let field = match kind(question) {
        QuestionKind::Permission => PrimitiveSchemaDefinition::Boolean(
            BooleanSchema::new().title("Allow").description("Whether it may do this, this time").with_default(false),
        ),
        QuestionKind::Choice => PrimitiveSchemaDefinition::Enum(EnumSchema::builder(question.options.clone()).build()),
        QuestionKind::Words => PrimitiveSchemaDefinition::String(StringSchema::new().title("Answer")),
    };
    ElicitationSchema::new([(FIELD.to_owned(), field)].into()).with_required(vec![FIELD.to_owned()])
}

enum QuestionKind {
    Permission,
    Choice,
    Words,
}

/// A question about a rule wants yes or no.
fn kind(question: &Question) -> QuestionKind {
    match (&question.rule, question.options.is_empty()) {
        (Some(_), _) => QuestionKind::Permission,
        (None, false) => QuestionKind::Choice,
        (None, true) => QuestionKind::Words,
    }
}

/// Only a plain yes is a yes.
fn answer(question: &Question, result: ElicitResult) -> Answer {
    let given = result.content.as_ref().and_then(|content| content.get(FIELD));
    match (result.action, kind(question), given) {
        (ElicitationAction::Accept, QuestionKind::Permission, Some(Value::Bool(true))) => Answer::Yes,
        (ElicitationAction::Accept, QuestionKind::Choice, Some(Value::String(text)))
            if question.options.contains(text) =>
        {
            Answer::Text(text.clone())
        }
        (ElicitationAction::Accept, QuestionKind::Words, Some(Value::String(text))) => Answer::Text(text.clone()),
        _ => Answer::No,
    }
}
