//! Channels beyond a send and a receive: several messages at once, the end that senders wait for.

use crate::support::{poll_once, some_turns};
use ringroad_engine::spawn;
use ringroad_engine::sync::{self, RecvError};
use std::pin::pin;

everywhere!(messages_of_an_unbounded_channel_are_received_many_at_once, |_| async {
    let (sender, mut receiver) = sync::unbounded();
    (0..10).for_each(|number| sender.send(number).unwrap());
    let mut all = Vec::new();
    assert_eq!(receiver.recv_many(&mut all, 4).await, Ok(4));
    sender.send(10).unwrap();
    assert_eq!((receiver.recv_many(&mut all, 1).await, receiver.sender_count()), (Ok(1), 1));
    drop(sender);
    assert!(receiver.is_closed());
    assert_eq!(receiver.recv_many(&mut all, 100).await, Ok(6));
    assert_eq!(receiver.recv_many(&mut all, 100).await, Err(RecvError));
    assert_eq!(all, (0..=10).collect::<Vec<_>>());
});

everywhere!(an_unbounded_sender_is_told_that_its_receiver_is_gone, |_| async {
    let (sender, receiver) = sync::unbounded::<u8>();
    let (other, told) = (sender.clone(), sender.clone());
    assert!(sender.same_channel(&other) && sender.is_empty());
    let waiting = spawn(async move { told.closed().await });
