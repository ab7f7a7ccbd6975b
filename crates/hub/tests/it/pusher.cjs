// Unmodified clients of npm against a hub: pusher-js, Laravel Echo, and the library `pusher` of servers, which also answers at
// the endpoint where clients ask for their signatures. Usage: node pusher.cjs PORT KEY SECRET ID. Prints "ok" at the end.
'use strict';
const http = require('node:http');
const net = require('node:net');
const path = require('node:path');
const { pathToFileURL } = require('node:url');
const [port, key, secret, appId] = process.argv.slice(2);
const Pusher = require('pusher-js');
const Server = require('pusher');

const server = new Server({ appId, key, secret, host: '127.0.0.1', port, useTLS: false });
const heard = (target, event) => new Promise(done => {
  const once = value => { target.unbind(event, once); done(value); };
  target.bind(event, once);
});
const check = (is, what) => { if (!is) throw new Error(what); };
const listening = listener => new Promise(done => listener.listen(0, '127.0.0.1', () => done(listener.address().port)));

// The application: its endpoint signs for the user that the query names, and for no channel of another user.
const asked = [];
const application = http.createServer((request, response) => {
  let body = '';
  request.on('data', piece => { body += piece; }).on('end', () => {
    const form = new URLSearchParams(body);
    const [user, channel] = [new URL(request.url, 'http://a').searchParams.get('user'), form.get('channel_name')];
    asked.push(channel);
    if (channel === 'private-forbidden') return response.writeHead(403).end();
    const data = channel.startsWith('presence-') ? { user_id: user, user_info: { name: user.toUpperCase() } } : undefined;
    response.writeHead(200, { 'Content-Type': 'application/json' });
    response.end(JSON.stringify(server.authorizeChannel(form.get('socket_id'), channel, data)));
  });
});

// What lies between a client and the hub, and can be cut.
const ways = new Set();
let isCut = false;
const relay = net.createServer(near => {
  if (isCut) return near.destroy();
  const far = net.connect(Number(port), '127.0.0.1');
  for (const [from, to] of [[near, far], [far, near]]) {
    ways.add(from);
    from.on('error', () => {}).on('close', () => { ways.delete(from); to.destroy(); }).pipe(to);
  }
});

async function main() {
  // The package says that its file for `require` is a module, which Node then refuses.
  const folder = path.dirname(require.resolve('laravel-echo'));
  const { default: Echo } = await import(pathToFileURL(path.join(folder, 'echo.js')));
  const [signer, cuttable] = [await listening(application), await listening(relay)];
  const endpoint = user => `http://127.0.0.1:${signer}/auth?user=${user}`;
  const options = wsPort => ({ wsHost: '127.0.0.1', wsPort, forceTLS: false, enabledTransports: ['ws'], cluster: '', disableStats: true });
  const one = new Pusher(key, { ...options(cuttable), channelAuthorization: { endpoint: endpoint('u'), transport: 'ajax' } });

  const news = one.subscribe('news');
  await heard(news, 'pusher:subscription_succeeded');
  let headline = heard(news, 'headline');
  await server.trigger('news', 'headline', { text: 'é' });
  check((await headline).text === 'é', 'the data of an event');
  headline = heard(news, 'headline');
  await server.triggerBatch([{ channel: 'news', name: 'headline', data: 'batch' }]);
  check(await headline === 'batch', 'an event of a batch');

  const room = one.subscribe('presence-room');
  const members = await heard(room, 'pusher:subscription_succeeded');
  check(members.count === 1 && members.me.id === 'u', 'the first member of a presence channel');
  check(asked.join() === 'presence-room', `what the endpoint was asked: ${asked}`);
  const forbidden = await heard(one.subscribe('private-forbidden'), 'pusher:subscription_error');
  check(forbidden.status === 403, 'the endpoint refuses');

  // Echo makes its client itself.
  let added = heard(room, 'pusher:member_added');
  const echo = new Echo({ broadcaster: 'reverb', key, Pusher, ...options(Number(port)), authEndpoint: endpoint('v') });
  const here = new Promise(done => echo.join('room').here(done));
  check((await added).info.name === 'V', 'a member that comes');
  check((await here).length === 2, 'members that Echo sees');
  const whispered = heard(room, 'client-typing');
  echo.join('room').whisper('typing', { on: true });
  check((await whispered).on === true, 'an event of a client');
  const users = await (await server.get({ path: '/channels/presence-room/users' })).json();
  check(users.users.map(user => user.id).sort().join() === 'u,v', 'users by the HTTP API');
  const listened = new Promise(done => echo.private('orders').listen('.shipped', done));
  await heard(echo.private('orders').subscription, 'pusher:subscription_succeeded');
  await server.trigger('private-orders', 'shipped', { id: 7 });
  check((await listened).id === 7, 'an event of a private channel by Echo');
  // The socket that an event names does not get it.
  const got = [];
  room.bind('note', data => got.push(data));
  await server.trigger('presence-room', 'note', 'not for me', { socket_id: one.connection.socket_id });
  let note = heard(room, 'note');
  await server.trigger('presence-room', 'note', 'for all');
  await note;
  check(got.join() === 'for all', `events without those that leave out this socket: ${got}`);

  // A cut: others see the member go and come, and a cache channel tells its last event again.
  const cached = one.subscribe('cache-weather');
  await heard(cached, 'pusher:cache_miss');
  const first = one.connection.socket_id;
  const left = new Promise(done => echo.join('room').leaving(done));
  const back = new Promise(done => echo.join('room').joining(done));
  isCut = true;
  for (const way of ways) way.destroy();
  check((await left).name === 'U', 'others see a member go that was cut off');
  await server.trigger('cache-weather', 'now', 'rain');
  await server.trigger('cache-weather', 'now', 'sun');
  const weather = heard(cached, 'now');
  const again = heard(room, 'pusher:subscription_succeeded');
  isCut = false;
  check((await again).count === 2, 'members after a cut');
  check((await back).name === 'U', 'others see it come back');
  check(await weather === 'sun', 'the last event of a cache channel');
  check(one.connection.socket_id !== first, 'a connection of its own behind a cut');
  note = heard(room, 'note');
  await server.trigger('presence-room', 'note', 'again');
  check(await note === 'again', 'an event behind a cut');

  // Events for a user reach its connections that have signed in.
  const signed = new Pusher(key, {
    ...options(Number(port)),
    userAuthentication: { customHandler: ({ socketId }, done) => done(null, server.authenticateUser(socketId, { id: 'w' })) },
  });
  const greeted = heard(signed.user, 'greeting');
  signed.signin();
  await signed.user.signinDonePromise;
  await heard(signed.user.serverToUserChannel, 'pusher:subscription_succeeded');
  await server.sendToUser('w', 'greeting', 'hello');
  check(await greeted === 'hello', 'an event for a user');
  signed.disconnect();

  const removed = heard(room, 'pusher:member_removed');
  echo.disconnect();
  check((await removed).id === 'v', 'a member that goes');
  one.disconnect();
  console.log('ok');
}

main().then(() => process.exit(0), why => { console.error(why); process.exit(1); });
