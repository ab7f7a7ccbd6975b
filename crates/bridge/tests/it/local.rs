//! What is `Send` by name and stays on its thread.

use super::run;
use ringroad_bridge::{Io, Local};
use ringroad_engine::net::UnixStream;
use ringroad_engine::{DriverName, time};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn send<T: Send>(value: T) -> T {
    value
}

fn local(driver: DriverName) {
    run(driver, async {
        let mine = Rc::new(7);
        let future = send(Local::new(async move {
            time::sleep(Duration::from_millis(1)).await;
            *mine
        }));
        assert_eq!(future.await, 7);
        let (here, there) = UnixStream::pair().unwrap();
        let (mut here, mut there) = (send(Local::new(Io::new(here))), send(Local::new(Io::new(there))));
        here.write_all(b"by tokio").await.unwrap();
        here.flush().await.unwrap();
        let mut bytes = [0; 8];
        there.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"by tokio");
        futures_util::AsyncWriteExt::write_all(&mut there, b"futures").await.unwrap();
        futures_util::AsyncWriteExt::close(&mut there).await.unwrap();
        let mut text = String::new();
        futures_util::AsyncReadExt::read_to_string(&mut here, &mut text).await.unwrap();
        assert_eq!(text, "futures");
        // It gives the stream back.
        let (stream, rest) = here.into_inner().into_inner();
        assert!(rest.is_empty());
        drop(stream);
    });
}
drivers!(a_local_value_is_send_and_keeps_its_traits, local);

#[test]
fn a_local_value_panics_on_another_thread_and_is_not_touched() {
    let value = Rc::new(());
    let local = Local::new(Rc::clone(&value));
    let elsewhere = std::thread::spawn(move || {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Rc::strong_count(&local)));
        let told = format!("{local:?}");
        std::mem::forget(local);
        (found.is_err(), told)
    });
    let (panicked, told) = elsewhere.join().unwrap();
    assert!(panicked);
    assert_eq!(told, "Local { is_here: false, .. }");
    assert_eq!(Rc::strong_count(&value), 2);
}
