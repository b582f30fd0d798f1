//! Settings of the C library's allocator, for commands with many runs.

/// The least number of bytes by which the heap grows. It takes a system call each time, and what is not used is not resident.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const GROWTH: i32 = 1 << 20;

/// Has threads share at most this many heaps, and lets heaps grow in larger steps.
///
/// By default each thread gets a heap of its own, up to eight for each core, and what one of them has freed the others cannot use.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "there is no safe call for it")]
pub(crate) fn share_heaps(heaps: usize) {
    let heaps = i32::try_from(heaps).unwrap_or(i32::MAX);
    // SAFETY: the calls take integers, change only how later allocations are served, and lock the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, heaps);
        libc::mallopt(libc::M_TOP_PAD, GROWTH);
    }
}

/// Other allocators are left as they are.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn share_heaps(_: usize) {}
