//! The traits and what is built on them, on every driver and for every kind of stream.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod processes;

use bytes::{Bytes, BytesMut};
use ringroad_engine::fs::{File, OpenOptions};
use ringroad_engine::net::{TcpListener, TcpStream, UnixStream};
use ringroad_engine::sim::{Faults, SimConfig};
use ringroad_engine::sync::budget::counted;
use ringroad_engine::time::timeout;
use ringroad_engine::{DriverName, IoBuf, IoBufMut, Lease, Result, Runtime, choose, spawn, yield_now};
use ringroad_io::codec::{LengthDelimitedCodec, LinesCodec};
use ringroad_io::{
    AsyncRead, AsyncReadExt, AsyncWrite, BufReader, BufWriter, DescriptorSocket, Framed, PipeReader,
    PipeWriter, Split, copy, copy_bidirectional, pipe,
};
use std::cell::Cell;
use std::future::Future;
use std::io::{Cursor, ErrorKind, Read, Seek};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Runs `body` on each driver; those that cannot be used here are skipped, with the reason.
fn on_each<F: Future<Output = Result<()>>>(body: impl Fn() -> F) {
    for driver in DriverName::ALL.iter().copied().filter(|driver| *driver != DriverName::Sim) {
        if let Err(refusal) = choose::probe(driver) {
            eprintln!("skipped: {refusal}");
            continue;
        }
        let runtime = Runtime::new(driver).unwrap();
        runtime.block_on(body()).unwrap().unwrap_or_else(|why| panic!("{driver}: {why}"));
        runtime.shutdown(Duration::from_secs(10)).unwrap();
    }
}

/// Runs `body` on each driver and in simulations with short transfers.
fn everywhere<F: Future<Output = Result<()>>>(body: impl Fn() -> F) {
    on_each(&body);
    for seed in 0..8 {
        let mut faults = Faults::swarm(seed);
        faults.socket_buffer_bytes = Faults::none().socket_buffer_bytes;
        let sim = SimConfig::new(seed, faults);
        let runtime = Runtime::builder(DriverName::Sim).sim(sim).build().unwrap();
        runtime.block_on(body()).unwrap().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        runtime.shutdown(Duration::from_secs(10)).unwrap();
    }
}

async fn tcp_pair() -> Result<(TcpStream, TcpStream)> {
    let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
    let near = TcpStream::connect(listener.local_addr()?).await?;
    Ok((near, listener.accept().await?))
}

/// A file that is removed when it is dropped.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Scratch(std::env::temp_dir().join(format!("ringroad-io-{name}-{}-{number}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn every_kind_of_buffer_is_sent_and_comes_back_as_it_was() {
    /// Sends it with both calls, and checks what comes back and what arrives.
    async fn sent<B: IoBuf + Unpin + Send + Clone + PartialEq + std::fmt::Debug>(bytes: B) -> Result<()> {
        let (mut near, mut far) = tcp_pair().await?;
        let (result, back) = AsyncWrite::write_all(&mut near, bytes.clone()).await;
        result?;
        assert_eq!(back, bytes);
        AsyncWrite::shutdown(&mut near).await?;
        let (read, got) = far.read_to_end(Vec::new(), 100).await;
        read?;
        assert_eq!(got, bytes.bytes());
        Ok(())
    }
    on_each(|| async {
        sent(vec![1u8, 2, 3]).await?;
        sent(Box::<[u8]>::from([1, 2, 3])).await?;
        sent("text".to_owned()).await?;
        sent("text").await?;
        sent(*b"array").await?;
        sent(b"static array").await?;
        sent(Arc::<[u8]>::from(*b"shared")).await?;
        sent(Bytes::from_static(b"whole bytes").slice(6..)).await?;
        sent(BytesMut::from("mutable")).await?;
        let (mut near, mut far) = tcp_pair().await?;
        near.write_all(Rc::<[u8]>::from(*b"of one thread")).await.0?;
        let (read, got) = far.read(BytesMut::with_capacity(64)).await;
        assert_eq!((read?, &*got), (13, &b"of one thread"[..]));
        Ok(())
    });
}

