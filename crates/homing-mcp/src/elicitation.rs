//! Sends questions of runs to the client that started them, if that client supports elicitation.

use std::sync::Arc;

use futures::{StreamExt, stream::FuturesUnordered};
use homing::{
    Answer, PermissionHandler, Question,
    crates::core::{BoxFuture, question::QuestionKind, sanitize},
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

use crate::{client::Client, server_state::ClientList};

/// The name of the form's only field.
const FIELD: &str = "answer";

/// Maximum length of a question in bytes. The arguments of a call can be large.
const MAX_QUESTION: usize = 4_000;

/// Asks the client whose run has a question. Build the [`Homing`](homing::Homing) with it, and pass it to the server in
/// [`ServerOptions::permission_handler`](crate::ServerOptions::permission_handler).
#[derive(Clone, Default)]
pub struct ElicitationHandler {
    pub(crate) clients: Arc<ClientList>,
}

impl ElicitationHandler {
    /// Creates a handler without clients.
    pub fn new() -> Self {
        Self::default()
    }
}

impl PermissionHandler for ElicitationHandler {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let Some(client) = self.clients.owner(question.key.run) else { return Answer::Unavailable };
            let Some(peer) = elicitation_peer(&client) else { return Answer::Unavailable };
            let route = client.question_route(question.key.run);
            // An open question must not keep a disconnected client alive.
            drop(client);
            if let Some(answer) = async { route?.ask(question.clone()).await }.await {
                return answer;
            }
            elicit(&peer, &question).await
        })
    }
}

/// Returns the peer of a client, if it supports elicitation.
fn elicitation_peer(client: &Client) -> Option<Peer<RoleServer>> {
    client.peer().filter(|peer| peer.supported_elicitation_modes().contains(&ElicitationMode::Form)).cloned()
}

/// Routes questions of runs to the request that waits for these runs, so that they reach the client as part of that request.
#[derive(Clone)]
pub(crate) struct QuestionRoute(mpsc::Sender<(Question, oneshot::Sender<Answer>)>);

/// The receiving side of a [`QuestionRoute`].
pub(crate) struct RoutedQuestions(mpsc::Receiver<(Question, oneshot::Sender<Answer>)>);

impl QuestionRoute {
    /// Creates a route and its receiving side.
    pub(crate) fn new() -> (Self, RoutedQuestions) {
        let (sender, receiver) = mpsc::channel(16);
        (Self(sender), RoutedQuestions(receiver))
    }

    /// Returns true if both are clones of the same route.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Asks a question; `None` if the request ended before there was an answer.
    async fn ask(&self, question: Question) -> Option<Answer> {
        let (sender, answer) = oneshot::channel();
        self.0.send((question, sender)).await.ok()?;
        answer.await.ok()
    }
}

impl RoutedQuestions {
    /// Sends the questions to the client, several at once if there are several.
    pub(crate) async fn answer(mut self, peer: &Peer<RoleServer>) -> std::convert::Infallible {
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some((question, answer)) = self.0.recv() => open.push(async move {
                    let _ = answer.send(elicit(peer, &question).await);
                }),
                Some(()) = open.next() => (),
                else => std::future::pending().await,
            }
        }
    }
}

/// Shows a question to the client's user and returns the answer.
async fn elicit(peer: &Peer<RoleServer>, question: &Question) -> Answer {
    let shown = sanitize::inert(&question.text);
    let message = if shown.len() > MAX_QUESTION {
        format!("{}…", &shown[..shown.floor_char_boundary(MAX_QUESTION)])
    } else {
        shown
    };
    let form = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema: form(question) };
    peer.create_elicitation(form).await.map_or(Answer::Unavailable, |result| answer(question, result))
}

fn form(question: &Question) -> ElicitationSchema {
    let field = match question.kind() {
        QuestionKind::Permission => PrimitiveSchemaDefinition::Boolean(
            BooleanSchema::new().title("Allow").description("Allow this call, this time").with_default(false),
        ),
        QuestionKind::Choice => PrimitiveSchemaDefinition::Enum(EnumSchema::builder(question.options.clone()).build()),
        QuestionKind::Text => PrimitiveSchemaDefinition::String(StringSchema::new().title("Answer")),
    };
    ElicitationSchema::new([(FIELD.to_owned(), field)].into()).with_required(vec![FIELD.to_owned()])
}

/// Reads the answer from the client's form. A permission is granted only by an accepted form with the value `true`.
fn answer(question: &Question, result: ElicitResult) -> Answer {
    let given = result.content.as_ref().and_then(|content| content.get(FIELD));
    match (result.action, question.kind(), given) {
        (ElicitationAction::Accept, QuestionKind::Permission, Some(Value::Bool(true))) => Answer::Yes,
        (ElicitationAction::Accept, QuestionKind::Choice, Some(Value::String(text)))
            if question.options.contains(text) =>
        {
            Answer::Text(text.clone())
        }
        (ElicitationAction::Accept, QuestionKind::Text, Some(Value::String(text))) => Answer::Text(text.clone()),
        _ => Answer::No,
    }
}
