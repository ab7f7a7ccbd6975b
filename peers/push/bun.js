// A hub by Bun's server (uWebSockets): for side-by-side runs. bun bun.js PORT. GET /echo and /sub are WebSocket, POST /pub
// publishes its body.
const server = Bun.serve({
  port: Number(process.argv[2]),
  hostname: '127.0.0.1',
  async fetch(request, server) {
    const path = new URL(request.url).pathname;
    if (path === '/pub') {
      server.publish('t', await request.text());
      return new Response('ok');
    }
    return server.upgrade(request, { data: { path } }) ? undefined : new Response('', { status: 400 });
  },
  websocket: {
    idleTimeout: 60,
    sendPings: true,
    open(socket) { if (socket.data.path === '/sub') socket.subscribe('t'); },
    message(socket, message) { socket.send(message); },
  },
});
console.log(server.port);
