# One conversation by the gem "stomp" (Debian: ruby-stomp), over STOMP 1.2.
require 'stomp'
require 'timeout'

host, port, prefix = ARGV
TEXT = "zażółć gęślą jaźń \u{1F422} "

def check(what, got, wanted)
  return if got == wanted

  warn "#{what}: #{got.inspect}, not #{wanted.inspect}"
  exit 1
end

def text(message)
  message.body.dup.force_encoding('UTF-8')
end

Timeout.timeout(30) do
  link = Stomp::Connection.new(
    hosts: [{ login: 'user', passcode: 'word', host: host, port: port.to_i }],
    reliable: false,
    connect_headers: { 'accept-version' => '1.0,1.1,1.2', 'host' => 'localhost', 'heart-beat' => '2000,2000' }
  )
  check('protocol', link.protocol, '1.2')

  work = "/queue/#{prefix}.work"
  20.times { |n| link.publish(work, TEXT + n.to_s, 'n' => n.to_s, 'odd:name' => "a:b\nc\\d") }
  link.subscribe(work, { 'ack' => 'client-individual', 'id' => 'w' }, 'w')
  20.times do |n|
    message = link.receive
    check('command', message.command, 'MESSAGE')
    check('body', text(message), TEXT + n.to_s)
    check('header', message.headers['n'], n.to_s)
    check('escaped header', message.headers['odd:name'], "a:b\nc\\d")
    link.ack(message.headers['ack'], 'id' => message.headers['ack'])
  end
  link.unsubscribe(work, { 'id' => 'w' }, 'w')

  transactions = "/queue/#{prefix}.transactions"
  link.subscribe(transactions, { 'ack' => 'auto', 'id' => 't' }, 't')
  link.begin('never')
  link.publish(transactions, 'aborted', 'transaction' => 'never')
  link.abort('never')
  link.begin('once')
  link.publish(transactions, 'committed', 'transaction' => 'once')
  link.publish(transactions, 'before')
  check('outside', link.receive.body, 'before')
  link.commit('once')
  check('committed', link.receive.body, 'committed')
  link.unsubscribe(transactions, { 'id' => 't' }, 't')

  ring = "/queue/ring3.#{prefix}"
  %w[A B C D].each { |body| link.publish(ring, body) }
  link.subscribe(ring, { 'ack' => 'auto', 'id' => 'r' }, 'r')
  check('ring', Array.new(3) { link.receive.body }, %w[B C D])
  link.disconnect('receipt' => 'bye')
  check('receipt', link.disconnect_receipt.headers['receipt-id'], 'bye')
end
puts 'ok'
