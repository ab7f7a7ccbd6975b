// Chromium, headless and without packages, over a pipe: `start(FOLDER)` gives `open(URL)`, which opens a window and gives a
// function that evaluates an expression in it, and `stop()`, which is done when none of its processes is left. All its files are
// in FOLDER.
'use strict';
const { spawn } = require('child_process');

exports.start = folder => {
  const browser = spawn('chromium', [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run', '--disable-background-networking',
    `--user-data-dir=${folder}`, '--remote-debugging-pipe',
  ], { detached: true, env: { ...process.env, TMPDIR: folder }, stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
  const ended = new Promise(done => browser.once('exit', done));
  const [commands, answers] = [browser.stdio[3], browser.stdio[4]];
  let count = 0, text = '';
  const waiting = new Map();
  answers.setEncoding('utf8').on('data', piece => {
    text += piece;
    for (let end; (end = text.indexOf('\0')) >= 0; text = text.slice(end + 1)) {
      const told = JSON.parse(text.slice(0, end));
      if (!waiting.has(told.id)) continue;
      waiting.get(told.id)(told);
      waiting.delete(told.id);
    }
  });
  const ask = (method, params, sessionId) => new Promise((done, failed) => {
    waiting.set(++count, told => told.error ? failed(new Error(`${method}: ${told.error.message}`)) : done(told.result));
    commands.write(JSON.stringify({ id: count, method, params, sessionId }) + '\0');
  });
  const open = async url => {
    const { targetId } = await ask('Target.createTarget', { url });
    const { sessionId } = await ask('Target.attachToTarget', { targetId, flatten: true });
    return async expression => {
      const params = { expression, awaitPromise: true, returnByValue: true };
      const { result, exceptionDetails } = await ask('Runtime.evaluate', params, sessionId);
      if (exceptionDetails) throw new Error(`${expression.slice(0, 200)}: ${JSON.stringify(exceptionDetails)}`);
      return result.value ?? null;
    };
  };
  const stop = async () => {
    const group = signal => { try { return process.kill(-browser.pid, signal); } catch { return false; } };
    group('SIGKILL');
    await ended;
    // Those of a renderer are not children of this process, so no event tells of their end. Where no process collects them they
    // stay as zombies, which are found for ever.
    const begun = Date.now();
    while (group(0) && Date.now() - begun < 10000) await new Promise(done => setTimeout(done, 5));
  };
  return { open, stop };
};
