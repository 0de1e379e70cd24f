'use strict';
// A producer and consumer by @stomp/stompjs, which goes on at the next of its brokers: `node failover.js QUEUE URL...`
// prints a line for each connection, receipt and message, and ends after a line on its standard input, when each message
// that was sent has a receipt and has come back.

Object.assign(global, { WebSocket: require('ws') });
const readline = require('node:readline');
const { Client } = require('@stomp/stompjs');

const [, , queue, ...urls] = process.argv;
const unconfirmed = new Set();
const seen = new Set();
const window = 5;
let attempt = 0;
let last = 0;
let finishing = false;

const client = new Client({
  reconnectDelay: 100,
  connectionTimeout: 3000,
  heartbeatIncoming: 2000,
  heartbeatOutgoing: 2000,
  beforeConnect: () => {
    client.brokerURL = urls[attempt % urls.length];
    attempt += 1;
  },
});

// What has no receipt when a connection is lost is sent again, with the same duplicate id.
function send(number) {
  client.watchForReceipt(`r${number}`, () => {
    unconfirmed.delete(number);
    console.log(`receipt ${number}`);
  });
  client.publish({
    destination: queue,
    body: String(number),
    headers: { persistent: 'true', receipt: `r${number}`, _AMQ_DUPL_ID: String(number) },
  });
}

client.onConnect = () => {
  console.log(`connected ${client.brokerURL}`);
  client.subscribe(queue, (message) => {
    console.log(`message ${message.body} ${message.headers['message-id']}`);
    seen.add(message.body);
    message.ack();
  }, { ack: 'client-individual' });
  for (const number of unconfirmed) send(number);
};

readline.createInterface({ input: process.stdin }).once('line', () => { finishing = true; });

setInterval(async () => {
  if (!client.connected) return;
  if (!finishing && unconfirmed.size < window) {
    last += 1;
    unconfirmed.add(last);
    send(last);
  } else if (finishing && unconfirmed.size === 0 && seen.size === last) {
    await client.deactivate();
    console.log(`done ${last}`);
    process.exit(0);
  }
}, 5);

client.activate();
