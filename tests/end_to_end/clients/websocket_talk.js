'use strict';
// What @stomp/stompjs does over WebSocket, the same in Node.js and in a page of a browser.
// `tell` says how far it is to the test around it; 'restart' asks it to restart the broker.

const words = 'zażółć gęślą jaźń 🐢 ';

function check(what, found, expected) {
  if (found !== expected) throw new Error(`${what}: ${found} and not ${expected}`);
}

/** A connected client; `onConnect` is called with it again whenever it has reconnected. */
function opened(Client, url, options = {}) {
  const client = new Client({ brokerURL: url, reconnectDelay: 0, ...options });
  return new Promise((resolve, reject) => {
    client.onConnect = () => {
      options.onConnect?.(client);
      resolve(client);
    };
    client.onStompError = (frame) => reject(new Error(frame.headers.message));
    client.onWebSocketError = () => { if (!options.reconnectDelay) reject(new Error(`no WebSocket at ${url}`)); };
    client.activate();
  });
}

/** Send to a queue and wait for what comes back. */
function sentAndReceived(client, destination, publications) {
  return new Promise((resolve) => {
    const found = [];
    const subscription = client.subscribe(destination, (message) => {
      found.push(message);
      message.ack();
      if (found.length === publications.length) {
        subscription.unsubscribe();
        resolve(found);
      }
    }, { ack: 'client-individual' });
    for (const publication of publications) client.publish({ destination, ...publication });
  });
}

async function converse(Client, url, prefix, options) {
  const client = await opened(Client, url, options);
  check('version', client.connectedVersion, '1.2');
  check('subprotocol', client.webSocket.protocol, 'v12.stomp');

  const many = Array.from({ length: 20 }, (_, n) => ({ body: words + n, headers: { odd: `a:b\nc\\d${n}` } }));
  (await sentAndReceived(client, `/queue/${prefix}.words`, many)).forEach((message, n) => {
    check('body', message.body, words + n);
    check('header', message.headers.odd, `a:b\nc\\d${n}`);
  });

  const bytes = Uint8Array.from([0, 1, 10, 0, 255, 0]);
  const [binary] = await sentAndReceived(client, `/queue/${prefix}.bytes`, [{ binaryBody: bytes }]);
  check('bytes', Array.from(binary.binaryBody).join(), Array.from(bytes).join());

  const megabyte = Uint8Array.from({ length: 1 << 20 }, (_, n) => (n * n * 31 + (n >> 7)) & 255);
  const text = 'ż'.repeat(1 << 19);
  const [big, long] = await sentAndReceived(client, `/queue/${prefix}.big`, [{ binaryBody: megabyte }, { body: text }]);
  check('bytes of the big one', big.binaryBody.length, megabyte.length);
  check('the big one is the same', big.binaryBody.every((byte, n) => byte === megabyte[n]), true);
  check('the long text is the same', long.body === text, true);
  await client.deactivate();
}

/** Says nothing for a while, and is still there. */
async function idle(Client, url, seconds) {
  let beats = 0;
  const client = await opened(Client, url, { heartbeatIncoming: 1000, heartbeatOutgoing: 1000 });
  client.onHeartbeatReceived = () => { beats += 1; };
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  check('connected', client.connected, true);
  check('the broker beats', beats >= 2, true);
  await client.deactivate();
}

/** Is there again after the broker was. */
async function reconnect(Client, url, prefix, tell) {
  const inbox = [];
  let wake = () => {};
  let connections = 0;
  const onConnect = (client) => {
    connections += 1;
    client.subscribe(`/queue/${prefix}.again`, (message) => { inbox.push(message.body); wake(); });
    client.publish({ destination: `/queue/${prefix}.again`, body: `connection ${connections}` });
  };
  const next = () => new Promise((resolve) => {
    wake = () => { if (inbox.length) resolve(inbox.shift()); };
    wake();
  });
  const client = await opened(Client, url, { reconnectDelay: 200, onConnect });
  check('before', await next(), 'connection 1');
  await tell('restart');
  check('after', await next(), 'connection 2');
  await client.deactivate();
}

async function talk({ Client, urls, prefix, tell }) {
  try {
    for (const [number, url] of urls.entries()) {
      await converse(Client, url, `${prefix}.${number}`, {});
      await converse(Client, url, `${prefix}.${number}`, { splitLargeFrames: true });
      await converse(Client, url, `${prefix}.${number}`, { forceBinaryWSFrames: true });
      await tell(`conversation ${number}`);
    }
    await idle(Client, urls[0], 4);
    await tell('idle');
    await reconnect(Client, urls[0], prefix, tell);
    await tell('ok');
  } catch (error) {
    await tell(`failed: ${error.stack}`);
  }
}

/** Whether the broker lets this page in. */
function knock({ url, tell }) {
  const socket = new WebSocket(url, ['v12.stomp']);
  socket.onopen = () => { tell('let in'); };
  socket.onerror = () => { tell('refused'); };
}

if (typeof module !== 'undefined') module.exports = { talk };
