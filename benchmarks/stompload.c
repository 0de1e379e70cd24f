/*
 * stompload - a small STOMP 1.2 load generator.
 *
 * One thread, epoll, frames built once and patched in place, so that on a small machine
 * the broker and not the client is what is measured. It works against any STOMP 1.2 broker.
 *
 * Build:  cc -O2 -o stompload stompload.c, and with -DWITH_TLS -lssl -lcrypto for -E tls
 * Usage:  stompload [options]
 *   -H host (127.0.0.1)  -P port (61613)  -u login  -w passcode  -V virtual host ("/")
 *   -d destination prefix ("/queue/bench"); queue i is PREFIX.i
 *   -q queues (1)  -p producers (1)  -c consumers (1)
 *   -n messages in all (100000)  -s body bytes (128, at least 20)
 *   -a auto|client|client-individual (auto)
 *   -b acknowledge every B messages in client mode (100)
 *   -r ask for a RECEIPT every R sends, and wait for it when W receipts are outstanding (0 = never)
 *   -R W outstanding receipts per producer (1)
 *   -D 1 = persistent:true on every SEND
 *   -W window: producers pause while (sent - received) >= window (20000; 0 = no limit)
 *   -S seconds: stop sending after S seconds and drain; without -n, n is then as large as it needs to be
 *   -x extra header line for SEND, e.g. -x 'destination-type:ANYCAST' (repeatable)
 *   -X name of a header that every SEND carries with another value (12 digits, counting up), so that a broker
 *      which remembers header blocks it has seen before is not flattered
 *   -y extra header line for SUBSCRIBE (repeatable)
 *   -m both|produce|consume (both)
 *   -L target rate in messages per second over all producers (0 = as fast as possible); use it to measure latency
 *   -T seconds without progress before giving up (20)
 *   -t 1 = topic: every consumer gets every message
 *   -C 1 = check: every body carries its producer and a number that counts up from 0, and consumers compare: JSON has
 *      distinct, repeated (had before), disordered (after a later one of the same producer) and redelivered (so says
 *      the broker). Both sides need it.
 *   -i N  a JSON line of its own after every N messages: done, seconds. Messages are those received; without
 *      consumers those sent.
 *   -I S  the same after every S seconds
 * Before the clock starts there is a line {"ready":SECONDS}.
 *   -k 1 = consumers are stuck: they subscribe, print {"stuck":1}, and read nothing until SIGUSR1; time counts from there
 *   -F stomp|nats|relay|alone protocol (stomp). nats: core publish and subscribe of NATS (PUB, SUB, MSG). relay: STOMP
 *      to a relay that passes on what producers send, so that a SEND frame is what consumers receive. alone: the same
 *      without a broker: the only producer's connection ends at the only consumer. It shows what this program can do.
 *   -E tcp|ws|tls transport (tcp). ws: WebSocket, one masked binary message for each frame. tls: no certificate is verified.
 *   -Q N every producer sends to N destinations in turn, PREFIX.000000 onwards, and the consumers share the subscriptions to
 *      them. With it -q has no effect.
 *   -O seconds that connecting and subscribing may take, before the clock starts (60)
 * SIGINT ends the run with what was done until then.
 * Time counts from the moment when every SUBSCRIBE has its RECEIPT (or none has one after half a second) and every
 * producer is connected.
 * Output: one JSON line (behind those of -i, -I and -k): sent, received, seconds, msgs_per_s, ready_seconds (connecting and
 *   subscribing took so long), client_cpu (share of
 *   one core that this program itself used: near 1 means that the client was the limit), what -C found, latency
 *   percentiles in microseconds (of the first 20 million messages).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_TLS
#include <openssl/ssl.h>
static SSL_CTX *tls;
#endif

enum { CONNECTING, READY };
enum { STOMP, NATS, RELAY, ALONE };
enum { TCP, WS, TLS };
typedef struct {
    int fd, producer, state, queue, want_write, deaf, number;
    char *in; size_t in_len, in_cap;
    char *out; size_t out_len, out_off, out_cap;
    char *raw; size_t raw_len, raw_cap; uint64_t message_left;  /* of a WebSocket */
    void *ssl;
    char *frame; size_t frame_len; size_t stamp_off, receipt_off, serial_off, dest_off;
    long sent, received, outstanding, unacked, target;
    int subscribed, gone;
    char last_ack[256];
    struct track *tracks; int tracks_n;
} conn;
/* what came of one producer: which numbers, one bit each, and the greatest of them */
typedef struct track { uint8_t *seen; long cap, last; } track;

