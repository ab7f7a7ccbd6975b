//! Compressed forms beside a file: whether one of them is of the file as it is.
//!
//! Times do not tell. A copy that does not keep times has those of the copying, in any order: a form that was
//! made of this very file may be older by minutes, and one of an earlier release may be newer. So a form is
//! decoded and compared with the file, once for each state of the two. Times count only where bytes that bear
//! the ending are in no such coding. Start at [`usable`].

use super::condition::may_change_unseen;
use super::open::{Found, Identity, Root};
use super::{find, identity};
use lru::LruCache;
use ringroad_engine::time::sleep;
use ringroad_engine::{spawn, spawn_blocking};
use ringroad_gate::coding::Coding;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// What a form is to the file beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It decodes to the file.
    Same,
    /// It decodes to something else, or breaks off.
    Other,
    /// It is in no such coding.
    Unknown,
    /// It is being compared.
    UnderWay,
}

/// States of a file and of a form, and the coding of the form.
type Pair = (Identity, Identity, Coding);

/// The verdicts of this process, the one used longest ago first to go. All workers share them: a form is
/// decoded once.
static JUDGED: Mutex<Option<LruCache<Pair, Verdict>>> = Mutex::new(None);

/// Most verdicts; each takes some 250 bytes.
const JUDGED_MAX: NonZeroUsize = match NonZeroUsize::new(16 * 1024) {
    Some(most) => most,
    None => NonZeroUsize::MIN,
};

/// Longer files are compared once, and requests that come meanwhile wait for it. Shorter ones are compared
/// sooner than a wait would end.
const SHORT_BYTES_MAX: u64 = 1 << 20;

/// While a longer file is compared, requests get it without a coding.
const AWAITED_BYTES_MAX: u64 = 64 << 20;

/// Between two looks whether another request has the verdict.
const PAUSE: Duration = Duration::from_millis(5);

/// What is decoded beyond the length of the file, only to see whether it is of the coding at all.
const EXCESS_BYTES_MAX: u64 = 1 << 20;

fn judged() -> MutexGuard<'static, Option<LruCache<Pair, Verdict>>> {
    JUDGED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(pair: Pair, verdict: Option<Verdict>) {
    let mut judged = judged();
    let judged = judged.get_or_insert_with(|| LruCache::new(JUDGED_MAX));
    match verdict {
        Some(verdict) => drop(judged.put(pair, verdict)),
        None => drop(judged.pop(&pair)),
    }
}

/// Returns the state of the form of `path` in a coding, if the form is that of the file in this state.
pub(super) async fn usable(
    root: &Arc<Root>,
    path: &[u8],
    coding: Coding,
    file: Identity,
) -> Option<Identity> {
    let stored = [path, coding.suffix().as_bytes()].concat();
    let form = identity(root, &stored).await?;
    let pair = (file, form, coding);
    let verdict = loop {
        let known = judged().as_mut().and_then(|judged| judged.get(&pair).copied());
        match known {
            Some(Verdict::UnderWay) if file.bytes > AWAITED_BYTES_MAX => return None,
            Some(Verdict::UnderWay) => sleep(PAUSE).await,
            Some(verdict) => break verdict,
            None => {
                let asked = (Arc::clone(root), path.to_vec(), stored.clone());
                let work = move || async move { judge(asked, pair).await };
                if file.bytes > AWAITED_BYTES_MAX {
                    note(pair, Some(Verdict::UnderWay));
                    spawn(work()).detach();
                    return None;
                }
                if file.bytes > SHORT_BYTES_MAX {
                    note(pair, Some(Verdict::UnderWay));
                }
                break work().await?;
            }
        }
    };
    match verdict {
        Verdict::Same => Some(form),
        Verdict::Other | Verdict::UnderWay => None,
        Verdict::Unknown => (form.modified >= file.modified).then_some(form),
    }
}

/// Takes back that a pair is being compared, unless there is a verdict: the request that waits may be
/// dropped.
struct UnderWay(Pair);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut judged = judged();
        if let Some(judged) = judged.as_mut()
            && judged.peek(&self.0) == Some(&Verdict::UnderWay)
        {
            judged.pop(&self.0);
        }
    }
}

