//! The jobs, and the table that is made of the drivers' output.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::Stub;

/// A driver that can do the jobs.
pub(crate) struct Driver {
    name: &'static str,
    program: PathBuf,
    flags: Vec<&'static str>,
    /// A journal of its own for each job.
    has_journal: bool,
}

/// The threads of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// As many as there are cores.
    All,
    /// One, which shows the work without the cost of passing it between threads.
    One,
}

/// A row of the table: a name, and the figure that is read from a driver's line.
struct Row {
    name: &'static str,
    job: &'static [&'static str],
    read: fn(&Line) -> f64,
    digits: usize,
}

/// A driver's figures, and the lifetime of its process.
struct Line {
    cpu_us: f64,
    /// CPU time since the process began, with the dynamic linker and whatever a driver prepares.
    process_cpu_us: f64,
    wall_us: f64,
    peak_kb: f64,
    calls: f64,
    process_us: f64,
}

const HUNDRED_COLD: &[&str] = &["--agents", "100", "--steps", "3", "--cold"];
const HUNDRED: &[&str] = &["--agents", "100", "--steps", "3", "--rounds", "10"];
const THOUSAND: &[&str] = &["--agents", "1000", "--steps", "3", "--rounds", "2"];
const WAITING: &[&str] = &["--agents", "1000", "--steps", "0", "--delay", "100"];
const WAITING_LONGER: &[&str] = &["--agents", "1000", "--steps", "3", "--delay", "100"];
const LEAD: &[&str] = &["--children", "100", "--steps", "0"];
const LEAD_IN_TURN: &[&str] = &["--children", "100", "--steps", "0", "--one-at-a-time"];
const COLD: &[&str] = &["--cold"];
const FEW_STEPS: &[&str] = &["--steps", "50", "--rounds", "4"];
const STEPS: &[&str] = &["--steps", "200"];
const MANY_STEPS: &[&str] = &["--steps", "500"];

fn cpu_per_call(line: &Line) -> f64 {
    line.cpu_us / line.calls
}

/// CPU time of one conversation with this many steps, for any number of rounds.
fn cpu_ms_of_one(line: &Line, steps: usize) -> f64 {
    line.cpu_us / 1e3 / (line.calls / (steps + 1) as f64)
}

const ROWS: &[Row] = &[
    Row { name: "CPU per call, 100 agents (µs)", job: HUNDRED, read: cpu_per_call, digits: 1 },
    Row {
        name: "CPU per call, 100 agents, first call included (µs)",
        job: HUNDRED_COLD,
        read: cpu_per_call,
        digits: 1,
    },
    Row { name: "CPU per call, 1,000 agents (µs)", job: THOUSAND, read: cpu_per_call, digits: 1 },
    Row {
        name: "1,000 agents at 100 ms, 1 call each: wall (s)",
        job: WAITING,
        read: |line| line.wall_us / 1e6,
        digits: 2,
    },
    Row { name: "… peak memory (MB)", job: WAITING, read: |line| line.peak_kb / 1024.0, digits: 1 },
    Row {
        name: "1,000 agents at 100 ms, 4 calls each: wall (s)",
        job: WAITING_LONGER,
        read: |line| line.wall_us / 1e6,
        digits: 2,
    },
    Row { name: "… peak memory (MB)", job: WAITING_LONGER, read: |line| line.peak_kb / 1024.0, digits: 1 },
    Row { name: "delegate to 100: wall (ms)", job: LEAD, read: |line| line.wall_us / 1e3, digits: 1 },
    Row { name: "… CPU (ms)", job: LEAD, read: |line| line.cpu_us / 1e3, digits: 1 },
    Row {
        name: "delegate to 100, one after the other: CPU (ms)",
        job: LEAD_IN_TURN,
        read: |line| line.cpu_us / 1e3,
        digits: 1,
    },
    Row { name: "50 tool steps, CPU (ms)", job: FEW_STEPS, read: |line| cpu_ms_of_one(line, 50), digits: 2 },
    Row { name: "200 tool steps, CPU (ms)", job: STEPS, read: |line| cpu_ms_of_one(line, 200), digits: 1 },
    Row { name: "500 tool steps, CPU (ms)", job: MANY_STEPS, read: |line| cpu_ms_of_one(line, 500), digits: 1 },
    Row { name: "… wall (ms)", job: MANY_STEPS, read: |line| line.wall_us / 1e3, digits: 1 },
    Row { name: "the first call of a process, CPU (ms)", job: COLD, read: |line| line.cpu_us / 1e3, digits: 2 },
    Row {
        name: "… with everything before it, CPU (ms)", job: COLD, read: |line| line.process_cpu_us / 1e3, digits: 2
    },
    Row { name: "… from its start to its end, wall (ms)", job: COLD, read: |line| line.process_us / 1e3, digits: 1 },
    Row { name: "… peak memory (MB)", job: COLD, read: |line| line.peak_kb / 1024.0, digits: 1 },
];

/// The measurements by row: one per round, or the reason why there are none.
#[derive(Default)]
pub(crate) struct Figures(BTreeMap<usize, Result<Vec<f64>, String>>);

