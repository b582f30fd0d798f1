# `just` lists these.
default:
    @just --list

# Checks that a change must pass.
ci:
    .ci/run

# Runs the tests of one crate: just test homing-load
test CRATE:
    cargo test -p {{CRATE}}

# Runs every test.
test-all:
    cargo test --workspace

# Formats everything.
fmt:
    cargo fmt --all

# Lints as CI does.
lint:
    cargo clippy --workspace --all-targets -- -D warnings

# Runs the command line: just run agents --json
run *ARGS:
    cargo run -q -- {{ARGS}}

# Compares with a bare loop and other agent kits, as one table; results are in docs/BENCHMARKS.md.
bench ROUNDS="3":
    benches/run {{ROUNDS}}

# Compares instruction counts with the committed figures, which no load of the machine changes; needs valgrind.
bench-check *ARGS:
    benches/check {{ARGS}}

# Builds the program that is shipped: a release build whose linker places the functions of a run side by side.
dist:
    dist/build

# Measures `homing run` with one call, for several programs in turn: just bench-start target/release/homing /usr/local/bin/homing
bench-start +PROGRAMS:
    cargo build --profile bench -p bench-stub
    benches/start {{PROGRAMS}}

# Benchmarks of the runtime, the wires, the journal, loading, teams and the tools.
bench-crates:
    cargo bench -p homing-runtime --bench load
    cargo bench -p homing-runtime --bench journal
    cargo bench -p homing-models
    cargo bench -p homing-load --bench load
    cargo bench -p homing-teams --bench crew
    cargo bench -p homing-tools

# Runs a real small model on this machine, through both wires.
real-llm:
    tests/real-llm/run
    tests/real-llm/llmock

# Tests the MCP server with real clients.
mcp-peers:
    tests/mcp-peers/run

# Injects kills, 429 storms, cut streams, full disks and tight budgets for a number of seconds; HOMING_CHAOS_SEED repeats a round.
chaos SECONDS="300":
    HOMING_CHAOS_SECONDS={{SECONDS}} cargo test -p homing-cli --test it chaos -- --nocapture

# Takes over the published tables of prices (genai-prices, as in Cargo.lock) and of limits and abilities (litellm).
prices:
    crates/homing-models/data/refresh

# Makes the pictures in the README and the guide from real runs.
picture:
    docs/picture/make

# Builds the web interface into crates/homing-web/assets; needs Node and the target wasm32-unknown-unknown.
web:
    crates/homing-web/ui/build

# Tests the web interface in Chromium.
web-test *NAME:
    crates/homing-web/ui/test/run {{NAME}}

# Makes the pictures of docs/WEB.md from real runs.
web-pictures:
    cd crates/homing-web/ui && node test/pictures.mjs "${CARGO_TARGET_DIR:-../../../target}/debug/homing" ../../../docs/web

# Fuzzes each target for ten minutes; needs cargo-fuzz and a nightly compiler. Findings stay in fuzz/target.
fuzz SECONDS="600" TARGETS="args cassette parse record shell team wires":
    for target in {{TARGETS}}; do \
        mkdir -p fuzz/target/found/$target && \
        cargo +nightly fuzz run $target fuzz/target/found/$target fuzz/corpus/$target -- \
            -max_total_time={{SECONDS}} -max_len=8192 -timeout=10 || exit 1; \
    done

# Measures line coverage: just coverage -p homing-core. Needs `cargo install cargo-llvm-cov` and
# `rustup component add llvm-tools`.
coverage *ARGS="--workspace":
    cargo llvm-cov {{ARGS}} --ignore-run-fail --summary-only --ignore-filename-regex 'benches/|homing-testing|tests/'

# Checks licences, bans, sources and advisories of all dependencies; needs `cargo install cargo-deny`.
deny:
    cargo deny --all-features check

# Compares the public API with the last release; needs `cargo install cargo-semver-checks`.
semver BASELINE:
    cargo semver-checks -p homing --baseline-rev {{BASELINE}}

# Checks each feature of the crate `homing` alone.
features:
    .ci/features

# Builds the documentation of all crates.
doc:
    cargo doc --workspace --no-deps --open

# Runs trees on a real Restate server with three workers, and kills some: just restate --only kills --kills 200 --trees 4
restate *ARGS:
    tests/restate/run {{ARGS}}
