//! Refuses options that have no meaning together, before anything is done.
//!
//! What parts of a copy need is in `parts.rs`. Start at [`check`].

use crate::error::Refusal;
use crate::options::{Dereference, Engine, Link, Options, Update};
use std::path::PathBuf;

/// Refuses what lists, deletion and limits cannot be combined with.
pub(crate) fn check(sources: &[PathBuf], options: &Options) -> Result<(), Refusal> {
    let keeps = matches!(options.update, Update::None | Update::NoneFail);
    let refuse = |why: &str| Err(Refusal::Options(why.to_owned()));
    if options.list.is_some() && options.files_from.is_some() {
        return refuse("--list and --files-from: give one of them, as each says what is copied");
    }
    if options.list.is_some() || options.files_from.is_some() {
        let one = matches!(sources, [source] if source.is_dir());
        if !one || !options.recursive || options.parents {
            return refuse(
                "--list and --files-from need one SOURCE, a directory, and -a or -r without --parents: their paths are below it",
            );
        }
        if options.interactive {
            return refuse("--list and --files-from cannot be combined with -i");
        }
    }
    if options.list.is_some() && options.dereference == Dereference::Always {
        return refuse("--list cannot be combined with -L: a list has links as links");
    }
    if options.journal.is_some() {
        if options.list.is_none() || !options.resume {
            return refuse(
                "--journal needs --list and --resume: it records which ranges of the list are complete",
            );
        }
        if options.manifest.is_some() || options.verify {
            return refuse(
                "--journal cannot be combined with --manifest and --verify: it skips files that these have to read",
            );
        }
    }
    if options.update_from_manifest.is_some()
        && (options.verify || keeps || options.attributes_only || options.link != Link::No)
    {
        return refuse(
            "--update-from-manifest cannot be combined with --verify, -n, --attributes-only, -l and -s",
        );
    }
    if options.max_delete.is_some() && !options.delete {
        return refuse("--max-delete needs --delete, of which it is the bound");
    }
    if options.delete {
        if !options.recursive {
            return refuse("--delete needs -a or -r: it compares whole trees");
        }
        if options.files_from.is_some() || options.part.is_some() {
            return refuse(
                "--delete cannot be combined with --files-from and --part: it compares whole trees (with parts, give it to \
                 --finish)",
            );
        }
        if keeps || options.interactive || options.backup.is_some() {
            return refuse("--delete cannot be combined with what keeps existing files (-n, -i, --backup)");
        }
    }
    if options.rate.is_some() && options.engine == Engine::RingSplice {
        return refuse(
            "--rate cannot be combined with --engine ring-splice, which moves bytes without this program",
        );
    }
    Ok(())
}
