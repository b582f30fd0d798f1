//! The job that every driver of the comparison does, and how it is measured: each driver is a process of its own that does
//! one job and prints one line. This crate depends on no driver.

use std::{
    fs,
    future::Future,
    path::PathBuf,
    time::{Duration, Instant},
};

/// The tool's answer, the same in every driver.
pub const RESULT: &str = "ok, and some forty bytes of what was found";
/// The tool that every agent has.
pub const TOOL: &str = "step";
/// The tool's description.
pub const TOOL_DESCRIPTION: &str = "Makes one step.";
/// The task of every agent.
pub const TASK: &str = "Make your steps, then report.";
/// The final answer of every agent, as the stub sends it.
pub const ANSWER: &str = "All steps are made and this is the report.";

/// One job, from the command line: `--url U --agents 100 --rounds 10 --steps 3 --delay 0 --children 0`.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The provider's address, such as `http://127.0.0.1:4000`.
    pub url: String,
    /// Agents at once.
    pub agents: usize,
    /// The number of rounds, one after the other.
    pub rounds: usize,
    /// Tool calls of each agent, one in each turn, before its answer.
    pub steps: usize,
    /// Milliseconds until the provider answers.
    pub delay: u64,
    /// Children that one lead delegates to at once; 0 if there is no lead.
    pub children: usize,
    /// True to run the children one after the other.
    pub one_at_a_time: bool,
    /// The path of the journal, for drivers that have one.
    pub journal: Option<PathBuf>,
    /// True for whole responses instead of streams, for drivers that support both.
    pub whole: bool,
    /// True if there is no warm-up, so that the start of the process is measured.
    pub cold: bool,
    /// True to run everything on one thread.
    pub single: bool,
    /// True for the warm-up itself.
    pub is_warm_up: bool,
}

impl Job {
    /// Reads the command line.
    pub fn from_args() -> Self {
        let mut job = Self { agents: 1, rounds: 1, ..Self::default() };
        let mut args = std::env::args().skip(1);
        while let Some(name) = args.next() {
            let mut value = || args.next().unwrap_or_else(|| panic!("{name} needs a value"));
            match name.as_str() {
                "--url" => job.url = value(),
                "--agents" => job.agents = number(&value()),
                "--rounds" => job.rounds = number(&value()),
                "--steps" => job.steps = number(&value()),
                "--delay" => job.delay = number(&value()) as u64,
                "--children" => job.children = number(&value()),
                "--one-at-a-time" => job.one_at_a_time = true,
                "--journal" => job.journal = Some(value().into()),
                "--whole" => job.whole = true,
                "--cold" => job.cold = true,
                "--single" => job.single = true,
                other => panic!("{other} is unknown"),
            }
        }
        job
    }

    /// A small version of the job, which does what happens once in a process before the measurement begins.
    pub fn warm_up(&self) -> Self {
        let steps = self.steps.min(3);
        Self { agents: 1, delay: 0, steps, children: 0, is_warm_up: true, ..self.clone() }
    }

    /// The prompt of an agent. The stub derives its answers from it.
    pub fn worker_prompt(&self) -> String {
        format!("You are a worker. bench delay={} steps={} children=0.", self.delay, self.steps)
    }

    /// The prompt of a lead.
    pub fn lead_prompt(&self) -> String {
        format!("You are the lead. bench delay={} steps=0 children={}.", self.delay, self.children)
    }

    /// Model calls that one round takes.
    pub fn calls(&self) -> usize {
        let workers = if self.children > 0 { self.children } else { self.agents };
        let lead = if self.children > 0 { 2 } else { 0 };
        lead + workers * (self.steps + 1)
    }

    /// Runs a driver on as many threads as the job says.
    ///
    /// # Panics
    ///
    /// If no thread can be started.
    pub fn block_on<T>(&self, driver: impl Future<Output = T>) -> T {
        let mut builder = if self.single {
            tokio::runtime::Builder::new_current_thread()
        } else {
            tokio::runtime::Builder::new_multi_thread()
        };
        builder.enable_all().build().expect("a runtime").block_on(driver)
    }

    /// Runs `round` once to warm up, unless the start is measured, then `rounds` times, and prints the cost.
    #[expect(clippy::print_stdout, reason = "a driver's line is its result")]
    pub async fn measure<Round: Future<Output = ()>>(&self, round: impl Fn(Job) -> Round) {
        if !self.cold {
            round(self.warm_up()).await;
        }
        let (wall, cpu) = (Instant::now(), cpu_time());
        for _ in 0..self.rounds {
            round(self.clone()).await;
        }
        let (wall, all) = (wall.elapsed().as_micros(), cpu_time());
        let (cpu, all) = ((all - cpu).as_micros(), all.as_micros());
        let calls = self.calls() * self.rounds;
        println!("cpu_us={cpu} process_cpu_us={all} wall_us={wall} peak_kb={} calls={calls}", peak_kb());
    }
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("{text} is not a number"))
}

/// CPU time of all threads of this process, user and system.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the duration of the call. (Safe wrappers read the vDSO themselves, which fails under
    // valgrind.)
    #[expect(unsafe_code, reason = "there is no safe call that works under valgrind")]
    unsafe {
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time);
    }
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Peak memory of this process, in KiB.
fn peak_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}
