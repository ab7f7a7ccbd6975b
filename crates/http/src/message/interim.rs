//! A head that is sent before the response.

use ringroad_wire::FieldBlock;

/// Status (102 to 199) and lines.
#[derive(Clone, Debug)]
pub(crate) struct Interim {
    pub(crate) status: u16,
    pub(crate) lines: FieldBlock,
}

impl Interim {
    /// Returns whether a handler may send an interim head with this status. 100 is sent by the server, and
    /// 101 is a response.
    pub(crate) fn may_have(status: u16) -> bool {
        (102..=199).contains(&status)
    }

    /// Writes the head for HTTP/1.1.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let reason = match self.status {
            102 => "Processing",
            103 => "Early Hints",
            _ => "",
        };
        out.extend_from_slice(format!("HTTP/1.1 {} {reason}\r\n", self.status).as_bytes());
        out.extend_from_slice(self.lines.bytes());
        out.extend_from_slice(b"\r\n");
    }
}
