// Opens a page in two windows of Chromium. Each line of standard input is an expression that is evaluated in the first window
// ("1 …") or the second ("2 …"); its value is a line of JSON on standard output. Usage: node push_demo.cjs URL FOLDER. It ends
// with its input.
'use strict';
const [url, folder] = process.argv.slice(2);
const browser = require('./chromium.cjs').start(folder);
async function main() {
  const windows = [await browser.open(url), await browser.open(url)];
  console.log('"open"');
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await windows[line[0] - 1](line.slice(2))));
  }
}
main().then(() => 0, why => { console.error(why); return 1; }).then(async code => { await browser.stop(); process.exit(code); });
