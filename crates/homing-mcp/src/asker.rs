//! Puts questions of runs to the person behind the client that started them, where that client offers to ask.

use std::sync::Arc;

use homing::{
    Answer, Asker, Question,
    rooms::core::{BoxFuture, text},
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

use crate::served::Present;

/// The field of the form that is shown.
const FIELD: &str = "answer";

/// The longest question that is shown, in bytes: arguments of a call can be large.
const LONGEST: usize = 4_000;

/// Asks the client whose run has a question. Build the [`Homing`](homing::Homing) with it, and hand it to the server in
/// [`Options::asker`](crate::Options::asker).
#[derive(Clone, Default)]
pub struct McpAsker {
    pub(crate) present: Arc<Present>,
}

impl McpAsker {
    /// One that knows no client yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Asker for McpAsker {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let Some(client) = self.present.owner(question.key.run) else { return Answer::Nobody };
            let peer = client.peer().filter(|it| it.supported_elicitation_modes().contains(&ElicitationMode::Form));
            match peer.cloned() {
                // The client is not kept alive by its own question.
                Some(peer) => {
                    drop(client);
                    put(&peer, &question).await
                }
                None => Answer::Nobody,
            }
        })
    }
}

async fn put(peer: &Peer<RoleServer>, question: &Question) -> Answer {
    let shown = text::inert(&question.text);
    let message = match shown.len() > LONGEST {
        true => format!("{}…", &shown[..shown.floor_char_boundary(LONGEST)]),
        false => shown,
    };
    let form = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema: form(question) };
    peer.create_elicitation(form).await.map_or(Answer::Nobody, |result| answer(question, result))
}

fn form(question: &Question) -> ElicitationSchema {
    let field = match kind(question) {
        Kind::Permission => PrimitiveSchemaDefinition::Boolean(
            BooleanSchema::new().title("Allow").description("Whether it may do this, this time").with_default(false),
        ),
        Kind::Choice => PrimitiveSchemaDefinition::Enum(EnumSchema::builder(question.options.clone()).build()),
        Kind::Words => PrimitiveSchemaDefinition::String(StringSchema::new().title("Answer")),
    };
    ElicitationSchema::new([(FIELD.to_owned(), field)].into()).with_required(vec![FIELD.to_owned()])
}

enum Kind {
    Permission,
    Choice,
    Words,
}

/// A question about a rule wants yes or no.
fn kind(question: &Question) -> Kind {
    match (&question.rule, question.options.is_empty()) {
        (Some(_), _) => Kind::Permission,
        (None, false) => Kind::Choice,
        (None, true) => Kind::Words,
    }
}

/// Only a plain yes is a yes.
fn answer(question: &Question, result: ElicitResult) -> Answer {
    let given = result.content.as_ref().and_then(|content| content.get(FIELD));
    match (result.action, kind(question), given) {
        (ElicitationAction::Accept, Kind::Permission, Some(Value::Bool(true))) => Answer::Yes,
        (ElicitationAction::Accept, Kind::Choice, Some(Value::String(text))) if question.options.contains(text) => {
            Answer::Text(text.clone())
        }
        (ElicitationAction::Accept, Kind::Words, Some(Value::String(text))) => Answer::Text(text.clone()),
        _ => Answer::No,
    }
}
