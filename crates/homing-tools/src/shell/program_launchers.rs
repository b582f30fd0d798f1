//! More programs that start others, as word lists: wrappers, terminals, task queues, profilers, interactive programs with a
//! shell escape, and options that name a program. Used by `indirect_exec`.

/// Programs that run a command from their arguments, or that can start a shell from their own command language.
pub(super) const LAUNCHERS: &str = "
    aa-exec abduco acpi_listen air ansible-console ansible-playbook ansible-pull argv0 autoexpect background bear catatonit ccache
    chokidar choom chpst clush cargo-watch collect coproc cross-env daemon daemonize debuild distcc distrobox dotenv-cli
    dpkg-architecture dpkg-buildpackage dtach dumb-init empty env-cmd envdir envuidgid execlineb fakeroot-sysv fakeroot-tcp fghack
    foreground forever gow gprofng grc gtimeout hwatch icecc ifelse initctl intercept-build kernprof lckdo logrotate logsave
    lxc-attach lxc-exec machinectl memray mispipe modd msgexec msgfilter multitime nq onchange openvpn openvt parallel-ssh pdsh
    perf-exec pexec pgrphack pm2 pssh py-spy pyinstrument redirfd reflex reptyr retry rtimeout run-mailcap runsv s6-setuidgid
    s6-svscan salt scalene scan-build sccache sem service setlock softlimit sshpass start-server-and-test su-exec supervisor
    svlogd sysprof systemd-nspawn systemfd tcpclient tcpserver tini toolbox torify tsp valgrind.bin viddy viztracer
    watchman-make wg-quick withstdinas zrun
    alacritty exo-open foot gio gnome-terminal kitty konsole mpv open rxvt sensible-browser sensible-editor sensible-pager st
    urxvt wezterm x-terminal-emulator xdg-open xterm
    elvish es ksh93 lksh nu nushell oil osh posh powershell rc sash scsh yash ysh
    bpython gdb-multiarch ipdb ipython jed jmacs joe jupyter kak lazygit gitui lf lftp lldb-server mc mcedit micro mariadb mongo
    mongosh mycli litecli ne nnn pdb pdb3 pgcli psftp ptpython pudb ranger red rust-gdb rust-lldb rvi smbclient sqlite tig usql
    vidir vifm vigr vile vipw duckdb
";

/// Interpreters besides the common ones; only a script named first can be allowed by a rule.
pub(super) const RUNNERS: &str = "
    amm ammonite bb chibi-scheme cjs clisp clj crystal csi d8 dart ecl erb escript eruby gap gjs gosh gp hhvm iex jbang jjs
    jrunscript jruby js jython kotlin maxima micropython mono mruby nim octave ocamlrun perl5 perl6 php-cgi phpdbg qjs racket
    rakudo runghc runhaskell sage sbcl scala-cli slsh truffleruby utop wish
";

/// Other names of programs in the tables.
pub(super) const ALIASES: &[(&str, &str)] = &[
    ("batcat", "bat"),
    ("bmake", "make"),
    ("c++", "gcc"),
    ("clang++", "clang"),
    ("cpp", "gcc"),
    ("gfortran", "gcc"),
    ("mamba", "conda"),
    ("micromamba", "conda"),
    ("pip3", "pip"),
    ("py.test", "pytest"),
    ("rustdoc", "rustc"),
    ("youtube-dl", "yt-dlp"),
];

/// Subcommands that run other commands.
pub(super) const SUBCOMMANDS: &[(&str, &[&str])] = &[
    ("brew", &["irb", "ruby", "sh"]),
    ("cabal", &["exec", "repl", "v2-exec", "v2-repl"]),
    ("composer", &["exec"]),
    ("coverage", &["run"]),
    ("csvtool", &["call"]),
    ("dotnet", &["exec", "script"]),
    ("flatpak", &["run"]),
    ("fnm", &["exec"]),
    ("gem", &["exec"]),
    ("glab", &["alias"]),
    ("jj", &["util"]),
    ("meson", &["devenv"]),
    ("mix", &["cmd", "do", "eval", "run"]),
    ("nvm", &["exec", "run"]),
    ("pdm", &["run"]),
    ("repo", &["forall"]),
    ("rye", &["run"]),
    ("snap", &["run"]),
    ("stack", &["eval", "exec", "ghci", "runghc", "script"]),
    ("systemctl", &["edit"]),
    ("tox", &["e", "exec"]),
    ("vagrant", &["ssh"]),
    ("volta", &["run"]),
];