static const char *host = "127.0.0.1", *login = NULL, *passcode = NULL, *vhost = "/";
static const char *dest = "/queue/bench", *ack = "auto", *mode = "both";
static char extra_send[1024], extra_sub[1024];
static const char *serial = NULL;
static int port = 61613, queues = 1, producers = 1, consumers = 1, batch = 100, receipt_every = 0, receipts_max = 1;
static int persistent = 0, topic = 0, give_up = 20, protocol = STOMP, transport = TCP, targets = 0, leaving = 0;
static double ready_seconds = 60;
static uint64_t read_at = 0;
static long total = 100000, window = 20000, size = 128;
static long rate = 0; static uint64_t rate_t0 = 0; static double run_for = 0;
static long sent = 0, received = 0, receipts = 0, errors = 0;
static uint32_t *lat; static long lat_n = 0, lat_cap = 0;
static int check = 0, stuck = 0; static long mark_every = 0; static double mark_seconds = 0;
static long distinct = 0, repeated = 0, disordered = 0, redelivered = 0;
static track *shared; static int shared_n = 0;  /* of a queue: what all consumers got */
static volatile sig_atomic_t released = 0, interrupted = 0;
static int ep;

static void on_signal(int number) { if (number == SIGUSR1) released = 1; else interrupted = 1; }

static uint64_t now_ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }
static void die(const char *m) { perror(m); exit(1); }

/* A number of exactly so many digits. */
static void put_digits(char *to, int width, uint64_t value) { while (width--) { to[width] = '0' + value % 10; value /= 10; } }

static void add_line(char *lines, const char *line) {
    if (strlen(lines) + strlen(line) + 2 > 1024) { fprintf(stderr, "more than 1023 bytes of extra headers\n"); exit(2); }
    strcat(lines, line); strcat(lines, "\n");
}

static void push(conn *c, const char *p, size_t n) {
    if (c->out_off && c->out_off == c->out_len) c->out_off = c->out_len = 0;
    if (c->out_len + n > c->out_cap) {
        memmove(c->out, c->out + c->out_off, c->out_len - c->out_off);
        c->out_len -= c->out_off; c->out_off = 0;
        while (c->out_len + n > c->out_cap) c->out_cap = c->out_cap ? c->out_cap * 2 : 65536;
        c->out = realloc(c->out, c->out_cap);
    }
    memcpy(c->out + c->out_len, p, n); c->out_len += n;
}

/* One frame: over WebSocket a message of its own, masked as the protocol demands. */
static void push_frame(conn *c, const char *p, size_t n) {
    if (transport != WS) { push(c, p, n); return; }
    static uint32_t state = 2463534242u;
    state ^= state << 13; state ^= state >> 17; state ^= state << 5;
    uint8_t h[14]; int k = 2;
    h[0] = 0x82;
    if (n < 126) h[1] = 0x80 | n;
    else if (n < 65536) { h[1] = 0x80 | 126; h[2] = n >> 8; h[3] = n; k = 4; }
    else { h[1] = 0x80 | 127; for (int i = 0; i < 8; i++) h[2 + i] = (uint64_t)n >> (56 - 8 * i); k = 10; }
    memcpy(h + k, &state, 4); k += 4;
    push(c, (char *)h, k); push(c, p, n);
    char *body = c->out + c->out_len - n; uint64_t mask = state | (uint64_t)state << 32, word; size_t i = 0;
    for (; i + 8 <= n; i += 8) { memcpy(&word, body + i, 8); word ^= mask; memcpy(body + i, &word, 8); }
    for (; i < n; i++) body[i] ^= ((uint8_t *)&state)[i & 3];
}

static ssize_t write_some(conn *c, const char *p, size_t n) {
#ifdef WITH_TLS
    if (c->ssl) {
        int k = SSL_write(c->ssl, p, n > 1 << 30 ? 1 << 30 : (int)n);
        if (k > 0) return k;
        int e = SSL_get_error(c->ssl, k);
        errno = e == SSL_ERROR_WANT_WRITE || e == SSL_ERROR_WANT_READ ? EAGAIN : EPIPE;
        return -1;
    }
#endif
    return write(c->fd, p, n);
}

static ssize_t read_some(conn *c, char *p, size_t n) {
#ifdef WITH_TLS
    if (c->ssl) {
        int k = SSL_read(c->ssl, p, n > 1 << 30 ? 1 << 30 : (int)n);
        if (k > 0) return k;
        int e = SSL_get_error(c->ssl, k);
        if (e == SSL_ERROR_ZERO_RETURN || (e == SSL_ERROR_SYSCALL && !errno)) return 0;
        errno = e == SSL_ERROR_WANT_WRITE || e == SSL_ERROR_WANT_READ ? EAGAIN : EPIPE;
        return -1;
    }
#endif
    return read(c->fd, p, n);
}