#[test]
fn an_exact_number_of_bytes_is_read_and_no_more() {
    everywhere(|| async {
        let (mut near, mut far) = UnixStream::pair()?;
        near.write_all("0123456789").await.0?;
        let (read, got) = far.read_exact(b"> ".to_vec(), 4).await;
        read?;
        assert_eq!(got, b"> 0123");
        // A buffer with more room takes no more either.
        let (read, got) = far.read_exact(Vec::with_capacity(1000), 4).await;
        read?;
        assert_eq!(got, b"4567");
        drop(near);
        let (read, got) = far.read_exact(Vec::new(), 4).await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(got, b"89");
        Ok(())
    });
}

#[test]
fn lines_come_one_by_one_however_they_arrive() {
    everywhere(|| async {
        let (mut near, far) = UnixStream::pair()?;
        let writer = spawn(async move {
            for piece in ["one\ntw", "o\r", "\n\nfour", "th\nlast"] {
                near.write_all(piece).await.0.unwrap();
                ringroad_engine::yield_now().await;
            }
        });
        let mut lines = BufReader::new(far).lines();
        for expected in ["one", "two", "", "fourth", "last"] {
            assert_eq!(lines.next_line().await?.as_deref(), Some(expected));
        }
        assert_eq!(lines.next_line().await?, None);
        writer.await.unwrap();
        Ok(())
    });
}

#[test]
fn a_line_without_end_is_refused_at_the_limit() {
    everywhere(|| async {
        let (mut near, far) = UnixStream::pair()?;
        let writer = spawn(async move {
            // Its peer closes before it has read everything.
            let _ = near.write_all(vec![b'x'; 100_000]).await;
        });
        let mut reader = BufReader::new(far).with_limit(1000);
        let why = reader.read_line().await.unwrap_err();
        assert_eq!(why.kind(), ErrorKind::InvalidData);
        drop(reader);
        writer.await.unwrap();
        Ok(())
    });
}

#[test]
fn a_reader_gives_lines_then_exact_bytes_then_the_rest() {
    everywhere(|| async {
        let (mut near, far) = tcp_pair().await?;
        near.write_all("head\n12345rest").await.0?;
        AsyncWrite::shutdown(&mut near).await?;
        let mut reader = BufReader::new(far);
        assert_eq!(reader.read_line().await?.as_deref(), Some("head"));
        assert_eq!(reader.read_exact(3).await?, b"123");
        assert_eq!(reader.read_u8().await?, Some(b'4'));
        assert_eq!(reader.read_to_string().await?, "5rest");
        assert_eq!(reader.read_u8().await?, None);
        Ok(())
    });
}

#[test]
fn a_dropped_read_of_a_line_loses_nothing() {
    everywhere(|| async {
        let (mut near, far) = UnixStream::pair()?;
        let mut reader = BufReader::new(far);
        near.write_all("the first ").await.0?;
        {
            let mut line = std::pin::pin!(reader.read_line());
            for _ in 0..4 {
                std::future::poll_fn(|context| {
                    assert!(line.as_mut().poll(context).is_pending());
                    std::task::Poll::Ready(())
                })
                .await;
                ringroad_engine::yield_now().await;
            }
        }
        near.write_all("line\n").await.0?;
        assert_eq!(reader.read_line().await?.as_deref(), Some("the first line"));
        Ok(())
    });
}

#[test]
fn small_writes_are_collected_and_large_ones_keep_their_place() {
    everywhere(|| async {
        let (near, mut far) = UnixStream::pair()?;
        let reading = spawn(async move { far.read_to_end(Vec::new(), 1 << 20).await });
        let mut writer = BufWriter::with_capacity(100, near);
        let mut expected = Vec::new();
        for length in [1usize, 30, 60, 20, 500, 3, 99, 100] {
            let piece = vec![length as u8; length];
            expected.extend_from_slice(&piece);
            writer.write_all(piece).await.0?;
            assert!(writer.buffer().len() <= 100);
        }
        writer.shutdown().await?;
        let (read, got) = reading.await.unwrap();
        read?;
        assert_eq!(got, expected);
        Ok(())
    });
}

