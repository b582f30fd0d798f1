//! Output of any size in bounded memory: the head and the tail are kept, the whole goes to a file up to a cap.

use std::{collections::VecDeque, path::PathBuf};

use tokio::{fs::File, io::AsyncWriteExt};

/// How much of the beginning and of the end is kept.
const HEAD: usize = 16 << 10;
const TAIL: usize = 16 << 10;

/// How much of it a file takes at most.
const SPILL: u64 = 64 << 20;

/// Takes in output as it comes.
#[derive(Debug)]
pub struct Collector {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    spill: Spill,
}

#[derive(Debug)]
enum Spill {
    /// Where the whole goes once it no longer fits in memory.
    Wanted(PathBuf),
    Open(PathBuf, File),
    /// There is no place for it, or it could not be written.
    Off,
}

/// Output as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The text, with a line in the middle that says what is missing.
    pub text: String,
    /// How many bytes there were.
    pub total: u64,
    /// Where the whole is, if it did not fit.
    pub file: Option<PathBuf>,
}

impl Collector {
    /// A collector that writes the whole to `spill` when it does not fit; without a place it is lost beyond head and tail.
    pub fn new(spill: Option<PathBuf>) -> Self {
        let spill = spill.map_or(Spill::Off, Spill::Wanted);
        Self { head: Vec::new(), tail: VecDeque::new(), total: 0, spill }
    }

    /// Takes in more output.
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
        if let Spill::Wanted(path) = &self.spill {
            self.spill = match self.open(path).await {
                Ok(file) => Spill::Open(path.clone(), file),
                Err(_) => Spill::Off,
            };
        }
        let room = SPILL.saturating_sub(self.total).min(bytes.len() as u64);
        if let Spill::Open(_, file) = &mut self.spill {
            let room = usize::try_from(room).expect("no more than the length of a slice");
            let _ = file.write_all(&bytes[..room]).await;
        }
    }

    /// A new file, for us alone, with what had fitted in memory until here.
    async fn open(&self, path: &PathBuf) -> std::io::Result<File> {
        let mut options = tokio::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path).await?;
        file.write_all(&self.head).await?;
        let (a, b) = self.tail.as_slices();
        file.write_all(a).await?;
        file.write_all(b).await?;
        Ok(file)
    }

    /// What was kept.
    pub async fn finish(mut self) -> Captured {
        let file = match &mut self.spill {
            Spill::Open(path, file) => file.flush().await.is_ok().then(|| path.clone()),
            Spill::Wanted(_) | Spill::Off => None,
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

/// The bytes as text, without the halves of characters that the cut left at either end.
fn whole_characters(bytes: &[u8]) -> String {
    let start = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    let text = String::from_utf8_lossy(&bytes[start..]);
    text.trim_end_matches(char::REPLACEMENT_CHARACTER).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn small_output_is_kept_whole() {
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
    async fn the_file_has_a_cap() {
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