static void watch(conn *c) {
    struct epoll_event e = { .events = (c->deaf ? 0 : EPOLLIN) | (c->want_write ? EPOLLOUT : 0), .data.ptr = c };
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
}

static void arm(conn *c, int w) { if (w != c->want_write) { c->want_write = w; watch(c); } }

static void set_deaf(conn *c, int deaf) { c->deaf = deaf; watch(c); }

static track *track_of(track **tracks, int *n, int producer) {
    if (producer >= *n) {
        *tracks = realloc(*tracks, sizeof **tracks * (producer + 1));
        for (; *n <= producer; ++*n) (*tracks)[*n] = (track){ NULL, 0, -1 };
    }
    return *tracks + producer;
}

/* Whether the message was not there before; notes that it is now. */
static int first_time(track *t, long serial) {
    long byte = serial >> 3;
    if (byte >= t->cap) {
        long cap = t->cap ? t->cap : 4096; while (cap <= byte) cap *= 2;
        t->seen = realloc(t->seen, cap); memset(t->seen + t->cap, 0, cap - t->cap); t->cap = cap;
    }
    int bit = 1 << (serial & 7), had = t->seen[byte] & bit;
    t->seen[byte] |= bit;
    return !had;
}

static void compare(conn *c, const char *body, size_t length) {
    if (length < 38) { fprintf(stderr, "a body of %zu bytes has no number to check\n", length); exit(1); }
    char *end; long producer = strtol(body + 20, &end, 10), serial = strtol(end, NULL, 10);
    if (producer < 0 || producer > 9999 || serial < 0 || serial > 1000000000000) { fprintf(stderr, "a body without producer and number\n"); exit(1); }
    track *own = track_of(&c->tracks, &c->tracks_n, producer);
    if (serial < own->last) disordered++; else own->last = serial;
    if (first_time(topic ? own : track_of(&shared, &shared_n, producer), serial)) distinct++; else repeated++;
}

static void flush(conn *c) {
    while (c->out_off < c->out_len) {
        ssize_t n = write_some(c, c->out + c->out_off, c->out_len - c->out_off);
        if (n < 0) { if (errno == EAGAIN) { arm(c, 1); return; } if (leaving) { c->gone = 1; break; } die("write"); }
        c->out_off += n;
    }
    c->out_off = c->out_len = 0;
}

static int may_send(conn *c) {
    if (c->state != READY || sent >= total) return 0;
    if (receipt_every && c->outstanding >= receipts_max) return 0;
    if (rate) {
        if (!rate_t0) rate_t0 = now_ns();
        if (sent >= (long)((now_ns() - rate_t0) / 1e9 * rate)) return 0;
    }
    if (window && consumers && !strcmp(mode, "both") && (sent - received / (topic ? consumers : 1)) >= window) return 0;
    return 1;
}

static void produce(conn *c) {
    uint64_t stamp = now_ns();
    while (may_send(c) && c->out_len - c->out_off < 65536) {
        char *body = c->frame + c->stamp_off;
        if (rate) stamp = now_ns();
        put_digits(body, 19, stamp); body[19] = ' ';
        if (check) {
            put_digits(body + 20, 4, c->number % 10000); body[24] = ' ';
            put_digits(body + 25, 12, c->sent % 1000000000000); body[37] = ' ';
        }
        if (serial) put_digits(c->frame + c->serial_off, 12, sent % 1000000000000);
        if (targets) { put_digits(c->frame + c->dest_off, 6, c->target); if (++c->target == targets) c->target = 0; }
        if (receipt_every && (c->sent + 1) % receipt_every == 0) {
            static char *whole; static size_t cap;
            if (c->frame_len + 32 > cap) { cap = c->frame_len + 4096; whole = realloc(whole, cap); }
            memcpy(whole, c->frame, c->receipt_off);
            int k = sprintf(whole + c->receipt_off, "receipt:%010ld\n", c->sent);
            memcpy(whole + c->receipt_off + k, c->frame + c->receipt_off, c->frame_len - c->receipt_off);
            push_frame(c, whole, c->frame_len + k);
            c->outstanding++;
        } else push_frame(c, c->frame, c->frame_len);
        c->sent++; sent++;
    }
    flush(c);
    if (!may_send(c) && c->out_off == c->out_len) arm(c, 0);
    else if (may_send(c)) arm(c, 1);
}

static const char *header(const char *p, const char *end, const char *name, size_t *len) {
    size_t n = strlen(name);
    while (p < end) {
        const char *nl = memchr(p, '\n', end - p); if (!nl) nl = end;
        if ((size_t)(nl - p) > n && p[n] == ':' && !memcmp(p, name, n)) {
            *len = nl - p - n - 1; if (*len && nl[-1] == '\r') (*len)--;
            return p + n + 1;
        }
        p = nl + 1;
    }
    return NULL;
}

