//! Counts the pages of a PDF document without interpreting it. Newer documents keep their page objects in compressed
//! object streams, so these are searched too. A document that was edited may be counted too high, never too low.

use std::io::Read as _;

use flate2::read::ZlibDecoder;
use memchr::memmem::find_iter;

/// Maximum size of one decompressed object stream, which bounds decompression bombs.
const MAX_STREAM: u64 = 4 << 20;
/// Maximum number of object streams to decompress.
const MAX_STREAMS: usize = 256;

/// The number of pages, or 0 if it cannot be found.
pub(super) fn count(document: &[u8]) -> u32 {
    let packed = find_iter(document, b"/ObjStm").take(MAX_STREAMS).filter_map(|at| object_stream(&document[at..]));
    packed.map(|objects| page_objects(&objects)).fold(page_objects(document), u32::saturating_add)
}

/// The number of objects of type `Page`. The type `Pages` is that of a list of them.
fn page_objects(objects: &[u8]) -> u32 {
    let is_page = |at: &usize| {
        let rest = objects[at + b"/Type".len()..].trim_ascii_start();
        rest.strip_prefix(b"/Page").is_some_and(|after| !after.first().is_some_and(u8::is_ascii_alphabetic))
    };
    u32::try_from(find_iter(objects, b"/Type").filter(is_page).count()).unwrap_or(u32::MAX)
}

/// The contents of the stream that follows its dictionary, of which `bytes` is the end.
fn object_stream(bytes: &[u8]) -> Option<Vec<u8>> {
    const WORD: &[u8] = b"stream";
    let at = find_iter(&bytes[..bytes.len().min(1_024)], WORD).next()?;
    let data = &bytes[at + WORD.len()..];
    let data = data.strip_prefix(b"\r\n").or_else(|| data.strip_prefix(b"\n"))?;
    let mut objects = Vec::new();
    // A damaged stream may still have shown some pages.
    let _ = ZlibDecoder::new(data).take(MAX_STREAM).read_to_end(&mut objects);
    Some(objects)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::ZlibEncoder};

    use super::*;

    #[test]
    fn pages_are_counted_in_plain_and_compressed_objects() {
        assert_eq!(count(b"%PDF-1.4 <</Type/Pages/Count 2>> <</Type /Page>> <</Type\n/Page/Parent 1 0 R>>"), 2);
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
        packed.write_all(b"<</Type/Pages>> <</Type/Page>> <</Type/Page>> <</Type/Page>>").unwrap();
        let mut document =
            b"%PDF-1.5 5 0 obj <</Type/ObjStm/N 4/First 20/Filter/FlateDecode/Length 60>>\nstream\r\n".to_vec();
        document.extend(packed.finish().unwrap());
        document.extend(b"\nendstream");
        assert_eq!(count(&document), 3);
    }

    #[test]
    fn damaged_documents_have_no_pages() {
        for document in
            [&b"%PDF-1.5"[..], b"/ObjStm", b"/ObjStm>>stream", b"/ObjStm>>stream\nnot zlib", b"/Type", b"/Type/Pages"]
        {
            assert_eq!(count(document), 0, "{}", String::from_utf8_lossy(document));
        }
    }
}
