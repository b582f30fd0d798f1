# `just` lists these.
default:
    @just --list

# Everything that a change must pass.
ci:
    .ci/run

# The tests of one crate: just test homing-load
test CRATE:
    cargo test -p {{CRATE}}

# Every test.
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

# Ours beside a bare loop and other agent kits, as one table; figures and their story are in docs/BENCHMARKS.md.
bench ROUNDS="3":
    benches/run {{ROUNDS}}

# The runtime, the wires, the journal, loading, the tools, each alone.
bench-rooms:
    cargo bench -p homing-runtime --bench load
    cargo bench -p homing-runtime --bench journal
    cargo bench -p homing-models
    cargo bench -p homing-load --bench load
    cargo bench -p homing-tools

# A real small model on this machine, through both wires.
real-llm:
    tests/real-llm/run
    tests/real-llm/llmock

# Real MCP clients against our server.
mcp-peers:
    tests/mcp-peers/run

# Kills, storms of 429s, cut streams, full disks, tight budgets, for so many seconds; HOMING_CHAOS_SEED plays one again.
chaos SECONDS="300":
    HOMING_CHAOS_SECONDS={{SECONDS}} cargo test -p homing-cli --test it chaos -- --nocapture

# Takes over the table of prices after an update of genai-prices.
prices:
    crates/homing-models/data/refresh

# The pictures in the README and the guide, from real runs.
picture:
    docs/picture/make

# Ten minutes of odd input for each target; needs cargo-fuzz and a nightly compiler. What is found stays in fuzz/target.
fuzz SECONDS="600" TARGETS="args cassette parse record shell team wires":
    for target in {{TARGETS}}; do \
        mkdir -p fuzz/target/found/$target && \
        cargo +nightly fuzz run $target fuzz/target/found/$target fuzz/corpus/$target -- \
            -max_total_time={{SECONDS}} -max_len=8192 -timeout=10 || exit 1; \
    done

# Lines that the tests reach: just coverage -p homing-core. Needs `cargo install cargo-llvm-cov` and
# `rustup component add llvm-tools`.
coverage *ARGS="--workspace":
    cargo llvm-cov {{ARGS}} --ignore-run-fail --summary-only --ignore-filename-regex 'benches/|homing-testing|tests/'

# The documentation of all crates.
doc:
    cargo doc --workspace --no-deps --open
