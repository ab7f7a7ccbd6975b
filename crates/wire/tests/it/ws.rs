//! WebSocket: what is refused and with which code, what is joined, and that nothing depends on cuts.

use crate::checks::{self, WsEntry, tell_websocket};
use proptest::prelude::*;
use ringroad_wire::ws::deflate::{Agreed, Deflater};
use ringroad_wire::ws::{
    CloseCode, Event, Kind, Limits, Messages, Opcode, Problem, Role, Scratch, put_close, put_frame,
    put_frame_as,
};

const KEY: Option<[u8; 4]> = Some([0x37, 0xfa, 0x21, 0x3d]);

fn frame(opcode: Opcode, fin: bool, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame_as(&mut out, opcode, fin, false, payload, KEY);
    out
}

/// What a server reads of these frames.
fn read(bytes: &[u8]) -> Vec<WsEntry> {
    tell_websocket(Role::Server, false, bytes, &[])
}

fn refused(bytes: &[u8]) -> (Problem, u16) {
    match read(bytes).pop() {
        Some(WsEntry::Failed(why)) => (why.problem(), why.code().get()),
        other => panic!("{bytes:?}: {other:?}"),
    }
}

fn text(text: &str) -> WsEntry {
    WsEntry::Message(Kind::Text, text.as_bytes().to_vec())
}

/// RFC 6455 §5.7.
#[test]
fn the_examples_of_the_standard_are_read_and_written() {
    let masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(frame(Opcode::Text, true, b"Hello"), masked);
    assert_eq!(read(&masked), [text("Hello")]);
    let unmasked = tell_websocket(Role::Client, false, b"\x81\x05Hello", &[]);
    assert_eq!(unmasked, [text("Hello")]);
    let fragments = tell_websocket(Role::Client, false, b"\x01\x03Hel\x89\x05Hello\x80\x02lo", &[]);
    assert_eq!(fragments, [WsEntry::Ping(b"Hello".to_vec()), text("Hello")]);
    for (bytes, head) in [
        (256, &[0x82, 0x7e, 0x01, 0x00][..]),
        (65_536, &[0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0]),
        (125, &[0x82, 125]),
        (126, &[0x82, 126, 0, 126]),
        (65_535, &[0x82, 126, 0xff, 0xff]),
    ] {
        let mut out = Vec::new();
        put_frame(&mut out, Opcode::Binary, &vec![7; bytes], None);
        assert!(out.starts_with(head), "{bytes}");
        assert_eq!(out.len(), head.len() + bytes);
        let all = tell_websocket(Role::Client, false, &out, &[1, 2, 5, 100]);
        assert_eq!(all, [WsEntry::Message(Kind::Binary, vec![7; bytes])]);
    }
}

#[test]
fn what_breaks_a_rule_is_refused_with_the_code_that_tells_so() {
    let reserved = |bit: u8| {
        let mut bytes = frame(Opcode::Text, true, b"x");
        bytes[0] |= bit;
        bytes
    };
    let opcode = |opcode: u8| vec![0x80 | opcode, 0x80, 0, 0, 0, 0];
    for bit in [0x10, 0x20, 0x40, 0x70] {
        assert_eq!(refused(&reserved(bit)), (Problem::ReservedBits, 1002));
    }
    for number in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        assert_eq!(refused(&opcode(number)), (Problem::ReservedOpcode, 1002));
    }
    assert_eq!(refused(b"\x81\x01x"), (Problem::Unmasked, 1002));
    let masked = tell_websocket(Role::Client, false, &frame(Opcode::Text, true, b"x"), &[]);
    assert!(matches!(masked[..], [WsEntry::Failed(why)] if why.problem() == Problem::Masked));
    assert_eq!(refused(&frame(Opcode::Ping, false, b"")), (Problem::FragmentedControl, 1002));
    assert_eq!(refused(&frame(Opcode::Ping, true, &[0; 126])), (Problem::LongControl, 1002));
    assert_eq!(refused(&[0x82, 0xfe, 0, 125]), (Problem::Length, 1002));
    assert_eq!(refused(&[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff]), (Problem::Length, 1002));
    assert_eq!(refused(&[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0]), (Problem::Length, 1002));
    assert_eq!(refused(&frame(Opcode::Continuation, true, b"x")), (Problem::NoMessage, 1002));
    let inside = [frame(Opcode::Text, false, b"x"), frame(Opcode::Text, true, b"y")].concat();
    assert_eq!(refused(&inside), (Problem::MessageInside, 1002));
    assert_eq!(refused(&frame(Opcode::Text, true, b"\xff")), (Problem::NotUtf8, 1007));
    assert_eq!(refused(&frame(Opcode::Text, true, b"\xe2\x82")), (Problem::NotUtf8, 1007));
    assert_eq!(refused(&frame(Opcode::Close, true, b"\x03")), (Problem::Close, 1002));
    for code in [0_u16, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535] {
        assert_eq!(
            refused(&frame(Opcode::Close, true, &code.to_be_bytes())),
            (Problem::Close, 1002),
            "{code}"
        );
    }
    assert_eq!(refused(&frame(Opcode::Close, true, b"\x03\xe8\xff")), (Problem::NotUtf8, 1007));
}

