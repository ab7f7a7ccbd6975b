// node hello.js HOST:PORT: what the example hello answers, by node:http.
'use strict';
const http = require('node:http');

const page = '<h1>Hello World</h1>';
const [host, port] = (process.argv[2] || '127.0.0.1:8080').split(':');
const server = http.createServer((_, response) => {
  response.writeHead(200, { 'Content-Type': 'text/html', 'Content-Length': page.length });
  response.end(page);
});
server.keepAliveTimeout = 60_000;
server.listen(Number(port), host, 4096, () => console.log(`listening on ${host}:${server.address().port}`));
