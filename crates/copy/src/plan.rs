//! Decides what happens to one entry, from metadata and options alone. A pure function, so every rule can be
//! tested without files.
//!
//! Leaves to others: gathering the facts (`entry.rs`), doing what was decided (`entry.rs`, `place.rs`). Start
//! at [`decide`].

use crate::error::ErrorKind;
use crate::options::{Dereference, Link, Options, Update};
use crate::report::Skip;
use rustix::fs::{FileType, Stat};

/// The metadata of one file, from `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) kind: FileType,
    /// Permission bits with setuid, setgid and sticky.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    /// Bytes on the disk.
    pub(crate) stored: u64,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) nlink: u64,
    pub(crate) rdev: u64,
    pub(crate) atime: (i64, i64),
    pub(crate) mtime: (i64, i64),
    pub(crate) ctime: (i64, i64),
}

impl From<Stat> for Facts {
    #[allow(clippy::unnecessary_cast)] // The fields' widths differ between architectures.
    fn from(stat: Stat) -> Facts {
        Facts {
            kind: FileType::from_raw_mode(stat.st_mode),
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: stat.st_size as u64,
            stored: stat.st_blocks as u64 * 512,
            dev: stat.st_dev as u64,
            ino: stat.st_ino as u64,
            nlink: stat.st_nlink as u64,
            rdev: stat.st_rdev as u64,
            atime: (stat.st_atime as i64, stat.st_atime_nsec as i64),
            mtime: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

impl Facts {
    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }

    /// Returns whether `later`, taken from the same descriptor, shows the same contents. The change time does
    /// not count: a link, a mode or an attribute changes it, and no byte.
    pub(crate) fn same_contents(&self, later: &Facts) -> bool {
        self.identity() == later.identity() && self.size == later.size && self.mtime == later.mtime
    }

    /// Returns whether `later`, taken from the same descriptor, shows the same attributes and contents.
    pub(crate) fn unchanged(&self, later: &Facts) -> bool {
        self.same_contents(later) && self.ctime == later.ctime
    }
}

/// One side of a copy: the name's own facts, and those of what it leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    /// Of the name itself.
    pub(crate) link: Facts,
    /// Metadata of what it leads to; the same if it is not a symbolic link. `None`: a dangling link.
    pub(crate) file: Option<Facts>,
}

impl Side {
    /// Returns the metadata of what is copied.
    pub(crate) fn copied(&self, follow: bool) -> Facts {
        if follow { self.file.unwrap_or(self.link) } else { self.link }
    }

    fn is_symlink(&self) -> bool {
        self.link.kind == FileType::Symlink
    }
}

/// The input of a decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) source: Side,
    pub(crate) target: Side,
    /// Whether the source's links are followed here.
    pub(crate) follow: bool,
    /// Both sides are one directory entry.
    pub(crate) same_name: bool,
    /// Whether the source was named by the user.
    pub(crate) operand: bool,
    /// Whether this copy made the target, from another operand.
    pub(crate) just_created: bool,
    /// The target was compared with its source and differs, so `resume` and `update` do not keep it.
    pub(crate) differs: bool,
}

/// What happens if a target exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing, for this reason.
    Skip(Skip),
    /// Nothing, and that is an error.
    Refuse(ErrorKind),
    /// The target makes room.
    Replace(How),
}

/// How the target makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// A directory takes more entries.
    Merge,
    /// It is renamed.
    Backup,
    /// It is removed.
    Remove,
    /// A finished copy takes its name by rename: with `atomic` and `resume`.
    Swap,
    /// It is opened, through links, emptied and written, as GNU cp does. Other names of the file, its owner,
    /// attributes, mounts and open descriptors stay valid.
    InPlace,
}

