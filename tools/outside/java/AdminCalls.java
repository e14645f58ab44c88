import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Calls each method of Admin, and writes its name, a tab and what the server answered on a line.
 * Arguments: brokers.
 */
public class AdminCalls {
    private static final Set<String> called = new HashSet<>(Set.of("close"));
    private static final TopicPartition FIRST = new TopicPartition("calls", 0);
    private static final TopicPartition SECOND = new TopicPartition("calls", 1);
    private static final ConfigResource TOPIC = new ConfigResource(ConfigResource.Type.TOPIC, "calls");
    private static final AclBinding RULE = new AclBinding(
        new ResourcePattern(ResourceType.TOPIC, "calls-rule", PatternType.LITERAL),
        new AccessControlEntry("User:ada", "*", AclOperation.READ, AclPermissionType.ALLOW));
    private static final ClientQuotaEntity USER = new ClientQuotaEntity(Map.of("user", "ada"));

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("default.api.timeout.ms", 15_000);
        settings.put("request.timeout.ms", 10_000);
        try (Admin admin = Admin.create(settings)) {
            topics(admin);
            configs(admin);
            cluster(admin);
            rules(admin);
            groups(admin, arguments[0]);
            transactions(admin, arguments[0]);
            rest(admin);
        }
        for (Method method : Admin.class.getMethods()) {
            if (Modifier.isAbstract(method.getModifiers()) && called.add(method.getName())) {
                System.out.println(method.getName() + "\tnot called");
            }
        }
    }

    private static void topics(Admin admin) {
        call("createTopics", () -> {
            CreateTopicsResult made = admin.createTopics(List.of(new NewTopic("calls", 2, (short) 1), new NewTopic("calls-2", 1, (short) 1)));
            made.all().get();
            return made.numPartitions("calls").get() + " " + made.replicationFactor("calls").get();
        });
        pause();
        call("createTopics again", () -> admin.createTopics(List.of(new NewTopic("calls", 2, (short) 1))).all().get());
        call("createTopics with a wrong name", () -> admin.createTopics(List.of(new NewTopic("a b", 2, (short) 1))).all().get());
        call("createPartitions", () -> admin.createPartitions(Map.of("calls-2", NewPartitions.increaseTo(3))).all().get());
        call("createPartitions to fewer", () -> admin.createPartitions(Map.of("calls", NewPartitions.increaseTo(1))).all().get());
        pause();
        call("listTopics", () -> {
            TreeSet<String> names = new TreeSet<>(admin.listTopics().names().get());
            names.removeIf(name -> !name.startsWith("calls"));
            return names;
        });
        call("describeTopics", () -> {
            TopicDescription found = admin.describeTopics(List.of("calls-2")).allTopicNames().get().get("calls-2");
            return found.name() + " " + found.isInternal() + " " + found.partitions().size() + " " + found.partitions().get(0).isr().size();
        });
        call("describeTopics of none", () -> admin.describeTopics(List.of("nope")).allTopicNames().get());
        call("deleteTopics", () -> admin.deleteTopics(List.of("calls-2")).all().get());
        call("deleteTopics of none", () -> admin.deleteTopics(List.of("nope")).all().get());
    }

    private static void configs(Admin admin) {
        call("incrementalAlterConfigs", () -> admin.incrementalAlterConfigs(Map.of(TOPIC, List.of(
            new AlterConfigOp(new ConfigEntry("retention.ms", "1000000000000"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND)))).all().get());
        call("incrementalAlterConfigs to nonsense", () -> admin.incrementalAlterConfigs(Map.of(TOPIC, List.of(
            new AlterConfigOp(new ConfigEntry("retention.ms", "x"), AlterConfigOp.OpType.SET)))).all().get());
        pause();
        call("describeConfigs", () -> {
            Config found = admin.describeConfigs(List.of(TOPIC)).all().get().get(TOPIC);
            return found.get("retention.ms").value() + " " + found.get("retention.ms").source() + " " + found.get("cleanup.policy").value()
                + " " + found.get("segment.bytes").isDefault();
        });
        call("listConfigResources", () -> {
            TreeSet<String> names = new TreeSet<>();
            for (ConfigResource one : admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC), new ListConfigResourcesOptions()).all().get()) {
                names.add(one.name());
            }
            names.removeIf(name -> !name.startsWith("calls"));
            return names;
        });
        call("listClientMetricsResources", () -> admin.listClientMetricsResources().all().get());
    }

    private static void cluster(Admin admin) {
        call("describeCluster", () -> {
            DescribeClusterResult found = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            return found.nodes().get().size() + " " + found.controller().get().id() + " " + new TreeSet<>(found.authorizedOperations().get());
        });
        call("describeFeatures", () -> new TreeSet<>(admin.describeFeatures().featureMetadata().get().supportedFeatures().keySet()));
        call("updateFeatures", () -> admin.updateFeatures(
            Map.of("group.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all().get());
        call("describeMetadataQuorum", () -> {
            QuorumInfo found = admin.describeMetadataQuorum().quorumInfo().get();
            return found.leaderId() + " " + found.voters().size() + " " + found.observers().size();
        });
        call("addRaftVoter", () -> admin.addRaftVoter(9, Uuid.randomUuid(), Set.of(new RaftVoterEndpoint("CONTROLLER", "localhost", 1))).all().get());
        call("removeRaftVoter", () -> admin.removeRaftVoter(9, Uuid.randomUuid()).all().get());
        call("unregisterBroker", () -> admin.unregisterBroker(77).all().get());
        call("describeLogDirs", () -> {
            Map<String, LogDirDescription> found = admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1);
            int replicas = 0;
            for (LogDirDescription one : found.values()) {
                for (TopicPartition place : one.replicaInfos().keySet()) {
                    replicas += place.topic().equals("calls") ? 1 : 0;
                }
            }
            return found.size() + " " + replicas;
        });
        TopicPartitionReplica replica = new TopicPartitionReplica("calls", 0, 1);
        call("describeReplicaLogDirs", () -> admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica).getCurrentReplicaLogDir() != null);
        call("alterReplicaLogDirs", () -> admin.alterReplicaLogDirs(Map.of(replica, "/nowhere")).all().get());
        call("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(FIRST)).all().get());
        call("alterPartitionReassignments", () -> admin.alterPartitionReassignments(
            Map.of(FIRST, Optional.of(new NewPartitionReassignment(List.of(1))))).all().get());
        call("alterPartitionReassignments to no broker", () -> admin.alterPartitionReassignments(
            Map.of(FIRST, Optional.of(new NewPartitionReassignment(List.of(77))))).all().get());
        call("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get());
    }

    private static void rules(Admin admin) {
        call("createAcls", () -> admin.createAcls(List.of(RULE)).all().get());
        pause();
        call("describeAcls", () -> admin.describeAcls(RULE.toFilter()).values().get());
        call("deleteAcls", () -> admin.deleteAcls(List.of(RULE.toFilter())).all().get());
        call("alterClientQuotas", () -> admin.alterClientQuotas(List.of(
            new ClientQuotaAlteration(USER, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e9))))).all().get());
        pause();
        call("describeClientQuotas", () -> admin.describeClientQuotas(
            ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntity("user", "ada")))).entities().get());
        call("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("ada", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), "secret"))).all().get());
        pause();
        call("describeUserScramCredentials", () -> admin.describeUserScramCredentials(List.of("ada")).all().get());
        call("describeUserScramCredentials of none", () -> admin.describeUserScramCredentials(List.of("nobody")).all().get());
        call("createDelegationToken", () -> admin.createDelegationToken().delegationToken().get() != null);
        call("renewDelegationToken", () -> admin.renewDelegationToken(new byte[] {1}).expiryTimestamp().get() > 0);
        call("expireDelegationToken", () -> admin.expireDelegationToken(new byte[] {1}).expiryTimestamp().get() > 0);
        call("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens().get());
    }

    private static void groups(Admin admin, String brokers) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(FIRST, new OffsetAndMetadata(3, "note"), SECOND, new OffsetAndMetadata(4));
        call("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets("calls-group", offsets).all().get());
        call("listConsumerGroupOffsets", () -> new TreeMap<>(texts(admin.listConsumerGroupOffsets("calls-group").partitionsToOffsetAndMetadata().get())));
        call("deleteConsumerGroupOffsets", () -> admin.deleteConsumerGroupOffsets("calls-group", Set.of(SECOND)).all().get());
        call("describeClassicGroups", () -> {
            ClassicGroupDescription found = admin.describeClassicGroups(List.of("calls-group")).all().get().get("calls-group");
            return found.state() + " " + found.members().size() + " " + found.protocol();
        });
        try (KafkaConsumer<String, String> member = member(brokers)) {
            member.subscribe(List.of("calls"));
            for (int n = 0; n < 50 && member.assignment().isEmpty(); n++) {
                member.poll(Duration.ofMillis(100));
            }
            call("describeConsumerGroups", () -> {
                ConsumerGroupDescription found = admin.describeConsumerGroups(List.of("calls-static")).all().get().get("calls-static");
                MemberDescription one = found.members().iterator().next();
                return found.type() + " " + found.groupState() + " " + found.partitionAssignor() + " " + one.groupInstanceId()
                    + " " + one.assignment().topicPartitions().size();
            });
            call("deleteConsumerGroups with members", () -> admin.deleteConsumerGroups(List.of("calls-static")).all().get());
            call("removeMembersFromConsumerGroup", () -> admin.removeMembersFromConsumerGroup("calls-static",
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("one")))).all().get());
        }
        call("removeMembersFromConsumerGroup of none", () -> admin.removeMembersFromConsumerGroup("calls-static",
            new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("two")))).all().get());
        call("alterShareGroupOffsets", () -> admin.alterShareGroupOffsets("calls-share", Map.of(FIRST, 0L)).all().get());
        call("listShareGroupOffsets", () -> {
            Map<TopicPartition, SharePartitionOffsetInfo> found =
                admin.listShareGroupOffsets(Map.of("calls-share", new ListShareGroupOffsetsSpec())).all().get().get("calls-share");
            return found.get(FIRST).startOffset();
        });
        call("describeShareGroups", () -> {
            ShareGroupDescription found = admin.describeShareGroups(List.of("calls-share")).all().get().get("calls-share");
            return found.groupState() + " " + found.members().size();
        });
        call("alterStreamsGroupOffsets", () -> admin.alterStreamsGroupOffsets("calls-streams", offsets).all().get());
        call("listStreamsGroupOffsets", () -> new TreeMap<>(texts(admin.listStreamsGroupOffsets(
            Map.of("calls-streams", new ListStreamsGroupOffsetsSpec())).all().get().get("calls-streams"))));
        call("describeStreamsGroups", () -> admin.describeStreamsGroups(List.of("nope")).all().get());
        call("deleteStreamsGroupOffsets", () -> admin.deleteStreamsGroupOffsets("calls-streams", Set.of(SECOND)).all().get());
        call("listGroups", () -> {
            TreeMap<String, String> found = new TreeMap<>();
            for (GroupListing one : admin.listGroups().all().get()) {
                if (one.groupId().startsWith("calls")) {
                    found.put(one.groupId(), one.type() + " " + one.protocol() + " " + one.groupState());
                }
            }
            return found;
        });
        call("listConsumerGroups", () -> {
            TreeSet<String> found = new TreeSet<>();
            for (ConsumerGroupListing one : admin.listConsumerGroups().all().get()) {
                if (one.groupId().startsWith("calls")) {
                    found.add(one.groupId());
                }
            }
            return found;
        });
        call("deleteShareGroupOffsets", () -> admin.deleteShareGroupOffsets("calls-share", Set.of("calls")).all().get());
        call("deleteShareGroups", () -> admin.deleteShareGroups(List.of("calls-share")).all().get());
        call("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of("calls-group")).all().get());
        call("deleteConsumerGroups of none", () -> admin.deleteConsumerGroups(List.of("nope")).all().get());
        call("deleteStreamsGroups", () -> admin.deleteStreamsGroups(List.of("calls-streams")).all().get());
    }

    private static void transactions(Admin admin, String brokers) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", brokers);
        settings.put("transactional.id", "calls-tx");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            call("a transaction", () -> {
                producer.initTransactions();
                producer.beginTransaction();
                return producer.send(new ProducerRecord<>("calls", 0, "key", "value")).get().offset();
            });
            call("listOffsets", () -> {
                Map<TopicPartition, OffsetSpec> asked = Map.of(FIRST, OffsetSpec.latest(), SECOND, OffsetSpec.earliest());
                Map<TopicPartition, ListOffsetsResult.ListOffsetsResultInfo> found = admin.listOffsets(asked).all().get();
                return found.get(FIRST).offset() + " " + found.get(SECOND).offset();
            });
            call("listOffsets of the newest time", () -> admin.listOffsets(Map.of(FIRST, OffsetSpec.maxTimestamp())).partitionResult(FIRST).get().offset());
            call("describeProducers", () -> {
                List<ProducerState> found = admin.describeProducers(List.of(FIRST)).partitionResult(FIRST).get().activeProducers();
                return found.size() + " " + found.get(0).producerEpoch() + " " + found.get(0).lastSequence() + " " + found.get(0).currentTransactionStartOffset();
            });
            call("listTransactions", () -> {
                TreeMap<String, String> found = new TreeMap<>();
                for (TransactionListing one : admin.listTransactions().all().get()) {
                    found.put(one.transactionalId(), one.state().toString());
                }
                return found;
            });
            call("describeTransactions", () -> {
                TransactionDescription found = admin.describeTransactions(List.of("calls-tx")).all().get().get("calls-tx");
                return found.state() + " " + found.transactionTimeoutMs() + " " + found.topicPartitions();
            });
            call("describeTransactions of none", () -> admin.describeTransactions(List.of("nope")).all().get());
            call("forceTerminateTransaction", () -> admin.forceTerminateTransaction("calls-tx").result().get());
            call("fenceProducers", () -> admin.fenceProducers(List.of("calls-tx")).all().get());
            call("abortTransaction", () -> admin.abortTransaction(new AbortTransactionSpec(FIRST, 1, (short) 0, 0)).all().get());
        }
        call("deleteRecords", () -> admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(1))).lowWatermarks().get(FIRST).get().lowWatermark());
        call("deleteRecords beyond the end", () -> admin.deleteRecords(Map.of(FIRST, RecordsToDelete.beforeOffset(100))).all().get());
    }

    private static void rest(Admin admin) {
        call("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(5)) != null);
        call("metrics", () -> !admin.metrics().isEmpty());
        call("registerMetricForSubscription", () -> {
            admin.registerMetricForSubscription(null);
            return "";
        });
        call("unregisterMetricFromSubscription", () -> {
            admin.unregisterMetricFromSubscription(null);
            return "";
        });
    }

    private static KafkaConsumer<String, String> member(String brokers) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", brokers);
        settings.put("group.id", "calls-static");
        settings.put("group.instance.id", "one");
        settings.put("group.protocol", "classic");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static TreeMap<String, String> texts(Map<TopicPartition, OffsetAndMetadata> offsets) {
        TreeMap<String, String> found = new TreeMap<>();
        offsets.forEach((place, offset) -> found.put(place.toString(), offset.offset() + " " + offset.metadata()));
        return found;
    }

    private static void call(String name, Callable<Object> what) {
        called.add(name.split(" ")[0]);
        String answer;
        try {
            answer = String.valueOf(what.call());
        } catch (ExecutionException error) {
            answer = error.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            answer = error.getClass().getSimpleName();
        }
        System.out.println(name + "\t" + answer);
        System.out.flush();
    }

    private static void pause() {
        try {
            Thread.sleep(500); // a broker of Kafka hears of changes after the answer
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }
}
