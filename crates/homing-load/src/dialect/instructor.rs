//! instructor-php: Claude Code's folder with budgets and capabilities; without a model the default model is used.

use super::{AbsentModel, Depth, Dialect, DialectFolder, PLAIN, has};
use crate::fields::Field;

pub(super) static DIALECT: Dialect = Dialect {
    name: "instructor",
    project: &[DialectFolder { path: ".claude/agents", depth: Depth::Deep, endings: &[".yaml", ".yml", ".json"] }],
    absent_model: AbsentModel::Default,
    fields: &[("capabilities", Field::Ignored("capabilities are code of that program"))],
    recognises: |node| has(node, &["llmConfig", "toolsDeny", "budget"]),
    ..PLAIN
};
