//! Plain JSON, one object or a map of name to object: configuration values and the definitions of the Claude SDK.

use super::{Dialect, PLAIN};

pub(super) static DIALECT: Dialect = Dialect { name: "json", ..PLAIN };
