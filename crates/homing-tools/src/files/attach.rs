//! Reads files that a user attaches to a task. The rules of the run apply to them, but not its folders: the user, not the
//! model, chose the file.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use homing_core::{
    authority::Grant,
    message::{AttachedContent, Attachment},
    rule::{Subject, Subjects},
    tool_names,
};

use crate::{
    files::{
        media::{self, MAX_IMAGE, MAX_PAGES, MAX_PDF},
        path_arg::relative,
    },
    secret_files::is_secret,
};

/// Maximum size of an attached text in bytes.
const MAX_TEXT: u64 = 512 * 1024;

/// Maximum size of all attachments of a task in bytes; providers limit whole requests to about 32 MB, in base64.
const MAX_TOTAL: u64 = 20 * 1024 * 1024;

/// Reason why a file cannot be attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The file cannot be read.
    #[error("cannot read {path}: {reason}")]
    Unreadable {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// It is neither text nor an image or document that models read.
    #[error("{path} is neither UTF-8 text nor a PNG, JPEG, GIF, WebP or PDF file")]
    Unsupported {
        /// The file.
        path: String,
    },
    /// It is larger than providers accept.
    #[error("{path} is too large: {size} {unit}, at most {most} can be attached")]
    TooLarge {
        /// The file.
        path: String,
        /// Its size.
        size: u64,
        /// The maximum.
        most: u64,
        /// Unit of both.
        unit: &'static str,
    },
    /// A rule denies reading it.
    #[error("{path} may not be read: {why}")]
    Denied {
        /// The file.
        path: String,
        /// The rule and its source.
        why: String,
    },
    /// Files of its name usually hold secrets.
    #[error("{path} is not attached, because files of this name usually hold keys or passwords")]
    Secret {
        /// The file.
        path: String,
    },
}

/// Reads the files at these absolute paths for a task of a run with this grant and folder.
///
/// # Errors
///
/// Fails if a file cannot be read, is of an unsupported kind or too large, usually holds secrets, or a rule denies it.
pub fn read_all(paths: &[PathBuf], grant: &Grant, workdir: &Path) -> Result<Vec<Attachment>, AttachError> {
    let mut total = 0;
    let read = |path: &PathBuf| {
        let (attachment, size) = read(path, grant, workdir)?;
        total += size;
        match total {
            0..=MAX_TOTAL => Ok(attachment),
            size => {
                Err(AttachError::TooLarge { path: "what is attached".to_owned(), size, most: MAX_TOTAL, unit: "bytes" })
            }
        }
    };
    paths.iter().map(read).collect()
}

fn read(path: &Path, grant: &Grant, workdir: &Path) -> Result<(Attachment, u64), AttachError> {
    let shown = relative(path, workdir);
    let unreadable = |error: std::io::Error| AttachError::Unreadable { path: shown.clone(), reason: error.to_string() };
    let real = path.canonicalize().map_err(unreadable)?;
    check_rules(path, &real, &shown, grant, workdir)?;
    let metadata = real.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(AttachError::Unreadable { path: shown, reason: "not a regular file".to_owned() });
    }
    let mut bytes = Vec::new();
    File::open(&real).and_then(|file| file.take(MAX_PDF + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    // What was read is at most one byte more than the largest kind, so the size of the file is the better figure.
    let size = metadata.len().max(bytes.len() as u64);
    let content = content(&bytes, size, &shown)?;
    Ok((Attachment::new(shown, content), size))
}

fn check_rules(path: &Path, real: &Path, shown: &str, grant: &Grant, workdir: &Path) -> Result<(), AttachError> {
    let real_workdir = workdir.canonicalize().unwrap_or_else(|_| workdir.to_owned());
    let parts = vec![Subject::Path(shown.to_owned()), Subject::Path(relative(real, &real_workdir))];
    if let Some(why) = grant.denied_by_rule(tool_names::READ, &Subjects::Parts(parts)) {
        return Err(AttachError::Denied { path: shown.to_owned(), why });
    }
    let names = [path, real].map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned());
    if names.iter().any(|name| is_secret(name)) {
        return Err(AttachError::Secret { path: shown.to_owned() });
    }
    Ok(())
}