/// A peer that is told nothing until the end could send for ever.
#[test]
fn a_text_is_refused_at_the_first_wrong_byte_and_not_at_its_end() {
    let begun =
        [frame(Opcode::Text, false, b"\xce\xba\xe1"), frame(Opcode::Continuation, false, b"\xff")].concat();
    assert_eq!(refused(&begun), (Problem::NotUtf8, 1007));
    // In the middle of a frame too.
    let whole = frame(Opcode::Text, true, b"abc\xff and much more");
    assert_eq!(refused(&whole[..10]), (Problem::NotUtf8, 1007));
}

#[test]
fn a_message_over_a_limit_is_refused_when_it_is_announced() {
    let limits = Limits { message_bytes: 10, fragments: 3 };
    let refuse = |bytes: &[u8]| {
        let (mut messages, mut scratch) = (Messages::new(Role::Server, limits), Scratch::default());
        let (mut input, mut at) = (bytes.to_vec(), 0);
        loop {
            match messages.next(&mut scratch, &mut input, &mut at) {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(why) => {
                    assert_eq!(messages.next(&mut scratch, &mut input, &mut at), Err(why), "again");
                    return Some((why.problem(), why.code().get()));
                }
            }
        }
    };
    assert_eq!(refuse(&frame(Opcode::Binary, true, &[0; 10])), None);
    // Only the head has come.
    assert_eq!(refuse(&frame(Opcode::Binary, true, &[0; 11])[..6]), Some((Problem::TooLong, 1009)));
    let two = [frame(Opcode::Binary, false, &[0; 6]), frame(Opcode::Continuation, true, &[0; 5])].concat();
    assert_eq!(refuse(&two), Some((Problem::TooLong, 1009)));
    let mut many = frame(Opcode::Binary, false, b"");
    many.extend(frame(Opcode::Continuation, false, b"").repeat(2));
    assert_eq!(refuse(&many), None);
    many.extend(frame(Opcode::Continuation, false, b""));
    assert_eq!(refuse(&many), Some((Problem::TooManyFragments, 1008)));
}

#[test]
fn nothing_is_read_behind_a_close_frame() {
    let mut bytes = Vec::new();
    put_close(&mut bytes, CloseCode::GOING_AWAY, "bye", KEY);
    bytes.extend(frame(Opcode::Text, true, b"late"));
    bytes.push(0xff);
    assert_eq!(read(&bytes), [WsEntry::Close(1001, "bye".to_owned())]);
    let mut bare = Vec::new();
    put_close(&mut bare, CloseCode::NO_STATUS, "ignored", KEY);
    assert_eq!(read(&bare), [WsEntry::Close(0, String::new())]);
}

#[test]
fn a_close_reason_is_cut_between_characters() {
    let mut bytes = Vec::new();
    put_close(&mut bytes, CloseCode::new(4000), &"é".repeat(100), KEY);
    assert_eq!(read(&bytes), [WsEntry::Close(4000, "é".repeat(61))]);
}

#[test]
fn a_message_that_comes_whole_is_not_copied() {
    let mut bytes = frame(Opcode::Binary, true, &[9; 1000]);
    let range = bytes.as_ptr_range();
    let (mut messages, mut scratch, mut at) =
        (Messages::new(Role::Server, Limits::default()), Scratch::default(), 0);
    match messages.next(&mut scratch, &mut bytes, &mut at).unwrap() {
        Some(Event::Message { bytes, .. }) => assert!(range.contains(&bytes.as_ptr())),
        other => panic!("{other:?}"),
    }
    assert_eq!(messages.held(), 0);
}

