//! [`IdMap`]: a hash map whose keys are the runtime's own ids.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A map by ids that this program made, such as those of runs and calls. They are random, so a hash that resists crafted keys,
/// which takes several times as long, is not necessary.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Multiplies the words of an id into one.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl IdHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.add(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.add(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.add(word);
    }

    /// Lengths of ids are all the same.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        // Multiplication mixes towards the high bits, but tables use the low ones as well.
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault};

    use uuid::Uuid;

    use super::*;

    #[test]
    fn ids_of_one_moment_spread_over_a_table() {
        let hashes = BuildHasherDefault::<IdHasher>::default();
        // Ids that were made one after the other differ in few bits.
        let ids =
            (0..4_096_u128).map(|at| Uuid::from_u128(0x0199_0000_0000_7000_8000_0000_0000_0000 + (at << 20) + at));
        let mut buckets = [0_u32; 1_024];
        for id in ids {
            buckets[(hashes.hash_one(id) % 1_024) as usize] += 1;
        }
        assert!(buckets.iter().all(|count| *count < 32), "{:?}", buckets.iter().max());
    }
}