/// Decides what happens to an entry if its target exists.
pub(crate) fn decide(options: &Options, question: &Question) -> Action {
    let Question { source, target, follow, operand, .. } = *question;
    let from = source.copied(follow);
    let regular = from.kind == FileType::RegularFile;
    let directory = from.kind == FileType::Directory;
    let linking = options.link != Link::No;
    let through_link = follows_target(options, from.kind)
        || (directory && options.keep_directory_symlink && leads_to_tree(&target));
    if through_link && question.just_created && target.is_symlink() {
        // A link among the sources, made so that another source is written wherever it leads.
        return Action::Refuse(ErrorKind::ThroughJustCreated);
    }
    let to = if through_link { target.file } else { Some(target.link) };
    let Some(to) = to else {
        // A link to nothing is not followed to make a file somewhere else, with -f no more than without.
        return if options.through_dangling {
            Action::Replace(How::InPlace)
        } else {
            Action::Refuse(ErrorKind::DanglingTarget)
        };
    };
    if to.kind == FileType::Directory && directory {
        // Directories are merged, whatever the options on files say.
        if from.identity() == to.identity() {
            // Every name in it is there already, which is enough for a link, and where nothing is replaced.
            let stays = options.link == Link::Hard || options.update == Update::None;
            return if stays { Action::Skip(Skip::Same) } else { Action::Refuse(ErrorKind::SameFile) };
        }
        return Action::Replace(How::Merge);
    }
    // With nothing replaced, naming a file twice loses nothing, and GNU cp is silent too.
    if options.update != Update::None
        && let Some(answer) = same_file(options, question, from, to)
    {
        return answer;
    }
    // That a directory cannot take a file's place is told, whatever is asked of files.
    match options.update {
        _ if directory || question.differs => {}
        Update::All => {}
        // What a stopped copy left torn is younger than its source, and shows by its size.
        Update::Older if options.resume && regular && to.kind == from.kind && to.size != from.size => {}
        Update::Older if is_as_young(options, &from, &to) => return Action::Skip(Skip::NotOlder),
        Update::Older => {}
        Update::None => return Action::Skip(Skip::Exists),
        Update::NoneFail => return Action::Refuse(ErrorKind::NotReplacing),
    }
    if options.resume && !question.differs && looks_complete(options, &from, &to) {
        return Action::Skip(Skip::Resumed);
    }
    if directory {
        // As GNU cp, also with backups: only mv makes one of a file in a directory's place.
        return Action::Refuse(ErrorKind::OtherByDirectory);
    }
    if to.kind == FileType::Directory {
        return Action::Refuse(ErrorKind::DirectoryByOther);
    }
    if operand
        && question.just_created
        && options.backup.as_ref().is_none_or(|b| b.kind != crate::BackupKind::Numbered)
    {
        return Action::Refuse(ErrorKind::JustCreated);
    }
    if options.backup.is_some() {
        return Action::Replace(How::Backup);
    }
    let never_followed = match options.dereference {
        Dereference::Never => true,
        Dereference::Operands => !operand,
        Dereference::Always => false,
    };
    let other_names = options.preserve.links && target.link.nlink > 1 && !target.is_symlink();
    let must_go = options.remove_destination
        || (linking && options.force)
        || (!options.attributes_only && (other_names || never_followed && !regular));
    if must_go {
        return Action::Replace(How::Remove);
    }
    if linking {
        // The call itself says that the name is taken.
        return Action::Replace(How::InPlace);
    }
    let simple = to.kind == FileType::RegularFile && to.nlink == 1 && !target.is_symlink();
    if simple && regular && !options.attributes_only && (options.atomic || options.resume) {
        Action::Replace(How::Swap)
    } else {
        Action::Replace(How::InPlace)
    }
}

/// Returns whether a target that is a link is written through: by contents that are read, not by what else
/// there is, and not where it will be removed.
pub(crate) fn follows_target(options: &Options, source: FileType) -> bool {
    let special = source != FileType::RegularFile && !is_tree(source);
    let written = source == FileType::RegularFile || special && (options.copy_contents || !options.recursive);
    written && options.link == Link::No && options.backup.is_none() && !options.remove_destination
}

/// Returns whether the target is not older than its source. A copy that was given its source's time may have
/// lost some of it to a file system that keeps less, and is not older for that.
fn is_as_young(options: &Options, from: &Facts, to: &Facts) -> bool {
    let kept = if keeps_times(options) { as_kept(from.mtime, to) } else { from.mtime };
    to.mtime >= kept
}

