//! Additions to the tables of earlier versions. Earlier versions ignore them, so the version of the tables stays the same and
//! both can use the file at once.

use std::{collections::HashMap, path::Path};

use rusqlite::{Connection, params};

use crate::project_folder;

const INDEXES: &str = "
CREATE INDEX IF NOT EXISTS trees_project ON trees (project, started);
-- The random end of IDs, by which users name runs.
CREATE INDEX IF NOT EXISTS runs_short_id ON runs (substr(id, 29));
";

/// Returns whether trees have a project; a journal that was never written to by this version has none.
pub(super) fn has_projects(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM pragma_table_info('trees') WHERE name = 'project')";
    connection.query_row(sql, [], |row| row.get(0))
}

/// Returns whether the tables have everything that this version adds, and every tree has a project.
pub(super) fn is_complete(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'runs_short_id')";
    let has_indexes: bool = connection.query_row(sql, [], |row| row.get(0))?;
    if !has_indexes || !has_projects(connection)? {
        return Ok(false);
    }
    let sql = "SELECT NOT EXISTS (SELECT 1 FROM trees WHERE project IS NULL)";
    connection.query_row(sql, [], |row| row.get(0))
}

/// Adds the column of projects if it is missing, and fills it for the trees of earlier versions: the project is the
/// repository around the folder in which the root worked, if it still exists. Writes nothing if there is nothing to do.
pub(super) fn add_projects(connection: &Connection) -> rusqlite::Result<()> {
    if !has_projects(connection)? {
        connection.execute_batch("ALTER TABLE trees ADD COLUMN project TEXT")?;
    }
    connection.execute_batch(INDEXES)?;
    let mut projects: HashMap<String, String> = HashMap::new();
    for (tree, workdir) in without_project(connection)? {
        let project = projects.entry(workdir).or_insert_with_key(|workdir| match workdir.as_str() {
            "" => String::new(),
            folder => project_folder(Path::new(folder)).to_string_lossy().into_owned(),
        });
        connection.execute("UPDATE trees SET project = ?2 WHERE id = ?1", params![tree, &*project])?;
    }
    Ok(())
}

/// The trees without a project, each with its working folder; that of pruned and damaged trees is empty.
fn without_project(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut statement = connection.prepare(
        "SELECT trees.id, coalesce(CASE WHEN json_valid(body) THEN body ->> '$.spawned.workdir' END, '')
         FROM trees LEFT JOIN records ON records.tree = trees.id AND records.seq = 0 WHERE trees.project IS NULL",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}
