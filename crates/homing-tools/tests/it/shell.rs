//! List B of the promises: permission rules on shell lines. A line that can do more than its prefix suggests is never
//! allowed by that prefix.

use std::sync::Arc;

use homing_core::{
    authority::{Allow, Decision, Grant, Layer, Network, Sandbox},
    rule::{Subject, Subjects},
    tool::Effect,
};
use homing_tools::shell::{GIT_ONLY, subjects};

fn grant(rules: &[&str]) -> Grant {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let layer = Layer::everything("test").allow(Allow::Only(rules));
    Grant::new(vec![Arc::new(layer)]).network(Network::Off).sandbox(Sandbox::Off)
}

fn is_allowed(rules: &[&str], line: &str) -> bool {
    match grant(rules).decide("bash", Effect::Commands, &subjects(line)) {
        Decision::Allow { .. } => true,
        Decision::Ask { .. } | Decision::Deny { .. } => false,
    }
}

/// Prefixes that look harmless, all allowed at once.
const HARMLESS: &[&str] = &[
    "bash(git only)",
    "bash(git log *)",
    "bash(git diff *)",
    "bash(git show *)",
    "bash(git status *)",
    "bash(git grep *)",
    "bash(git branch *)",
    "bash(git fetch *)",
    "bash(git clone *)",
    "bash(git rebase *)",
    "bash(git *)",
    "bash(ls *)",
    "bash(cat *)",
    "bash(find *)",
    "bash(echo *)",
    "bash(grep *)",
    "bash(sed *)",
    "bash(awk *)",
    "bash(sort *)",
    "bash(tar *)",
    "bash(split *)",
    "bash(zip *)",
    "bash(man *)",
    "bash(rg *)",
    "bash(make *)",
    "bash(cargo *)",
    "bash(npm *)",
    "bash(npm test)",
    "bash(env *)",
    "bash(timeout *)",
    "bash(nice *)",
    "bash(xargs *)",
    "bash(python *)",
    "bash(node *)",
    "bash(go *)",
    "bash(uniq *)",
    "bash(test *)",
    "bash(printf *)",
    "bash(strace *)",
    "bash(ssh *)",
    "bash(fd *)",
    "bash(curl *)",
    "bash(wget *)",
    "bash(perl *)",
    "bash(pwd)",
    "bash(cd *)",
    "bash(head *)",
    "bash(wc *)",
    "bash(true)",
    "bash([ *)",
    "bash(sudo *)",
    "bash(watch *)",
    "bash(nohup *)",
    "bash(read *)",
    "bash(export *)",
    "bash(trap *)",
    "bash(busybox *)",
    "bash(command *)",
    "bash(time *)",
    "bash(exec *)",
    "bash(eval *)",
    "bash(source *)",
];