#[test]
fn bulk_is_copied_in_order_between_any_two() {
    on_each(|| async {
        let scratch = Scratch::new("copied");
        let bulk: Vec<u8> = (0..700_000u32).map(|at| (at * 7 / 3) as u8).collect();
        let (mut near, mut far) = tcp_pair().await?;
        let sent = bulk.clone();
        let sending = spawn(async move {
            near.write_all(sent).await.0?;
            AsyncWrite::shutdown(&mut near).await
        });
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(true);
        let file = options.open(&scratch.0).await?;
        let mut into = Cursor::new(file.clone());
        assert_eq!(copy(&mut far, &mut into).await?, 700_000);
        assert_eq!(into.position(), 700_000);
        sending.await.unwrap()?;
        let (mut reader, writer) = pipe()?;
        let piping = spawn(async move {
            let mut writer = writer;
            copy(&mut Cursor::new(file), &mut writer).await
        });
        let (read, got) = reader.read_to_end(Vec::new(), 1 << 20).await;
        read?;
        assert!(got == bulk);
        assert_eq!(piping.await.unwrap()?, 700_000);
        Ok(())
    });
}

#[test]
fn a_proxy_passes_each_end_on_and_goes_on_in_the_other_direction() {
    everywhere(|| async {
        let (mut client, one) = tcp_pair().await?;
        let (other, mut server) = UnixStream::pair()?;
        let proxy = spawn(copy_bidirectional(one, other));
        client.write_all(vec![b'q'; 50_000]).await.0?;
        AsyncWrite::shutdown(&mut client).await?;
        let (read, got) = server.read_to_end(Vec::new(), 1 << 20).await;
        read?;
        assert_eq!(got.len(), 50_000);
        let answering = spawn(async move { server.write_all(vec![b'a'; 70_000]).await.0 });
        let (read, got) = client.read_to_end(Vec::new(), 1 << 20).await;
        read?;
        assert_eq!(got.len(), 70_000);
        answering.await.unwrap()?;
        assert_eq!(proxy.await.unwrap()?, (50_000, 70_000));
        Ok(())
    });
}

#[test]
fn frames_keep_their_bounds_with_codecs_of_the_ecosystem() {
    everywhere(|| async {
        let (near, far) = tcp_pair().await?;
        let mut near = Framed::new(near, LengthDelimitedCodec::new());
        let mut far = Framed::new(far, LengthDelimitedCodec::new());
        let lengths = [0usize, 1, 5000, 3, 100_000];
        let sending = spawn(async move {
            for length in lengths {
                near.feed(Bytes::from(vec![7; length])).await.unwrap();
            }
            near.shutdown().await.unwrap();
            near
        });
        for length in lengths {
            assert_eq!(far.next().await.unwrap().unwrap().len(), length);
        }
        assert!(far.next().await.is_none());
        drop(sending.await.unwrap());
        let (mut near, far) = UnixStream::pair()?;
        near.write_all("cut").await.0?;
        drop(near);
        let mut far = Framed::new(far, LinesCodec::new());
        assert_eq!(far.next().await.unwrap().unwrap(), "cut");
        assert!(far.next().await.is_none());
        Ok(())
    });
}

#[test]
fn messages_go_on_with_another_codec_where_the_last_one_has_ended() {
    everywhere(|| async {
        let (mut near, far) = UnixStream::pair()?;
        near.write_all("first\nsecond\n\0\0\0\x05third\0\0\0\x06fourth").await.0?;
        drop(near);
        let mut reader = BufReader::new(far);
        assert_eq!(reader.read_line().await?.unwrap(), "first");
        let (far, received) = reader.into_parts();
        let mut far = Framed::with_received(far, LinesCodec::new(), &received);
        assert_eq!(far.next().await.unwrap().unwrap(), "second");
        let mut far = far.map_codec(|_| LengthDelimitedCodec::new());
        assert_eq!(far.next().await.unwrap().unwrap(), "third");
        assert_eq!(far.next().await.unwrap().unwrap(), "fourth");
        assert!(far.next().await.is_none());
        let (near, mut far) = UnixStream::pair()?;
        let mut near = Framed::new(near, LinesCodec::new());
        near.feed("kept").await.unwrap();
        near.map_codec(|_| LengthDelimitedCodec::new()).send(Bytes::from("x")).await.unwrap();
        let (result, got) = far.read_to_end(Vec::new(), 100).await;
        result?;
        assert_eq!(got, b"kept\n\0\0\0\x01x");
        Ok(())
    });
}

