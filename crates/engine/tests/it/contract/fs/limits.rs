//! Limits of the machine: no room, files that may not grow, descriptors.

use super::Folder;
use crate::support::{Case, alone, child, role, with_runtime};
use ringroad_engine::fs::{self, File, OpenOptions};

scenario!(a_full_device_says_so_and_gives_the_buffer_back, |_| async {
    let file = OpenOptions::new().write(true).open("/dev/full").await.unwrap();
    let (written, back) = file.write_at(vec![1; 100], 0).await;
    let error = written.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    assert!(error.to_string().starts_with("pwrite, on descriptor"), "{error}");
    assert_eq!(back, vec![1; 100]);
});

/// In a mount namespace with a small file system.
const IN_SMALL: &str = "in a small file system";
const SMALL_BYTES: usize = 64 * 1024;

cases!(
    /// 64 KiB of tmpfs, in a mount namespace of a child's own, which takes them with it.
    a_file_system_that_fills_up_takes_what_it_has_room_for,
    real,
    |case| {
        // SAFETY: geteuid(2) takes nothing.
        if unsafe { libc::geteuid() } != 0 {
            return eprintln!("skipped: only root mounts");
        }
        if role().as_deref() == Some(IN_SMALL) {
            return fill_up(case);
        }
        let folder = Folder::new();
        let mount = format!("mount -t tmpfs -o size={SMALL_BYTES} none \"$0\" || exit 77; exec \"$@\"");
        let test = child(IN_SMALL);
        let mut command = std::process::Command::new("unshare");
        command.args(["-m", "sh", "-c", &mount]).arg(folder.path()).arg(test.get_program());
        command.args(test.get_args()).env("RINGROAD_TEST_FOLDER", folder.path());
        command.envs(test.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let Ok(output) = command.output() else { return eprintln!("skipped: no unshare(1)") };
        if output.status.code() == Some(77) || output.status.code() == Some(1) && output.stdout.is_empty() {
            return eprintln!("skipped: mounting is not permitted here");
        }
        let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
    }
);

fn fill_up(case: Case) {
    let path = std::path::PathBuf::from(std::env::var_os("RINGROAD_TEST_FOLDER").unwrap()).join("file");
    with_runtime(
        case,
        |builder| builder,
        move |_, runtime| {
            runtime
                .block_on(async {
                    let file =
                        OpenOptions::new().read(true).write(true).create(true).open(&path).await.unwrap();
                    let (written, back) = file.write_at(vec![7; 2 * SMALL_BYTES], 0).await;
                    let written = written.unwrap();
                    assert!(written > 0 && written <= SMALL_BYTES, "{written} bytes were taken");
                    assert_eq!(back.len(), 2 * SMALL_BYTES);
                    assert_eq!(file.metadata().await.unwrap().len(), written as u64);
                    let (all, _) = file.write_all_at(vec![7; 2 * SMALL_BYTES], 0).await;
                    assert_eq!(all.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
                    // Freed, it can be used again.
                    file.set_len(0).await.unwrap();
                    file.write_all_at(vec![8; 4096], 0).await.0.unwrap();
                    assert_eq!(fs::read(&path).await.unwrap(), vec![8; 4096]);
                })
                .unwrap();
        },
    );
}

cases!(
    /// Asked not to end the process over it (SIGXFSZ), the kernel says EFBIG.
    a_file_does_not_grow_beyond_what_is_allowed,
    real,
    |case| alone(None, || with_runtime(case, |builder| builder, move |_, runtime| {
        const MOST: usize = 100_000;
        let folder = Folder::new();
        let path = folder.join("file");
        let limit = libc::rlimit { rlim_cur: MOST as libc::rlim_t, rlim_max: MOST as libc::rlim_t };
        // SAFETY: numbers, and a structure that is read during the call.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
        }
        runtime
            .block_on(async {
                let file = File::create(&path).await.unwrap();
                let (written, _) = file.write_at(vec![1; 2 * MOST], 0).await;
                assert_eq!(written.unwrap(), MOST, "what fits is written");
                let (written, back) = file.write_at(vec![1; 10], MOST as u64).await;
                assert_eq!(written.unwrap_err().raw_os_error(), Some(libc::EFBIG));
                assert_eq!(back.len(), 10);
                let (all, _) = file.write_all_at(vec![1; 2 * MOST], 0).await;
                assert_eq!(all.unwrap_err().raw_os_error(), Some(libc::EFBIG));
                assert_eq!(file.set_len(1 << 30).await.unwrap_err().raw_os_error(), Some(libc::EFBIG));
                assert_eq!(file.metadata().await.unwrap().len(), MOST as u64);
            })
            .unwrap();
    }))
);

cases!(no_descriptor_left_is_an_error_and_one_closed_is_one_gained, real, |case| alone(Some(64), || {
    with_runtime(
        case,
        |builder| builder,
        move |_, runtime| {
            runtime
                .block_on(async {
                    let folder = Folder::new();
                    let path = folder.file("file", b"x");
                    let mut files = Vec::new();
                    let error = loop {
                        match File::open(&path).await {
                            Ok(file) => files.push(file),
                            Err(error) => break error,
                        }
                    };
                    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
                    assert!(error.to_string().contains("file"), "{error}");
                    files.pop();
                    files.push(File::open(&path).await.unwrap());
                })
                .unwrap();
        },
    )
}));
