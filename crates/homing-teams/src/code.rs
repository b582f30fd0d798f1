//! Parts of a team that are functions. They are compared by their presence, and never recorded.

use std::{fmt, sync::Arc};

/// A function that is part of a team, if there is one.
pub(crate) struct Code<F: ?Sized>(pub(crate) Option<Arc<F>>);

impl<F: ?Sized> Default for Code<F> {
    fn default() -> Self {
        Self(None)
    }
}

impl<F: ?Sized> Clone for Code<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<F: ?Sized> PartialEq for Code<F> {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_some() == other.0.is_some()
    }
}

impl<F: ?Sized> fmt::Debug for Code<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "code" } else { "none" })
    }
}
