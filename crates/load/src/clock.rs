//! How the clock of this machine stands to another one, measured over the network.
//!
//! Two sources, each with its error: a time server (`ntp://HOST`, one exchange is exact to half of its round
//! trip), and the `Date` line of any HTTP server (`http://HOST/`). A date has whole seconds only, so requests
//! are timed around the moment at which it changes: each answer narrows the interval in which the offset
//! lies. A date that moves unevenly, as that of a cache does, contradicts itself and is refused. Start at
//! [`measure`].

use crate::error::Error;
use crate::run::LOOK;
use crate::target::{Scheme, Target};
use ringroad_host::connect::{InTime, connect_any, in_time};
use ringroad_measure::record::Clock;
use std::io::{Read, Write};
use std::net::{ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a source may take for one answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Bytes of the head of an answer that are read at most.
const HEAD_MAX: usize = 16 * 1024;

/// Requests that find the second in which the date changes, and the time between them.
const COARSE: (u32, Duration) = (21, Duration::from_millis(50));

/// Requests that are timed for its change, at most.
const FINE: u32 = 6;

/// An interval of the offset that is as narrow as this is narrow enough, seconds.
const NARROW_S: f64 = 0.004;

/// Exchanges with a time server; the one with the shortest way counts.
const EXCHANGES: u32 = 8;

/// Seconds from 1900, the epoch of NTP, to 1970 (RFC 5905 §6).
const FROM_1900_S: f64 = 2_208_988_800.0;

/// Measures how far the clock of `from` is ahead of this machine's. Setting `stop` ends it before the next
/// question.
///
/// # Errors
/// The URL is of no such source, the source does not answer, its answers contradict each other, or it was
/// stopped ([`Error::is_interrupted`]).
pub fn measure(from: &str, stop: &AtomicBool) -> Result<Clock, Error> {
    let (offset_s, within_s) = match from.strip_prefix("ntp://") {
        Some(host) => by_ntp(host.trim_end_matches('/'), stop)?,
        None => by_date(from, stop)?,
    };
    Ok(Clock { from: from.to_owned(), offset_s, within_s })
}

/// Seconds since 1970 of the system's clock, or of a moment.
pub(crate) fn unix_s(time: SystemTime) -> f64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}

fn now_s() -> f64 {
    unix_s(SystemTime::now())
}

/// Waits for so long before the next question, unless it is stopped.
fn wait(how_long: Duration, stop: &AtomicBool) -> Result<(), Error> {
    let until = Instant::now() + how_long;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::interrupted("--clock-from: interrupted before the clock was known"));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(LOOK));
    }
}

/// The interval in which an offset lies, as answers narrow it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Between {
    low: f64,
    high: f64,
}

impl Between {
    const ANYWHERE: Between = Between { low: f64::NEG_INFINITY, high: f64::INFINITY };

    /// Takes in that the date was `second` at some time from `asked` to `heard`.
    fn narrow(&mut self, second: f64, asked: f64, heard: f64) {
        self.low = self.low.max(second - heard);
        self.high = self.high.min(second + 1.0 - asked);
    }

    fn width(self) -> f64 {
        self.high - self.low
    }

    fn middle(self) -> f64 {
        f64::midpoint(self.low, self.high)
    }
}

/// By the changes of a date. Returns offset and error, seconds.
fn by_date(url: &str, stop: &AtomicBool) -> Result<(f64, f64), Error> {
    let target: Target = url.parse()?;
    if target.scheme != Scheme::Http {
        return Err(Error::usage(format!("--clock-from {url}: http:// or ntp:// is expected")));
    }
    let mut offset = Between::ANYWHERE;
    let mut way_s = f64::INFINITY;
    let mut ask = |offset: &mut Between| -> Result<(), Error> {
        let (second, asked, heard) = date(&target)?;
        offset.narrow(second, asked, heard);
        way_s = way_s.min(heard - asked);
        if offset.width() < 0.0 {
            return Err(Error::failed(format!(
                "--clock-from {url}: its dates contradict each other, as those of a cache or of several servers do (take another source, such as ntp://HOST)"
            )));
        }
        Ok(())
    };
    for _ in 0..COARSE.0 {
        ask(&mut offset)?;
        wait(COARSE.1, stop)?;
    }
    for _ in 0..FINE {
        if offset.width() <= NARROW_S {
            break;
        }
        // The next whole second of the other clock, if the offset is in the middle.
        let middle = offset.middle();
        let next = (now_s() + middle + 0.05).ceil() - middle;
        wait(Duration::from_secs_f64((next - now_s()).clamp(0.0, 2.0)), stop)?;
        ask(&mut offset)?;
    }
    Ok((offset.middle(), offset.width() / 2.0))
}

