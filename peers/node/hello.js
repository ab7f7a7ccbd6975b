// node hello.js HOST:PORT [json]: what the examples hello and json answer, by node:http.
'use strict';
const http = require('node:http');

const page = '<h1>Hello World</h1>';
const [host, port] = (process.argv[2] || '127.0.0.1:8080').split(':');
const answers = {
  hello: (_, response) => {
    response.writeHead(200, { 'Content-Type': 'text/html', 'Content-Length': page.length });
    response.end(page);
  },
  json: (_, response) => {
    const text = JSON.stringify({ status: 'ok' });
    response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': text.length });
    response.end(text);
  },
};
const server = http.createServer(answers[process.argv[3] || 'hello']);
server.keepAliveTimeout = 60_000;
server.listen(Number(port), host, 4096, () => console.log(`listening on ${host}:${server.address().port}`));
