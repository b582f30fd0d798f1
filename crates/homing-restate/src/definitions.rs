//! Agent definitions travel with a run: they are stored once, under their hash, and a worker takes them from there instead of
//! its own files.

use std::sync::Arc;

use homing_core::{definition::AgentDefinition, registry::Registry};
use restate_sdk::prelude::*;

use crate::{
    bodies::sha256,
    protocol::DEFINITIONS,
    server::{Server, ServerError},
};

/// The object of a set of definitions. Its key is the hash of its text.
pub(crate) struct DefinitionsObject;

#[restate_sdk::object(
    name = "HomingDefinitions",
    journal_retention = "0s",
    invocation_retry_policy(initial_interval = "50ms", max_interval = "5s", max_attempts = 1_000_000_000)
)]
impl DefinitionsObject {
    #[handler]
    async fn put(&self, ctx: ObjectContext<'_>, text: Json<String>) -> HandlerResult<()> {
        if sha256(&text.0) != ctx.key() {
            return Err(TerminalError::new("these definitions do not match their hash").into());
        }
        ctx.set("text", text);
        Ok(())
    }

    #[handler]
    async fn get(&self, ctx: SharedObjectContext<'_>) -> HandlerResult<Json<Option<String>>> {
        Ok(Json(ctx.get::<Json<String>>("text").await?.map(Json::into_inner)))
    }
}

/// Stores the definitions in effect and returns their hash.
pub(crate) async fn store(server: &Server, registry: &Registry) -> Result<String, ServerError> {
    let definitions: Vec<&AgentDefinition> = registry.all().map(|entry| &*entry.definition).collect();
    let text = serde_json::to_string(&definitions).map_err(|error| ServerError::Refused(error.to_string()))?;
    let hash = sha256(&text);
    let known: Option<String> = server.call(&[DEFINITIONS, &hash, "get"], &()).await?;
    if known.is_none() {
        server.call::<()>(&[DEFINITIONS, &hash, "put"], &text).await?;
    }
    Ok(hash)
}

/// Loads definitions by their hash.
pub(crate) async fn load(server: &Server, hash: &str) -> Result<Registry, ServerError> {
    let lost = |reason: String| ServerError::Refused(format!("the agent definitions {hash} cannot be read: {reason}"));
    let text: Option<String> = server.call(&[DEFINITIONS, hash, "get"], &()).await?;
    let text = text.ok_or_else(|| lost("they are not stored".to_owned()))?;
    if sha256(&text) != hash {
        return Err(lost("they do not match their hash".to_owned()));
    }
    let all: Vec<Arc<AgentDefinition>> = serde_json::from_str(&text).map_err(|error| lost(error.to_string()))?;
    let mut registry = Registry::default();
    all.into_iter().for_each(|definition| registry.register(definition));
    Ok(registry)
}
