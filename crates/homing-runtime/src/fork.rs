//! Forks: children that start with all of their parent's messages.
//!
//! Providers charge a fraction for a beginning that they have cached, and the parent's last request is in the cache. So the
//! requests of a fork begin with the parent's tools, system prompt and messages, byte by byte; the fork's own instructions
//! come after them. Its own authority decides its calls, whatever tools its requests carry.

use homing_core::{definition::Inherit, fact::Spawned, message::Message, tool::ToolSpec};

use crate::spawn::shows;

/// Gives a fork the beginning of its parent's requests; other children are left as they are.
pub(crate) fn share_prefix(above: &Spawned, offered: &[ToolSpec], child: &mut Spawned) {
    if can_share(above, child) {
        child.inherited.extend(notice(above, offered, child));
        child.system = above.system.clone();
    }
}

/// Returns true if the requests of a child begin with its parent's tools, system prompt and messages.
pub(crate) fn shares_prefix(above: &Spawned, child: &Spawned) -> bool {
    can_share(above, child) && child.system == above.system
}

/// Another model has another cache, and a structured answer needs a tool that the other run does not have.
fn can_share(above: &Spawned, child: &Spawned) -> bool {
    child.agent.context.inherit == Inherit::All
        && child.continues.is_none()
        && child.models.first() == above.models.first()
        && above.schema.is_none()
        && child.schema.is_none()
}

/// The message that turns the parent's agent into the fork's.
fn notice(above: &Spawned, offered: &[ToolSpec], child: &Spawned) -> Option<Message> {
    let (usable, others): (Vec<_>, Vec<_>) = offered.iter().partition(|spec| shows(&child.authority.own, spec));
    let mut text = String::new();
    if child.system != above.system {
        let (name, prompt) = (&child.agent.name, &child.system);
        text = format!("From here on you are the agent `{name}`, with these instructions:\n\n{prompt}");
    }
    if !others.is_empty() {
        let names: Vec<&str> = usable.iter().map(|spec| spec.name.as_str()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        text.push_str(&format!("\n\nTools that you may use from here on: {names}"));
    }
    (!text.is_empty()).then(|| Message::user(text.trim()))
}
