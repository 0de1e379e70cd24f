'use strict';
// What the Node.js programs have in common.

const assert = require('node:assert/strict');

const [, , host, port, prefix] = process.argv;

/** A queue of things that come, and a promise of the next one for who asks. */
class Inbox {
  constructor() {
    this.items = [];
    this.takers = [];
  }

  put(item) {
    const taker = this.takers.shift();
    if (taker) taker(item);
    else this.items.push(item);
  }

  next() {
    if (this.items.length) return Promise.resolve(this.items.shift());
    return new Promise((resolve) => this.takers.push(resolve));
  }
}

/** Run a conversation, with a limit of time, and tell how it ended. */
function run(conversation) {
  const limit = setTimeout(() => fail(new Error('time is over')), 30000);
  function fail(error) {
    console.error(error);
    process.exit(1);
  }
  conversation().then(() => {
    clearTimeout(limit);
    console.log('ok');
  }, fail);
}

module.exports = { Inbox, assert, host, port: Number(port), prefix, run, text: 'zażółć gęślą jaźń 🐢 ' };
