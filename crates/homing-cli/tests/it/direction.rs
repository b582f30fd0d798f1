//! Checks that dependencies between the crates point one way, in every table of every manifest.

use std::{collections::BTreeMap, fs, path::Path};

/// The crates that each library crate may use.
const ALLOWED: &[(&str, &[&str])] = &[
    ("homing-core", &[]),
    ("homing-testing", &[]),
    ("homing-http", &[]),
    ("homing-load", &["homing-core"]),
    ("homing-models", &["homing-core"]),
    ("homing-offline", &["homing-core"]),
    ("homing-sandbox", &["homing-core"]),
    ("homing-tools", &["homing-core", "homing-sandbox"]),
    ("homing-runtime", &["homing-core"]),
    ("homing-otel", &["homing-core"]),
    ("homing-fold-wasm", &["homing-core"]),
    ("homing-teams", &["homing-core", "homing-runtime"]),
    (
        "homing",
        &[
            "homing-core",
            "homing-load",
            "homing-models",
            "homing-offline",
            "homing-sandbox",
            "homing-tools",
            "homing-runtime",
            "homing-teams",
            "homing-otel",
        ],
    ),
];

/// Crates that tests may use besides: servers to talk to, and a runtime to produce facts with.
const ALLOWED_IN_TESTS: &[(&str, &[&str])] = &[
    ("homing", &["homing-testing"]),
    ("homing-models", &["homing-testing"]),
    ("homing-cli", &["homing-testing"]),
    ("homing-otel", &["homing-runtime"]),
    // The crate itself, with the failpoints that its tests need.
    ("homing-runtime", &["homing-runtime"]),
];

/// Hosts may use every library crate; only the command line may use other hosts.
const HOSTS: &[&str] = &["homing-cli", "homing-mcp", "homing-web", "homing-restate", "homing-acp"];

struct Manifest {
    normal: Vec<String>,
    dev: Vec<String>,
    build: Vec<String>,
}

fn manifests() -> BTreeMap<String, Manifest> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = fs::read_dir(crates).expect("the folder of crates exists").filter_map(Result::ok);
    let texts = folders.filter_map(|folder| fs::read_to_string(folder.path().join("Cargo.toml")).ok());
    texts.map(|text| read(&text)).collect()
}

fn read(text: &str) -> (String, Manifest) {
    let manifest: toml::Table = text.parse().expect("a manifest is valid TOML");
    let name = manifest["package"]["name"].as_str().expect("a package has a name").to_owned();
    let targets = manifest.get("target").and_then(toml::Value::as_table).into_iter().flatten();
    let tables: Vec<&toml::Table> =
        [&manifest].into_iter().chain(targets.filter_map(|(_, target)| target.as_table())).collect();
    let ours = |key: &str| {
        let entries = tables.iter().filter_map(|table| table.get(key)?.as_table()).flatten();
        entries.map(|(name, _)| name.clone()).filter(|name| name.starts_with("homing")).collect()
    };
    let manifest =
        Manifest { normal: ours("dependencies"), dev: ours("dev-dependencies"), build: ours("build-dependencies") };
    (name, manifest)
}

fn listed(table: &[(&str, &[&str])], name: &str, used: &str) -> bool {
    table.iter().any(|(listed, allowed)| *listed == name && allowed.contains(&used))
}

fn may_use(name: &str, used: &str) -> bool {
    if HOSTS.contains(&name) {
        return used != "homing-testing" && (!HOSTS.contains(&used) || name == "homing-cli");
    }
    listed(ALLOWED, name, used)
}

#[test]
fn dependencies_point_one_way() {
    let manifests = manifests();
    assert!(manifests.contains_key("homing-core") && manifests.contains_key("homing-cli"));
    for (name, manifest) in &manifests {
        let known = HOSTS.contains(&name.as_str()) || ALLOWED.iter().any(|(listed, _)| listed == name);
        assert!(known, "{name} is not listed: add it here and to docs/ARCHITECTURE.md");
        for used in manifest.normal.iter().chain(&manifest.build) {
            assert!(may_use(name, used), "{name} must not depend on {used}");
        }
        for used in &manifest.dev {
            let allowed = may_use(name, used) || listed(ALLOWED_IN_TESTS, name, used);
            assert!(allowed, "the tests of {name} must not depend on {used}");
        }
    }
}