#[rustfmt::skip]
const GADGETS: &[(&str, &str)] = &[
    // A second command that no rule allows.
    ("b1", "ls && rm -rf x"), ("b1", "ls ; rm x"), ("b1", "ls | tee /etc/x"), ("b1", "ls & rm x"), ("b1", "ls\nrm x"),
    ("b1", "ls || rm x"), ("b1", "(ls; rm x)"), ("b1", "ls |& rm x"), ("b1", "{ ls; rm x; }"), ("b1", "ls &"),
    ("b1", "if true; then ls; fi"), ("b1", "for x in a; do ls; done"), ("b1", "! ls"), ("b1", "ls;;"),
    // Substitutions.
    ("b2", "ls $(rm x)"), ("b2", "ls `rm x`"), ("b2", "cat <(rm x)"), ("b2", "echo ${x:=$(rm x)}"), ("b2", "ls \"$(rm x)\""),
    ("b2", "echo $((a[$(rm x)]))"), ("b2", "echo ${x@P}"), ("b2", "echo \"`rm x`\""), ("b2", "ls $HOME"), ("b2", "ls \"$x\""),
    ("b2", "ls >(rm x)"), ("b2", "echo \"a${x}b\""), ("b2", "echo $[1+1]"), ("b2", "ls $\"a\""),
    // Redirections.
    ("b3", "echo x > /etc/passwd"), ("b3", "echo x >> f"), ("b3", "echo x >| f"), ("b3", "ls &> f"), ("b3", "cat <> f"),
    ("b3", "cat << E\nx\nE"), ("b3", "cat <<< x"), ("b3", "> f"), ("b3", "ls 2> f"), ("b3", "ls >f /dev/null"),
    ("b3", ">f ls"), ("b3", "ls > /dev/null > f"), ("b3", "cat < /etc/shadow"), ("b3", "ls >& f"), ("b3", "ls 3> f"),
    ("b3", "ls > /dev/null/../x"), ("b3", "ls > /dev/tcp/h/1"), ("b3", "ls 0>&2"), ("b3", "ls 10>/dev/null"), ("b3", "ls 2>\n/dev/null"),
    ("b3", "ls >& 2"),
    // Options of git.
    ("b4", "git -c core.fsmonitor=x status"), ("b4", "git -c alias.log='!rm x' log"), ("b4", "git --config-env=a=b log"),
    ("b4", "git log --output=/etc/x"), ("b4", "git log --outp=x"), ("b4", "git diff --ext-diff"), ("b4", "git diff --ext"),
    ("b4", "git show --textconv"), ("b4", "git grep -O'rm x' a"), ("b4", "git grep -nOless a"), ("b4", "git grep --open-files-in-pager=x a"),
    ("b4", "git grep --open a"), ("b4", "git fetch --upload-pack='rm x' ."), ("b4", "git fetch ext::sh"), ("b4", "git clone 'ext::sh -c rm% x' d"),
    ("b4", "git clone --config core.fsmonitor=x u"), ("b4", "git clone -c a=b u"), ("b4", "git --exec-path=/tmp log"), ("b4", "git --git-dir=/tmp/x log"),
    ("b4", "git --work-tree=/ status"), ("b4", "git -C /tmp/evil status"), ("b4", "git difftool -x 'rm x'"), ("b4", "git rebase -x 'rm x' HEAD"),
    ("b4", "git rebase --exec 'rm x' HEAD"), ("b4", "git lg"), ("b4", "git config core.pager x"), ("b4", "git bisect run rm x"),
    ("b4", "git submodule foreach 'rm x'"), ("b4", "git -p log"), ("b4", "git --paginate log"), ("b4", "git log --help"),
    ("b4", "git help log"), ("b4", "git diff --no-index /etc/passwd /dev/null"), ("b4", "git diff /etc/passwd /dev/null"), ("b4", "git diff ../../etc/passwd x"),
    ("b4", "git blame --contents /etc/passwd f"), ("b4", "git log --show-signature"), ("b4", "git cat-file --filters HEAD:x"), ("b4", "git filter-branch x"),
    ("b4", "git archive -o /etc/x HEAD"), ("b4", "git diff --output=x"), ("b4", "git push --receive-pack='rm x' ."), ("b4", "git log --remerge-diff"),
    ("b4", "git log --diff-merges=remerge"), ("b4", "git diff -O/etc/passwd"), ("b4", "git grep -f /etc/passwd x"),
    ("b4", "git diff --submodule=diff"), ("b4", "git status --ignore-submodules=none"), ("b4", "git daemon"), ("b4", "git upload-pack ."), ("b4", "git init --template=/tmp/x"),
    // find.
    ("b6", "find . -exec rm {} +"), ("b6", "find . -exec rm {} \\;"), ("b6", "find . -execdir rm x +"), ("b6", "find . -ok rm x +"),
    ("b6", "find . -okdir rm x +"), ("b6", "find . -delete"), ("b6", "find . -fprintf x y"), ("b6", "find . -fls x"), ("b6", "find . -fprint x"),
    ("b6", "find . '-exec' rm x +"), ("b6", "find . -ex\"ec\" rm x +"),
    // sed and awk.
    ("b7", "sed '1e rm x' f"), ("b7", "sed 's/a/b/e' f"), ("b7", "sed 'f /etc/x' f"), ("b7", "sed -i s/a/b/ f"), ("b7", "sed -n '1p;w x' f"),
    ("b7", "sed s/a/b/w f"), ("b7", "sed -f script f"), ("b7", "sed -ni 1p f"), ("b7", "sed --in-place 1p f"), ("b7", "sed -n 1p f -i"),
    ("b8", "awk 'BEGIN{system(\"rm x\")}'"), ("b8", "awk '{print > \"x\"}' f"), ("b8", "awk '{print | \"sh\"}' f"), ("b8", "awk -f prog f"),
    ("b8", "awk 'BEGIN{\"rm x\"|getline}'"), ("b8", "gawk '@load \"x\"'"), ("b8", "awk '{print}' f -f prog"),
    // Options of ordinary programs.
    ("b9", "sort -o /etc/x f"), ("b9", "sort --compress-program=sh f"), ("b9", "sort --comp=sh f"), ("b9", "sort -uo x f"),
    ("b9", "tar xf a --checkpoint-action=exec=sh"), ("b9", "tar -tf a -I sh"), ("b9", "tar cf a --use-compress-program=sh ."), ("b9", "tar -tf h:a"),
    ("b9", "split --filter='rm x' f"), ("b9", "zip -TT 'rm x' a f"), ("b9", "strace -o '|rm x' ls"), ("b9", "man -P 'rm x' ls"), ("b9", "man --html=x ls"),
    ("b9", "rg --pre ./x a"), ("b9", "rg --pre=./x a"), ("b9", "ssh -o ProxyCommand=x h"), ("b9", "make --eval='$(shell rm x)'"), ("b9", "make -f /tmp/x"),
    ("b9", "make SHELL=/tmp/x"), ("b9", "cargo --config 'build.rustc=\"x\"' build"), ("b9", "cargo +evil build"), ("b9", "npm --script-shell=x test"),
    ("b9", "npm exec x"), ("b9", "go test -exec x"), ("b9", "go build -toolexec=x"), ("b9", "fd -x rm"), ("b9", "fd --exec-batch rm"), ("b9", "uniq a b"),
    ("b9", "curl -o /etc/x u"), ("b9", "curl -K x"), ("b9", "wget -O /etc/x u"), ("b9", "wget --use-askpass=x u"), ("b9", "npm test --prefix=/tmp/x"),
    // Wrappers.
    ("b10", "env rm x"), ("b10", "env A=b ls"), ("b10", "env -S 'rm x'"), ("b10", "timeout 5 rm x"), ("b10", "timeout -k 1 5 rm x"), ("b10", "nice rm x"),
    ("b10", "nice -n 5 rm x"), ("b10", "xargs rm"), ("b10", "ls | xargs rm"), ("b10", "busybox rm x"), ("b10", "bash -c 'rm x'"), ("b10", "sh x"),
    ("b10", "sudo ls"), ("b10", "watch ls"), ("b10", "nohup rm x"), ("b10", "time rm x"), ("b10", "command rm x"), ("b10", "exec rm x"), ("b10", "eval 'rm x'"),
    ("b10", "source x"), ("b10", ". x"), ("b10", "python -c 'x'"), ("b10", "python -m timeit x"), ("b10", "node -e x"), ("b10", "perl -e x"), ("b10", "python"),
    ("b10", "timeout 5 timeout 5 rm x"), ("b10", "setsid ls"), ("b10", "npx x"), ("b10", "env timeout 3 bash -c x"),
    // Variables and builtins that evaluate.
    ("b11", "PATH=/tmp ls"), ("b11", "BASH_ENV=x ls"), ("b11", "LD_PRELOAD=x ls"), ("b11", "GIT_EXTERNAL_DIFF=x git diff"), ("b11", "PAGER=x git log"),
    ("b11", "export PATH=/tmp"), ("b11", "declare -x a=b"), ("b11", "printf -v 'a[$(rm x)]' y"), ("b11", "test -v 'a[$(rm x)]'"), ("b11", "[ -v 'a[$(rm x)]' ]"),
    ("b11", "read 'a[$(rm x)]'"), ("b11", "x=1"), ("b11", "x=1 ls"), ("b11", "a[0]=1 ls"), ("b11", "x+=1 ls"), ("b11", "[[ a -eq 1 ]]"), ("b11", "((x=1))"), ("b11", "0+=x"),
    ("b12", "trap 'rm x' EXIT"),
    // Spellings.
    ("b14", "ls \\\nx"), ("b14", "ls $'\\x2d'"), ("b14", "ls$IFS-x"), ("b14", "ls {a,b}"), ("b14", "/???/c?t x"), ("b14", "l\\s"), ("b14", "ls *"), ("b14", "cat [ab]*"),
    ("b14", "ls {1..3}"), ("b14", "git log ?x"), ("b14", "echo a\\;rm x"), ("b14", "ls a#b\\\n; rm x"), ("b14", "{rm,x}"),
    ("b15", "ls\rrm x"), ("b15", "ls\u{a0}x"), ("b15", "ls\u{2028}rm x"), ("b15", "ls\u{200b}x"), ("b15", "ls \u{0}x"), ("b15", "ls\u{b}x"), ("b15", "ls\u{85}x"),
    ("b16", "ls 'x"), ("b16", "ls \"x"), ("b16", "ls (x"), ("b16", "ls x)"), ("b16", "echo 'a'\"'b"), ("b16", "ls \"a\" 'b"),
    ("b17", "git(){ rm x; }; git log"), ("b17", "function ls { rm x; }"), ("b17", "alias ls=rm"), ("b17", "ls () ( rm x )"),
    ("b18", "/proc/self/root/bin/ls"), ("b18", "ld-linux.so.2 ls"), ("b18", "/usr/bin/git log"), ("b18", "/tmp/ls"), ("b18", "./cat x"),
    ("b18", "/lib64/ld-linux-x86-64.so.2 /bin/ls"),
    ("other", ""), ("other", "   "), ("other", "# only a comment"), ("other", "coproc ls"), ("other", "select x in a; do ls; done"), ("other", "case x in x) ls;; esac"),
    ("other", "ls <<E & rm x\nE"), ("other", "echo a >/dev/null 2>f"), ("other", "'git log' x"), ("other", "'ls -la'"), ("other", "ls;#\nrm x"),
];

