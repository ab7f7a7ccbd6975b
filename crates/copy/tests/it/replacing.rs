//! Overwriting asks for no more than `open(O_WRONLY | O_TRUNC)` and `write`: places where nothing else is
//! allowed.

use crate::faults::deny_rings as deny;
use crate::fuse::{Faults, Fuse};
use crate::image::Image;
use crate::support::{Told, archive, clean, engines, files, folders, run};
use ringroad_copy::{Dereference, Engine, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// As plain `cp -r`.
fn plain(engine: Engine) -> Options {
    Options { recursive: true, dereference: Dereference::Never, engine, ..Options::default() }
}

/// How a copy replaces what is there. With times coarse and all files changed, `resume` copies all of them.
fn ways(engine: Engine) -> [Options; 3] {
    let atomic = Options { atomic: true, ..plain(engine) };
    [plain(engine), atomic, Options { resume: true, ..plain(engine) }]
}

fn prepare(source: &Path, target: &Path) {
    for (folder, text) in [(source, "the new contents"), (target, "old")] {
        std::fs::create_dir_all(folder.join("d")).unwrap();
        for n in 0..20 {
            std::fs::write(folder.join(format!("d/f{n}")), text).unwrap();
        }
        std::fs::write(folder.join("empty"), if folder == source { "" } else { "old" }).unwrap();
        std::fs::write(folder.join("was-empty"), if folder == source { "new" } else { "" }).unwrap();
    }
}

/// Copies over what is there, and demands that the target is the source, in the same files, and nothing more.
fn replaces(source: &Path, target: &Path, options: &Options) {
    let numbers = |folder: &Path| {
        let found = files(folder).into_iter();
        found.map(|(path, _)| (path.metadata().unwrap().ino(), path)).collect::<BTreeSet<_>>()
    };
    let before = numbers(target);
    clean(source, target, options);
    let texts = |folder: &Path| {
        let texts = files(folder).into_iter().map(|(path, bytes)| {
            (path.strip_prefix(folder).unwrap().to_path_buf(), String::from_utf8(bytes).unwrap())
        });
        texts.collect::<BTreeMap<_, _>>()
    };
    assert_eq!(texts(target), texts(source), "{options:?}");
    if !options.atomic && !options.resume {
        assert_eq!(numbers(target), before, "{options:?}: in place");
    }
}

#[test]
fn files_are_replaced_where_file_systems_allow_no_more_than_emptying_and_writing() {
    const REMOVES: [(u32, i32); 2] = [(10, 1), (11, 1)];
    const RENAMES: [(u32, i32); 2] = [(12, 38), (45, 38)];
    let nothing = Faults::default();
    for (what, faults, atomic) in [
        ("only with O_TRUNC", Faults { only_emptied: true, ..nothing.clone() }, true),
        ("no size", Faults { no_size: true, ..nothing.clone() }, true),
        ("no rename", Faults { refuses: &RENAMES, ..nothing.clone() }, true),
        // What is made beside could not be removed again.
        ("no removal", Faults { refuses: &REMOVES, ..nothing.clone() }, false),
        ("new numbers", Faults { numbers_anew: true, ..nothing.clone() }, false),
    ] {
        for &engine in engines() {
            for options in ways(engine).iter().filter(|options| atomic || !(options.atomic || options.resume))
            {
                let Some(fuse) = Fuse::mount(Faults::default()) else { return };
                let (_place, source, _) = folders();
                let target = fuse.mounted.join("target");
                prepare(&source, &target);
                fuse.set(faults.clone());
                eprintln!("{what}, {engine:?}, atomic {}, resume {}", options.atomic, options.resume);
                if faults.numbers_anew {
                    clean(&source, &target, options);
                    assert_eq!(std::fs::read(target.join("d/f1")).unwrap(), b"the new contents");
                } else {
                    replaces(&source, &target, options);
                }
            }
        }
    }
}

/// Denies calls to a thread, and copies there.
fn without(calls: &'static [i64], source: &Path, target: &Path, options: &Options) {
    let (source, target, options) = (source.to_path_buf(), target.to_path_buf(), options.clone());
    std::thread::spawn(move || {
        deny(seccompiler::SeccompAction::Errno(1), calls);
        replaces(&source, &target, &options);
    })
    .join()
    .unwrap();
}

#[test]
fn files_are_replaced_under_filters_that_forbid_removing_renaming_and_making_directories() {
    const NAMES: &[i64] = &[
        libc::SYS_unlinkat,
        libc::SYS_renameat,
        libc::SYS_renameat2,
        libc::SYS_mkdirat,
        libc::SYS_linkat,
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        libc::SYS_fchown,
    ];
    for &engine in engines() {
        for options in ways(engine) {
            for calls in [NAMES, &[libc::SYS_ftruncate]] {
                let (_place, source, target) = folders();
                prepare(&source, &target);
                without(calls, &source, &target, &options);
            }
        }
    }
}

#[test]
fn files_in_folders_that_are_only_added_to_are_replaced_and_nothing_is_left_beside_them() {
    let Some(image) = Image::new(64 << 20) else { return };
    for &engine in engines() {
        // The folder's own times cannot be set, which `resume` does.
        for (at, options) in ways(engine).iter().enumerate().filter(|(_, options)| !options.resume) {
            let (_place, source, _) = folders();
            let target = image.mounted.join(format!("{}{at}", engine.name()));
            prepare(&source, &target);
            set_flags(&target.join("d"), FS_APPEND_FL);
            replaces(&source, &target, options);
            set_flags(&target.join("d"), 0);
        }
    }
}

/// What `chattr +a` sets: names can be added, and not removed or replaced.
const FS_APPEND_FL: libc::c_long = 0x20;

/// Sets the flags of a folder, as chattr(1) does.
fn set_flags(folder: &Path, flags: libc::c_long) {
    let folder = std::fs::File::open(folder).unwrap();
    // SAFETY: FS_IOC_SETFLAGS reads a number from the pointer, which is that of a local.
    let set = unsafe { libc::ioctl(folder.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const flags) };
    assert_eq!(set, 0);
}

fn names(folder: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn links_in_a_folder_that_is_only_added_to_are_refused_and_nothing_is_left_beside_what_is_there() {
    use ringroad_copy::Link;
    let Some(image) = Image::new(64 << 20) else { return };
    let linking = |link, remove_destination| Options {
        link,
        remove_destination,
        force: !remove_destination,
        ..plain(Engine::Threads)
    };
    for (at, options) in [
        linking(Link::Hard, false),
        linking(Link::Hard, true),
        linking(Link::Symbolic, false),
        linking(Link::Symbolic, true),
        // Two names of one file.
        archive(Engine::Threads),
    ]
    .iter()
    .enumerate()
    {
        let [source, target] = ["s", "t"].map(|name| image.mounted.join(format!("{name}{at}")));
        std::fs::create_dir(&source).unwrap();
        std::fs::create_dir(&target).unwrap();
        std::fs::write(source.join("f"), "new").unwrap();
        std::fs::hard_link(source.join("f"), source.join("g")).unwrap();
        std::fs::write(target.join("f"), "old").unwrap();
        std::fs::write(target.join("g"), "old").unwrap();
        set_flags(&target, FS_APPEND_FL);
        let told = Told::default();
        let report = run(&source, &target, options, &told);
        set_flags(&target, 0);
        assert!(report.totals.failed > 0, "{options:?}: {report:?}");
        assert_eq!(names(&target), ["f", "g"], "{options:?}: {:?}", told.errors.lock().unwrap());
    }
}

#[test]
fn where_no_rename_is_allowed_a_link_replaces_what_is_to_be_removed_before() {
    use ringroad_copy::Link;
    const RENAMES: &[i64] = &[libc::SYS_rename, libc::SYS_renameat, libc::SYS_renameat2];
    for (link, number) in
        [Link::Hard, Link::Symbolic].into_iter().flat_map(|link| [(link, 1), (link, 38), (link, 22)])
    {
        for remove_destination in [true, false] {
            let (_place, source, target) = folders();
            std::fs::create_dir_all(&source).unwrap();
            std::fs::create_dir_all(&target).unwrap();
            std::fs::write(source.join("f"), "new").unwrap();
            std::fs::write(target.join("f"), "old").unwrap();
            let options =
                Options { link, remove_destination, force: !remove_destination, ..plain(Engine::Threads) };
            let (from, to) = (source.clone(), target.clone());
            let failed = std::thread::spawn(move || {
                deny(seccompiler::SeccompAction::Errno(number), RENAMES);
                run(&from, &to, &options, &Told::default()).totals.failed
            })
            .join()
            .unwrap();
            // Without being told to remove it, what is there stays.
            let (text, refused) = if remove_destination { ("new", 0) } else { ("old", 1) };
            assert_eq!(failed, refused, "{link:?}, {number}, {remove_destination}");
            assert_eq!(std::fs::read_to_string(target.join("f")).unwrap(), text, "{link:?}, {number}");
            assert_eq!(names(&target), ["f"], "{link:?}, {number}, {remove_destination}");
        }
    }
}

/// Where names may not be replaced by this user, a copy that was to be renamed does not stay.
#[test]
fn files_of_others_in_sticky_folders_are_replaced_without_the_right_to_rename() {
    use std::os::unix::fs::{PermissionsExt, chown};
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: files of another user need root");
        return;
    }
    for &engine in engines() {
        // Times of another user's file cannot be set either, so `resume` cannot go on with it.
        for options in ways(engine).into_iter().filter(|options| !options.resume) {
            let (_place, source, target) = folders();
            prepare(&source, &target);
            chown(target.join("d"), Some(4711), Some(4711)).unwrap();
            target.join("d").set_mode(0o1777);
            for n in 0..20 {
                let file = target.join(format!("d/f{n}"));
                std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
                chown(&file, Some(4712), None).unwrap();
            }
            std::thread::scope(|scope| {
                let work = scope.spawn(|| {
                    let fowner = rustix::thread::CapabilitySet::FOWNER;
                    let mut held = rustix::thread::capabilities(None).unwrap();
                    held.effective -= fowner;
                    rustix::thread::set_capabilities(None, held).unwrap();
                    replaces(&source, &target, &options);
                });
                work.join().unwrap();
            });
        }
    }
}

trait SetMode {
    fn set_mode(&self, mode: u32);
}

impl SetMode for Path {
    fn set_mode(&self, mode: u32) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(self, mode).unwrap();
    }
}

