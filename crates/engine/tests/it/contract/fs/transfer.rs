//! Reading and writing.

use super::Folder;
use crate::support::{pattern, with_runtime};
use futures_util::future::join_all;
use ringroad_engine::Pages;
use ringroad_engine::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};

const PAGE: usize = 4096;

everywhere!(what_is_written_is_read, |_| async {
    let folder = Folder::new();
    let path = folder.join("file");
    let bytes = pattern(300_000);
    let options = OpenOptions::new().read(true).write(true).create_new(true);
    let file = options.open(&path).await.unwrap();
    let (written, back) = file.write_all_at(bytes.clone(), 0).await;
    written.unwrap();
    assert_eq!(back, bytes, "the buffer comes back");
    let (read, all) = file.read_exact_at(Vec::with_capacity(bytes.len()), bytes.len(), 0).await;
    read.unwrap();
    assert!(all == bytes);
    let (read, part) = file.read_exact_at(Vec::with_capacity(1000), 1000, 77_777).await;
    read.unwrap();
    assert!(part[..] == bytes[77_777..78_777]);
    assert!(std::fs::read(&path).unwrap() == bytes);
});

scenario!(a_read_at_the_end_is_short_and_one_behind_it_brings_nothing, |_| async {
    let folder = Folder::new();
    let file = File::open(folder.file("file", b"0123456789")).await.unwrap();
    for (offset, expected) in [(0, "0123456789"), (7, "789"), (10, ""), (1 << 40, "")] {
        let (read, bytes) = file.read_at(Vec::with_capacity(100), offset).await;
        assert_eq!(read.unwrap(), expected.len());
        assert_eq!(bytes, expected.as_bytes());
    }
    let (read, bytes) = file.read_at(Vec::new(), 0).await;
    assert_eq!((read.unwrap(), bytes.len()), (0, 0), "without room");
});

everywhere!(a_read_goes_behind_what_the_buffer_holds, |_| async {
    let folder = Folder::new();
    let file = File::open(folder.file("file", b"world")).await.unwrap();
    let mut buffer = Vec::with_capacity(64);
    buffer.extend_from_slice(b"hello ");
    let (read, buffer) = file.read_exact_at(buffer, 5, 0).await;
    read.unwrap();
    assert_eq!(buffer, b"hello world");
});

everywhere!(a_file_that_ends_too_early_says_where, |_| async {
    let folder = Folder::new();
    let file = File::open(folder.file("file", b"0123456789")).await.unwrap();
    let (read, bytes) = file.read_exact_at(Vec::with_capacity(20), 20, 4).await;
    let error = read.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert!(error.to_string().contains("ends after 6 of 20 bytes"), "{error}");
    assert_eq!(bytes, b"456789", "what there was is not lost");
    let (read, _) = file.read_exact_at(Vec::new(), 1, 0).await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::InvalidInput);
});

everywhere!(a_hole_reads_as_zeros, |_| async {
    let folder = Folder::new();
    let path = folder.join("file");
    let file = OpenOptions::new().read(true).write(true).create(true).open(&path).await.unwrap();
    file.write_all_at(&b"end"[..], 1 << 20).await.0.unwrap();
    let (read, bytes) = file.read_exact_at(vec![7; 0], 0, 0).await;
    assert!(read.is_ok() && bytes.is_empty());
    let (read, bytes) = file.read_exact_at(Vec::with_capacity(PAGE), PAGE, (1 << 20) - 4093).await;
    read.unwrap();
    assert!(bytes[..4093].iter().all(|byte| *byte == 0));
    assert_eq!(&bytes[4093..], b"end");
    assert_eq!(file.metadata().await.unwrap().len(), (1 << 20) + 3);
});

everywhere!(
    /// To some calls of the kernel -1 means "wherever the file is", and that must not be what a position
    /// comes to.
    a_position_that_no_file_has_is_refused_and_nothing_is_written,
    |_| async {
        let folder = Folder::new();
        let path = folder.file("file", b"0123456789");
        let file = OpenOptions::new().read(true).write(true).open(&path).await.unwrap();
        for offset in [u64::MAX, u64::MAX - 1, 1 << 63] {
            let (read, buffer) = file.read_at(Vec::with_capacity(4), offset).await;
            assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::EINVAL));
            let (all, buffer) = file.read_exact_at(buffer, 4, offset).await;
            assert_eq!(all.unwrap_err().raw_os_error(), Some(libc::EINVAL));
            assert!(buffer.is_empty());
            let (written, back) = file.write_at(b"lost".to_vec(), offset).await;
            let error = written.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
            assert!(error.to_string().contains("i64::MAX"), "{error}");
            let (all, back) = file.write_all_at(back, offset).await;
            assert_eq!(all.unwrap_err().raw_os_error(), Some(libc::EINVAL));
            assert_eq!(back, b"lost", "the buffer comes back");
        }
        let (read, _) = file.read_at(Vec::with_capacity(4), i64::MAX as u64 - 4).await;
        assert_eq!(read.unwrap(), 0, "behind the end, and no error");
        assert_eq!(std::fs::read(&path).unwrap(), b"0123456789");
    }
);

