//! Files of every awkward size, shape and behaviour, read in order through many reads in flight.
use ringroad_uring::{DIRECT_ALIGNMENT, ReadAhead, ReadError, Ring, Source};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

const BLOCK: u32 = DIRECT_ALIGNMENT;

fn reader(depth: u32, block_bytes: u32) -> ReadAhead {
    ReadAhead::new(Ring::builder(depth), block_bytes).unwrap()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|k| (k * 31 % 253) as u8).collect()
}

fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn collect(reader: &mut ReadAhead, file: &File, source: Source) -> Result<Vec<u8>, ReadError> {
    let mut all = Vec::new();
    let count = reader.read(file.as_fd(), source, &mut |bytes| {
        all.extend_from_slice(bytes);
        Ok(())
    })?;
    assert_eq!(count, all.len() as u64);
    Ok(all)
}

#[test]
fn files_around_every_block_boundary_come_whole_and_in_order() {
    let block = BLOCK as usize;
    let mut reader = reader(4, BLOCK);
    for length in [0, 1, block - 1, block, block + 1, 4 * block - 1, 4 * block, 4 * block + 1, 37 * block + 5]
    {
        let bytes = pattern(length);
        let file = file_of(&bytes);
        let got = collect(&mut reader, file.as_file(), Source::Positioned { size: length as u64 }).unwrap();
        assert!(got == bytes, "{length} bytes");
    }
}

#[test]
fn a_wrong_size_does_not_matter() {
    let bytes = pattern(10 * BLOCK as usize + 7);
    let file = file_of(&bytes);
    for size in [0, 1, BLOCK as u64, 3 * BLOCK as u64, u64::from(BLOCK) * 100] {
        let got = collect(&mut reader(4, BLOCK), file.as_file(), Source::Positioned { size }).unwrap();
        assert!(got == bytes, "told {size}");
    }
}

#[test]
fn block_sizes_off_alignment_work_on_cached_files() {
    let bytes = pattern(10_000);
    let file = file_of(&bytes);
    for block_bytes in [1, 7, 1000, 5000, 20_000] {
        let got = collect(&mut reader(8, block_bytes), file.as_file(), Source::Positioned { size: 10_000 })
            .unwrap();
        assert!(got == bytes, "blocks of {block_bytes}");
    }
}

#[test]
fn a_file_that_claims_to_be_empty_is_read() {
    let file = File::open("/proc/self/status").unwrap();
    let got = collect(&mut reader(4, BLOCK), &file, Source::Positioned { size: 0 }).unwrap();
    assert!(String::from_utf8(got).unwrap().starts_with("Name:"));
}

/// `/proc/kallsyms` answers a read with a piece of less than a page, whatever was asked for, and claims 0
/// bytes.
#[test]
fn a_file_that_answers_in_short_pieces_is_read_to_its_end() {
    let expected = std::fs::read("/proc/kallsyms").unwrap();
    let file = File::open("/proc/kallsyms").unwrap();
    let got = collect(&mut reader(4, 16 * BLOCK), &file, Source::Positioned { size: 0 }).unwrap();
    assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
}

#[test]
fn direct_reads_give_the_same_bytes() {
    // In the build folder: the system's temporary one may be a tmpfs, which knew no O_DIRECT before 6.6.
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bytes = pattern(9 * BLOCK as usize + 123);
    file.write_all(&bytes).unwrap();
    let direct = match File::options().read(true).custom_flags(libc::O_DIRECT).open(file.path()) {
        Ok(direct) => direct,
        Err(error) => return eprintln!("skipped: O_DIRECT on this file system: {error}"),
    };
    let source = Source::Positioned { size: bytes.len() as u64 };
    assert!(collect(&mut reader(4, 2 * BLOCK), &direct, source).unwrap() == bytes);
}

/// With SQPOLL a completion may come before its entry is free again: many small blocks meet that often.
#[test]
fn a_kernel_thread_that_submits_for_us_changes_nothing() {
    let bytes = pattern(3000 * BLOCK as usize + 17);
    let file = file_of(&bytes);
    let mut reader = ReadAhead::new(Ring::builder(2).sqpoll(50), BLOCK).unwrap();
    let got = collect(&mut reader, file.as_file(), Source::Positioned { size: bytes.len() as u64 }).unwrap();
    assert!(got == bytes);
}

