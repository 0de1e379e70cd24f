# Request and reply over STOMP with the gem stomp: docs/tutorials/request-reply.md. The broker is at 127.0.0.1:61613.
# The answers come on a temporary topic, to which the requester subscribes.
require 'securerandom'
require 'stomp'

def connect
  Stomp::Connection.new(
    hosts: [{ login: '', passcode: '', host: '127.0.0.1', port: Integer(ENV.fetch('PORT', '61613')) }],
    reliable: false,
    connect_headers: { 'accept-version' => '1.2', 'host' => 'localhost' }
  )
end

replier = connect
replier.subscribe('/queue/sums', { 'id' => 'sums' }, 'sums')
Thread.new do
  loop do
    asked = replier.receive
    sum = asked.body.split('+').sum(&:to_i)
    replier.publish(asked.headers['reply-to'], sum.to_s, 'correlation-id' => asked.headers['correlation-id'])
  end
end

requester = connect
requester.subscribe('/temp-topic/answers', { 'id' => 'answers' }, 'answers')
question = SecureRandom.uuid
requester.publish('/queue/sums', '19+23', 'reply-to' => '/temp-topic/answers', 'correlation-id' => question)
answer = requester.receive
raise 'another answer' unless answer.headers['correlation-id'] == question

puts answer.body
requester.disconnect
