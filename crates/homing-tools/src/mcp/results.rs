//! Converts a server's result into a tool output of limited size. Links are shown and never followed.

use homing_core::{message::Image, tool::ToolOutput};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use super::definitions::visible;

const MAX_TEXT: usize = 64 << 10;
const MAX_IMAGES: usize = 8;
const MAX_IMAGE: usize = 5 << 20;
const MAX_DATA: usize = 256 << 10;

pub(super) fn output(result: CallToolResult) -> ToolOutput {
    let mut output = ToolOutput::default().is_error(result.is_error.unwrap_or(false));
    for block in result.content {
        match block {
            ContentBlock::Text(text) => add(&mut output, &text.text),
            ContentBlock::Image(image) => add_image(&mut output, image.mime_type, image.data),
            ContentBlock::Audio(audio) => add(&mut output, &format!("[audio, {}]", audio.mime_type)),
            ContentBlock::ResourceLink(link) => add(&mut output, &format!("[resource link: {}]", link.uri)),
            ContentBlock::Resource(resource) => add_resource(&mut output, resource.resource),
            _ => add(&mut output, "[content of unknown type]"),
        }
    }
    let data = result.structured_content.filter(|data| data.to_string().len() <= MAX_DATA);
    if let (true, Some(data)) = (output.text.is_empty(), &data) {
        add(&mut output, &data.to_string());
    }
    output.data(data)
}

fn add_resource(output: &mut ToolOutput, resource: ResourceContents) {
    match resource {
        ResourceContents::TextResourceContents { uri, text, .. } => add(output, &format!("[resource {uri}]\n{text}")),
        ResourceContents::BlobResourceContents { uri, blob, .. } => {
            add(output, &format!("[resource {uri}: {} bytes of base64]", blob.len()));
        }
        _ => add(output, "[resource of unknown type]"),
    }
}

fn add_image(output: &mut ToolOutput, media_type: String, base64: String) {
    let known = ["image/png", "image/jpeg", "image/gif", "image/webp"].contains(&media_type.as_str());
    if known && output.images.len() < MAX_IMAGES && base64.len() <= MAX_IMAGE {
        output.images.push(Image::new(media_type, base64));
    } else {
        add(output, &format!("[image omitted: {}, {} bytes of base64]", visible(&media_type), base64.len()));
    }
}

/// Appends text up to the size limit.
fn add(output: &mut ToolOutput, text: &str) {
    if output.text.len() >= MAX_TEXT {
        return;
    }
    if !output.text.is_empty() {
        output.text.push('\n');
    }
    let free = MAX_TEXT - output.text.len().min(MAX_TEXT);
    if text.len() <= free {
        return output.text.push_str(text);
    }
    let end = (0..=free).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    output.text.push_str(&text[..end]);
    output.text.push_str(&format!("\n[… {} bytes omitted …]", text.len() - end));
}
