# One conversation by Net::Stomp (Debian: libnet-stomp-perl), which speaks STOMP 1.0 and reads 1.1 headers.
use strict;
use warnings;
use utf8;
use Encode qw(encode_utf8 decode_utf8);
use Net::Stomp;

my ( $host, $port, $prefix ) = @ARGV;
my $text = "zażółć gęślą jaźń \x{1F422} ";
binmode STDERR, ':encoding(UTF-8)';

sub check {
    my ( $what, $got, $wanted ) = @_;
    $got = '(nothing)' unless defined $got;
    return if $got eq $wanted;
    print STDERR "$what: $got, not $wanted\n";
    exit 1;
}

$SIG{ALRM} = sub { print STDERR "time is over\n"; exit 1 };
alarm 30;

my $link = Net::Stomp->new( { hostname => $host, port => $port } );
my $connected = $link->connect( { login => 'user', passcode => 'word' } );
check( 'connected', $connected->command, 'CONNECTED' );

my $work = "/queue/$prefix.work";
for my $n ( 0 .. 19 ) {
    $link->send( { destination => $work, body => encode_utf8("$text$n"), n => $n } );
}
$link->subscribe( { destination => $work, id => 'w', ack => 'client-individual', 'activemq.prefetchSize' => 5 } );
for my $n ( 0 .. 19 ) {
    my $frame = $link->receive_frame;
    check( 'command', $frame->command, 'MESSAGE' );
    check( 'body', decode_utf8( $frame->body ), "$text$n" );
    check( 'header', $frame->headers->{n}, $n );
    $link->ack( { frame => $frame } );
}
$link->unsubscribe( { destination => $work, id => 'w' } );

my $transactions = "/queue/$prefix.transactions";
check( 'send with receipt', $link->send_with_receipt( { destination => $transactions, body => 'first' } ), 1 );
check( 'send in a transaction', $link->send_transactional( { destination => $transactions, body => 'second' } ), 1 );
$link->subscribe( { destination => $transactions, id => 't', ack => 'auto' } );
check( 'first',  $link->receive_frame->body, 'first' );
check( 'second', $link->receive_frame->body, 'second' );
$link->unsubscribe( { destination => $transactions, id => 't' } );

my $ring = "/queue/ring3.$prefix";
$link->send( { destination => $ring, body => $_ } ) for qw(A B C D);
$link->subscribe( { destination => $ring, id => 'r', ack => 'auto' } );
check( 'ring', join( ' ', map { $link->receive_frame->body } 1 .. 3 ), 'B C D' );
$link->disconnect;
print "ok\n";