/* The subscriptions of a consumer; a RECEIPT for the last one tells that all are there. */
static void subscribe(conn *c) {
    char s[4096]; int first = targets ? c->number : c->queue, end = targets ? targets : c->queue + 1, step = targets ? consumers : 1;
    for (int i = first; i < end; i += step) {
        int k, last = i + step >= end;
        const char *receipt = last && producers && !stuck && protocol == STOMP ? "receipt:subscribed\n" : "";
        char name[1200]; snprintf(name, sizeof name, targets ? "%s.%06d" : "%s.%d", dest, i);
        if (protocol == NATS) k = snprintf(s, sizeof s, "SUB %s %d\r\n%s", name, i, last ? "PING\r\n" : "") - 1;
        else k = snprintf(s, sizeof s, "SUBSCRIBE\nid:%d\ndestination:%s\nack:%s\n%s%s\n", targets ? i : 0, name, ack, receipt, extra_sub);
        push_frame(c, s, k + 1);
    }
    if (first >= end || protocol == RELAY) c->subscribed = 1;
    flush(c);
    if (stuck) set_deaf(c, 1);
}

static void message_in(conn *c, const char *body, size_t length) {
    received++; c->received++;
    if (check) compare(c, body, length);
    if (length >= 19 && lat_n < lat_cap) {
        uint64_t then = 0; for (int i = 0; i < 19; i++) then = then * 10 + (body[i] - '0');
        lat[lat_n++] = (uint32_t)(((rate ? now_ns() : read_at) - then) / 1000);
    }
}

static void frame_in(conn *c, const char *cmd, size_t cmd_len, const char *h, const char *h_end, const char *body, size_t body_len) {
    size_t n; const char *v;
    if (cmd_len == 9 && !memcmp(cmd, "CONNECTED", 9)) {
        c->state = READY;
        if (!c->producer) subscribe(c);
    } else if ((cmd_len == 7 && !memcmp(cmd, "MESSAGE", 7)) || (protocol >= RELAY && cmd_len == 4 && !memcmp(cmd, "SEND", 4))) {
        message_in(c, body, body_len);
        if (check) {
            v = header(h, h_end, "redelivered", &n);
            if (v && n == 4 && !memcmp(v, "true", 4)) redelivered++;
        }
        if (ack[0] != 'a') {
            v = header(h, h_end, "ack", &n); if (!v) v = header(h, h_end, "message-id", &n);
            if (!v || n > 255) { fprintf(stderr, "MESSAGE without ack header\n"); exit(1); }
            memcpy(c->last_ack, v, n); c->last_ack[n] = 0; c->unacked++;
            if (!strcmp(ack, "client-individual") || c->unacked >= batch || received >= total) {
                char s[512]; int k = snprintf(s, sizeof s, "ACK\nid:%s\n\n", c->last_ack);
                push_frame(c, s, k + 1); c->unacked = 0;
            }
        }
    } else if (cmd_len == 7 && !memcmp(cmd, "RECEIPT", 7)) {
        if (leaving) c->gone = 1;
        else if (!c->producer) c->subscribed = 1;
        else { receipts++; c->outstanding--; }
    } else {
        errors++; fprintf(stderr, "%.*s %.*s %.*s\n", (int)cmd_len, cmd, (int)(h_end - h), h, (int)body_len, body);
        if (errors > 5) exit(1);
    }
}

static void parse_nats(conn *c) {
    size_t pos = 0;
    for (;;) {
        char *start = c->in + pos, *lim = c->in + c->in_len, *end = memchr(start, '\r', lim - start);
        if (!end || end + 1 >= lim) break;
        char *next = end + 2;
        if (end - start > 4 && !memcmp(start, "MSG ", 4)) {
            char *digits = end; while (digits[-1] != ' ') digits--;
            size_t length = strtoul(digits, NULL, 10);
            if (next + length + 2 > lim) break;
            message_in(c, next, length); next += length + 2;
        } else if (!memcmp(start, "PING", 4)) push(c, "PONG\r\n", 6);
        else if (!memcmp(start, "PONG", 4)) {
            if (c->state == CONNECTING) { c->state = READY; if (!c->producer) subscribe(c); }
            else c->subscribed = 1;
        } else if (*start == '-') { errors++; fprintf(stderr, "%.*s\n", (int)(end - start), start); if (errors > 5) exit(1); }
        pos = next - c->in;
    }
    memmove(c->in, c->in + pos, c->in_len - pos); c->in_len -= pos;
}

