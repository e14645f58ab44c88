import java.lang.annotation.Annotation;
import java.lang.reflect.Method;
import java.net.URL;
import java.util.TreeSet;
import java.util.jar.JarFile;
import javax.ws.rs.Path;

/** Lists the routes of Apache Pulsar's admin API: "METHOD path" for each method of its resources in the broker's jar. */
public final class PulsarRoutes {
    private static final String[] VERBS = {"GET", "PUT", "POST", "DELETE"};

    public static void main(String[] arguments) throws Exception {
        TreeSet<String> found = new TreeSet<>();
        try (JarFile jar = new JarFile(arguments[0])) {
            jar.stream().map(entry -> entry.getName()).filter(PulsarRoutes::isResource).forEach(name -> {
                add(found, name.substring(0, name.length() - 6).replace('/', '.'));
            });
        }
        found.forEach(System.out::println);
    }

    private static boolean isResource(String name) {
        return name.endsWith(".class")
                && !name.contains("$")
                && (name.startsWith("org/apache/pulsar/broker/admin/v2/")
                        || name.startsWith("org/apache/pulsar/broker/lookup/v2/"));
    }

    private static void add(TreeSet<String> found, String name) {
        Class<?> resource;
        try {
            resource = Class.forName(name, false, PulsarRoutes.class.getClassLoader());
            Path base = resource.getAnnotation(Path.class);
            if (base == null) {
                return;
            }
            for (Method method : resource.getMethods()) {
                for (Annotation annotation : method.getAnnotations()) {
                    for (String verb : VERBS) {
                        if (annotation.annotationType().getSimpleName().equals(verb)) {
                            Path path = method.getAnnotation(Path.class);
                            found.add(verb + " " + joined(name, base.value(), path == null ? "" : path.value()));
                        }
                    }
                }
            }
        } catch (ReflectiveOperationException | LinkageError failure) {
            System.err.println(name + ": " + failure);
        }
    }

    private static String joined(String name, String base, String path) {
        String root = name.contains(".lookup.") ? "lookup/" : "admin/v2/";
        return (root + base + "/" + path).replaceAll("/+", "/").replaceAll("/$", "");
    }

    private PulsarRoutes() {}
}
