//! Limits of a run and their values. Enforcement is in [`crate::ledger`].

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// The value of one limit of a run. Limits of its ancestors apply in addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cap {
    /// Not set: the default for the run's position applies.
    #[default]
    Default,
    /// Explicitly `none`: the run itself has no limit, its ancestors may have one.
    Unlimited,
    /// At most this much.
    At(u64),
}

impl Cap {
    /// Returns the number, if there is one.
    pub fn value(self) -> Option<u64> {
        match self {
            Self::Default | Self::Unlimited => None,
            Self::At(value) => Some(value),
        }
    }

    /// Returns whether it is not set.
    pub fn is_default(&self) -> bool {
        *self == Self::Default
    }

    /// Returns this cap if it is set, otherwise `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match self {
            Self::Default => other,
            Self::Unlimited | Self::At(_) => self,
        }
    }

    /// Returns the tighter of the two. Neither `Default` nor `Unlimited` loosens a number.
    #[must_use]
    pub fn tighter(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(a), Self::At(b)) => Self::At(a.min(b)),
            (Self::At(a), _) | (_, Self::At(a)) => Self::At(a),
            (Self::Unlimited, _) | (_, Self::Unlimited) => Self::Unlimited,
            (Self::Default, Self::Default) => Self::Default,
        }
    }
}

/// The quantities that can be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Limit {
    /// Model replies that enter the transcript, counted per run.
    Turns,
    /// Levels of delegation below this run.
    Depth,
    /// Input (cached included) and output tokens, counted over the subtree.
    Tokens,
    /// Millionths of a US dollar, counted over the subtree.
    Cost,
    /// Tool calls, counted over the subtree.
    ToolCalls,
    /// Runs below this one, counted over the subtree.
    Children,
    /// Time from the run's first step to its end.
    Wall,
    /// Time that the run itself spent on model and tool calls, without queueing or waiting for children.
    Work,
    /// Identical calls with identical results in a row.
    Repeats,
    /// Compactions of the history without progress between them.
    Compactions,
    /// Output tokens of one reply. Reached if the provider cut several replies in a row.
    Output,
}

impl Limit {
    /// The limits that users can set, in display order.
    pub const SETTABLE: [Self; 9] = [
        Self::Turns,
        Self::Depth,
        Self::Tokens,
        Self::Cost,
        Self::ToolCalls,
        Self::Children,
        Self::Wall,
        Self::Work,
        Self::Output,
    ];

    /// Returns the name used in envelopes, journals and configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::Depth => "depth",
            Self::Tokens => "tokens",
            Self::Cost => "cost",
            Self::ToolCalls => "tool_calls",
            Self::Children => "children",
            Self::Wall => "wall",
            Self::Work => "work",
            Self::Repeats => "repeats",
            Self::Compactions => "compactions",
            Self::Output => "output",
        }
    }
}

