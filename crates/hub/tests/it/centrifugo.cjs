// The unmodified client centrifuge-js of npm against a hub. Usage: node centrifugo.cjs PORT KEY.
// A key in place of a token gives every right. Prints "ok" at the end.
'use strict';
const [port, key] = process.argv.slice(2);
const { Centrifuge } = require('centrifuge');
const WebSocket = require('ws');
const api = async (method, body) => {
  const answer = await fetch(`http://127.0.0.1:${port}/api/${method}`, {
    method: 'POST', headers: { 'X-API-Key': key }, body: JSON.stringify(body),
  });
  const told = await answer.json();
  if (told.error) throw new Error(`${method}: ${JSON.stringify(told.error)}`);
  return told.result;
};
const sockets = [];
// While this holds, nothing listens where clients connect to.
let isCut = false;
class Socket extends WebSocket {
  constructor(url, ...more) { super(isCut ? 'ws://127.0.0.1:1/' : url, ...more); sockets.push(this); }
}
const client = token => new Centrifuge(`ws://127.0.0.1:${port}/connection/websocket`, {
  websocket: Socket, token, minReconnectDelay: 10, maxReconnectDelay: 50,
});
const heard = (target, event) => new Promise(done => target.once(event, done));
const check = (is, what) => { if (!is) throw new Error(what); };

async function main() {
  const one = client(key);
  const connected = heard(one, 'connected');
  one.connect();
  check((await connected).client.length === 36, 'the id of a client');
  const news = one.newSubscription('news', { joinLeave: true });
  const told = [];
  news.on('publication', context => told.push(context));
  const subscribed = heard(news, 'subscribed');
  news.subscribe();
  check((await subscribed).recoverable, 'a subscription that recovers');

  let next = heard(news, 'publication');
  await api('publish', { channel: 'news', data: { text: 'é', n: 1 }, tags: { a: 'b' } });
  const first = await next;
  check(first.data.text === 'é' && first.tags.a === 'b' && first.offset > 0, 'a message of a server');
  next = heard(news, 'publication');
  await news.publish({ n: 2 });
  const second = await next;
  check(second.data.n === 2 && second.info.client.length === 36, 'a message of a client');

  const other = client();
  other.connect();
  const joined = heard(news, 'join');
  const same = other.newSubscription('news', { since: { epoch: '', offset: 0 } });
  const found = heard(same, 'subscribed');
  const missed = [];
  same.on('publication', context => missed.push(context.data.n));
  same.subscribe();
  check((await found).recovered, 'recovery from the beginning');
  check(missed.join() === '1,2', `what was missed: ${missed}`);
  check((await joined).info.client.length === 36, 'a client that comes');
  const refused = await same.publish({ n: 9 }).then(() => null, why => why);
  check(refused && refused.code === 103, 'publishing without a right');
  check((await news.presenceStats()).numClients === 2, 'presence counts');
  check(Object.keys((await news.presence()).clients).length === 2, 'presence');
  const history = await news.history({ limit: 10 });
  check(history.publications.map(one => one.data.n).join() === '1,2', 'history');
  check((await news.history({ limit: 1, reverse: true })).publications[0].data.n === 2, 'history in reverse');
  check((await api('presence_stats', { channel: 'news' })).num_clients === 2, 'presence by the API');
  check((await api('channels', {})).channels.news.num_clients === 2, 'channels by the API');
  const method = await one.rpc('x', {}).then(() => null, why => why);
  check(method && method.code === 104, 'a method that is not there');

  // A private channel: its token is asked for where the application says so.
  const secret = other.newSubscription('$secret', {
    getToken: async ({ channel }) => JSON.stringify({ channel, sub: '', exp: Math.floor(Date.now() / 1000) + 600 }),
  });
  const let_in = heard(secret, 'subscribed');
  secret.subscribe();
  await let_in;
  const whisper = heard(secret, 'publication');
  await api('publish', { channel: '$secret', data: 'for members' });
  check((await whisper).data === 'for members', 'a message of a private channel');
  const alien = other.newSubscription('$alien', { getToken: async () => JSON.stringify({ channel: '$other', sub: '', exp: 9e9 }) });
  const kept_out = heard(alien, 'unsubscribed');
  alien.subscribe();
  check((await kept_out).code === 103, 'a token of another channel');

  // A cut: what comes meanwhile is recovered.
  told.length = 0;
  const cut = heard(one, 'connecting');
  const again = heard(news, 'subscribed');
  isCut = true;
  sockets[0].terminate();
  await cut;
  await api('broadcast', { channels: ['news', 'other'], data: { n: 3 } });
  await api('batch', { commands: [{ publish: { channel: 'news', data: { n: 4 } } }] });
  isCut = false;
  const context = await again;
  check(context.wasRecovering && context.recovered, 'recovery after a cut');
  while (told.length < 2) await heard(news, 'publication');
  check(told.map(one => one.data.n).join() === '3,4', 'messages of the time without a connection');

  const left = heard(news, 'leave');
  other.disconnect();
  await left;
  const gone = heard(news, 'unsubscribed');
  news.unsubscribe();
  await gone;
  one.disconnect();
  console.log('ok');
}

main().then(() => process.exit(0), why => { console.error(why); process.exit(1); });