#[test]
fn b1_to_b18_no_gadget_is_allowed_by_a_prefix() {
    let mut allowed = Vec::new();
    for (id, line) in GADGETS {
        if is_allowed(HARMLESS, line) {
            allowed.push(format!("{id} {line:?}: {:?}", subjects(line)));
        }
    }
    assert!(allowed.is_empty(), "{} of {} were allowed:\n{}", allowed.len(), GADGETS.len(), allowed.join("\n"));
    assert!(GADGETS.len() >= 60);
}

/// More gadgets, with rules for their own programs: `(rules, lines)`. None may be allowed.
#[rustfmt::skip]
const MORE_GADGETS: &[(&[&str], &[&str])] = &[
    (&["bash(git log *)", "bash(sh)", "bash(cat *)"], &[
        "git log --format=%x00 | sh", "git log --output ../x", "git log -1 --output=.git/hooks/pre-commit", "git log > .git/hooks/pre-commit",
        "git log 1>x", "git log >&2 >x", "git log <x", "git log 2>&1 >x", "git log &>>x", "git log >/dev/null/x", "git log >/dev/stdout/../x", "git log 2>/dev/null>x",
        "git log --no-ext-diff --textconv -p", "git log -p --ext-diff", "git log --ext-d", "git log --textc", "git log --help", "git log --show-sig", "git log --diff-merges=r", "git log --remerge",
        "git log $'-p'", "git log \"${x@P}\"", "git log ${x:-y}", "git log $x", "git log $(id)", "git log `id`", "git log <(id)", "git log $((a[$(id)]))", "git log $[1]", "git log \"$(id)\"",
        "git\\\nlog", "git log\\\n --output=x", "git log \\\n--output=x", "gi\\t log --outp\\ut=x", "git log \"--out\"put=x", "git log '--output'=x", "git log --out'put=x'",
        "{git,log}", "{git,log,--output=x}", "git log {--output=x,}", "git lo[g]", "git log -- *", "git log [-]-output=x", "git log ?-output=x",
        "git log; id", "git log && id", "git log | id", "git log & id", "git log\nid", "git log\r\nid", "git log\x0cid", "git log ||id", "git log |& id", "git log;id #", "(git log; id)", "git log & ",
        "! git log", "time git log", "command git log", "command -p git log", "builtin git log", "exec git log", "eval git log", "coproc git log", "env git log --output=x", "nice git log --output=x",
        "git(){ id; }; git log", "git () ( id ); git log", "function git { id; }\ngit log", "alias git=id\ngit log", "trap id EXIT; git log", "trap 'id' DEBUG\ngit log",
        "GIT_SSH_COMMAND=id git log", "PAGER=id git log", "GIT_PAGER=id git -p log", "GIT_EXTERNAL_DIFF=id git log -p --ext-diff", "GIT_CONFIG_COUNT=1 git log", "GIT_DIR=/tmp/x git log", "LESSOPEN='|id' git log", "A=1 B=2 git log", "x= git log",
        "git -c a.b=c log", "git -ca.b=c log", "git -C x log", "git --git-dir=x log", "git --git-dir x log", "git --exec-path=x log", "git --exec-path x log", "git -p log", "git --paginate log", "git --namespace=x log", "git --config-env=a=b log", "git --attr-source=x log", "git --super-prefix=x log", "git --bare log", "git --list-cmds=x log",
        "git log\u{2003}--output=x", "g\u{456}t log", "git log\u{ad}", "git\u{3164}log", "\u{ff47}it log", "git log \u{202e}x", "git log \u{feff}",
        "cat <<E | git log\nx\nE", "git log <<< x", "git log <<-E\n\tE", "if git log; then id; fi", "while git log; do id; done", "case a in a) git log;; esac", "[[ -v a[$(id)] ]]", "for i in 1; do git log; done", "until git log; do :; done",
        "git log \u{7f}x", "git log #\nid", "git log # x\nid", "git log x#y; id", "git log '#' ; id", "git log 'a\nb' ; id", "git log \"a\\\nb\"; id", "git log -- \"a`id`\"", "git log -- 'a'`id`",
    ]),
    (&["bash(git only)"], &[
        "git grep -O", "git grep -GOid x", "git grep -LOid x", "git grep -EiOid x", "git grep -hcOid", "git log -mO/etc/x", "git grep -Oless x", "git grep -iOid x", "git grep --open-files", "git grep -f /etc/passwd", "git grep --no-index x /etc", "git diff --no-index /etc/passwd x", "git diff --no-ind /etc/passwd x", "git diff -- /etc/passwd x", "git diff ~/x y", "git diff ../x y", "git diff a/../../x y",
        "git blame -S /etc/passwd f", "git blame --ignore-revs-file=/etc/passwd f", "git blame --ignore-revs /etc/passwd f", "git blame --contents=/etc/passwd f", "git check-mailmap --mailmap-file=/etc/passwd x", "git ls-files -X /etc/passwd", "git ls-files --exclude-from=/etc/passwd", "git ls-files --exclude-fr=/etc/passwd",
        "git whatchanged", "git bisect run id", "git rebase -x id", "git rebase --exec=id HEAD", "git rebase -i", "git submodule foreach id", "git submodule status", "git help -a", "git help log", "git archive --exec=id --remote=x HEAD", "git archive --remote=ext::id HEAD", "git clone ext::id", "git clone fd::7", "git ls-remote --upload-pack=id x", "git ls-remote .", "git config alias.x '!id'", "git config --list", "git worktree add ../x", "git worktree add --checkout x",
        "git difftool", "git mergetool", "git web--browse x", "git instaweb", "git gui", "git citool", "git send-email x", "git request-pull x y", "git interpret-trailers", "git column --command=x", "git var GIT_EDITOR", "git for-each-repo --config=x id", "git maintenance run", "git hook run x", "git credential fill", "git fsmonitor--daemon start", "git remote-ext x id", "git sh-i18n", "git upload-archive .", "git receive-pack .", "git shell -c id", "git cvsserver", "git p4", "git svn", "git filter-repo", "git lfs", "git xyzzy",
        "git stash show -p; id", "git stash apply", "git stash pop", "git stash create", "git branch -c a b", "git branch --edit-description", "git branch -u x", "git tag -d x", "git tag -s x", "git tag -f x", "git remote update", "git remote show origin", "git remote prune x", "git remote set-url x y", "git reflog delete x", "git worktree prune", "git notes add", "git cat-file --textconv HEAD:x", "git cat-file --filters HEAD:x", "git show --textconv", "git diff --ext-diff", "git log --output-directory=x", "git diff --submodule=diff", "git diff --ignore-sub=none", "git status --recurse-submodules", "git rev-parse --git-dir",
    ]),
    (&["bash(git *)"], &[
        "git apply --unsafe-paths x", "git rebase -mx id HEAD", "git am -mS x", "git cherry-pick -eS x", "git clone -Lc a=b x", "git add --pathspec-from-file=/etc/passwd", "git add -p", "git add --patch", "git add --interactive", "git add -i", "git checkout -p", "git reset --patch", "git restore -p", "git commit -p -m x", "git commit --interactive", "git stash --patch",
        "git format-patch --signature-file=/etc/shadow -1", "git format-patch -o /etc", "git format-patch --output-dir=/etc", "git bundle create /etc/x HEAD", "git bundle create ~/x HEAD", "git clone x /etc/x", "git clone x ../../x", "git clone --separate-git-dir=/etc/x y", "git init /etc/x", "git init --template=/tmp/x", "git worktree add /etc/x", "git tag -s v1", "git tag -u k v1", "git commit -S -m x", "git commit --gpg-sign -m x", "git commit -F /etc/shadow", "git notes add -F /etc/shadow", "git merge -S x", "git push --receive-pack=id x", "git push --exec=id x", "git pull --upload-pack=id", "git fetch --upload-p=id x", "git am --exec=id",
    ]),
    (&["bash(npm test)", "bash(npm test *)", "bash(npm run build)"], &[
        "npm test; id", "npm test && id", "npm  test|id", "npm --prefix /tmp/x test", "npm test --prefix=/tmp/x", "npm test --script-shell=id", "npm test --node-options=--require=/tmp/x", "npm -c id test", "npm exec id", "npm run build; id", "npm run 'build' > x", "npm run builder", "npm test$IFS", "NODE_OPTIONS=--require=x npm test", "npm_config_script_shell=id npm test", "npm -C /tmp/x test", "npm t", "npm testx",
    ]),
    (&["bash(ls *)"], &[
        "ls -la; id", "ls <(id)", "ls $(id)", "ls {a,b}", "ls 'a'$'b'", "ls > x", "ls | tee x", "ls *", "ls -l *", "lsof", "ls&id", "ls\tx;id", "ls \\\n;id", "ls ''; id", "\\ls", "'l's;id", "./ls", "../ls", "/tmp/ls", "bin/ls", "ls=1", "ls+=1", "ls[0]=1", "ls() { id; }", "ls -la ~$(id)", "ls \"\\$(id)\"`id`", "ls `", "ls \"", "ls 2>x", "ls >&x", "ls >(id)", "ls |", "ls &&", "| ls", "ls <x", "ls 0<x", "ls {x}>y", "ls 3>&1", "ls >&3", "ls -- *", "ls [a]", "ls ?",
    ]),
    (&["bash(jobs *)", "bash(wait *)", "bash(unset *)", "bash(let *)", "bash(mapfile *)", "bash(compgen *)", "bash(enable *)", "bash(hash *)", "bash(bind *)", "bash(getopts *)", "bash(printf *)", "bash(read *)", "bash(test *)", "bash([ *)", "bash(complete *)", "bash(fc *)"], &[
        "jobs -x id", "wait -p 'a[$(id)]'", "unset 'a[$(id)]'", "let 'a[$(id)]=1'", "mapfile -C id -c 1 a", "compgen -C id", "compgen -W '$(id)'", "enable -f ./x.so x", "hash -p /tmp/x ls", "bind -x id", "getopts a 'b[$(id)]'", "printf -v 'a[$(id)]' x", "printf '-vx' y", "read 'a[$(id)]'", "test -v 'a[$(id)]'", "[ -R 'a[$(id)]' ]", "test x -a -v 'a[$(id)]'", "complete -C id x", "fc -e id",
    ]),
    (&["bash(m4 *)", "bash(dc *)", "bash(ldd *)", "bash(gnuplot *)", "bash(gcc *)", "bash(rustc *)", "bash(nm *)", "bash(cmake *)", "bash(ctest *)", "bash(ninja *)", "bash(gh *)", "bash(iconv *)", "bash(rpm *)", "bash(lua5.4 *)", "bash(ruby3.2 *)", "bash(java *)", "bash(javac *)", "bash(info *)", "bash(rg *)", "bash(tree *)", "bash(shuf *)", "bash(less *)", "bash(ssh-keygen *)", "bash(uname26 *)", "bash(x86_64 *)", "bash(xvfb-run *)", "bash(groff *)", "bash(go *)", "bash(make *)", "bash(ss *)", "bash(sort *)", "bash(node *)", "bash(python3 *)", "bash(xsltproc *)"], &[
        "m4 x", "dc -e '!id'", "ldd ./x", "gnuplot -e 'system(\"id\")'", "gcc -wrapper sh,-c,id x.c", "gcc -B. x.c", "gcc @x", "gcc -fplugin=./x.so x.c", "rustc -C linker=./x y.rs", "rustc -Clinker=./x y.rs", "rustc -o /etc/x y.rs", "nm --plugin ./x.so y", "cmake -P x", "cmake -E env id", "ctest -S x", "ninja -f x", "ninja -C /tmp/x", "gh alias set x '!id'", "gh extension exec x", "iconv -o /etc/x y", "rpm --eval '%(id)'", "rpm -E '%(id)'", "lua5.4 -e x", "ruby3.2 -e x", "java -agentpath:./x.so M", "java -jar x.jar", "javac -processor x y", "javac -J-agentpath:./x y", "info -o /etc/x ls", "rg --hostname-bin=id x", "rg --pre id x", "tree -o x", "shuf -o x", "less x", "ssh-keygen -D ./x.so", "uname26 id", "x86_64 id", "xvfb-run id", "groff -U x", "go vet -vettool=id", "go list -toolexec=id", "go build -ldflags=-extld=id", "make -C /tmp/x", "make -f x", "make A=b", "ss -D x", "sort -T /etc x", "sort --compress-prog=id x", "node -r x y", "node --require=x y", "python3 -c x", "python3 -", "python3 -m http.server", "python3 -Xfrozen_modules -c x", "xsltproc -o x y",
    ]),
];