/* What has come of WebSocket messages: their contents, in the buffer that is parsed. */
static void unpack(conn *c) {
    size_t pos = 0;
    for (;;) {
        if (c->message_left) {
            size_t n = c->raw_len - pos; if (n > c->message_left) n = c->message_left;
            if (!n) break;
            if (c->in_len + n > c->in_cap) { while (c->in_len + n > c->in_cap) c->in_cap = c->in_cap ? c->in_cap * 2 : 262144; c->in = realloc(c->in, c->in_cap); }
            memcpy(c->in + c->in_len, c->raw + pos, n); c->in_len += n; pos += n; c->message_left -= n;
            continue;
        }
        uint8_t *h = (uint8_t *)c->raw + pos; size_t have = c->raw_len - pos;
        if (have < 2) break;
        size_t k = 2; uint64_t n = h[1] & 127;
        if (n == 126) { k = 4; if (have < k) break; n = h[2] << 8 | h[3]; }
        else if (n == 127) { k = 10; if (have < k) break; n = 0; for (int i = 0; i < 8; i++) n = n << 8 | h[2 + i]; }
        if ((h[0] & 15) == 8) { if (leaving) { c->gone = 1; return; } fprintf(stderr, "WebSocket closed by the broker\n"); exit(1); }
        if ((h[0] & 15) > 8) { if (have < k + n) break; pos += k + n; continue; }
        pos += k; c->message_left = n;
    }
    memmove(c->raw, c->raw + pos, c->raw_len - pos); c->raw_len -= pos;
}

static void parse(conn *c) {
    size_t pos = 0;
    if (protocol == NATS) { parse_nats(c); return; }
    for (;;) {
        while (pos < c->in_len && (c->in[pos] == '\n' || c->in[pos] == '\r')) pos++;
        if (pos >= c->in_len) break;
        char *start = c->in + pos, *lim = c->in + c->in_len;
        char *he = memmem(start, lim - start, "\n\n", 2); size_t skip = 2;
        char *he2 = NULL;
        if (he == NULL || memchr(start, '\r', he - start)) he2 = memmem(start, lim - start, "\r\n\r\n", 4);
        if (he2 && (!he || he2 < he)) { he = he2; skip = 4; }
        if (!he) break;
        char *cmd_end = memchr(start, '\n', he - start); if (!cmd_end) cmd_end = he;
        size_t n; const char *cl = header(cmd_end + 1, he, "content-length", &n);
        char *body = he + skip; size_t blen;
        if (cl) { blen = strtoul(cl, NULL, 10); if (body + blen + 1 > lim) break; }
        else { char *z = memchr(body, 0, lim - body); if (!z) break; blen = z - body; }
        size_t cmd_len = cmd_end - start; if (cmd_len && start[cmd_len - 1] == '\r') cmd_len--;
        frame_in(c, start, cmd_len, cmd_end + 1, he + 1, body, blen);
        pos = body + blen + 1 - c->in;
    }
    memmove(c->in, c->in + pos, c->in_len - pos); c->in_len -= pos;
}

static void on_read(conn *c) {
    char **in = transport == WS ? &c->raw : &c->in;
    size_t *len = transport == WS ? &c->raw_len : &c->in_len, *cap = transport == WS ? &c->raw_cap : &c->in_cap;
    for (int i = 0; transport == TLS || i < 4; i++) {  /* what TLS has decrypted wakes nobody: read it all */
        if (*cap - *len < 65536) { *cap = *cap ? *cap * 2 : 262144; *in = realloc(*in, *cap); }
        ssize_t n = read_some(c, *in + *len, *cap - *len);
        if (n < 0) { if (errno == EAGAIN) break; if (leaving) { c->gone = 1; return; } die("read"); }
        if (n == 0) { if (leaving) { c->gone = 1; set_deaf(c, 1); return; } fprintf(stderr, "connection closed by the broker\n"); exit(1); }
        *len += n;
        if (transport != TLS && (size_t)n < 32768) break;
    }
    if (transport == WS) unpack(c);
    read_at = now_ns();
    parse(c);
    flush(c);
}

static void upgrade(conn *c) {
    char s[512]; int k = snprintf(s, sizeof s, "GET /stomp HTTP/1.1\r\nHost: %s:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: c3RvbXBsb2FkLXN0b21wbA==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: v12.stomp\r\n\r\n", host, port);
    if (write(c->fd, s, k) != k) die("write");
    char answer[4096]; size_t n = 0;
    while (n < sizeof answer - 1 && !(n > 3 && !memcmp(answer + n - 4, "\r\n\r\n", 4))) if (read(c->fd, answer + n, 1) != 1) die("WebSocket handshake"); else n++;
    if (n < 12 || memcmp(answer + 9, "101", 3)) { fprintf(stderr, "no WebSocket: %.*s\n", (int)n, answer); exit(1); }
}

