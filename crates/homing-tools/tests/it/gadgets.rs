//! Commands that look harmless but are not: in the sandbox, none has an effect outside the workspace.
#![allow(clippy::print_stdout)]

use std::fs;

use crate::command_fixture::{CommandFixture, HELPER, sandboxes};
use homing_core::authority::Sandbox;
use homing_sandbox::Sandboxes;

const SECRET: &str = "s3cr3t-of-the-user";

/// `OUT` stands for a folder outside the workspace that the user could write to, with the file `secret` in it.
const GADGETS: &[&str] = &[
    // B1: sequences.
    "true && touch OUT/x",
    "false ; touch OUT/x",
    "echo x | tee OUT/x",
    "true & touch OUT/x; wait",
    "true\ntouch OUT/x",
    // B2: substitutions.
    "echo $(touch OUT/x)",
    "echo `touch OUT/x`",
    "cat <(touch OUT/x)",
    "echo ${x:=$(touch OUT/x)}",
    "a=(); echo $((a[$(touch OUT/x)]))",
    "x='$(touch OUT/x)'; echo \"${x@P}\"",
    // B3: redirections.
    "echo x > OUT/x",
    "echo x >| OUT/x",
    "echo x >> OUT/x",
    "echo x &> OUT/x",
    "echo x 1<> OUT/x",
    "cat > OUT/x <<END\nx\nEND",
    ": > OUT/secret",
    // B4: git's options.
    "git init -q . ; git -c alias.x='!touch OUT/x' x",
    "git init -q . ; git -c core.fsmonitor='touch OUT/x; false' status",
    "git init -q . ; echo a>f; git add f; echo b>f; git -c diff.external='touch OUT/x' diff",
    "git init -q . ; git -c core.editor='touch OUT/x; false' -c user.name=a -c user.email=a@b commit --allow-empty",
    "git -c protocol.ext.allow=always ls-remote 'ext::sh -c touch% OUT/x'",
    "git init -q . ; git ls-remote --upload-pack='touch OUT/x' .",
    "git init -q . ; echo a>f; git add f; git grep -O'touch OUT/x;false' a",
    "git init -q . ; echo a>f; git add f; git diff --cached --output=OUT/x",
    "git init -q . ; echo a>f; git add f; echo b>f; git difftool -y -x 'touch OUT/x;true' f",
    "git init -q . ; git archive --remote=. --exec='touch OUT/x' HEAD",
    "git clone -q . OUT/x",
    "git init -q OUT/x",
    "git init -q . ; GIT_SSH_COMMAND='touch OUT/x' git ls-remote ssh://a/b",
    // B5: a repository's own files.
    "git init -q r; cd r; printf '#!/bin/sh\\ntouch OUT/x\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a",
    "git init -q r; cd r; git config filter.x.clean 'touch OUT/x; cat'; echo '* filter=x' > .gitattributes; echo a>f; git add f",
    "git init -q r; cd r; git config diff.x.textconv 'touch OUT/x; cat'; echo '* diff=x' > .gitattributes; echo a>f; git add .; echo b>f; git diff",
    // B6: find.
    "find . -maxdepth 0 -exec touch OUT/x \\;",
    "find . -maxdepth 0 -execdir touch OUT/x +",
    "find . -maxdepth 0 -fprintf OUT/x x",
    "find . -maxdepth 0 -fls OUT/x",
    "find OUT -name secret -delete",
    // B7: sed.
    "echo a | sed '1e touch OUT/x'",
    "echo a | sed 's/a/touch OUT\\/x/e'",
    "echo a | sed 'f OUT/x'",
    "sed -i s/a/b/ OUT/secret",
    // B8: awk.
    "awk 'BEGIN { system(\"touch OUT/x\") }'",
    "awk 'BEGIN { print 1 > \"OUT/x\" }'",
    "awk 'BEGIN { print 1 | \"tee OUT/x\" }'",
    // B9: options that write or run.
    "echo a | sort -o OUT/x",
    "seq 9 | sort -S 1b --compress-program=./c; printf '#!/bin/sh\\ntouch OUT/x; cat' > c; chmod +x c; seq 99999 | sort -S 32k --compress-program=./c > /dev/null",
    "echo a>f; tar -cf /dev/null f --checkpoint=1 --checkpoint-action=exec='touch OUT/x'",
    "echo a>f; tar -cf a.tar -I 'touch OUT/x;cat' f",
    "seq 9 | split -l 1 --filter='touch OUT/x'",
    "make --eval='$(shell touch OUT/x)' nothing",
    "printf 'all:\\n\\ttouch OUT/x\\n' > Makefile; make",
    "perl -e 'open(F, \">OUT/x\")'",
    "python3 -c 'open(\"OUT/x\", \"w\")'",
    "node -e 'require(\"fs\").writeFileSync(\"OUT/x\", \"\")'",
    "echo '{\"scripts\":{\"test\":\"touch OUT/x\"}}' > package.json; npm test",
    "vim -es -c ':w! OUT/x' -c ':q!' 2>/dev/null || ed -s <<< $'a\\nx\\n.\\nw OUT/x'",
    "ssh -o ProxyCommand='touch OUT/x' host",
    // B10: wrappers.
    "env touch OUT/x",
    "timeout 5 touch OUT/x",
    "nice touch OUT/x",
    "echo OUT/x | xargs touch",
    "bash -c 'touch OUT/x'",
    "setsid touch OUT/x",
    "nohup touch OUT/x",
    "stdbuf -o0 touch OUT/x",
    // B11: variables.
    "echo 'touch OUT/x' > e; BASH_ENV=./e bash -c true",
    "PAGER='touch OUT/x; cat' git --paginate --help",
    "printf -v 'a[$(touch OUT/x)]' x",
    "test -v 'a[$(touch OUT/x)]'",
    "declare -a 'a[$(touch OUT/x)]=1'",
    "mkdir b; printf '#!/bin/sh\\ntouch OUT/x' > b/ls; chmod +x b/ls; PATH=./b:$PATH ls",
    // B12: traps.
    "trap 'touch OUT/x' EXIT",
    "trap 'touch OUT/x' DEBUG; true",
    // B14: spellings.
    "to\\uch OUT/x",
    "$'\\x74ouch' OUT/x",
    "to\"\"uch OUT/x",
    "touch$IFS'OUT/x'",
    "{touch,OUT/x}",
    "/???/???/touch OUT/x",
    // B17: functions.
    "ls() { touch OUT/x; }; ls",
    "shopt -s expand_aliases; alias ls='touch OUT/x'\nls",
    // B18: other ways to a program or a file.
    "/proc/self/root/usr/bin/touch OUT/x",
    "/lib64/ld-linux-x86-64.so.2 /usr/bin/touch OUT/x",
    "touch /proc/self/root/OUT/x",
    "ln -s OUT link; touch link/x",
    "ln OUT/secret hard; echo x >> hard",
    "mv OUT/secret .",
    "cp -r OUT here; cat here/secret",
    "cat OUT/secret",
    "tar -cf - OUT/secret | tar -xOf -",
    "ls OUT",
    "rm -rf OUT/*",
    "touch ../outside/x",
    "mkdir OUT/x",
    "mkfifo OUT/x",
    "truncate -s 0 OUT/secret",
    "exec 3<>OUT/x",
    // More programs and system calls that create, move, link, change or read.
    "git init -q r; git -C r config core.worktree OUT; echo a > a; git -C r --work-tree=OUT add -A; git -C r --work-tree=OUT show :secret",
    "git init -q r; cd r; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a; git worktree add -q OUT/x",
    "git init -q r; cd r; echo a>f; git add f; git -c user.name=a -c user.email=a@b commit -qm a; git bundle create OUT/x HEAD",
    "git init -q r; cd r; printf 'gitdir: OUT' > ../.g; git init -q --separate-git-dir=OUT/x ../q",
    "git init -q r; cd r; git config core.hooksPath OUT; git -c core.hooksPath=../h -c user.name=a -c user.email=a@b commit -q --allow-empty -m a; mkdir -p ../h; printf '#!/bin/sh\ntouch OUT/x' > ../h/post-commit; chmod +x ../h/post-commit; git -c core.hooksPath=../h -c user.name=a -c user.email=a@b commit -q --allow-empty -m b",
    "git diff --no-index OUT/secret /dev/null",
    "git init -q r; cd r; git apply --unsafe-paths <<E\n--- /dev/null\n+++ OUT/x\n@@ -0,0 +1 @@\n+x\nE",
    "printf 'x' | git hash-object -w --stdin --path=OUT/secret; git init -q r; cd r; git hash-object -w OUT/secret | xargs git cat-file -p",
    "coproc touch OUT/x; wait",
    "mapfile -t -C 'touch OUT/x;:' -c 1 a < /etc/hostname",
    "[[ -v a[$(touch OUT/x)] ]]",
    "read -r 'a[$(touch OUT/x)]' <<< y",
    "compgen -C 'touch OUT/x' a",
    "case a in $(touch OUT/x)a) :;; esac",
    "time touch OUT/x",
    "! touch OUT/x",
    "exec touch OUT/x",
    "command -p touch OUT/x",
    "x=touch; ${x} OUT/x",
    "printf -v c 'touch %s' OUT/x; $c",
    "eval \"$(printf 'to%s' 'uch OUT/x')\"",
    "hash -p /usr/bin/touch ls; ls OUT/x",
    "enable -n test; PATH=/usr/bin; touch OUT/x",
    "dd if=/dev/zero of=OUT/x bs=1 count=1",
    "install -D /dev/null OUT/x",
    "install -d OUT/x",
    "cp /etc/hostname OUT/x",
    "ln -s /etc/hostname OUT/x",
    "python3 -c 'import os; os.link(\"OUT/secret\", \"OUT/x\")'",
    "python3 -c 'import os; os.rename(\"OUT/secret\", \"OUT/x\")'",
    "python3 -c 'import os; os.mknod(\"OUT/x\")'",
    "python3 -c 'import os; fd = os.open(\"OUT\", os.O_RDONLY); os.open(\"x\", os.O_CREAT | os.O_WRONLY, dir_fd=fd)'",
    "python3 -c 'import os; os.open(\"OUT\", os.O_TMPFILE | os.O_RDWR); open(\"OUT/x\", \"w\")'",
    "python3 -c 'import os; os.truncate(\"OUT/secret\", 0)'",
    "python3 -c 'import os; os.chdir(\"/proc/self/cwd/../outside\"); open(\"x\", \"w\")'",
    "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind(\"OUT/x\")'",
    "python3 -c 'import mmap, os; f = open(\"OUT/secret\", \"r+b\"); m = mmap.mmap(f.fileno(), 0); m[0:1] = b\"X\"'",
    "python3 -c 'import os,sys; print(os.readlink(\"/proc/self/cwd\")); sys.stdout.write(open(\"/proc/self/root/OUT/secret\").read())'",
    "perl -e 'rename(\"OUT/secret\", \"OUT/x\")'",
    "perl -e 'symlink(\"a\", \"OUT/x\")'",
    "ln -s OUT l; cat l/secret",
    "ln -s OUT/secret l; cat < l",
    "mkdir d; ln -s ../../outside d/o; cp -r d/. e; touch d/o/x",
    "tar -C OUT -cf t . && tar -xOf t",
    "echo a > a; tar -cf t a; tar -C OUT -xf t",
    "printf 'a' | tar --to-stdout -cf - -T - ; tar -cPf t OUT; tar -xOPf t",
    "echo OUT/secret | cpio -o 2>/dev/null",
    "base64 OUT/secret | base64 -d",
    "wc -c --files0-from=OUT/secret; date -f OUT/secret",
    "bash OUT/secret",
    "source OUT/secret",
    "while read -r l; do echo $l; done < OUT/secret",
    "exec 5<OUT/secret; cat <&5",
    "echo $(<OUT/secret)",
    "mount --bind OUT m; cat m/secret; unshare -rm sh -c 'mkdir m; mount --bind OUT m; touch m/x'",
    "chmod 777 OUT; touch OUT/x",
    "nohup setsid sh -c 'sleep 0.1; touch OUT/x' >/dev/null 2>&1 & sleep 0.3",
    "awk '{print}' OUT/secret",
    "sed -n p OUT/secret",
    "find OUT -type f -exec cat {} +",
    "grep -r . OUT",
    "rsync -a OUT/ here/; cat here/secret",
    "mkfifo p; (cat OUT/secret > p &) ; cat p",
];

