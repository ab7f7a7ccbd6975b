//! Ends: dropped futures, dropped files, other threads.

use super::Folder;
use crate::support::{pattern, poll_once, runtime, some_turns, with_runtime};
use ringroad_engine::fs::{self, Dir, File, Metadata, OpenOptions};
use ringroad_engine::time::sleep;
use ringroad_engine::{DriverName, Runtime, spawn};
use std::fs as std_fs;
use std::io::{Read, Write};
use std::pin::pin;
use std::time::Duration;

/// Waits until all files are closed: what was dropped may still be with a thread of the pool.
async fn all_closed() {
    while runtime(|runtime| runtime.descriptors()) > 0 {
        sleep(Duration::from_millis(1)).await;
    }
}

everywhere!(reads_that_are_dropped_in_flight_leave_nothing_behind, |_| async {
    let folder = Folder::new();
    let bytes = pattern(1 << 20);
    let file = File::open(folder.file("file", &bytes)).await.unwrap();
    for round in 0..50 {
        for at in 0..10 {
            let _ = poll_once(pin!(file.read_at(Vec::with_capacity(10_000), (round * at) as u64 * 97))).await;
        }
        let (read, part) = file.read_exact_at(Vec::with_capacity(1000), 1000, 5000).await;
        read.unwrap();
        assert!(part[..] == bytes[5000..6000]);
    }
    drop(file);
    all_closed().await;
});

everywhere!(writes_that_are_dropped_in_flight_are_done_or_not_and_nothing_else, |_| async {
    let folder = Folder::new();
    let path = folder.file("file", &[0; 8192]);
    let file = OpenOptions::new().read(true).write(true).open(&path).await.unwrap();
    for _ in 0..50 {
        let _ = poll_once(pin!(file.write_at(vec![1; 4096], 4096))).await;
    }
    drop(file);
    all_closed().await;
    let after = std_fs::read(&path).unwrap();
    assert_eq!(after.len(), 8192);
    assert!(after[..4096].iter().all(|byte| *byte == 0));
    assert!(after[4096..].iter().all(|byte| *byte <= 1));
});

everywhere!(
    /// The harness looks at the count of open descriptors at the end; this one also asks the system.
    an_open_that_is_dropped_closes_what_it_brings,
    |_| async {
        let folder = Folder::new();
        let path = folder.file("file", b"x");
        for _ in 0..100 {
            let _ = poll_once(pin!(File::open(&path))).await;
        }
        let made = folder.join("made");
        let _ = poll_once(pin!(File::create(&made))).await;
        all_closed().await;
        // On the pool the last open may still be running; until it returns, the engine cannot count its
        // descriptor.
        while is_open_here(&path) || is_open_here(&made) {
            sleep(Duration::from_millis(1)).await;
        }
    }
);

/// Whether this process has the file open.
fn is_open_here(path: &std::path::Path) -> bool {
    let descriptors = std_fs::read_dir("/proc/self/fd").unwrap();
    descriptors.flatten().any(|entry| std_fs::read_link(entry.path()).is_ok_and(|target| target == path))
}

everywhere!(a_file_that_is_dropped_is_closed, |_| async {
    let folder = Folder::new();
    let path = folder.file("file", b"x");
    let file = File::open(&path).await.unwrap();
    let clone = file.clone();
    assert_eq!(runtime(|runtime| runtime.descriptors()), 1, "clones share a descriptor");
    drop(file);
    assert!(is_open_here(&path));
    drop(clone);
    assert!(!is_open_here(&path));
    assert_eq!(runtime(|runtime| runtime.descriptors()), 0);
});

everywhere!(a_close_waits_for_the_file_to_be_closed, |_| async {
    let folder = Folder::new();
    let path = folder.file("file", b"x");
    let file = File::open(&path).await.unwrap();
    let other = file.clone();
    file.close().await.unwrap();
    assert!(is_open_here(&path), "a clone keeps it open");
    other.close().await.unwrap();
    assert!(!is_open_here(&path));
});