impl Limit {
    /// Formats a cap of this limit: `$0.50`, `90 s`, `12`, `none`.
    pub fn shown(self, cap: Cap) -> String {
        match (cap, self) {
            (Cap::Default, _) => "the default".to_owned(),
            (Cap::Unlimited, _) => "none".to_owned(),
            (Cap::At(value), Self::Cost) => usd(value),
            (Cap::At(value), Self::Wall | Self::Work) => format!("{} s", value as f64 / 1_000.0),
            (
                Cap::At(value),
                Self::Turns
                | Self::Depth
                | Self::Tokens
                | Self::ToolCalls
                | Self::Children
                | Self::Repeats
                | Self::Compactions
                | Self::Output,
            ) => value.to_string(),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Limits of a run.
///
/// # Examples
///
/// ```
/// # use homing_core::limits as homing;
/// use std::time::Duration;
///
/// use homing::{Cap, Limit, Limits};
///
/// # fn main() -> Result<(), homing::AmountError> {
/// let limits = Limits::default().cost_usd("0.50")?.turns(20).wall(Duration::from_secs(300)).unlimited(Limit::Tokens);
/// assert_eq!((limits.cap(Limit::Turns), limits.cap(Limit::Tokens)), (Cap::At(20), Cap::Unlimited));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Limits {
    /// Model replies of this run.
    pub turns: Cap,
    /// Levels of delegation below this run; 0 means it cannot delegate.
    pub depth: Cap,
    /// Tokens of the subtree.
    pub tokens: Cap,
    /// Micro-dollars of the subtree.
    pub cost_micros: Cap,
    /// Tool calls of the subtree.
    pub tool_calls: Cap,
    /// Runs below this one.
    pub children: Cap,
    /// Milliseconds from the first step to the end.
    pub wall_ms: Cap,
    /// Milliseconds of own work.
    pub work_ms: Cap,
    /// Output tokens of one reply; the model's own limit applies in addition.
    #[serde(skip_serializing_if = "Cap::is_default")]
    pub output: Cap,
}

impl Limits {
    /// Returns the defaults of a root run: 100 turns, $5, one hour, three levels, 300 tool calls, 50 children.
    pub fn root() -> Self {
        Self {
            turns: Cap::At(100),
            depth: Cap::At(3),
            tokens: Cap::Unlimited,
            cost_micros: Cap::At(5_000_000),
            tool_calls: Cap::At(300),
            children: Cap::At(50),
            wall_ms: Cap::At(3_600_000),
            work_ms: Cap::Unlimited,
            output: Cap::Default,
        }
    }

    /// Returns the defaults of a child run: 100 turns and 15 minutes of its own work. For all other quantities the limits
    /// of its ancestors apply.
    pub fn delegated() -> Self {
        Self {
            turns: Cap::At(100),
            depth: Cap::Unlimited,
            tokens: Cap::Unlimited,
            cost_micros: Cap::Unlimited,
            tool_calls: Cap::Unlimited,
            children: Cap::Unlimited,
            wall_ms: Cap::Unlimited,
            work_ms: Cap::At(900_000),
            output: Cap::Default,
        }
    }

    /// Returns limits for a small run: 50,000 tokens, 300 seconds, 100 tool calls.
    pub fn small() -> Self {
        Self { tokens: Cap::At(50_000), wall_ms: Cap::At(300_000), tool_calls: Cap::At(100), ..Self::default() }
    }

    /// Sets the cost limit from a decimal amount of dollars, such as `"0.50"`.
    ///
    /// # Errors
    /// Fails if `amount` is not a decimal number.
    pub fn cost_usd(mut self, amount: &str) -> Result<Self, AmountError> {
        self.cost_micros = Cap::At(micros_from_usd(amount)?);
        Ok(self)
    }

    /// Sets the limit on model replies.
    #[must_use]
    pub fn turns(mut self, turns: u64) -> Self {
        self.turns = Cap::At(turns);
        self
    }

    /// Sets the limit on tokens.
    #[must_use]
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = Cap::At(tokens);
        self
    }

    /// Sets the limit on tool calls.
    #[must_use]
    pub fn tool_calls(mut self, calls: u64) -> Self {
        self.tool_calls = Cap::At(calls);
        self
    }

    /// Sets the limit on runs below this one.
    #[must_use]
    pub fn children(mut self, children: u64) -> Self {
        self.children = Cap::At(children);
        self
    }

    /// Sets the levels of delegation below this run.
    #[must_use]
    pub fn depth(mut self, depth: u64) -> Self {
        self.depth = Cap::At(depth);
        self
    }

    /// Sets the limit on output tokens of one reply.
    #[must_use]
    pub fn output(mut self, tokens: u64) -> Self {
        self.output = Cap::At(tokens);
        self
    }

    /// Sets the time from first step to end.
    #[must_use]
    pub fn wall(mut self, wall: Duration) -> Self {
        self.wall_ms = Cap::At(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Sets one limit: a number, none, or the default. Guards such as [`Limit::Repeats`] cannot be set and stay as they are.
    #[must_use]
    pub fn with(mut self, limit: Limit, cap: Cap) -> Self {
        match limit {
            Limit::Turns => self.turns = cap,
            Limit::Depth => self.depth = cap,
            Limit::Tokens => self.tokens = cap,
            Limit::Cost => self.cost_micros = cap,
            Limit::ToolCalls => self.tool_calls = cap,
            Limit::Children => self.children = cap,
            Limit::Wall => self.wall_ms = cap,
            Limit::Work => self.work_ms = cap,
            Limit::Output => self.output = cap,
            Limit::Repeats | Limit::Compactions => {}
        }
        self
    }

    /// Removes one limit: the run may spend as much of it as it needs.
    #[must_use]
    pub fn unlimited(self, limit: Limit) -> Self {
        self.with(limit, Cap::Unlimited)
    }

    /// Sets the limit on cost in millionths of a US dollar.
    #[must_use]
    pub fn cost_micros(self, micros: u64) -> Self {
        self.with(Limit::Cost, Cap::At(micros))
    }

    /// Sets the limit on the run's own work, without the time it waits for its children.
    #[must_use]
    pub fn work(self, work: Duration) -> Self {
        self.with(Limit::Work, Cap::At(u64::try_from(work.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Returns the cap of one limit; guards such as [`Limit::Repeats`] cannot be set and have none.
    pub fn cap(&self, limit: Limit) -> Cap {
        match limit {
            Limit::Turns => self.turns,
            Limit::Depth => self.depth,
            Limit::Tokens => self.tokens,
            Limit::Cost => self.cost_micros,
            Limit::ToolCalls => self.tool_calls,
            Limit::Children => self.children,
            Limit::Wall => self.wall_ms,
            Limit::Work => self.work_ms,
            Limit::Output => self.output,
            Limit::Repeats | Limit::Compactions => Cap::Unlimited,
        }
    }

    /// Applies `choose` to each pair of caps.
    fn zip(self, other: Self, choose: impl Fn(Cap, Cap) -> Cap) -> Self {
        Self {
            turns: choose(self.turns, other.turns),
            depth: choose(self.depth, other.depth),
            tokens: choose(self.tokens, other.tokens),
            cost_micros: choose(self.cost_micros, other.cost_micros),
            tool_calls: choose(self.tool_calls, other.tool_calls),
            children: choose(self.children, other.children),
            wall_ms: choose(self.wall_ms, other.wall_ms),
            work_ms: choose(self.work_ms, other.work_ms),
            output: choose(self.output, other.output),
        }
    }

    /// Returns these limits, with `other` for those that are not set.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.zip(other, Cap::or)
    }

    /// Returns these limits bounded by `ceiling`: a larger number becomes the ceiling's, and `none` becomes the default.
    #[must_use]
    pub fn within(self, ceiling: Self) -> Self {
        self.zip(ceiling, |requested, most| match requested {
            Cap::Default | Cap::Unlimited => Cap::Default,
            Cap::At(value) => Cap::At(most.value().map_or(value, |most| value.min(most))),
        })
    }

    /// Returns these limits raised by `more`: numbers are added, `none` removes a limit, unset ones change nothing.
    #[must_use]
    pub(crate) fn raised_by(self, more: Self) -> Self {
        self.zip(more, |have, more| match (have, more) {
            (have, Cap::Default) => have,
            (_, Cap::Unlimited) => Cap::Unlimited,
            (Cap::At(have), Cap::At(more)) => Cap::At(have.saturating_add(more)),
            (Cap::Unlimited | Cap::Default, Cap::At(_)) => have,
        })
    }

    /// Returns the tighter of the two, limit by limit.
    #[must_use]
    pub fn tighter(self, other: Self) -> Self {
        self.zip(other, Cap::tighter)
    }
}

/// An amount of money that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an amount of dollars: write a number such as 0.50, or none")]
pub struct AmountError(pub String);

/// Parses a plain decimal amount of dollars, with or without a leading `$`, into micro-dollars.
///
/// Digits after the sixth decimal are cut off, so that a limit is never larger than written.
///
/// # Errors
/// Fails if `amount` is not a decimal number or is too large.
pub fn micros_from_usd(amount: &str) -> Result<u64, AmountError> {
    let bad = || AmountError(amount.to_owned());
    let text = amount.trim();
    let text = text.strip_prefix('$').unwrap_or(text).trim_end_matches("USD").trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return Err(bad());
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| bad())? };
    let fraction: u64 = format!("{fraction:0<6}")[..6].parse().map_err(|_| bad())?;
    whole.checked_mul(1_000_000).and_then(|micros| micros.checked_add(fraction)).ok_or_else(bad)
}

/// Formats micro-dollars as all interfaces show money: from a dollar on in cents, below with two to four decimals, and amounts below a
/// hundredth of a cent exactly.
///
/// ```
/// use homing_core::limits::usd;
///
/// assert_eq!([0, 42, 12_345, 500_000, 12_345_678].map(usd), ["$0", "$0.000042", "$0.0123", "$0.50", "$12.35"]);
/// ```
pub fn usd(micros: u64) -> String {
    let unit = match micros {
        0 => return "$0".to_owned(),
        1..100 => 1,
        // Amounts that round to a dollar are written as one.
        100..999_950 => 100,
        _ => 10_000,
    };
    let rounded = micros.saturating_add(unit / 2) / unit * unit;
    let digits = format!("{:06}", rounded % 1_000_000);
    let kept = digits.trim_end_matches('0').len().max(2);
    format!("${}.{}", rounded / 1_000_000, &digits[..kept])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r31_defaults_match_the_documentation() {
        let root = Limits::default().or(Limits::root());
        assert_eq!(root.cost_micros, Cap::At(5_000_000));
        assert_eq!(root.wall_ms, Cap::At(3_600_000));
        assert_eq!((root.depth, root.tool_calls, root.children), (Cap::At(3), Cap::At(300), Cap::At(50)));
        assert_eq!(Limits::delegated().work_ms, Cap::At(900_000));
        let small = Limits::small();
        assert_eq!((small.tokens, small.wall_ms, small.tool_calls), (Cap::At(50_000), Cap::At(300_000), Cap::At(100)));
    }

    #[test]
    fn none_is_explicit_and_never_loosens_a_number() {
        assert_eq!(Cap::Default.or(Cap::At(5)), Cap::At(5));
        assert_eq!(Cap::Unlimited.or(Cap::At(5)), Cap::Unlimited);
        assert_eq!(Cap::Unlimited.tighter(Cap::At(5)), Cap::At(5));
        assert_eq!(Cap::At(7).tighter(Cap::At(5)), Cap::At(5));
    }

    #[test]
    fn ceiling_lowers_numbers_and_resets_none() {
        let requested =
            Limits { cost_micros: Cap::At(9), tokens: Cap::Unlimited, turns: Cap::At(3), ..Limits::default() };
        let ceiling = Limits { cost_micros: Cap::At(5), turns: Cap::Unlimited, ..Limits::default() };
        let within = requested.within(ceiling);
        assert_eq!((within.cost_micros, within.tokens, within.turns), (Cap::At(5), Cap::Default, Cap::At(3)));
        assert_eq!(within.depth, Cap::Default, "an unset limit stays unset");
        assert_eq!(Limit::Cost.shown(Cap::At(500_000)), "$0.50");
        assert_eq!(
            (Limit::Wall.shown(Cap::At(1_500)), Limit::Turns.shown(Cap::Unlimited)),
            ("1.5 s".into(), "none".into())
        );
    }

    #[test]
    fn money_is_parsed_exactly_and_never_rounded_up() {
        assert_eq!(micros_from_usd("0.50"), Ok(500_000));
        assert_eq!(micros_from_usd("$5"), Ok(5_000_000));
        assert_eq!(micros_from_usd("5 USD"), Ok(5_000_000));
        assert_eq!(micros_from_usd(".0000019"), Ok(1));
        for bad in ["", "5,00", "-1", "1e3", ".inf", "NaN", ".", "99999999999999999999"] {
            assert!(micros_from_usd(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn money_has_one_format() {
        let shown =
            [(0, "$0"), (1, "$0.000001"), (99, "$0.000099"), (100, "$0.0001"), (149, "$0.0001"), (1_250, "$0.0013")]
                .into_iter()
                .chain([
                    (21_000, "$0.021"),
                    (500_000, "$0.50"),
                    (999_949, "$0.9999"),
                    (999_950, "$1.00"),
                    (1_004_999, "$1.00"),
                ])
                .chain([(5_000_000, "$5.00"), (123_456_789, "$123.46"), (u64::MAX, "$18446744073709.55")]);
        for (micros, text) in shown {
            assert_eq!(usd(micros), text, "{micros}");
        }
    }
}
