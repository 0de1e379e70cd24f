'use strict';
// One conversation by stompit over TCP.

const { promisify } = require('node:util');
const stompit = require('stompit');
const { Inbox, assert, host, port, prefix, run, text } = require('./conversation');

function subscribe(client, headers) {
  const inbox = new Inbox();
  const subscription = client.subscribe(headers, (error, message) => {
    if (error) throw error;
    message.readString('utf-8', (fault, body) => {
      if (fault) throw fault;
      inbox.put({ message, body });
    });
  });
  return { inbox, subscription };
}

function send(link, headers, body) {
  const frame = link.send(headers);
  frame.write(body);
  frame.end();
}

run(async () => {
  const client = await promisify(stompit.connect)({
    host,
    port,
    connectHeaders: { host: 'localhost', login: 'user', passcode: 'word', 'heart-beat': '2000,2000' },
  });

  const work = `/queue/${prefix}.work`;
  for (let n = 0; n < 20; n += 1) send(client, { destination: work, n }, text + n);
  const worker = subscribe(client, { destination: work, ack: 'client-individual' });
  for (let n = 0; n < 20; n += 1) {
    const { message, body } = await worker.inbox.next();
    assert.equal(body, text + n);
    assert.equal(message.headers.n, String(n));
    client.ack(message);
  }
  worker.subscription.unsubscribe();

  const destination = `/queue/${prefix}.transactions`;
  const transactions = subscribe(client, { destination, ack: 'auto' });
  const never = client.begin();
  send(never, { destination }, 'aborted');
  never.abort();
  const once = client.begin();
  send(once, { destination }, 'committed');
  send(client, { destination }, 'before');
  assert.equal((await transactions.inbox.next()).body, 'before');
  once.commit();
  assert.equal((await transactions.inbox.next()).body, 'committed');

  const ring = `/queue/ring3.${prefix}`;
  for (const body of ['A', 'B', 'C', 'D']) send(client, { destination: ring }, body);
  const rest = subscribe(client, { destination: ring, ack: 'auto' });
  for (const body of ['B', 'C', 'D']) assert.equal((await rest.inbox.next()).body, body);
  await new Promise((resolve, reject) => client.disconnect((error) => (error ? reject(error) : resolve())));
});
