//! The team files of a project and its user, which are agents like any other: `.homing/teams/*.yaml`, and workflow scripts:
//! `.claude/workflows/*.js`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use homing_core::{
    definition::Scope,
    diagnostic::{Diagnostic, Severity},
};
use homing_teams::Team;
use homing_tools::trust::{AuthorityFiles, settings::Trust};

use crate::{CodingSetup, HomingBuilder, PendingApproval};

/// The folders of team files, in a project and in the user's home.
const FOLDERS: [&str; 2] = [".homing/teams", ".claude/workflows"];

/// The largest team file that is read.
const MAX_BYTES: u64 = 1024 * 1024;

/// The teams of a project and its user.
#[derive(Default)]
pub(crate) struct FoundTeams {
    /// The teams, the strongest first.
    pub(crate) teams: Vec<FoundTeam>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) pending: Vec<PendingApproval>,
}

impl FoundTeams {
    /// Adds the teams to a builder. A team that the host added under the same name is stronger.
    pub(crate) fn add_to(self, builder: &mut HomingBuilder) {
        builder.diagnostics.extend(self.diagnostics);
        builder.pending.extend(self.pending);
        for found in self.teams {
            let is_taken = builder.teams.iter().any(|team| team.name == found.team.name)
                || builder.found_teams.iter().any(|other| other.team.name == found.team.name);
            if !is_taken {
                builder.found_teams.push(found);
            }
        }
    }
}

/// A team with its origin.
pub(crate) struct FoundTeam {
    pub(crate) team: Team,
    pub(crate) path: PathBuf,
    pub(crate) scope: Scope,
}

impl CodingSetup {
    /// Returns the paths of all team files of the project and its user, trusted or not.
    pub fn team_files(&self) -> Vec<PathBuf> {
        let project =
            self.places.project_folders().into_iter().flat_map(|folder| FOLDERS.map(|name| folder.join(name)));
        project.chain(self.user_team_folders()).flat_map(|folder| team_files(&folder)).collect()
    }

    fn user_team_folders(&self) -> impl Iterator<Item = PathBuf> {
        let home = self.places.home.iter().flat_map(|home| FOLDERS.map(|folder| home.join(folder)));
        home.chain(self.places.config.iter().map(|config| config.join("homing/teams")))
    }

    /// Reads the team files. Those of a project need trust, because they call tools without a model in between.
    pub(crate) fn find_teams(&self, files: &AuthorityFiles, trust: Trust) -> FoundTeams {
        let mut found = FoundTeams::default();
        let root = self.places.project_folders().into_iter().next().unwrap_or_else(|| self.places.cwd.clone());
        let is_team = |path: &&Path| {
            path.parent().is_some_and(|folder| FOLDERS.iter().any(|name| folder.ends_with(name))) && is_team_file(path)
        };
        let mut project: Vec<&Path> = files.paths().filter(is_team).collect();
        // The innermost folder is the strongest.
        project.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        for path in project {
            let (whole, bytes) = (root.join(path), files.get(path).unwrap_or_default());
            match trust {
                Trust::Trusted => found.add(&String::from_utf8_lossy(bytes), whole, Scope::Project),
                Trust::Untrusted => {
                    let what = format!(
                        "the team {} is not available, because this project's files are not trusted",
                        path.display()
                    );
                    found.diagnostics.push(Diagnostic::warning(what));
                    found.pending.push(PendingApproval::ProjectFiles);
                }
            }
        }
        for path in self.user_team_folders().flat_map(|folder| team_files(&folder)) {
            match fs::read_to_string(&path) {
                Ok(text) => found.add(&text, path, Scope::User),
                Err(error) => {
                    let what = format!("cannot read the team {}: {error}", path.display());
                    found.diagnostics.push(Diagnostic::warning(what));
                }
            }
        }
        found
    }
}

impl FoundTeams {
    fn add(&mut self, text: &str, path: PathBuf, scope: Scope) {
        let loaded = homing_teams::load(text, Some(&path));
        let warnings = loaded.diagnostics.iter().filter(|diagnostic| diagnostic.severity < Severity::Error);
        self.diagnostics.extend(warnings.cloned());
        match loaded.ready() {
            Ok(team) => self.teams.push(FoundTeam { team, path, scope }),
            // A team that cannot run must not keep the other agents from running.
            Err(errors) => self.diagnostics.extend(errors.into_iter().map(as_warning)),
        }
    }
}

/// An error about one team, which is a warning to everything else.
pub(crate) fn as_warning(error: Diagnostic) -> Diagnostic {
    error.severity(Severity::Warning)
}

fn team_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_small = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= MAX_BYTES);
    let mut files: Vec<PathBuf> = entries.filter(|path| is_team_file(path) && is_small(path)).collect();
    files.sort();
    files
}

fn is_team_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "js")
}