everywhere!(files_go_to_the_standard_library_and_come_from_there, |_| async {
    let folder = Folder::new();
    let path = folder.file("file", b"0123456789");
    let file = File::open(&path).await.unwrap();
    let two = file.try_clone().unwrap();
    let mut theirs = file.into_std().unwrap();
    let mut bytes = [0; 4];
    theirs.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"0123");
    assert_eq!(runtime(|runtime| runtime.descriptors()), 0, "it is no longer the runtime's");
    let ours = File::from_std(theirs);
    for file in [ours, two] {
        let (read, bytes) = file.read_exact_at(Vec::with_capacity(4), 4, 2).await;
        read.unwrap();
        assert_eq!(bytes, b"2345");
    }
    // While something is under way, the standard library gets a descriptor of its own.
    let file = File::open(&path).await.unwrap();
    let shared = file.clone();
    let theirs = file.into_std().unwrap();
    assert_eq!(shared.metadata().await.unwrap().len(), theirs.metadata().unwrap().len());
});

cases!(
    /// A runtime is a thread's; a file is not.
    a_file_is_used_on_several_runtimes_at_once,
    real,
    |case| with_runtime(case, |builder| builder, move |_, runtime| {
        let folder = Folder::new();
        let bytes = pattern(100_000);
        let path = folder.file("file", &bytes);
        let file = runtime.block_on(File::open(&path)).unwrap().unwrap();
        let threads: Vec<_> = (0..4usize)
            .map(|at| {
                let (file, bytes) = (file.clone(), bytes.clone());
                std::thread::spawn(move || {
                    let name = if at % 2 == 0 { case.driver() } else { DriverName::Poll };
                    let runtime = Runtime::builder(name).build().unwrap();
                    runtime
                        .block_on(async {
                            for offset in (at * 1000..90_000).step_by(4000) {
                                let room = Vec::with_capacity(5000);
                                let (read, part) = file.read_exact_at(room, 5000, offset as u64).await;
                                read.unwrap();
                                assert!(part[..] == bytes[offset..][..5000]);
                            }
                        })
                        .unwrap();
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    })
);

cases!(
    /// It is the last to know of the file, and of an operation that waits for a peer.
    a_runtime_that_ends_with_a_read_in_flight_closes_the_file,
    real,
    |case| {
        let folder = Folder::new();
        let path = folder.fifo();
        let runtime = case.builder().build().unwrap();
        let mut writer = runtime
            .block_on(async {
                let reader = File::open(&path).await.unwrap();
                let writer = std_fs::OpenOptions::new().write(true).open(&path).unwrap();
                spawn(async move { reader.read_at(Vec::with_capacity(100), 0).await.0.is_ok() }).detach();
                some_turns().await;
                writer
            })
            .unwrap();
        runtime.shutdown(std::time::Duration::from_secs(30)).unwrap();
        // A thread of the pool that is in read(2) stays there until its peer speaks.
        let _ = writer.write_all(b"x");
        drop(writer);
        while is_open_here(&path) {
            std::thread::yield_now();
        }
    }
);

everywhere!(operations_of_all_kinds_are_dropped_at_any_moment, |_| async {
    let folder = Folder::new();
    let path = folder.file("file", b"x");
    for _ in 0..20 {
        let _ = poll_once(pin!(fs::metadata(&path))).await.map(Result::<Metadata, _>::unwrap);
        let _ = poll_once(pin!(fs::create_dir(folder.join("directory")))).await;
        let _ = poll_once(pin!(fs::rename(&path, &path))).await;
        let _ = poll_once(pin!(fs::read_link(&path))).await;
        let _ = poll_once(pin!(Dir::open(folder.path()))).await;
        let _ = poll_once(pin!(fs::read(&path))).await;
        some_turns().await;
    }
    all_closed().await;
    // What is still with the pool needs the folder.
    while is_open_here(&path) || is_open_here(folder.path()) {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(std_fs::read(&path).unwrap(), b"x");
});

/// The compiler checks this: files and directories may go anywhere.
#[test]
fn files_are_send_and_sync() {
    fn goes_anywhere<T: Send + Sync + 'static>() {}
    goes_anywhere::<File>();
    goes_anywhere::<Dir>();
    goes_anywhere::<OpenOptions>();
}