/// Returns whether a target has the type, the size and the time that a finished copy of `from` has.
pub(crate) fn looks_complete(options: &Options, from: &Facts, to: &Facts) -> bool {
    let kept = if keeps_times(options) { as_kept(from.mtime, to) } else { from.mtime };
    from.kind == FileType::RegularFile && to.kind == from.kind && to.size == from.size && to.mtime == kept
}

fn keeps_times(options: &Options) -> bool {
    options.preserve.timestamps || options.resume
}

/// Returns a time as the file system of `there` would keep it, judged by the times that file has: without
/// what lies below the step that all of them are multiples of. The kernel sets one of the three, which has no
/// such step by chance.
pub(crate) fn as_kept((seconds, nanos): (i64, i64), there: &Facts) -> (i64, i64) {
    const SECOND: i64 = 1_000_000_000;
    let times = [there.atime, there.mtime, there.ctime];
    let mut step = 1;
    while step < SECOND && times.iter().all(|(_, nanos)| nanos % (step * 10) == 0) {
        step *= 10;
    }
    // FAT alone keeps every other second, and of the last access the day: midnight somewhere, in quarters of
    // an hour.
    let fat = step == SECOND && there.atime.0 % 900 == 0 && there.mtime.0 % 2 == 0 && there.ctime.0 % 2 == 0;
    (if fat { seconds & !1 } else { seconds }, nanos - nanos % step)
}

/// Returns whether a kind is copied as itself in a recursive copy.
fn is_tree(kind: FileType) -> bool {
    matches!(kind, FileType::Directory | FileType::Symlink)
}

fn leads_to_tree(side: &Side) -> bool {
    side.file.is_some_and(|file| file.kind == FileType::Directory)
}

