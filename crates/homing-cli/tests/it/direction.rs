//! Dependencies between the crates point one way, and the middle rooms do not know each other.

use std::{collections::BTreeMap, fs, path::Path};

/// What each crate may use of the others.
const ALLOWED: &[(&str, &[&str])] = &[
    ("homing-core", &[]),
    // Servers that tests talk to; nobody may depend on it outside tests.
    ("homing-fake", &[]),
    ("homing-load", &["homing-core"]),
    ("homing-models", &["homing-core"]),
    ("homing-tools", &["homing-core"]),
    ("homing-runtime", &["homing-core"]),
    // Folds facts, so that it needs the words and nobody else.
    ("homing-otel", &["homing-core"]),
    ("homing-teams", &["homing-core", "homing-runtime"]),
    ("homing", &["homing-core", "homing-load", "homing-models", "homing-tools", "homing-runtime", "homing-teams"]),
];

/// Hosts stand on top and may use everything below them, but not each other.
const HOSTS: &[&str] = &["homing-cli", "homing-mcp", "homing-web", "homing-restate", "homing-acp"];

fn dependencies() -> BTreeMap<String, Vec<String>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = fs::read_dir(crates).expect("the crates lie beside this one").filter_map(Result::ok);
    let manifests = folders.filter_map(|it| fs::read_to_string(it.path().join("Cargo.toml")).ok());
    let read = |text: String| {
        let manifest: toml::Table = text.parse().expect("a manifest is TOML");
        let name = manifest["package"]["name"].as_str().expect("a name").to_owned();
        let normal = manifest.get("dependencies").and_then(toml::Value::as_table);
        let ours = normal.into_iter().flatten().map(|(name, _)| name.clone()).filter(|it| it.starts_with("homing"));
        (name, ours.collect())
    };
    manifests.map(read).collect()
}

#[test]
fn dependencies_point_one_way() {
    let dependencies = dependencies();
    assert!(dependencies.contains_key("homing-core") && dependencies.contains_key("homing-cli"));
    for (name, uses) in &dependencies {
        let host = HOSTS.contains(&name.as_str());
        let allowed = ALLOWED.iter().find(|(it, _)| it == name).map(|(_, allowed)| *allowed);
        assert!(
            host || allowed.is_some(),
            "{name} has no place in the design: give it one here and in ARCHITECTURE.md"
        );
        for used in uses {
            // The command line is the composition root: it also serves MCP and the dashboard.
            let fine = match host {
                true => used != "homing-fake" && (!HOSTS.contains(&used.as_str()) || name == "homing-cli"),
                false => allowed.is_some_and(|it| it.contains(&used.as_str())),
            };
            assert!(fine, "{name} must not depend on {used}");
        }
    }
}
