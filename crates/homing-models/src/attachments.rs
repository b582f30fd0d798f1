//! Images and documents that a model cannot read: its provider would refuse the whole request, so a note replaces them.

use std::{borrow::Cow, sync::Arc};

use homing_core::{
    message::{Image, Message, TranscriptEntry},
    model::ModelCard,
};

use crate::wire::Wire;

const NO_PDF: &str = "[the document is not shown, because this model does not read PDF files; convert it to text]";
const NO_IMAGES: &str = "[the image is not shown, because this model does not read images]";

/// Returns whether the model can be sent `image`. Models that are not in the table are assumed to read what their wire is
/// made for.
pub(crate) fn reads(image: &Image, card: &ModelCard, wire: Wire) -> bool {
    if image.is_pdf() {
        card.abilities
            .map_or(matches!(wire, Wire::Anthropic | Wire::Responses | Wire::Bedrock), |abilities| abilities.pdf)
    } else {
        card.abilities.is_none_or(|abilities| abilities.images)
    }
}

/// The messages as the model can read them. Nothing is copied unless something has to be replaced.
pub(crate) fn readable<'a>(
    messages: &'a [Arc<TranscriptEntry>],
    card: &ModelCard,
    wire: Wire,
) -> Cow<'a, [Arc<TranscriptEntry>]> {
    let reads = |image: &Image| reads(image, card, wire);
    let is_readable = |entry: &Arc<TranscriptEntry>| !entry.has_images() || entry.message.images().iter().all(reads);
    if messages.iter().all(is_readable) {
        return Cow::Borrowed(messages);
    }
    let replaced = |entry: &Arc<TranscriptEntry>| {
        if is_readable(entry) {
            entry.clone()
        } else {
            TranscriptEntry::new(without_unreadable(&entry.message, card, wire))
        }
    };
    Cow::Owned(messages.iter().map(replaced).collect())
}

fn without_unreadable(message: &Message, card: &ModelCard, wire: Wire) -> Message {
    let mut message = message.clone();
    let (text, images) = match &mut message {
        Message::User { text, images } => (text, images),
        Message::Tool(result) => {
            let result = Arc::make_mut(result);
            (&mut result.text, &mut result.images)
        }
        Message::Assistant(_) => return message,
    };
    images.retain(|image| {
        let is_read = reads(image, card, wire);
        if !is_read {
            text.push('\n');
            text.push_str(if image.is_pdf() { NO_PDF } else { NO_IMAGES });
        }
        is_read
    });
    message
}
