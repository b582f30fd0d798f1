//! Cassettes. What can be read is written and read again as itself.
#![no_main]

use homing_runtime::journal::sqlite::{Cassette, CassetteReplay};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(cassette) = Cassette::read(text) else { return };
    let written = cassette.write(&str::to_owned).expect("a cassette can be written");
    assert_eq!(Cassette::read(&written).expect("what was written can be read"), cassette);
    assert_eq!(cassette.tree(), cassette.records()[0].tree);
    let replay = CassetteReplay::new(&cassette);
    assert!(replay.divergences().is_empty(), "nothing was played yet");
});