/// Prefixes of arguments that name a program, a plugin, a configuration with either, or a file to write.
pub(super) const PREFIXES: &[(&str, &[&str])] = &[
    ("aria2c", &["--on-", "--conf", "--dir", "--out", "--input", "-d", "-o", "-i"]),
    ("bazel", &["--run_under", "--bazelrc", "--output_base", "--strategy", "--host_jvm", "--server_javabase"]),
    (
        "clang",
        &["-wrapper", "-load", "-cc1", "--config", "-fpass-plugin", "-fuse-ld", "-mllvm", "-Xlinker", "-Wl,-plugin"],
    ),
    ("cpio", &["--rsh", "--file", "-F", "-O", "-I"]),
    ("dpkg", &["--pre-invoke", "--post-invoke", "--instdir", "--root", "-i", "--install", "--unpack"]),
    ("dvips", &["-o", "-R0"]),
    ("enscript", &["--filter", "--output", "-I", "-o", "-p"]),
    ("flake8", &["--config", "--append-config", "--output-file", "--enable-extensions"]),
    ("g++", &["-fuse-ld", "-Xlinker", "-Wl,-plugin", "-Wl,--plugin", "--specs"]),
    ("gcc", &["-fuse-ld", "-Xlinker", "-Wl,-plugin", "-Wl,--plugin", "--specs"]),
    ("hg", &["--config", "--cwd", "--debugger", "--repository", "-R", "--tool", "-t", "--program", "--output", "-o"]),
    ("jj", &["--config", "--repository", "-R", "--tool"]),
    ("just", &["--shell", "--command", "--justfile", "--working-directory", "--chooser", "--set", "-c", "-f", "-d"]),
    ("mypy", &["--config", "--python-executable", "--install-types", "--custom-typing", "--shadow-file"]),
    ("nox", &["--noxfile", "-f", "--extra-pythons"]),
    ("patch", &["--ed", "--output", "--get", "-e", "-o", "-g"]),
    ("pip", &["--python", "--editor", "--global-option", "--config-settings"]),
    ("pylint", &["--init-hook", "--load-plugins", "--rcfile", "--output", "--init-h", "--load-p"]),
    (
        "pytest",
        &["-p", "-c", "-o", "--override-ini", "--rootdir", "--confcutdir", "--pdbcls", "--config-file", "--basetemp"],
    ),
    ("ruff", &["--config", "--output-file"]),
    ("rustc", &["--test-runtool", "--runtool", "--test-builder", "--theme", "--html-"]),
    ("svn", &["--diff-cmd", "--diff3-cmd", "--editor-cmd", "--config-"]),
    ("tox", &["-x", "--override", "-c", "--conf", "--workdir", "--root"]),
    ("tsc", &["--project", "-p", "--build", "-b", "--outDir", "--outFile"]),
    (
        "yt-dlp",
        &[
            "--exec",
            "--downloader",
            "--external-downloader",
            "--config",
            "--plugin",
            "--netrc-cmd",
            "--output",
            "-o",
            "--paths",
            "-P",
        ],
    ),
];

/// Words in the name of a long option that say that its value is executed.
pub(super) const EXECUTING: &[&str] =
    &["cmd", "command", "eval", "exec", "execute", "hook", "hooks", "preload", "rsh", "wrapper"];

/// Programs that print their arguments or check their options on their own.
pub(super) const OWN_OPTIONS: &[&str] = &["echo", "git", "printf", "test", "["];

/// Returns true if a word list contains `name`.
pub(super) fn lists(words: &str, name: &str) -> bool {
    words.split_whitespace().any(|word| word == name)
}
