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
        return refuse("list and files-from: one of them says what is copied");
    }
    if options.list.is_some() || options.files_from.is_some() {
        let one = matches!(sources, [source] if source.is_dir());
        if !one || !options.recursive || options.parents {
            return refuse(
                "list and files-from have paths below one SOURCE, which is a directory (-a, without --parents)",
            );
        }
        if options.interactive {
            return refuse("list and files-from cannot be combined with questions (-i)");
        }
    }
    if options.list.is_some() && options.dereference == Dereference::Always {
        return refuse("list has links as links: it cannot be combined with -L");
    }
    if options.journal.is_some() {
        if options.list.is_none() || !options.resume {
            return refuse("journal is of a copy by a list that can be gone on with (--list, --resume)");
        }
        if options.manifest.is_some() || options.verify {
            return refuse("journal passes over files, which manifest and verify have to read");
        }
    }
    if options.update_from_manifest.is_some()
        && (options.verify || keeps || options.attributes_only || options.link != Link::No)
    {
        return refuse("update-from-manifest cannot be combined with verify, -n, attributes-only, -l and -s");
    }
    if options.max_delete.is_some() && !options.delete {
        return refuse("max-delete is a bound for delete");
    }
    if options.delete {
        if !options.recursive {
            return refuse("delete is for trees (-a, -r)");
        }
        if options.files_from.is_some() || options.part.is_some() {
            return refuse(
                "delete compares whole trees: not with files-from, and with parts in the last pass",
            );
        }
        if keeps || options.interactive || options.backup.is_some() {
            return refuse("delete cannot be combined with what keeps existing files (-n, -i, backups)");
        }
    }
    if options.rate.is_some() && options.engine == Engine::RingSplice {
        return refuse("rate: the engine ring-splice moves bytes without this program");
    }
    Ok(())
}
