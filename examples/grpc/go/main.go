// A client of the gRPC port: it publishes COUNT messages, alone and in a stream of frames, then
// receives and acknowledges them.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "hermes.invalid/client/hermes/v1"
)

const usage = `usage: client TARGET TOPIC SUBSCRIPTION COUNT
       client bench TARGET TOPIC MESSAGE_BYTES MESSAGES_PER_FRAME FRAMES_UNDER_WAY SECONDS
       client drain TARGET TOPIC SUBSCRIPTION COUNT`

func main() {
	args, mode, wanted := os.Args[1:], "", 4
	if len(args) > 0 && (args[0] == "bench" || args[0] == "drain") {
		args, mode = args[1:], args[0]
	}
	if mode == "bench" {
		wanted = 6
	}
	if len(args) != wanted {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	conn, err := grpc.NewClient(args[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	publisher, subscriber := pb.NewPublisherServiceClient(conn), pb.NewSubscriberServiceClient(conn)
	switch began := time.Now(); mode {
	case "bench":
		bench(ctx, publisher, args[1], number(args[2]), number(args[3]), number(args[4]), number(args[5]))
		return
	case "drain":
		report(int64(receive(ctx, subscriber, args[1], args[2], number(args[3]))), 0, began)
		return
	}
	topic, count := args[1], number(args[3])
	answer, err := publisher.Publish(ctx, &pb.PublishRequest{Topic: topic, Messages: messages(1, 0)})
	check(err)
	fmt.Println("published alone", answer.Outcomes[0].HttpStatus)
	fmt.Println("published in frames", publish(ctx, publisher, topic, count-1))
	fmt.Println("acknowledged", receive(ctx, subscriber, topic, args[2], count))
}

// publish sends frames of 10 messages, and returns how many messages were stored.
func publish(ctx context.Context, publisher pb.PublisherServiceClient, topic string, count int) int {
	stream, err := publisher.PublishStream(ctx)
	check(err)
	go func() {
		for first := 0; first < count; first += 10 {
			many := messages(min(10, count-first), first+1)
			check(stream.Send(&pb.PublishStreamRequest{Topic: topic, Messages: many}))
		}
		check(stream.CloseSend())
	}()
	stored := 0
	for {
		answer, err := stream.Recv()
		if err == io.EOF {
			return stored
		}
		check(err)
		for _, frame := range answer.Frames {
			for _, outcome := range frame.Outcomes {
				if outcome.HttpStatus == 201 {
					stored++
				}
			}
		}
	}
}

// receive acknowledges messages until it has `count` different ones.
func receive(ctx context.Context, subscriber pb.SubscriberServiceClient, topic, name string, count int) int {
	stream, err := subscriber.Subscribe(ctx)
	check(err)
	start := &pb.Start{Topic: topic, Subscription: name, MaxOutstandingMessages: 1000}
	check(stream.Send(&pb.SubscribeRequest{Request: &pb.SubscribeRequest_Start{Start: start}}))
	seen := map[string]bool{}
	for len(seen) < count {
		answer, err := stream.Recv()
		check(err)
		ids := []string{}
		for _, received := range answer.ReceivedMessages {
			seen[received.Message.MessageId] = true
			ids = append(ids, received.AckId)
		}
		if len(ids) > 0 {
			ack := &pb.Acknowledge{AckIds: ids}
			check(stream.Send(&pb.SubscribeRequest{Request: &pb.SubscribeRequest_Acknowledge{Acknowledge: ack}}))
		}
	}
	// The node settles what it has read, then ends the stream.
	check(stream.CloseSend())
	for err == nil {
		_, err = stream.Recv()
	}
	return len(seen)
}

// bench publishes for some seconds, with so many frames or calls under way, and prints what it counted.
// Without messages per frame it calls Publish.
func bench(ctx context.Context, publisher pb.PublisherServiceClient, topic string, size, perFrame, window, seconds int) {
	began := time.Now()
	isOver := func() bool { return time.Since(began) > time.Duration(seconds)*time.Second }
	var stored, failed atomic.Int64
	count := func(outcomes []*pb.PublishOutcome) {
		for _, outcome := range outcomes {
			if outcome.HttpStatus == 201 {
				stored.Add(1)
			} else {
				failed.Add(1)
			}
		}
	}
	data := []byte(`"` + strings.Repeat("x", max(size-2, 0)) + `"`)
	if perFrame == 0 {
		var callers sync.WaitGroup
		for range window {
			callers.Go(func() {
				request := &pb.PublishRequest{Topic: topic, Messages: []*pb.Message{{Data: data}}}
				for !isOver() {
					answer, err := publisher.Publish(ctx, request)
					check(err)
					count(answer.Outcomes)
				}
			})
		}
		callers.Wait()
	} else {
		stream, err := publisher.PublishStream(ctx)
		check(err)
		request := &pb.PublishStreamRequest{Topic: topic}
		for range perFrame {
			request.Messages = append(request.Messages, &pb.Message{Data: data})
		}
		room := make(chan bool, window)
		go func() {
			for !isOver() {
				room <- true
				check(stream.Send(request))
			}
			check(stream.CloseSend())
		}()
		for {
			answer, err := stream.Recv()
			if err == io.EOF {
				break
			}
			check(err)
			for _, frame := range answer.Frames {
				<-room
				count(frame.Outcomes)
			}
		}
	}
	report(stored.Load(), failed.Load(), began)
}

func report(messages, failed int64, began time.Time) {
	fmt.Printf("{\"messages\": %d, \"failed\": %d, \"seconds\": %f}\n", messages, failed, time.Since(began).Seconds())
}

func messages(count, first int) (made []*pb.Message) {
	for n := first; n < first+count; n++ {
		made = append(made, &pb.Message{Data: fmt.Appendf(nil, `{"id": %d}`, n)})
	}
	return made
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
