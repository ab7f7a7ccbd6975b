//! Changes to a request head that was kept: another path, other header lines.
//!
//! Lines that decide the framing, the host and the connection cannot be changed ([`EncodeError::Framing`]),
//! so the parsed facts stay valid for the changed head. Start at [`HeadEdit`].

use crate::encode::{EncodeError, put_field};
use crate::fields::Slot;
use crate::limits::HEAD_BYTES_MAX;
use crate::request_head::RequestMeta;
use crate::scan::target_len;
use crate::target::{Form, Target};

/// The parts of a kept head ([`RequestHead::from_parts`](crate::RequestHead::from_parts)), to be changed.
///
/// A change that is refused changes nothing.
#[derive(Debug)]
pub struct HeadEdit<'a> {
    bytes: &'a mut Vec<u8>,
    slots: &'a mut Vec<Slot>,
    meta: &'a mut RequestMeta,
}

/// Maximum number of lines.
const LINES_MAX: usize = u8::MAX as usize;

impl<'a> HeadEdit<'a> {
    /// Takes the parts of one head.
    pub fn new(bytes: &'a mut Vec<u8>, slots: &'a mut Vec<Slot>, meta: &'a mut RequestMeta) -> HeadEdit<'a> {
        HeadEdit { bytes, slots, meta }
    }

    /// Replaces the path and query of the target. The host of an absolute target stays.
    ///
    /// # Errors
    /// It does not begin with `/`, has a space, a control character or `#`, the head would be too long, or
    /// the request is CONNECT.
    pub fn set_target(&mut self, target: &str) -> Result<(), EncodeError> {
        let whole = target_len(target.as_bytes()) == target.len();
        if !target.starts_with('/') || !whole {
            return Err(EncodeError::Target);
        }
        let begin = usize::from(self.meta.method_end) + 1;
        let changed = Target::origin(target.as_bytes());
        let (from, form) = match self.meta.target.form {
            Form::Origin | Form::Asterisk => (begin, changed),
            Form::Absolute => {
                let host_end = self.meta.target.host_end;
                let Target { host, .. } = self.meta.target;
                let path_end = host_end.saturating_add(changed.path_end);
                (
                    begin + usize::from(host_end),
                    Target { form: Form::Absolute, host, host_end, path_end, ..changed },
                )
            }
            Form::Authority => return Err(EncodeError::Target),
        };
        let to = usize::from(self.meta.target_end);
        let removed = to.checked_sub(from).ok_or(EncodeError::Target)?;
        if self.bytes.len() - removed.min(self.bytes.len()) + target.len() > HEAD_BYTES_MAX
            || self.bytes.get(from..to).is_none()
        {
            return Err(EncodeError::Target);
        }
        self.bytes.splice(from..to, target.bytes());
        for slot in self.slots.iter_mut() {
            slot.shift(removed, target.len());
        }
        self.meta.target = form;
        self.meta.target_end = (from + target.len()) as u16;
        Ok(())
    }

    /// Removes all lines of this name, in any case; returns how many there were.
    ///
    /// # Errors
    /// The line decides the framing, the host or the connection.
    pub fn remove(&mut self, name: &str) -> Result<usize, EncodeError> {
        put_field(&mut Vec::new(), name.as_bytes(), b"")?;
        let before = self.slots.len();
        let bytes = &*self.bytes;
        let host = self.meta.host.map(usize::from);
        let (mut at, mut above) = (0, 0);
        self.slots.retain(|slot| {
            let is_it = slot.field(bytes).name.eq_ignore_ascii_case(name.as_bytes());
            if is_it && host.is_some_and(|host| at < host) {
                above += 1;
            }
            at += 1;
            !is_it
        });
        self.meta.host = host.map(|host| (host - above) as u8);
        Ok(before - self.slots.len())
    }

    /// Adds a line after the others.
    ///
    /// # Errors
    /// The line is invalid, decides the framing, the host or the connection, or there is no room for it.
    pub fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), EncodeError> {
        let mut line = Vec::new();
        put_field(&mut line, name, value)?;
        if self.slots.len() >= LINES_MAX || self.bytes.len() + line.len() > HEAD_BYTES_MAX {
            return Err(EncodeError::Value);
        }
        // The empty line stays the last one.
        let at = self.bytes.len().saturating_sub(2);
        self.bytes.splice(at..at, line);
        self.slots.push(Slot::at(at, name.len(), value.len()));
        Ok(())
    }

    /// Replaces all lines of this name by one.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn set(&mut self, name: &str, value: &[u8]) -> Result<(), EncodeError> {
        let (slots, host) = (self.slots.clone(), self.meta.host);
        self.remove(name)?;
        self.add(name.as_bytes(), value).inspect_err(|_| (*self.slots, self.meta.host) = (slots, host))
    }
}
