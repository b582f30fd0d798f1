//! Spawns runs, drives each to its end, and records what happens. It knows neither files nor providers nor terminals:
//! models, tools and the journal are handed to it.

pub mod journal;
#[cfg(feature = "sqlite")]
pub mod sqlite;
