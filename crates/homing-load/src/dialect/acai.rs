//! acai: the file's name must be the agent's.

use super::{Dialect, FileName, PLAIN, flat};

pub(super) static DIALECT: Dialect = Dialect {
    name: "acai",
    project: &[flat(".acai/subagents")],
    home: &[flat(".acai/subagents")],
    file_name: FileName::MustMatch,
    ..PLAIN
};