/// Returns the answer where both sides are one file and copying would destroy it; `None` where it may go on.
fn same_file(options: &Options, question: &Question, from: Facts, to: Facts) -> Option<Action> {
    let Question { source, target, follow, same_name, .. } = *question;
    let refuse = Some(Action::Refuse(ErrorKind::SameFile));
    let same = from.identity() == to.identity();
    let same_link = source.link.identity() == target.link.identity();
    if same && options.link == Link::Hard {
        return Some(Action::Skip(Skip::Same));
    }
    if !follow && source.is_symlink() && target.is_symlink() {
        // Two links: replaced, unless they are one.
        return match (same_name, options.backup.is_some(), same) {
            (true, _, _) => refuse,
            (false, true, _) => None,
            (false, false, true) => Some(Action::Skip(Skip::Same)),
            (false, false, false) => None,
        };
    }
    // Where links are followed, different files may be copied; where not, a file may still be what the other
    // side's link leads to.
    if follow && !same {
        return None;
    }
    if follow && source.is_symlink() && target.is_symlink() && options.remove_destination {
        return None;
    }
    if options.backup.is_some() {
        // The backup keeps what was there, unless moving it aside moves the source too.
        if !same_link {
            let source_would_dangle = follow && source.is_symlink() && !target.is_symlink();
            return if source_would_dangle { refuse } else { None };
        }
        return if same_name { refuse } else { None };
    }
    if options.link == Link::Symbolic && same_link && !target.is_symlink() {
        return refuse;
    }
    // With -f alone too, a target is removed only where it cannot be opened: one file stays one file.
    if options.remove_destination {
        if target.is_symlink() {
            return None;
        }
        if same_link && target.link.nlink > 1 && !same_name {
            return None;
        }
    }
    if !source.is_symlink() && !target.is_symlink() && !same_link {
        return None;
    }
    if options.link == Link::Symbolic && target.is_symlink() {
        return None;
    }
    if !follow {
        let (Some(source_file), Some(target_file)) = (source.file, target.file) else { return None };
        if source_file.identity() != target_file.identity() {
            return None;
        }
        if options.link == Link::Hard {
            return if target.is_symlink() { None } else { Some(Action::Skip(Skip::Same)) };
        }
    }
    refuse
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Backup, BackupKind};

    fn facts(kind: FileType, ino: u64) -> Facts {
        Facts {
            kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 10,
            stored: 4096,
            dev: 1,
            ino,
            nlink: 1,
            rdev: 0,
            atime: (1, 0),
            mtime: (100, 5),
            ctime: (1, 0),
        }
    }

    fn side(kind: FileType, ino: u64) -> Side {
        Side { link: facts(kind, ino), file: Some(facts(kind, ino)) }
    }

    /// Returns a link with this inode that leads to `file`.
    fn link(ino: u64, file: Option<Facts>) -> Side {
        Side { link: facts(FileType::Symlink, ino), file }
    }

    fn question(source: Side, target: Side) -> Question {
        Question {
            source,
            target,
            follow: false,
            same_name: false,
            operand: false,
            just_created: false,
            differs: false,
        }
    }

    const FILE: FileType = FileType::RegularFile;
    const FOLDER: FileType = FileType::Directory;

    fn recursive() -> Options {
        Options { recursive: true, dereference: Dereference::Never, ..Options::default() }
    }

    fn backup(kind: BackupKind) -> Option<Backup> {
        Some(Backup { kind, suffix: "~".into() })
    }

    #[test]
    fn an_existing_file_is_written_in_place_and_swapped_only_when_asked_and_possible() {
        let swap = Action::Replace(How::Swap);
        let in_place = Action::Replace(How::InPlace);
        let plain = question(side(FILE, 1), side(FILE, 2));
        assert_eq!(decide(&recursive(), &plain), in_place, "as GNU cp does");
        let atomic = Options { atomic: true, ..recursive() };
        assert_eq!(decide(&atomic, &plain), swap);
        let mut several = plain;
        several.target.link.nlink = 2;
        several.target.file.as_mut().unwrap().nlink = 2;
        assert_eq!(decide(&atomic, &several), in_place, "its other names show the new contents");
        let through = question(side(FILE, 1), link(2, Some(facts(FILE, 3))));
        assert_eq!(decide(&atomic, &through), in_place, "what the link leads to is written");
        let device = question(side(FILE, 1), side(FileType::CharacterDevice, 2));
        assert_eq!(decide(&atomic, &device), in_place);
    }

    #[test]
    fn directories_merge_and_nothing_else_takes_their_place() {
        let merge = question(side(FOLDER, 1), side(FOLDER, 2));
        for update in [Update::All, Update::Older, Update::None, Update::NoneFail] {
            assert_eq!(decide(&Options { update, ..recursive() }, &merge), Action::Replace(How::Merge));
        }
        let over_file = question(side(FOLDER, 1), side(FILE, 2));
        assert_eq!(decide(&recursive(), &over_file), Action::Refuse(ErrorKind::OtherByDirectory));
        let over_link = question(side(FOLDER, 1), link(2, Some(facts(FOLDER, 3))));
        assert_eq!(decide(&recursive(), &over_link), Action::Refuse(ErrorKind::OtherByDirectory));
        let keep = Options { keep_directory_symlink: true, ..recursive() };
        assert_eq!(decide(&keep, &over_link), Action::Replace(How::Merge));
        let over_folder = question(side(FILE, 1), side(FOLDER, 2));
        assert_eq!(decide(&recursive(), &over_folder), Action::Refuse(ErrorKind::DirectoryByOther));
    }

    #[test]
    fn a_directory_in_a_files_place_is_refused_whatever_is_asked_of_files() {
        let over_file = question(side(FOLDER, 1), side(FILE, 2));
        for update in [Update::Older, Update::None, Update::NoneFail] {
            let options = Options { update, ..recursive() };
            assert_eq!(decide(&options, &over_file), Action::Refuse(ErrorKind::OtherByDirectory));
        }
        let options = Options { backup: backup(BackupKind::Numbered), ..recursive() };
        assert_eq!(decide(&options, &over_file), Action::Refuse(ErrorKind::OtherByDirectory));
    }

    #[test]
    fn what_is_no_file_takes_a_files_place_only_where_links_are_never_followed() {
        let over_file = |kind| question(side(kind, 1), side(FILE, 2));
        // The call that makes it finds the name taken, and says so.
        let (stays, goes) = (Action::Replace(How::InPlace), Action::Replace(How::Remove));
        for (dereference, of_operand, of_others) in [
            (Dereference::Never, goes, goes),
            (Dereference::Operands, stays, goes),
            (Dereference::Always, stays, stays),
        ] {
            for kind in [FileType::Fifo, FileType::Socket, FileType::BlockDevice] {
                for force in [false, true] {
                    let options = Options { dereference, force, ..recursive() };
                    let mut question = over_file(kind);
                    assert_eq!(decide(&options, &question), of_others, "{dereference:?}, {kind:?}");
                    question.operand = true;
                    assert_eq!(decide(&options, &question), of_operand, "{dereference:?}, {kind:?}");
                }
            }
        }
    }

    #[test]
    fn resume_passes_over_exactly_what_has_type_size_and_time() {
        let resume = Options { resume: true, ..recursive() };
        let same = question(side(FILE, 1), side(FILE, 2));
        assert_eq!(decide(&resume, &same), Action::Skip(Skip::Resumed));
        let mut later = same;
        later.target.file.as_mut().unwrap().mtime.1 += 1;
        assert_eq!(decide(&resume, &later), Action::Replace(How::Swap), "one nanosecond is another file");
        let mut longer = same;
        longer.target.file.as_mut().unwrap().size += 1;
        assert_eq!(decide(&resume, &longer), Action::Replace(How::Swap));
        let differs = Question { differs: true, ..same };
        assert_eq!(decide(&resume, &differs), Action::Replace(How::Swap), "its bytes were compared");
    }

    #[test]
    fn resume_passes_over_a_copy_whose_time_was_cut_by_its_file_system() {
        let resume = Options { resume: true, ..recursive() };
        // Seconds (ext3 with small inodes), hundreds of nanoseconds (NTFS), every other second (FAT).
        for (source, kept, answer) in [
            ((101, 123_456_789), [(99, 0), (101, 0), (102, 0)], Action::Skip(Skip::Resumed)),
            ((102, 123_456_789), [(99, 0), (101, 0), (102, 0)], Action::Replace(How::Swap)),
            ((100, 123_456_789), [(99, 0), (101, 0), (102, 0)], Action::Replace(How::Swap)),
            ((101, 123_456_789), [(99, 500), (101, 123_456_700), (102, 300)], Action::Skip(Skip::Resumed)),
            ((101, 123_456_800), [(99, 500), (101, 123_456_700), (102, 300)], Action::Replace(How::Swap)),
            ((101, 123_456_789), [(99, 0), (101, 0), (102, 1)], Action::Replace(How::Swap)),
            ((101, 500_000_000), [(86_400, 0), (100, 0), (100, 0)], Action::Skip(Skip::Resumed)),
        ] {
            let mut question = question(side(FILE, 1), side(FILE, 2));
            question.source.link.mtime = source;
            question.source.file.as_mut().unwrap().mtime = source;
            for facts in [&mut question.target.link, question.target.file.as_mut().unwrap()] {
                [facts.atime, facts.mtime, facts.ctime] = kept;
            }
            assert_eq!(decide(&resume, &question), answer, "{source:?} {kept:?}");
        }
    }

    #[test]
    fn resume_copies_again_what_has_another_size_also_where_it_is_younger_and_update_asks_for_age() {
        let options = Options { resume: true, update: Update::Older, ..recursive() };
        let mut younger = question(side(FILE, 1), side(FILE, 2));
        younger.target.file.as_mut().unwrap().mtime.0 += 60;
        younger.target.link = younger.target.file.unwrap();
        assert_eq!(decide(&options, &younger), Action::Skip(Skip::NotOlder));
        for size in [9, 11] {
            younger.target.link.size = size;
            younger.target.file.as_mut().unwrap().size = size;
            assert_eq!(decide(&options, &younger), Action::Replace(How::Swap), "{size}");
            let without = Options { resume: false, ..options.clone() };
            assert_eq!(decide(&without, &younger), Action::Skip(Skip::NotOlder), "{size}");
        }
    }

    #[test]
    fn update_looks_at_existence_or_age() {
        let same_age = question(side(FILE, 1), side(FILE, 2));
        let with = |update| Options { update, ..recursive() };
        assert_eq!(decide(&with(Update::Older), &same_age), Action::Skip(Skip::NotOlder));
        let mut older = same_age;
        older.target.file.as_mut().unwrap().mtime = (100, 4);
        assert_eq!(decide(&with(Update::Older), &older), Action::Replace(How::InPlace));
        assert_eq!(decide(&with(Update::None), &older), Action::Skip(Skip::Exists));
        assert_eq!(decide(&with(Update::NoneFail), &older), Action::Refuse(ErrorKind::NotReplacing));
    }

    #[test]
    fn a_copy_whose_time_was_cut_by_its_file_system_is_not_older_than_its_source() {
        let update = Options { update: Update::Older, ..recursive() };
        let keeps = Options { preserve: crate::Preserve::DEFAULT, ..update.clone() };
        let skip = Action::Skip(Skip::NotOlder);
        let day = 86_400;
        // What the source has, and what the target has: last access, change of contents, change of status.
        for (source, kept, answer) in [
            ((101, 123_456_789), [(99, 0), (101, 0), (102, 0)], skip),
            ((102, 123_456_789), [(99, 0), (101, 0), (102, 0)], Action::Replace(How::InPlace)),
            ((101, 123_456_789), [(99, 500), (101, 123_456_700), (102, 300)], skip),
            ((101, 123_456_800), [(99, 500), (101, 123_456_700), (102, 300)], Action::Replace(How::InPlace)),
            // The file system keeps nanoseconds, so another program cut it.
            ((101, 123_456_789), [(99, 0), (101, 0), (102, 1)], Action::Replace(How::InPlace)),
            ((101, 500_000_000), [(day, 0), (100, 0), (100, 0)], skip),
            ((102, 0), [(day, 0), (100, 0), (100, 0)], Action::Replace(How::InPlace)),
        ] {
            let mut question = question(side(FILE, 1), side(FILE, 2));
            question.source.link.mtime = source;
            question.source.file.as_mut().unwrap().mtime = source;
            for facts in [&mut question.target.link, question.target.file.as_mut().unwrap()] {
                [facts.atime, facts.mtime, facts.ctime] = kept;
            }
            assert_eq!(decide(&keeps, &question), answer, "{source:?} {kept:?}");
            let newer = Action::Replace(How::InPlace);
            assert_eq!(decide(&update, &question), newer, "no option keeps the times");
        }
    }

    #[test]
    fn one_file_is_never_copied_onto_itself() {
        let refused = Action::Refuse(ErrorKind::SameFile);
        let mut itself = question(side(FILE, 1), side(FILE, 1));
        itself.same_name = true;
        for options in [
            recursive(),
            Options { force: true, ..recursive() },
            Options { remove_destination: true, ..recursive() },
            Options { backup: backup(BackupKind::Simple), ..recursive() },
        ] {
            assert_eq!(decide(&options, &itself), refused, "{options:?}");
        }
        // Its own link, followed on the target's side, is itself too.
        let onto_link = question(side(FILE, 1), link(2, Some(facts(FILE, 1))));
        assert_eq!(decide(&recursive(), &onto_link), refused);
        let linking = Options { link: Link::Hard, ..recursive() };
        assert_eq!(decide(&linking, &itself), Action::Skip(Skip::Same), "that is what was asked for");
    }

    #[test]
    fn a_link_to_nothing_is_not_written_through() {
        let dangling = question(side(FILE, 1), link(2, None));
        assert_eq!(decide(&recursive(), &dangling), Action::Refuse(ErrorKind::DanglingTarget));
        let remove = Options { remove_destination: true, ..recursive() };
        assert_eq!(decide(&remove, &dangling), Action::Replace(How::Remove));
    }

    #[test]
    fn what_this_copy_made_is_lost_to_no_other_operand_but_kept_by_numbers() {
        let mut second = question(side(FILE, 1), side(FILE, 2));
        (second.operand, second.just_created) = (true, true);
        assert_eq!(decide(&recursive(), &second), Action::Refuse(ErrorKind::JustCreated));
        let simple = Options { backup: backup(BackupKind::Simple), ..recursive() };
        assert_eq!(decide(&simple, &second), Action::Refuse(ErrorKind::JustCreated));
        let numbered = Options { backup: backup(BackupKind::Numbered), ..recursive() };
        assert_eq!(decide(&numbered, &second), Action::Replace(How::Backup));
    }
}
