//! Names: opening, making, renaming, removing, links.

use super::Folder;
use crate::support::{child, role, with_runtime};
use ringroad_engine::fs::{self, Dir, File, FileType, OpenOptions};
use ringroad_engine::spawn;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

scenario!(a_missing_file_is_named_in_the_error, |case| async move {
    let folder = Folder::new();
    let path = folder.join("nothing");
    let error = File::open(&path).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::NotFound, "openat"));
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert_eq!(error.driver(), Some(case.driver()));
    let nowhere = folder.join("nothing/file");
    let errors = [
        fs::metadata(&path).await.unwrap_err(),
        fs::remove_file(&path).await.unwrap_err(),
        fs::remove_dir(&path).await.unwrap_err(),
        fs::rename(&path, folder.join("else")).await.unwrap_err(),
        fs::create_dir(&nowhere).await.unwrap_err(),
        fs::read_dir(&path).await.unwrap_err(),
        fs::read_link(&path).await.unwrap_err(),
        fs::hard_link(&path, folder.join("else")).await.unwrap_err(),
        fs::symlink("anything", &nowhere).await.unwrap_err(),
        fs::read(&path).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}");
        assert!(error.to_string().contains("nothing"), "{error}");
    }
});

everywhere!(a_file_that_must_be_new_is_made_once, |_| async {
    let folder = Folder::new();
    let path = folder.join("file");
    let options = OpenOptions::new().write(true).create_new(true);
    options.open(&path).await.unwrap();
    assert_eq!(options.open(&path).await.unwrap_err().raw_os_error(), Some(libc::EEXIST));
    // A link to nothing is there too.
    let link = folder.join("link");
    fs::symlink("nothing", &link).await.unwrap();
    assert_eq!(options.open(&link).await.unwrap_err().raw_os_error(), Some(libc::EEXIST));
    assert!(!folder.join("nothing").exists());
});

everywhere!(an_existing_file_is_kept_or_emptied_as_asked, |_| async {
    let folder = Folder::new();
    let path = folder.file("file", b"content");
    OpenOptions::new().write(true).create(true).open(&path).await.unwrap();
    assert_eq!(fs::read(&path).await.unwrap(), b"content");
    File::create(&path).await.unwrap();
    assert_eq!(fs::read(&path).await.unwrap(), b"");
});