/// Returns the date of one answer, and when it was asked for and heard; all in seconds.
fn date(target: &Target) -> Result<(f64, f64, f64), Error> {
    let failed = |what: &str, why: String| Error::failed(format!("--clock-from {target}: {what}: {why}"));
    let addresses = (target.host.as_str(), target.port)
        .to_socket_addrs()
        .map_err(|why| failed("resolve", why.to_string()))?;
    let until = Instant::now() + PATIENCE;
    let socket = connect_any(addresses, PATIENCE).map_err(|why| failed("connect", why.to_string()))?;
    socket.set_nodelay(true).map_err(|why| failed("set up the socket", why.to_string()))?;
    let mut socket = InTime::new(socket, until);
    let request = format!(
        "HEAD {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: ringroad/{}\r\nConnection: close\r\n\r\n",
        target.path,
        target.authority(),
        env!("CARGO_PKG_VERSION")
    );
    let begun = Instant::now();
    let asked = now_s();
    socket.write_all(request.as_bytes()).map_err(|why| failed("write", why.to_string()))?;
    let mut head = Vec::new();
    let mut block = [0; 4096];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < HEAD_MAX {
        let count = socket.read(&mut block).map_err(|why| failed("read", why.to_string()))?;
        if count == 0 {
            break;
        }
        head.extend_from_slice(block.get(..count).unwrap_or_default());
    }
    // By the clock that does not jump, so that a step of the system's between the two is no way of an hour.
    let heard = asked + begun.elapsed().as_secs_f64();
    let head = String::from_utf8_lossy(&head);
    let date = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("date").then(|| value.trim().to_owned())
    });
    let date = date.ok_or_else(|| failed("read", "its answer has no Date".to_owned()))?;
    let date = httpdate::parse_http_date(&date).map_err(|why| failed("read", format!("{date}: {why}")))?;
    Ok((unix_s(date), asked, heard))
}

/// Makes a call again that was interrupted. With a time limit (SO_RCVTIMEO) the kernel does not do so itself,
/// and also interrupts for the work of an io_uring that was closed just before.
fn uninterrupted<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// By a time server. Returns offset and error, seconds.
fn by_ntp(host: &str, stop: &AtomicBool) -> Result<(f64, f64), Error> {
    let failed = |why: String| Error::failed(format!("--clock-from ntp://{host}: {why}"));
    let with_port = match host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() && !host.ends_with(']') => host.to_owned(),
        _ => format!("{host}:123"),
    };
    let address = with_port
        .to_socket_addrs()
        .map_err(|why| failed(format!("resolve: {why}")))?
        .next()
        .ok_or_else(|| failed("it has no address".to_owned()))?;
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    });
    let socket = socket.map_err(|why| failed(format!("connect: {why}")))?;
    let mut best: Option<(f64, f64)> = None;
    for _ in 0..EXCHANGES {
        wait(Duration::ZERO, stop)?;
        let exchange = exchange(&socket).map_err(failed)?;
        if best.is_none_or(|best| exchange.1 < best.1) {
            best = Some(exchange);
        }
    }
    best.ok_or_else(|| failed("no answer".to_owned()))
}

/// One exchange: offset and error. As RFC 5905 §8; the error is half of the way, and what the server says of
/// its own.
fn exchange(socket: &UdpSocket) -> Result<(f64, f64), String> {
    let mut question = [0_u8; 48];
    // No leap warning, version 4, client.
    question[0] = 0b00_100_011;
    let begun = Instant::now();
    let sent = now_s();
    let stamp = to_ntp(sent);
    question[40..].copy_from_slice(&stamp);
    socket.send(&question).map_err(|why| format!("send: {why}"))?;
    let mut answer = [0_u8; 128];
    loop {
        let received = uninterrupted(|| socket.recv(&mut answer));
        let count = received.map_err(|why| format!("receive: {}", in_time(why)))?;
        let received = sent + begun.elapsed().as_secs_f64();
        // An answer to an earlier question, or to none, is not waited for.
        if count < 48 || answer.get(24..32) != Some(&stamp[..]) {
            if begun.elapsed() > PATIENCE {
                return Err("its answers are none to what was asked".to_owned());
            }
            continue;
        }
        if answer[0] >> 6 == 3 || answer[1] == 0 {
            return Err("this server's own clock is not synchronised".to_owned());
        }
        let word = |at: usize| {
            let bytes = answer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            f64::from(u32::from_be_bytes(bytes.unwrap_or_default()))
        };
        let fixed = |at: usize| word(at) + word(at + 4) / 4_294_967_296.0 - FROM_1900_S;
        let (arrived, left) = (fixed(32), fixed(40));
        let offset = f64::midpoint(arrived - sent, left - received);
        let way = ((received - sent) - (left - arrived)).max(0.0);
        // Root delay and root dispersion are in units of 2⁻¹⁶ seconds.
        let root = (word(4) / 2.0 + word(8)) / 65_536.0;
        return Ok((offset, way / 2.0 + root));
    }
}

