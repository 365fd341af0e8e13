import com.google.protobuf.ByteString;
import hermes.v1.Acknowledge;
import hermes.v1.Message;
import hermes.v1.PublishRequest;
import hermes.v1.PublishStreamRequest;
import hermes.v1.PublishStreamResponse;
import hermes.v1.PublisherServiceGrpc;
import hermes.v1.ReceivedMessage;
import hermes.v1.Start;
import hermes.v1.SubscribeRequest;
import hermes.v1.SubscribeResponse;
import hermes.v1.SubscriberServiceGrpc;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.stub.StreamObserver;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;

/**
 * Publishes COUNT messages, alone and in a stream of frames, then receives and acknowledges them.
 */
public final class Client {
    public static void main(String[] args) throws Exception {
        if (args.length != 4) {
            System.err.println("arguments: TARGET TOPIC SUBSCRIPTION COUNT");
            System.exit(2);
        }
        String topic = args[1];
        int count = Integer.parseInt(args[3]);
        ManagedChannel channel =
                Grpc.newChannelBuilder(args[0], InsecureChannelCredentials.create()).build();
        var request = PublishRequest.newBuilder().setTopic(topic).addMessages(message(0)).build();
        var answer = PublisherServiceGrpc.newBlockingStub(channel).publish(request);
        System.out.println("published alone " + answer.getOutcomes(0).getHttpStatus());
        System.out.println("published in frames " + publish(channel, topic, count - 1));
        System.out.println("acknowledged " + receive(channel, topic, args[2], count));
        channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }

    private static int publish(ManagedChannel channel, String topic, int count) throws Exception {
        AtomicInteger stored = new AtomicInteger();
        Answers<PublishStreamResponse> answers = new Answers<>(answer -> answer.getFramesList().forEach(
                frame -> frame.getOutcomesList().forEach(outcome -> {
                    if (outcome.getHttpStatus() == 201) {
                        stored.incrementAndGet();
                    }
                })));
        var frames = PublisherServiceGrpc.newStub(channel).publishStream(answers);
        for (int n = 1; n <= count; n++) {
            frames.onNext(PublishStreamRequest.newBuilder()
                    .setTopic(topic).setSequence(n).addMessages(message(n)).build());
        }
        frames.onCompleted();
        answers.await();
        return stored.get();
    }

    private static int receive(ManagedChannel channel, String topic, String name, int count)
            throws Exception {
        Set<String> seen = new HashSet<>();
        Answers<SubscribeResponse> answers = new Answers<>();
        var requests = SubscriberServiceGrpc.newStub(channel).subscribe(answers);
        answers.onEach = answer -> {
            List<ReceivedMessage> received = answer.getReceivedMessagesList();
            if (received.isEmpty()) {
                return;
            }
            received.forEach(each -> seen.add(each.getMessage().getMessageId()));
            var ack = Acknowledge.newBuilder();
            received.forEach(each -> ack.addAckIds(each.getAckId()));
            requests.onNext(SubscribeRequest.newBuilder().setAcknowledge(ack).build());
            if (seen.size() >= count) {
                requests.onCompleted();
            }
        };
        requests.onNext(SubscribeRequest.newBuilder().setStart(Start.newBuilder()
                .setTopic(topic).setSubscription(name).setMaxOutstandingMessages(100)).build());
        answers.await();
        return seen.size();
    }

    private static Message message(int n) {
        return Message.newBuilder().setData(ByteString.copyFromUtf8("{\"id\": " + n + "}")).build();
    }

    /** Calls `onEach` for each answer of a stream. */
    private static final class Answers<T> implements StreamObserver<T> {
        private final CountDownLatch ended = new CountDownLatch(1);
        private volatile Consumer<T> onEach;
        private volatile Throwable error;

        Answers() {}

        Answers(Consumer<T> onEach) {
            this.onEach = onEach;
        }

        @Override
        public void onNext(T answer) {
            onEach.accept(answer);
        }

        @Override
        public void onError(Throwable error) {
            this.error = error;
            ended.countDown();
        }

        @Override
        public void onCompleted() {
            ended.countDown();
        }

        void await() throws Exception {
            if (!ended.await(1, TimeUnit.MINUTES)) {
                throw new IllegalStateException("the stream did not end");
            }
            if (error != null) {
                throw new IllegalStateException(error);
            }
        }
    }
}
