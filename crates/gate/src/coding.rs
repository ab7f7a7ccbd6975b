//! Content codings, and which of them a client accepts (RFC 9110 §12.5.3).

use ringroad_http::Fields;
use std::io::{self, BufRead, Read};

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// `br`
    Brotli,
    /// `zstd`
    Zstd,
    /// `gzip`
    Gzip,
}

impl Coding {
    /// The best first, of those that a client likes equally.
    pub const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    /// Returns its name, as in `Content-Encoding`.
    pub const fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// Returns what is appended to the file's name.
    pub const fn suffix(self) -> &'static str {
        match self {
            Coding::Brotli => ".br",
            Coding::Zstd => ".zst",
            Coding::Gzip => ".gz",
        }
    }

    /// Decodes what `from` has: of gzip the first member, since clients read no further.
    ///
    /// # Errors
    /// There is no memory for it. Reading fails where the bytes are not of this coding.
    pub fn decoder<'r>(self, from: impl BufRead + 'r) -> io::Result<Box<dyn Read + 'r>> {
        Ok(match self {
            Coding::Brotli => Box::new(brotli::Decompressor::new(from, 4096)),
            Coding::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(from)?),
            Coding::Gzip => Box::new(flate2::bufread::GzDecoder::new(from)),
        })
    }

    /// Returns whether bytes begin as this coding does; `None` if it has no mark of its own.
    pub fn marks(self, bytes: &[u8]) -> Option<bool> {
        match self {
            Coding::Brotli => None,
            Coding::Zstd => Some(bytes.starts_with(b"\x28\xb5\x2f\xfd")),
            Coding::Gzip => Some(bytes.starts_with(b"\x1f\x8b")),
        }
    }

    /// Returns its place in a set.
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of all codings.
pub const ALL_BITS: u8 = Coding::Brotli.bit() | Coding::Zstd.bit() | Coding::Gzip.bit();

/// Returns the codings of `there` (a set of [`Coding::bit`]s) that the client accepts, highest weight first.
/// Codings with a lower weight than `identity` are left out.
pub fn accepted(fields: Fields<'_>, there: u8) -> impl Iterator<Item = Coding> + use<> {
    let mut weights = [None; 3];
    let (mut identity, mut rest) = (None, None);
    for value in fields.get_all("accept-encoding") {
        for element in value.split(|byte| *byte == b',') {
            let mut words = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = words.next().unwrap_or_default();
            let weight = weight(words.next());
            let known = Coding::ALL.iter().position(|coding| {
                let old = *coding == Coding::Gzip && name.eq_ignore_ascii_case(b"x-gzip");
                old || name.eq_ignore_ascii_case(coding.name().as_bytes())
            });
            match known.and_then(|at| weights.get_mut(at)) {
                Some(place) => *place = Some(weight),
                None if name == b"*" => rest = Some(weight),
                None if name.eq_ignore_ascii_case(b"identity") => identity = Some(weight),
                None => {}
            }
        }
    }
    // A coding without a weight of its own has that of `*`. `identity` is always acceptable unless it is
    // weighted.
    let least = identity.unwrap_or(0);
    let mut liked: Vec<(u16, Coding)> = Coding::ALL
        .into_iter()
        .zip(weights)
        .filter(|(coding, _)| there & coding.bit() != 0)
        .filter_map(|(coding, weight)| Some((weight.or(rest)?, coding)))
        .filter(|(weight, _)| *weight > 0 && *weight >= least)
        .collect();
    // Stable: ours is the order among equals.
    liked.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    liked.into_iter().map(|(_, coding)| coding)
}

/// `q=0.5` as thousandths; 1000 where nothing is said, 0 where it is nonsense.
fn weight(word: Option<&[u8]>) -> u16 {
    let Some(word) = word else { return 1000 };
    let Some((name, value)) = word.iter().position(|byte| *byte == b'=').map(|at| word.split_at(at)) else {
        return 0;
    };
    let value = str::from_utf8(value.get(1..).unwrap_or_default()).unwrap_or_default().trim();
    let plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !name.trim_ascii().eq_ignore_ascii_case(b"q") || !plain || value.len() > 5 {
        return 0;
    }
    value.parse::<f32>().map_or(0, |weight| (weight.clamp(0.0, 1.0) * 1000.0).round() as u16)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Coding::{Brotli, Gzip, Zstd};
    use super::*;
    use ringroad_http::{FieldBlock, Request, RequestBody};

    fn of(line: &str, there: u8) -> Vec<Coding> {
        let lines = FieldBlock::of([("Accept-Encoding", line)]).unwrap();
        let request = Request::from_parts("GET", "/", "a", &lines, RequestBody::empty()).unwrap();
        accepted(request.headers(), there).collect()
    }

    #[test]
    fn the_client_ranks_and_we_break_ties() {
        let all = Coding::ALL.map(Coding::bit).into_iter().sum();
        for (line, expected) in [
            ("gzip, deflate, br, zstd", &[Brotli, Zstd, Gzip][..]),
            ("gzip", &[Gzip]),
            ("x-gzip", &[Gzip]),
            ("GZIP;q=1.0", &[Gzip]),
            ("br;q=0.5, gzip", &[Gzip, Brotli]),
            ("br;q=0, *", &[Zstd, Gzip]),
            ("*;q=0", &[]),
            ("identity", &[]),
            ("identity;q=0.5, gzip;q=0.4, br;q=0.6", &[Brotli]),
            ("", &[]),
            ("deflate", &[]),
            ("gzip;q=x, br;q=-1, zstd;z=1", &[]),
            ("gzip;q=0.001", &[Gzip]),
        ] {
            assert_eq!(of(line, all), expected, "{line}");
        }
    }

    #[test]
    fn only_what_is_there_is_offered() {
        assert_eq!(of("gzip, br, zstd", Gzip.bit()), [Gzip]);
        assert_eq!(of("gzip, br, zstd", 0), []);
    }
}