fn packed(kind: Opcode, message: &[u8], pieces: usize) -> Vec<u8> {
    let (mut deflater, mut packed, mut out) = (Deflater::default(), Vec::new(), Vec::new());
    deflater.deflate(Agreed { window_bits: 15 }, message, &mut packed);
    let size = packed.len().div_ceil(pieces).max(1);
    let count = packed.chunks(size).len();
    for (at, piece) in packed.chunks(size).enumerate() {
        let opcode = if at == 0 { kind } else { Opcode::Continuation };
        put_frame_as(&mut out, opcode, at + 1 == count, at == 0, piece, KEY);
    }
    out
}

#[test]
fn compressed_messages_are_inflated_and_checked() {
    let long = "all work and no play ".repeat(1000);
    for pieces in [1, 2, 7] {
        let bytes = packed(Opcode::Text, long.as_bytes(), pieces);
        assert_eq!(tell_websocket(Role::Server, true, &bytes, &[]), [text(&long)]);
        assert_eq!(tell_websocket(Role::Server, true, &bytes, &[3, 30, 31]), [text(&long)]);
    }
    // Between its fragments comes a ping.
    let bytes = packed(Opcode::Text, b"hello hello hello", 2);
    let ping = frame(Opcode::Ping, true, b"?");
    let second = 2 + 4 + usize::from(bytes[1] & 0x7f);
    let mixed = [&bytes[..second], &ping, &bytes[second..]].concat();
    assert_eq!(
        tell_websocket(Role::Server, true, &mixed, &[]),
        [WsEntry::Ping(b"?".to_vec()), text("hello hello hello")]
    );
    let last = |bytes: &[u8], deflate| match tell_websocket(Role::Server, deflate, bytes, &[]).pop() {
        Some(WsEntry::Failed(why)) => (why.problem(), why.code().get()),
        other => panic!("{other:?}"),
    };
    assert_eq!(last(&packed(Opcode::Text, b"\xff\xfe", 1), true), (Problem::NotUtf8, 1007));
    // Two million bytes, over the limit of one MiB, in few.
    let bomb = packed(Opcode::Binary, &vec![0; 2_000_000], 1);
    assert!(bomb.len() < 20_000);
    assert_eq!(last(&bomb, true), (Problem::TooLong, 1009));
    // Without the agreement, and where the bit has no meaning.
    assert_eq!(last(&packed(Opcode::Binary, b"x", 1), false), (Problem::ReservedBits, 1002));
    let mut later = Vec::new();
    put_frame_as(&mut later, Opcode::Binary, false, false, b"x", KEY);
    put_frame_as(&mut later, Opcode::Continuation, true, true, b"x", KEY);
    assert_eq!(last(&later, true), (Problem::ReservedBits, 1002));
    let mut broken = Vec::new();
    put_frame_as(&mut broken, Opcode::Binary, true, true, b"\xff\xff\xff", KEY);
    assert_eq!(last(&broken, true), (Problem::Deflate, 1007));
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop::sample::select(vec![
        Opcode::Continuation,
        Opcode::Text,
        Opcode::Binary,
        Opcode::Close,
        Opcode::Ping,
        Opcode::Pong,
    ]);
    let payload = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..140),
        "\\PC{0,40}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 300..400),
    ];
    let one = (opcode, payload, any::<bool>(), 0..8_u8, any::<Option<[u8; 4]>>());
    prop::collection::vec(one, 0..8).prop_map(|all| {
        let mut out = Vec::new();
        for (opcode, payload, fin, odd, key) in all {
            put_frame_as(
                &mut out,
                opcode,
                fin || odd > 2,
                odd == 0,
                &payload,
                key.or(KEY).filter(|_| odd != 1),
            );
        }
        out
    })
}

proptest! {
    #[test]
    fn frames_are_read_alike_wherever_they_are_cut(role in any::<bool>(), deflate in any::<bool>(), bytes in frames()) {
        let options = [u8::from(role) | u8::from(deflate) << 1, 3, 17];
        checks::websocket(&[&options, &bytes[..]].concat());
    }

    #[test]
    fn any_bytes_are_read_alike_wherever_they_are_cut(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        checks::websocket(&bytes);
    }
}
