//! Collects output of any size in bounded memory: the head and the tail are kept, and the whole goes to a file up to a limit.

use std::{collections::VecDeque, path::PathBuf};

use tokio::{fs::File, io::AsyncWriteExt};

/// Bytes of the beginning and of the end that are kept.
const HEAD: usize = 16 << 10;
const TAIL: usize = 16 << 10;

/// Maximum size of the file.
const SPILL: u64 = 64 << 20;

/// Collects output as it arrives.
#[derive(Debug)]
pub struct Collector {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    spill: Spill,
}

#[derive(Debug)]
enum Spill {
    /// The file to create when the output no longer fits in memory.
    Planned(PathBuf),
    Open(PathBuf, File),
    /// No file was given, or it could not be written.
    Off,
}

/// The collected output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The text; if it was shortened, a line in the middle says by how much.
    pub text: String,
    /// The number of bytes that were written.
    pub total: u64,
    /// The file with the whole output, if it did not fit.
    pub file: Option<PathBuf>,
}

impl Collector {
    /// Creates a collector that writes output to the file `spill` if it does not fit. Without a file everything between head
    /// and tail is lost.
    pub fn new(spill: Option<PathBuf>) -> Self {
        let spill = spill.map_or(Spill::Off, Spill::Planned);
        Self { head: Vec::new(), tail: VecDeque::new(), total: 0, spill }
    }

    /// Adds output.
    pub async fn push(&mut self, bytes: &[u8]) {
        self.write_out(bytes).await;
        self.total += bytes.len() as u64;
        let to_head = bytes.len().min(HEAD - self.head.len());
        self.head.extend(&bytes[..to_head]);
        let rest = &bytes[to_head..];
        let rest = &rest[rest.len().saturating_sub(TAIL)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(TAIL);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    async fn write_out(&mut self, bytes: &[u8]) {
        if self.total + (bytes.len() as u64) <= (HEAD + TAIL) as u64 {
            return;
        }
        if let Spill::Planned(path) = &self.spill {
            self.spill = match self.open(path).await {
                Ok(file) => Spill::Open(path.clone(), file),
                Err(_) => Spill::Off,
            };
        }
        let len = SPILL.saturating_sub(self.total).min(bytes.len() as u64);
        if let Spill::Open(_, file) = &mut self.spill {
            let len = usize::try_from(len).expect("no more than the length of a slice");
            let _ = file.write_all(&bytes[..len]).await;
        }
    }

    /// Creates the file, readable by this user only, and writes the output so far.
    async fn open(&self, path: &PathBuf) -> std::io::Result<File> {
        let mut options = tokio::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path).await?;
        file.write_all(&self.head).await?;
        let (older, newer) = self.tail.as_slices();
        file.write_all(older).await?;
        file.write_all(newer).await?;
        Ok(file)
    }

    /// Returns the collected output.
    pub async fn finish(mut self) -> Captured {
        let file = match &mut self.spill {
            Spill::Open(path, file) => file.flush().await.is_ok().then(|| path.clone()),
            Spill::Planned(_) | Spill::Off => None,
        };
        let tail: Vec<u8> = self.tail.into();
        let left_out = self.total - self.head.len() as u64 - tail.len() as u64;
        let text = if left_out == 0 {
            String::from_utf8_lossy(&[self.head, tail].concat()).into_owned()
        } else {
            let gap = format!("\n[… {left_out} bytes left out …]\n");
            format!("{}{gap}{}", whole_characters(&self.head), whole_characters(&tail))
        };
        Captured { text, total: self.total, file }
    }
}

/// Returns the bytes as text, without partial characters at either end.
fn whole_characters(bytes: &[u8]) -> String {
    let start = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    let text = String::from_utf8_lossy(&bytes[start..]);
    text.trim_end_matches(char::REPLACEMENT_CHARACTER).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn small_output_is_kept_completely() {
        let folder = tempfile::tempdir().unwrap();
        let mut collector = Collector::new(Some(folder.path().join("out")));
        collector.push(b"one\n").await;
        collector.push("zwölf".as_bytes()).await;
        let captured = collector.finish().await;
        assert_eq!(captured, Captured { text: "one\nzwölf".into(), total: 10, file: None });
    }

    #[tokio::test]
    async fn inv31_large_output_keeps_head_and_tail_and_goes_to_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut collector = Collector::new(Some(path.clone()));
        let mut whole: Vec<u8> = Vec::new();
        for number in 0..20_000 {
            let line = format!("{number} ä\n");
            collector.push(line.as_bytes()).await;
            whole.extend(line.as_bytes());
        }
        assert!(collector.head.capacity() + collector.tail.capacity() < 128 << 10);
        let captured = collector.finish().await;
        assert_eq!(captured.total, whole.len() as u64);
        assert!(captured.text.starts_with("0 ä\n") && captured.text.ends_with("19999 ä\n"));
        assert!(captured.text.len() < 33 << 10 && captured.text.contains("bytes left out"));
        assert_eq!(std::fs::read(captured.file.unwrap()).unwrap(), whole);
    }

    #[tokio::test]
    async fn output_file_size_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        let mut collector = Collector::new(Some(folder.path().join("out")));
        let chunk = vec![b'y'; 1 << 20];
        for _ in 0..70 {
            collector.push(&chunk).await;
        }
        let captured = collector.finish().await;
        assert_eq!(captured.total, 70 << 20);
        assert_eq!(std::fs::metadata(captured.file.unwrap()).unwrap().len(), SPILL);
    }
}
