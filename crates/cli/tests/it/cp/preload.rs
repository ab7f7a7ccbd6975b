//! Libraries that stand before libc, as fakeroot's: what they pretend is copied, and they hear what is
//! changed.

use super::engines;
use crate::support::{BINARY, is_root, own_copy, ringroad, run, skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tells that files of one time belong to 4242:4343, and notes what would be changed instead of doing it.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static int lie(int answer, struct stat *s) {
    if (answer == 0 && s->st_mtime == 1000000) { s->st_uid = 4242; s->st_gid = 4343; }
    return answer;
}
static int note(const char *format, ...) {
    char line[200];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    int log = open(getenv("HEARD"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (log < 0 || write(log, line, length) != length) abort();
    close(log);
    return 0;
}
int fstat(int f, struct stat *s) { return lie(syscall(SYS_fstat, f, s), s); }
int fstat64(int f, struct stat64 *s) { return fstat(f, (struct stat *)s); }
int fstatat(int at, const char *n, struct stat *s, int flags) { return lie(syscall(SYS_newfstatat, at, n, s, flags), s); }
int fstatat64(int at, const char *n, struct stat64 *s, int flags) { return fstatat(at, n, (struct stat *)s, flags); }
int stat(const char *n, struct stat *s) { return fstatat(AT_FDCWD, n, s, 0); }
int stat64(const char *n, struct stat64 *s) { return stat(n, (struct stat *)s); }
int lstat(const char *n, struct stat *s) { return fstatat(AT_FDCWD, n, s, AT_SYMLINK_NOFOLLOW); }
int lstat64(const char *n, struct stat64 *s) { return lstat(n, (struct stat *)s); }
int fchown(int f, uid_t u, gid_t g) { return note("fchown %d:%d\n", u, g); }
int fchownat(int at, const char *n, uid_t u, gid_t g, int flags) { return note("fchownat %d:%d %s\n", u, g, n); }
int fchmod(int f, mode_t m) { note("fchmod %o\n", m); return syscall(SYS_fchmod, f, m); }
int fchmodat(int at, const char *n, mode_t m, int flags) { note("fchmodat %o\n", m); return syscall(SYS_fchmodat, at, n, m); }
int mknodat(int at, const char *n, mode_t m, dev_t d) { note("mknodat %o %s\n", m & S_IFMT, n); return syscall(SYS_mknodat, at, n, m, d); }
int renameat(int at, const char *a, int to, const char *b) { note("renameat %s\n", a); return syscall(SYS_renameat2, at, a, to, b, 0); }
int unlinkat(int at, const char *n, int flags) { note("unlinkat %s\n", n); return syscall(SYS_unlinkat, at, n, flags); }
int mkdirat(int at, const char *n, mode_t m) { note("mkdirat %s\n", n); return syscall(SYS_mkdirat, at, n, m); }
int symlinkat(const char *t, int at, const char *n) { note("symlinkat %s\n", n); return syscall(SYS_symlinkat, t, at, n); }
int linkat(int at, const char *a, int to, const char *b, int flags) { note("linkat %s\n", b); return syscall(SYS_linkat, at, a, to, b, flags); }
int fsetxattr(int f, const char *n, const void *v, size_t l, int flags) { return note("fsetxattr %s\n", n); }
"#;

/// The library, where there is a compiler for it and this program is one that it is loaded into.
fn library(folder: &Path) -> Option<PathBuf> {
    let (source, built) = (folder.join("heard.c"), folder.join("heard.so"));
    fs::write(&source, LIBRARY).unwrap();
    let made = Command::new("cc").args(["-shared", "-fPIC", "-w", "-o"]).args([&built, &source]).output();
    match made {
        Ok(made) if made.status.success() => Some(built),
        other => {
            skip("a library before libc", &format!("cc does not make it: {other:?}"));
            None
        }
    }
}

/// A file with all that there is, a link, a FIFO, a second name and a directory, all of the time that the
/// library looks for.
const TREE: &str = "mkdir -p s/d && echo x >s/f && chmod 4755 s/f && ln -s f s/l && mkfifo s/p && chmod 622 s/p && ln s/f s/g
    setfattr -n user.mark -v 1 s/f 2>/dev/null && echo marked
    touch -h -d @1000000 s/f s/l s/p s/d s";

#[test]
fn what_changes_a_copy_goes_through_the_functions_of_libc() {
    if cfg!(target_feature = "crt-static") {
        return skip("a library before libc", "this program is static");
    }
    for engine in engines() {
        let folder = tempfile::tempdir().unwrap();
        let Some(library) = library(folder.path()) else { return };
        let shell = run(Command::new("sh").args(["-c", TREE]).current_dir(folder.path()));
        assert_eq!(shell.code, Some(0), "{shell:?}");
        let log = folder.path().join("heard");
        let copy = |words: &[&str]| {
            let mut copy = ringroad(["cp", "-a", "--engine", engine].iter().chain(words));
            run(copy.current_dir(folder.path()).env("LD_PRELOAD", &library).env("HEARD", &log))
        };
        let outcome = copy(&["s", "t"]);
        let warned = outcome.stderr.contains("LD_PRELOAD is set, and its libraries do not hear");
        assert_eq!((outcome.code, warned), (Some(0), *engine != "threads"), "{engine}: {outcome:?}");
        let again = copy(&["--remove-destination", "--backup=numbered", "s/f", "s/l", "t"]);
        assert_eq!(again.code, Some(0), "{engine}: {again:?}");
        let heard = fs::read_to_string(&log).unwrap();
        let mut wanted = vec![
            "fchown 4242:4343",
            "fchownat 4242:4343 l",
            "fchownat 4242:4343 p",
            "fchmod 4755",
            "fchmodat 622",
            "mkdirat d",
            "mknodat 10000 p",
            "symlinkat l",
            "linkat",
            "renameat f",
        ];
        if shell.text().contains("marked") {
            wanted.push("fsetxattr user.mark");
        }
        for call in wanted {
            assert!(heard.lines().any(|line| line.starts_with(call)), "{engine}: no {call} in\n{heard}");
        }
    }
}

#[test]
fn auto_uses_no_ring_where_a_library_stands_before_libc_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "x").unwrap();
    let explained = |key: Option<&str>| {
        let mut copy = ringroad(["cp", "--explain", "a", "b"]);
        copy.current_dir(folder.path()).env_remove("LD_PRELOAD").env_remove("RINGROAD_DRIVER");
        key.map(|key| copy.env("FAKEROOTKEY", key));
        run(&mut copy).text()
    };
    assert!(
        explained(Some("7")).contains("not ring: LD_PRELOAD is set")
            || explained(None).contains("not ring: ")
    );
    assert!(!explained(None).contains("LD_PRELOAD"));
    assert!(!explained(Some("")).contains("LD_PRELOAD"));
}

/// As dpkg-buildpackage runs it: whatever the account.
#[test]
fn a_package_built_under_fakeroot_keeps_its_owners() {
    if !crate::support::installed("fakeroot") || cfg!(target_feature = "crt-static") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let binary = own_copy(folder.path());
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
    let script = "cd \"$1\" && mkdir s && echo x >s/f && fakeroot sh -c 'chown 123:456 s/f; chmod 4755 s/f; mknod s/n c 5 7
        chown 1:2 s; \"$0\" cp -a s t; echo $?
        stat -c \"%n %u:%g %a %F\" t t/f t/n' \"$0\"";
    let mut shell = if is_root() {
        let mut shell = Command::new("setpriv");
        shell.args(["--reuid=12345", "--regid=12345", "--clear-groups", "sh"]);
        shell
    } else {
        Command::new("sh")
    };
    let outcome = run(shell.args(["-c", script]).arg(&binary).arg(folder.path()).env("LC_ALL", "C"));
    if outcome.stderr.contains("semaphore") || outcome.stderr.contains("message queue") {
        return skip("fakeroot", &outcome.stderr);
    }
    let wanted =
        "0\nt 1:2 755 directory\nt/f 123:456 4755 regular file\nt/n 0:0 644 character special file\n";
    assert_eq!(outcome.text(), wanted, "{BINARY}: {outcome:?}");
}