#[test]
fn b1_to_b18_no_gadget_of_the_second_list_is_allowed() {
    let mut allowed = Vec::new();
    let mut tried = 0;
    for (rules, lines) in MORE_GADGETS {
        for line in *lines {
            tried += 1;
            if is_allowed(rules, line) {
                allowed.push(format!("{line:?}: {:?}", subjects(line)));
            }
        }
    }
    assert!(allowed.is_empty(), "{} of {tried} were allowed:\n{}", allowed.len(), allowed.join("\n"));
}

/// Programs that start others, under rules that name just these programs.
#[rustfmt::skip]
const LAUNCHES: &[&str] = &[
    "logsave log rm x", "gcc -wrapper sh,-c,id a.c", "gcc-12 -wrapper sh,-c,id a.c", "x86_64-linux-gnu-gcc -wrapper sh,-c a.c", "c++ -wrapper sh,-c a.cc",
    "cc -fplugin=./x.so a.c", "clang++ -fplugin=./x.so a.cc", "clang-15 -fpass-plugin=./x.so a.c", "gcc -Wl,-plugin,./x.so a.c", "gfortran -B. a.f", "cpp -wrapper x a",
    "pylint --init-hook='import os' a.py", "pylint --init-hook x a.py", "pylint --load-plugins=evil a.py", "pylint --rcfile=x a.py", "python -m pylint --init-hook=x a.py",
    "python3 -m pytest -p evil", "python -m pytest --rootdir=/tmp/x", "pytest -p evil", "pytest -c x.ini", "pytest -o python_files=x", "py.test --rootdir=/x", "mypy --config-file=x a.py",
    "flake8 --config=x a.py", "coverage run x.py", "aa-exec -p x rm x", "choom -n 0 rm x", "chpst -u a rm x", "ccache rm x", "sccache rm x", "bear -- rm x", "scan-build rm x",
    "multitime rm x", "grc rm x", "gtimeout 5 rm x", "tini -- rm x", "dumb-init rm x", "su-exec a rm x", "setlock f rm x", "envdir d rm x", "sshpass -p x ssh h", "msgexec rm x",
    "msgfilter rm x", "csvtool call f x", "hg --config alias.x='!rm x' x", "hg log -R /tmp/x", "svn diff --diff-cmd x", "svn log --config-option=a:b:c=d", "jj util exec -- rm x",
    "jj --config=a=b log", "cpio --rsh-command=x -F h:a", "dpkg --pre-invoke=x --list", "rustdoc --test --runtool x a.rs", "bazel run --run_under=x //a", "aria2c --on-download-complete=x u",
    "yt-dlp --exec x u", "youtube-dl --exec x u", "certbot renew --deploy-hook x", "restic --password-command=x snapshots", "rclone --password-command x ls", "borg --rsh x list",
    "just --shell x build", "just -c x", "tox exec -- rm x", "tox -x a=b", "nox -f /tmp/x", "stack exec -- rm x", "cabal exec rm", "mix eval x", "mix cmd rm x", "dotnet exec x.dll",
    "repo forall -c rm", "flatpak run x", "patch -e x", "mamba run rm x", "volta run rm", "fnm exec rm", "gem exec x", "sbcl --eval x", "racket -e x", "octave --eval x", "iex -e x",
    "escript -e x", "ipython x.py", "xterm -e rm", "xdg-open x", "open x", "mpv x", "lftp -e x", "tig", "psftp h", "rust-gdb x", "daemonize /bin/rm x", "tsp rm x", "nq rm x",
    "unknown-tool --exec rm", "unknown-tool --pre-exec=rm", "unknown-tool --rsh-command=rm", "unknown-tool --hook rm", "unknown-tool --before_cmd rm",
];

