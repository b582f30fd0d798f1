//! Plain JSON, one object or a map of name to object: command lines, configuration, the Claude SDK's definitions.

use super::{Dialect, PLAIN};

pub(super) static DIALECT: Dialect = Dialect { name: "json", ..PLAIN };