/// Compares the two on another thread. `None`: one of them is another file by now, or cannot be read.
async fn judge(asked: (Arc<Root>, Vec<u8>, Vec<u8>), pair: Pair) -> Option<Verdict> {
    let under_way = UnderWay(pair);
    let (root, path, stored) = asked;
    let (file, form, coding) = pair;
    let Ok(Found::File(opened, now)) = find(&root, &path).await else { return None };
    let Ok(Found::File(opened_form, form_now)) = find(&root, &stored).await else { return None };
    if (now, form_now) != (file, form) {
        return None;
    }
    let compared = spawn_blocking(move || {
        let verdict = compare(&opened, file.bytes, &opened_form, form.bytes, coding);
        let now = |file: &File| Identity::of_open(file).ok();
        let is_still = now(&opened) == Some(file) && now(&opened_form) == Some(form);
        verdict.ok().filter(|_| is_still)
    });
    let verdict = compared.await.ok().flatten()?;
    let now = SystemTime::now();
    let settled = !may_change_unseen(&file, now) && !may_change_unseen(&form, now);
    note(pair, settled.then_some(verdict));
    drop(under_way);
    Some(verdict)
}

/// Decodes a form, and compares what comes with the file.
fn compare(
    file: impl Read,
    bytes: u64,
    form: impl Read,
    form_bytes: u64,
    coding: Coding,
) -> io::Result<Verdict> {
    // Each coding has at least a byte, also of nothing: it was cut.
    if form_bytes == 0 {
        return Ok(Verdict::Other);
    }
    let mut form = BufReader::with_capacity(64 << 10, form);
    let is_marked = coding.marks(form.fill_buf()?);
    if is_marked == Some(false) {
        return Ok(Verdict::Unknown);
    }
    let Ok(mut decoded) = coding.decoder(form) else { return Ok(Verdict::Unknown) };
    let mut file = BufReader::with_capacity(64 << 10, file);
    let (mut buffer, mut own) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    let (mut length, mut same) = (0, true);
    loop {
        let read = match decoded.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            // Of a coding that marks its beginning it is certain that this is a form, and broken. Else what
            // has come tells.
            Err(_) if is_marked == Some(true) || (same && length > 0) => return Ok(Verdict::Other),
            Err(_) => return Ok(Verdict::Unknown),
        };
        length += read as u64;
        if same {
            let (got, own) =
                (buffer.get(..read).unwrap_or_default(), own.get_mut(..read).unwrap_or_default());
            same = length <= bytes && {
                file.read_exact(own)?;
                got == own
            };
        }
        if !same && (is_marked == Some(true) || length > bytes + EXCESS_BYTES_MAX) {
            return Ok(Verdict::Other);
        }
    }
    Ok(if same && length == bytes { Verdict::Same } else { Verdict::Other })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    fn coded(coding: Coding, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match coding {
            Coding::Brotli => {
                let mut writer = brotli::CompressorWriter::new(&mut out, 4096, 5, 22);
                writer.write_all(content).unwrap();
            }
            Coding::Zstd => out = zstd::encode_all(content, 3).unwrap(),
            Coding::Gzip => {
                let mut writer = flate2::write::GzEncoder::new(&mut out, flate2::Compression::default());
                writer.write_all(content).unwrap();
                writer.finish().unwrap();
            }
        }
        out
    }

    fn of(content: &[u8], form: &[u8], coding: Coding) -> Verdict {
        compare(content, content.len() as u64, form, form.len() as u64, coding).unwrap()
    }

    #[test]
    fn a_form_is_that_of_the_file_if_it_decodes_to_it() {
        let long: Vec<u8> = (0..300_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        for content in [&b""[..], b"a", b"let x = 1;", &long] {
            for coding in Coding::ALL {
                let form = coded(coding, content);
                assert_eq!(of(content, &form, coding), Verdict::Same, "{coding:?} {}", content.len());
                // An earlier or later state: of the same length, longer, shorter.
                let mut others = vec![[content, b"x"].concat()];
                if let Some((last, before)) = content.split_last() {
                    others.push([before, &[last ^ 1]].concat());
                    others.push(before.to_vec());
                    others.push([&[content[0] ^ 1], &content[1..]].concat());
                }
                for other in others {
                    assert_eq!(of(&other, &form, coding), Verdict::Other, "{coding:?} {}", content.len());
                }
            }
        }
    }

    #[test]
    fn a_form_that_was_cut_is_not_that_of_the_file() {
        let content: Vec<u8> =
            (0..100_000_u32).flat_map(|number| (number * 7 % 1013).to_le_bytes()).collect();
        for coding in Coding::ALL {
            let form = coded(coding, &content);
            for bytes in [0, form.len() / 2, form.len() - 1] {
                assert_eq!(of(&content, &form[..bytes], coding), Verdict::Other, "{coding:?} {bytes}");
            }
        }
    }

    #[test]
    fn bytes_in_no_coding_are_told_apart_from_a_form_of_another_state() {
        for text in ["brotli", "gzip", "small", "packed", "aaaaaaaaaa", "{\"a\": 1}", "x"] {
            for coding in Coding::ALL {
                let verdict = of(b"body { color: red }", text.as_bytes(), coding);
                assert_eq!(verdict, Verdict::Unknown, "{coding:?} {text}");
            }
        }
    }
}
