//! Git files forged by a command do not open folders outside the workspace.
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use std::{
    fs,
    io::Read,
    os::unix::{fs::symlink, net::UnixListener},
    path::{Path, PathBuf},
};

use crate::command_fixture::{
    CommandFixture, again_as_ordinary_user, each,
    isolated::{Isolated, git, write_tool},
    sandboxes,
};
use homing_core::{authority::Sandbox, workspace::Workspaces};

const SECRET: &str = "marker-of-the-user";

/// Returns a script that reads the marker outside, writes a file beside it and connects to the socket.
fn reach(folder: &Path) -> String {
    let knock = format!(
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"{}/socket\"); s.send(b\"knock\")",
        folder.display()
    );
    format!("cat {0}/secret; touch {0}/made; python3 -c '{knock}' 2>/dev/null; true", folder.display())
}

/// A folder outside with a marker and a socket, and a check that neither was reached.
struct Outside {
    folder: PathBuf,
    socket: UnixListener,
}

impl Outside {
    fn new(folder: PathBuf) -> Self {
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir(folder.join(".claude")).unwrap();
        for name in ["secret", ".claude/settings.json"] {
            fs::write(folder.join(name), SECRET).unwrap();
        }
        let socket = UnixListener::bind(folder.join("socket")).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { folder, socket }
    }

    fn is_untouched(&self, what: &str, text: &str) {
        assert!(!text.contains(SECRET), "{what}: the marker outside was read");
        let mut found: Vec<_> = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        found.sort();
        assert_eq!(found, [".claude", "secret", "socket"], "{what}: the outside was changed");
        assert!(self.folder.join(".claude/settings.json").exists(), "{what}: a file outside was removed");
        if let Ok((mut stream, _)) = self.socket.accept() {
            let mut received = String::new();
            let _ = stream.read_to_string(&mut received);
            panic!("{what}: the socket outside was reached: {received}");
        }
    }
}

/// Commands that forge git files; the next command then tries to reach `OUT`.
const FORGERIES: &[(&str, &str)] = &[
    ("both ends", "echo 'gitdir: fake' > .git; mkdir -p fake; echo $PWD/.git > fake/gitdir; echo OUT > fake/commondir"),
    (
        "an absolute git folder",
        "echo gitdir: $PWD/fake > .git; mkdir -p fake; echo $PWD/.git > fake/gitdir; echo OUT > fake/commondir",
    ),
    (
        "the form of a worktree",
        "echo gitdir: repo/worktrees/x > .git; mkdir -p repo/worktrees/x; echo $PWD/.git > repo/worktrees/x/gitdir; \
         echo OUT > repo/worktrees/x/commondir",
    ),
    (
        "a link as the common folder",
        "echo gitdir: repo/worktrees/x > .git; mkdir -p repo/worktrees/x; echo $PWD/.git > repo/worktrees/x/gitdir; \
         ln -s OUT common; echo $PWD/common > repo/worktrees/x/commondir",
    ),
    (
        "a git folder in the run's own home",
        "mkdir -p ~/g; echo gitdir: ~/g > .git; echo $PWD/.git > ~/g/gitdir; echo OUT > ~/g/commondir",
    ),
    ("a link as the git folder", "ln -s OUT .git"),
    ("a pipe instead of a file", "mkfifo .git"),
];

#[tokio::test]
async fn forged_git_file_opens_no_folder_outside() {
    for (name, fixture) in each().await {
        let outside = Outside::new(fixture.outside.join("private"));
        for (what, forgery) in FORGERIES {
            // A subfolder of the root, where protected files that do not exist yet are not watched.
            let workdir = fixture.workspace.join("sub");
            fs::create_dir_all(&workdir).unwrap();
            let context = fixture.context(fixture.grant(Sandbox::WorkspaceWrite)).workdir(workdir.clone());
            let command = forgery.replace("OUT", &outside.folder.display().to_string());
            let forged = fixture.bash_with(&context, &command).await;
            assert!(workdir.join(".git").symlink_metadata().is_ok(), "{name}, {what}: {}", forged.text);
            let output = fixture.bash_with(&context, &reach(&outside.folder)).await;
            outside.is_untouched(&format!("{name}, {what}"), &output.text);
            // A read-only run is not misled by what another run wrote, either.
            let grant = fixture.grant(Sandbox::ReadOnly).write(Vec::new());
            let context = fixture.context(grant).workdir(workdir.clone());
            let output = fixture.bash_with(&context, &reach(&outside.folder)).await;
            outside.is_untouched(&format!("{name}, {what}, read-only"), &output.text);
            fs::remove_dir_all(&workdir).unwrap();
        }
    }
}

