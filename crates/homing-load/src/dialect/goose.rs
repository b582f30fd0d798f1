//! Goose: agents with little more than a name, and recipes.

use super::{Depth, Dialect, DialectFolder, PLAIN, deep, has};
use crate::fields::{Field, Unit};
use homing_core::limits::Limit;

pub(super) static DIALECT: Dialect = Dialect {
    name: "goose",
    project: &[deep(".goose/agents")],
    home: &[deep(".goose/agents")],
    config: &[deep("goose/agents")],
    ..PLAIN
};

const RECIPE: &[&str] = &[".yaml", ".yml", ".json"];

pub(super) static RECIPES: Dialect = Dialect {
    name: "goose-recipe",
    project: &[
        DialectFolder { path: ".goose/recipes", depth: Depth::Deep, endings: RECIPE },
        DialectFolder { path: ".agents/recipes", depth: Depth::Deep, endings: RECIPE },
    ],
    home: &[DialectFolder { path: ".goose/recipes", depth: Depth::Deep, endings: RECIPE }],
    config: &[DialectFolder { path: "goose/recipes", depth: Depth::Deep, endings: RECIPE }],
    files: &["recipe.yaml", "recipe.json"],
    fields: &[
        ("title", Field::Name),
        ("prompt", Field::InitialPrompt),
        ("settings", Field::Inline),
        ("goosemodel", Field::Model),
        ("gooseprovider", Field::Provider),
        ("maxturns", Field::Limit(Limit::Turns, Unit::Count)),
        ("extensions", Field::Extensions),
        ("response", Field::Response),
        ("retry", Field::OnFailure),
        ("parameters", Field::Parameters),
        ("subrecipes", Field::SubRecipes),
        ("activities", Field::Ignored("Goose shows them in its desktop only")),
    ],
    recognises: |node| node.get("title").is_some() && node.get("name").is_none() && has(node, &["instructions"]),
    ..PLAIN
};
