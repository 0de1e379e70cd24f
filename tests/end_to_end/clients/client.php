<?php
// One conversation by the extension "stomp" (Debian: php-stomp), which speaks STOMP 1.0.

[, $host, $port, $prefix] = $argv;
$text = "zażółć gęślą jaźń \u{1F422} ";

function check(string $what, mixed $got, mixed $wanted): void
{
    if ($got !== $wanted) {
        fwrite(STDERR, "$what: " . var_export($got, true) . ', not ' . var_export($wanted, true) . "\n");
        exit(1);
    }
}

function next_frame(Stomp $link): StompFrame
{
    $frame = $link->readFrame();
    check('a frame in time', $frame instanceof StompFrame, true);
    check('command', $frame->command, 'MESSAGE');
    return $frame;
}

$link = new Stomp("tcp://$host:$port", 'user', 'word');
$link->setReadTimeout(30);
check('session', strlen($link->getSessionId()) > 0, true);

$work = "/queue/$prefix.work";
for ($n = 0; $n < 20; $n++) {
    check('send', $link->send($work, $text . $n, ['n' => (string) $n]), true);
}
$link->subscribe($work, ['id' => 'w', 'ack' => 'client-individual', 'activemq.prefetchSize' => '5']);
for ($n = 0; $n < 20; $n++) {
    $frame = next_frame($link);
    check('body', $frame->body, $text . $n);
    check('header', $frame->headers['n'], (string) $n);
    $link->ack($frame);
}
$link->unsubscribe($work, ['id' => 'w']);

$transactions = "/queue/$prefix.transactions";
$link->begin('never');
$link->send($transactions, 'aborted', ['transaction' => 'never']);
$link->abort('never');
$link->begin('once');
$link->send($transactions, 'committed', ['transaction' => 'once']);
$link->send($transactions, 'before');
$link->subscribe($transactions, ['id' => 't', 'ack' => 'auto']);
check('outside', next_frame($link)->body, 'before');
$link->commit('once');
check('committed', next_frame($link)->body, 'committed');
$link->unsubscribe($transactions, ['id' => 't']);

$ring = "/queue/ring3.$prefix";
foreach (['A', 'B', 'C', 'D'] as $body) {
    $link->send($ring, $body);
}
$link->subscribe($ring, ['id' => 'r', 'ack' => 'auto']);
check('ring', [next_frame($link)->body, next_frame($link)->body, next_frame($link)->body], ['B', 'C', 'D']);
unset($link);
echo "ok\n";