#[test]
fn a_loop_over_messages_ends_at_an_error_and_a_codec_that_can_goes_on() {
    everywhere(|| async {
        let (mut near, far) = UnixStream::pair()?;
        near.write_all(vec![0xff; 64]).await.0?;
        drop(near);
        let mut far = Framed::new(far, LengthDelimitedCodec::new());
        let mut errors = 0;
        while let Some(message) = far.next().await {
            assert!(message.is_err() && errors == 0, "the length of the next message is known to none");
            errors += 1;
        }
        assert_eq!(errors, 1);
        let (mut near, far) = UnixStream::pair()?;
        near.write_all("much too long\nshort\n").await.0?;
        let mut far = Framed::new(far, LinesCodec::new_with_max_length(5));
        assert!(far.next().await.unwrap().is_err());
        assert!(far.next().await.is_none());
        assert_eq!(far.next().await.unwrap().unwrap(), "short");
        Ok(())
    });
}

#[test]
fn halves_are_read_and_written_by_two_tasks() {
    everywhere(|| async {
        let (near, mut far) = tcp_pair().await?;
        let (mut read, mut write) = Split::into_split(near);
        let writing = spawn(async move {
            for _ in 0..10 {
                AsyncWrite::write_all(&mut write, "ping").await.0.unwrap();
            }
            AsyncWrite::shutdown(&mut write).await.unwrap();
        });
        far.write_all("pong").await.0?;
        let (result, got) = read.read_exact(Vec::new(), 4).await;
        result?;
        assert_eq!(got, b"pong");
        let (result, got) = far.read_to_end(Vec::new(), 100).await;
        result?;
        assert_eq!(got.len(), 40);
        writing.await.unwrap();
        Ok(())
    });
}

#[test]
fn a_pipe_waits_for_its_other_end_both_ways() {
    on_each(|| async {
        let (mut reader, mut writer) = pipe()?;
        // More than a pipe holds.
        let writing = spawn(async move { writer.write_all(vec![1; 300_000]).await.0 });
        let (read, got) = reader.read_to_end(Vec::new(), 1 << 20).await;
        read?;
        assert_eq!(got.len(), 300_000);
        writing.await.unwrap()
    });
}

#[test]
fn a_file_in_the_place_of_a_pipe_is_read_and_written_at_its_shared_position() {
    on_each(|| async {
        let scratch = Scratch::new("position");
        let options = || std::fs::OpenOptions::new().read(true).write(true).create(true).to_owned();
        std::fs::write(&scratch.0, "old: ").unwrap();
        let mut shared = options().open(&scratch.0).unwrap();
        shared.seek(std::io::SeekFrom::End(0)).unwrap();
        let mut writer = PipeWriter::from(OwnedFd::from(shared.try_clone().unwrap()));
        writer.write_all("one, ").await.0?;
        writer.write_all("two".to_owned()).await.0?;
        assert_eq!(shared.stream_position().unwrap(), 13);
        shared.seek(std::io::SeekFrom::Start(5)).unwrap();
        let mut reader = PipeReader::from(OwnedFd::from(shared.try_clone().unwrap()));
        let (read, got) = reader.read_exact(Vec::new(), 3).await;
        read?;
        assert_eq!(got, b"one");
        assert_eq!(reader.read_to_string().await?, ", two");
        let mut all = String::new();
        shared.seek(std::io::SeekFrom::Start(0)).unwrap();
        shared.read_to_string(&mut all).unwrap();
        assert_eq!(all, "old: one, two");
        Ok(())
    });
}

#[test]
fn a_cursor_reads_and_writes_a_file_in_order() {
    on_each(|| async {
        let scratch = Scratch::new("cursor");
        let mut file = Cursor::new(File::create(&scratch.0).await?);
        file.write_all("first\n").await.0?;
        file.write_all("second\n").await.0?;
        file.shutdown().await?;
        let mut lines = BufReader::new(Cursor::new(File::open(&scratch.0).await?)).lines();
        assert_eq!(lines.next_line().await?.as_deref(), Some("first"));
        assert_eq!(lines.next_line().await?.as_deref(), Some("second"));
        assert_eq!(lines.next_line().await?, None);
        Ok(())
    });
}

