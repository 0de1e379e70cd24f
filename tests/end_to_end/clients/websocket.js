'use strict';
// @stomp/stompjs over WebSocket in Node.js: `node websocket.js PREFIX URL...`; what it tells are lines.

Object.assign(global, { WebSocket: require('ws') });
const { Client } = require('@stomp/stompjs');
const { talk } = require('./websocket_talk');

const [, , prefix, ...urls] = process.argv;

talk({ Client, urls, prefix, tell: async (line) => { console.log(line); } }).then(() => process.exit(0));