#[tokio::test]
async fn forged_git_file_of_the_project_opens_no_folder() {
    for (name, fixture) in each().await {
        let outside = Outside::new(fixture.outside.join("private"));
        let at = |path: &str| fixture.workspace.join(path);
        fs::create_dir(at("fake")).unwrap();
        fs::write(at(".git"), "gitdir: fake\n").unwrap();
        fs::write(at("fake/gitdir"), at(".git").display().to_string()).unwrap();
        fs::write(at("fake/commondir"), outside.folder.display().to_string()).unwrap();
        let output = fixture.bash(&reach(&outside.folder)).await;
        outside.is_untouched(name, &output.text);
    }
}

#[tokio::test]
async fn working_folder_swapped_for_a_link_opens_no_repository() {
    for (name, fixture) in each().await {
        git(&fixture.outside, &["init", "-q"]);
        let outside = Outside::new(fixture.outside.join(".git/private"));
        let workdir = fixture.workspace.join("a/b");
        fs::create_dir_all(workdir.parent().unwrap()).unwrap();
        symlink(&fixture.outside, &workdir).unwrap();
        let context = fixture.context(fixture.grant(Sandbox::WorkspaceWrite)).workdir(workdir);
        let output = fixture.bash_with(&context, &reach(&outside.folder)).await;
        outside.is_untouched(name, &output.text);
    }
}

/// `GIT` is the repository's git folder, `RUN` the run, `TREE` its worktree.
const REDIRECTIONS: &[(&str, &str)] = &[
    ("its common folder", "echo OUT > GIT/worktrees/RUN/commondir"),
    (
        "its git file",
        "mkdir TREE/f; echo TREE/.git > TREE/f/gitdir; echo OUT > TREE/f/commondir; echo gitdir: f > TREE/.git",
    ),
    ("its working folder", "cd /; mv TREE/a TREE/c; mkdir TREE/a; ln -s OUT TREE/a/b"),
    ("its git folder", "mv GIT/worktrees GIT/w; mkdir GIT/worktrees; ln -s OUT GIT/worktrees/RUN"),
];

#[tokio::test]
async fn isolated_run_cannot_redirect_its_worktree() {
    let found = sandboxes().await;
    for name in &found.ready {
        for (what, redirection) in REDIRECTIONS {
            let fixture = CommandFixture::with(found.only(|other| other == name), |it| it);
            let outside = Outside::new(fixture.outside.join("private"));
            let isolated = Isolated::new(&fixture).await;
            let tree = isolated.worktrees.folder.join(isolated.run.to_string());
            let command = redirection
                .replace("GIT", &fixture.workspace.join(".git").display().to_string())
                .replace("TREE", &tree.display().to_string())
                .replace("RUN", &isolated.run.to_string())
                .replace("OUT", &outside.folder.display().to_string());
            fixture.bash_with(&isolated.context, &command).await;
            // The working folder may be gone, but it must not be another one.
            let output = fixture.bash_with(&isolated.context, &reach(&outside.folder)).await;
            outside.is_untouched(&format!("{name:?}, {what}"), &output.text);
            let file = write_tool();
            let path = isolated.workspace.workdir.join("made");
            let args = serde_json::json!({"path": path, "content": "x"});
            let output = file.call(&isolated.context, args).await;
            outside.is_untouched(&format!("{name:?}, {what}, by the file tools"), &output.text);
            let left = isolated.worktrees.leave(isolated.run, &isolated.workspace).await;
            outside.is_untouched(&format!("{name:?}, {what}, at the end"), &format!("{left:?}"));
        }
    }
}

#[test]
fn forged_git_files_are_ignored_for_an_ordinary_user() {
    again_as_ordinary_user(
        module_path!(),
        &[
            "forged_git_file_opens_no_folder_outside",
            "forged_git_file_of_the_project_opens_no_folder",
            "working_folder_swapped_for_a_link_opens_no_repository",
            "isolated_run_cannot_redirect_its_worktree",
        ],
    );
}
