'use strict';
// One conversation by @stomp/stompjs over STOMP 1.2: made for WebSocket, it speaks over anything that looks like one.

const net = require('node:net');
const { Client } = require('@stomp/stompjs');
const { Inbox, assert, host, port, prefix, run, text } = require('./conversation');

/** A TCP connection with the face of a WebSocket. */
class TcpSocket {
  constructor() {
    this.url = `tcp://${host}:${port}`;
    this.protocol = '';
    this.readyState = 0;
    this.socket = net.connect(port, host, () => {
      this.readyState = 1;
      this.onopen?.({});
    });
    this.socket.setNoDelay(true);
    this.socket.on('data', (data) => this.onmessage?.({ data: new Uint8Array(data).buffer }));
    this.socket.on('error', (error) => this.onerror?.(error));
    this.socket.on('close', () => {
      this.readyState = 3;
      this.onclose?.({ code: 1000, reason: '', wasClean: true });
    });
  }

  send(data) {
    this.socket.write(typeof data === 'string' ? data : Buffer.from(data));
  }

  close() {
    this.readyState = 2;
    this.socket.end();
  }
}

async function subscribe(client, destination, headers) {
  const inbox = new Inbox();
  const subscription = client.subscribe(destination, (message) => inbox.put(message), headers);
  return { inbox, subscription };
}

run(async () => {
  const client = new Client({
    webSocketFactory: () => new TcpSocket(),
    reconnectDelay: 0,
    heartbeatIncoming: 2000,
    heartbeatOutgoing: 2000,
    connectHeaders: { login: 'user', passcode: 'word' },
  });
  await new Promise((resolve, reject) => {
    client.onConnect = resolve;
    client.onStompError = (frame) => reject(new Error(frame.headers.message));
    client.onWebSocketError = reject;
    client.activate();
  });
  assert.equal(client.connectedVersion, '1.2');

  const work = `/queue/${prefix}.work`;
  for (let n = 0; n < 20; n += 1) {
    client.publish({ destination: work, body: text + n, headers: { n: String(n), odd: 'a:b\nc\\d' } });
  }
  const worker = await subscribe(client, work, { ack: 'client-individual', 'prefetch-count': '5' });
  for (let n = 0; n < 20; n += 1) {
    const message = await worker.inbox.next();
    assert.equal(message.body, text + n);
    assert.equal(message.headers.n, String(n));
    assert.equal(message.headers.odd, 'a:b\nc\\d');
    message.ack();
  }
  worker.subscription.unsubscribe();

  const bytes = Uint8Array.from([0, 1, 10, 0, 255]);
  const binary = await subscribe(client, `/queue/${prefix}.binary`, { ack: 'client-individual' });
  client.publish({ destination: `/queue/${prefix}.binary`, binaryBody: bytes });
  const refused = await binary.inbox.next();
  assert.deepEqual(Array.from(refused.binaryBody), Array.from(bytes));
  refused.nack();
  const again = await binary.inbox.next();
  assert.equal(again.headers.redelivered, 'true');
  again.ack();

  const transactions = await subscribe(client, `/queue/${prefix}.transactions`, {});
  const publish = (body, headers) => client.publish({ destination: `/queue/${prefix}.transactions`, body, headers });
  const never = client.begin();
  publish('aborted', { transaction: never.id });
  never.abort();
  const once = client.begin();
  publish('committed', { transaction: once.id });
  publish('before', {});
  assert.equal((await transactions.inbox.next()).body, 'before');
  once.commit();
  assert.equal((await transactions.inbox.next()).body, 'committed');

  const ring = `/queue/ring3.${prefix}`;
  const sent = new Promise((resolve) => client.watchForReceipt('sent', resolve));
  for (const body of ['A', 'B', 'C']) client.publish({ destination: ring, body });
  client.publish({ destination: ring, body: 'D', headers: { receipt: 'sent' } });
  await sent;
  const rest = await subscribe(client, ring, {});
  for (const body of ['B', 'C', 'D']) assert.equal((await rest.inbox.next()).body, body);
  await client.deactivate();
});