#[test]
fn b10_programs_that_start_others_are_allowed_by_no_prefix() {
    let allowed: Vec<&str> = LAUNCHES
        .iter()
        .filter(|line| is_allowed(&[&format!("bash({} *)", line.split(' ').next().unwrap())], line))
        .copied()
        .collect();
    assert!(allowed.is_empty(), "{} of {}: {allowed:#?}", allowed.len(), LAUNCHES.len());
    // Their ordinary uses still are.
    for line in [
        "gcc -O2 -c a.c",
        "gcc-12 -Wall a.c",
        "clang++ -std=c++20 a.cc",
        "pylint --disable=all a.py",
        "python -m pytest tests -q",
        "pytest tests -q -k name",
        "mypy src",
        "hg log -l 3",
        "svn log",
        "coverage report",
        "tox list",
        "just build",
        "dotnet build",
        "unknown-tool --no-hooks --verbose",
        "cargo test -- --exec",
        "echo --exec",
    ] {
        let rule = format!("bash({} *)", line.split(' ').next().unwrap());
        assert!(is_allowed(&[&rule], line), "{line}: {:?}", subjects(line));
    }
}

#[test]
fn b13_oversized_lines_are_quickly_unclear() {
    let started = std::time::Instant::now();
    assert!(is_allowed(&["bash(ls *)"], &["ls"; 50].join(";")));
    for line in [
        ["ls"; 51].join(";"),
        "ls ".repeat(400_000),
        "(".repeat(30_000),
        "ls $((".repeat(5_000),
        "\"$(".repeat(10_000),
        "a=".repeat(20_000),
        "(".repeat(100) + "ls" + &")".repeat(100),
        "{".repeat(60_000),
        "<<A ".repeat(10_000),
        "timeout 1 ".repeat(5_000) + "ls",
    ] {
        assert!(matches!(subjects(&line), Subjects::Unclear(_)), "{}", &line[..20]);
    }
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
}