everywhere!(appended_bytes_go_behind_what_is_there_whatever_the_offset, |_| async {
    let folder = Folder::new();
    let path = folder.file("file", b"one ");
    let file = OpenOptions::new().append(true).open(&path).await.unwrap();
    for word in ["two ", "three"] {
        file.write_all_at(word, 0).await.0.unwrap();
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"one two three");
});

scenario!(a_directory_is_not_read_and_the_buffer_comes_back, |_| async {
    let folder = Folder::new();
    let directory = File::open(folder.path()).await.unwrap();
    let mut buffer = Vec::with_capacity(100);
    buffer.push(7);
    let (read, buffer) = directory.read_at(buffer, 0).await;
    assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::EISDIR));
    assert_eq!(buffer, [7]);
});

scenario!(what_was_opened_for_reading_is_not_written_nor_the_other_way_round, |_| async {
    let folder = Folder::new();
    let path = folder.file("file", b"kept");
    let file = File::open(&path).await.unwrap();
    let (written, back) = file.write_at(b"lost".to_vec(), 0).await;
    let error = written.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    assert_eq!(error.operation(), "pwrite");
    assert_eq!(back, b"lost");
    let file = OpenOptions::new().write(true).open(&path).await.unwrap();
    let (read, _) = file.read_at(Vec::with_capacity(4), 0).await;
    assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::EBADF));
    assert_eq!(std::fs::read(&path).unwrap(), b"kept");
});

everywhere!(a_file_is_cut_and_made_longer, |_| async {
    let folder = Folder::new();
    let path = folder.file("file", b"0123456789");
    let file = OpenOptions::new().read(true).write(true).open(&path).await.unwrap();
    file.set_len(4).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"0123");
    file.set_len(6).await.unwrap();
    assert_eq!(fs::read(&path).await.unwrap(), b"0123\0\0");
    let reader = File::open(&path).await.unwrap();
    assert_eq!(reader.set_len(0).await.unwrap_err().raw_os_error(), Some(libc::EINVAL));
});

