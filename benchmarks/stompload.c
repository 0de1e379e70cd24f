/*
 * stompload - a small STOMP 1.2 load generator.
 *
 * One thread, epoll, frames built once and patched in place, so that on a small machine
 * the broker and not the client is what is measured. It works against any STOMP 1.2 broker.
 *
 * Build:  cc -O2 -o stompload stompload.c
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
 *   -k 1 = consumers are stuck: they subscribe, print {"stuck":1}, and read nothing until SIGUSR1; time counts from there
 * SIGINT ends the run with what was done until then.
 * Output: one JSON line (behind those of -i, -I and -k): sent, received, seconds, msgs_per_s, client_cpu (share of
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
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTING, READY };
typedef struct {
    int fd, producer, state, queue, want_write, deaf, number;
    char *in; size_t in_len, in_cap;
    char *out; size_t out_len, out_off, out_cap;
    char *frame; size_t frame_len; size_t stamp_off, receipt_off, serial_off;
    long sent, received, outstanding, unacked;
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
static int persistent = 0, topic = 0, give_up = 20;
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
        ssize_t n = write(c->fd, c->out + c->out_off, c->out_len - c->out_off);
        if (n < 0) { if (errno == EAGAIN) { arm(c, 1); return; } die("write"); }
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
    while (may_send(c) && c->out_len - c->out_off < 65536) {
        char stamp[24]; snprintf(stamp, sizeof stamp, "%019llu ", (unsigned long long)now_ns());
        memcpy(c->frame + c->stamp_off, stamp, 20);
        if (check) {
            char v[32]; snprintf(v, sizeof v, "%04d %012ld ", c->number % 10000, c->sent % 1000000000000);
            memcpy(c->frame + c->stamp_off + 20, v, 18);
        }
        if (serial) { char v[16]; snprintf(v, sizeof v, "%012ld", sent % 1000000000000); memcpy(c->frame + c->serial_off, v, 12); }
        if (receipt_every && (c->sent + 1) % receipt_every == 0) {
            char r[24]; snprintf(r, sizeof r, "receipt:%010ld\n", c->sent);
            push(c, c->frame, c->receipt_off); push(c, r, strlen(r));
            push(c, c->frame + c->receipt_off, c->frame_len - c->receipt_off);
            c->outstanding++;
        } else push(c, c->frame, c->frame_len);
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

static void frame_in(conn *c, const char *cmd, size_t cmd_len, const char *h, const char *h_end, const char *body, size_t body_len) {
    size_t n; const char *v;
    if (cmd_len == 9 && !memcmp(cmd, "CONNECTED", 9)) {
        c->state = READY;
        if (!c->producer) {
            char s[2048];
            int k = snprintf(s, sizeof s, "SUBSCRIBE\nid:0\ndestination:%s.%d\nack:%s\n%s\n", dest, c->queue, ack, extra_sub);
            push(c, s, k + 1); flush(c);
            if (stuck) set_deaf(c, 1);
        }
    } else if (cmd_len == 7 && !memcmp(cmd, "MESSAGE", 7)) {
        received++; c->received++;
        if (check) {
            compare(c, body, body_len);
            v = header(h, h_end, "redelivered", &n);
            if (v && n == 4 && !memcmp(v, "true", 4)) redelivered++;
        }
        if (body_len >= 19 && lat_n < lat_cap) lat[lat_n++] = (uint32_t)((now_ns() - strtoull(body, NULL, 10)) / 1000);
        if (ack[0] != 'a') {
            v = header(h, h_end, "ack", &n); if (!v) v = header(h, h_end, "message-id", &n);
            if (!v || n > 255) { fprintf(stderr, "MESSAGE without ack header\n"); exit(1); }
            memcpy(c->last_ack, v, n); c->last_ack[n] = 0; c->unacked++;
            if (!strcmp(ack, "client-individual") || c->unacked >= batch || received >= total) {
                char s[512]; int k = snprintf(s, sizeof s, "ACK\nid:%s\n\n", c->last_ack);
                push(c, s, k + 1); c->unacked = 0;
            }
        }
    } else if (cmd_len == 7 && !memcmp(cmd, "RECEIPT", 7)) {
        receipts++; c->outstanding--;
    } else {
        errors++; fprintf(stderr, "%.*s %.*s %.*s\n", (int)cmd_len, cmd, (int)(h_end - h), h, (int)body_len, body);
        if (errors > 5) exit(1);
    }
}

static void parse(conn *c) {
    size_t pos = 0;
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
    for (int i = 0; i < 4; i++) {
        if (c->in_cap - c->in_len < 65536) { c->in_cap = c->in_cap ? c->in_cap * 2 : 262144; c->in = realloc(c->in, c->in_cap); }
        ssize_t n = read(c->fd, c->in + c->in_len, c->in_cap - c->in_len);
        if (n < 0) { if (errno == EAGAIN) break; die("read"); }
        if (n == 0) { fprintf(stderr, "connection closed by the broker\n"); exit(1); }
        c->in_len += n;
        if ((size_t)n < 32768) break;
    }
    parse(c);
    flush(c);
}

static conn *dial(int producer, int queue) {
    conn *c = calloc(1, sizeof *c); c->producer = producer; c->queue = queue;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
    inet_pton(AF_INET, host, &a.sin_addr);
    if (connect(c->fd, (void *)&a, sizeof a)) die("connect");
    int one = 1; setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };
    epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
    char s[512]; int k = snprintf(s, sizeof s, "CONNECT\naccept-version:1.2\nhost:%s\nheart-beat:0,0\n", vhost);
    if (login) k += snprintf(s + k, sizeof s - k, "login:%s\npasscode:%s\n", login, passcode ? passcode : "");
    k += snprintf(s + k, sizeof s - k, "\n");
    push(c, s, k + 1); flush(c);
    if (producer) {
        c->frame = malloc(size + 4096);
        int f = snprintf(c->frame, 4096, "SEND\ndestination:%s.%d\n%s%s", dest, queue, persistent ? "persistent:true\n" : "", extra_send);
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

int main(int argc, char **argv) {
    int o, counted = 0;
    while ((o = getopt(argc, argv, "H:P:u:w:V:d:q:p:c:n:s:a:b:r:R:D:W:x:X:y:m:t:T:L:S:C:i:I:k:")) != -1) switch (o) {
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
    signal(SIGUSR1, on_signal); signal(SIGINT, on_signal);
    if (!strcmp(mode, "produce")) consumers = 0;
    if (!strcmp(mode, "consume")) producers = 0;
    ep = epoll_create1(0);
    lat_cap = total < 20000000 ? total : 20000000; lat = malloc(sizeof *lat * (lat_cap + 1));
    int nc = producers + consumers; conn **cs = calloc(nc, sizeof *cs);
    for (int i = 0; i < consumers; i++) cs[i] = dial(0, i % queues);
    struct epoll_event ev[256];
    /* consumers first: wait until they are subscribed, if anybody is to wait for them */
    uint64_t settle = now_ns() + 500000000ull;
    while (now_ns() < settle && (producers || stuck)) {
        int n = epoll_wait(ep, ev, 256, 50);
        for (int i = 0; i < n; i++) { conn *c = ev[i].data.ptr; if (ev[i].events & EPOLLIN) on_read(c); if (ev[i].events & EPOLLOUT) { arm(c, 0); flush(c); } }
    }
    if (stuck) {
        printf("{\"stuck\":1}\n");
        while (!released && !interrupted) {
            int n = epoll_wait(ep, ev, 256, 50);
            for (int i = 0; i < n; i++) if (ev[i].events & (EPOLLHUP | EPOLLERR)) on_read(ev[i].data.ptr);
        }
        for (int i = 0; i < consumers; i++) set_deaf(cs[i], 0);
    }
    for (int i = 0; i < producers; i++) { cs[consumers + i] = dial(1, i % queues); cs[consumers + i]->number = i; }
    uint64_t t0 = now_ns(), last = t0; long seen = -1; int stalled = 0;
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
    printf("{\"sent\":%ld,\"received\":%ld,\"receipts\":%ld,\"errors\":%ld,\"stalled\":%d,\"seconds\":%.3f,\"msgs_per_s\":%.0f,\"client_cpu\":%.2f,\"distinct\":%ld,\"repeated\":%ld,\"disordered\":%ld,\"redelivered\":%ld,\"p50_us\":%u,\"p99_us\":%u,\"p999_us\":%u,\"max_us\":%u}\n",
        sent, received, receipts, errors, stalled, secs, (consumers ? received : sent) / secs,
        (double)clock() / CLOCKS_PER_SEC / secs, distinct, repeated, disordered, redelivered, P(.5), P(.99), P(.999), P(1));
    /* leave politely so that unacknowledged auto-mode deliveries are settled */
    for (int i = 0; i < consumers; i++) if (cs[i]->unacked) {
        char s[512]; int k = snprintf(s, sizeof s, "ACK\nid:%s\n\n", cs[i]->last_ack);
        push(cs[i], s, k + 1);
    }
    for (int i = 0; i < nc; i++) { push(cs[i], "DISCONNECT\nreceipt:bye\n\n", 25); flush(cs[i]); }
    usleep(200000);
    return stalled ? 3 : 0;
}
