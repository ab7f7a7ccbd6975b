//! Child processes, and descriptors over Unix sockets.

use crate::on_each;
use ringroad_engine::{spawn, yield_now};
use ringroad_io::{AsyncReadExt, AsyncWrite, DescriptorSocket, process};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

#[test]
fn a_process_is_written_to_read_from_and_waited_for() {
    on_each(|| async {
        let mut command = Command::new("sh");
        command.args(["-c", "read line; echo \"got $line\"; echo failed >&2; exit 3"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = process::spawn(&mut command)?;
        assert_eq!(child.try_wait()?, None);
        child.stdin.as_mut().unwrap().write_all("a line\n").await.0?;
        assert_eq!(child.stdout.take().unwrap().read_to_string().await?, "got a line\n");
        assert_eq!(child.stderr.take().unwrap().read_to_string().await?, "failed\n");
        assert_eq!(child.wait().await?.code(), Some(3));
        assert_eq!(child.wait().await?.code(), Some(3), "also the second time");
        Ok(())
    });
}

#[test]
fn a_killed_process_ends_by_its_signal_while_others_run() {
    on_each(|| async {
        let mut child = process::spawn(Command::new("sleep").arg("1000"))?;
        let other = spawn(async { yield_now().await });
        child.kill()?;
        assert_eq!(child.wait().await?.signal(), Some(9));
        other.await.unwrap();
        Ok(())
    });
}

#[test]
fn a_dropped_child_is_reaped_when_the_next_one_starts() {
    /// Waits until the process has ended, and leaves it to be reaped. Returns whether it existed.
    fn has_ended(pid: u32) -> bool {
        let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).is_ok()
    }
    on_each(|| async {
        let mut child = process::spawn(Command::new("cat").stdin(Stdio::piped()))?;
        let (id, input) = (child.id(), child.stdin.take());
        drop(child);
        // The program reads to the end of its input.
        drop(input);
        // Another test that starts a process may have reaped it.
        let _ = has_ended(id);
        drop(process::spawn(Command::new("sleep").arg("0"))?);
        assert!(!has_ended(id), "it is a zombie");
        Ok(())
    });
}

#[test]
fn all_output_is_collected_up_to_a_limit() {
    on_each(|| async {
        // More bytes than a pipe holds, on both pipes at once.
        let mut command = Command::new("sh");
        command.args(["-c", "head -c 200000 /dev/zero >&2; head -c 300000 /dev/zero"]);
        let output = process::output(&mut command, 1 << 20).await?;
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 200_000));
        assert!(output.status.success());
        let why = process::output(&mut command, 1000).await.unwrap_err();
        assert_eq!(why.kind(), ErrorKind::InvalidData);
        assert!(why.to_string().contains("sh prints more than the limit of 1000 bytes"), "{why}");
        let missing = process::spawn(&mut Command::new("/no/such/program")).unwrap_err();
        assert!(missing.kind() == ErrorKind::NotFound && missing.to_string().contains("/no/such/program"));
        Ok(())
    });
}

#[test]
fn descriptors_arrive_with_their_message() {
    on_each(|| async {
        let (near, far) = UnixDatagram::pair().unwrap();
        let (near, far) = (DescriptorSocket::new(near.into())?, DescriptorSocket::new(far.into())?);
        let receiving = spawn(async move {
            let first = far.recv(16).await;
            (first, far.recv(16).await)
        });
        yield_now().await;
        let (mut reader, writer) = std::io::pipe().unwrap();
        near.send(b"two", &[writer.as_fd(), writer.as_fd()]).await?;
        near.send(b"none", &[]).await?;
        drop(writer);
        let (first, second) = receiving.await.unwrap();
        let (bytes, descriptors) = first?;
        assert_eq!((&*bytes, descriptors.len()), (&b"two"[..], 2));
        for descriptor in descriptors {
            std::fs::File::from(descriptor).write_all(b"x").unwrap();
        }
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"xx", "and the pipe has ended, so both were closed");
        let (bytes, descriptors) = second?;
        assert_eq!((&*bytes, descriptors.len()), (&b"none"[..], 0));
        assert!(near.send(b"", &[]).await.is_err());
        let (near, far) = UnixStream::pair().unwrap();
        drop(near);
        assert!(DescriptorSocket::new(far.into())?.recv(1).await?.0.is_empty(), "the end of a stream");
        Ok(())
    });
}