fn to_ntp(unix_s: f64) -> [u8; 8] {
    let since = unix_s + FROM_1900_S;
    let (seconds, rest) = (since.floor(), since.fract());
    let mut stamp = [0; 8];
    // The era of 2036 begins again at nothing, as the format has it.
    stamp[..4].copy_from_slice(&((seconds as u64) as u32).to_be_bytes());
    stamp[4..].copy_from_slice(&((rest * 4_294_967_296.0) as u32).to_be_bytes());
    stamp
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn each_answer_narrows_the_offset_and_a_contradiction_shows() {
        // The other clock is 2.3 s ahead; an answer takes 10 ms each way.
        let mut offset = Between::ANYWHERE;
        for at in [0.0, 0.35, 0.65, 0.685, 0.69] {
            let second = f64::floor(at + 0.01 + 2.3);
            offset.narrow(second, at, at + 0.02);
        }
        assert!(offset.low <= 2.3 && 2.3 <= offset.high && offset.width() < 0.05, "{offset:?}");
        offset.narrow(9.0, 1.0, 1.02);
        assert!(offset.width() < 0.0);
    }

    /// Serves dates of a clock that is this far ahead until all requests of a measurement are answered.
    fn dates(ahead_s: f64) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        // It ends with the test's process; a request is answered as it comes.
        thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                let mut block = [0; 1024];
                let _ = socket.read(&mut block);
                let time = UNIX_EPOCH + Duration::from_secs_f64((now_s() + ahead_s).floor());
                let date = httpdate::fmt_http_date(time);
                let _ = write!(socket, "HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n");
            }
        });
        url
    }

    #[test]
    fn a_date_of_whole_seconds_gives_the_offset_within_its_error() {
        let clock = measure(&dates(-7.25), &AtomicBool::new(false)).unwrap();
        assert!((clock.offset_s + 7.25).abs() <= clock.within_s + 1e-6, "{clock:?}");
        assert!(clock.within_s < 0.5, "{clock:?}");
    }

    #[test]
    fn a_time_server_gives_the_offset_within_its_error() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let url = format!("ntp://{}", server.local_addr().unwrap());
        thread::spawn(move || {
            let mut question = [0; 64];
            while let Ok((48, from)) = server.recv_from(&mut question) {
                let mut answer = [0_u8; 48];
                (answer[0], answer[1]) = (0b00_100_100, 2);
                answer[24..32].copy_from_slice(&question[40..48]);
                let now = to_ntp(now_s() + 3.5);
                answer[32..40].copy_from_slice(&now);
                answer[40..48].copy_from_slice(&now);
                let _ = server.send_to(&answer, from);
            }
        });
        let clock = measure(&url, &AtomicBool::new(false)).unwrap();
        assert!((clock.offset_s - 3.5).abs() <= clock.within_s + 1e-5, "{clock:?}");
    }

    #[test]
    fn stopping_ends_the_measurement_before_the_next_question() {
        let stop = AtomicBool::new(true);
        let time = UdpSocket::bind("127.0.0.1:0").unwrap();
        for url in [dates(0.0), format!("ntp://{}", time.local_addr().unwrap())] {
            let error = measure(&url, &stop).unwrap_err();
            assert!(error.is_interrupted(), "{url}: {error}");
        }
    }

    #[test]
    fn what_is_no_source_is_refused() {
        let go = AtomicBool::new(false);
        assert!(measure("tcp://127.0.0.1:1", &go).is_err_and(|error| error.is_usage()));
        assert!(measure("ntp://127.0.0.1:1", &go).is_err());
    }
}