#[test]
fn a_stream_is_read_in_order_to_its_end() {
    let (reading, writing) = io::pipe().unwrap();
    let bytes = pattern(300_000);
    let expected = bytes.clone();
    let feeder = std::thread::spawn(move || (&writing).write_all(&bytes).unwrap());
    let file = File::from(std::os::fd::OwnedFd::from(reading));
    assert!(collect(&mut reader(4, BLOCK), &file, Source::Stream).unwrap() == expected);
    feeder.join().unwrap();
}

#[test]
fn a_directory_fails_at_byte_zero_and_the_reader_goes_on_with_the_next() {
    let mut reader = reader(4, BLOCK);
    let directory = File::open("/").unwrap();
    match collect(&mut reader, &directory, Source::Positioned { size: 100_000 }) {
        Err(ReadError::Source { offset: 0, error }) => assert_eq!(error.raw_os_error(), Some(libc::EISDIR)),
        other => panic!("{other:?}"),
    }
    let file = file_of(b"still working");
    assert_eq!(
        collect(&mut reader, file.as_file(), Source::Positioned { size: 13 }).unwrap(),
        b"still working"
    );
}

#[test]
fn a_sink_that_refuses_ends_the_reading_and_nothing_stays_in_flight() {
    let bytes = pattern(40 * BLOCK as usize);
    let file = file_of(&bytes);
    let mut reader = reader(8, BLOCK);
    let mut calls = 0;
    let source = Source::Positioned { size: bytes.len() as u64 };
    let outcome = reader.read(file.as_file().as_fd(), source, &mut |_| {
        calls += 1;
        if calls == 3 { Err(io::Error::other("full")) } else { Ok(()) }
    });
    assert!(matches!(outcome, Err(ReadError::Sink(_))), "{outcome:?}");
    // A read left over would complete into the next file's blocks and be mistaken for its bytes.
    assert!(collect(&mut reader, file.as_file(), source).unwrap() == bytes);
}

#[test]
fn a_sink_that_panics_does_not_leave_the_kernel_writing_into_freed_memory() {
    let bytes = pattern(40 * BLOCK as usize);
    let file = file_of(&bytes);
    let source = Source::Positioned { size: bytes.len() as u64 };
    let panicked = std::panic::catch_unwind(|| {
        let mut reader = reader(8, BLOCK);
        let _ = reader.read(file.as_file().as_fd(), source, &mut |_| panic!("the sink gives up"));
    });
    assert!(panicked.is_err());
    // The mapping is free for others now: what the kernel still wrote would show up in it.
    let pages: Vec<Vec<u8>> = (0..64).map(|_| vec![0_u8; BLOCK as usize]).collect();
    assert!(pages.iter().flatten().all(|byte| *byte == 0));
}

#[test]
fn a_file_cut_short_while_it_is_read_ends_where_it_ends() {
    let bytes = pattern(20 * BLOCK as usize);
    let file = file_of(&bytes);
    let source = Source::Positioned { size: bytes.len() as u64 };
    let mut got = Vec::new();
    let mut cut = false;
    reader(2, BLOCK)
        .read(file.as_file().as_fd(), source, &mut |part| {
            got.extend_from_slice(part);
            if !cut {
                cut = true;
                file.as_file().set_len(10 * u64::from(BLOCK) + 100).unwrap();
            }
            Ok(())
        })
        .unwrap();
    assert!(got == bytes[..10 * BLOCK as usize + 100]);
}

#[test]
fn blocks_without_bytes_are_refused() {
    let error = ReadAhead::new(Ring::builder(1), 0).unwrap_err();
    assert!(error.to_string().contains("1 to"), "{error}");
}

/// Whether the kernel waits by itself (Linux 6.18 does) or answers EAGAIN: asking again at once would spin
/// until the writer comes.
#[test]
fn a_stream_in_non_blocking_mode_is_waited_for_without_spinning() {
    let (reading, writing) = io::pipe().unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&reading);
    // SAFETY: plain numbers; the descriptor is open.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    let feeder = std::thread::spawn(move || {
        for part in [&b"first"[..], b"second"] {
            std::thread::sleep(std::time::Duration::from_millis(50));
            (&writing).write_all(part).unwrap();
        }
    });
    let file = File::from(std::os::fd::OwnedFd::from(reading));
    let mut reader = reader(4, BLOCK);
    assert_eq!(collect(&mut reader, &file, Source::Stream).unwrap(), b"firstsecond");
    // A try and a wait for each part and for the end; spinning makes a hundred thousand.
    assert!(reader.enters() < 20, "{} calls", reader.enters());
    feeder.join().unwrap();
}
