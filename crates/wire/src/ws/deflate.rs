//! permessage-deflate (RFC 7692) without context takeover: each message is compressed separately, so that one
//! compressor serves all connections of a worker, and an idle connection holds none.

use super::error::{Error, Problem};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// The name in `Sec-WebSocket-Extensions`.
pub const NAME: &str = "permessage-deflate";

/// The offer of a client.
pub const OFFER: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

/// The end of a flushed deflate stream, which is not sent (RFC 7692 §7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// Step size by which the output grows.
const STEP_BYTES: usize = 8 * 1024;

/// The agreed parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Agreed {
    /// The window that this side compresses with, as a power of two: 9 to 15.
    pub window_bits: u8,
}

/// Returns the extensions of a list: names, and parameters with their values.
fn extensions(list: &str) -> impl Iterator<Item = (&str, impl Iterator<Item = (&str, Option<&str>)>)> {
    list.split(',').map(|one| {
        let mut parts = one.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let parameters = parts.map(|part| match part.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim().trim_matches('"'))),
            None => (part, None),
        });
        (name, parameters)
    })
}

fn window_bits(value: Option<&str>) -> Option<u8> {
    let value = value?;
    let bits: u8 = value.parse().ok()?;
    // No signs and no leading zeros.
    ((8..=15).contains(&bits) && bits.to_string() == value).then_some(bits)
}

/// Returns a server's answer to the offers of a client: the agreed parameters, and the value of
/// `Sec-WebSocket-Extensions`. `None`: no offer can be accepted.
pub fn answer(offers: &str) -> Option<(Agreed, String)> {
    'offers: for (name, parameters) in extensions(offers) {
        if name != NAME {
            continue;
        }
        let mut agreed = Agreed { window_bits: 15 };
        let mut asked = None;
        let mut seen: Vec<&str> = Vec::new();
        for (name, value) in parameters {
            if seen.contains(&name) {
                continue 'offers;
            }
            seen.push(name);
            match (name, value) {
                ("server_no_context_takeover" | "client_no_context_takeover", None)
                | ("client_max_window_bits", None) => {}
                ("client_max_window_bits", value) if window_bits(value).is_some() => {}
                // The compressor does not support a window of 256 bytes; another offer may be acceptable.
                ("server_max_window_bits", value) => match window_bits(value) {
                    Some(bits) if bits >= 9 => (agreed.window_bits, asked) = (bits, Some(bits)),
                    _ => continue 'offers,
                },
                _ => continue 'offers,
            }
        }
        let mut text = OFFER.to_owned();
        if let Some(bits) = asked {
            text.push_str(&format!("; server_max_window_bits={bits}"));
        }
        return Some((agreed, text));
    }
    None
}

/// Returns the parameters that a server accepted of [`OFFER`]; `Ok(None)` if it accepted nothing.
///
/// # Errors
/// It agreed to something that was not offered.
pub fn taken(answer: &str) -> Result<Option<Agreed>, NotOffered> {
    let mut agreed = None;
    for (name, parameters) in extensions(answer) {
        if name.is_empty() {
            continue;
        }
        if name != NAME || agreed.is_some() {
            return Err(NotOffered);
        }
        let mut resets = false;
        for (name, value) in parameters {
            match (name, value) {
                ("server_no_context_takeover", None) => resets = true,
                ("client_no_context_takeover", None) => {}
                // The server's own window, which ours can inflate.
                ("server_max_window_bits", value) if window_bits(value).is_some() => {}
                _ => return Err(NotOffered),
            }
        }
        // Messages that depend on each other cannot be inflated separately.
        if !resets {
            return Err(NotOffered);
        }
        agreed = Some(Agreed { window_bits: 15 });
    }
    Ok(agreed)
}

/// A server agreed to an extension or parameter that the client has not offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOffered;

/// Compresses messages, one after another.
#[derive(Debug, Default)]
pub struct Deflater {
    /// By window bits from 9 on; each is made on demand.
    compressors: [Option<Compress>; 7],
}

impl Deflater {
    /// Appends the compressed `message` to `out`.
    pub fn deflate(&mut self, agreed: Agreed, message: &[u8], out: &mut Vec<u8>) {
        let bits = agreed.window_bits.clamp(9, 15);
        let Some(place) = self.compressors.get_mut(usize::from(bits - 9)) else { return };
        let compressor =
            place.get_or_insert_with(|| Compress::new_with_window_bits(Compression::fast(), false, bits));
        compressor.reset();
        let mut used = 0;
        loop {
            out.reserve(STEP_BYTES.min(message.len() - used + 64));
            let before = compressor.total_in();
            let rest = message.get(used..).unwrap_or_default();
            // Fails only after the end of a stream, which is never written here.
            let _ = compressor.compress_vec(rest, out, FlushCompress::Sync);
            used += (compressor.total_in() - before) as usize;
            // Remaining room means that all output was written.
            if used == message.len() && out.len() < out.capacity() {
                break;
            }
        }
        if out.ends_with(&TAIL) {
            out.truncate(out.len() - TAIL.len());
        }
    }
}

/// Inflates messages, one after another.
#[derive(Debug, Default)]
pub struct Inflater {
    decompressor: Option<Decompress>,
}