#[test]
fn numbered_backups_are_made_where_the_kernel_lacks_the_rename_that_replaces_nothing() {
    const EPERM: u32 = 1;
    const ENOSYS: u32 = 38;
    for (&engine, why) in engines().iter().flat_map(|engine| [(engine, EPERM), (engine, ENOSYS)]) {
        let (_place, source, target) = folders();
        prepare(&source, &target);
        let backup = ringroad_copy::Backup { kind: ringroad_copy::BackupKind::Numbered, suffix: "~".into() };
        let options = Options { backup: Some(backup), ..plain(engine) };
        let (from, to) = (source.clone(), target.clone());
        std::thread::spawn(move || {
            deny(seccompiler::SeccompAction::Errno(why), &[libc::SYS_renameat2]);
            clean(&from, &to, &options);
            clean(&from, &to, &options);
        })
        .join()
        .unwrap();
        for (name, text) in [("f1", "the new contents"), ("f1.~1~", "old"), ("f1.~2~", "the new contents")] {
            assert_eq!(std::fs::read_to_string(target.join("d").join(name)).unwrap(), text, "{engine:?}");
        }
    }
}

/// A user that may not give files away must not open them to others either.
#[test]
fn a_copy_whose_owner_cannot_be_given_is_its_makers_alone() {
    use std::os::unix::fs::{PermissionsExt, chown};
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: files of another user need root");
        return;
    }
    for &engine in engines() {
        for exists in [false, true] {
            let (_place, source, target) = folders();
            prepare(&source, &target);
            if !exists {
                std::fs::remove_dir_all(&target).unwrap();
            }
            for path in [source.join("d/f1"), source.join("d")] {
                path.set_mode(if path.is_dir() { 0o775 } else { 0o664 });
                chown(path, Some(4711), Some(4712)).unwrap();
            }
            std::thread::scope(|scope| {
                let work = scope.spawn(|| {
                    let mut held = rustix::thread::capabilities(None).unwrap();
                    held.effective -= rustix::thread::CapabilitySet::CHOWN;
                    rustix::thread::set_capabilities(None, held).unwrap();
                    let told = Told::default();
                    run(&source, &target, &archive(engine), &told);
                    let kinds = told.kinds.into_inner().unwrap();
                    assert_eq!(kinds, [ringroad_copy::ErrorKind::PreserveOwnership; 2], "{engine:?}");
                });
                work.join().unwrap();
            });
            let mode = |name: &str| target.join(name).metadata().unwrap().permissions().mode() & 0o7777;
            assert_eq!((mode("d/f1"), mode("d")), (0o600, 0o700), "{engine:?}, exists {exists}");
        }
    }
}

