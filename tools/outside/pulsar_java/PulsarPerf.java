import java.util.Arrays;
import org.apache.pulsar.testclient.CmdBase;
import org.apache.pulsar.testclient.PerformanceConsumer;
import org.apache.pulsar.testclient.PerformanceProducer;

/** Runs `pulsar-perf produce` or `consume` alone: the other commands of pulsar-perf need the classes of a broker. */
public final class PulsarPerf {
    public static void main(String[] arguments) throws Exception {
        CmdBase command = arguments[0].equals("produce") ? new PerformanceProducer() : new PerformanceConsumer();
        System.exit(command.run(Arrays.copyOfRange(arguments, 1, arguments.length)) ? 0 : 1);
    }
}
