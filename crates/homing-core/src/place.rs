//! `Place`: a run's position in its tree.

use std::{fmt, num::ParseIntError, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

/// A run's position in its tree: the root is `1`, its second child's third child is `1.2.3`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(Arc<[u32]>);

impl Place {
    /// Returns the root of a tree.
    pub fn root() -> Self {
        Self(Arc::new([1]))
    }

    /// Returns the `n`-th child of this place, counting from one.
    #[must_use]
    pub fn child(&self, n: u32) -> Self {
        Self(self.0.iter().copied().chain([n]).collect())
    }

    /// Returns the parent's place, or `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let (_, rest) = self.0.split_last()?;
        (!rest.is_empty()).then(|| Self(rest.into()))
    }

    /// Returns the steps from the root down.
    pub fn steps(&self) -> &[u32] {
        &self.0
    }

    /// Returns the number of levels below the root: 0 for the root itself.
    pub fn depth(&self) -> usize {
        self.0.len() - 1
    }

    /// Returns whether this place is `top` or below it.
    pub fn is_within(&self, top: &Self) -> bool {
        self.0.starts_with(&top.0)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            write!(f, "{step}")?;
        }
        Ok(())
    }
}

impl FromStr for Place {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.split('.').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl Serialize for Place {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