/// Returns a description if the outside was changed or its secret was read.
fn effect(fixture: &CommandFixture, text: &str) -> Option<String> {
    let files = fixture.files(&fixture.outside);
    if files != ["secret"] {
        return Some(format!("the outside holds {files:?}"));
    }
    if fs::read_to_string(fixture.outside.join("secret")).unwrap() != SECRET {
        return Some("the secret was changed".to_owned());
    }
    text.contains(SECRET).then(|| "the secret was read".to_owned())
}

fn reset(fixture: &CommandFixture) {
    for folder in [&fixture.workspace, &fixture.outside] {
        fs::remove_dir_all(folder).unwrap();
        fs::create_dir(folder).unwrap();
    }
    fs::write(fixture.outside.join("secret"), SECRET).unwrap();
}

/// Runs all gadgets, several at a time, and returns their effects.
async fn effects(sandboxes: &Sandboxes, sandbox: Sandbox) -> Vec<String> {
    const WORKERS: usize = 4;
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..WORKERS {
        let fixture = CommandFixture::with(sandboxes.clone(), |commands| commands);
        workers.spawn(async move {
            let mut effects = Vec::new();
            for gadget in GADGETS.iter().skip(worker).step_by(WORKERS) {
                reset(&fixture);
                let command = gadget.replace("OUT", &fixture.outside.display().to_string());
                let output = fixture.bash_in(sandbox, &command).await;
                effects.extend(effect(&fixture, &output.text).map(|what| format!("{gadget}: {what}")));
            }
            effects
        });
    }
    workers.join_all().await.concat()
}

#[tokio::test]
async fn inv39_b1_to_b18_no_gadget_has_an_outside_effect() {
    assert!(GADGETS.len() >= 60);
    let found = sandboxes().await;
    for backend in &found.ready {
        let alone = found.only(|other| other == backend);
        assert_eq!(effects(&alone, Sandbox::WorkspaceWrite).await, Vec::<String>::new(), "{backend:?}");
    }
}

#[tokio::test]
async fn gadgets_take_effect_without_a_sandbox() {
    let worked = effects(&Sandboxes::none(HELPER), Sandbox::Off).await.len();
    println!("{worked} of {} gadgets took effect without a sandbox", GADGETS.len());
    assert!(worked >= 60, "too few gadgets take effect for a meaningful test: {worked}");
}
