//! Runs every driver against one stub and prints two tables in Markdown. It measures nothing itself but cold starts: each
//! driver is a process of its own and reports its cost.

mod jobs;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use jobs::{Driver, Figures, Threads};

/// A stub that ends with this program.
pub(crate) struct Stub {
    child: Child,
    pub(crate) url: String,
}

impl Stub {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(folder.join("bench-stub"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the stub starts");
        let mut url = String::new();
        let out = child.stdout.take().expect("its output is piped");
        BufReader::new(out).read_line(&mut url).expect("the stub says where it listens");
        Self { child, url: url.trim().to_owned() }
    }

    /// Model calls that it has answered.
    pub(crate) fn calls(&self) -> u64 {
        let address = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).expect("the stub listens");
        stream.write_all(b"GET /calls HTTP/1.1\r\nhost: stub\r\nconnection: close\r\n\r\n").expect("the stub reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the stub answers");
        answer.rsplit("\r\n").next().and_then(|count| count.parse().ok()).expect("the stub counts")
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `bench-table OUR-FOLDER RIVALS-FOLDER [ROUNDS]`: the folders of the drivers, and the repetitions of each job.
#[expect(clippy::print_stdout, reason = "the table is the result")]
fn main() {
    let mut args = std::env::args().skip(1);
    let mut folder = || PathBuf::from(args.next().expect("bench-table OUR-FOLDER RIVALS-FOLDER [ROUNDS]"));
    let (ours, rivals) = (folder(), folder());
    let rounds = args.next().map_or(3, |rounds| rounds.parse().expect("a number of rounds"));
    let stub = Stub::start(&ours);
    let drivers = Driver::all(&ours, &rivals);
    for (threads, name) in [(Threads::One, "One thread"), (Threads::All, "A thread for each core")] {
        let mut columns: Vec<Figures> = drivers.iter().map(|_| Figures::default()).collect();
        // Rounds alternate between drivers, so that a busy moment of the machine hits all of them.
        for _ in 0..rounds {
            for (driver, figures) in drivers.iter().zip(&mut columns) {
                driver.round(&stub, threads, figures);
            }
        }
        println!("{name}:\n\n{}", jobs::table(&drivers, &columns));
    }
}
