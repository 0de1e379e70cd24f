// A producer and consumer by go-stomp, which goes on at whichever of its brokers answers.
//
// It prints a line for each connection, receipt and message, and ends after a line on its standard input, when each
// message that was sent has a receipt and has come back. Arguments: QUEUE HOST:PORT...
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-stomp/stomp/v3"
	"github.com/go-stomp/stomp/v3/frame"
)

var (
	output sync.Mutex
	seen   = map[string]bool{}
)

func say(words ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Println(words...)
}

// The first of the brokers that accepts it; they are tried again and again.
func connect(brokers []string) *stomp.Conn {
	for {
		for _, broker := range brokers {
			connection, err := stomp.Dial("tcp", broker,
				stomp.ConnOpt.HeartBeat(2*time.Second, 2*time.Second), stomp.ConnOpt.HeartBeatError(time.Second))
			if err == nil {
				say("connected", broker)
				return connection
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Ends with its connection; what it has not acknowledged comes again on the next one.
func consume(connection *stomp.Conn, queue string, received *sync.Mutex) error {
	subscription, err := connection.Subscribe(queue, stomp.AckClientIndividual)
	if err != nil {
		return err
	}
	go func() {
		for message := range subscription.C {
			if message.Err != nil {
				return
			}
			say("message", string(message.Body), message.Header.Get(frame.MessageId))
			received.Lock()
			seen[string(message.Body)] = true
			received.Unlock()
			if connection.Ack(message) != nil {
				return
			}
		}
	}()
	return nil
}

func main() {
	queue, brokers := os.Args[1], os.Args[2:]
	var finishing atomic.Bool
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		finishing.Store(true)
	}()
	var received sync.Mutex
	number := 1 // without a receipt so far: sent again on the next connection, with the same duplicate id
	for {
		connection := connect(brokers)
		err := consume(connection, queue, &received)
		for err == nil {
			if finishing.Load() {
				received.Lock()
				done := len(seen) == number-1
				received.Unlock()
				if done {
					connection.Disconnect()
					say("done", number-1)
					return
				}
				// Something to do that fails when the connection is lost
				time.Sleep(10 * time.Millisecond)
				transaction := connection.Begin()
				err = transaction.Abort()
				continue
			}
			body := strconv.Itoa(number)
			err = connection.Send(queue, "text/plain", []byte(body), stomp.SendOpt.Receipt,
				stomp.SendOpt.Header("persistent", "true"), stomp.SendOpt.Header("_AMQ_DUPL_ID", body))
			if err == nil {
				say("receipt", number)
				number++
				time.Sleep(5 * time.Millisecond)
			}
		}
		connection.MustDisconnect()
	}
}