/// A backup that was made for nothing goes back to its name.
#[test]
fn a_target_that_cannot_be_made_anew_has_its_name_back_from_its_backup() {
    let (_place, source, _) = folders();
    std::fs::write(source.join("f"), "new").unwrap();
    let Some(fuse) = Fuse::mount(Faults::default()) else { return };
    let target = fuse.mounted.join("f");
    std::fs::write(&target, "old").unwrap();
    fuse.set(Faults { refuses: &[(35, 1), (8, 1)], ..Faults::default() });
    let backup = ringroad_copy::Backup { kind: ringroad_copy::BackupKind::Simple, suffix: "~".into() };
    let options = Options { backup: Some(backup), ..archive(Engine::Threads) };
    let told = Told::default();
    let report = run(&source.join("f"), &target, &options, &told);
    assert_eq!(report.totals.failed, 1, "{:?}", told.errors);
    assert_eq!(std::fs::read(&target).unwrap(), b"old");
}

/// An access list in the kernel's form: the owner, user 5, the owning group, the mask, others.
fn list(of: &Path, name: &str, rights: [u8; 5]) -> bool {
    let mut bytes = vec![2, 0, 0, 0];
    for (tag, rights) in [1_u8, 2, 4, 0x10, 0x20].into_iter().zip(rights) {
        let id = if tag == 2 { [5, 0, 0, 0] } else { [0xff; 4] };
        bytes.extend([tag, 0, rights, 0]);
        bytes.extend(id);
    }
    match rustix::fs::setxattr(of, name, &bytes, rustix::fs::XattrFlags::empty()) {
        Ok(()) => true,
        Err(why) => {
            eprintln!("skipped: {name} in {}: {why}", of.display());
            false
        }
    }
}