everywhere!(what_was_written_is_brought_to_the_device, |case| async move {
    let folder = Folder::new();
    let file = File::create(folder.join("file")).await.unwrap();
    file.write_all_at(pattern(10_000), 0).await.0.unwrap();
    file.sync_data().await.unwrap();
    file.sync_all().await.unwrap();
    if case.is_real() {
        // What cannot be: the answer of the device's side is not made up.
        let fifo = OpenOptions::new().read(true).open(folder.fifo()).await.unwrap();
        assert_eq!(fifo.sync_all().await.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
});

everywhere!(a_thousand_reads_at_once_get_each_its_own_bytes, |_| async {
    let folder = Folder::new();
    let bytes = pattern(1000 * 512);
    let file = File::open(folder.file("file", &bytes)).await.unwrap();
    let reads = (0..1000).map(|at| file.read_exact_at(Vec::with_capacity(512), 512, at * 512));
    for (at, (read, part)) in join_all(reads).await.into_iter().enumerate() {
        read.unwrap();
        assert!(part[..] == bytes[at * 512..][..512], "read {at}");
    }
});

everywhere!(a_thousand_writes_at_once_go_each_to_its_place, |_| async {
    let folder = Folder::new();
    let bytes = pattern(1000 * 512);
    let path = folder.join("file");
    let file = File::create(&path).await.unwrap();
    let writes = (0..1000).map(|at| file.write_all_at(bytes[at * 512..][..512].to_vec(), at as u64 * 512));
    for (written, _) in join_all(writes).await {
        written.unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == bytes);
});

scenario!(
    /// No page of it is in memory, so that no attempt in place has it.
    what_is_on_the_disk_only_is_read,
    |_| async {
        let folder = Folder::new();
        let bytes = pattern(1 << 20);
        let path = folder.join("file");
        let mut writer = std::fs::File::create(&path).unwrap();
        writer.write_all(&bytes).unwrap();
        writer.sync_all().unwrap();
        let forget = || {
            // SAFETY: posix_fadvise(2) takes numbers only.
            unsafe { libc::posix_fadvise(writer.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        };
        let file = File::open(&path).await.unwrap();
        for round in 0..8 {
            forget();
            let offset = round * 100_000;
            let (read, part) = file.read_exact_at(Vec::with_capacity(50_000), 50_000, offset as u64).await;
            read.unwrap();
            assert!(part[..] == bytes[offset..][..50_000], "round {round}");
        }
        // Half of it is in memory.
        forget();
        file.read_at(Vec::with_capacity(PAGE), 0).await.0.unwrap();
        let (read, all) = file.read_exact_at(Vec::with_capacity(bytes.len()), bytes.len(), 0).await;
        read.unwrap();
        assert!(all == bytes);
    }
);

everywhere!(a_file_in_memory_is_read_and_written_like_any_other, |_| async {
    // The first read finds out what kind of file system this is; the second and the writes behave
    // accordingly.
    let path = format!("/dev/shm/ringroad-fs-{}-{:?}", std::process::id(), std::thread::current().id());
    let path = std::path::Path::new(&path);
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(true);
    let Ok(file) = options.open(path).await else { return eprintln!("skipped: no /dev/shm") };
    std::fs::remove_file(path).unwrap();
    let bytes = pattern(200_000);
    for _ in 0..3 {
        file.write_all_at(bytes.clone(), 0).await.0.unwrap();
        let (read, all) = file.read_exact_at(Vec::with_capacity(200_000), 200_000, 0).await;
        read.unwrap();
        assert!(all == bytes);
        let (read, _) = file.read_at(Vec::with_capacity(1), 200_000).await;
        assert_eq!(read.unwrap(), 0);
    }
});

everywhere!(pages_are_buffers_too, |_| async {
    let folder = Folder::new();
    let bytes = pattern(5000);
    let path = folder.file("file", &bytes);
    let file = OpenOptions::new().read(true).write(true).open(&path).await.unwrap();
    let (read, pages) = file.read_exact_at(Pages::new(2 * PAGE).unwrap(), 5000, 0).await;
    read.unwrap();
    assert!(pages[..] == bytes[..]);
    let (written, pages) = file.write_all_at(pages, 5000).await;
    written.unwrap();
    assert_eq!(pages.len(), 5000);
    assert!(std::fs::read(&path).unwrap() == [&bytes[..], &bytes[..]].concat());
});

scenario!(direct_reads_work_where_they_are_aligned_and_say_so_where_not, |_| async {
    let folder = Folder::new();
    let bytes = pattern(4 * PAGE);
    let path = folder.file("file", &bytes);
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let options = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT);
    let Ok(file) = options.open(&path).await else {
        return eprintln!("skipped: no direct I/O on this file system");
    };
    let (read, pages) = file.read_exact_at(Pages::new(2 * PAGE).unwrap(), 2 * PAGE, PAGE as u64).await;
    read.unwrap();
    assert!(pages[..] == bytes[PAGE..3 * PAGE]);
    let (read, pages) = file.read_at(Pages::new(PAGE).unwrap(), 1).await;
    match read {
        // Some file systems go round it.
        Ok(read) => assert!(pages[..read] == bytes[1..=read]),
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
            assert!(error.to_string().contains("O_DIRECT"), "{error}");
        }
    }
});

cases!(
    /// The kernel's promise not to wait does not hold there: the call sleeps until the disk has answered.
    a_direct_read_is_not_tried_where_it_would_hold_up_the_runtime,
    real,
    |case| with_runtime(case, |builder| builder, move |_, runtime| {
        let tried = || runtime.counters().answered_at_once;
        runtime
            .block_on(async {
                let folder = Folder::new();
                let path = folder.file("file", &pattern(PAGE));
                std::fs::File::open(&path).unwrap().sync_all().unwrap();
                let options = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT);
                let Ok(opened) = options.open(&path).await else {
                    return eprintln!("skipped: no direct I/O on this file system");
                };
                let adopted = File::from(opened.as_fd().try_clone_to_owned().unwrap());
                for file in [opened, adopted] {
                    let before = tried();
                    let (read, pages) = file.read_exact_at(Pages::new(PAGE).unwrap(), PAGE, 0).await;
                    read.unwrap();
                    assert!(pages[..] == pattern(PAGE)[..]);
                    assert_eq!(tried(), before);
                }
                let before = tried();
                File::open(&path).await.unwrap().read_at(Vec::with_capacity(PAGE), 0).await.0.unwrap();
                assert!(tried() > before, "the counter counts what is tried");
            })
            .unwrap();
    })
);

everywhere!(whole_files_are_read_and_written, |_| async {
    let folder = Folder::new();
    let path = folder.join("file");
    for bytes in [0, 1, 255, 256, 257, 100_000] {
        let (written, back) = fs::write(&path, pattern(bytes)).await;
        written.unwrap();
        assert!(fs::read(&path).await.unwrap() == back);
        assert_eq!(back.len(), bytes);
    }
    // A file that does not tell how long it is.
    let status = fs::read("/proc/self/status").await.unwrap();
    assert!(status.starts_with(b"Name:"), "{}", String::from_utf8_lossy(&status));
    let (written, back) = fs::write(folder.path(), b"x".to_vec()).await;
    assert_eq!(written.unwrap_err().raw_os_error(), Some(libc::EISDIR));
    assert_eq!(back, b"x");
});
