//! acai: the name of an agent must match its file name.

use super::{Dialect, FileName, PLAIN, flat};

pub(super) static DIALECT: Dialect = Dialect {
    name: "acai",
    project: &[flat(".acai/subagents")],
    home: &[flat(".acai/subagents")],
    file_name: FileName::MustMatch,
    ..PLAIN
};
