//! A copy shared by several programs: the path of an entry alone decides its part.
//!
//! A part copies the entries of its share that are not directories and have one name. It makes the
//! directories on the way. Attributes of directories, and files with several names, are left to a last pass
//! over the whole tree ([`Options::finish`](crate::Options::finish)): directories stop changing only when all
//! parts are complete, and only one program can know all names of a file. So parts need no communication, run
//! at the same time or one after the other, and each can be repeated. Start at [`Part`].

use crate::dir::lstat;
use crate::entry::{Entry, Outcome};
use crate::error::{Error, ErrorKind, Refusal};
use crate::options::{Dereference, Link, Options};
use crate::plan::Facts;
use crate::report::Skip;
use crate::worker::Worker;
use rustix::fs::FileType;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// One part of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number, from 0.
    pub index: u32,
    /// The number of parts.
    pub count: u32,
}

impl Part {
    /// Returns whether this part has the entry with this path below its operand.
    pub fn has(self, path: &Path) -> bool {
        hash(path.as_os_str().as_bytes()) % u64::from(self.count.max(1)) == u64::from(self.index)
    }
}

/// Returns FNV-1a with a final mixing, so that all bits affect the remainder. It is the same on every machine
/// and in every version, because parts of one copy may be made by several.
fn hash(bytes: &[u8]) -> u64 {
    let fnv = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (fnv ^ (fnv >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}

/// Refuses options that have no meaning for parts.
pub(crate) fn check(options: &Options) -> Result<(), Refusal> {
    if options.part.is_none() && !options.finish {
        return Ok(());
    }
    let option = if options.finish { "--finish" } else { "--part" };
    let refuse = |why: &str| Err(Refusal::Options(format!("{option} {why}")));
    if options.part.is_some_and(|part| part.index >= part.count) {
        return refuse("I/N: I from 1 to N");
    }
    if options.part.is_some() && options.finish {
        return refuse(
            "cannot be combined with --part: the last pass is over all of it, when all parts are done",
        );
    }
    if !options.recursive || !options.resume {
        return refuse("needs -a or -r, and --resume: it is for trees, and goes by what --resume sees");
    }
    if options.parents || options.backup.is_some() || options.interactive || options.link != Link::No {
        return refuse("cannot be combined with --parents, --backup, -i, -l and -s");
    }
    if options.preserve.links && options.dereference == Dereference::Always {
        return refuse(
            "with -L cannot keep hard links together: links may lead to any file (--no-preserve=links)",
        );
    }
    if options.finish && options.dry_run {
        return refuse(
            "cannot be combined with --dry-run: repeat the parts with --dry-run to see what they have left",
        );
    }
    Ok(())
}

impl Worker<'_, '_> {
    /// Returns the outcome of an entry (not a directory) that belongs to another program; `None` for this
    /// program's.
    pub(crate) fn of_others(&mut self, entry: &Entry<'_>, facts: &Facts) -> Result<Option<Outcome>, Error> {
        let options = self.run.options;
        let several = options.preserve.links && facts.nlink > 1;
        if let Some(part) = options.part {
            let elsewhere = entry.operand && !part.has(&entry.dir.below_operand(entry.source));
            return Ok((several || elsewhere).then_some(Outcome::Skipped(Skip::OfAnotherPart)));
        }
        if !options.finish || several {
            return Ok(None);
        }
        // A part should have copied all of these.
        let there = lstat(entry.handles.target(), entry.target);
        let made = there.is_ok_and(|there| there.kind == facts.kind)
            && (facts.kind != FileType::RegularFile
                || self
                    .skips(entry)?
                    .is_some_and(|(skip, _)| matches!(skip, Skip::Resumed | Skip::NotOlder)));
        if made {
            return Ok(Some(Outcome::Skipped(Skip::OfAnotherPart)));
        }
        Err(Error::plain(ErrorKind::LeftByParts, entry.target_path()).with(entry.source_path()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_in_one_part_and_parts_are_alike_in_number() {
        for count in [1, 2, 3, 8, 100] {
            let mut counts = vec![0_u32; count as usize];
            for number in 0..20_000_u32 {
                let path = format!("d{}/f{number}", number % 97);
                let of: Vec<u32> =
                    (0..count).filter(|index| Part { index: *index, count }.has(Path::new(&path))).collect();
                let [index] = of[..] else { panic!("{path} is in the parts {of:?}") };
                counts[index as usize] += 1;
            }
            let expected = f64::from(20_000 / count);
            // Five deviations of a binomial share.
            let spread = 5.0 * expected.sqrt() + 1.0;
            assert!(counts.iter().all(|parts| (f64::from(*parts) - expected).abs() < spread), "{counts:?}");
        }
    }

    /// A change here would make parts of one copy, made by two versions, overlap.
    #[test]
    fn the_hash_of_a_path_never_changes() {
        assert_eq!(hash(b""), 0xefd0_1f60_ba99_2926);
        assert_eq!(hash(b"a/b"), 0xf2a5_b2f6_0b00_6aec);
    }
}