#[test]
fn ordinary_lines_are_allowed_by_their_prefixes() {
    for (rules, line) in [
        (&["bash(git log *)"][..], "git log --oneline -5"),
        (&["bash(git log *)"], "git log --format=\"%H %s\" -- src/main.rs"),
        (&["bash(git diff *)", "bash(git log *)"], "git diff HEAD~1..HEAD && git log -1"),
        (&["bash(ls *)", "bash(wc *)"], "ls -la src | wc -l"),
        (&["bash(ls *)"], "ls -la 2>/dev/null"),
        (&["bash(npm test)"], "npm test 2>&1"),
        (&["bash(npm run:*)"], "npm run build -- --watch"),
        (&["bash(cargo test *)"], "cargo test -p homing-core -- --nocapture"),
        (&["bash(find *)"], "find . -name '*.rs' -type f"),
        (&["bash(sed *)"], "sed -n '10,20p' src/main.rs"),
        (&["bash(awk *)"], "awk '{print $1}' f"),
        (&["bash(grep *)"], "grep -rn \"fn \\bmain\" src/*.rs"),
        (&["bash(cat *)"], "cat 'a b' \"c d\" e\"f\"g"),
        (&["bash(cargo *)", "bash(timeout *)"], "timeout 60 cargo build"),
        (&["bash(python -m pytest *)"], "python -m pytest tests -q"),
        (&["bash(git commit *)"], "git commit -m 'Say what; and why > how'"),
        (&["bash(cd *)", "bash(ls *)"], "(cd src && ls)"),
        (&["bash(git show *)"], "git show stash@{0} HEAD^"),
        (&["bash(ls *)"], "# look\nls\n"),
        (&["bash(./gradlew *)"], "./gradlew test"),
    ] {
        assert!(is_allowed(rules, line), "{line}: {:?}", subjects(line));
    }
}

