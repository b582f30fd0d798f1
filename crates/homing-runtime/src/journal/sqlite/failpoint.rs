//! Points at which a test has its own process killed, to prove that nothing is lost there. Absent from releases.

/// Kills the process when the journal has passed this many points.
///
/// A record has two points, before and after it is written; a commit that concerns a tree has two, before
/// and after it.
#[cfg(any(test, feature = "failpoints"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failpoint {
    /// Which point, from 1.
    pub nth: u64,
}

/// Counts points.
#[derive(Default)]
pub(super) struct Counter {
    #[cfg(any(test, feature = "failpoints"))]
    left: Option<u64>,
}

impl Counter {
    #[cfg(any(test, feature = "failpoints"))]
    pub(super) fn new(failpoint: Option<Failpoint>) -> Self {
        Self { left: failpoint.map(|it| it.nth) }
    }

    /// Passes one point.
    #[cfg(any(test, feature = "failpoints"))]
    pub(super) fn pass(&mut self) {
        let Some(left) = &mut self.left else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            // The signal is on its way; nothing more may be written until it arrives.
            loop {
                std::thread::park();
            }
        }
    }

    /// Passes one point.
    #[cfg(not(any(test, feature = "failpoints")))]
    #[allow(clippy::unused_self)]
    pub(super) fn pass(&mut self) {}
}
