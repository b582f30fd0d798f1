//! Values that are kept beside a message, because every turn of a conversation needs them again.

use std::{any::Any, borrow::Cow, sync::OnceLock};

/// Value that is derived from a message once. A program such as a team reads its whole transcript at each turn.
#[derive(Default)]
pub struct Derived(OnceLock<Box<dyn Any + Send + Sync>>);

impl Derived {
    /// Returns the value, or creates it with `make`; `None` if a value of another type was derived before.
    pub fn get_or_make<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.0.get_or_init(|| Box::new(make())).downcast_ref()
    }
}

impl std::fmt::Debug for Derived {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.get().is_some() { "Derived" } else { "-" })
    }
}

/// Cached encoding of a value for one wire. It is cached for the first wire that asks; other wires encode each time.
#[derive(Debug, Default)]
pub struct Encoding(OnceLock<(&'static str, Box<str>)>);

impl Encoding {
    /// Returns the cached encoding for `wire`, if any. It is called for every message of every request, so it compares
    /// the addresses of the names first.
    #[inline]
    pub fn kept(&self, wire: &'static str) -> Option<&str> {
        self.0.get().filter(|(owner, _)| std::ptr::eq(*owner, wire) || *owner == wire).map(|(_, text)| &**text)
    }

    /// Returns the cached encoding for `wire`, or creates it with `make`.
    pub fn get_or_make(&self, wire: &'static str, make: impl FnOnce() -> String) -> Cow<'_, str> {
        let mut make = Some(make);
        let encode = || (wire, make.take().map(|make| make()).unwrap_or_default().into_boxed_str());
        let (owner, text) = self.0.get_or_init(encode);
        match make {
            // It was cached for another wire, perhaps by another thread a moment ago.
            Some(make) if *owner != wire => Cow::Owned(make()),
            Some(_) | None => Cow::Borrowed(text),
        }
    }
}
