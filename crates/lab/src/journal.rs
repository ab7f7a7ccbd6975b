//! The journal of a run: one line of JSON for every run that was made, so that an interrupted suite can be
//! resumed.
//!
//! It is written beside the record while a suite runs, and holds all that resuming needs: the suite, the seed
//! of its order, the machine. Only whole blocks are kept: runs are compared within their block, and the
//! halves of a divided block would be hours apart. Start at [`Journal`].

use crate::collect::CellRuns;
use crate::error::Error;
use crate::identity;
use crate::run::Measured;
use crate::suite::Suite;
use ringroad_measure::record::Program;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The `journal` string this version writes and reads.
const FORMAT: &str = "ringroad.journal/1";

/// What was begun: the first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begun {
    /// Always `ringroad.journal/1`.
    journal: String,
    /// Version of the program that began it.
    version: String,
    /// The suite, with the caller's overrides in it.
    pub suite: Suite,
    /// Of the order of the runs.
    pub seed: u64,
    /// The command line for the record.
    pub command: Vec<String>,
    /// RFC 3339, UTC.
    pub started: String,
    /// Facts about the machine, and the CPUs of server, client and harness.
    pub host: Map<String, Value>,
    /// What each server's name stands for.
    #[serde(default)]
    pub programs: BTreeMap<String, Program>,
}

impl Begun {
    /// Returns a run of `suite` that begins now.
    pub fn now(
        suite: Suite,
        seed: u64,
        command: Vec<String>,
        started: String,
        host: Map<String, Value>,
    ) -> Begun {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let programs = identity::of_suite(&suite);
        Begun { journal: FORMAT.to_owned(), version, suite, seed, command, started, host, programs }
    }
}

/// What happened: every further line. `cell` is the place in the plan, which suite and seed determine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    Run {
        cell: usize,
        measured: Box<Measured>,
    },
    Failed {
        cell: usize,
        how: String,
    },
    Skipped {
        cell: usize,
        reason: String,
    },
    /// All runs of this block are above.
    Block(u32),
}

/// A journal being written.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
}

/// What was done before the run was stopped.
#[derive(Debug)]
pub struct Kept {
    /// What was begun.
    pub begun: Begun,
    /// Whole blocks.
    pub blocks: u32,
    entries: Vec<Entry>,
}

impl Kept {
    /// Makes a journal in which nothing was done yet.
    pub fn nothing(begun: Begun) -> Kept {
        Kept { begun, blocks: 0, entries: Vec::new() }
    }

    /// Reads a journal. A last line that is not whole was being written when the run ended, and counts as not
    /// there.
    ///
    /// # Errors
    /// [`Error::Journal`]: it cannot be read, is none, or is of another version.
    pub fn read(path: &Path) -> Result<Kept, Error> {
        let wrong = |how: String| Error::Journal { path: path.to_owned(), how };
        // Bytes, since a line that was being written may end within a character.
        let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        let Some((first, rest)) = lines.split_first() else {
            return Err(wrong("it is empty: start a new run".to_owned()));
        };
        let begun: Begun = serde_json::from_slice(first)
            .map_err(|error| wrong(format!("its first line is not that of a journal ({error})")))?;
        if begun.journal != FORMAT || begun.version != env!("CARGO_PKG_VERSION") {
            return Err(wrong(format!(
                "it is {} of version {}, and this is {FORMAT} of version {}: start a new run",
                begun.journal,
                begun.version,
                env!("CARGO_PKG_VERSION")
            )));
        }
        let (mut kept, mut pending) = (Kept::nothing(begun), Vec::new());
        for (nth, line) in rest.iter().enumerate() {
            match serde_json::from_slice(line) {
                Ok(Entry::Block(block)) => {
                    kept.entries.append(&mut pending);
                    kept.entries.push(Entry::Block(block));
                    kept.blocks = block + 1;
                }
                Ok(entry) => pending.push(entry),
                Err(_) if nth + 1 == rest.len() => {}
                Err(error) => return Err(wrong(format!("line {} cannot be read ({error})", nth + 2))),
            }
        }
        Ok(kept)
    }

    /// Puts what was done into the cells of the plan, and answers how long it had taken, seconds.
    pub(crate) fn restore(&self, cells: &mut [CellRuns]) -> f64 {
        let mut at_s: f64 = 0.0;
        for entry in &self.entries {
            let (Entry::Run { cell, .. } | Entry::Failed { cell, .. } | Entry::Skipped { cell, .. }) = entry
            else {
                continue;
            };
            // Of a plan that is another by now, what has no place is left out.
            let Some(cell) = cells.get_mut(*cell) else { continue };
            match entry {
                Entry::Run { measured, .. } => {
                    at_s = at_s.max(measured.run.at_s + measured.run.duration_s);
                    cell.runs.push((**measured).clone());
                }
                Entry::Failed { how, .. } => cell.failures.push(how.clone()),
                Entry::Skipped { reason, .. } => cell.skipped = Some(reason.clone()),
                Entry::Block(_) => {}
            }
        }
        at_s
    }
}

impl Journal {
    /// Writes what was kept to a new file, which takes the place of an older one, and stays open for what
    /// follows.
    ///
    /// # Errors
    /// [`Error::Journal`]: the file cannot be written.
    pub fn begin(path: &Path, kept: &Kept) -> Result<Journal, Error> {
        let new = path.with_extension("new");
        let wrong = |error: std::io::Error| Error::Journal { path: path.to_owned(), how: error.to_string() };
        let mut journal = Journal { file: File::create(&new).map_err(wrong)?, path: path.to_owned() };
        journal.write(&kept.begun)?;
        kept.entries.iter().try_for_each(|entry| journal.write(entry))?;
        std::fs::rename(&new, path).map_err(wrong)?;
        Ok(journal)
    }

    pub(crate) fn run(&mut self, cell: usize, measured: &Measured) -> Result<(), Error> {
        self.write(&Entry::Run { cell, measured: Box::new(measured.clone()) })
    }

    pub(crate) fn failed(&mut self, cell: usize, how: &str) -> Result<(), Error> {
        self.write(&Entry::Failed { cell, how: how.to_owned() })
    }

    pub(crate) fn skipped(&mut self, cell: usize, reason: &str) -> Result<(), Error> {
        self.write(&Entry::Skipped { cell, reason: reason.to_owned() })
    }

    pub(crate) fn block(&mut self, block: u32) -> Result<(), Error> {
        self.write(&Entry::Block(block))
    }

    /// One line, in one write, so that a reader never sees a half of it but at the very end.
    fn write(&mut self, line: &impl Serialize) -> Result<(), Error> {
        let wrong = |how: String| Error::Journal { path: self.path.clone(), how };
        let mut text = serde_json::to_string(line).map_err(|error| wrong(error.to_string()))?;
        text.push('\n');
        self.file.write_all(text.as_bytes()).map_err(|error| wrong(error.to_string()))
    }
}