fn content(bytes: &[u8], size: u64, shown: &str) -> Result<AttachedContent, AttachError> {
    let path = || shown.to_owned();
    let within = |most: u64| match size {
        size if size > most => Err(AttachError::TooLarge { path: path(), size, most, unit: "bytes" }),
        _ => Ok(()),
    };
    if let Some(media_type) = media::image_type(bytes) {
        within(MAX_IMAGE)?;
        return Ok(AttachedContent::Image(media::image(media_type, bytes)));
    }
    if media::is_pdf(bytes) {
        within(MAX_PDF)?;
        let too_long = |pages: u32| {
            let (size, most) = (u64::from(pages), u64::from(MAX_PAGES));
            AttachError::TooLarge { path: path(), size, most, unit: "pages" }
        };
        return media::document(bytes).map(AttachedContent::Image).map_err(too_long);
    }
    let head = &bytes[..bytes.len().min(8 * 1024)];
    if head.contains(&0) {
        return Err(AttachError::Unsupported { path: path() });
    }
    within(MAX_TEXT)?;
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    text.map(|text| AttachedContent::Text(text.to_owned())).ok_or_else(|| AttachError::Unsupported { path: path() })
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use homing_core::authority::{Allow, Layer, Network, Sandbox};

    use super::*;

    fn grant(deny: &[&str]) -> Grant {
        let deny = deny.iter().map(|rule| rule.parse().unwrap()).collect();
        // An agent without tools still gets what the user attaches.
        let layer = Layer::everything("test").deny(deny).allow(Allow::Only(Vec::new()));
        let (read, write) = (Vec::new(), Vec::new());
        Grant::new(vec![Arc::new(layer)]).read(read).write(write).network(Network::Off).sandbox(Sandbox::ReadOnly)
    }

    #[test]
    fn files_are_attached_by_their_content_and_refused_by_rules() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let attach = |name: &str, content: &[u8], deny: &[&str]| {
            fs::write(root.join(name), content).unwrap();
            read_all(&[root.join(name)], &grant(deny), &root).map(|mut all| all.remove(0)).map_err(|e| e.to_string())
        };
        let png = attach("a.txt", b"\x89PNG\r\n\x1a\n", &[]).unwrap();
        assert_eq!(png.image().unwrap().media_type, "image/png");
        assert_eq!(png.path, "a.txt");
        let text = attach("b.rs", "fn täst() {}".as_bytes(), &[]).unwrap();
        assert_eq!(text.content, AttachedContent::Text("fn täst() {}".to_owned()));
        assert!(attach("doc", b"%PDF-1.4\n/Type /Page\n", &[]).unwrap().image().unwrap().is_pdf());
        let kind = "is neither UTF-8 text nor a PNG, JPEG, GIF, WebP or PDF file";
        assert_eq!(attach("x.bin", b"\x7fELF\0\0", &[]).unwrap_err(), format!("x.bin {kind}"));
        assert_eq!(attach("latin", b"caf\xe9", &[]).unwrap_err(), format!("latin {kind}"));
        let large = vec![b'a'; 600_000];
        let error = attach("large.txt", &large, &[]).unwrap_err();
        assert_eq!(error, "large.txt is too large: 600000 bytes, at most 524288 can be attached");
        let error = attach("b.rs", b"x", &["read(*.rs)"]).unwrap_err();
        assert_eq!(error, "b.rs may not be read: `read(*.rs)` is denied by test");
        assert!(attach(".env", b"KEY=1", &[]).unwrap_err().contains("usually hold keys or passwords"));
        std::os::unix::fs::symlink(root.join(".env"), root.join("notes.txt")).unwrap();
        let link = read_all(&[root.join("notes.txt")], &grant(&[]), &root);
        assert!(matches!(link, Err(AttachError::Secret { .. })), "{link:?}");
    }

    #[test]
    fn attachments_together_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.png");
        let mut png = b"\x89PNG".to_vec();
        png.resize(5 * 1024 * 1024, 0);
        fs::write(&path, &png).unwrap();
        let all = vec![path; 5];
        assert_eq!(read_all(&all[..4], &grant(&[]), folder.path()).unwrap().len(), 4);
        let error = read_all(&all, &grant(&[]), folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("what is attached is too large"), "{error}");
    }
}
