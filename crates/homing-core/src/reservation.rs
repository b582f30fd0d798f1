//! `Reservation`: an amount of tokens and money, with its arithmetic.

use serde::{Deserialize, Serialize};

/// Tokens and money held for a model call until its usage is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Input and output tokens.
    pub tokens: u64,
    /// Micro-dollars.
    pub cost_micros: u64,
}

impl Reservation {
    /// Returns whether nothing is held.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the larger amount of each.
    #[must_use]
    pub(crate) fn max(self, other: Self) -> Self {
        Self { tokens: self.tokens.max(other.tokens), cost_micros: self.cost_micros.max(other.cost_micros) }
    }
}

impl std::ops::Add for Reservation {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl std::ops::Sub for Reservation {
    type Output = Self;

    fn sub(mut self, other: Self) -> Self {
        self -= other;
        self
    }
}

impl std::ops::AddAssign for Reservation {
    fn add_assign(&mut self, other: Self) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
    }
}

impl std::ops::SubAssign for Reservation {
    fn sub_assign(&mut self, other: Self) {
        self.tokens = self.tokens.saturating_sub(other.tokens);
        self.cost_micros = self.cost_micros.saturating_sub(other.cost_micros);
    }
}
