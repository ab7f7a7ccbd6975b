//! Folders and files of records: the folder of a run, and the records of earlier runs, which are read, listed
//! or opened.
//!
//! Start at [`Folder`] and [`newest`].

use super::{Complaint, failed, json, print};
use crate::complaint::{DONE, FAILED, USAGE, say};
use crate::outfile::OutFile;
use crate::terminal::{Indent, columns, fitted};
use ringroad_lab::page;
use ringroad_measure::record::{Record, SCHEMA};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

/// The folder for record and page of a run.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn prepare(wanted: Option<PathBuf>, suite: &str) -> Result<Folder, Complaint> {
        let is_default = wanted.is_none();
        let folder = match wanted {
            Some(folder) => folder,
            None => state_folder()?.join(format!("{suite}-{}-{}", stamp(), std::process::id())),
        };
        let refused = |what: &str, on: &Path, error: io::Error| {
            let Complaint { message, code } = failed(what, on, &error);
            let other = if is_default {
                "--out DIR puts record and page elsewhere"
            } else {
                "choose another --out DIR"
            };
            Complaint { message: format!("{message} ({other})"), code }
        };
        fs::create_dir_all(&folder).map_err(|error| refused("create the folder", &folder, error))?;
        let folder = Folder(folder);
        // Created to check that it is possible, and removed again. An old page beside a new record would be
        // wrong, and so would an empty record of an interrupted run.
        for file in [folder.record(), folder.page()] {
            if fs::symlink_metadata(&file).is_ok_and(|there| there.file_type().is_fifo()) {
                let error = io::Error::other("a FIFO is there, and the folder keeps files");
                return Err(refused("write", &file, error));
            }
            fs::File::create(&file)
                .and_then(|_| fs::remove_file(&file))
                .map_err(|error| refused("write", &file, error))?;
        }
        Ok(folder)
    }

    pub(super) fn record(&self) -> PathBuf {
        self.0.join(RECORD)
    }

    pub(super) fn journal(&self) -> PathBuf {
        self.0.join("journal.jsonl")
    }

    pub(super) fn trees(&self) -> PathBuf {
        self.0.join("trees")
    }

    pub(super) fn page(&self) -> PathBuf {
        self.0.join(PAGE)
    }

    /// Returns whether the existing record has more runs than this one.
    pub(super) fn has_more_than(&self, record: &Record) -> bool {
        let runs = |record: &Record| record.cells.iter().map(|cell| cell.runs.len()).sum::<usize>();
        self.record().exists() && read(&self.record()).is_ok_and(|there| runs(&there) > runs(record))
    }

    /// Writes the record first, then the page: if drawing fails, the measurements are kept.
    pub(super) fn write(
        &self,
        record: &Record,
        draw: impl FnOnce(&Record) -> String,
    ) -> Result<(), Complaint> {
        write_whole(&self.record(), &json(record))?;
        write_whole(&self.page(), &marked(&draw(record), RECORD))
    }
}

/// Writes the whole file or none: a truncated file is worse than none.
pub(super) fn write_whole(file: &Path, text: &str) -> Result<(), Complaint> {
    OutFile::open(file, false).and_then(|out| out.write(text)).map_err(|error| failed("write", file, &error))
}

/// Returns `$XDG_STATE_HOME/ringroad/lab`, or its default in the home folder.
pub(super) fn state_folder() -> Result<PathBuf, Complaint> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("ringroad/lab")).ok_or_else(|| Complaint {
        message: "lab: neither XDG_STATE_HOME nor HOME is set, so there is no folder for records (--out DIR names one)"
            .to_owned(),
        code: USAGE,
    })
}

/// Returns the current time as part of a file name: seconds since 1970 sort chronologically.
fn stamp() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the record files of a path: the file itself; for a folder the record of its run, or the collected
/// parts of a load.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>, Complaint> {
    if !path.is_dir() || path.join(RECORD).exists() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| failed("list", path, &error))? {
        let entry = entry.map_err(|error| failed("list", path, &error))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_json = Path::new(&*name).extension().is_some_and(|extension| extension == "json");
        if name.starts_with("part-") && is_json {
            files.push(entry.path());
        }
    }
    files.sort();
    if files.is_empty() {
        let message =
            format!("read, on {}: neither record.json nor parts of a load are in it", path.display());
        return Err(Complaint { message, code: FAILED });
    }
    Ok(files)
}

