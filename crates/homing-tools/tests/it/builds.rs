//! Builds and tests of real toolchains work in the sandbox, if they are installed.
#![allow(clippy::print_stdout)]

use std::{fs, process::Command};

use crate::command_fixture::{CommandFixture, each};

struct Project {
    tool: &'static str,
    /// Succeeds if the toolchain works outside the sandbox; only then it must work inside.
    check: &'static str,
    files: &'static [(&'static str, &'static str)],
    command: &'static str,
    expect: &'static str,
}

const PROJECTS: &[Project] = &[
    Project {
        tool: "cargo",
        check: "cargo --version",
        files: &[
            ("Cargo.toml", "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
            (
                "src/lib.rs",
                "#[test]\nfn it_works() { std::fs::write(std::env::temp_dir().join(\"a\"), \"b\").unwrap(); }\n",
            ),
        ],
        command: "cargo test --offline 2>&1",
        expect: "test it_works ... ok",
    },
    Project {
        tool: "cargo with a crate from the registry",
        check: "ls \"${CARGO_HOME:-$HOME/.cargo}\"/registry/cache/*/itoa-1*.crate",
        files: &[
            (
                "Cargo.toml",
                "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nitoa = \"1\"\n",
            ),
            ("src/lib.rs", "#[test]\nfn it_works() { assert_eq!(itoa::Buffer::new().format(7), \"7\"); }\n"),
        ],
        command: "cargo test --offline 2>&1",
        expect: "test it_works ... ok",
    },
    Project {
        tool: "npm",
        check: "npm --version",
        files: &[
            ("package.json", "{\"name\":\"tiny\",\"version\":\"1.0.0\",\"scripts\":{\"test\":\"node test.js\"}}"),
            ("test.js", "require('child_process').execFileSync('node', ['-e', '0']); console.log('it works')"),
        ],
        command: "npm test 2>&1",
        expect: "it works",
    },
    Project {
        tool: "pytest",
        check: "python3 -m pytest --version",
        files: &[("test_tiny.py", "def test_tiny(tmp_path):\n    (tmp_path / 'a').write_text('b')\n")],
        command: "python3 -m pytest 2>&1",
        expect: "1 passed",
    },
    Project {
        tool: "python",
        check: "python3 --version",
        files: &[(
            "test_tiny.py",
            "import tempfile, unittest, subprocess\nclass T(unittest.TestCase):\n    def test_it(self):\n        tempfile.TemporaryFile()\n        subprocess.check_call(['true'])\n",
        )],
        command: "python3 -m unittest 2>&1",
        expect: "OK",
    },
    Project {
        tool: "go",
        check: "go version",
        files: &[
            ("go.mod", "module tiny\n\ngo 1.20\n"),
            ("tiny_test.go", "package tiny\nimport \"testing\"\nfunc TestIt(t *testing.T) { t.TempDir() }\n"),
        ],
        command: "go test ./... 2>&1",
        expect: "ok",
    },
    Project {
        tool: "make and cc",
        check: "make --version && cc --version",
        files: &[
            ("Makefile", "run: a\n\t./a\na: a.c\n\tcc -o a a.c\n"),
            ("a.c", "#include <stdio.h>\nint main(void) { puts(\"it works\"); return 0; }\n"),
        ],
        command: "make 2>&1 && chmod 700 a && ./a",
        expect: "it works",
    },
];

async fn check(name: &str, fixture: &CommandFixture, project: &Project) {
    let outside = Command::new("sh").args(["-c", project.check]).output().unwrap();
    if !outside.status.success() {
        println!("skipped: {} does not work on this machine", project.tool);
        return;
    }
    fs::remove_dir_all(&fixture.workspace).unwrap();
    for (path, text) in project.files {
        let path = fixture.workspace.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let output = fixture.bash(project.command).await;
    assert!(!output.is_error && output.text.contains(project.expect), "{} in {name}: {}", project.tool, output.text);
}

#[tokio::test]
async fn builds_of_real_toolchains_work() {
    for (name, fixture) in each().await {
        for project in PROJECTS {
            check(name, &fixture, project).await;
        }
    }
}
