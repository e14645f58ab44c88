import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerCryptoFailureAction;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
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
                case "dead_letters" -> deadLetters();
                case "retry_letters" -> retryLetters();
                case "delayed" -> delayed();
                case "seek" -> seek();
                case "encryption" -> encryption();
                case "chunks" -> chunks();
                case "batch_indexes" -> batchIndexes();
                case "priorities" -> priorities();
                case "unacked" -> unacked();
                case "key_shared_changes" -> keySharedChanges();
                case "table_view" -> tableView();
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

    /** What a consumer returns again and again goes to another topic, and is acknowledged here. */
    private static void deadLetters() throws Exception {
        Producer<String> producer = producer("java-dying");
        Consumer<String> worker = client.newConsumer(Schema.STRING)
                .topic("java-dying")
                .subscriptionName("s")
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                .deadLetterPolicy(DeadLetterPolicy.builder()
                        .maxRedeliverCount(2)
                        .deadLetterTopic("java-dead")
                        .initialSubscriptionName("graves")
                        .build())
                .subscribe();
        for (int number = 0; number < 5; number++) {
            producer.newMessage().key("k" + number).property("n", "" + number).value("m" + number).send();
        }
        List<Integer> counts = new ArrayList<>();
        TreeSet<String> acked = new TreeSet<>();
        Message<String> message;
        while ((message = worker.receive(3, TimeUnit.SECONDS)) != null) {
            if (message.getValue().equals("m3")) {
                counts.add(message.getRedeliveryCount());
                worker.negativeAcknowledge(message);
            } else {
                acked.add(message.getValue());
                worker.acknowledge(message);
            }
        }
        check(counts.equals(List.of(0, 1, 2)), "redelivered with counts " + counts);
        check(acked.equals(new TreeSet<>(List.of("m0", "m1", "m2", "m4"))), "acknowledged " + acked);
        Consumer<String> graves = client.newConsumer(Schema.STRING)
                .topic("java-dead")
                .subscriptionName("graves")
                .subscribe();
        Message<String> dead = graves.receive(30, TimeUnit.SECONDS);
        check(dead != null && dead.getValue().equals("m3"), "another dead letter");
        check("k3".equals(dead.getKey()) && "3".equals(dead.getProperty("n")), "another key or property");
        check(dead.getProperty("REAL_TOPIC").endsWith("java-dying"), "another topic: " + dead.getProperties());
        worker.close();
        check(
                consumer("java-dying", SubscriptionType.Shared).receive(1, TimeUnit.SECONDS) == null,
                "a dead letter came again");
    }

    private static void retryLetters() throws Exception {
        Producer<String> producer = producer("java-retried");
        Consumer<String> worker = client.newConsumer(Schema.STRING)
                .topic("java-retried")
                .subscriptionName("s")
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .enableRetry(true)
                .deadLetterPolicy(DeadLetterPolicy.builder()
                        .maxRedeliverCount(2)
                        .retryLetterTopic("java-retry")
                        .deadLetterTopic("java-retry-dead")
                        .initialSubscriptionName("graves")
                        .build())
                .subscribe();
        producer.send("again");
        List<String> times = new ArrayList<>();
        Message<String> message;
        while ((message = worker.receive(3, TimeUnit.SECONDS)) != null) {
            times.add(message.getProperty("RECONSUMETIMES"));
            worker.reconsumeLater(message, 200, TimeUnit.MILLISECONDS);
        }
        check(times.equals(java.util.Arrays.asList(null, "1", "2")), "retried " + times);
        Consumer<String> graves = client.newConsumer(Schema.STRING)
                .topic("java-retry-dead")
                .subscriptionName("graves")
                .subscribe();
        message = graves.receive(30, TimeUnit.SECONDS);
        check(message != null && message.getValue().equals("again"), "no dead letter");
    }

    private static void delayed() throws Exception {
        Producer<String> producer = producer("java-delayed");
        Consumer<String> worker = consumer("java-delayed", SubscriptionType.Shared);
        long begun = System.currentTimeMillis();
        producer.newMessage().value("late").deliverAfter(1500, TimeUnit.MILLISECONDS).send();
        producer.newMessage().value("early").deliverAt(begun + 700).send();
        producer.newMessage().value("now").send();
        for (String wanted : List.of("now", "early", "late")) {
            Message<String> message = worker.receive(30, TimeUnit.SECONDS);
            check(message != null && message.getValue().equals(wanted), "not " + wanted);
            long after = System.currentTimeMillis() - begun;
            check(after >= (wanted.equals("late") ? 1500 : wanted.equals("early") ? 700 : 0), wanted + " after " + after);
            worker.acknowledge(message);
        }
        Consumer<String> inOrder = consumer("java-delayed-in-order", SubscriptionType.Exclusive);
        Producer<String> other = producer("java-delayed-in-order");
        other.newMessage().value("first").deliverAfter(1, TimeUnit.HOURS).send();
        check(inOrder.receive(30, TimeUnit.SECONDS) != null, "an exclusive consumer waits for a delayed message");
    }

    private static void seek() throws Exception {
        Producer<String> producer = producer("java-seek");
        List<MessageId> ids = new ArrayList<>();
        List<Long> times = new ArrayList<>();
        for (int number = 0; number < 10; number++) {
            times.add(System.currentTimeMillis());
            ids.add(producer.send("m" + number));
            Thread.sleep(20);
        }
        for (SubscriptionType type : SubscriptionType.values()) {
            for (boolean inclusive : new boolean[] {false, true}) {
                var builder = client.newConsumer(Schema.STRING)
                        .topic("java-seek")
                        .subscriptionName(type + "-" + inclusive)
                        .subscriptionType(type)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
                Consumer<String> reader =
                        (inclusive ? builder.startMessageIdInclusive() : builder).subscribe();
                check(reader.receive(30, TimeUnit.SECONDS).getValue().equals("m0"), "not the first");
                reader.seek(ids.get(4));
                String after = reader.receive(30, TimeUnit.SECONDS).getValue();
                check(after.equals(inclusive ? "m4" : "m5"), type + " " + inclusive + ": " + after + " after m4");
                reader.seek(times.get(7));
                check(reader.receive(30, TimeUnit.SECONDS).getValue().equals("m7"), "not that of the time");
                reader.seek(MessageId.latest);
                check(reader.receive(300, TimeUnit.MILLISECONDS) == null, "there is nothing after the latest");
                reader.seek(MessageId.earliest);
                check(reader.receive(30, TimeUnit.SECONDS).getValue().equals("m0"), "not the first again");
                reader.close();
            }
        }
        List<MessageId> copies = new ArrayList<>();
        for (MessageId id : ids) {
            copies.add(MessageId.fromByteArray(id.toByteArray()));
        }
        check(copies.equals(ids), "ids differ after serialisation");
    }

    private static String pem(String name, byte[] content) {
        String text = java.util.Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(content);
        return "-----BEGIN " + name + "-----\n" + text + "\n-----END " + name + "-----\n";
    }

    /** The broker stores what only clients can read, in batches and alone. */
    private static void encryption() throws Exception {
        java.security.KeyPairGenerator generator = java.security.KeyPairGenerator.getInstance("RSA");
        generator.initialize(2048);
        java.security.KeyPair pair = generator.generateKeyPair();
        CryptoKeyReader keys = new CryptoKeyReader() {
            @Override
            public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
                return new EncryptionKeyInfo(pem("PUBLIC KEY", pair.getPublic().getEncoded()).getBytes(), metadata);
            }

            @Override
            public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
                return new EncryptionKeyInfo(pem("PRIVATE KEY", pair.getPrivate().getEncoded()).getBytes(), metadata);
            }
        };
        for (boolean batched : new boolean[] {false, true}) {
            String topic = "java-encrypted-" + batched;
            Producer<String> producer = client.newProducer(Schema.STRING)
                    .topic(topic)
                    .enableBatching(batched)
                    .batchingMaxPublishDelay(1, TimeUnit.SECONDS)
                    .compressionType(org.apache.pulsar.client.api.CompressionType.LZ4)
                    .addEncryptionKey("key")
                    .cryptoKeyReader(keys)
                    .create();
            for (int number = 0; number < 10; number++) {
                producer.newMessage().key("k").property("n", "" + number).value("secret " + number).sendAsync();
            }
            producer.flush();
            Consumer<String> reader = client.newConsumer(Schema.STRING)
                    .topic(topic)
                    .subscriptionName("knows")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                    .cryptoKeyReader(keys)
                    .subscribe();
            for (int number = 0; number < 10; number++) {
                Message<String> message = reader.receive(30, TimeUnit.SECONDS);
                check(message.getValue().equals("secret " + number), message.getValue());
                check(message.getProperty("n").equals("" + number), "another property");
            }
            Consumer<byte[]> blind = client.newConsumer()
                    .topic(topic)
                    .subscriptionName("blind")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                    .cryptoFailureAction(ConsumerCryptoFailureAction.CONSUME)
                    .subscribe();
            Message<byte[]> message = blind.receive(30, TimeUnit.SECONDS);
            check(message.getEncryptionCtx().isPresent(), "no context");
            check(message.getEncryptionCtx().get().getKeys().containsKey("key"), "no key");
            check(!new String(message.getData()).contains("secret"), "not encrypted");
        }
    }

    private static byte[] large(int seed, int size) {
        byte[] content = new byte[size];
        new java.util.Random(seed).nextBytes(content);
        return content;
    }

    /** Chunks of several producers among each other. */
    private static void chunks() throws Exception {
        List<Producer<byte[]>> producers = new ArrayList<>();
        for (int number = 0; number < 2; number++) {
            producers.add(client.newProducer()
                    .topic("java-chunks")
                    .enableBatching(false)
                    .enableChunking(true)
                    .chunkMaxMessageSize(100_000)
                    .create());
        }
        List<java.util.concurrent.CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (int number = 0; number < 6; number++) {
            sent.add(producers.get(number % 2).sendAsync(large(number, 1_000_000 + number)));
        }
        Consumer<byte[]> reader = client.newConsumer()
                .topic("java-chunks")
                .subscriptionName("s")
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
        TreeSet<Integer> got = new TreeSet<>();
        TreeSet<MessageId> ids = new TreeSet<>();
        for (int number = 0; number < 6; number++) {
            Message<byte[]> message = reader.receive(60, TimeUnit.SECONDS);
            check(message != null, "a message in chunks did not come: " + got);
            int seed = message.getData().length - 1_000_000;
            check(java.util.Arrays.equals(message.getData(), large(seed, 1_000_000 + seed)), "other bytes");
            got.add(seed);
            ids.add(message.getMessageId());
            reader.acknowledge(message);
        }
        check(got.size() == 6 && ids.size() == 6, "messages came twice: " + got);
        for (var one : sent) {
            check(ids.contains(one.get()), "the producer got another id");
        }
        reader.seek(sent.get(3).get());
        reader.close();
        Consumer<String> again = consumer("java-chunks-other", SubscriptionType.Shared);
        check(again.receive(200, TimeUnit.MILLISECONDS) == null, "nothing was sent there");
    }

    /** Single messages of a batch are acknowledged, with receipts: the others come again. */
    private static void batchIndexes() throws Exception {
        Producer<String> producer = client.newProducer(Schema.STRING)
                .topic("java-indexes")
                .batchingMaxMessages(100)
                .batchingMaxPublishDelay(10, TimeUnit.SECONDS)
                .create();
        for (int number = 0; number < 100; number++) {
            producer.newMessage().value("" + number).sendAsync();
        }
        producer.flush();
        for (SubscriptionType type : List.of(SubscriptionType.Shared, SubscriptionType.Key_Shared)) {
            TreeSet<Integer> wanted = new TreeSet<>();
            for (int round = 0; round < 2; round++) {
                Consumer<String> worker = client.newConsumer(Schema.STRING)
                        .topic("java-indexes")
                        .subscriptionName("s-" + type)
                        .subscriptionType(type)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .enableBatchIndexAcknowledgment(true)
                        .isAckReceiptEnabled(true)
                        .subscribe();
                TreeSet<Integer> got = new TreeSet<>();
                for (int number = 0; number < (round == 0 ? 100 : wanted.size()); number++) {
                    Message<String> message = worker.receive(30, TimeUnit.SECONDS);
                    int value = Integer.parseInt(message.getValue());
                    check(got.add(value), value + " came twice");
                    if (round == 0 && value % 3 != 0) {
                        worker.acknowledgeAsync(message).get();
                    } else {
                        wanted.add(value);
                    }
                }
                check(round == 0 || got.equals(wanted), got + " came again");
                check(worker.receive(200, TimeUnit.MILLISECONDS) == null, "too many messages");
                worker.close();
            }
        }
    }

    private static Consumer<String> ranked(String topic, int priority, int queue) throws Exception {
        return client.newConsumer(Schema.STRING)
                .topic(topic)
                .subscriptionName("s")
                .subscriptionType(SubscriptionType.Shared)
                .priorityLevel(priority)
                .receiverQueueSize(queue)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
    }

    /** The consumer of the better level gets all that it has room for; what is left goes to the other one. */
    private static void priorities() throws Exception {
        Consumer<String> second = ranked("java-ranks", 1, 100);
        Consumer<String> first = ranked("java-ranks", 0, 6);
        Producer<String> producer = client.newProducer(Schema.STRING).topic("java-ranks").enableBatching(false).create();
        for (int number = 0; number < 10; number++) {
            producer.send("m" + number);
        }
        TreeSet<String> rest = new TreeSet<>();
        Message<String> message;
        while ((message = second.receive(1, TimeUnit.SECONDS)) != null) {
            rest.add(message.getValue());
        }
        check(rest.equals(new TreeSet<>(List.of("m6", "m7", "m8", "m9"))), "the second level got " + rest);
        for (int number = 0; number < 6; number++) {
            check(first.receive(30, TimeUnit.SECONDS).getValue().equals("m" + number), "not m" + number);
        }
    }

    /** Messages that are neither acknowledged nor returned come again after the client's timeout. */
    private static void unacked() throws Exception {
        Producer<String> producer = producer("java-unacked");
        producer.send("once more");
        Consumer<String> worker = client.newConsumer(Schema.STRING)
                .topic("java-unacked")
                .subscriptionName("s")
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .ackTimeout(1, TimeUnit.SECONDS)
                .subscribe();
        check(worker.receive(30, TimeUnit.SECONDS).getRedeliveryCount() == 0, "a first delivery is counted");
        Message<String> message = worker.receive(30, TimeUnit.SECONDS);
        check(message != null && message.getRedeliveryCount() == 1, "it did not come again");
        worker.acknowledge(message);
        check(worker.receive(2, TimeUnit.SECONDS) == null, "it came again");
    }

    /** Consumers come and go while they work: whatever is processed of a key is processed in order. */
    private static void keySharedChanges() throws Exception {
        int messages = 2_000;
        int keys = 20;
        Producer<String> producer = client.newProducer(Schema.STRING)
                .topic("java-changes")
                .batcherBuilder(BatcherBuilder.KEY_BASED)
                .sendTimeout(0, TimeUnit.SECONDS)
                .blockIfQueueFull(true)
                .create();
        List<Consumer<String>> workers = new ArrayList<>();
        workers.add(consumer("java-changes", SubscriptionType.Key_Shared));
        for (int number = 0; number < messages; number++) {
            producer.newMessage().key("k" + number % keys).value("" + number).sendAsync();
        }
        producer.flush();
        java.util.Random chance = new java.util.Random(7);
        Map<String, Integer> last = new HashMap<>();
        int done = 0;
        long deadline = System.currentTimeMillis() + 120_000;
        while (done < messages) {
            check(System.currentTimeMillis() < deadline, "only " + done + " messages came");
            int roll = chance.nextInt(40);
            if (roll == 0 && workers.size() < 5) {
                workers.add(consumer("java-changes", SubscriptionType.Key_Shared));
            } else if (roll == 1 && workers.size() > 1) {
                workers.remove(chance.nextInt(workers.size())).close();
            }
            for (Consumer<String> worker : workers) {
                for (int some = 0; some < 20; some++) {
                    Message<String> message = worker.receive(5, TimeUnit.MILLISECONDS);
                    if (message == null) {
                        break;
                    }
                    int number = Integer.parseInt(message.getValue());
                    int before = last.getOrDefault(message.getKey(), number % keys - keys);
                    check(number <= before + keys, number + " came after " + before);
                    if (number == before + keys) {
                        last.put(message.getKey(), number);
                        done++;
                    }
                    worker.acknowledgeAsync(message).get();
                }
            }
        }
    }

    private static void tableView() throws Exception {
        Producer<String> producer = producer("java-table");
        var table = client.newTableView(Schema.STRING)
                .topic("persistent://public/default/java-table") // with a short name, a refresh never ends
                .autoUpdatePartitionsInterval(1, TimeUnit.SECONDS)
                .create();
        for (int number = 0; number < 20; number++) {
            producer.newMessage().key("k" + number % 4).value("" + number).send();
        }
        producer.newMessage().key("k0").value(null).send();
        table.refreshAsync().get(30, TimeUnit.SECONDS);
        check(table.size() == 3 && table.get("k3").equals("19"), table.size() + " keys");
    }

    private PulsarProgram() {}
}