/// As GNU cp has it: such a list is no right to the directory itself.
#[test]
fn a_default_list_is_no_error_where_the_target_has_no_lists() {
    let Some(fuse) = Fuse::mount(Faults::default()) else { return };
    let (_place, source, _) = folders();
    std::fs::create_dir(source.join("d")).unwrap();
    std::fs::write(source.join("d/f"), "x").unwrap();
    if !list(&source.join("d"), "system.posix_acl_default", [7, 6, 5, 7, 5]) {
        return;
    }
    for &engine in engines() {
        let target = fuse.mounted.join(engine.name());
        clean(&source, &target, &archive(engine));
        assert_eq!(std::fs::read(target.join("d/f")).unwrap(), b"x");
    }
    // A list of the directory itself is one right less.
    assert!(list(&source.join("d"), "system.posix_acl_access", [7, 6, 5, 7, 5]));
    for &engine in engines() {
        let told = Told::default();
        let report = run(&source, &fuse.mounted.join(format!("{}2", engine.name())), &archive(engine), &told);
        assert_eq!(report.totals.errors, 1, "{engine:?}: {:?}", told.errors.lock().unwrap());
    }
}

/// A filter, a module or a server may refuse chmod. As GNU cp has it, a list says the same.
#[test]
fn where_chmod_is_refused_modes_are_kept_as_access_lists() {
    const FCHMODAT2: i64 = 452;
    const PERM: i32 = 1;
    for (&engine, number) in engines().iter().flat_map(|engine| [(engine, PERM), (engine, 38), (engine, 95)])
    {
        let (place, source, target) = folders();
        std::fs::create_dir_all(source.join("d")).unwrap();
        let modes = [("f", 0o640), ("d/g", 0o604), ("d", 0o750), ("p", 0o622)];
        for name in ["f", "d/g", "suid"] {
            std::fs::write(source.join(name), "x").unwrap();
        }
        rustix::fs::mkfifoat(rustix::fs::CWD, source.join("p"), rustix::fs::Mode::empty()).unwrap();
        for (name, mode) in modes.into_iter().chain([("suid", 0o4755)]) {
            std::fs::set_permissions(source.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        // Where there are no lists, there is no other way.
        let probe = place.path().join("probe");
        std::fs::write(&probe, "").unwrap();
        if !list(&probe, "system.posix_acl_access", [6, 6, 0, 6, 0]) {
            return;
        }
        let (from, to) = (source.clone(), target.clone());
        let (report, errors) = std::thread::spawn(move || {
            let calls = [libc::SYS_fchmod, libc::SYS_fchmodat, FCHMODAT2];
            deny(seccompiler::SeccompAction::Errno(number as u32), &calls);
            let told = Told::default();
            (run(&from, &to, &archive(engine), &told), told.errors.into_inner().unwrap())
        })
        .join()
        .unwrap();
        for (name, mode) in modes {
            let found = target.join(name).metadata().unwrap().mode() & 0o7777;
            assert_eq!(found, mode, "{engine:?}, {number}: {name}, {errors:?}");
            let mut room = [0; 64];
            let list = rustix::fs::getxattr(target.join(name), "system.posix_acl_access", &mut room[..]);
            assert!(list.is_err(), "{engine:?}: {name} has a list");
        }
        assert_eq!((report.totals.errors, report.totals.failed), (1, 1), "{engine:?}, {number}: {errors:?}");
        assert!(errors[0].contains("suid"), "{errors:?}");
    }
}

/// Beside a list the group's bits of a mode are the most that any user of the list gets.
#[test]
fn where_attributes_cannot_be_listed_an_access_list_is_copied_or_its_group_is_kept_out() {
    const CALLS: &[i64] = &[libc::SYS_flistxattr, libc::SYS_llistxattr];
    const READS: &[i64] = &[libc::SYS_flistxattr, libc::SYS_llistxattr, libc::SYS_fgetxattr];
    let (_place, source, _) = folders();
    std::fs::write(source.join("f"), "x").unwrap();
    if !list(&source.join("f"), "system.posix_acl_access", [6, 6, 0, 6, 0]) {
        return;
    }
    for (&engine, calls) in engines().iter().flat_map(|engine| [(engine, CALLS), (engine, READS)]) {
        let (place, _, target) = folders();
        let (from, to) = (source.clone(), target.clone());
        let report = std::thread::spawn(move || {
            deny(seccompiler::SeccompAction::Errno(1), calls);
            run(&from, &to, &archive(engine), &Told::default())
        })
        .join()
        .unwrap();
        let mode = target.join("f").metadata().unwrap().mode() & 0o777;
        let mut room = [0; 64];
        let copied = rustix::fs::getxattr(target.join("f"), "system.posix_acl_access", &mut room[..]);
        if calls == CALLS {
            assert_eq!((copied, mode, report.totals.failed), (Ok(44), 0o660, 0), "{engine:?}");
        } else {
            assert_eq!((mode, report.totals.failed > 0), (0o600, true), "{engine:?}");
        }
        drop(place);
    }
}
