//! Points at which a test kills its own process, to prove that nothing is lost there. Not compiled into releases.

/// Kills the process when the journal has passed this many points.
///
/// A record has a point before it is indexed; records that are written together have two, before and after that; a commit that
/// concerns a tree has two, before and after it.
#[cfg(any(test, feature = "failpoints"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failpoint {
    /// Number of the point, from 1.
    pub nth: u64,
}

/// Counts points.
#[derive(Default)]
pub(super) struct FailpointCounter {
    #[cfg(any(test, feature = "failpoints"))]
    left: Option<u64>,
}

impl FailpointCounter {
    #[cfg(any(test, feature = "failpoints"))]
    pub(super) fn new(failpoint: Option<Failpoint>) -> Self {
        Self { left: failpoint.map(|failpoint| failpoint.nth) }
    }

    /// Passes one point.
    #[cfg(any(test, feature = "failpoints"))]
    pub(super) fn pass(&mut self) {
        let Some(left) = &mut self.left else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            // Nothing may be written until the signal arrives.
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