static void encrypt(conn *c) {
#ifdef WITH_TLS
    if (!tls) {
        tls = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    }
    c->ssl = SSL_new(tls); SSL_set_fd(c->ssl, c->fd);
    if (SSL_connect(c->ssl) != 1) { fprintf(stderr, "no TLS\n"); exit(1); }
#else
    (void)c; fprintf(stderr, "built without TLS\n"); exit(1);
#endif
}

/* Connects the only consumer and the only producer (-F alone). */
static int ends[2];
static void join_ends(void) {
    struct sockaddr_in a = { .sin_family = AF_INET }; socklen_t n = sizeof a;
    inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
    int door = socket(AF_INET, SOCK_STREAM, 0); ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(door, (void *)&a, n) || listen(door, 1) || getsockname(door, (void *)&a, &n) || connect(ends[0], (void *)&a, n)) die("loopback");
    ends[1] = accept(door, NULL, NULL); close(door);
}

static conn *dial(int producer, int queue, int number) {
    conn *c = calloc(1, sizeof *c); c->producer = producer; c->queue = queue; c->number = number;
    if (protocol == ALONE) { c->fd = ends[producer]; c->state = READY; c->subscribed = 1; }
    else {
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
        inet_pton(AF_INET, host, &a.sin_addr);
        if (connect(c->fd, (void *)&a, sizeof a)) die("connect");
    }
    int one = 1; setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (transport == WS) upgrade(c);
    if (transport == TLS) encrypt(c);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };
    epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
    char s[512]; int k = snprintf(s, sizeof s, "CONNECT\naccept-version:1.2\nhost:%s\nheart-beat:0,0\n", vhost);
    if (login) k += snprintf(s + k, sizeof s - k, "login:%s\npasscode:%s\n", login, passcode ? passcode : "");
    k += snprintf(s + k, sizeof s - k, "\n");
    if (protocol == NATS) { k = snprintf(s, sizeof s, "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"c\",\"version\":\"1\"}\r\nPING\r\n") - 1; }
    if (protocol != ALONE) { push_frame(c, s, k + 1); flush(c); }
    if (producer && protocol == NATS) {
        c->frame = malloc(size + 4096);
        int f = snprintf(c->frame, 4096, targets ? "PUB %s.%06d" : "PUB %s.%d", dest, queue);
        c->dest_off = f - 6;
        f += snprintf(c->frame + f, 64, " %ld\r\n", size);
        c->stamp_off = f; memset(c->frame + f, 'x', size); memcpy(c->frame + f + size, "\r\n", 2);
        c->frame_len = f + size + 2;
    } else if (producer) {
        c->frame = malloc(size + 8192);
        int f = snprintf(c->frame, 4096, targets ? "SEND\ndestination:%s.%06d" : "SEND\ndestination:%s.%d", dest, queue);
        c->dest_off = f - 6;
        f += snprintf(c->frame + f, 4096, "\n%s%s", persistent ? "persistent:true\n" : "", extra_send);
        if (serial) { f += snprintf(c->frame + f, 256, "%s:000000000000\n", serial); c->serial_off = f - 13; }
        f += snprintf(c->frame + f, 256, "content-length:%ld\n", size);
        c->receipt_off = f; c->frame[f++] = '\n';
        c->stamp_off = f; memset(c->frame + f, 'x', size); c->frame[f + size] = 0;
        c->frame_len = f + size + 1;
    }
    return c;
}

/* A line for every N messages or S seconds that are behind us. */
static void marks(uint64_t t0) {
    static long next = 0; static double next_at = 0;
    long done = consumers ? received : sent; double at = (now_ns() - t0) / 1e9;
    if (mark_every) {
        if (!next) next = mark_every;
        if (done >= next) { printf("{\"done\":%ld,\"seconds\":%.3f}\n", done, at); next = done - done % mark_every + mark_every; }
    }
    if (mark_seconds > 0) {
        if (next_at == 0) next_at = mark_seconds;
        if (at >= next_at) { printf("{\"done\":%ld,\"seconds\":%.3f}\n", done, at); while (next_at <= at) next_at += mark_seconds; }
    }
}

static int cmp(const void *a, const void *b) { uint32_t x = *(uint32_t *)a, y = *(uint32_t *)b; return x < y ? -1 : x > y; }

static int one_of(const char *name, const char *const *names) {
    for (int i = 0; names[i]; i++) if (!strcmp(name, names[i])) return i;
    fprintf(stderr, "unknown: %s\n", name); exit(2);
}