/// A stream that always has something to read, while there are pieces left, and takes everything.
#[derive(Clone)]
struct Busy {
    left: Rc<Cell<u64>>,
    /// Ends with this one.
    other: Rc<Cell<u64>>,
}

impl AsyncRead for Busy {
    async fn read<B: IoBufMut + Unpin + Send>(&mut self, _: B) -> (Result<usize>, B) {
        unreachable!("copies receive")
    }

    async fn recv(&mut self) -> Result<Lease> {
        counted(async {
            match self.left.get() {
                0 => {
                    self.other.set(0);
                    Ok(Lease::default())
                }
                left => {
                    self.left.set(left - 1);
                    Ok(Lease::from(vec![7]))
                }
            }
        })
        .await
    }
}

impl AsyncWrite for Busy {
    async fn write<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<usize>, B) {
        (Ok(bytes.bytes().len()), bytes)
    }

    async fn write_all<B: IoBuf + Unpin + Send>(&mut self, bytes: B) -> (Result<()>, B) {
        (Ok(()), bytes)
    }

    async fn shutdown(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Split for Busy {
    type Read = Busy;
    type Write = Busy;

    fn into_split(self) -> (Busy, Busy) {
        (self.clone(), self)
    }
}

#[test]
fn a_direction_that_never_rests_leaves_some_of_the_budget_to_the_other() {
    on_each(|| async {
        let (flood, few) = (Rc::new(Cell::new(u64::MAX)), Rc::new(Cell::new(100)));
        let one = Busy { left: Rc::clone(&flood), other: Rc::default() };
        let other = Busy { left: few, other: flood };
        let copied = timeout(Duration::from_secs(60), copy_bidirectional(one, other)).await;
        assert_eq!(copied.unwrap()?.1, 100);
        Ok(())
    });
}

/// What a task finds ready in a buffer.
const PIECES: u32 = 2000;

/// Runs a task that counts what it finds ready, and looks at the count once a turn.
async fn in_several_turns(done: Rc<Cell<u32>>, pieces: impl Future<Output = ()> + 'static) {
    let task = spawn(pieces);
    while !task.is_finished() {
        let before = done.get();
        yield_now().await;
        let meanwhile = done.get() - before;
        assert!(meanwhile <= 200, "{meanwhile} in one turn");
    }
    task.await.unwrap();
    assert_eq!(done.get(), PIECES);
}

#[test]
fn a_buffer_full_of_short_pieces_does_not_stop_the_runtime() {
    on_each(|| async {
        for kind in 0..4 {
            let done = Rc::new(Cell::new(0));
            let count = Rc::clone(&done);
            let (mut near, far) = UnixStream::pair()?;
            near.write_all("x\n".repeat(PIECES as usize)).await.0?;
            drop(near);
            let one_more = move || count.set(count.get() + 1);
            match kind {
                0 => {
                    let pieces = async move {
                        let mut lines = BufReader::new(far).lines();
                        while lines.next_line().await.unwrap().is_some() {
                            one_more();
                        }
                    };
                    in_several_turns(done, pieces).await;
                }
                1 => {
                    let pieces = async move {
                        let mut reader = BufReader::new(far);
                        while reader.read_exact(2).await.is_ok() {
                            one_more();
                        }
                    };
                    in_several_turns(done, pieces).await;
                }
                2 => {
                    let pieces = async move {
                        let mut framed = Framed::new(far, LinesCodec::new());
                        while framed.next().await.is_some() {
                            one_more();
                        }
                    };
                    in_several_turns(done, pieces).await;
                }
                _ => {
                    drop(far);
                    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
                    let (near, far) =
                        (DescriptorSocket::new(near.into())?, DescriptorSocket::new(far.into())?);
                    near.send(&[7; PIECES as usize], &[]).await?;
                    drop(near);
                    let pieces = async move {
                        while !far.recv(1).await.unwrap().0.is_empty() {
                            one_more();
                        }
                    };
                    in_several_turns(done, pieces).await;
                }
            }
        }
        Ok(())
    });
}
