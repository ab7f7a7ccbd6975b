//! File systems and disks of their own for tests: made in a file, mounted or attached while they are needed.

use rustix::mount::UnmountFlags;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A file system in a file, unmounted when dropped.
pub(crate) struct Image {
    image: PathBuf,
    bytes: u64,
    pub(crate) mounted: PathBuf,
    _place: tempfile::TempDir,
}

impl Image {
    /// `None`, with the reason on stderr, where it cannot be made.
    pub(crate) fn new(bytes: u64) -> Option<Image> {
        Image::of(&["mkfs.ext4", "-q", "-F", "-m", "0"], bytes)
    }

    /// One that `words` make on a file.
    pub(crate) fn of(words: &[&str], bytes: u64) -> Option<Image> {
        let skip = |why: &str| {
            eprintln!("skipped: {why}");
            None
        };
        if !rustix::process::geteuid().is_root() {
            return skip("mounting an image needs root");
        }
        let place = tempfile::tempdir().unwrap();
        let image = place.path().join("image");
        File::create(&image).unwrap().set_len(bytes).unwrap();
        let made = Command::new(words[0]).args(&words[1..]).arg(&image).output();
        if !made.is_ok_and(|made| made.status.success()) {
            return skip(&format!("{} is not there", words[0]));
        }
        let mounted = place.path().join("mounted");
        std::fs::create_dir(&mounted).unwrap();
        let image = Image { image, bytes, mounted, _place: place };
        if !image.mount() {
            return skip("no loop device to mount the image");
        }
        Some(image)
    }

    pub(crate) fn mount(&self) -> bool {
        let mount = Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.mounted).output();
        mount.is_ok_and(|mount| mount.status.success())
    }

    /// Cuts the disk short: what lies behind `bytes` cannot be read any more.
    pub(crate) fn cut(&self, bytes: u64) {
        File::options().write(true).open(&self.image).unwrap().set_len(bytes).unwrap();
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        self.cut(self.bytes);
        unmount(&self.mounted);
    }
}

/// A loop device over a file. It is detached as soon as it is open here, so that the kernel takes it away
/// with its last descriptor (loop(4), `LO_FLAGS_AUTOCLEAR`): also where a test fails or is killed.
pub(crate) struct Disk {
    pub(crate) path: PathBuf,
    _held: File,
}

impl Disk {
    /// `None` where there are no loop devices.
    pub(crate) fn over(image: &Path) -> Option<Disk> {
        let attached = Command::new("losetup").args(["--find", "--show"]).arg(image).output().ok()?;
        if !attached.status.success() {
            return None;
        }
        let path = PathBuf::from(String::from_utf8_lossy(&attached.stdout).trim());
        let held = File::open(&path);
        let detached = Command::new("losetup").arg("--detach").arg(&path).status();
        assert!(detached.is_ok_and(|status| status.success()), "{}", path.display());
        Some(Disk { path, _held: held.unwrap() })
    }
}

/// Takes a file system away. It is busy for a moment after a copy with rings: the kernel closes their files
/// later. One that is still busy after a while goes with the last file that is open in it.
pub(crate) fn unmount(at: &Path) {
    for _ in 0..200 {
        if rustix::mount::unmount(at, UnmountFlags::empty()) != Err(rustix::io::Errno::BUSY) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = rustix::mount::unmount(at, UnmountFlags::DETACH);
}
