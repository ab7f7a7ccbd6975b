//! Listing directories.

use super::Folder;
use crate::support::poll_once;
use futures_util::future::join_all;
use ringroad_engine::fs::{self, FileType};
use std::collections::BTreeSet;
use std::pin::pin;

everywhere!(a_listing_tells_names_and_kinds, |_| async {
    let folder = Folder::new();
    folder.file("file", b"");
    fs::create_dir(folder.join("directory")).await.unwrap();
    fs::symlink("nothing", folder.join("link")).await.unwrap();
    folder.fifo();
    let mut listing = fs::read_dir(folder.path()).await.unwrap();
    let mut found = BTreeSet::new();
    while let Some(entry) = listing.next().await {
        let entry = entry.unwrap();
        let told = fs::symlink_metadata(entry.path()).await.unwrap();
        assert_eq!(entry.ino(), told.ino());
        // A file system may leave it at that.
        if entry.file_type() != FileType::Unknown {
            assert_eq!(entry.file_type(), told.file_type());
        }
        found.insert(entry.file_name().to_str().unwrap().to_owned());
    }
    assert_eq!(found, ["directory", "fifo", "file", "link"].map(String::from).into());
    assert!(listing.next().await.is_none(), "it stays at its end");
});

scenario!(an_empty_directory_and_what_is_none, |_| async {
    let folder = Folder::new();
    assert!(fs::read_dir(folder.path()).await.unwrap().next().await.is_none());
    let error = fs::read_dir(folder.file("file", b"")).await.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTDIR));
    // One that was removed is listed no more.
    let gone = folder.join("gone");
    fs::create_dir(&gone).await.unwrap();
    let mut listing = fs::read_dir(&gone).await.unwrap();
    fs::remove_dir(&gone).await.unwrap();
    match listing.next().await {
        None => {}
        Some(told) => assert_eq!(told.unwrap_err().raw_os_error(), Some(libc::ENOENT)),
    }
    assert!(listing.next().await.is_none());
});

scenario!(
    /// Names of 200 bytes: two megabytes of entries, through a chunk that holds some 140 of them.
    ten_thousand_entries_are_listed_a_chunk_at_a_time,
    |_| async {
        const ENTRIES: usize = 10_000;
        let folder = Folder::new();
        let name = |at: usize| format!("{at:0>200}");
        for at in 0..ENTRIES {
            std::fs::hard_link(folder.file_once(), folder.join(name(at))).unwrap();
        }
        let mut listing = fs::read_dir(folder.path()).await.unwrap();
        let mut found = vec![0u8; ENTRIES];
        while let Some(entry) = listing.next().await {
            assert!(listing.held_bytes() <= 32 * 1024, "{} bytes are held", listing.held_bytes());
            let entry = entry.unwrap();
            let name = entry.file_name().to_str().unwrap();
            if name.len() == 200 {
                found[name.parse::<usize>().unwrap()] += 1;
            }
        }
        assert!(found.iter().all(|times| *times == 1), "each is listed once");
    }
);

everywhere!(
    /// The future of one entry is dropped while a chunk is on its way.
    a_dropped_step_of_a_listing_loses_nothing,
    |_| async {
        let folder = Folder::new();
        for at in 0..500 {
            folder.file(&format!("{at}"), b"");
        }
        let mut listing = fs::read_dir(folder.path()).await.unwrap();
        let mut found = BTreeSet::new();
        loop {
            if poll_once(pin!(listing.next())).await.is_some_and(|told| match told {
                None => true,
                Some(entry) => !found.insert(entry.unwrap().file_name().to_owned()),
            }) {
                break;
            }
            match listing.next().await {
                None => break,
                Some(entry) => assert!(found.insert(entry.unwrap().file_name().to_owned())),
            }
        }
        assert_eq!(found.len(), 500);
    }
);

everywhere!(many_directories_are_made_and_removed_at_once, |_| async {
    let folder = Folder::new();
    let all = |make: bool| {
        let paths = (0..200).map(|at| folder.join(format!("{at}")));
        join_all(paths.map(move |path| async move {
            if make { fs::create_dir(path).await } else { fs::remove_dir(path).await }
        }))
    };
    all(true).await.into_iter().for_each(|made| made.unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 200);
    all(false).await.into_iter().for_each(|removed| removed.unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
});
