//! Options: what is set is read back.

use crate::support::{listener_with, pair, pair_by};
use ringroad_engine::net::{ListenOptions, SocketOption};
use std::time::Duration;

everywhere!(what_is_set_is_read_back, |_| async {
    let (ours, theirs) = pair().await;
    for stream in [&ours, &theirs] {
        for on in [true, false] {
            for option in [SocketOption::NoDelay, SocketOption::KeepAlive, SocketOption::ReuseAddress] {
                stream.set_option(option(on)).unwrap();
                assert_eq!(stream.option(option(!on)).unwrap(), option(on));
            }
        }
        for span in [Some(Duration::from_secs(5)), Some(Duration::ZERO), None] {
            stream.set_option(SocketOption::Linger(span)).unwrap();
            assert_eq!(stream.option(SocketOption::Linger(None)).unwrap(), SocketOption::Linger(span));
        }
        for option in [SocketOption::ReceiveBuffer, SocketOption::SendBuffer] {
            stream.set_option(option(20_000)).unwrap();
            assert_eq!(stream.option(option(0)).unwrap(), option(40_000), "the kernel doubles it");
        }
    }
});

everywhere!(a_part_of_a_second_to_linger_is_a_whole_one, |_| async {
    // In whole seconds it would be none, and none is a reset.
    let (ours, _theirs) = pair().await;
    for (asked_ms, kept) in [(1, 1), (1000, 1), (1001, 2)] {
        ours.set_option(SocketOption::Linger(Some(Duration::from_millis(asked_ms)))).unwrap();
        let kept = SocketOption::Linger(Some(Duration::from_secs(kept)));
        assert_eq!(ours.option(SocketOption::Linger(None)).unwrap(), kept);
    }
});

everywhere!(an_option_of_another_family_is_refused_by_name, |case| async move {
    let (ours, _theirs) = pair().await;
    let error = ours.set_option(SocketOption::OnlyV6(true)).unwrap_err();
    assert_eq!((error.operation(), error.driver()), ("setsockopt", Some(case.driver())));
    assert!(error.to_string().contains("IPV6_V6ONLY"), "{error}");
    assert!(ours.option(SocketOption::OnlyV6(true)).is_err());
});

everywhere!(accepted_connections_have_what_their_listener_was_told, |_| async {
    for no_delay in [true, false] {
        let options = ListenOptions { no_delay, ..ListenOptions::default() };
        let (mut listener, address) = listener_with(options);
        let (ours, theirs) = pair_by(&mut listener, address).await;
        let told = theirs.option(SocketOption::NoDelay(false)).unwrap();
        assert_eq!(told, SocketOption::NoDelay(no_delay));
        assert_eq!(
            ours.option(SocketOption::NoDelay(true)).unwrap(),
            SocketOption::NoDelay(true),
            "as a connection that is made"
        );
    }
});