scenario!(what_cannot_be_together_is_refused_with_the_reason, |_| async {
    let folder = Folder::new();
    let path = folder.file("file", b"content");
    let impossible = [
        OpenOptions::new(),
        OpenOptions::new().create(true),
        OpenOptions::new().read(true).truncate(true),
        OpenOptions::new().read(true).create_new(true),
        OpenOptions::new().append(true).truncate(true),
    ];
    for options in impossible {
        let error = options.open(&path).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{options:?}");
        assert!(error.to_string().contains("opened") || error.to_string().contains("appended"), "{error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"content");
});

everywhere!(a_rename_takes_the_place_of_what_was_there, |_| async {
    let folder = Folder::new();
    let (one, two) = (folder.file("one", b"1"), folder.file("two", b"2"));
    let open = File::open(&two).await.unwrap();
    fs::rename(&one, &two).await.unwrap();
    assert_eq!(fs::read(&two).await.unwrap(), b"1");
    assert!(!one.exists());
    // A handle opened before keeps the old file.
    let (read, bytes) = open.read_exact_at(Vec::with_capacity(1), 1, 0).await;
    read.unwrap();
    assert_eq!(bytes, b"2");
    let directory = folder.join("directory");
    fs::create_dir(&directory).await.unwrap();
    assert_eq!(fs::rename(&two, &directory).await.unwrap_err().raw_os_error(), Some(libc::EISDIR));
});

everywhere!(directories_are_made_with_those_above_them, |_| async {
    let folder = Folder::new();
    let deep = folder.join("a/b/c/d");
    fs::create_dir_all(&deep).await.unwrap();
    assert!(fs::metadata(&deep).await.unwrap().is_dir());
    fs::create_dir_all(&deep).await.unwrap();
    assert_eq!(fs::create_dir(&deep).await.unwrap_err().raw_os_error(), Some(libc::EEXIST));
    folder.file("file", b"");
    assert_eq!(fs::create_dir_all(folder.join("file")).await.unwrap_err().raw_os_error(), Some(libc::EEXIST));
    assert_eq!(
        fs::create_dir_all(folder.join("file/a/b")).await.unwrap_err().raw_os_error(),
        Some(libc::ENOTDIR)
    );
    fs::create_dir_all("").await.unwrap();
});

everywhere!(files_and_directories_are_removed_each_by_its_own, |_| async {
    let folder = Folder::new();
    let directory = folder.join("directory");
    fs::create_dir(&directory).await.unwrap();
    let file = folder.file("directory/file", b"x");
    assert_eq!(fs::remove_dir(&directory).await.unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
    assert_eq!(fs::remove_file(&directory).await.unwrap_err().raw_os_error(), Some(libc::EISDIR));
    assert_eq!(fs::remove_dir(&file).await.unwrap_err().raw_os_error(), Some(libc::ENOTDIR));
    fs::remove_file(&file).await.unwrap();
    fs::remove_dir(&directory).await.unwrap();
    assert!(!directory.exists());
});

everywhere!(a_file_is_read_as_text_or_refused, |_| async {
    let folder = Folder::new();
    let path = folder.file("file", "grüß".as_bytes());
    assert_eq!(fs::read_to_string(&path).await.unwrap(), "grüß");
    let other = folder.file("other", &[b'x', 0xff]);
    let why = fs::read_to_string(&other).await.unwrap_err();
    assert_eq!(why.kind(), ErrorKind::InvalidData);
    assert!(why.to_string().contains(other.to_str().unwrap()), "{why}");
    assert!(fs::try_exists(&path).await.unwrap());
    assert!(!fs::try_exists(folder.join("none")).await.unwrap());
    let why = fs::try_exists(path.join("beneath")).await.unwrap_err();
    assert_eq!(why.raw_os_error(), Some(libc::ENOTDIR));
});

scenario!(what_the_standard_library_does_is_done_beside_the_runtime, |_| async {
    let folder = Folder::new();
    let file = folder.file("file", b"content");
    fs::create_dir_all(folder.join("tree/deep")).await.unwrap();
    fs::symlink(folder.join("file"), folder.join("tree/link")).await.unwrap();
    let copy = folder.join("tree/deep/copy");
    fs::set_permissions(&file, Permissions::from_mode(0o640)).await.unwrap();
    assert_eq!(fs::copy(&file, &copy).await.unwrap(), 7);
    let copied = fs::metadata(&copy).await.unwrap();
    assert_eq!((copied.mode() & 0o777, fs::read(&copy).await.unwrap()), (0o640, b"content".to_vec()));
    let real = fs::canonicalize(folder.join("tree/deep/../link")).await.unwrap();
    assert_eq!(real, file.canonicalize().unwrap());
    fs::remove_dir_all(folder.join("tree")).await.unwrap();
    assert!(!folder.join("tree").exists() && file.exists(), "a link is not followed");
    let gone = folder.join("tree");
    let errors = [
        fs::canonicalize(&gone).await.unwrap_err(),
        fs::copy(&gone, &copy).await.unwrap_err(),
        fs::remove_dir_all(&gone).await.unwrap_err(),
        fs::set_permissions(&gone, Permissions::from_mode(0o640)).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains(gone.to_str().unwrap()), "{error}");
    }
});

everywhere!(links_lead_where_they_say, |_| async {
    let folder = Folder::new();
    let file = folder.file("file", b"content");
    let (hard, soft) = (folder.join("hard"), folder.join("soft"));
    fs::hard_link(&file, &hard).await.unwrap();
    fs::symlink("file", &soft).await.unwrap();
    assert_eq!(fs::read_link(&soft).await.unwrap().to_str(), Some("file"));
    assert_eq!(fs::read(&soft).await.unwrap(), b"content");
    let (of_file, of_hard) = (fs::metadata(&file).await.unwrap(), fs::metadata(&hard).await.unwrap());
    assert_eq!((of_file.ino(), of_file.dev(), of_file.nlink()), (of_hard.ino(), of_hard.dev(), 2));
    assert!(fs::symlink_metadata(&soft).await.unwrap().is_symlink());
    assert!(fs::metadata(&soft).await.unwrap().is_file());
    assert_eq!(fs::read_link(&file).await.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    // As long as a path may be.
    let long = "x/".repeat(2000);
    fs::symlink(&long, folder.join("long")).await.unwrap();
    assert_eq!(fs::read_link(folder.join("long")).await.unwrap().to_str(), Some(long.as_str()));
});

scenario!(what_the_system_knows_of_a_file_is_told, |_| async {
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::new();
    let path = folder.file("file", &[1; 10_000]);
    let file = File::open(&path).await.unwrap();
    let theirs = std::fs::metadata(&path).unwrap();
    for ours in [file.metadata().await.unwrap(), fs::metadata(&path).await.unwrap()] {
        assert_eq!((ours.len(), ours.ino(), ours.dev()), (10_000, theirs.ino(), theirs.dev()));
        assert_eq!((ours.mode(), ours.uid(), ours.gid()), (theirs.mode(), theirs.uid(), theirs.gid()));
        assert_eq!((ours.nlink(), ours.blocks()), (1, theirs.blocks()));
        assert_eq!(ours.modified(), theirs.modified().unwrap());
        assert_eq!(ours.created(), theirs.created().ok());
        assert_eq!(
            ours.changed().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64,
            theirs.ctime()
        );
        assert!(ours.accessed() > SystemTime::UNIX_EPOCH);
        assert!(ours.is_file() && !ours.is_dir() && !ours.is_symlink());
    }
    let kinds =
        [(folder.path().to_owned(), FileType::Directory), ("/dev/null".into(), FileType::CharacterDevice)];
    for (path, kind) in kinds {
        assert_eq!(fs::metadata(path).await.unwrap().file_type(), kind);
    }
});

everywhere!(a_name_need_not_be_text, |_| async {
    let folder = Folder::new();
    let name = OsStr::from_bytes(b"\xff\xfe not utf-8 \x80");
    let path = folder.join(name);
    fs::write(&path, b"x".to_vec()).await.0.unwrap();
    assert_eq!(fs::read(&path).await.unwrap(), b"x");
    let mut listing = fs::read_dir(folder.path()).await.unwrap();
    let entry = listing.next().await.unwrap().unwrap();
    assert_eq!(entry.file_name(), name);
    assert_eq!(entry.path(), path);
    assert!(listing.next().await.is_none());
    let link = folder.join("link");
    fs::symlink(name, &link).await.unwrap();
    assert_eq!(fs::read_link(&link).await.unwrap().as_os_str(), name);
});

scenario!(a_name_with_a_nul_in_it_never_reaches_the_system, |_| async {
    let error = File::open("one\0two").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(fs::rename("one", "t\0wo").await.unwrap_err().kind(), ErrorKind::InvalidInput);
});

everywhere!(paths_begin_at_a_directory_whatever_it_is_called_meanwhile, |_| async {
    let folder = Folder::new();
    let (before, after) = (folder.join("before"), folder.join("after"));
    fs::create_dir(&before).await.unwrap();
    let dir = Dir::open(&before).await.unwrap();
    fs::rename(&before, &after).await.unwrap();
    let file = dir.open_file("file", OpenOptions::new().write(true).create_new(true)).await.unwrap();
    file.write_all_at(&b"content"[..], 0).await.0.unwrap();
    assert_eq!(fs::read(after.join("file")).await.unwrap(), b"content");
    assert_eq!(dir.metadata("file").await.unwrap().len(), 7);
    dir.create_dir("inner").await.unwrap();
    let inner = dir.open_dir("inner").await.unwrap();
    dir.rename("file", &inner, "moved").await.unwrap();
    assert_eq!(inner.symlink_metadata("moved").await.unwrap().len(), 7);
    assert_eq!(dir.metadata("file").await.unwrap_err().raw_os_error(), Some(libc::ENOENT));
    let mut listing = inner.read().await.unwrap();
    assert_eq!(listing.next().await.unwrap().unwrap().file_name(), "moved");
    inner.remove_file("moved").await.unwrap();
    dir.remove_dir("inner").await.unwrap();
    assert_eq!(Dir::open(folder.file("plain", b"")).await.unwrap_err().raw_os_error(), Some(libc::ENOTDIR));
});

scenario!(opening_a_fifo_never_waits_for_a_peer, |case| async move {
    let folder = Folder::new();
    let path = folder.fifo();
    let error = OpenOptions::new().write(true).open(&path).await.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENXIO), "nobody reads");
    assert!(error.to_string().contains("FIFO"), "{error}");
    // More of them than any pool or kernel has threads for a runtime.
    let mut readers = Vec::new();
    for _ in 0..100 {
        readers.push(File::open(&path).await.unwrap());
    }
    let writer = OpenOptions::new().write(true).open(&path).await.unwrap();
    writer.write_all_at("hello", 0).await.0.unwrap();
    let (read, bytes) = readers[99].read_at(Vec::with_capacity(100), 0).await;
    assert_eq!((read.unwrap(), bytes), (5, b"hello".to_vec()), "{case:?}");
});

cases!(
    /// Not in the simulation: it has no other process that could write meanwhile.
    others_go_on_while_a_fifo_is_read,
    real,
    |case| with_runtime(case, |builder| builder, move |_, runtime| {
        runtime
            .block_on(async {
                let folder = Folder::new();
                let path = folder.fifo();
                let reader = File::open(&path).await.unwrap();
                let mut writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                let read = spawn(async move {
                    let (read, bytes) = reader.read_at(Vec::with_capacity(100), 0).await;
                    (read.unwrap(), bytes)
                });
                // All that has to be done before the writer speaks.
                for at in 0..20 {
                    let path = folder.join(format!("{at}"));
                    fs::write(&path, b"x".to_vec()).await.0.unwrap();
                    fs::rename(&path, folder.join("last")).await.unwrap();
                }
                ringroad_engine::time::sleep(Duration::from_millis(1)).await;
                writer.write_all(b"at last").unwrap();
                assert_eq!(read.await.unwrap(), (7, b"at last".to_vec()));
            })
            .unwrap();
    })
);

/// Run as user nobody, without access to a directory of root's.
const AS_UNPRIVILEGED: &str = "as nobody";

cases!(what_is_not_permitted_is_said, real, |case| {
    // SAFETY: geteuid(2) takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root can become somebody who is not permitted");
    }
    if role().as_deref() != Some(AS_UNPRIVILEGED) {
        let folder = Folder::new();
        let path = folder.file("secret", b"secret");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let output = child(AS_UNPRIVILEGED).env("RINGROAD_TEST_FILE", path).output().unwrap();
        let told =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        return assert!(output.status.success() && told.contains("1 passed"), "{told}");
    }
    let path = std::path::PathBuf::from(std::env::var_os("RINGROAD_TEST_FILE").unwrap());
    // SAFETY: setresuid(2) takes numbers only; this process has nothing else to do.
    assert_eq!(unsafe { libc::setresuid(65_534, 65_534, 65_534) }, 0);
    with_runtime(
        case,
        |builder| builder,
        move |_, runtime| {
            runtime
                .block_on(async {
                    let errors = [
                        File::open(&path).await.unwrap_err(),
                        File::create(path.with_file_name("new")).await.unwrap_err(),
                        fs::remove_file(&path).await.unwrap_err(),
                        fs::metadata(&path).await.unwrap_err(),
                        fs::create_dir(path.with_file_name("new")).await.unwrap_err(),
                        fs::read_dir(path.parent().unwrap()).await.unwrap_err(),
                    ];
                    for error in errors {
                        assert_eq!(error.raw_os_error(), Some(libc::EACCES), "{error}");
                    }
                })
                .unwrap();
        },
    );
});
