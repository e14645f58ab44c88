import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;

/** What a program of Pulsar's Java client does: one check for each argument. It exits with 1 if a check fails. */
public final class PulsarProgram {
    private static PulsarClient client;

    public static final class Purchase {
        public String item;
        public int count;
    }

    public static void main(String[] arguments) throws Exception {
        client = PulsarClient.builder().serviceUrl(arguments[0]).enableTransaction(true).build();
        try {
            switch (arguments[1]) {
                case "transactions" -> transactions();
                case "abort" -> abort();
                case "batches" -> batches();
                case "key_shared" -> keyShared();
                case "schemas" -> schemas();
                case "patterns" -> patterns();
                default -> throw new IllegalArgumentException(arguments[1]);
            }
        } finally {
            client.close();
        }
    }

    private static void check(boolean good, String what) {
        if (!good) {
            throw new IllegalStateException(what);
        }
    }

    private static Producer<String> producer(String topic) throws Exception {
        return client.newProducer(Schema.STRING).topic(topic).sendTimeout(0, TimeUnit.SECONDS).create();
    }

    private static Consumer<String> consumer(String topic, SubscriptionType type) throws Exception {
        return client.newConsumer(Schema.STRING)
                .topic(topic)
                .subscriptionName("s")
                .subscriptionType(type)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
    }

    private static Transaction begin() throws Exception {
        return client.newTransaction().withTransactionTimeout(1, TimeUnit.MINUTES).build().get();
    }

    /** Reads from one topic and writes to another one: both take effect with the commit. */
    private static void transactions() throws Exception {
        Producer<String> input = producer("java-input");
        Producer<String> output = producer("java-output");
        for (int number = 0; number < 20; number++) {
            input.send("m" + number);
        }
        Consumer<String> reader = consumer("java-output", SubscriptionType.Exclusive);
        Consumer<String> worker = consumer("java-input", SubscriptionType.Shared);
        for (int number = 0; number < 20; number++) {
            Message<String> message = worker.receive(30, TimeUnit.SECONDS);
            Transaction transaction = begin();
            output.newMessage(transaction).value(message.getValue() + "!").send();
            worker.acknowledgeAsync(message.getMessageId(), transaction).get();
            check(reader.receive(100, TimeUnit.MILLISECONDS) == null, "a message of an open transaction");
            transaction.commit().get();
            Message<String> copy = reader.receive(30, TimeUnit.SECONDS);
            check(copy.getValue().equals(message.getValue() + "!"), "another message: " + copy.getValue());
        }
        worker.close();
        Consumer<String> again = consumer("java-input", SubscriptionType.Shared);
        check(again.receive(1, TimeUnit.SECONDS) == null, "an acknowledged message came again");
    }

    private static void abort() throws Exception {
        Producer<String> producer = producer("java-abort");
        for (int number = 0; number < 10; number++) {
            producer.send("m" + number);
        }
        Consumer<String> worker = consumer("java-abort", SubscriptionType.Shared);
        Transaction transaction = begin();
        TreeSet<String> got = new TreeSet<>();
        for (int number = 0; number < 10; number++) {
            Message<String> message = worker.receive(30, TimeUnit.SECONDS);
            got.add(message.getValue());
            worker.acknowledgeAsync(message.getMessageId(), transaction).get();
        }
        producer.newMessage(transaction).value("never").send();
        transaction.abort().get();
        TreeSet<String> again = new TreeSet<>();
        for (int number = 0; number < 10; number++) {
            Message<String> message = worker.receive(30, TimeUnit.SECONDS);
            check(message != null, "a message of an aborted transaction did not come again");
            again.add(message.getValue());
            worker.acknowledge(message);
        }
        check(got.equals(again), got + " is not " + again);
        check(worker.receive(500, TimeUnit.MILLISECONDS) == null, "an aborted message");
    }

    /** Batches in a transaction, and single acknowledgements of their messages. */
    private static void batches() throws Exception {
        Producer<String> producer = client.newProducer(Schema.STRING)
                .topic("java-batches")
                .batcherBuilder(BatcherBuilder.DEFAULT)
                .batchingMaxPublishDelay(50, TimeUnit.MILLISECONDS)
                .sendTimeout(0, TimeUnit.SECONDS)
                .create();
        Transaction transaction = begin();
        List<java.util.concurrent.CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            sent.add(producer.newMessage(transaction).value("m" + number).sendAsync());
        }
        for (var one : sent) {
            one.get();
        }
        transaction.commit().get();
        Consumer<String> worker = client.newConsumer(Schema.STRING)
                .topic("java-batches")
                .subscriptionName("s")
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .enableBatchIndexAcknowledgment(true)
                .subscribe();
        Transaction acks = begin();
        for (int number = 0; number < 100; number++) {
            Message<String> message = worker.receive(30, TimeUnit.SECONDS);
            check(message.getValue().equals("m" + number), message.getValue());
            worker.acknowledgeAsync(message.getMessageId(), acks).get();
        }
        acks.commit().get();
        worker.close();
        check(
                consumer("java-batches", SubscriptionType.Shared).receive(1, TimeUnit.SECONDS) == null,
                "an acknowledged message came again");
    }

    private static void keyShared() throws Exception {
        Producer<String> producer = client.newProducer(Schema.STRING)
                .topic("java-keys")
                .batcherBuilder(BatcherBuilder.KEY_BASED)
                .create();
        List<Consumer<String>> workers = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            workers.add(consumer("java-keys", SubscriptionType.Key_Shared));
        }
        for (int number = 0; number < 300; number++) {
            producer.newMessage().key("k" + number % 10).value("" + number).sendAsync();
        }
        producer.flush();
        Map<String, Integer> last = new HashMap<>();
        Map<String, Consumer<String>> owners = new HashMap<>();
        int left = 300;
        while (left > 0) {
            for (Consumer<String> worker : workers) {
                Message<String> message;
                while ((message = worker.receive(200, TimeUnit.MILLISECONDS)) != null) {
                    int number = Integer.parseInt(message.getValue());
                    check(number > last.getOrDefault(message.getKey(), -1), "out of order");
                    check(owners.getOrDefault(message.getKey(), worker) == worker, "two owners of a key");
                    last.put(message.getKey(), number);
                    owners.put(message.getKey(), worker);
                    worker.acknowledge(message);
                    left--;
                }
            }
        }
    }

    private static void schemas() throws Exception {
        Producer<Purchase> producer = client.newProducer(Schema.AVRO(Purchase.class)).topic("java-schemas").create();
        Purchase purchase = new Purchase();
        purchase.item = "book";
        purchase.count = 3;
        Consumer<org.apache.pulsar.client.api.schema.GenericRecord> consumer = client.newConsumer(Schema.AUTO_CONSUME())
                .topic("java-schemas")
                .subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
        producer.send(purchase);
        var message = consumer.receive(30, TimeUnit.SECONDS);
        check(message.getValue().getField("item").equals("book"), "another item");
        check(message.getValue().getField("count").equals(3), "another count");
    }

    /** A consumer by pattern gets messages of a topic that is created later, before it would look for one. */
    private static void patterns() throws Exception {
        Consumer<String> consumer = client.newConsumer(Schema.STRING)
                .topicsPattern(Pattern.compile("persistent://public/default/java-seen-.*"))
                .patternAutoDiscoveryPeriod(1, TimeUnit.HOURS)
                .subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
        producer("java-seen-1").send("hello");
        Message<String> message = consumer.receive(30, TimeUnit.SECONDS);
        check(message != null && message.getValue().equals("hello"), "no message of the new topic");
    }

    private PulsarProgram() {}
}