#[test]
fn r23_git_only_allows_read_only_git() {
    let rules = &["bash(git only)"];
    for line in [
        "git status",
        "git log --stat -3",
        "git diff main...HEAD -- src",
        "git show HEAD:src/main.rs",
        "git --no-pager diff --cached",
        "git blame -L 10,20 src/main.rs",
        "git branch -a",
        "git branch --contains HEAD",
        "git tag --list 'v*'",
        "git remote -v",
        "git stash list",
        "git rev-parse --abbrev-ref HEAD",
        "git log -SOutput",
        "git ls-files -o --exclude-standard",
        "git diff --text HEAD",
        "git log && git status",
        "git version",
    ] {
        assert!(is_allowed(rules, line), "{line}: {:?}", subjects(line));
    }
    for line in [
        "git commit -m x",
        "git branch new",
        "git branch -D main",
        "git branch -f main HEAD~3",
        "git tag v1",
        "git push",
        "git checkout main",
        "git stash",
        "git stash drop",
        "git remote add x y",
        "git reflog expire --all",
        "git worktree add x",
        "git log | cat",
        "git log; ls",
        "gitk",
        "/usr/bin/git log",
        "timeout 5 git log",
        "ls",
    ] {
        assert!(!is_allowed(rules, line), "{line}");
    }
}