/// Reads an earlier record; for a folder, the one in it.
pub(super) fn read(path: &Path) -> Result<Record, Complaint> {
    let file = if path.is_dir() { path.join(RECORD) } else { path.to_owned() };
    let path = file.as_path();
    let text = ringroad_host::input::read_any_text(path).map_err(|error| failed("read", path, &error))?;
    let unreadable =
        |how: String| Complaint { message: format!("read, on {}: {how}", path.display()), code: FAILED };
    let record: Record = serde_json::from_str(&text).map_err(|error| {
        unreadable(match error.classify() {
            serde_json::error::Category::Data => format!("this JSON is not a record of {SCHEMA}: {error}"),
            _ => format!("this is not a record of {SCHEMA}: it is not JSON (line {})", error.line()),
        })
    })?;
    if record.schema != SCHEMA {
        return Err(unreadable(format!("schema {:?}, and this version reads {SCHEMA}", record.schema)));
    }
    Ok(record)
}

/// Returns the records that `lab` stored, newest first. Files that are not records (of an interrupted run)
/// are left out.
pub(super) fn newest() -> Result<Vec<(PathBuf, Record)>, Complaint> {
    let folder = &state_folder()?;
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("list", folder, &error)),
    };
    let mut records: Vec<(PathBuf, Record)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path().join(RECORD);
            let record = read(&path).ok()?;
            Some((path, record))
        })
        .collect();
    // RFC 3339 in UTC sorts chronologically.
    records.sort_by(|a, b| b.1.started.cmp(&a.1.started));
    Ok(records)
}

/// Returns the newest record's file.
pub(super) fn last() -> Result<PathBuf, Complaint> {
    let none = || none_yet("there is no record yet");
    Ok(newest()?.into_iter().next().ok_or_else(none)?.0)
}

/// Returns the error that there is no record.
pub(super) fn none_yet(what: &str) -> Complaint {
    let place =
        state_folder().map_or_else(|_| String::new(), |folder| format!(" under {}", folder.display()));
    Complaint { message: format!("lab: {what}{place} (`ringroad lab` creates one)"), code: FAILED }
}

/// Prints one line for each record, the newest first.
pub(super) fn list() -> Result<u8, Complaint> {
    let records = newest()?;
    if records.is_empty() {
        return Err(none_yet("there is no record yet"));
    }
    let mut text = String::new();
    for (path, record) in &records {
        let started = record.started.get(..16).unwrap_or(&record.started).replace('T', " ");
        let results = record.cells.iter().filter(|cell| cell.skipped.is_none()).count();
        let suite = record.suite.as_deref().unwrap_or(&record.tool);
        let folder = path.parent().unwrap_or(path);
        text.push_str(&format!(
            "{started}  {suite:<14} {:<8} {results:>4} result{}  {}\n",
            record.verdict.level.to_string(),
            if results == 1 { " " } else { "s" },
            folder.display()
        ));
    }
    print(&fitted(&text, columns(io::stdout()), Indent::At(4)))?;
    Ok(DONE)
}

/// The name of a run's record in its folder; its page is [`PAGE`]. Other records' pages have their names.
const RECORD: &str = "record.json";
const PAGE: &str = "report.html";

/// A page, and the file names of the records it is made from.
pub(super) struct Page {
    pub(super) file: PathBuf,
    from: String,
}

impl Page {
    /// Returns the page beside a record, or in its folder: `report.html` of `record.json`, `run.html` of
    /// `run.json`. `None` if the record is not a regular file, such as a pipe: nothing is beside it.
    pub(super) fn of(record: &Path) -> Option<Page> {
        if record.is_dir() {
            return Some(Page { file: record.join(PAGE), from: RECORD.to_owned() });
        }
        // A missing file is reported when it is read.
        let is_other = fs::metadata(record).is_ok_and(|about| !about.is_file());
        // A file on standard input has no folder here either.
        if is_other || record.starts_with("/dev") || record.starts_with("/proc") {
            return None;
        }
        let from = name_of(record);
        let file = if from == RECORD { record.with_file_name(PAGE) } else { record.with_extension("html") };
        Some(Page { file, from })
    }