/* Handles what comes until the function says that it is enough, or the seconds are over; whether it was enough. */
static int until(int (*enough)(conn **, int, int), conn **cs, int from, int to, double seconds) {
    struct epoll_event ev[256];
    uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
    while (!enough(cs, from, to)) {
        if (now_ns() > end) return 0;
        int n = epoll_wait(ep, ev, 256, 20);
        for (int i = 0; i < n; i++) {
            conn *c = ev[i].data.ptr;
            if (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_read(c);
            if (ev[i].events & EPOLLOUT) { arm(c, 0); flush(c); }
        }
    }
    return 1;
}
static int all_ready(conn **cs, int from, int to) { for (int i = from; i < to; i++) if (cs[i]->state != READY) return 0; return 1; }
static int all_subscribed(conn **cs, int from, int to) { for (int i = from; i < to; i++) if (!cs[i]->subscribed) return 0; return 1; }
static int all_gone(conn **cs, int from, int to) { for (int i = from; i < to; i++) if (!cs[i]->gone) return 0; return 1; }
static int never(conn **cs, int from, int to) { (void)cs; (void)from; (void)to; return 0; }

int main(int argc, char **argv) {
    static const char *const protocols[] = { "stomp", "nats", "relay", "alone", NULL }, *const transports[] = { "tcp", "ws", "tls", NULL };
    int o, counted = 0;
    while ((o = getopt(argc, argv, "H:P:u:w:V:d:q:p:c:n:s:a:b:r:R:D:W:x:X:y:m:t:T:L:S:C:i:I:k:F:E:Q:O:")) != -1) switch (o) {
        case 'F': protocol = one_of(optarg, protocols); break; case 'E': transport = one_of(optarg, transports); break;
        case 'Q': targets = atoi(optarg); if (targets < 1 || targets > 1000000) return 2; break; case 'O': ready_seconds = atof(optarg); break;
        case 'H': host = optarg; break; case 'P': port = atoi(optarg); break;
        case 'u': login = optarg; break; case 'w': passcode = optarg; break; case 'V': vhost = optarg; break;
        case 'd': dest = optarg; break; case 'q': queues = atoi(optarg); break;
        case 'p': producers = atoi(optarg); break; case 'c': consumers = atoi(optarg); break;
        case 'n': total = atol(optarg); counted = 1; break; case 's': size = atol(optarg); if (size < 20) size = 20; break;
        case 'a': ack = optarg; break; case 'b': batch = atoi(optarg); break;
        case 'r': receipt_every = atoi(optarg); break; case 'R': receipts_max = atoi(optarg); break;
        case 'D': persistent = atoi(optarg); break; case 'W': window = atol(optarg); break;
        case 'x': add_line(extra_send, optarg); break; case 'y': add_line(extra_sub, optarg); break;
        case 'X': serial = optarg; if (strlen(serial) > 200) { fprintf(stderr, "-X: name longer than 200 bytes\n"); return 2; } break;
        case 'S': run_for = atof(optarg); break;
        case 'C': check = atoi(optarg); break; case 'k': stuck = atoi(optarg); break;
        case 'i': mark_every = atol(optarg); break; case 'I': mark_seconds = atof(optarg); break;
        case 'm': mode = optarg; break; case 't': topic = atoi(optarg); break; case 'L': rate = atol(optarg); break; case 'T': give_up = atoi(optarg); break;
        default: return 2;
    }
    if ((run_for > 0 || stuck) && !counted) total = 200000000;
    if (check && size < 40) size = 40;
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGUSR1, on_signal); signal(SIGINT, on_signal); signal(SIGPIPE, SIG_IGN);
    struct rlimit files; if (!getrlimit(RLIMIT_NOFILE, &files)) { files.rlim_cur = files.rlim_max; setrlimit(RLIMIT_NOFILE, &files); }
    if (!strcmp(mode, "produce")) consumers = 0;
    if (!strcmp(mode, "consume")) producers = 0;
    ep = epoll_create1(0);
    if (protocol == ALONE) {
        if (producers != 1 || consumers != 1 || transport != TCP) { fprintf(stderr, "-F alone: one producer, one consumer, tcp\n"); return 2; }
        join_ends();
    }
    lat_cap = total < 20000000 ? total : 20000000; lat = malloc(sizeof *lat * (lat_cap + 1));
    int nc = producers + consumers; conn **cs = calloc(nc, sizeof *cs);
    uint64_t dialled = now_ns();
    for (int i = 0; i < consumers; i++) cs[i] = dial(0, i % queues, i);
    struct epoll_event ev[256];
    /* consumers first: wait until they are subscribed, if anybody is to wait for them */
    if (stuck) until(never, cs, 0, consumers, 0.5);
    else if (producers && consumers) {
        if (!until(all_ready, cs, 0, consumers, ready_seconds)) { fprintf(stderr, "consumers are not connected after %g s\n", ready_seconds); return 4; }
        int there = until(all_subscribed, cs, 0, consumers, targets ? ready_seconds : 0.5), some = targets;
        for (int i = 0; i < consumers; i++) if (cs[i]->subscribed) some = 1;
        if (!there && some && !targets) there = until(all_subscribed, cs, 0, consumers, ready_seconds);
        if (!there && some) { fprintf(stderr, "not subscribed after %g s\n", ready_seconds); return 4; }
        if (protocol == RELAY) until(never, cs, 0, consumers, 0.1);
    }
    if (stuck) {
        printf("{\"stuck\":1}\n");
        while (!released && !interrupted) {
            int n = epoll_wait(ep, ev, 256, 50);
            for (int i = 0; i < n; i++) if (ev[i].events & (EPOLLHUP | EPOLLERR)) on_read(ev[i].data.ptr);
        }
        for (int i = 0; i < consumers; i++) set_deaf(cs[i], 0);
    }
    for (int i = 0; i < producers; i++) {
        cs[consumers + i] = dial(1, i % queues, i);
        if (targets) cs[consumers + i]->target = (long)targets * i / producers;
    }
    if (!until(all_ready, cs, consumers, nc, ready_seconds)) { fprintf(stderr, "producers are not connected after %g s\n", ready_seconds); return 4; }
    uint64_t t0 = now_ns(), last = t0; double ready = (t0 - dialled) / 1e9;
    printf("{\"ready\":%.3f}\n", ready); long seen = -1; int stalled = 0;
    long goal = producers && !consumers ? total : total * (topic ? consumers : 1);
    for (;;) {
        int n = epoll_wait(ep, ev, 256, rate ? 1 : 100);
        if (n < 0) n = 0;  /* a signal */
        for (int i = 0; i < n; i++) {
            conn *c = ev[i].data.ptr;
            if (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_read(c);
            if (ev[i].events & EPOLLOUT) { arm(c, 0); flush(c); }
        }
        marks(t0);
        if (interrupted || (run_for > 0 && now_ns() - t0 >= run_for * 1e9)) {
            run_for = 0; interrupted = 0; total = producers ? sent : received;
            goal = producers && consumers && topic ? total * consumers : total;
        }
        for (int i = consumers; i < nc; i++) if (may_send(cs[i]) && cs[i]->out_len - cs[i]->out_off < 65536) produce(cs[i]);
        long done = consumers ? received : sent;
        if (!consumers) for (int i = 0; i < nc; i++) if (cs[i]->outstanding) done = -1;
        if (done >= goal) {
            int dirty = 0; for (int i = 0; i < nc; i++) if (cs[i]->out_off != cs[i]->out_len) dirty = 1;
            if (!dirty) break;
        }
        uint64_t t = now_ns();
        if (received + receipts + sent != seen) { seen = received + receipts + sent; last = t; }
        else if (t - last > give_up * 1000000000ull) { stalled = 1; break; }
    }
    double secs = ((stalled ? last : now_ns()) - t0) / 1e9;
    qsort(lat, lat_n, sizeof *lat, cmp);
    #define P(q) (lat_n ? lat[(long)((lat_n - 1) * (q))] : 0)
    printf("{\"sent\":%ld,\"received\":%ld,\"receipts\":%ld,\"errors\":%ld,\"stalled\":%d,\"seconds\":%.3f,\"msgs_per_s\":%.0f,\"client_cpu\":%.2f,\"distinct\":%ld,\"repeated\":%ld,\"disordered\":%ld,\"redelivered\":%ld,\"p50_us\":%u,\"p99_us\":%u,\"p999_us\":%u,\"max_us\":%u,\"ready_seconds\":%.3f}\n",
        sent, received, receipts, errors, stalled, secs, (consumers ? received : sent) / secs,
        (double)clock() / CLOCKS_PER_SEC / secs, distinct, repeated, disordered, redelivered, P(.5), P(.99), P(.999), P(1), ready);
    /* leave politely so that unacknowledged auto-mode deliveries are settled */
    for (int i = 0; i < consumers; i++) if (cs[i]->unacked) {
        char s[512]; int k = snprintf(s, sizeof s, "ACK\nid:%s\n\n", cs[i]->last_ack);
        push_frame(cs[i], s, k + 1);
    }
    leaving = 1;
    if (protocol == STOMP) {
        for (int i = 0; i < nc; i++) { push_frame(cs[i], "DISCONNECT\nreceipt:bye\n\n", 25); flush(cs[i]); }
        until(all_gone, cs, 0, nc, 0.2);
    }
    return stalled ? 3 : 0;
}
