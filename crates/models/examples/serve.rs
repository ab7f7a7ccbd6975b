//! Starts one reference server by hand: `cargo run --release --example serve -- epoll-et http
//! 127.0.0.1:8080`.
//!
//! Further words are options: `buffer=BYTES`, `delay-us=N`, `work-us=N` (decimals allowed), `reuse-port`. It
//! serves until its standard input ends (Ctrl-D), then prints its totals. The program with signals and a
//! proper command line is `ringroad lab server`; this one needs nothing but the crate.

use ringroad_models::{Options, Server, Stop};
use std::error::Error;
use std::io::{self, Read};
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [model, protocol, address, options @ ..] = words.as_slice() else {
        return Err(
            "usage: serve MODEL echo|http ADDRESS [buffer=BYTES] [delay-us=N] [work-us=N] [reuse-port]"
                .into(),
        );
    };
    let mut server_options = Options::default();
    for option in options {
        let microseconds =
            |value: &str| Ok::<_, Box<dyn Error>>(Duration::try_from_secs_f64(value.parse::<f64>()? / 1e6)?);
        match option.split_once('=') {
            Some(("buffer", value)) => server_options.buffer_bytes = value.parse()?,
            Some(("delay-us", value)) => server_options.delay = microseconds(value)?,
            Some(("work-us", value)) => server_options.work = microseconds(value)?,
            None if option == "reuse-port" => server_options.reuse_port = true,
            _ => return Err(format!("unknown option {option:?}").into()),
        }
    }
    let server = Server::bind(model.parse()?, protocol.parse()?, address.parse()?, server_options)?;
    println!("listening on {}", server.address());
    let stop = Stop::new()?;
    let totals = std::thread::scope(|scope| {
        scope.spawn(|| {
            // End of input or an error: either way the parent process is gone.
            let _ = io::stdin().read_to_end(&mut Vec::new());
            stop.request();
        });
        server.run(&stop)
    })?;
    println!("{totals}");
    Ok(())
}
