//! Images and PDF documents: recognised by their first bytes, and bounded to what providers accept.

use base64::{Engine, prelude::BASE64_STANDARD};
use homing_core::message::Image;

use crate::files::pdf_pages;

/// Maximum size of an image in bytes.
pub(crate) const MAX_IMAGE: u64 = 5 * 1024 * 1024;
/// Maximum size of a PDF document in bytes; providers limit whole requests to about 32 MB.
pub(crate) const MAX_PDF: u64 = 10 * 1024 * 1024;
/// Maximum number of pages of a PDF document, which is also Anthropic's.
pub(crate) const MAX_PAGES: u32 = 100;

/// The media type of an image that begins with `head`; `None` for other files.
pub(crate) fn image_type(head: &[u8]) -> Option<&'static str> {
    match head {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// Returns true for the beginning of a PDF document.
pub(crate) fn is_pdf(head: &[u8]) -> bool {
    head.starts_with(b"%PDF-")
}

/// An image of this media type.
pub(crate) fn image(media_type: &str, bytes: &[u8]) -> Image {
    Image::new(media_type.to_owned(), BASE64_STANDARD.encode(bytes))
}

/// A PDF document. Fails with the number of its pages if it has too many.
pub(crate) fn document(bytes: &[u8]) -> Result<Image, u32> {
    // The bound on a request's tokens depends on the pages, so a document whose pages are hidden counts as the longest.
    let pages = Some(pdf_pages::count(bytes)).filter(|pages| *pages > 0).unwrap_or(MAX_PAGES);
    if pages > MAX_PAGES {
        return Err(pages);
    }
    Ok(Image::new(Image::PDF.to_owned(), BASE64_STANDARD.encode(bytes)).pages(pages))
}
