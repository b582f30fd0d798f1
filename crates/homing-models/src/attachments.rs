//! Documents that a model cannot read: its provider would refuse the whole request, so a note replaces them.

use std::{borrow::Cow, sync::Arc};

use homing_core::{
    message::{Image, Message, TranscriptEntry},
    model::ModelCard,
};

use crate::wire::Wire;

const NOTE: &str = "[the document is not shown, because this model does not read PDF files; convert it to text]";

/// The messages as the model can read them. Nothing is copied unless a document has to be replaced.
pub(crate) fn readable<'a>(
    messages: &'a [Arc<TranscriptEntry>],
    card: &ModelCard,
    wire: Wire,
) -> Cow<'a, [Arc<TranscriptEntry>]> {
    let is_readable = |entry: &Arc<TranscriptEntry>| !attached(&entry.message).iter().any(Image::is_pdf);
    if reads_pdf(card, wire) || messages.iter().all(is_readable) {
        return Cow::Borrowed(messages);
    }
    let replaced = |entry: &Arc<TranscriptEntry>| {
        if is_readable(entry) { entry.clone() } else { TranscriptEntry::new(without_documents(&entry.message)) }
    };
    Cow::Owned(messages.iter().map(replaced).collect())
}

/// Models that are not in the table are assumed to read what their wire is made for.
fn reads_pdf(card: &ModelCard, wire: Wire) -> bool {
    card.abilities.map_or(matches!(wire, Wire::Anthropic | Wire::Responses), |abilities| abilities.pdf)
}

fn attached(message: &Message) -> &[Image] {
    match message {
        Message::User { images, .. } => images,
        Message::Tool(result) => &result.images,
        Message::Assistant(_) => &[],
    }
}

fn without_documents(message: &Message) -> Message {
    let mut message = message.clone();
    let (text, images) = match &mut message {
        Message::User { text, images } => (text, images),
        Message::Tool(result) => (&mut result.text, &mut result.images),
        Message::Assistant(_) => return message,
    };
    images.retain(|image| !image.is_pdf());
    text.push('\n');
    text.push_str(NOTE);
    message
}