#[test]
fn command_has_one_canonical_spelling() {
    let text = |line: &str| match subjects(line) {
        Subjects::Parts(parts) => parts
            .into_iter()
            .map(|part| match part {
                Subject::Command { text, .. } => text,
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
            .join(" ; "),
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(text("  git   log\t-1 "), "git log -1");
    assert_eq!(text("g\"i\"t 'log'"), "git log");
    assert_eq!(text("echo 'a b' \"it's\" ''"), r"echo 'a b' 'it'\''s' ''");
    assert_eq!(text("find . -name '*.rs'"), "find . -name '*.rs'");
    assert_eq!(text("ls src/*.rs"), "ls src/*.rs");
    assert_eq!(text("git log '#'1 x#y"), "git log '#1' x#y", "not a comment");
    assert_eq!(text("timeout 5s nice -n 3 ls x"), "timeout 5s nice -n 3 ls x ; nice -n 3 ls x ; ls x");
    let Subjects::Parts(parts) = subjects("git log") else { panic!() };
    assert_eq!(parts, [Subject::Command { text: "git log".into(), classes: vec![GIT_ONLY.into()] }]);
}

#[test]
fn deny_applies_to_every_part_and_to_unclear_lines() {
    let mut grant = grant(&["bash"]);
    let deny = ["bash(rm *)", "bash(git push *)", "bash(npm publish *)"].map(|text| text.parse().unwrap()).to_vec();
    let layer = Layer::everything("user").deny(deny);
    grant = grant.under(layer);
    let denied = |line: &str| matches!(grant.decide("bash", Effect::Commands, &subjects(line)), Decision::Deny { .. });
    for line in
        ["ls -la", "git commit -m push", "git log -- push", "npm run publish-docs", "git pull", "npm test -- publish"]
    {
        assert!(!denied(line), "{line}");
    }
    for line in [
        "rm x",
        "ls && rm x",
        "timeout 5 rm x",
        "r\"m\" x",
        "ls $(rm x)",
        "bash -c 'rm x'",
        "git push",
        "git --no-pager push -f",
        "git -P --literal-pathspecs push x",
        "/usr/bin/git push",
        "git -c a.b=c push",
        "npm --silent publish",
        "npm --registry http://x publish --tag y",
        "/bin/rm x",
        "/usr/bin/rm",
        "'/bin/r'm x",
        "../../bin/rm x",
        "timeout 5 /bin/rm x",
        "command rm x",
        "\\rm x",
        "env rm x",
        "sudo rm x",
        "busybox rm x",
        "find . -exec rm {} +",
        "echo x | xargs rm",
        "(rm x)",
        "x=1 rm x",
        "if true; then rm x; fi",
    ] {
        assert!(denied(line), "{line}");
    }
}