impl Driver {
    pub(crate) fn all(ours: &Path, rivals: &Path) -> Vec<Self> {
        let driver = |name, program: PathBuf, flags: &[&'static str], has_journal| Self {
            name,
            program,
            flags: flags.to_vec(),
            has_journal,
        };
        vec![
            driver("bare loop on hyper, streamed", rivals.join("bare"), &[], false),
            driver("bare loop, not streamed", rivals.join("bare"), &["--whole"], false),
            driver("**homing**, journal off", ours.join("bench-ours-without-journal"), &[], false),
            driver("**homing**, journal on", ours.join("bench-ours-with-journal"), &[], true),
            driver("autoagents 0.4", rivals.join("autoagents"), &[], false),
            driver("tinyagents 2.1", rivals.join("tinyagents"), &[], false),
            driver("adk-rust 2.3", rivals.join("adk"), &[], false),
            driver("rig 0.44", rivals.join("rig"), &[], false),
        ]
    }

    /// Does every job once.
    pub(crate) fn round(&self, stub: &Stub, threads: Threads, figures: &mut Figures) {
        let mut at = 0;
        while at < ROWS.len() {
            let job = ROWS[at].job;
            let said = self.run(stub, threads, job);
            while at < ROWS.len() && ROWS[at].job == job {
                figures.take(at, said.as_ref().map(ROWS[at].read).map_err(Clone::clone));
                at += 1;
            }
        }
    }

    #[expect(clippy::print_stderr, reason = "the benchmark takes a while")]
    fn run(&self, stub: &Stub, threads: Threads, job: &[&str]) -> Result<Line, String> {
        eprintln!("{} {}", self.name, job.join(" "));
        let before = stub.calls();
        let folder = std::env::temp_dir().join(format!("homing-bench-{}", std::process::id()));
        let mut command = Command::new(&self.program);
        command.args(["--url", &stub.url]).args(job).args(&self.flags);
        if threads == Threads::One {
            command.arg("--single");
        }
        if self.has_journal {
            std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
            command.arg("--journal").arg(folder.join("journal.db"));
        }
        let begun = Instant::now();
        let output = match command.output() {
            Ok(output) => output,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err("not built".to_owned()),
            Err(error) => return Err(format!("{}: {error}", self.program.display())),
        };
        let process_us = begun.elapsed().as_micros() as f64;
        let _ = std::fs::remove_dir_all(&folder);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("failed").to_owned());
        }
        let line = Line::read(&text, process_us).ok_or_else(|| format!("said {text:?}"))?;
        // The stub's own count is the truth: a driver that asked less would look fast.
        let answered = (stub.calls() - before) as f64;
        if answered >= line.calls && answered <= line.calls + 4.0 {
            Ok(line)
        } else {
            Err(format!("{answered} calls instead of {}", line.calls))
        }
    }
}

impl Line {
    fn read(text: &str, process_us: f64) -> Option<Self> {
        let field = |name: &str| text.split_whitespace().find_map(|word| word.strip_prefix(name)?.parse::<f64>().ok());
        Some(Self {
            cpu_us: field("cpu_us=")?,
            process_cpu_us: field("process_cpu_us=")?,
            wall_us: field("wall_us=")?,
            peak_kb: field("peak_kb=")?,
            calls: field("calls=")?,
            process_us,
        })
    }
}

impl Figures {
    fn take(&mut self, row: usize, figure: Result<f64, String>) {
        match (self.0.entry(row).or_insert_with(|| Ok(Vec::new())), figure) {
            (Ok(all), Ok(figure)) => all.push(figure),
            (entry, Err(why)) => *entry = Err(why),
            (Err(_), Ok(_)) => (),
        }
    }

    fn median(&self, row: usize) -> Option<f64> {
        let mut all = self.0.get(&row)?.as_ref().ok()?.clone();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    /// The median of a row, and its ratio to that of `bare`.
    fn cell(&self, row: usize, bare: Option<&Self>) -> String {
        match (self.median(row), self.0.get(&row)) {
            (Some(median), _) => {
                let ratio = bare.and_then(|bare| bare.median(row)).map(|bare| format!(" ({:.1} ×)", median / bare));
                format!("{median:.*}{}", ROWS[row].digits, ratio.unwrap_or_default())
            }
            (None, Some(Err(why))) => why.clone(),
            (None, _) => "—".to_owned(),
        }
    }

    /// The growth exponent of cost from 50 to 500 steps: 1 is linear, 2 is quadratic.
    fn growth(&self) -> String {
        let of = |steps: &[&str]| ROWS.iter().position(|row| row.job == steps).and_then(|row| self.median(row));
        match (of(FEW_STEPS), of(MANY_STEPS)) {
            (Some(few), Some(many)) => format!("{:.2}", (many / few).log10()),
            (None, _) | (_, None) => "—".to_owned(),
        }
    }
}

/// Everything as Markdown, medians over the rounds.
pub(crate) fn table(drivers: &[Driver], columns: &[Figures]) -> String {
    let mut text = String::from("| |");
    for driver in drivers {
        let _ = write!(text, " {} |", driver.name);
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(drivers.len()));
    for (at, row) in ROWS.iter().enumerate() {
        // The first driver is the bare loop, to which the others are compared.
        let cells = columns.iter().enumerate().map(|(column, it)| it.cell(at, columns.first().filter(|_| column > 0)));
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(text, "| {} | {} |", row.name, cells.join(" | "));
        if row.job == MANY_STEPS && row.name.starts_with("500") {
            let growth: Vec<String> = columns.iter().map(Figures::growth).collect();
            let _ = writeln!(text, "| growth exponent of CPU, 50 to 500 steps | {} |", growth.join(" | "));
        }
    }
    text
}