    /// Returns the page of records in a file that the user names.
    pub(super) fn at(file: &Path, records: &[PathBuf]) -> Page {
        let name = |record: &PathBuf| if record.is_dir() { RECORD.to_owned() } else { name_of(record) };
        Page { file: file.to_owned(), from: records.iter().map(name).collect::<Vec<_>>().join(", ") }
    }

    /// Returns the reason not to write the page: the file exists, and is not a page of this record. A file
    /// that the user named is written nevertheless.
    pub(super) fn refusal(&self, is_named: bool) -> Option<Complaint> {
        if is_named || self.is_free() {
            return None;
        }
        let message = format!(
            "lab: the page was not written: {} is there and was not made from {} (--out FILE writes it elsewhere)",
            self.file.display(),
            self.from
        );
        Some(Complaint { message, code: FAILED })
    }

    /// Returns whether the file does not exist, or is an earlier page of the same record.
    fn is_free(&self) -> bool {
        use std::io::Read;
        let mut head = Vec::new();
        match fs::File::open(&self.file) {
            Ok(file) => drop(file.take(MARK_WITHIN).read_to_end(&mut head)),
            Err(error) => return error.kind() == io::ErrorKind::NotFound,
        }
        let head = String::from_utf8_lossy(&head);
        // Older pages of runs had no mark, and no other file had this name.
        let is_older = self.from == RECORD && head.contains("<title>ringroad ") && !head.contains(MARK);
        is_older || head.contains(&mark(&self.from))
    }

    /// Returns whether the page exists and was written after the record.
    fn is_newer_than(&self, record: &Path) -> bool {
        let written = |file: &Path| fs::metadata(file).and_then(|about| about.modified());
        let Ok(page) = written(&self.file) else { return false };
        // Without its record, the page is all that is left.
        written(record).is_ok_and(|record| record <= page) || !record.exists()
    }

    pub(super) fn write(&self, record: &Record) -> Result<(), Complaint> {
        write_whole(&self.file, &marked(&page::html(record), &self.from))
    }
}

fn name_of(record: &Path) -> String {
    record.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Prefix of the mark.
const MARK: &str = "<meta name=\"ringroad-record\" content=\"";

/// The mark is within this many bytes of a page's beginning: a file name has at most 255 bytes, each of which
/// may be escaped.
const MARK_WITHIN: u64 = 4096;

/// Returns the line of a page that names the record it was made from.
fn mark(from: &str) -> String {
    format!("{MARK}{}\"/>\n", page::escape(from))
}

/// Returns a page with the name of its record.
fn marked(page: &str, from: &str) -> String {
    page.replacen("<head>\n", &format!("<head>\n{}", mark(from)), 1)
}

/// Opens the page of a record in the browser, and prints where it is.
pub(super) fn open(record: Option<PathBuf>) -> Result<u8, Complaint> {
    let path = match record {
        Some(path) => path,
        None => last()?,
    };
    let page = Page::of(&path).ok_or_else(|| Complaint {
        message: format!("open, on {}: not a file, so there is no page beside it", path.display()),
        code: USAGE,
    })?;
    if let Some(refusal) = page.refusal(false) {
        return Err(refusal);
    }
    let record = if path.is_dir() { path.join(RECORD) } else { path };
    if !page.is_newer_than(&record) {
        page.write(&read(&record)?)?;
    }
    let page = page.file;
    print(&format!("page:   {}\n", page.display()))?;
    let browser = env::var_os("BROWSER").filter(|name| !name.is_empty());
    let opener = browser.unwrap_or_else(|| "xdg-open".into());
    let opened = Command::new(&opener)
        .arg(&page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match opened {
        Ok(status) if status.success() => Ok(DONE),
        Ok(_) | Err(_) => {
            say(&format!("{} could not open the page: open the file by hand", opener.to_string_lossy()));
            Ok(FAILED)
        }
    }
}
