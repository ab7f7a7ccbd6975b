//! `chat`: a WebSocket room. Each message goes to all members: encoded once, and queued for each
//! without a copy. `/echo` answers each message with itself.
//!
//! Open http://127.0.0.1:8080/ in two windows. Another address is taken as argument.

use ringroad::http::ws::{self, Frame, Options, Sender, WebSocket};
use ringroad::http::{Html, Request, Response, Server, State, get};
use std::cell::RefCell;
use std::error::Error;

const PAGE: &str =
    "<!doctype html><title>chat</title><form><input autofocus size=60></form><pre></pre><script>
const socket = new WebSocket(location.href.replace('http', 'ws') + 'chat');
const say = text => document.querySelector('pre').append(text + '\\n');
socket.onmessage = event => say(event.data);
socket.onclose = event => say(`closed: ${event.code} ${event.reason}`);
document.querySelector('form').onsubmit = event => {
  event.preventDefault();
  socket.send(event.target[0].value);
  event.target.reset();
};
</script>";

/// The members of the room. One worker serves all of them, so that no lock is needed.
#[derive(Default)]
struct Room {
    senders: RefCell<Vec<Sender>>,
}

impl Room {
    fn say(&self, text: &str) {
        let frame = Frame::text(text);
        // Closed, or so slow that a whole queue waits: out.
        self.senders.borrow_mut().retain(|sender| sender.send_frame(&frame).is_ok());
    }
}

async fn page(_: Request) -> Html<&'static str> {
    Html(PAGE)
}

async fn chat(request: Request, room: State<Room>) -> Response {
    ws::accept(&request, move |mut socket: WebSocket| async move {
        room.senders.borrow_mut().push(socket.sender());
        while let Ok(Some(message)) = socket.recv().await {
            room.say(message.as_text().unwrap_or("(bytes)"));
        }
    })
}

async fn echo(request: Request) -> Response {
    Options::new().compress(true).accept(&request, |mut socket| async move {
        while let Ok(Some(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                return;
            }
        }
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let server = Server::with_state(Room::default).bind(address)?;
    let server = server.route("/", get(page)).route("/chat", get(chat)).route("/echo", get(echo));
    server.serve_and(|handle| println!("chat on http://{}/, {}", handle.address(), handle.choice()))?;
    Ok(())
}
