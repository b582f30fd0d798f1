//! Converts the tables of version 1, in which each record was a row of its own, and trees may lack a project.
//!
//! Everything happens in one transaction: a process that is killed, or a full disk, leaves the file as it was.

use std::{collections::HashMap, path::Path};

use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use crate::{
    journal::{
        JournalError,
        sqlite::{
            append::{MAX_ROW_BYTES, insert_stored, insertion_of_rows},
            owner::Owner,
            row::{StoredRecords, element_of},
            schema::{OpenError, TREES},
        },
    },
    project_folder,
};

/// The version that can be converted.
pub(super) const BEFORE: i64 = 1;

/// Makes room for the new tables. Indexes are dropped because their names are used again, and some versions lack some of them.
const RENAME: &str = "
DROP INDEX IF EXISTS trees_started;
DROP INDEX IF EXISTS trees_owner;
DROP INDEX IF EXISTS trees_cache_key;
DROP INDEX IF EXISTS trees_project;
DROP INDEX IF EXISTS spend_tree;
ALTER TABLE trees RENAME TO old_trees;
ALTER TABLE spend RENAME TO old_spend;
ALTER TABLE records RENAME TO old_records;
CREATE INDEX IF NOT EXISTS runs_short_id ON runs (substr(id, 29));
";

const COPY_TREES: &str = "
INSERT INTO trees (id, owner, epoch, key, task_hash, cache_key, tags, started, crashed_at, crashes, pruned, project)
SELECT id, owner, epoch, key, task_hash, cache_key, tags, started, crashed_at, crashes, pruned, project FROM old_trees ORDER BY rowid;
INSERT INTO progress (tree, next_seq, last_at, steps)
SELECT number, next_seq, last_at, steps FROM trees JOIN old_trees ON old_trees.id = trees.id;
INSERT INTO spend (run, model, day, tree, input, cached, output, cost_micros, estimated, turns, tool_calls)
SELECT run, model, day, tree, input, cached, output, cost_micros, estimated, turns, tool_calls FROM old_spend;
";

/// Converts the tables within a transaction. Refuses if a process uses them, because its program cannot use the new ones.
pub(super) fn convert(connection: &Connection) -> Result<(), OpenError> {
    let me = Owner::this();
    if let Some(owner) = Owner::all(connection)?.iter().find(|owner| owner.is_alive(&me)) {
        let holder = format!("process {}, which runs an earlier version of homing", owner.pid);
        return Err(OpenError::Journal(JournalError::Locked { holder: Some(holder), stopped: None }));
    }
    add_projects(connection)?;
    connection.execute_batch(RENAME)?;
    connection.execute_batch(TREES)?;
    connection.execute_batch(COPY_TREES)?;
    copy_records(connection)?;
    connection.execute_batch("DROP TABLE old_records; DROP TABLE old_trees; DROP TABLE old_spend;")?;
    Ok(())
}

/// Copies the records of all trees. A record that fails its check is stored so that it fails the new one.
fn copy_records(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(
        "SELECT number, tree, seq, at, old_records.epoch, run, place, kind, body, crc FROM old_records JOIN trees ON trees.id = tree
         ORDER BY number, seq",
    )?;
    let mut rows = statement.query([])?;
    let mut joined: Option<JoinedRecords> = None;
    while let Some(row) = rows.next()? {
        let record = OldRecord::read(row)?;
        let json = record.element();
        if let (Some(joined), Some(json)) = (&mut joined, &json)
            && joined.takes(&record)
        {
            joined.push(json);
            continue;
        }
        if let Some(joined) = joined.take() {
            joined.insert(connection)?;
        }
        match json {
            Some(json) => joined = Some(JoinedRecords::new(&record, &json)),
            None => record.insert_damaged(connection)?,
        }
    }
    joined.map_or(Ok(()), |joined| joined.insert(connection))
}

/// Consecutive records of one tree and one owner, which become one row.
struct JoinedRecords {
    number: i64,
    tree: Uuid,
    seq: i64,
    epoch: i64,
    count: i64,
    json: String,
}

impl JoinedRecords {
    fn new(first: &OldRecord<'_>, json: &str) -> Self {
        let OldRecord { number, seq, epoch, .. } = *first;
        Self { number, tree: first.tree_id(), seq, epoch, count: 1, json: format!("[{json}") }
    }

    fn takes(&self, next: &OldRecord<'_>) -> bool {
        let follows = (next.number, next.seq, next.epoch) == (self.number, self.seq + self.count, self.epoch);
        follows && self.json.len() + next.body.len() <= MAX_ROW_BYTES
    }

    fn push(&mut self, json: &str) {
        self.json.push(',');
        self.json.push_str(json);
        self.count += 1;
    }

    fn insert(mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.json.push(']');
        let stored = StoredRecords { tree: self.tree, seq: self.seq, epoch: self.epoch, json: &self.json };
        insert_stored(&mut insertion_of_rows(connection)?, self.number, &stored, stored.crc())
    }
}

/// A row of version 1, with the number of its tree.
struct OldRecord<'a> {
    number: i64,
    tree: &'a str,
    seq: i64,
    at: i64,
    epoch: i64,
    run: &'a str,
    place: &'a str,
    kind: &'a str,
    body: &'a str,
    crc: i64,
}

impl<'a> OldRecord<'a> {
    fn read(row: &'a Row<'_>) -> rusqlite::Result<Self> {
        let text = |at: usize| Ok::<_, rusqlite::Error>(row.get_ref(at)?.as_str()?);
        Ok(Self {
            number: row.get(0)?,
            tree: text(1)?,
            seq: row.get(2)?,
            at: row.get(3)?,
            epoch: row.get(4)?,
            run: text(5)?,
            place: text(6)?,
            kind: text(7)?,
            body: text(8)?,
            crc: row.get(9)?,
        })
    }

    fn tree_id(&self) -> Uuid {
        self.tree.parse().unwrap_or_default()
    }

    /// The record as an element of the new row, if it is not damaged.
    fn element(&self) -> Option<String> {
        if i64::from(self.checksum()) != self.crc || self.tree_id().is_nil() {
            return None;
        }
        element_of(self.at.try_into().ok()?, self.run.parse().ok()?, self.place.parse().ok()?, self.body)
    }

    /// The checksum that version 1 wrote.
    fn checksum(&self) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        for text in [self.tree, self.run, self.place, self.kind] {
            crc.update(text.as_bytes());
            crc.update(&[0]);
        }
        for number in [self.seq, self.at, self.epoch] {
            crc.update(&number.to_le_bytes());
        }
        crc.update(self.body.as_bytes());
        crc.finalize()
    }

    fn insert_damaged(&self, connection: &Connection) -> rusqlite::Result<()> {
        let stored = StoredRecords { tree: self.tree_id(), seq: self.seq, epoch: self.epoch, json: self.body };
        insert_stored(&mut insertion_of_rows(connection)?, self.number, &stored, !stored.crc())
    }
}

/// Adds the column of projects if it is missing, and fills it: the project is the repository around the folder in which the root
/// worked, if it still exists.
fn add_projects(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "SELECT EXISTS (SELECT 1 FROM pragma_table_info('trees') WHERE name = 'project')";
    let has_projects: bool = connection.query_row(sql, [], |row| row.get(0))?;
    if !has_projects {
        connection.execute_batch("ALTER TABLE trees ADD COLUMN project TEXT")?;
    }
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
