//! Lines sorted by their keys, in bounded memory.
//!
//! Lines are held up to a few megabytes, then sorted and put aside in a file without a name; at the end the
//! runs are merged. Of lines with one key the last one counts: they keep the order in which they came, in a
//! run and from run to run. Start at [`Sorter::add`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};

/// Bytes of lines held before they are put aside.
const HELD_BYTES: usize = 8 << 20;
/// What a line costs in memory besides its bytes.
const LINE_BYTES: usize = 64;

/// A key (lines are sorted by its bytes), and the whole line.
pub(crate) type Keyed = (Box<[u8]>, Box<[u8]>);

/// Lines that are collected.
#[derive(Debug, Default)]
pub(crate) struct Sorter {
    lines: Vec<Keyed>,
    bytes: usize,
    runs: Vec<File>,
}

impl Sorter {
    /// Adds a line. `unnamed` makes a file to put lines aside in.
    pub(crate) fn add(
        &mut self,
        key: Box<[u8]>,
        line: Box<[u8]>,
        unnamed: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<()> {
        self.bytes += key.len() + line.len() + LINE_BYTES;
        self.lines.push((key, line));
        if self.bytes > HELD_BYTES { self.put_aside(unnamed()?) } else { Ok(()) }
    }

    fn put_aside(&mut self, file: File) -> io::Result<()> {
        let mut run = BufWriter::new(file);
        in_order(&mut self.lines);
        for (key, line) in &self.lines {
            for part in [key, line] {
                run.write_all(&(part.len() as u32).to_le_bytes())?;
                run.write_all(part)?;
            }
        }
        let mut run = run.into_inner().map_err(io::IntoInnerError::into_error)?;
        run.rewind()?;
        self.lines.clear();
        self.bytes = 0;
        self.runs.push(run);
        Ok(())
    }

    /// Takes all lines, to be read in order.
    pub(crate) fn sorted(&mut self) -> io::Result<Sorted> {
        let Sorter { mut lines, runs, .. } = std::mem::take(self);
        in_order(&mut lines);
        let mut runs: Vec<Run> = runs.into_iter().map(|file| Run::File(BufReader::new(file))).collect();
        runs.push(Run::Held(lines.into_iter()));
        let mut heads = BinaryHeap::new();
        for (index, run) in runs.iter_mut().enumerate() {
            if let Some((key, line)) = run.next()? {
                heads.push(Reverse((key, index, line)));
            }
        }
        Ok(Sorted { runs, heads })
    }

    #[cfg(test)]
    pub(crate) fn has_runs(&self) -> bool {
        !self.runs.is_empty()
    }
}

/// The smallest key of a run, which run it is, and the line.
type Head = Reverse<(Box<[u8]>, usize, Box<[u8]>)>;

/// Lines in order.
#[derive(Debug)]
pub(crate) struct Sorted {
    runs: Vec<Run>,
    heads: BinaryHeap<Head>,
}

impl Sorted {
    /// Returns the next line; of lines with one key the last.
    pub(crate) fn next(&mut self) -> io::Result<Option<Keyed>> {
        while let Some(Reverse((key, index, line))) = self.heads.pop() {
            if let Some((key, line)) = self.runs.get_mut(index).map_or(Ok(None), Run::next)? {
                self.heads.push(Reverse((key, index, line)));
            }
            if self.heads.peek().is_none_or(|Reverse((next, ..))| *next != key) {
                return Ok(Some((key, line)));
            }
        }
        Ok(None)
    }
}

/// By key; lines of one key as they came.
fn in_order(lines: &mut [Keyed]) {
    lines.sort_by(|(one, _), (other, _)| one.cmp(other));
}

#[derive(Debug)]
enum Run {
    File(BufReader<File>),
    Held(std::vec::IntoIter<Keyed>),
}

impl Run {
    fn next(&mut self) -> io::Result<Option<Keyed>> {
        match self {
            Run::Held(lines) => Ok(lines.next()),
            Run::File(file) => {
                let mut length = [0; 4];
                match file.read_exact(&mut length) {
                    Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                    answer => answer?,
                }
                let key = part(file, length)?;
                file.read_exact(&mut length)?;
                Ok(Some((key, part(file, length)?)))
            }
        }
    }
}

fn part(file: &mut BufReader<File>, length: [u8; 4]) -> io::Result<Box<[u8]>> {
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    file.read_exact(&mut bytes)?;
    Ok(bytes.into())
}
