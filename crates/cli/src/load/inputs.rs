//! The files that a load reads: its body, URLs, values, certificates. Each is read once, however often the
//! plan is made: a pipe has its bytes once, and a FIFO that is opened again waits for another writer.

use super::Complaint;
use crate::complaint::{FAILED, USAGE, name, why};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What was read so far.
pub(super) struct Inputs {
    read: RefCell<BTreeMap<PathBuf, Rc<[u8]>>>,
    /// Whether each of several processes reads the files.
    by_several: bool,
}

impl Inputs {
    pub(super) fn new(by_several: bool) -> Inputs {
        Inputs { read: RefCell::default(), by_several }
    }

    /// Returns the bytes of a file.
    pub(super) fn bytes(&self, file: &Path) -> Result<Rc<[u8]>, Complaint> {
        if let Some(bytes) = self.read.borrow().get(file) {
            return Ok(Rc::clone(bytes));
        }
        if self.by_several && fs::metadata(file).is_ok_and(|metadata| !metadata.is_file()) {
            let message = format!(
                "{}: with --processes each process reads it, and only a regular file has its bytes more than once",
                name(file)
            );
            return Err(Complaint { message, code: USAGE });
        }
        let bytes: Rc<[u8]> = match ringroad_host::input::read_any(file) {
            Ok(bytes) => bytes.into(),
            Err(error) => {
                let message = format!("read, on {}: {}", name(file), why(&error));
                return Err(Complaint { message, code: FAILED });
            }
        };
        self.read.borrow_mut().insert(file.to_owned(), Rc::clone(&bytes));
        Ok(bytes)
    }

    /// Returns the text of a file; bytes that are none are replaced.
    pub(super) fn text(&self, file: &Path) -> Result<String, Complaint> {
        Ok(String::from_utf8_lossy(&self.bytes(file)?).into_owned())
    }
}
