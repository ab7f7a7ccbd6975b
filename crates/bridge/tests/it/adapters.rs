//! The adapters by themselves, through the traits of tokio and futures.

use super::{pair, pattern, run};
use ringroad_bridge::{Io, ReadIo, WriteIo};
use ringroad_engine::net::{SocketOption, UnixStream};
use ringroad_engine::{DriverName, spawn, time};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncBufReadExt as _;

/// Larger than what the kernel and an adapter hold together.
const LARGE: usize = 8 << 20;

fn bytes_arrive_whole_and_in_order(driver: DriverName) {
    run(driver, async {
        for gathers in [false, true] {
            let (here, there) = pair().await;
            let mut here = if gathers { Io::gathering(here) } else { Io::new(here) };
            let sending = spawn(async move {
                let all = pattern(LARGE);
                // In pieces of many sizes, so that some are cut.
                let mut rest = &all[..];
                let mut size = 1;
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(size.min(rest.len()));
                    tokio::io::AsyncWriteExt::write_all(&mut here, piece).await.unwrap();
                    (rest, size) = (after, size * 3 % 200_003 + 1);
                }
                tokio::io::AsyncWriteExt::shutdown(&mut here).await.unwrap();
                // Nothing can be written behind the end.
                tokio::io::AsyncWriteExt::write_all(&mut here, b"more").await.unwrap_err();
            });
            let mut there = Io::new(there);
            let mut all = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut there, &mut all).await.unwrap();
            assert!(all == pattern(LARGE), "gathers: {gathers}");
            sending.await.unwrap();
        }
    });
}
drivers!(bytes_arrive_whole_and_in_order_by_tokios_traits, bytes_arrive_whole_and_in_order);

fn by_futures_traits(driver: DriverName) {
    run(driver, async {
        let (here, there) = UnixStream::pair().unwrap();
        let (_, write) = here.split();
        let (read, _) = there.split();
        let sending = spawn(async move {
            let mut write = WriteIo::new(write);
            futures_util::AsyncWriteExt::write_all(&mut write, &pattern(LARGE)).await.unwrap();
            futures_util::AsyncWriteExt::close(&mut write).await.unwrap();
            write
        });
        let mut all = Vec::new();
        let mut read = ReadIo::new(read);
        futures_util::AsyncReadExt::read_to_end(&mut read, &mut all).await.unwrap();
        assert!(all == pattern(LARGE));
        drop(sending.await.unwrap());
    });
}
drivers!(halves_are_bridged_one_by_one_also_by_futures_traits, by_futures_traits);

fn accepted_bytes(driver: DriverName) {
    run(driver, async {
        for gathers in [false, true] {
            let (here, there) = pair().await;
            // So that a send of 64 KiB has to wait for the reader.
            here.set_option(SocketOption::SendBuffer(4096)).unwrap();
            let mut here = if gathers { Io::gathering(here) } else { Io::new(here) };
            let mut written = 0;
            // As much as is accepted without waiting.
            poll_fn(|context| {
                loop {
                    let piece = pattern(written + 48 * 1024).split_off(written);
                    match tokio::io::AsyncWrite::poll_write(Pin::new(&mut here), context, &piece) {
                        Poll::Ready(accepted) => written += accepted.unwrap(),
                        Poll::Pending => return Poll::Ready(()),
                    }
                }
            })
            .await;
            assert!(!here.is_flushed(), "nothing was left to be sent");
            drop(here);
            let mut all = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut Io::new(there), &mut all).await.unwrap();
            assert!(all == pattern(written), "gathers: {gathers}, {} of {written}", all.len());
        }
    });
}
drivers!(what_was_accepted_arrives_although_the_adapter_is_dropped, accepted_bytes);

fn nothing_is_lost(driver: DriverName) {
    run(driver, async {
        let (here, there) = pair().await;
        let (mut here, mut there) = (Io::new(here), Io::new(there));
        let mut byte = [0; 1];
        // A read that waits is dropped again and again.
        for _ in 0..3 {
            let reading = tokio::io::AsyncReadExt::read_exact(&mut there, &mut byte);
            time::timeout(Duration::from_millis(2), reading).await.unwrap_err();
        }
        tokio::io::AsyncWriteExt::write_all(&mut here, b"one\ntwo\n").await.unwrap();
        let mut line = String::new();
        there.read_line(&mut line).await.unwrap();
        tokio::io::AsyncReadExt::read_exact(&mut there, &mut byte).await.unwrap();
        assert_eq!((line.as_str(), byte), ("one\n", *b"t"));
        // What was received and not read stays with the stream.
        let (stream, rest) = there.into_inner();
        assert_eq!(&*rest, b"wo\n");
        let mut there = Io::new(stream).with_received(rest);
        tokio::io::AsyncWriteExt::shutdown(&mut here).await.unwrap();
        let mut all = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut there, &mut all).await.unwrap();
        assert_eq!(all, b"wo\n");
    });
}
drivers!(a_dropped_read_loses_nothing, nothing_is_lost);

fn gathered(driver: DriverName) {
    run(driver, async {
        let (here, there) = pair().await;
        let (mut here, mut there) = (Io::gathering(here), Io::new(there));
        let mut byte = [0; 8];
        tokio::io::AsyncWriteExt::write_all(&mut here, b"head").await.unwrap();
        let reading = tokio::io::AsyncReadExt::read(&mut there, &mut byte);
        time::timeout(Duration::from_millis(20), reading).await.unwrap_err();
        tokio::io::AsyncWriteExt::write_all(&mut here, b"body").await.unwrap();
        tokio::io::AsyncWriteExt::flush(&mut here).await.unwrap();
        assert!(here.is_flushed());
        assert_eq!(tokio::io::AsyncReadExt::read(&mut there, &mut byte).await.unwrap(), 8);
        assert_eq!(&byte, b"headbody");
    });
}
drivers!(a_gathering_adapter_sends_with_the_flush, gathered);

fn reset(driver: DriverName) {
    run(driver, async {
        let (here, there) = pair().await;
        let mut here = Io::new(here);
        // Closed on bytes that were not read: the kernel resets the connection.
        tokio::io::AsyncWriteExt::write_all(&mut here, b"unread").await.unwrap();
        time::sleep(Duration::from_millis(5)).await;
        drop(there);
        let failed = async {
            loop {
                if let Err(why) = tokio::io::AsyncWriteExt::write_all(&mut here, &[0; 4096]).await {
                    return why.kind();
                }
                if let Err(why) = tokio::io::AsyncWriteExt::flush(&mut here).await {
                    return why.kind();
                }
            }
        };
        let kind = time::timeout(Duration::from_secs(60), failed).await.unwrap();
        assert!(
            matches!(kind, std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset),
            "{kind}"
        );
    });
}
drivers!(a_send_that_fails_is_an_error_of_a_later_write_or_flush, reset);