impl Inflater {
    /// Inflates `message`, at most to `bytes_max` bytes, and appends the result to `out`.
    ///
    /// # Errors
    /// It is not a deflate stream, or inflates to more.
    pub fn inflate(&mut self, message: &[u8], out: &mut Vec<u8>, bytes_max: usize) -> Result<(), Error> {
        let decompressor = self.decompressor.get_or_insert_with(|| Decompress::new(false));
        decompressor.reset(false);
        let end = out.len().saturating_add(bytes_max);
        for mut part in [message, &TAIL] {
            loop {
                out.reserve(STEP_BYTES);
                let before = (decompressor.total_in(), decompressor.total_out());
                let status = decompressor
                    .decompress_vec(part, out, FlushDecompress::Sync)
                    .map_err(|_| Error::new(Problem::Deflate))?;
                let used = (decompressor.total_in() - before.0) as usize;
                let made = decompressor.total_out() - before.1;
                part = part.get(used..).unwrap_or_default();
                if out.len() > end {
                    return Err(Error::new(Problem::TooLong));
                }
                match status {
                    // A final block does not end the message (RFC 7692 §7.2.3.4).
                    Status::StreamEnd => {
                        decompressor.reset(false);
                        if part.is_empty() {
                            break;
                        }
                    }
                    _ if used == 0 && made == 0 => {
                        if !part.is_empty() && out.len() < out.capacity() {
                            return Err(Error::new(Problem::Deflate));
                        }
                        if part.is_empty() {
                            break;
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn there_and_back(message: &[u8], bits: u8) -> Vec<u8> {
        let (mut deflater, mut inflater) = (Deflater::default(), Inflater::default());
        let mut packed = Vec::new();
        for _ in 0..2 {
            packed.clear();
            deflater.deflate(Agreed { window_bits: bits }, message, &mut packed);
        }
        let mut out = b"before".to_vec();
        for _ in 0..2 {
            out.truncate(6);
            inflater.inflate(&packed, &mut out, message.len()).unwrap();
        }
        assert!(out.starts_with(b"before"));
        out.split_off(6)
    }

    #[test]
    fn a_message_comes_back_whatever_its_size_and_window() {
        let noise: Vec<u8> =
            (0..200_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for bits in 9..=15 {
            for message in [&b""[..], b"a", &[b'x'; 100_000], &noise] {
                assert_eq!(there_and_back(message, bits), message);
            }
        }
    }

    /// RFC 7692 §7.2.3.1 and §7.2.3.4.
    #[test]
    fn the_examples_of_the_standard_inflate() {
        let mut inflater = Inflater::default();
        for packed in [
            &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..],
            &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00],
            &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
            &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00],
        ] {
            let mut out = Vec::new();
            inflater.inflate(packed, &mut out, 100).unwrap();
            assert_eq!(out, b"Hello", "{packed:x?}");
        }
    }

    #[test]
    fn what_inflates_to_more_than_the_limit_is_refused_before_it_is_all_there() {
        let mut packed = Vec::new();
        Deflater::default().deflate(Agreed { window_bits: 15 }, &vec![0; 50_000_000], &mut packed);
        assert!(packed.len() < 1_000_000);
        let mut out = Vec::new();
        let refused = Inflater::default().inflate(&packed, &mut out, 1_000_000).unwrap_err();
        assert_eq!(refused.problem(), Problem::TooLong);
        assert!(out.capacity() < 5_000_000, "{} bytes", out.capacity());
    }

    #[test]
    fn garbage_is_refused() {
        for garbage in [&b"\xff\xff\xff"[..], b"\x07", b"\x00\x05\x00\x05\x00hello"] {
            let refused = Inflater::default().inflate(garbage, &mut Vec::new(), 1000).unwrap_err();
            assert_eq!(refused.problem(), Problem::Deflate, "{garbage:?}");
        }
    }

    #[test]
    fn offers_are_answered_and_those_that_cannot_be_taken_are_passed_over() {
        let window = |offers: &str| answer(offers).map(|(agreed, _)| agreed.window_bits);
        assert_eq!(window("permessage-deflate"), Some(15));
        assert_eq!(window("x-other, permessage-deflate; client_max_window_bits"), Some(15));
        assert_eq!(window("permessage-deflate; server_max_window_bits=10"), Some(10));
        assert_eq!(window("permessage-deflate; server_max_window_bits=8, permessage-deflate"), Some(15));
        for refused in [
            "",
            "deflate",
            "permessage-deflate; server_max_window_bits=8",
            "permessage-deflate; unknown",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; server_max_window_bits=010",
            "permessage-deflate; client_max_window_bits=7",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; client_max_window_bits; client_max_window_bits",
        ] {
            assert_eq!(window(refused), None, "{refused}");
        }
        let (_, text) = answer("permessage-deflate; server_max_window_bits=10").unwrap();
        assert_eq!(taken(&text).unwrap(), Some(Agreed { window_bits: 15 }));
    }

    #[test]
    fn a_server_that_agrees_to_what_was_not_offered_is_refused() {
        assert_eq!(taken(""), Ok(None));
        assert_eq!(taken("permessage-deflate"), Err(NotOffered));
        assert_eq!(
            taken("permessage-deflate; server_no_context_takeover; client_max_window_bits=9"),
            Err(NotOffered)
        );
        assert_eq!(taken("x-other"), Err(NotOffered));
    }
}
