// pusher-js of npm in Chromium, beside the browser's own EventSource, at a page of the hub's origin. The endpoint that signs is
// at another origin. Usage: node pusher_browser.cjs PORT KEY SECRET FOLDER, with pusher-js in NODE_PATH. Prints "ok" at the end.
'use strict';
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const [port, key, secret, folder] = process.argv.slice(2);
const library = fs.readFileSync(path.join(process.env.NODE_PATH, 'pusher-js/dist/web/pusher.min.js'), 'utf8');
const browser = require('../../../cli/tests/it/chromium.cjs').start(folder);
const check = (is, what) => { if (!is) throw new Error(what); };

const application = http.createServer((request, response) => {
  let body = '';
  request.on('data', piece => { body += piece; }).on('end', () => {
    const form = new URLSearchParams(body);
    const channel_data = JSON.stringify({ user_id: new URL(request.url, 'http://a').searchParams.get('user') });
    const text = `${form.get('socket_id')}:${form.get('channel_name')}:${channel_data}`;
    const auth = `${key}:${crypto.createHmac('sha256', secret).update(text).digest('hex')}`;
    response.writeHead(200, { 'Content-Type': 'application/json', 'Access-Control-Allow-Origin': '*' });
    response.end(JSON.stringify({ auth, channel_data }));
  });
});

// The window's client, in a presence channel and, by EventSource, subscribed to the topic of the same name as a public one.
const join = (user, endpoint) => `new Promise((done, failed) => {
  window.pusher = new Pusher(${JSON.stringify(key)}, {
    wsHost: location.hostname, wsPort: Number(location.port), forceTLS: false, enabledTransports: ['ws'], cluster: '',
    disableStats: true, channelAuthorization: { endpoint: '${endpoint}?user=${user}', transport: 'ajax' },
  });
  window.got = [];
  window.events = new EventSource('/hub?match=news');
  events.onmessage = event => got.push('event ' + event.data);
  window.news = pusher.subscribe('news');
  news.bind('message', data => got.push('pusher ' + data));
  window.room = pusher.subscribe('presence-room');
  room.bind('pusher:subscription_error', why => failed(new Error(JSON.stringify(why))));
  room.bind('pusher:subscription_succeeded', members => {
    const ready = () => news.subscribed && events.readyState === 1 ? done(members.count) : setTimeout(ready, 5);
    ready();
  });
})`;
// Waits for a condition in the page.
const until = condition => `new Promise(done => { const look = () => ${condition} ? done(true) : setTimeout(look, 5); look(); })`;

async function main() {
  await new Promise(done => application.listen(0, '127.0.0.1', done));
  const endpoint = `http://127.0.0.1:${application.address().port}/auth`;
  const pages = [];
  for (const user of ['u', 'v']) {
    const page = await browser.open(`http://127.0.0.1:${port}/page`);
    // The empty page that the window begins with takes its expressions along when it goes.
    const there = `location.port === '${port}' && document.readyState === 'complete'`;
    while (!await page(there).catch(() => false));
    await page(`${library};null`);
    check(await page(join(user, endpoint)) === pages.length + 1, 'members that a window sees');
    pages.push(page);
  }
  await pages[0](until('room.members.count === 2'));
  await fetch(`http://127.0.0.1:${port}/hub`, {
    method: 'POST', headers: { 'X-Publish': 'x' }, body: new URLSearchParams({ topic: 'news', data: '"sunny"' }),
  }).then(answer => check(answer.status === 200, `publishing: ${answer.status}`));
  for (const page of pages) {
    await page(until('got.length === 2'));
    check(await page('got.sort().join()') === 'event "sunny",pusher sunny', 'a message reaches both clients of a window');
  }
  await pages[0](`new Promise(done => { room.bind('client-hi', done); }).then(data => { got.push(data.text); }); null`);
  check(await pages[1](`room.trigger('client-hi', { text: 'é' })`) === true, 'an event of a client is sent');
  await pages[0](until('got.includes("é")'));
  await pages[1]('pusher.disconnect()');
  await pages[0](until('room.members.count === 1'));
  console.log('ok');
}

main().then(() => 0, why => { console.error(why); return 1; }).then(async code => { await browser.stop(); process.exit(code); });
