//! What a crash leaves behind, and what is made of it.

use homing_core::{
    fact::{Asked, Fact},
    model::{AskFailure, Charge, ModelError},
};

/// An ask that was under way when the process died: it may have been billed, so its hold is charged, and it is asked again.
pub(crate) fn lost(asked: &Asked) -> Fact {
    let reason = "the process died while the model was answering".to_owned();
    let failure = AskFailure { error: ModelError::Broken { reason }, charge: Charge::Hold, partial: String::new() };
    Fact::AskFailed { failure, charge: crate::agent_loop::model_call::worst(asked) }
}
